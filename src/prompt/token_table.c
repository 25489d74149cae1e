/* The vocabulary for other rooms: three arrays indexed by token for the scheduler, and the
 * spellings from which grammars make a trie. */
#include "prompt/token_table.h"

#include <stdlib.h>

int token_table_make(struct token_table *table, const struct tokenizer *tokenizer,
                     const struct answer_style *style, struct error *err)
{
    uint32_t n = tokenizer_size(tokenizer);
    const char **bytes = calloc(n, sizeof *bytes);
    uint32_t *lengths = calloc(n, sizeof *lengths);
    bool *is_end = calloc(n, sizeof *is_end);
    *table = (struct token_table){n, bytes, lengths, is_end};
    if (!bytes || !lengths || !is_end) {
        token_table_free(table);
        return error_set(err, ERROR_MEMORY, "no memory for a table of %u tokens", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t len = 0;
        bytes[i] = tokenizer_bytes(tokenizer, (int32_t)i, &len);
        bool is_shown = !tokenizer_is_special(tokenizer, (int32_t)i) ||
                        (style && answer_style_is_marker(style, bytes[i], len));
        lengths[i] = is_shown ? (uint32_t)len : 0;
        is_end[i] = tokenizer_is_end(tokenizer, (int32_t)i);
    }
    return 0;
}

void token_table_free(struct token_table *table)
{
    free((void *)table->bytes);
    free((void *)table->lengths);
    free((void *)table->is_end);
    *table = (struct token_table){0};
}

int token_vocabulary_open(struct grammar_vocabulary **out, const struct tokenizer *tokenizer,
                          struct error *err)
{
    uint32_t n = tokenizer_size(tokenizer);
    struct grammar_token_info *infos = calloc(n, sizeof *infos);
    if (!infos)
        return error_set(err, ERROR_MEMORY, "no memory for a vocabulary of %u tokens", n);
    for (uint32_t i = 0; i < n; i++) {
        size_t len;
        infos[i].bytes = tokenizer_bytes(tokenizer, (int32_t)i, &len);
        infos[i].len = (uint32_t)len;
        infos[i].is_special = tokenizer_is_special(tokenizer, (int32_t)i);
        infos[i].is_end = tokenizer_is_end(tokenizer, (int32_t)i);
    }
    int failed = grammar_vocabulary_open(out, infos, n, err);
    free(infos);
    return failed;
}
