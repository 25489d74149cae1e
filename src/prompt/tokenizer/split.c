/* Pre-tokenisers: steps that cut a piece of text into smaller ones. Each step hands every piece
 * that it makes to the next, the last one to the model, so that no list of pieces is kept:
 *
 *   "Add 123"  ──Digits──► "Add " ──Split──► "Add" " " ──► words
 *                          "1" ──► ...
 *
 * A match may be empty. It still splits the text. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <string.h>

#include "base/utf8.h"

/* The pieces of one step: matching and other segments alternate, and become pieces according to the
 * step's behaviour. `begin .. end` is held back if the next segment may join it. */
struct splitter {
    struct encoder *e;
    size_t step;
    const char *text;
    enum text_place place;
    bool held, held_matches, last_matches;
    size_t begin, end;
};

static int emit(struct splitter *s, size_t begin, size_t end)
{
    if (begin == end)
        return 0;
    return encode_pieces(s->e, s->step + 1, s->text + begin, end - begin,
                         begin ? PLACE_LATER : s->place);
}

static int release(struct splitter *s)
{
    bool held = s->held;
    s->held = false;
    return held ? emit(s, s->begin, s->end) : 0;
}

static int hold(struct splitter *s, size_t begin, size_t end, bool matches)
{
    if (release(s) != 0)
        return -1;
    s->held = true;
    s->held_matches = matches;
    s->begin = begin;
    s->end = end;
    return 0;
}

static int segment(struct splitter *s, size_t begin, size_t end, bool matches)
{
    const struct pre_step *step = &s->e->t->pre[s->step];
    bool last = s->last_matches;
    matches = matches != step->invert;
    s->last_matches = matches;
    switch (step->behavior) {
    case SPLIT_ISOLATED: return emit(s, begin, end);
    case SPLIT_REMOVED: return matches ? 0 : emit(s, begin, end);
    case SPLIT_CONTIGUOUS:
        if (s->held && s->held_matches == matches) {
            s->end = end;
            return 0;
        }
        break;
    case SPLIT_WITH_PREVIOUS:
        if (s->held && matches && !last) {
            s->end = end;
            return 0;
        }
        break;
    case SPLIT_WITH_NEXT:
        if (s->held && s->held_matches && !matches) {
            s->end = end;
            s->held_matches = false;
            return 0;
        }
        break;
    }
    return hold(s, begin, end, matches);
}

/* ---- searching ---- */

static bool class_has(enum pre_kind kind, uint32_t code)
{
    switch (kind) {
    case PRE_DIGITS: return char_is_numeric(code);
    case PRE_PUNCTUATION: return char_is_punctuation(code);
    default: return char_is_space(code);
    }
}

static size_t width_at(const char *text, size_t len, size_t at)
{
    size_t width = utf8_valid_prefix(text + at, len - at);
    return width ? width : 1;
}

static int find_char(enum pre_kind kind, const char *text, size_t len, size_t at, size_t *begin,
                     size_t *end)
{
    for (size_t width; at < len; at += width) {
        width = width_at(text, len, at);
        if (class_has(kind, utf8_decode(text + at, width))) {
            *begin = at;
            *end = at + width;
            return 1;
        }
    }
    return 0;
}

/* \w+|[^\w\s]+ */
static int find_word(const char *text, size_t len, size_t at, size_t *begin, size_t *end)
{
    size_t width;
    while (at < len && char_is_space(utf8_decode(text + at, width = width_at(text, len, at))))
        at += width;
    if (at == len)
        return 0;
    *begin = at;
    bool is_word = char_is_word(utf8_decode(text + at, width_at(text, len, at)));
    for (; at < len; at += width) {
        width = width_at(text, len, at);
        uint32_t code = utf8_decode(text + at, width);
        if (char_is_space(code) || char_is_word(code) != is_word)
            break;
    }
    *end = at;
    return 1;
}

/* As text_regex_find. */
static int find_next(struct encoder *e, const struct pre_step *step, const char *text, size_t len,
                     size_t at, size_t *begin, size_t *end)
{
    const char *found;
    switch (step->kind) {
    case PRE_REGEX: return text_regex_find(e, step->regex, text, len, at, begin, end);
    case PRE_WHITESPACE: return find_word(text, len, at, begin, end);
    case PRE_STRING:
        found = memmem(text + at, len - at, step->text.bytes, step->text.len);
        if (!found)
            return 0;
        *begin = (size_t)(found - text);
        *end = *begin + step->text.len;
        return 1;
    default: return find_char(step->kind, text, len, at, begin, end);
    }
}

/* An empty match directly after a match does not count; the search continues one character
 * later. */
static int split(struct encoder *e, size_t step, const char *text, size_t len,
                 enum text_place place)
{
    struct splitter s = {.e = e, .step = step, .text = text, .place = place};
    size_t at = 0, done = 0, begin, end;
    bool matched = false;
    int found = 0;
    while (at <= len &&
           (found = find_next(e, &e->t->pre[step], text, len, at, &begin, &end)) == 1) {
        if (begin == end && matched && begin == done) {
            at += at < len ? width_at(text, len, at) : 1;
            continue;
        }
        if ((begin > done && segment(&s, done, begin, false) != 0) ||
            segment(&s, begin, end, true) != 0)
            return -1;
        done = at = end;
        matched = true;
    }
    if (found < 0 || (done < len && segment(&s, done, len, false) != 0))
        return -1;
    return release(&s);
}

/* ---- steps ---- */

static int scan(struct encoder *e, size_t step, const char *text, size_t len)
{
    const struct pre_tokenizer *scanner = e->t->pre[step].scanner;
    bool is_last = step + 1 == e->t->n_pre;
    for (size_t at = 0, end; at < len; at = end) {
        end = pre_tokenizer_word(scanner, text, len, at);
        if ((is_last ? encode_word(e, text + at, end - at)
                     : encode_pieces(e, step + 1, text + at, end - at, PLACE_LATER)) != 0)
            return -1;
    }
    return 0;
}

static int no_memory(struct encoder *e, size_t len)
{
    return error_set(e->err, ERROR_MEMORY, "no memory for %zu bytes", len);
}

static int prefix_space(struct encoder *e, size_t step, const char *text, size_t len,
                        enum text_place place)
{
    if (place == PLACE_CONTINUES || text[0] == ' ')
        return encode_pieces(e, step + 1, text, len, place);
    struct strbuf *out = &e->pieces[step];
    strbuf_clear(out);
    strbuf_addc(out, ' ');
    strbuf_add(out, text, len);
    if (out->failed)
        return no_memory(e, len);
    return encode_pieces(e, step + 1, out->data, out->len, place);
}

static int metaspace(struct encoder *e, size_t step, const char *text, size_t len,
                     enum text_place place)
{
    const struct pre_step *s = &e->t->pre[step];
    struct strbuf *out = &e->pieces[step];
    bool prepends = s->prepend == PREPEND_ALWAYS ? place != PLACE_CONTINUES
                                                 : s->prepend == PREPEND_FIRST && !place;
    strbuf_clear(out);
    if (prepends && text[0] != ' ' && !byte_view_starts((struct byte_view){text, len}, s->text))
        strbuf_add(out, s->text.bytes, s->text.len);
    for (const char *space; (space = memchr(text, ' ', len));) {
        strbuf_add(out, text, (size_t)(space - text));
        strbuf_add(out, s->text.bytes, s->text.len);
        len -= (size_t)(space - text) + 1;
        text = space + 1;
    }
    strbuf_add(out, text, len);
    if (out->failed)
        return no_memory(e, len);
    if (!s->splits)
        return encode_pieces(e, step + 1, out->data, out->len, place);
    /* Each mark belongs to the text after it. */
    for (size_t at = 0, end; at < out->len; at = end) {
        struct byte_view left = {out->data + at, out->len - at};
        const char *from = left.bytes + (byte_view_starts(left, s->text) ? s->text.len : 0);
        const char *mark = memmem(from, (size_t)(out->data + out->len - from), s->text.bytes,
                                  s->text.len);
        end = mark ? (size_t)(mark - out->data) : out->len;
        if (encode_pieces(e, step + 1, out->data + at, end - at, at ? PLACE_LATER : place) != 0)
            return -1;
    }
    return 0;
}

/* If tokens have marks only at their start, nothing joins across word starts, and words are encoded
 * one by one; otherwise the piece is one word. */
static int encode_marked(struct encoder *e, const char *text, size_t len)
{
    if (!e->t->splits_at_marks)
        return encode_word(e, text, len);
    const char *end = text + len;
    while (text < end) {
        const char *next = text;
        while (byte_view_starts((struct byte_view){next, (size_t)(end - next)},
                                byte_view_of(SPACE_MARK)))
            next += SPACE_MARK_LEN;
        next = memmem(next, (size_t)(end - next), SPACE_MARK, SPACE_MARK_LEN);
        if (!next)
            next = end;
        if (encode_word(e, text, (size_t)(next - text)) != 0)
            return -1;
        text = next;
    }
    return 0;
}

int encode_pieces(struct encoder *e, size_t step, const char *text, size_t len,
                  enum text_place place)
{
    if (len == 0)
        return 0;
    if (step == e->t->n_pre)
        return encode_marked(e, text, len);
    switch (e->t->pre[step].kind) {
    case PRE_SCAN: return scan(e, step, text, len);
    case PRE_PREFIX_SPACE: return prefix_space(e, step, text, len, place);
    case PRE_METASPACE: return metaspace(e, step, text, len, place);
    default: return split(e, step, text, len, place);
    }
}

/* ---- adding steps ---- */

struct pre_step *pre_add_step(struct tokenizer *t, enum pre_kind kind, enum split_behavior behavior,
                              struct error *err)
{
    if (t->n_pre == MAX_PRE_STEPS) {
        error_set(err, ERROR_FORMAT, "the pre_tokenizer has more than %d steps", MAX_PRE_STEPS);
        return NULL;
    }
    struct pre_step *step = &t->pre[t->n_pre++];
    step->kind = kind;
    step->behavior = behavior;
    return step;
}

/* After Digits that are split one by one, one scanner does both steps. */
static int add_scanner(struct tokenizer *t, enum pre_scanner scanner, struct error *err)
{
    const struct pre_step *last = t->n_pre ? &t->pre[t->n_pre - 1] : NULL;
    if (scanner == SCAN_GPT2 && last && last->kind == PRE_DIGITS &&
        last->behavior == SPLIT_ISOLATED) {
        scanner = SCAN_DIGITS_GPT2;
        t->n_pre--;
    }
    struct pre_step *step = pre_add_step(t, PRE_SCAN, SPLIT_ISOLATED, err);
    return step ? pre_tokenizer_open(&step->scanner, scanner, err) : -1;
}

int pre_add_split(struct tokenizer *t, const char *pattern, size_t len,
                  enum split_behavior behavior, bool invert, struct error *err)
{
    /* Patterns with a scanner match the whole text as words. */
    bool words = behavior == SPLIT_ISOLATED ? true : behavior == SPLIT_REMOVED && invert;
    enum pre_scanner scanner = words ? pre_tokenizer_known(pattern, len) : SCAN_NONE;
    if (scanner != SCAN_NONE)
        return add_scanner(t, scanner, err);
    struct pre_step *step = pre_add_step(t, PRE_REGEX, behavior, err);
    if (!step)
        return -1;
    step->invert = invert;
    return text_regex_open(&step->regex, pattern, len, err);
}

void pre_step_close(struct pre_step *step)
{
    text_regex_close(step->regex);
    pre_tokenizer_close(step->scanner);
}
