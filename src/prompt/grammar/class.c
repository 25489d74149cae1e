/* Sets of code points as automata over UTF-8 bytes: each range of code points is split into pieces
 * whose encodings are a product of byte ranges. */
#include "base/hash.h"
#include "base/utf8.h"
#include "prompt/grammar/grammar_internal.h"

enum { SHARED_SIZE = 64 };

/* Collects the pieces: counts them, or builds them if there is a compiler. Pieces come in order,
 * and those with the same leading bytes share them, so that few nodes are entered at once:
 *
 *   c3 a0-b6, c3 b8-bf, c4 80-bf      entry ─► c3 ─► a0-b6 ─► next
 *                                        │      └──► b8-bf ─► next
 *                                        └──► c4 ─► 80-bf ─► next
 *
 * Equal ends of pieces share one node through `shared`, a cache; a miss only costs a node. */
struct piece_sink {
    struct compiler *c;
    uint32_t next; /* what follows the class */
    uint32_t size;
    uint8_t lead[3]; /* the first bytes of the last piece */
    unsigned n_lead;
    uint32_t entries[4]; /* alternatives after n lead bytes, UINT32_MAX: none */
    uint32_t shared[SHARED_SIZE];
};

static uint32_t shared_bytes(struct piece_sink *sink, uint8_t lo, uint8_t hi, uint32_t target)
{
    struct compiler *c = sink->c;
    uint64_t key = (uint64_t)target << 16 | (uint64_t)lo << 8 | hi;
    uint32_t *slot = &sink->shared[hash_mix(key) % SHARED_SIZE];
    const struct nfa_node *n = &c->nodes[*slot];
    if (*slot == 0 || n->lo != lo || n->hi != hi || n->target != target)
        *slot = nfa_add_bytes(c, lo, hi, target);
    return *slot;
}

static void add_entry(struct piece_sink *sink, unsigned level, uint32_t node)
{
    uint32_t *entry = &sink->entries[level];
    *entry = *entry == UINT32_MAX ? node : nfa_add(sink->c, NFA_SPLIT, node, *entry);
}

/* Closes the lead bytes that no later piece shares, down to the first `n`. */
static void close_lead(struct piece_sink *sink, unsigned n)
{
    while (sink->n_lead > n && !sink->c->failed) {
        uint32_t below = sink->entries[sink->n_lead];
        sink->entries[sink->n_lead--] = UINT32_MAX;
        uint8_t byte = sink->lead[sink->n_lead];
        add_entry(sink, sink->n_lead, nfa_add_bytes(sink->c, byte, byte, below));
    }
}

static void add_piece(struct piece_sink *sink, uint32_t first, uint32_t last)
{
    char lo[4], hi[4];
    unsigned len = (unsigned)utf8_encode(first, lo), n = 0;
    utf8_encode(last, hi);
    sink->size += len + 1;
    if (sink->c == NULL || sink->c->failed)
        return;
    while (n < sink->n_lead && n + 1 < len && (uint8_t)lo[n] == sink->lead[n] && lo[n] == hi[n])
        n++;
    close_lead(sink, n);
    for (; n + 1 < len && lo[n] == hi[n]; n++)
        sink->lead[sink->n_lead++] = (uint8_t)lo[n];
    uint32_t node = sink->next;
    for (unsigned i = len; i-- > n;)
        node = shared_bytes(sink, (uint8_t)lo[i], (uint8_t)hi[i], node);
    add_entry(sink, n, node);
}

/* All code points of the range have encodings of `len` bytes. */
static void split_range(struct piece_sink *sink, uint32_t first, uint32_t last, unsigned len)
{
    for (unsigned i = 1; i < len; i++) {
        uint32_t low = (1u << 6 * i) - 1;
        if ((first & ~low) == (last & ~low))
            continue;
        if ((first & low) != 0) {
            split_range(sink, first, first | low, len);
            split_range(sink, (first | low) + 1, last, len);
            return;
        }
        if ((last & low) != low) {
            split_range(sink, first, (last & ~low) - 1, len);
            split_range(sink, last & ~low, last, len);
            return;
        }
    }
    add_piece(sink, first, last);
}

static void split_all(struct piece_sink *sink, const uint32_t *ranges, uint32_t n)
{
    static const uint32_t lasts[] = {0x7f, 0x7ff, 0xffff, 0x10ffff};
    for (uint32_t i = 0; i < n && sink->size < NFA_NODES_MAX; i++) {
        uint32_t first = ranges[2 * i];
        for (unsigned len = 1; len <= 4 && first <= ranges[2 * i + 1]; len++) {
            uint32_t last = ranges[2 * i + 1] < lasts[len - 1] ? ranges[2 * i + 1] : lasts[len - 1];
            if (first > last)
                continue;
            split_range(sink, first, last, len);
            first = last + 1;
        }
    }
}

uint32_t nfa_class_size(const uint32_t *ranges, uint32_t n)
{
    struct piece_sink sink = {.c = NULL};
    split_all(&sink, ranges, n);
    return sink.size < NFA_NODES_MAX ? sink.size : NFA_NODES_MAX;
}

uint32_t nfa_build_class(struct compiler *c, const uint32_t *ranges, uint32_t n, uint32_t next)
{
    struct piece_sink sink = {.c = c, .next = next};
    for (unsigned i = 0; i < 4; i++)
        sink.entries[i] = UINT32_MAX;
    split_all(&sink, ranges, n);
    close_lead(&sink, 0);
    return sink.entries[0];
}
