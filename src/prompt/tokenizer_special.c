/* Special tokens in running text. Where several begin at the same place the longest is taken, and
 * the leftmost comes first, as in the `tokenizers` library. A text costs a search for the bytes
 * that they begin with, mostly the one "<", and there a binary search for each further byte that
 * could belong to a special token. */
#include "prompt/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

static int compare_tokens(const void *a, const void *b, void *context)
{
    const struct tokenizer *t = context;
    const struct gguf_string *x = &t->tokens[*(const int32_t *)a];
    const struct gguf_string *y = &t->tokens[*(const int32_t *)b];
    int order = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

int special_list_open(struct special_list *list, const struct tokenizer *t, unsigned types,
                      struct error *err)
{
    list->ids = malloc(t->n_tokens * sizeof *list->ids);
    if (!list->ids)
        return error_set(err, ERROR_MEMORY, "no memory for a list of special tokens");
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (types >> t->types[id] & 1 && t->tokens[id].len > 0)
            list->ids[list->n++] = (int32_t)id;
    qsort_r(list->ids, list->n, sizeof *list->ids, compare_tokens, (void *)t);
    uint32_t i = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        list->first[byte] = i;
        while (i < list->n && (unsigned char)t->tokens[list->ids[i]].bytes[0] == byte)
            i++;
    }
    list->first[256] = i;
    list->only_byte = -1;
    if (list->n > 0) {
        unsigned char byte = (unsigned char)t->tokens[list->ids[0]].bytes[0];
        if (list->first[byte + 1] - list->first[byte] == list->n)
            list->only_byte = byte;
    }
    return 0;
}

void special_list_close(struct special_list *list)
{
    free(list->ids);
    list->ids = NULL;
}

/* The first of ids[low .. high), which agree up to `at`, whose byte there is `byte` or above.
 * A token that ends at `at` stands before all that go on. */
static uint32_t lower_bound(const struct special_list *list, const struct tokenizer *t,
                            uint32_t low, uint32_t high, size_t at, unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct gguf_string *token = &t->tokens[list->ids[middle]];
        if (token->len == at || (unsigned char)token->bytes[at] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t special_list_skip(const struct special_list *list, const char *text, size_t len)
{
    if (list->n == 0)
        return len;
    if (list->only_byte >= 0) {
        const char *found = memchr(text, list->only_byte, len);
        return found ? (size_t)(found - text) : len;
    }
    size_t at = 0;
    while (at < len &&
           list->first[(unsigned char)text[at]] == list->first[(unsigned char)text[at] + 1])
        at++;
    return at;
}

int32_t special_list_match(const struct special_list *list, const struct tokenizer *t,
                           const char *text, size_t len)
{
    unsigned char byte = (unsigned char)text[0];
    uint32_t low = list->first[byte], high = list->first[byte + 1];
    int32_t best = -1;
    for (size_t at = 1; low < high; at++) {
        if (t->tokens[list->ids[low]].len == at)
            best = list->ids[low];
        if (at == len)
            break;
        byte = (unsigned char)text[at];
        low = lower_bound(list, t, low, high, at, byte);
        high = lower_bound(list, t, low, high, at, byte + 1u);
    }
    return best;
}
