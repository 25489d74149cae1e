/* tiktoken's files: a line for each token, its bytes in base64 and its rank, which is its id.
 *
 *   IQ== 0
 *   Ig== 1
 *
 * Any two neighbours merge whose bytes together are a token, the lowest rank first. The file has
 * neither special tokens nor the pattern that cuts text into words: they come from
 * tokenizer_config.json ("added_tokens_decoder", "pat_str"), or the family is known. */
#include "prompt/tokenizer/draft.h"

#include <stdio.h>
#include <string.h>

#include "base/ascii.h"

/* Files recognised by their size or by the class in tokenizer_config.json. */
static const struct known_file {
    uint32_t n_tokens;       /* in the file */
    const char *class;       /* NULL: recognised only by its size */
    const char *pre;         /* how text is split, see families.h */
    const char *specials[8]; /* starting at id `n_tokens` */
} known_files[] = {
    {100256, NULL, "dbrx", {NULL}},   /* cl100k_base */
    {199998, NULL, "gpt-4o", {NULL}}, /* o200k_base */
    {128000,
     NULL,
     "llama-bpe",
     {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
      "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|step_id|>",
      "<|start_header_id|>", "<|end_header_id|>"}},
    {151643, "QWenTokenizer", "qwen2", {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}},
    {163584, "TikTokenTokenizer", "kimi-k2", {"[BOS]", "[EOS]"}},
    {151329, "ChatGLM4Tokenizer", "glm4", {"<|endoftext|>"}},
    {127957, "HYTokenizer", "hunyuan", {NULL}},
};

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* True if the first line looks like one of these files. */
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

int draft_base64(struct token_draft *d, const char *text, size_t len, struct byte_view *out)
{
    char *bytes = arena_alloc(&d->arena, len + 1);
    size_t n = 0, bits = 0, i = 0;
    uint32_t value = 0;
    if (!bytes)
        return draft_no_memory(d);
    for (int digit; i < len && (digit = base64_digit(text[i])) >= 0; i++) {
        value = (value << 6 | (uint32_t)digit) & 0xffffff;
        if ((bits += 6) >= 8)
            bytes[n++] = (char)(value >> (bits -= 8));
    }
    while (i < len && text[i] == '=')
        i++;
    *out = (struct byte_view){bytes, i == len ? n : 0};
    return 0;
}

/* "base64 rank" in line[0 .. len). */
static int read_line(struct token_draft *d, const char *line, size_t len, size_t number)
{
    const char *space = memchr(line, ' ', len);
    size_t i = space ? (size_t)(space - line) : 0;
    struct byte_view bytes;
    uint64_t rank = 0;
    if (draft_base64(d, line, i, &bytes) != 0)
        return -1;
    if (bytes.len == 0 || ++i == len)
        return draft_bad(d, "line %zu is not a token in base64 and its rank", number);
    for (; i < len && ascii_is_digit(line[i]) && rank < UINT32_MAX; i++)
        rank = rank * 10 + (uint64_t)(line[i] - '0');
    if (i < len)
        return draft_bad(d, "line %zu has a rank that is not a number", number);
    return draft_token(d, rank, bytes, TOKEN_NORMAL, -(double)rank);
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

static const struct known_file *find_known(const struct token_draft *d, const struct json *config)
{
    enum { N_KNOWN = sizeof known_files / sizeof *known_files };
    const struct json *class = json_get(config, "tokenizer_class");
    for (size_t i = 0; i < N_KNOWN; i++)
        if (d->n == known_files[i].n_tokens)
            return &known_files[i];
    for (size_t i = 0; i < N_KNOWN; i++)
        if (known_files[i].class && json_equals(class, known_files[i].class))
            return &known_files[i];
    return NULL;
}

static int add_specials(struct token_draft *d, const struct known_file *known)
{
    uint32_t first = d->n;
    for (uint32_t i = 0; known && i < 8 && known->specials[i]; i++) {
        struct byte_view text = {known->specials[i], strlen(known->specials[i])};
        if (draft_added(d, text, first + i, ADDED_SPECIAL) != 0)
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
    const struct known_file *known = find_known(d, config);
    if (!json_is(pattern, JSON_STRING) && !known)
        return draft_bad(d,
                         "it has %u tokens, but no known pattern to split text into words; add "
                         "\"pat_str\" to tokenizer_config.json",
                         d->n);
    if ((json_is(added, JSON_OBJECT) ? draft_read_config_added(d, config)
                                     : add_specials(d, known)) != 0 ||
        draft_make(d, TOKENIZER_BPE) != 0)
        return -1;
    d->spells_bytes = true;
    int failed = json_is(pattern, JSON_STRING)
                     ? draft_split_step(d, pattern->text, pattern->text_len, SPLIT_ISOLATED, false)
                     : draft_apply_family(d, known->pre);
    d->t->ignore_merges = true;
    return failed;
}
