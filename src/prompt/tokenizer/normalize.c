/* Normalisers: steps that change a text before it is split. Text alternates between two buffers; a
 * step that changes nothing does not copy it.
 *
 * The normal forms of the `tokenizers` library are those of Unicode 9, but utf8proc's are current.
 * So utf8proc only sees stretches of characters that the library would change
 * (char_nfc_may_change), each with the character before it; the rest is copied. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "base/task.h"
#include "prompt/unicode/unicode.h"

static int no_memory(struct encoder *e, size_t len)
{
    return error_set(e->err, ERROR_MEMORY, "no memory for a text of %zu bytes", len);
}

/* ---- normal forms ---- */

static bool may_change(enum normal_kind kind, const char *text, size_t width)
{
    if ((unsigned char)text[0] < 0x80)
        return false;
    uint32_t code = utf8_decode(text, width);
    return kind == NORMAL_NFC ? char_nfc_may_change(code) : char_forms_may_change(code);
}

/* True if the character, which does not change by itself, may compose with the next one. A mark
 * that the library does not know as one must not: it would be reordered. */
static bool joins_next(enum normal_kind kind, const char *text, size_t width)
{
    return (kind == NORMAL_NFC || kind == NORMAL_NFKC) && width > 0 &&
           utf8proc_get_property((int32_t)utf8_decode(text, width))->combining_class == 0;
}

/* The first character at or after `at` that may change, and the start of the one before it. */
static size_t find_change(enum normal_kind kind, const char *text, size_t len, size_t at,
                          size_t *before)
{
    size_t width;
    *before = at;
    for (; at < len; at += width) {
        width = 1;
        if ((unsigned char)text[at] >= 0x80) {
            width = utf8_valid_prefix(text + at, len - at);
            if (may_change(kind, text + at, width))
                return at;
        }
        *before = at;
    }
    return len;
}

static int add_form(struct encoder *e, enum normal_kind kind, const char *text, size_t len,
                    struct strbuf *out)
{
    bool compose = kind == NORMAL_NFC || kind == NORMAL_NFKC;
    bool compat = kind == NORMAL_NFKC || kind == NORMAL_NFKD;
    utf8proc_option_t options = UTF8PROC_STABLE |
                                (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                (compat ? UTF8PROC_COMPAT : 0);
    for (;;) {
        utf8proc_ssize_t n = utf8proc_decompose((const utf8proc_uint8_t *)text,
                                                (utf8proc_ssize_t)len, e->codes,
                                                (utf8proc_ssize_t)e->n_codes, options);
        if (n >= 0 && (size_t)n <= e->n_codes) {
            n = utf8proc_normalize_utf32(e->codes, n, options);
            char bytes[4];
            for (utf8proc_ssize_t i = 0; i < n; i++)
                strbuf_add(out, bytes, utf8_encode((uint32_t)e->codes[i], bytes));
            return 0;
        }
        size_t room = n < 0 ? 0 : (size_t)n + 64;
        int32_t *codes = room ? realloc(e->codes, room * sizeof *codes) : NULL;
        if (!codes)
            return no_memory(e, len);
        e->codes = codes;
        e->n_codes = room;
    }
}

/* 1: the new text is in `out`; 0: nothing changes. */
static int apply_form(struct encoder *e, enum normal_kind kind, const char *text, size_t len,
                      struct strbuf *out)
{
    size_t before, done = 0, at = find_change(kind, text, len, 0, &before), width;
    if (at == len)
        return 0;
    strbuf_clear(out);
    while (at < len) {
        if (!task_goes_on(8))
            return task_error(e->err);
        size_t end = at;
        while (end < len &&
               may_change(kind, text + end, width = utf8_valid_prefix(text + end, len - end)))
            end += width;
        if (before < done || !joins_next(kind, text + before, at - before))
            before = at;
        strbuf_add(out, text + done, before - done);
        if (add_form(e, kind, text + before, end - before, out) != 0)
            return -1;
        done = end;
        at = find_change(kind, text, len, end, &before);
    }
    strbuf_add(out, text + done, len - done);
    return 1;
}

/* ---- the others ---- */

static int apply_replace(const struct normal_step *step, const char *text, size_t len,
                         struct strbuf *out)
{
    const char *found = memmem(text, len, step->from.bytes, step->from.len);
    if (!found)
        return 0;
    strbuf_clear(out);
    for (; found && out->len <= MAX_TEXT_BYTES;
         found = memmem(text, len, step->from.bytes, step->from.len)) {
        strbuf_add(out, text, (size_t)(found - text));
        strbuf_add(out, step->to.bytes, step->to.len);
        len -= (size_t)(found - text) + step->from.len;
        text = found + step->from.len;
    }
    strbuf_add(out, text, len);
    return 1;
}

static void apply_lowercase(const char *text, size_t len, struct strbuf *out)
{
    char lower[UNICODE_CASE_MAX];
    uint32_t code;
    strbuf_clear(out);
    for (size_t at = 0, width; at < len; at += width) {
        width = unicode_next(text + at, len - at, &code);
        strbuf_add(out, lower, unicode_lower(code, lower));
    }
}

/* Strips both ends in place. */
static void apply_strip(const struct normal_step *step, const char **text, size_t *len)
{
    uint32_t code;
    size_t width;
    while (step->left && *len > 0) {
        width = unicode_next(*text, *len, &code);
        if (!char_is_space(code))
            break;
        *text += width;
        *len -= width;
    }
    while (step->right && *len > 0) {
        width = unicode_last(*text, *len, &code);
        if (!char_is_space(code))
            break;
        *len -= width;
    }
}

/* SentencePiece has already turned spaces into marks when it looks at the end. */
static void apply_extra_spaces(const char *text, size_t len, struct strbuf *out)
{
    size_t width;
    strbuf_clear(out);
    do {
        bool mark = len >= SPACE_MARK_LEN &&
                    memcmp(text + len - SPACE_MARK_LEN, SPACE_MARK, SPACE_MARK_LEN) == 0;
        width = mark ? SPACE_MARK_LEN : len > 0 && text[len - 1] == ' ';
        len -= width;
    } while (width > 0);
    for (size_t at = 0; at < len; at++)
        if (text[at] != ' ' || (out->len > 0 && out->data[out->len - 1] != ' '))
            strbuf_addc(out, text[at]);
}

/* 1: the new text is in `out`; 0: the text is unchanged or was cut in place; -1: an error. */
static int apply(struct encoder *e, const struct normal_step *step, const char **text, size_t *len,
                 enum text_place place, struct strbuf *out)
{
    switch (step->kind) {
    case NORMAL_NFC:
    case NORMAL_NFD:
    case NORMAL_NFKC:
    case NORMAL_NFKD: return apply_form(e, step->kind, *text, *len, out);
    case NORMAL_REPLACE: return apply_replace(step, *text, *len, out);
    case NORMAL_REPLACE_REGEX:
        strbuf_clear(out);
        return text_regex_replace(e, step->regex, *text, *len, step->to, out);
    case NORMAL_STRIP: apply_strip(step, text, len); return 0;
    case NORMAL_PREPEND:
        if (*len == 0 || place == PLACE_CONTINUES)
            return 0;
        strbuf_clear(out);
        strbuf_add(out, step->to.bytes, step->to.len);
        strbuf_add(out, *text, *len);
        return 1;
    case NORMAL_LOWERCASE: apply_lowercase(*text, *len, out); return 1;
    case NORMAL_CHARSMAP:
    case NORMAL_CHARSMAP_LONG:
        strbuf_clear(out);
        charsmap_apply(step->charsmap, step->kind == NORMAL_CHARSMAP_LONG, *text, *len, out);
        return 1;
    case NORMAL_EXTRA_SPACES: apply_extra_spaces(*text, *len, out); return 1;
    }
    return 0;
}

int normalize(struct encoder *e, const char **text, size_t *len, enum text_place *place)
{
    unsigned which = 0;
    for (size_t i = 0; i < e->t->n_normal; i++) {
        const struct normal_step *step = &e->t->normal[i];
        const char *before = *text;
        int changed = apply(e, step, text, len, *place, &e->normal[which]);
        if (changed < 0)
            return -1;
        if (!changed && *text != before && *place == PLACE_FIRST)
            *place = PLACE_LATER;
        if (!changed)
            continue;
        if (e->normal[which].failed)
            return no_memory(e, *len);
        if (e->normal[which].len > MAX_TEXT_BYTES)
            return error_set(e->err, ERROR_LIMIT,
                             "the model's normalizer turns this text into more than %d bytes",
                             MAX_TEXT_BYTES);
        *text = strbuf_str(&e->normal[which]);
        *len = e->normal[which].len;
        which = !which;
    }
    return 0;
}

void normal_step_close(struct normal_step *step)
{
    text_regex_close(step->regex);
    charsmap_close(step->charsmap);
}
