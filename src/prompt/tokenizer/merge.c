/* Merging: a word starts as its bytes (byte-level BPE) or characters (the others), and the best
 * pair of neighbours becomes one symbol until no pair is left. The best pair comes from a heap, so
 * that a word of n bytes costs n log n even when it is a megabyte long.
 *
 *   symbols   [l]⇄[o]⇄[w]⇄[e]⇄[r]       each knows what it and the next one merge into
 *   heap      rank << 32 | symbol       the lowest rank first, then the leftmost
 *
 * Stale entries are not removed from the heap. An entry counts only if its symbol still has a pair
 * of that rank. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/task.h"

struct symbol {
    uint32_t start, end; /* its bytes in the word */
    uint32_t prev, next; /* NONE at the ends of the word */
    uint32_t pair_rank;  /* NONE: no pair, or already merged */
    int32_t pair_id;     /* what it and the next one merge into */
    int32_t id;          /* -1 in SentencePiece: a character without a token */
};

#define NONE UINT32_MAX

static int reserve(struct encoder *e, size_t n)
{
    if (n <= e->capacity)
        return 0;
    size_t capacity = n < 256 ? 256 : n;
    free(e->symbols);
    free(e->heap);
    e->symbols = malloc(capacity * sizeof *e->symbols);
    e->heap = malloc(2 * capacity * sizeof *e->heap);
    e->capacity = e->symbols && e->heap ? capacity : 0;
    if (!e->capacity)
        return error_set(e->err, ERROR_MEMORY, "no memory for a word of %zu bytes", n);
    return 0;
}

/* A byte without a token becomes the unknown token. If there is none, it is dropped, and its
 * neighbours become adjacent. */
static uint32_t symbols_from_bytes(struct encoder *e, const char *word, uint32_t len)
{
    const struct tokenizer *t = e->t;
    uint32_t n = 0;
    bool after_unknown = false;
    for (uint32_t i = 0; i < len; i++) {
        int32_t id = t->byte_ids[(unsigned char)word[i]];
        bool is_unknown = id < 0;
        if (is_unknown && !(after_unknown && t->fuse_unknown))
            id = t->unknown_byte;
        after_unknown = is_unknown;
        if (id >= 0)
            e->symbols[n++] = (struct symbol){.start = i, .end = i + 1, .id = id};
    }
    return n;
}

/* SentencePiece's characters. Those without a token are handled after all merges. */
static uint32_t symbols_from_characters(struct encoder *e, const char *word, uint32_t len)
{
    uint32_t n = 0, width;
    for (uint32_t i = 0; i < len; i += width) {
        width = (uint32_t)utf8_valid_prefix(word + i, len - i);
        if (width == 0)
            width = 1;
        int32_t id = vocab_table_find(&e->t->ordinary, word + i, width);
        e->symbols[n++] = (struct symbol){.start = i, .end = i + width, .id = id};
    }
    return n;
}

static bool has_bytes(const struct tokenizer *t, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (t->byte_ids[(unsigned char)bytes[i]] < 0)
            return false;
    return true;
}

/* The characters of BPE by rank. One without a token becomes its bytes or an unknown token, and
 * these merge like others. Without either it is dropped, and its neighbours become adjacent. */
static uint32_t symbols_with_unknown(struct encoder *e, const char *word, uint32_t len)
{
    const struct tokenizer *t = e->t;
    uint32_t n = 0, width;
    bool after_unknown = false;
    for (uint32_t i = 0; i < len; i += width) {
        width = (uint32_t)utf8_valid_prefix(word + i, len - i);
        if (width == 0)
            width = 1;
        int32_t id = vocab_table_find(&t->ordinary, word + i, width);
        bool is_bytes = id < 0 && has_bytes(t, word + i, width);
        if (is_bytes) {
            for (uint32_t k = 0; k < width; k++)
                e->symbols[n++] = (struct symbol){.start = i + k,
                                                  .end = i + k + 1,
                                                  .id = t->byte_ids[(unsigned char)word[i + k]]};
            continue; /* unknown runs continue after bytes, as in `tokenizers` */
        }
        if (id >= 0)
            after_unknown = false;
        else if (t->unknown < 0 || (after_unknown && t->fuse_unknown))
            continue;
        else
            after_unknown = true;
        e->symbols[n++] = (struct symbol){
            .start = i, .end = i + width, .id = id >= 0 ? id : t->unknown};
    }
    return n;
}

/* Sets what the symbol and the next one merge into. */
static void find_pair(struct encoder *e, const char *word, uint32_t at)
{
    const struct tokenizer *t = e->t;
    struct symbol *left = &e->symbols[at];
    left->pair_rank = NONE;
    if (left->next == NONE)
        return;
    const struct symbol *right = &e->symbols[left->next];
    if (!t->ranks) {
        const struct merge *merge = merge_table_slot(&t->merges, left->id, right->id);
        left->pair_id = merge->id;
        if (merge->id >= 0)
            left->pair_rank = merge->rank;
        return;
    }
    uint32_t len = right->end - left->start;
    if (len > t->longest)
        return;
    left->pair_id = vocab_table_find(&t->ordinary, word + left->start, len);
    if (left->pair_id >= 0)
        left->pair_rank = t->ranks[left->pair_id];
}

/* The symbol absorbs the next one; both of its pairs are looked up again. */
static void merge_pair(struct encoder *e, const char *word, uint32_t at)
{
    struct symbol *left = &e->symbols[at];
    struct symbol *right = &e->symbols[left->next];
    left->id = left->pair_id;
    left->end = right->end;
    left->next = right->next;
    right->pair_rank = NONE;
    if (left->next != NONE)
        e->symbols[left->next].prev = at;
    find_pair(e, word, at);
    if (left->prev != NONE)
        find_pair(e, word, left->prev);
}

static void heap_sift_down(uint64_t *heap, size_t n, size_t at)
{
    uint64_t entry = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (entry <= heap[child])
            break;
        heap[at] = heap[child];
    }
    heap[at] = entry;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t entry)
{
    size_t at = (*n)++;
    for (; at > 0 && entry < heap[(at - 1) / 2]; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = entry;
}

static void push_pair(struct encoder *e, size_t *n_heap, uint32_t at)
{
    if (at == NONE || e->symbols[at].pair_rank == NONE)
        return;
    assert(*n_heap < 2 * e->capacity);
    heap_push(e->heap, n_heap, (uint64_t)e->symbols[at].pair_rank << 32 | at);
}

/* Each merge removes one entry and adds at most two, so 2 n entries are enough. */
static void merge_all(struct encoder *e, const char *word, uint32_t n)
{
    size_t n_heap = 0;
    for (uint32_t i = 0; i < n; i++)
        if (e->symbols[i].pair_rank != NONE)
            e->heap[n_heap++] = (uint64_t)e->symbols[i].pair_rank << 32 | i;
    for (size_t i = n_heap / 2; i-- > 0;)
        heap_sift_down(e->heap, n_heap, i);
    while (n_heap > 0) {
        if (!task_goes_on(16))
            return;
        uint64_t top = e->heap[0];
        e->heap[0] = e->heap[--n_heap];
        if (n_heap > 1)
            heap_sift_down(e->heap, n_heap, 0);
        uint32_t at = (uint32_t)top;
        if (e->symbols[at].pair_rank != top >> 32)
            continue;
        merge_pair(e, word, at);
        push_pair(e, &n_heap, at);
        push_pair(e, &n_heap, e->symbols[at].prev);
    }
}

int encode_unknown(struct encoder *e, const char *bytes, size_t len, bool *after_unknown)
{
    const struct tokenizer *t = e->t;
    if (!has_bytes(t, bytes, len)) {
        bool silent = *after_unknown || t->unknown < 0;
        *after_unknown = true;
        return silent ? 0 : encoder_add(e, t->unknown);
    }
    *after_unknown = false;
    for (size_t i = 0; i < len; i++)
        if (encoder_add(e, t->byte_ids[(unsigned char)bytes[i]]) != 0)
            return -1;
    return 0;
}

static int add_symbols(struct encoder *e, const char *word)
{
    bool after_unknown = false;
    for (uint32_t i = 0; i != NONE; i = e->symbols[i].next) {
        const struct symbol *s = &e->symbols[i];
        int status;
        if (s->id < 0) {
            status = encode_unknown(e, word + s->start, s->end - s->start, &after_unknown);
        } else {
            after_unknown = false;
            status = encoder_add(e, s->id);
        }
        if (status != 0)
            return -1;
    }
    return 0;
}

static int merge_word(struct encoder *e, const char *word, size_t len)
{
    const struct tokenizer *t = e->t;
    if (reserve(e, len) != 0)
        return -1;
    uint32_t n = t->kind == TOKENIZER_BPE   ? symbols_from_bytes(e, word, (uint32_t)len)
                 : t->kind == TOKENIZER_SPM ? symbols_from_characters(e, word, (uint32_t)len)
                                            : symbols_with_unknown(e, word, (uint32_t)len);
    if (n == 0)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        e->symbols[i].prev = i - 1; /* NONE for the first */
        e->symbols[i].next = i + 1 < n ? i + 1 : NONE;
    }
    for (uint32_t i = 0; i < n && task_goes_on(8); i++)
        find_pair(e, word, i);
    merge_all(e, word, n);
    if (task_is_stopped())
        return task_error(e->err);
    return add_symbols(e, word);
}

/* Most words are a single token that their merges also produce. This is checked once per token, by
 * whichever thread is first; the result is the same for all. */
int encode_new_word(struct encoder *e, const char *word, size_t len)
{
    const struct tokenizer *t = e->t;
    if (t->kind == TOKENIZER_UNIGRAM)
        return encode_unigram(e, word, len);
    int32_t id = len <= t->longest ? vocab_table_find(&t->ordinary, word, len) : -1;
    if (id >= 0 && (t->ignore_merges ||
                    atomic_load_explicit(&t->whole[id], memory_order_relaxed) == WHOLE_YES))
        return encoder_add(e, id);
    size_t before = e->out->len;
    if (merge_word(e, word, len) != 0)
        return -1;
    if (id >= 0) {
        bool whole = e->out->len == before + 1 && e->out->ids[before] == id;
        atomic_store_explicit(&t->whole[id], whole ? WHOLE_YES : WHOLE_NO, memory_order_relaxed);
    }
    return 0;
}
