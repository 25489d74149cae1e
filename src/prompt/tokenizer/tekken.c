/* tekken.json, the file of mistral-common: tiktoken's tokens as JSON, after special tokens.
 *
 *   {"config": {"pattern": ..., "default_vocab_size": 131072, "default_num_special_tokens": 1000},
 *    "vocab": [{"rank": 0, "token_bytes": "AA==", ...}, ...],
 *    "special_tokens": [{"rank": 1, "token_str": "<s>", "is_control": true}, ...]}
 *
 * Ranks are not ids. A special token's rank is its id; an ordinary token's id is its rank plus the
 * number of special tokens; and the file has more tokens than the model. */
#include "prompt/tokenizer/draft.h"

#include <stdio.h>
#include <string.h>

struct tekken {
    struct token_draft *d;
    const struct json *config, *special; /* NULL: not there */
    bool has_vocab;
    uint64_t n_special, n_tokens; /* n_tokens includes the special ones */
};

static int read_config(struct tekken *k)
{
    struct token_draft *d = k->d;
    if (!json_is(json_get(k->config, "pattern"), JSON_STRING))
        return draft_bad(d, "\"config\" has no \"pattern\"");
    if (!json_to_uint64(json_get(k->config, "default_num_special_tokens"), &k->n_special) ||
        !json_to_uint64(json_get(k->config, "default_vocab_size"), &k->n_tokens) ||
        k->n_tokens > MAX_DIRECTORY_TOKENS || k->n_special > k->n_tokens)
        return draft_bad(d,
                         "\"config\" has no \"default_vocab_size\" of at most %d, or no "
                         "\"default_num_special_tokens\" that is not more",
                         MAX_DIRECTORY_TOKENS);
    return 0;
}

/* {"rank": 300, "token_bytes": "INA=", ...} */
static int read_token(struct tekken *k, struct json_cursor *c, size_t number)
{
    struct token_draft *d = k->d;
    const struct json *rank = NULL;
    struct byte_view key, text = {NULL, 0}, bytes;
    uint64_t value;
    int more = json_cursor_enter(c, JSON_OBJECT);
    for (size_t n = 0; more >= 0 && (more = json_cursor_next(c, JSON_OBJECT, n)) > 0; n++) {
        if (json_cursor_key(c, &key) != 0)
            return -1;
        if (byte_view_is(key, "token_bytes")) {
            if (json_cursor_string(c, &text) != 0)
                return -1;
            continue;
        }
        const struct json *item = json_cursor_value(c);
        if (!item)
            return -1;
        if (byte_view_is(key, "rank"))
            rank = item;
    }
    if (more < 0)
        return -1;
    if (!text.bytes || !json_to_uint64(rank, &value))
        return draft_bad(d, "token %zu has no \"rank\" or no \"token_bytes\"", number);
    if (value >= k->n_tokens - k->n_special)
        return 0;
    if (draft_base64(d, text.bytes, text.len, &bytes) != 0)
        return -1;
    if (bytes.len == 0)
        return draft_bad(d, "token %zu has \"token_bytes\" that are not bytes in base64", number);
    return draft_token(d, value + k->n_special, bytes, TOKEN_NORMAL, -(double)value);
}

static int read_tokens(struct tekken *k, struct json_cursor *c)
{
    if (!k->config)
        return draft_bad(k->d, "\"vocab\" stands before \"config\", which must come first");
    if (k->has_vocab)
        return draft_bad(k->d, "\"vocab\" appears twice");
    k->has_vocab = true;
    int more = json_cursor_enter(c, JSON_ARRAY);
    for (size_t n = 0; more >= 0 && (more = json_cursor_next(c, JSON_ARRAY, n)) > 0; n++)
        if (read_token(k, c, n) != 0)
            return -1;
    return more;
}

static int read_member(struct tekken *k, struct json_cursor *c)
{
    struct byte_view key;
    if (json_cursor_key(c, &key) != 0)
        return -1;
    if (byte_view_is(key, "vocab"))
        return read_tokens(k, c);
    bool config = byte_view_is(key, "config");
    const struct json *value = json_cursor_value(c);
    if (!value)
        return -1;
    if (byte_view_is(key, "special_tokens"))
        k->special = value;
    if (!config)
        return 0;
    if (k->config)
        return draft_bad(k->d, "\"config\" appears twice");
    k->config = value;
    return read_config(k);
}

static int read_document(struct tekken *k)
{
    struct token_draft *d = k->d;
    struct error cause = {0};
    struct json_cursor c = json_cursor_make(&d->arena, strbuf_str(&d->file), d->file.len, &cause);
    int more = json_cursor_enter(&c, JSON_OBJECT);
    for (size_t n = 0; more >= 0 && (more = json_cursor_next(&c, JSON_OBJECT, n)) > 0; n++)
        if (read_member(k, &c) != 0) {
            more = -1;
            break;
        }
    if (more == 0)
        more = json_cursor_end(&c);
    if (more < 0)
        return cause.code
                   ? error_set(d->err, cause.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_FORMAT,
                               "%s: %s", d->path, cause.message)
                   : -1;
    return k->has_vocab ? 0 : draft_bad(d, "it has no \"vocab\"");
}

/* ---- special tokens ---- */

/* Files of the first versions name no special tokens: they have these. */
static int add_first_specials(struct tekken *k)
{
    static const char *const names[] = {
        "<unk>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[TOOL_CALLS]",
        "[IMG]",
        "<pad>",
        "[IMG_BREAK]",
        "[IMG_END]",
        "[PREFIX]",
        "[MIDDLE]",
        "[SUFFIX]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "[TOOL_CONTENT]",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names && i < k->n_special; i++)
        if (draft_added(k->d, byte_view_of(names[i]), i, ADDED_SPECIAL) != 0)
            return -1;
    return 0;
}

static int add_special(struct tekken *k, const struct json *token)
{
    const struct json *text = json_get(token, "token_str");
    const struct json *control = json_get(token, "is_control");
    uint64_t rank;
    if (!json_is(text, JSON_STRING) || !json_to_uint64(json_get(token, "rank"), &rank) ||
        rank >= k->n_special)
        return draft_bad(k->d, "a special token has no \"token_str\", or no \"rank\" below %llu",
                         (unsigned long long)k->n_special);
    bool shown = json_is(control, JSON_BOOL) && !control->boolean;
    return draft_added(k->d, json_bytes(text), rank, shown ? 0 : ADDED_SPECIAL);
}

/* Fills the ids below n_special that have no token. */
static int add_fillers(struct tekken *k)
{
    struct token_draft *d = k->d;
    for (uint64_t id = 0; id < k->n_special; id++) {
        char name[40];
        int len = snprintf(name, sizeof name, "<SPECIAL_%llu>", (unsigned long long)id);
        if (id < d->n && d->spellings[id].bytes)
            continue;
        const char *text = arena_copy(&d->arena, name, (size_t)len);
        if (!text)
            return draft_no_memory(d);
        if (draft_added(d, (struct byte_view){text, (size_t)len}, id, ADDED_SPECIAL) != 0)
            return -1;
    }
    return 0;
}

static int add_specials(struct tekken *k)
{
    if (!k->special || k->special->type == JSON_NULL)
        return add_first_specials(k);
    if (k->special->type != JSON_ARRAY)
        return draft_bad(k->d, "\"special_tokens\" is not an array");
    json_each (token, k->special)
        if (add_special(k, token) != 0)
            return -1;
    return 0;
}

int draft_read_tekken(struct token_draft *d, const struct json *config)
{
    struct tekken k = {.d = d};
    if (read_document(&k) != 0 || add_specials(&k) != 0 || add_fillers(&k) != 0 ||
        draft_read_config_added(d, config) != 0 || draft_make(d, TOKENIZER_BPE) != 0)
        return -1;
    d->spells_bytes = true;
    d->t->ignore_merges = true;
    d->t->bos = draft_find(d, byte_view_of("<s>"));
    d->t->eos = draft_find(d, byte_view_of("</s>"));
    if (d->t->bos >= 0 && !token_list_add(&d->t->before, d->t->bos))
        return draft_no_memory(d);
    const struct json *pattern = json_get(k.config, "pattern");
    return draft_split_step(d, pattern->text, pattern->text_len, SPLIT_ISOLATED, false);
}
