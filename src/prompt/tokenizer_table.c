/* The tokenizer's hash tables: from bytes to a token, from a pair of tokens to their merge.
 * Filled while a model loads, read-only afterwards. Both have at least twice as many slots as
 * entries, so that a probe always ends at an empty one. */
#include "prompt/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct vocab_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
};

static uint32_t table_size(uint32_t n_entries)
{
    uint32_t size = 16;
    while (size / 2 < n_entries)
        size *= 2;
    return size;
}

int vocab_table_open(struct vocab_table *table, const struct gguf_string *texts, uint32_t n,
                     struct error *err)
{
    uint32_t size = table_size(n);
    table->slots = malloc(size * sizeof *table->slots);
    if (!table->slots)
        return error_set(err, ERROR_MEMORY, "no memory for a table of %u tokens", n);
    for (uint32_t i = 0; i < size; i++)
        table->slots[i] = (struct vocab_slot){0, -1};
    table->texts = texts;
    table->mask = size - 1;
    return 0;
}

void vocab_table_close(struct vocab_table *table)
{
    free(table->slots);
    table->slots = NULL;
}

/* The slot that holds these bytes, or the empty one where they would go. */
static struct vocab_slot *vocab_slot(const struct vocab_table *table, const char *bytes, size_t len,
                                     uint32_t hash)
{
    for (uint32_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        struct vocab_slot *slot = &table->slots[i];
        if (slot->id < 0)
            return slot;
        const struct gguf_string *text = &table->texts[slot->id];
        if (slot->hash == hash && text->len == len && memcmp(text->bytes, bytes, len) == 0)
            return slot;
    }
}

int32_t vocab_table_find(const struct vocab_table *table, const char *bytes, size_t len)
{
    return vocab_slot(table, bytes, len, (uint32_t)hash_bytes(bytes, len))->id;
}

int32_t vocab_table_add(struct vocab_table *table, int32_t id)
{
    const struct gguf_string *text = &table->texts[id];
    uint32_t hash = (uint32_t)hash_bytes(text->bytes, text->len);
    struct vocab_slot *slot = vocab_slot(table, text->bytes, text->len, hash);
    int32_t there = slot->id;
    if (there < 0)
        *slot = (struct vocab_slot){hash, id};
    return there;
}

int merge_table_open(struct merge_table *m, uint32_t n, struct error *err)
{
    uint32_t size = table_size(n);
    m->slots = malloc(size * sizeof *m->slots);
    if (!m->slots)
        return error_set(err, ERROR_MEMORY, "no memory for a table of %u merges", n);
    for (uint32_t i = 0; i < size; i++)
        m->slots[i].id = -1;
    m->mask = size - 1;
    return 0;
}

void merge_table_close(struct merge_table *m)
{
    free(m->slots);
    m->slots = NULL;
}

struct merge *merge_table_slot(const struct merge_table *m, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = (uint32_t)hash_mix(pair) & m->mask;
    while (m->slots[i].id >= 0 && m->slots[i].pair != pair)
        i = (i + 1) & m->mask;
    return &m->slots[i];
}

void merge_table_add(struct merge_table *m, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    *merge_table_slot(m, left, right) = (struct merge){pair, rank, id};
}
