/* Log probabilities to be sent to the client; see logprob_list.h. Belongs to one answer, on the
 * event loop's thread. */
#include "serve/writers/logprob_list.h"

#include <stdlib.h>

void logprob_list_add(struct logprob_list *l, int32_t token, const char *bytes, size_t len,
                      const struct token_logprobs *logprobs)
{
    if (l->n_given == l->n)
        l->n = l->n_ready = l->n_given = 0;
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 16;
        struct logprob_item *items = realloc(l->items, capacity * sizeof *items);
        if (!items) {
            l->failed = true;
            return;
        }
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->n++] = (struct logprob_item){token, l->n_bytes, l->n_characters, *logprobs};
    l->n_bytes += len;
    for (size_t i = 0; i < len; i++)
        l->n_characters += ((unsigned char)bytes[i] & 0xc0) != 0x80;
}

void logprob_list_show(struct logprob_list *l, uint64_t shown)
{
    while (l->n_ready < l->n && l->items[l->n_ready].start < shown)
        l->n_ready++;
}

bool logprob_list_has_new(const struct logprob_list *l)
{
    return l->n_given < l->n_ready;
}

void logprob_list_free(struct logprob_list *l)
{
    free(l->items);
    *l = (struct logprob_list){0};
}
