/* vocab.json and merges.txt, introduced by GPT-2's tokenizer:
 *
 *   vocab.json   {"!": 0, "\"": 1, ...}      merges.txt   #version: 0.2
 *                                                         Ġ t
 *                                                         Ġ a
 *
 * Neither says how text is split into words: the class in tokenizer_config.json does. Tokens added
 * later are in added_tokens.json, with their ids. */
#include "prompt/tokenizer/draft.h"

#include <string.h>

#define END_OF_TEXT "<|endoftext|>"

static int read_tokens(struct token_draft *d)
{
    struct error cause = {0};
    struct json_cursor c = json_cursor_make(&d->arena, strbuf_str(&d->file), d->file.len, &cause);
    int failed = draft_read_vocab(d, &c) || json_cursor_end(&c) ? -1 : 0;
    if (failed && cause.code)
        error_set(d->err, cause.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_FORMAT, "%s: %s",
                  d->path, cause.message);
    return failed;
}

static int read_merge(struct token_draft *d, const char *line, size_t len, size_t number)
{
    const char *space = memchr(line, ' ', len);
    size_t left = space ? (size_t)(space - line) : 0;
    if (left == 0 || left + 1 == len || memchr(space + 1, ' ', len - left - 1))
        return draft_bad(d, "line %zu of merges.txt, \"%.*s\", is not two tokens", number,
                         (int)(len < 64 ? len : 64), line);
    if (number > MAX_TOKENS)
        return draft_bad(d, "there are more than %d merges", MAX_TOKENS);
    return draft_merge(d, (struct byte_view){line, left},
                       (struct byte_view){space + 1, len - left - 1});
}

static int read_merges(struct token_draft *d, const char *at, size_t len)
{
    const char *end = at + len;
    for (size_t number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t line = (size_t)((newline ? newline : end) - at);
        size_t content = line > 0 && at[line - 1] == '\r' ? line - 1 : line;
        bool version = number == 1 && content >= 8 && memcmp(at, "#version", 8) == 0;
        if (content > 0 && !version && read_merge(d, at, content, number) != 0)
            return -1;
        at += line + (newline != NULL);
    }
    return 0;
}

/* True if a value of special_tokens_map.json is the text or contains it. */
static bool names_token(const struct json *value, const char *text, int depth)
{
    if (json_is(value, JSON_STRING))
        return json_equals(value, text);
    for (const struct json *item = value && depth < 4 ? value->first : NULL; item;
         item = item->next)
        if (names_token(item, text, depth + 1))
            return true;
    return false;
}

/* {"<|im_start|>": 151644, ...}; tokenizer_config.json takes precedence. */
static int read_added(struct token_draft *d, const struct vocab_files *files)
{
    uint64_t id;
    for (const struct json *token = files->added ? files->added->first : NULL; token;
         token = token->next) {
        struct byte_view text = byte_view_of(token->key);
        if (!json_to_uint64(token, &id))
            return draft_bad(d, "added_tokens.json has no id for \"%.64s\"", token->key);
        unsigned special = names_token(files->special, token->key, 0) ? ADDED_SPECIAL : 0;
        if (!draft_is_added(d, text) && draft_added(d, text, id, special) != 0)
            return -1;
    }
    return 0;
}

/* GPT-2's end of text is in its vocabulary, where nothing marks it as special. */
static int read_end_of_text(struct token_draft *d)
{
    struct byte_view text = byte_view_of(END_OF_TEXT);
    if (draft_is_added(d, text))
        return 0;
    for (uint32_t id = 0; id < d->n; id++)
        if (byte_view_equal(d->spellings[id], text))
            return draft_added(d, text, id, ADDED_SPECIAL);
    return 0;
}

static int add_steps(struct token_draft *d, const struct json *config)
{
    const struct json *class = json_get(config, "tokenizer_class");
    const struct json *prefix = json_get(config, "add_prefix_space");
    bool qwen = json_equals(class, "Qwen2Tokenizer") || json_equals(class, "Qwen2TokenizerFast");
    if (json_is(prefix, JSON_BOOL) && prefix->boolean) {
        if (!pre_add_step(d->t, PRE_PREFIX_SPACE, SPLIT_ISOLATED, d->err))
            return -1;
        d->t->add_space_prefix = true;
        strbuf_adds(&d->words, DRAFT_OTHER);
    }
    return draft_apply_family(d, qwen ? "qwen2" : "gpt-2");
}

int draft_read_vocab_json(struct token_draft *d, const struct json *config,
                          const struct vocab_files *files)
{
    /* Reads `config` again after the added tokens, which may include the tokens that it names. */
    if (read_tokens(d) != 0 || read_merges(d, files->merges, files->merges_len) != 0 ||
        draft_read_config_added(d, config) != 0 || read_added(d, files) != 0 ||
        draft_read_config_added(d, config) != 0 || read_end_of_text(d) != 0 ||
        draft_make(d, TOKENIZER_BPE) != 0 || add_steps(d, config) != 0)
        return -1;
    return draft_read_decoder(d, NULL);
}
