/* The scheduler's view of the vocabulary: three arrays indexed by token. */
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
