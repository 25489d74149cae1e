/* Builds a tokenizer from the files of a directory. Everything in them is untrusted until it is
 * checked: each id for its range and for appearing once, each merge for its tokens. A special token
 * never becomes `ordinary`, even if the vocabulary has it, and no merge produces one. So text
 * cannot spell special tokens unless the caller asks for it. */
#include "prompt/tokenizer/draft.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"

int draft_bad(const struct token_draft *d, const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(d->err, ERROR_FORMAT, "%s: %s", d->path, what);
}

int draft_no_memory(const struct token_draft *d)
{
    return error_set(d->err, ERROR_MEMORY, "no memory for the tokenizer of %s", d->path);
}

/* ---- gathering ---- */

static int reserve_ids(struct token_draft *d, uint64_t id)
{
    if (id >= MAX_DIRECTORY_TOKENS)
        return draft_bad(d, "a token has the id %llu; the limit is %d", (unsigned long long)id,
                         MAX_DIRECTORY_TOKENS - 1);
    if (id >= d->capacity) {
        uint32_t capacity = d->capacity ? 2 * d->capacity : 1024;
        while (capacity <= id)
            capacity *= 2;
        struct byte_view *spellings = realloc(d->spellings, capacity * sizeof *spellings);
        if (spellings)
            d->spellings = spellings;
        double *scores = realloc(d->scores, capacity * sizeof *scores);
        if (scores)
            d->scores = scores;
        uint8_t *types = realloc(d->types, capacity);
        if (types)
            d->types = types;
        if (!spellings || !scores || !types)
            return draft_no_memory(d);
        uint32_t old = d->capacity, more = capacity - old;
        memset(spellings + old, 0, more * sizeof *spellings);
        memset(scores + old, 0, more * sizeof *scores);
        memset(types + old, TOKEN_UNUSED, more);
        d->capacity = capacity;
    }
    if (id >= d->n)
        d->n = (uint32_t)id + 1;
    return 0;
}

int draft_token(struct token_draft *d, uint64_t id, struct byte_view spelling, enum token_type type,
                double score)
{
    if (reserve_ids(d, id) != 0)
        return -1;
    if (d->spellings[id].bytes)
        return draft_bad(d, "the id %llu is given twice, to \"%.*s\" and to \"%.*s\"",
                         (unsigned long long)id, SHOWN(d->spellings[id]), SHOWN(spelling));
    d->spellings[id] = spelling;
    d->types[id] = (uint8_t)(type | DRAFT_IN_MODEL);
    d->scores[id] = score;
    return 0;
}

/* Makes room for one more item. */
static void *grow(void *items, size_t size, size_t n, size_t *capacity)
{
    if (n < *capacity)
        return items;
    size_t grown = *capacity ? 2 * *capacity : 256;
    items = realloc(items, grown * size);
    if (items)
        *capacity = grown;
    return items;
}

int draft_added(struct token_draft *d, struct byte_view content, uint64_t id, unsigned flags)
{
    struct draft_added *added = grow(d->added, sizeof *added, d->n_added, &d->added_capacity);
    if (!added)
        return draft_no_memory(d);
    d->added = added;
    if (content.len == 0)
        return draft_bad(d, "an added token is empty");
    if (!utf8_is_valid(content.bytes, content.len))
        return draft_bad(d, "the added token %llu is not UTF-8", (unsigned long long)id);
    if (reserve_ids(d, id) != 0)
        return -1;
    struct byte_view *there = &d->spellings[id];
    bool is_other = there->bytes && !byte_view_equal(*there, content);
    if (is_other && d->added_replace)
        d->types[id] = TOKEN_UNUSED;
    else if (is_other)
        return draft_bad(d, "the added token \"%.*s\" has the id %llu, which is \"%.*s\"",
                         SHOWN(content), (unsigned long long)id, SHOWN(*there));
    *there = content;
    added[d->n_added++] = (struct draft_added){content, (int32_t)id, flags};
    d->types[id] &= DRAFT_IN_MODEL;
    d->types[id] |= flags & ADDED_SPECIAL ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    return 0;
}

bool draft_is_added(const struct token_draft *d, struct byte_view content)
{
    for (size_t i = 0; i < d->n_added; i++)
        if (byte_view_equal(d->added[i].content, content))
            return true;
    return false;
}

int draft_merge(struct token_draft *d, struct byte_view left, struct byte_view right)
{
    struct byte_view *merges = grow(d->merges, 2 * sizeof *merges, d->n_merges,
                                    &d->merges_capacity);
    if (!merges)
        return draft_no_memory(d);
    d->merges = merges;
    merges[2 * d->n_merges] = left;
    merges[2 * d->n_merges++ + 1] = right;
    return 0;
}

int draft_decode_step(struct token_draft *d, struct decode_step step)
{
    if (d->n_decode == MAX_DECODE_STEPS) {
        text_regex_close(step.regex);
        return draft_bad(d, "the decoder has more than %d steps", MAX_DECODE_STEPS);
    }
    d->decode[d->n_decode++] = step;
    return 0;
}

int32_t draft_find(const struct token_draft *d, struct byte_view spelling)
{
    return spelling.len ? vocab_table_find(&d->by_spelling, spelling.bytes, spelling.len) : -1;
}

/* Added tokens past the last row of the embedding have no vector. A model without images or padding
 * inherits them from its family. They are dropped, and their text is ordinary text. */
static void leave_out_added(struct token_draft *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_added; i++) {
        const struct draft_added *added = &d->added[i];
        if ((uint32_t)added->id < d->n_vocab)
            d->added[n++] = *added;
        else
            d->spellings[added->id] = (struct byte_view){0};
    }
    if (n < d->n_added)
        log_debug(
            "%s: %zu added tokens are left out, because the model's embedding has only %u rows",
            d->path, d->n_added - n, d->n_vocab);
    d->n_added = n;
    while (d->n > d->n_vocab && !d->spellings[d->n - 1].bytes)
        d->n--;
}

int draft_make(struct token_draft *d, enum tokenizer_kind kind)
{
    if (d->n_vocab && d->n > d->n_vocab)
        leave_out_added(d);
    if (d->n == 0)
        return draft_bad(d, "it has no tokens");
    if (d->n_vocab && d->n > d->n_vocab)
        return draft_bad(d, "it has %u tokens, but the model's embedding has %u rows", d->n,
                         d->n_vocab);
    if (d->n_vocab > MAX_TOKENS)
        return draft_bad(d, "the model's embedding has %u rows; the limit is %d", d->n_vocab,
                         MAX_TOKENS);
    d->kind = kind;
    d->t = tokenizer_new(kind, d->n_vocab > d->n ? d->n_vocab : d->n, d->err);
    if (!d->t || vocab_table_open(&d->by_spelling, d->spellings, d->n, d->err) != 0)
        return -1;
    memset(d->t->types, TOKEN_UNUSED, d->t->n_tokens);
    for (uint32_t id = 0; id < d->n; id++)
        d->t->types[id] = d->types[id] & ~DRAFT_IN_MODEL;
    /* If two pieces may share a spelling, the later one wins. */
    int32_t other = -1, twice = vocab_table_add_all(&d->by_spelling, d->n, &other);
    if (twice >= 0 && kind != TOKENIZER_UNIGRAM)
        return draft_bad(d, "\"%.*s\" appears twice, as %d and as %d", SHOWN(d->spellings[twice]),
                         twice, other);
    return 0;
}

/* ---- what tokens stand for ---- */

static void add_replaced(const struct decode_step *step, const struct strbuf *in,
                         struct strbuf *out)
{
    const char *text = strbuf_str(in);
    size_t len = in->len;
    for (const char *found; (found = memmem(text, len, step->from.bytes, step->from.len));) {
        strbuf_add(out, text, (size_t)(found - text));
        strbuf_add(out, step->to.bytes, step->to.len);
        len -= (size_t)(found - text) + step->from.len;
        text = found + step->from.len;
    }
    strbuf_add(out, text, len);
}

/* A token that is not whole characters, as ByteFallback produces, has nothing to match. */
static int add_matched(struct encoder *e, const struct decode_step *step, const struct strbuf *in,
                       struct strbuf *out)
{
    if (utf8_is_valid(strbuf_str(in), in->len))
        return text_regex_replace(e, step->regex, strbuf_str(in), in->len, step->to, out) < 0 ? -1
                                                                                              : 0;
    strbuf_add(out, in->data, in->len);
    return 0;
}

static void add_stripped(const struct decode_step *step, const struct strbuf *in,
                         struct strbuf *out)
{
    const char *text = strbuf_str(in);
    size_t begin = 0, end = in->len, width = step->from.len;
    for (uint32_t i = 0; i < step->start && end - begin >= width &&
                         memcmp(text + begin, step->from.bytes, width) == 0;
         i++)
        begin += width;
    for (uint32_t i = 0; i < step->stop && end - begin >= width &&
                         memcmp(text + end - width, step->from.bytes, width) == 0;
         i++)
        end -= width;
    strbuf_add(out, text + begin, end - begin);
}

/* Applies one step to one token. */
static int add_decoded(struct encoder *e, const struct decode_step *step, bool is_first,
                       const struct strbuf *in, struct strbuf *out)
{
    struct byte_view text = {strbuf_str(in), in->len};
    struct decode_step mark = {.from = step->from,
                               .to = {" ", is_first && step->drops_first ? 0 : 1}};
    switch (step->kind) {
    case DECODE_BYTE_LEVEL:
        if (!strbuf_reserve(out, in->len))
            return 0;
        out->len = bytes_from_alphabet(out->data, text.bytes, text.len);
        if (out->len == 0)
            strbuf_add(out, text.bytes, text.len);
        return 0;
    case DECODE_BYTE_FALLBACK:
        if (fallback_byte(text) >= 0)
            strbuf_addc(out, (char)fallback_byte(text));
        else
            strbuf_add(out, text.bytes, text.len);
        return 0;
    case DECODE_METASPACE: add_replaced(&mark, in, out); return 0;
    case DECODE_REPLACE:
        if (step->regex)
            return add_matched(e, step, in, out);
        add_replaced(step, in, out);
        return 0;
    case DECODE_STRIP: add_stripped(step, in, out); return 0;
    case DECODE_FUSE: break;
    }
    strbuf_add(out, text.bytes, text.len);
    return 0;
}

struct speller {
    struct token_draft *d;
    struct encoder e;
    struct strbuf texts[2];
};

/* Decodes a spelling with the steps up to Fuse, which see one token at a time. */
static int spell(struct speller *s, struct byte_view spelling, bool is_first, struct byte_view *out)
{
    unsigned at = 0;
    strbuf_clear(&s->texts[0]);
    strbuf_add(&s->texts[0], spelling.bytes, spelling.len);
    for (size_t i = 0; i < s->d->n_decode && s->d->decode[i].kind != DECODE_FUSE; i++) {
        strbuf_clear(&s->texts[!at]);
        if (add_decoded(&s->e, &s->d->decode[i], is_first, &s->texts[at], &s->texts[!at]) != 0)
            return -1;
        at = !at;
    }
    const struct strbuf *text = &s->texts[at];
    if (text->failed || s->texts[!at].failed)
        return draft_no_memory(s->d);
    if (text->len == spelling.len && memcmp(strbuf_str(text), spelling.bytes, text->len) == 0 &&
        out->len == text->len && out->bytes && memcmp(out->bytes, spelling.bytes, text->len) == 0)
        return 0;
    *out = tokenizer_keep(s->d->t, strbuf_str(text), text->len);
    return out->bytes ? 0 : draft_no_memory(s->d);
}

static bool is_byte_level_only(const struct token_draft *d)
{
    return d->kind == TOKENIZER_BPE && d->n_decode > 0 && d->decode[0].kind == DECODE_BYTE_LEVEL;
}

/* Sets the text that becomes the token, and the text it decodes to. */
static int fill_token(struct speller *s, uint32_t id)
{
    struct token_draft *d = s->d;
    struct tokenizer *t = d->t;
    struct byte_view spelling = d->spellings[id];
    bool special = tokenizer_is_special(t, (int32_t)id);
    int byte = d->byte_fallback ? fallback_byte(spelling) : -1;
    char *bytes = arena_alloc(&t->strings, spelling.len + 1);
    if (!bytes)
        return draft_no_memory(d);
    memcpy(bytes, spelling.bytes, spelling.len);
    t->tokens[id] = (struct byte_view){bytes, spelling.len};
    if (special)
        return 0;
    if (!(d->types[id] & DRAFT_IN_MODEL)) {
        /* An added token that is not in the model: merges never produce it. */
    } else if (byte >= 0) {
        t->byte_ids[byte] = (int32_t)id;
        t->types[id] = TOKEN_BYTE;
    } else if (d->spells_bytes) {
        t->texts[id] = t->tokens[id];
        return 0;
    } else if (d->kind == TOKENIZER_BPE) {
        size_t n = bytes_from_alphabet(bytes, spelling.bytes, spelling.len);
        if (n > 0)
            t->texts[id] = t->tokens[id] = (struct byte_view){bytes, n};
        else
            memcpy(bytes, spelling.bytes, spelling.len);
        if (is_byte_level_only(d))
            return 0;
    } else if (t->types[id] != TOKEN_BYTE) {
        t->texts[id] = t->tokens[id];
    }
    return spell(s, spelling, false, &t->tokens[id]);
}

static int fill_tokens(struct speller *s)
{
    struct token_draft *d = s->d;
    struct tokenizer *t = d->t;
    int32_t other;
    for (uint32_t id = 0; id < d->n; id++) {
        if (d->spellings[id].bytes && fill_token(s, id) != 0)
            return -1;
        if (t->texts[id].len > t->longest)
            t->longest = t->texts[id].len;
    }
    vocab_table_add_all(&t->ordinary, d->n, &other);
    tokenizer_ready(t);
    return 0;
}

/* Tokens that decode differently at the start of a text. */
static int fill_firsts(struct speller *s)
{
    struct token_draft *d = s->d;
    bool differ = false;
    for (size_t i = 0; i < d->n_decode; i++)
        differ = differ || (d->decode[i].kind == DECODE_METASPACE && d->decode[i].drops_first);
    if (!differ)
        return 0;
    d->t->firsts = calloc(d->t->n_tokens, sizeof *d->t->firsts);
    if (!d->t->firsts)
        return draft_no_memory(d);
    for (uint32_t id = 0; id < d->n; id++)
        if (d->spellings[id].bytes && spell(s, d->spellings[id], true, &d->t->firsts[id]) != 0)
            return -1;
    return 0;
}

/* ---- added tokens ---- */

/* What an added token decodes to; control tokens keep that separate from their spelling. */
static int fill_decoded(struct speller *s, const struct draft_added *added,
                        struct byte_view spelling)
{
    struct tokenizer *t = s->d->t;
    struct byte_view shown = t->tokens[added->id];
    if (spell(s, spelling, false, &shown) != 0)
        return -1;
    if (!(added->flags & ADDED_SPECIAL)) {
        t->tokens[added->id] = shown;
        return 0;
    }
    struct byte_view *own = &t->tokens[added->id];
    if (byte_view_equal(*own, shown))
        return 0;
    if (t->decoded == t->tokens) {
        struct byte_view *decoded = malloc(t->n_tokens * sizeof *decoded);
        if (!decoded)
            return draft_no_memory(s->d);
        memcpy(decoded, t->tokens, t->n_tokens * sizeof *decoded);
        t->decoded = decoded;
    }
    t->decoded[added->id] = shown;
    return 0;
}

static int fill_added(struct speller *s)
{
    struct token_draft *d = s->d;
    struct tokenizer *t = d->t;
    /* Non-special tokens first, since `decoded` starts as a copy of `tokens`. */
    for (unsigned round = 0; round < 2; round++)
        for (size_t i = 0; i < d->n_added; i++) {
            const struct draft_added *added = &d->added[i];
            if (!(added->flags & ADDED_SPECIAL) != !round)
                continue;
            const char *text = added->content.bytes;
            size_t len = added->content.len;
            enum text_place place = d->no_prefix_for_added ? PLACE_CONTINUES : PLACE_FIRST;
            bool normalized = added->flags & ADDED_NORMALIZED;
            if (normalized && normalize(&s->e, &text, &len, &place) != 0)
                return -1;
            struct added_token token = {tokenizer_keep(t, text, len), added->id, added->flags};
            if (!token.text.bytes)
                return draft_no_memory(d);
            if (special_list_add(normalized ? &t->normalized : &t->added, token, d->err) != 0 ||
                fill_decoded(s, added, token.text) != 0)
                return -1;
        }
    special_list_ready(&t->added);
    special_list_ready(&t->normalized);
    return 0;
}

/* ---- the model ---- */

static bool joins(struct byte_view text, const struct byte_view pair[2])
{
    return text.len > 0 && text.len == pair[0].len + pair[1].len &&
           memcmp(text.bytes, pair[0].bytes, pair[0].len) == 0 &&
           memcmp(text.bytes + pair[0].len, pair[1].bytes, pair[1].len) == 0;
}

/* The token that the pair merges into; usually it follows the previous merge's token. */
static int32_t find_joined(struct token_draft *d, const struct byte_view pair[2], int32_t last,
                           struct strbuf *both)
{
    if (last >= 0 && (uint32_t)last + 1 < d->n && joins(d->spellings[last + 1], pair))
        return last + 1;
    strbuf_clear(both);
    strbuf_add(both, pair[0].bytes, pair[0].len);
    strbuf_add(both, pair[1].bytes, pair[1].len);
    return draft_find(d, (struct byte_view){strbuf_str(both), both->len});
}

/* Adds `n` merges starting at `first`, whose token pairs are ids[0 .. 2 n). */
static int fill_merges(struct token_draft *d, uint32_t first, uint32_t n, const int32_t *ids,
                       int32_t *last, struct strbuf *both)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct byte_view *pair = &d->merges[2 * (first + i)];
        int32_t left = ids[2 * i], right = ids[2 * i + 1];
        int32_t id = find_joined(d, pair, *last, both);
        if (both->failed)
            return draft_no_memory(d);
        if (left < 0 || right < 0 || id < 0)
            return draft_bad(
                d,
                "merge %u of \"%.*s\" and \"%.*s\": one of them, or their result, is not a token",
                first + i, SHOWN(pair[0]), SHOWN(pair[1]));
        *last = id;
        if (!tokenizer_is_special(d->t, id))
            merge_table_add(&d->t->merges, left, right, first + i, id);
    }
    return 0;
}

static int fill_all_merges(struct token_draft *d)
{
    enum { BATCH = 32 };
    int32_t ids[2 * BATCH], last = -1;
    struct strbuf both = STRBUF_INIT;
    int failed = merge_table_open(&d->t->merges, (uint32_t)d->n_merges, d->err);
    for (size_t at = 0; at < d->n_merges && !failed; at += BATCH) {
        uint32_t n = (uint32_t)(d->n_merges - at < BATCH ? d->n_merges - at : BATCH);
        vocab_table_find_all(&d->by_spelling, &d->merges[2 * at], 2 * n, ids);
        for (uint32_t i = 0; i < n; i++)
            merge_table_prefetch(&d->t->merges, ids[2 * i], ids[2 * i + 1]);
        failed = fill_merges(d, (uint32_t)at, n, ids, &last, &both);
    }
    strbuf_free(&both);
    return failed;
}

static int fill_model(struct token_draft *d)
{
    struct tokenizer *t = d->t;
    t->unknown = draft_find(d, d->unknown);
    if (d->unknown.bytes && t->unknown < 0)
        return draft_bad(d, "the unknown token \"%.*s\" is not in the vocabulary",
                         SHOWN(d->unknown));
    if (d->kind == TOKENIZER_BPE)
        t->unknown_byte = t->unknown;
    if (d->kind == TOKENIZER_SPM || d->kind == TOKENIZER_UNIGRAM || d->spells_bytes) {
        double *scores = calloc(t->n_tokens, sizeof *scores);
        if (!scores)
            return draft_no_memory(d);
        memcpy(scores, d->scores, d->n * sizeof *scores);
        int failed = d->kind == TOKENIZER_UNIGRAM ? unigram_open(t, scores, d->err)
                                                  : tokenizer_rank_scores(t, scores, d->err);
        free(scores);
        return failed;
    }
    return fill_all_merges(d);
}

/* The steps after Fuse: only dropping characters at the start works while a text is still being
 * streamed. */
static int fill_lead(struct token_draft *d)
{
    size_t i = 0;
    while (i < d->n_decode && d->decode[i].kind != DECODE_FUSE)
        i++;
    for (i++; i < d->n_decode; i++) {
        const struct decode_step *step = &d->decode[i];
        if (step->kind == DECODE_FUSE)
            continue;
        if (step->kind != DECODE_STRIP || step->stop > 0 || d->t->lead.count > 0)
            return draft_bad(d,
                             "the decoder has a step after Fuse that does not strip the beginning");
        d->t->lead.count = step->start;
        d->t->lead.len = (uint32_t)step->from.len;
        memcpy(d->t->lead.text, step->from.bytes, step->from.len);
    }
    return 0;
}

int draft_finish(struct token_draft *d)
{
    struct speller s = {.d = d, .e = {.t = d->t, .err = d->err}};
    int failed = fill_lead(d) || fill_tokens(&s) || fill_added(&s) || fill_firsts(&s) ||
                 fill_model(d);
    encoder_close(&s.e);
    strbuf_free(&s.texts[0]);
    strbuf_free(&s.texts[1]);
    return failed ? -1 : 0;
}

void draft_close(struct token_draft *d)
{
    vocab_table_close(&d->by_spelling);
    tokenizer_close(d->t);
    chat_defaults_free(&d->chat);
    for (size_t i = 0; i < d->n_decode; i++)
        text_regex_close(d->decode[i].regex);
    free(d->spellings);
    free(d->scores);
    free(d->types);
    free(d->merges);
    free(d->added);
    strbuf_free(&d->file);
    strbuf_free(&d->words);
    arena_free(&d->arena);
}
