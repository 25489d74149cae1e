/* tiktoken's files: a line for each token, its bytes in base64 and its rank, which is its id.
 *
 *   IQ== 0
 *   Ig== 1
 *
 * Any two neighbours merge whose bytes together are a token, the lowest rank first. The file has
 * neither special tokens nor the pattern that cuts text into words: they come from
 * tokenizer_config.json ("added_tokens_decoder", "pat_str"), or the family is known. */
#include "prompt/tokenizer_draft.h"

#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "prompt/tokenizer_patterns.h"

static const struct family {
    const char *name;
    uint32_t n_tokens; /* in the file */
    const char *pattern;
    const char *specials[8]; /* from the id `n_tokens` on */
} families[] = {
    {"cl100k_base", 100256, PATTERN_LLAMA3, {NULL}},
    {"llama3",
     128000,
     PATTERN_LLAMA3,
     {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
      "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>",
      "<|start_header_id|>", "<|end_header_id|>"}},
    {"qwen", 151643, PATTERN_QWEN2, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}},
    {"o200k_base", 199998, PATTERN_GPT4O, {NULL}},
};

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* The first line looks like one of these files. */
bool draft_is_tiktoken(const struct strbuf *file)
{
    const char *text = strbuf_str(file);
    size_t i = 0, digits = 0;
    while (i < file->len && (base64_digit(text[i]) >= 0 || text[i] == '='))
        i++;
    if (i == 0 || i >= file->len || text[i++] != ' ')
        return false;
    for (; i < file->len && ascii_is_digit(text[i]); i++)
        digits++;
    return digits > 0 && (i == file->len || text[i] == '\n' || text[i] == '\r');
}

/* "base64 rank" in line[0 .. len). */
static int read_line(struct token_draft *d, const char *line, size_t len, size_t number)
{
    char *bytes = arena_alloc(&d->arena, len + 1);
    size_t n = 0, bits = 0, i = 0;
    uint32_t value = 0;
    uint64_t rank = 0;
    if (!bytes)
        return draft_no_memory(d);
    for (int digit; i < len && (digit = base64_digit(line[i])) >= 0; i++) {
        value = (value << 6 | (uint32_t)digit) & 0xffffff;
        if ((bits += 6) >= 8)
            bytes[n++] = (char)(value >> (bits -= 8));
    }
    while (i < len && line[i] == '=')
        i++;
    if (n == 0 || i >= len || line[i++] != ' ' || i == len)
        return draft_bad(d, "line %zu is not a token in base64 and its rank", number);
    for (; i < len && ascii_is_digit(line[i]) && rank < UINT32_MAX; i++)
        rank = rank * 10 + (uint64_t)(line[i] - '0');
    if (i < len)
        return draft_bad(d, "line %zu has a rank that is no number", number);
    return draft_token(d, rank, (struct gguf_string){bytes, n}, TOKEN_NORMAL, -(double)rank);
}

static int read_lines(struct token_draft *d)
{
    const char *at = strbuf_str(&d->file), *end = at + d->file.len;
    for (size_t number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((newline ? newline : end) - at);
        size_t content = len > 0 && at[len - 1] == '\r' ? len - 1 : len;
        if (content > 0 && read_line(d, at, content, number) != 0)
            return -1;
        at += len + (newline != NULL);
    }
    return 0;
}

static const struct family *find_family(const struct token_draft *d)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (d->n == families[i].n_tokens)
            return &families[i];
    return NULL;
}

static int add_specials(struct token_draft *d, const struct family *family)
{
    for (size_t i = 0; family && i < 8 && family->specials[i]; i++) {
        struct gguf_string text = {family->specials[i], strlen(family->specials[i])};
        if (draft_added(d, text, family->n_tokens + i, ADDED_SPECIAL) != 0)
            return -1;
    }
    return 0;
}

int draft_read_tiktoken(struct token_draft *d, const struct json *config)
{
    const struct json *pattern = json_get(config, "pat_str");
    const struct json *added = json_get(config, "added_tokens_decoder");
    if (read_lines(d) != 0)
        return -1;
    const struct family *family = find_family(d);
    if (!json_is(pattern, JSON_STRING) && !family)
        return draft_bad(d,
                         "it has %u tokens, and which pattern cuts its text into words is not "
                         "known: \"pat_str\" in tokenizer_config.json would say",
                         d->n);
    if ((json_is(added, JSON_OBJECT) ? draft_read_config_added(d, config)
                                     : add_specials(d, family)) != 0 ||
        draft_make(d, TOKENIZER_BPE) != 0)
        return -1;
    d->spells_bytes = true;
    d->t->ignore_merges = true;
    return json_is(pattern, JSON_STRING)
               ? draft_split_step(d, pattern->text, pattern->text_len, SPLIT_ISOLATED, false)
               : draft_split_step(d, family->pattern, strlen(family->pattern), SPLIT_ISOLATED,
                                  false);
}
