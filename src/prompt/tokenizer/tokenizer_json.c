/* tokenizer.json of the `tokenizers` library. The file is read in one pass: its vocabulary and
 * merges, which are nearly all of it, without a tree; its steps as small trees that
 * tokenizer_json_steps.c reads once the vocabulary is complete. */
#include "prompt/tokenizer/draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct parts {
    const struct json *added, *normalizer, *pre_tokenizer, *post_processor, *decoder;
    const struct json *type, *unk_token, *unk_id, *dropout, *prefix, *suffix;
    const struct json *fuse_unk, *byte_fallback, *ignore_merges;
    bool has_model, has_vocab, vocab_is_list, has_merges;
};

struct slot {
    const char *key;
    size_t offset;
};

#define SLOT(key, member)                                                                          \
    {                                                                                              \
        key, offsetof(struct parts, member)                                                        \
    }

/* An error of the JSON reader, with the file's name. */
static int json_failed(const struct token_draft *d, const struct error *cause)
{
    return error_set(d->err, cause->code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_FORMAT, "%s: %s",
                     d->path, cause->message);
}

/* ---- vocabulary and merges ---- */

/* Reads a plain number below 10^18, as ids are. */
static int read_id(struct token_draft *d, struct json_cursor *c, uint64_t *id)
{
    char next = json_cursor_peek(c);
    size_t n = 0;
    *id = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9' && n < 18; n++)
        *id = *id * 10 + (uint64_t)(*c->at++ - '0');
    if (n == 0 || (c->at < c->end && strchr(".eE0123456789", *c->at)))
        return draft_bad(d, "a token's id is not a whole number at byte %zu (it begins with '%c')",
                         json_cursor_position(c), next >= ' ' && next < 127 ? next : '?');
    return 0;
}

/* {"token": id, ...} */
int draft_read_vocab(struct token_draft *d, struct json_cursor *c)
{
    struct byte_view token;
    uint64_t id;
    int more = json_cursor_enter(c, JSON_OBJECT);
    for (size_t n = 0; more >= 0 && (more = json_cursor_next(c, JSON_OBJECT, n)) > 0; n++)
        if (json_cursor_key(c, &token) != 0 || read_id(d, c, &id) != 0 ||
            draft_token(d, id, token, TOKEN_NORMAL, 0) != 0)
            return -1;
    return more;
}

/* Item `n` of a pair must follow. */
static int need_item(struct token_draft *d, struct json_cursor *c, size_t n)
{
    int next = json_cursor_next(c, JSON_ARRAY, n);
    return next == 0 ? draft_bad(d, "expected a pair, found a list of %zu, before byte %zu", n,
                                 json_cursor_position(c))
                     : next - 1;
}

/* Nothing may follow the two items of a pair. */
static int end_pair(struct token_draft *d, struct json_cursor *c)
{
    int next = json_cursor_next(c, JSON_ARRAY, 2);
    return next == 1 ? draft_bad(d, "expected a pair, found a longer list, before byte %zu",
                                 json_cursor_position(c))
                     : next;
}

/* A score, rounded as the library's JSON reader does: not to the nearest number, but the digits as
 * one integer divided by a power of ten. If two ways to split a word are equally good, the last bit
 * decides. */
static double score_of(const struct json *number)
{
    uint64_t digits = 0;
    int exponent = 0;
    bool fraction = false;
    const char *at = number->text + (number->text[0] == '-');
    for (; *at == '.' || (*at >= '0' && *at <= '9'); at++) {
        if (*at == '.') {
            fraction = true;
            continue;
        }
        uint64_t digit = (uint64_t)(*at - '0');
        if (digits > (UINT64_MAX - digit) / 10)
            return number->number;
        digits = digits * 10 + digit;
        exponent -= fraction;
    }
    if (*at || exponent < -22)
        return number->number;
    double value = (double)digits;
    for (double power = 10; exponent < 0; exponent++, power *= 10)
        if (exponent == -1)
            value /= power;
    return number->text[0] == '-' ? -value : value;
}

/* [["token", score], ...]; ids are the positions. */
static int read_scored(struct token_draft *d, struct json_cursor *c)
{
    int more = json_cursor_enter(c, JSON_ARRAY);
    for (size_t n = 0; more >= 0 && (more = json_cursor_next(c, JSON_ARRAY, n)) > 0; n++) {
        struct byte_view token;
        const struct json *score;
        if (json_cursor_enter(c, JSON_ARRAY) != 0 || need_item(d, c, 0) != 0 ||
            json_cursor_string(c, &token) != 0 || need_item(d, c, 1) != 0 ||
            !(score = json_cursor_value(c)) || end_pair(d, c) != 0)
            return -1;
        if (!json_is(score, JSON_NUMBER) || !isfinite(score->number))
            return draft_bad(d, "token %zu has no score", n);
        if (draft_token(d, n, token, TOKEN_NORMAL, score_of(score)) != 0)
            return -1;
    }
    return more;
}

/* "left right" */
static int read_joined_merge(struct token_draft *d, struct json_cursor *c, size_t n)
{
    struct byte_view pair;
    if (json_cursor_string(c, &pair) != 0)
        return -1;
    const char *space = memchr(pair.bytes, ' ', pair.len);
    size_t left = space ? (size_t)(space - pair.bytes) : 0;
    if (!space || memchr(space + 1, ' ', pair.len - left - 1))
        return draft_bad(d, "merge %zu, \"%.*s\", is not two tokens", n, SHOWN(pair));
    return draft_merge(d, (struct byte_view){pair.bytes, left},
                       (struct byte_view){space + 1, pair.len - left - 1});
}

static int read_merges(struct token_draft *d, struct json_cursor *c)
{
    int more = json_cursor_enter(c, JSON_ARRAY);
    for (size_t n = 0; more >= 0 && (more = json_cursor_next(c, JSON_ARRAY, n)) > 0; n++) {
        struct byte_view left, right;
        if (n >= MAX_TOKENS)
            return draft_bad(d, "there are more than %d merges", MAX_TOKENS);
        if (json_cursor_peek(c) != '[') {
            if (read_joined_merge(d, c, n) != 0)
                return -1;
            continue;
        }
        if (json_cursor_enter(c, JSON_ARRAY) != 0 || need_item(d, c, 0) != 0 ||
            json_cursor_string(c, &left) != 0 || need_item(d, c, 1) != 0 ||
            json_cursor_string(c, &right) != 0 || end_pair(d, c) != 0 ||
            draft_merge(d, left, right) != 0)
            return -1;
    }
    return more;
}

/* ---- the document ---- */

/* Stores the value of a key that has a slot; others are skipped. */
static int read_slot(struct token_draft *d, struct json_cursor *c, struct byte_view key,
                     const struct slot *slots, size_t n, struct parts *parts)
{
    const struct json *value = json_cursor_value(c);
    if (!value)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct json **slot = (const struct json **)((char *)parts + slots[i].offset);
        if (!byte_view_is(key, slots[i].key))
            continue;
        if (*slot)
            return draft_bad(d, "\"%s\" appears twice", slots[i].key);
        *slot = value;
    }
    return 0;
}

static int read_model(struct token_draft *d, struct json_cursor *c, struct parts *parts)
{
    static const struct slot slots[] = {
        SLOT("type", type),
        SLOT("unk_token", unk_token),
        SLOT("unk_id", unk_id),
        SLOT("dropout", dropout),
        SLOT("continuing_subword_prefix", prefix),
        SLOT("end_of_word_suffix", suffix),
        SLOT("fuse_unk", fuse_unk),
        SLOT("byte_fallback", byte_fallback),
        SLOT("ignore_merges", ignore_merges),
    };
    struct byte_view key;
    int more = json_cursor_enter(c, JSON_OBJECT);
    for (size_t n = 0; more >= 0 && (more = json_cursor_next(c, JSON_OBJECT, n)) > 0; n++) {
        if (json_cursor_key(c, &key) != 0)
            return -1;
        bool vocab = byte_view_is(key, "vocab"), merges = byte_view_is(key, "merges");
        if ((vocab && parts->has_vocab) || (merges && parts->has_merges))
            return draft_bad(d, "the model's %s appear twice", vocab ? "tokens" : "merges");
        parts->has_vocab = parts->has_vocab || vocab;
        parts->has_merges = parts->has_merges || merges;
        if (vocab)
            parts->vocab_is_list = json_cursor_peek(c) == '[';
        int failed = merges                          ? read_merges(d, c)
                     : vocab && parts->vocab_is_list ? read_scored(d, c)
                     : vocab                         ? draft_read_vocab(d, c)
                             : read_slot(d, c, key, slots, sizeof slots / sizeof *slots, parts);
        if (failed)
            return -1;
    }
    return more;
}

static int read_document(struct token_draft *d, struct parts *parts)
{
    static const struct slot slots[] = {
        SLOT("added_tokens", added),
        SLOT("normalizer", normalizer),
        SLOT("pre_tokenizer", pre_tokenizer),
        SLOT("post_processor", post_processor),
        SLOT("decoder", decoder),
    };
    struct error cause = {0};
    struct json_cursor c = json_cursor_make(&d->arena, strbuf_str(&d->file), d->file.len, &cause);
    struct byte_view key;
    int more = json_cursor_enter(&c, JSON_OBJECT);
    for (size_t n = 0; more >= 0 && (more = json_cursor_next(&c, JSON_OBJECT, n)) > 0; n++) {
        if ((more = json_cursor_key(&c, &key)) != 0)
            break;
        bool model = byte_view_is(key, "model");
        if (model && parts->has_model)
            return draft_bad(d, "\"model\" appears twice");
        parts->has_model = parts->has_model || model;
        bool added = byte_view_is(key, "added_tokens");
        json_cursor_peek(&c);
        d->added_begin = added ? json_cursor_position(&c) : d->added_begin;
        more = model ? read_model(d, &c, parts)
                     : read_slot(d, &c, key, slots, sizeof slots / sizeof *slots, parts);
        if (more < 0)
            break;
        d->added_end = added ? json_cursor_position(&c) : d->added_end;
        more = 1;
    }
    if (more == 0)
        more = json_cursor_end(&c);
    return more < 0 && cause.code ? json_failed(d, &cause) : more;
}

/* ---- added tokens ---- */

int draft_read_added(struct token_draft *d, const struct json *token, uint64_t id)
{
    static const struct {
        const char *key;
        unsigned flag;
    } flags[] = {{"special", ADDED_SPECIAL},
                 {"lstrip", ADDED_LSTRIP},
                 {"rstrip", ADDED_RSTRIP},
                 {"single_word", ADDED_SINGLE_WORD},
                 {"normalized", ADDED_NORMALIZED}};
    const struct json *content = json_get(token, "content");
    unsigned set = 0;
    if (!json_is(content, JSON_STRING))
        return draft_bad(d, "an added token has no \"content\"");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const struct json *flag = json_get(token, flags[i].key);
        if (flag && flag->type != JSON_BOOL)
            return draft_bad(d, "\"%s\" of an added token is not a boolean", flags[i].key);
        set |= flag && flag->boolean ? flags[i].flag : 0;
    }
    return draft_added(d, json_bytes(content), id, set);
}

static int read_added(struct token_draft *d, const struct json *list)
{
    uint64_t id;
    if (!list || list->type == JSON_NULL)
        return 0;
    if (list->type != JSON_ARRAY)
        return draft_bad(d, "\"added_tokens\" is not an array");
    json_each (token, list) {
        if (!json_to_uint64(json_get(token, "id"), &id))
            return draft_bad(d, "an added token has no id");
        if (draft_read_added(d, token, id) != 0)
            return -1;
    }
    return 0;
}

/* ---- post-processors ---- */

/* The ids of a special token in a template. */
static int add_template_ids(struct token_draft *d, const struct json *tokens,
                            const struct json *piece, struct token_list *out)
{
    const struct json *name = json_get(piece, "id");
    const struct json *ids = json_is(name, JSON_STRING)
                                 ? json_get(json_get(tokens, name->text), "ids")
                                 : NULL;
    if (!json_is(ids, JSON_ARRAY))
        return draft_bad(d, "the post_processor's template has a special token without ids");
    json_each (item, ids) {
        uint64_t id;
        if (!json_to_uint64(item, &id) || id >= d->t->n_tokens)
            return draft_bad(d, "the post_processor's template has an id that is not a token");
        if (!token_list_add(out, (int32_t)id))
            return draft_no_memory(d);
    }
    return 0;
}

static int read_template(struct token_draft *d, const struct json *value)
{
    const struct json *single = json_get(value, "single");
    bool inside = false;
    if (!json_is(single, JSON_ARRAY))
        return draft_bad(d, "\"single\" of TemplateProcessing is not an array");
    json_each (piece, single) {
        const struct json *special = json_get(piece, "SpecialToken");
        bool is_text = json_equals(json_get(json_get(piece, "Sequence"), "id"), "A");
        if (!special && (!is_text || inside))
            return draft_bad(d,
                             "the post_processor's template is not one text with tokens around it");
        inside = inside || is_text;
        if (special && add_template_ids(d, json_get(value, "special_tokens"), special,
                                        inside ? &d->t->after : &d->t->before) != 0)
            return -1;
    }
    d->has_template = true;
    return inside ? 0 : draft_bad(d, "the post_processor's template has no place for the text");
}

static int read_post_processor(struct token_draft *d, const struct json *value, int depth)
{
    const struct json *type = json_get(value, "type");
    if (!json_is(type, JSON_STRING))
        return draft_bad(d, "a post_processor has no \"type\"");
    if (json_equals(type, "TemplateProcessing"))
        return read_template(d, value);
    if (json_equals(type, "ByteLevel")) /* it changes offsets, not ids */
        return 0;
    const struct json *list = json_get(value, "processors");
    if (!json_equals(type, "Sequence") || !json_is(list, JSON_ARRAY))
        return draft_bad(d, "a post_processor of type \"%.64s\" is not supported", type->text);
    if (depth >= 8)
        return draft_bad(d, "processors are nested deeper than 8");
    json_each (item, list)
        if (read_post_processor(d, item, depth + 1) != 0)
            return -1;
    return 0;
}

int draft_read_post_processor(struct token_draft *d, const struct json *value)
{
    return !value || value->type == JSON_NULL ? 0 : read_post_processor(d, value, 0);
}

/* ---- the model ---- */

static bool is_given(const struct json *value)
{
    return value && value->type != JSON_NULL &&
           !(value->type == JSON_STRING && value->text_len == 0);
}

static int check_flag(struct token_draft *d, const struct json *value, const char *key, bool *out)
{
    if (value && value->type != JSON_NULL && value->type != JSON_BOOL)
        return draft_bad(d, "the model's \"%s\" is not a boolean", key);
    *out = value && value->boolean;
    return 0;
}

static int read_bpe(struct token_draft *d, const struct parts *parts)
{
    if (!parts->has_vocab || parts->vocab_is_list)
        return draft_bad(d, "the BPE model has no object \"vocab\"");
    if (!parts->has_merges)
        return draft_bad(d, "the BPE model has no \"merges\"");
    if (is_given(parts->prefix))
        return draft_bad(d, "a BPE model with continuing_subword_prefix is not supported");
    if (is_given(parts->suffix))
        return draft_bad(d, "a BPE model with end_of_word_suffix is not supported");
    if (is_given(parts->dropout) && parts->dropout->number != 0)
        return draft_bad(d, "a BPE model with dropout is not supported");
    if (is_given(parts->unk_token)) {
        if (parts->unk_token->type != JSON_STRING)
            return draft_bad(d, "the model's \"unk_token\" is not a string");
        d->unknown = json_bytes(parts->unk_token);
    }
    return 0;
}

static int read_unigram(struct token_draft *d, const struct parts *parts)
{
    uint64_t id;
    if (!parts->has_vocab || !parts->vocab_is_list)
        return draft_bad(d, "the Unigram model has no array \"vocab\"");
    if (!is_given(parts->unk_id))
        return 0;
    if (!json_to_uint64(parts->unk_id, &id) || id >= d->n || !d->spellings[id].bytes)
        return draft_bad(d, "the model's \"unk_id\" is not a token");
    d->unknown = d->spellings[id];
    return 0;
}

/* Old files name no type: a list of pairs is Unigram's vocabulary. */
static int read_kind(struct token_draft *d, const struct parts *parts, enum tokenizer_kind *kind)
{
    const struct json *type = parts->type;
    if (!parts->has_model)
        return draft_bad(d, "it has no \"model\"");
    if (type && !json_equals(type, "BPE") && !json_equals(type, "Unigram"))
        return draft_bad(d, "a model of type \"%.64s\" is not supported; use BPE or Unigram",
                         json_is(type, JSON_STRING) ? type->text : "?");
    bool unigram = type ? json_equals(type, "Unigram") : parts->vocab_is_list;
    bool bytes = draft_is_byte_level(parts->pre_tokenizer);
    if (unigram && bytes)
        return draft_bad(d, "a Unigram model with a ByteLevel pre_tokenizer is not supported");
    *kind = unigram ? TOKENIZER_UNIGRAM : bytes ? TOKENIZER_BPE : TOKENIZER_CHAR_BPE;
    return unigram ? read_unigram(d, parts) : read_bpe(d, parts);
}

int draft_read_json(struct token_draft *d, const struct json *config)
{
    struct parts parts = {0};
    enum tokenizer_kind kind = TOKENIZER_BPE;
    bool ignore_merges = false, fuse_unknown = false;
    if (read_document(d, &parts) != 0 || read_kind(d, &parts, &kind) != 0 ||
        check_flag(d, parts.fuse_unk, "fuse_unk", &fuse_unknown) != 0 ||
        check_flag(d, parts.ignore_merges, "ignore_merges", &ignore_merges) != 0 ||
        check_flag(d, parts.byte_fallback, "byte_fallback", &d->byte_fallback) != 0 ||
        read_added(d, parts.added) != 0)
        return -1;
    d->n_own_added = d->n_added;
    if (draft_read_config_added(d, config) != 0 || draft_make(d, kind) != 0)
        return -1;
    d->t->fuse_unknown = fuse_unknown;
    d->t->ignore_merges = ignore_merges;
    return draft_read_normalizer(d, parts.normalizer) != 0 ||
                   draft_read_pre_tokenizer(d, parts.pre_tokenizer) != 0 ||
                   draft_read_decoder(d, parts.decoder) != 0 ||
                   draft_read_post_processor(d, parts.post_processor) != 0
               ? -1
               : 0;
}
