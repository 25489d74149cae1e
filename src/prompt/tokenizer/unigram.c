/* Unigram models: of all ways to split a word into tokens, finds the one with the best sum of
 * scores, from left to right (Viterbi).
 *
 *   nodes   [0]  [1]  [2]  [3]        one for each byte of the word and its end: the best score
 *            └─ab──────▲    ▲         of a way that ends there, with its last token
 *                 └─bc──────┘
 *
 * Tokens that start at a byte are found in a trie whose edges are in one hash table. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "base/task.h"

#define UNKNOWN_PENALTY 10.0

struct viterbi_node {
    double score;
    uint32_t start; /* where its last token starts; NO_START: unreachable */
    int32_t id;     /* -1: a character without a token */
};

#define NO_START UINT32_MAX

struct trie_edge {
    uint64_t key; /* (node + 1) << 8 | byte; 0: empty */
    uint32_t child;
    int32_t id; /* the token that ends there, -1: none */
};

struct unigram {
    double *scores; /* [n_tokens] */
    double unknown_score;
    struct trie_edge *edges;
    uint64_t mask;
};

static struct trie_edge *edge_slot(const struct unigram *u, uint32_t node, unsigned char byte)
{
    uint64_t key = ((uint64_t)node + 1) << 8 | byte;
    uint64_t i = hash_mix(key) & u->mask;
    while (u->edges[i].key && u->edges[i].key != key)
        i = (i + 1) & u->mask;
    return &u->edges[i];
}

/* There are at least twice as many slots as token bytes, so a probe always ends. */
static void trie_add(struct unigram *u, struct byte_view text, int32_t id, uint32_t *n_nodes)
{
    uint32_t node = 0;
    struct trie_edge *edge = NULL;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char byte = (unsigned char)text.bytes[i];
        edge = edge_slot(u, node, byte);
        if (!edge->key)
            *edge = (struct trie_edge){((uint64_t)node + 1) << 8 | byte, ++*n_nodes, -1};
        node = edge->child;
    }
    if (edge)
        edge->id = id;
}

int unigram_open(struct tokenizer *t, const double *scores, struct error *err)
{
    struct unigram *u = calloc(1, sizeof *u);
    uint64_t n_bytes = 0, size = 16;
    double least = DBL_MAX;
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        n_bytes += t->texts[id].len;
        if (t->texts[id].len > 0 && scores[id] < least)
            least = scores[id];
    }
    while (size / 2 < n_bytes)
        size *= 2;
    if (u) {
        t->unigram = u;
        u->unknown_score = least - UNKNOWN_PENALTY;
        u->mask = size - 1;
        u->scores = malloc(t->n_tokens * sizeof *u->scores);
        u->edges = calloc(size, sizeof *u->edges);
    }
    if (!u || !u->scores || !u->edges)
        return error_set(err, ERROR_MEMORY, "no memory for %u scores", t->n_tokens);
    memcpy(u->scores, scores, t->n_tokens * sizeof *u->scores);
    uint32_t n_nodes = 0;
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (vocab_table_find(&t->ordinary, t->texts[id].bytes, t->texts[id].len) == (int32_t)id)
            trie_add(u, t->texts[id], (int32_t)id, &n_nodes);
    return 0;
}

void unigram_close(struct unigram *u)
{
    if (!u)
        return;
    free(u->scores);
    free(u->edges);
    free(u);
}

static int reserve(struct encoder *e, size_t n)
{
    if (n <= e->n_nodes)
        return 0;
    free(e->nodes);
    e->n_nodes = n < 256 ? 256 : n;
    e->nodes = malloc(e->n_nodes * sizeof *e->nodes);
    if (e->nodes)
        return 0;
    e->n_nodes = 0;
    return error_set(e->err, ERROR_MEMORY, "no memory for a word of %zu bytes", n);
}

/* Paths are compared by their rounded sums: in a tie, rounding decides. */
static void offer(struct viterbi_node *node, bool single, double score, uint32_t start, int32_t id)
{
    if (single)
        score = (float)score;
    if (node->start == NO_START || score > node->score)
        *node = (struct viterbi_node){score, start, id};
}

static void fill_nodes(struct encoder *e, const char *word, uint32_t len)
{
    const struct unigram *u = e->t->unigram;
    struct viterbi_node *nodes = e->nodes;
    const bool single = e->t->single_scores;
    for (uint32_t i = 0; i <= len; i++)
        nodes[i] = (struct viterbi_node){0, NO_START, -1};
    for (uint32_t at = 0, width; at < len && task_goes_on(16); at += width) {
        double score = nodes[at].score;
        bool has_single = false;
        width = (uint32_t)utf8_valid_prefix(word + at, len - at);
        if (width == 0)
            width = 1;
        uint32_t node = 0;
        for (uint32_t end = at; end < len;) {
            const struct trie_edge *edge = edge_slot(u, node, (unsigned char)word[end]);
            if (!edge->key)
                break;
            node = edge->child;
            end++;
            if (edge->id < 0)
                continue;
            offer(&nodes[end], single, score + u->scores[edge->id], at, edge->id);
            has_single = has_single || end - at == width;
        }
        if (!has_single)
            offer(&nodes[at + width], single, score + u->unknown_score, at, -1);
    }
}

/* A run of characters without a token counts as one: a token, bytes, or unknown. */
static int add_row(struct encoder *e, const char *row, size_t len)
{
    bool after_unknown = false;
    int32_t id = vocab_table_find(&e->t->ordinary, row, len);
    return id >= 0 ? encoder_add(e, id) : encode_unknown(e, row, len, &after_unknown);
}

int encode_unigram(struct encoder *e, const char *word, size_t len)
{
    if (reserve(e, len + 1) != 0)
        return -1;
    fill_nodes(e, word, (uint32_t)len);
    if (task_is_stopped())
        return task_error(e->err);
    /* Reverses the path: a node's `start` becomes where the next token ends. */
    struct viterbi_node *nodes = e->nodes;
    uint32_t next = NO_START;
    for (uint32_t at = (uint32_t)len; at > 0;) {
        uint32_t start = nodes[at].start;
        nodes[at].start = next;
        next = at;
        at = start;
    }
    int32_t unknown = e->t->unknown;
    for (uint32_t at = 0; at < len;) {
        uint32_t end = next, begin = at;
        while (end <= len && (nodes[end].id < 0 || nodes[end].id == unknown)) {
            at = end;
            end = nodes[end].start;
            if (end == NO_START)
                break;
        }
        if (at > begin && add_row(e, word + begin, at - begin) != 0)
            return -1;
        if (end == NO_START)
            break;
        if (encoder_add(e, nodes[end].id) != 0)
            return -1;
        at = end;
        next = nodes[end].start;
    }
    return 0;
}
