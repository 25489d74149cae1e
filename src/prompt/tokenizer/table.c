/* The tokenizer's hash tables: from bytes to a token, and from a pair of tokens to their merge.
 * Filled while a model loads, read-only afterwards. Both have at least twice as many slots as
 * entries, so a probe always ends at an empty one. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct vocab_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
};

enum { BATCH = 32 };

static uint32_t table_size(uint32_t n_entries)
{
    uint32_t size = 16;
    while (size / 2 < n_entries)
        size *= 2;
    return size;
}

int vocab_table_open(struct vocab_table *table, const struct byte_view *texts, uint32_t n,
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
        const struct byte_view *text = &table->texts[slot->id];
        if (slot->hash == hash && text->len == len && memcmp(text->bytes, bytes, len) == 0)
            return slot;
    }
}

static uint32_t vocab_hash(const char *bytes, size_t len)
{
    return (uint32_t)hash_bytes(bytes, len);
}

int32_t vocab_table_find(const struct vocab_table *table, const char *bytes, size_t len)
{
    return vocab_slot(table, bytes, len, vocab_hash(bytes, len))->id;
}

static int32_t add_hashed(struct vocab_table *table, int32_t id, uint32_t hash)
{
    const struct byte_view *text = &table->texts[id];
    struct vocab_slot *slot = vocab_slot(table, text->bytes, text->len, hash);
    int32_t there = slot->id;
    if (there < 0)
        *slot = (struct vocab_slot){hash, id};
    return there;
}

int32_t vocab_table_add(struct vocab_table *table, int32_t id)
{
    const struct byte_view *text = &table->texts[id];
    return add_hashed(table, id, vocab_hash(text->bytes, text->len));
}

/* Every slot is a cache miss, so slots are prefetched in batches. */
int32_t vocab_table_add_all(struct vocab_table *table, uint32_t n, int32_t *other)
{
    uint32_t hashes[BATCH];
    int32_t twice = -1;
    for (uint32_t end = n, begin; end > 0; end = begin) {
        begin = end > BATCH ? end - BATCH : 0;
        for (uint32_t id = begin; id < end; id++) {
            const struct byte_view *text = &table->texts[id];
            hashes[id - begin] = text->len ? vocab_hash(text->bytes, text->len) : 0;
            __builtin_prefetch(&table->slots[hashes[id - begin] & table->mask], 1);
        }
        for (uint32_t id = end; id-- > begin;) {
            if (table->texts[id].len == 0)
                continue;
            int32_t there = add_hashed(table, (int32_t)id, hashes[id - begin]);
            if (there >= 0) {
                twice = (int32_t)id;
                *other = there;
            }
        }
    }
    return twice;
}

void vocab_table_find_all(const struct vocab_table *table, const struct byte_view *texts, size_t n,
                          int32_t *ids)
{
    uint32_t hashes[BATCH];
    for (size_t begin = 0; begin < n; begin += BATCH) {
        size_t end = begin + BATCH < n ? begin + BATCH : n;
        for (size_t i = begin; i < end; i++) {
            hashes[i - begin] = vocab_hash(texts[i].bytes, texts[i].len);
            __builtin_prefetch(&table->slots[hashes[i - begin] & table->mask]);
        }
        for (size_t i = begin; i < end; i++) {
            ids[i] = table->slots[hashes[i - begin] & table->mask].id;
            if (ids[i] >= 0)
                __builtin_prefetch(&table->texts[ids[i]]);
        }
        for (size_t i = begin; i < end; i++)
            if (ids[i] >= 0)
                __builtin_prefetch(table->texts[ids[i]].bytes);
        for (size_t i = begin; i < end; i++)
            ids[i] = vocab_slot(table, texts[i].bytes, texts[i].len, hashes[i - begin])->id;
    }
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

void merge_table_prefetch(const struct merge_table *m, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    __builtin_prefetch(&m->slots[(uint32_t)hash_mix(pair) & m->mask], 1);
}

void merge_table_add(struct merge_table *m, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    *merge_table_slot(m, left, right) = (struct merge){pair, rank, id};
}

/* ---- ranks ---- */

static int compare_scores(const void *a, const void *b, void *context)
{
    const double *scores = context;
    double x = scores[*(const uint32_t *)a], y = scores[*(const uint32_t *)b];
    return (x < y) - (x > y);
}

int tokenizer_rank_scores(struct tokenizer *t, const double *scores, struct error *err)
{
    uint32_t *order = malloc(t->n_tokens * sizeof *order);
    t->ranks = malloc(t->n_tokens * sizeof *t->ranks);
    if (!order || !t->ranks) {
        free(order);
        return error_set(err, ERROR_MEMORY, "no memory for %u scores", t->n_tokens);
    }
    for (uint32_t i = 0; i < t->n_tokens; i++)
        order[i] = i;
    qsort_r(order, t->n_tokens, sizeof *order, compare_scores, (void *)scores);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        rank += i > 0 && scores[order[i]] != scores[order[i - 1]];
        t->ranks[order[i]] = rank;
    }
    free(order);
    return 0;
}
