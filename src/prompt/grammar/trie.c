/* The vocabulary: all tokens' bytes in a trie, and the memory for making masks.
 *
 * Everything is allocated here, when it is opened. The trie never changes afterwards, so matchers
 * may be opened on other threads; the store and the scratches belong to the one thread that makes
 * masks. */
#include <stdlib.h>
#include <string.h>

#include "prompt/grammar/grammar_internal.h"

enum {
    TOKEN_LEN_MAX = 60000,
    STORE_BYTES = 8 << 20,
    STORE_FREE_MASKS = 256,
    STORE_COUNTED = 16,
    LOOK_AFTER = 1024, /* a few microseconds */
};

struct sorted_token {
    const char *bytes;
    uint32_t len, id;
};

static int compare_tokens(const void *a, const void *b)
{
    const struct sorted_token *x = a, *y = b;
    uint32_t len = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->bytes, y->bytes, len);
    if (order != 0)
        return order;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static uint32_t common_prefix(const struct sorted_token *a, const struct sorted_token *b)
{
    uint32_t n = 0;
    while (n < a->len && n < b->len && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

/* Appends the tokens in order: the prefix that a token shares with the previous one already
 * exists. */
static void fill_trie(struct token_trie *t, const struct sorted_token *tokens, size_t n,
                      uint32_t *path)
{
    uint32_t depth = 0;
    t->n_nodes = 1;
    t->nodes[0] = (struct trie_node){.token = t->none};
    path[0] = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t shared = i > 0 ? common_prefix(&tokens[i - 1], &tokens[i]) : 0;
        for (; depth > shared; depth--)
            t->nodes[path[depth]].skip = t->n_nodes;
        while (depth < tokens[i].len) {
            uint8_t byte = (uint8_t)tokens[i].bytes[depth++];
            path[depth] = t->n_nodes++;
            t->nodes[path[depth]] = (struct trie_node){
                .token = t->none, .depth = (uint16_t)depth, .byte = byte};
        }
        uint32_t *last = &t->nodes[path[depth]].token;
        t->same[tokens[i].id] = TOKEN_NONE;
        if (*last != t->none) {
            t->same[tokens[i].id] = *last;
            t->pairs[t->n_pairs++] = (struct token_pair){tokens[i].id, *last};
        }
        *last = tokens[i].id;
    }
    for (; depth > 0; depth--)
        t->nodes[path[depth]].skip = t->n_nodes;
    t->nodes[0].skip = t->n_nodes;
}

static int fail_memory(struct error *err)
{
    return error_set(err, ERROR_MEMORY, "no memory for the grammar's vocabulary");
}

static int open_trie(struct grammar_vocabulary *v, struct error *err)
{
    struct token_trie *t = &v->trie;
    struct sorted_token *sorted = malloc((v->n_tokens + 1) * sizeof *sorted);
    uint32_t *path = malloc((v->max_len + 2) * sizeof *path);
    size_t n = 0, n_nodes = 1;
    for (uint32_t i = 0; sorted != NULL && i < v->n_tokens; i++) {
        uint32_t len = v->offsets[i + 1] - v->offsets[i];
        if (len > 0 && v->kinds[i] == 0)
            sorted[n++] = (struct sorted_token){v->bytes + v->offsets[i], len, i};
    }
    if (sorted != NULL && path != NULL) {
        qsort(sorted, n, sizeof *sorted, compare_tokens);
        for (size_t i = 0; i < n; i++)
            n_nodes += sorted[i].len - (i > 0 ? common_prefix(&sorted[i - 1], &sorted[i]) : 0);
        t->nodes = malloc(n_nodes * sizeof *t->nodes);
        t->same = malloc((v->n_tokens + 1) * sizeof *t->same);
        t->pairs = malloc((v->n_tokens + 1) * sizeof *t->pairs);
        t->none = v->n_words * 64;
    }
    bool done = t->nodes != NULL && t->same != NULL && t->pairs != NULL;
    if (done)
        fill_trie(t, sorted, n, path);
    free(sorted);
    free(path);
    return done ? 0 : fail_memory(err);
}

static int copy_tokens(struct grammar_vocabulary *v, const struct grammar_token_info *tokens,
                       struct error *err)
{
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        if (tokens[i].len > TOKEN_LEN_MAX)
            return error_set(err, ERROR_LIMIT, "token %u has %u bytes, more than %d", i,
                             tokens[i].len, TOKEN_LEN_MAX);
        n_bytes += tokens[i].len;
        v->max_len = tokens[i].len > v->max_len ? tokens[i].len : v->max_len;
    }
    if (n_bytes > UINT32_MAX)
        return error_set(err, ERROR_LIMIT, "the vocabulary has more than 4 GiB of text");
    v->bytes = malloc(n_bytes + 1);
    v->offsets = malloc((v->n_tokens + 1) * sizeof *v->offsets);
    v->kinds = calloc(v->n_tokens + 1, 1);
    v->end_mask = calloc(v->n_words, sizeof *v->end_mask);
    if (v->bytes == NULL || v->offsets == NULL || v->kinds == NULL || v->end_mask == NULL)
        return fail_memory(err);
    v->offsets[0] = 0;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        if (tokens[i].len > 0)
            memcpy(v->bytes + v->offsets[i], tokens[i].bytes, tokens[i].len);
        v->offsets[i + 1] = v->offsets[i] + tokens[i].len;
        v->kinds[i] = (uint8_t)((tokens[i].is_special ? TOKEN_IS_SPECIAL : 0) |
                                (tokens[i].is_end ? TOKEN_IS_END : 0));
        if (tokens[i].is_end)
            v->end_mask[i / 64] |= (uint64_t)1 << (i % 64);
    }
    return 0;
}

static int open_store(struct grammar_vocabulary *v, size_t bytes, struct error *err)
{
    struct mask_store *s = &v->store;
    s->pool_bytes = bytes;
    s->generation = 1;
    s->worth = STORE_WORTH;
    s->pool = malloc(bytes + 1);
    s->automata = malloc(STORE_AUTOMATA * sizeof *s->automata);
    s->masks = malloc(STORE_MASKS * sizeof *s->masks);
    s->index = calloc(STORE_INDEX, sizeof *s->index);
    if (s->pool == NULL || s->automata == NULL || s->masks == NULL || s->index == NULL)
        return fail_memory(err);
    return 0;
}

static int open_whole(struct grammar_vocabulary *v, struct error *err)
{
    struct whole_masks *w = &v->whole;
    w->items = calloc(WHOLE_MASKS, sizeof *w->items);
    w->masks = malloc((size_t)WHOLE_MASKS * v->n_words * sizeof *w->masks);
    if (w->items == NULL || w->masks == NULL)
        return fail_memory(err);
    for (size_t i = 0; i < WHOLE_MASKS; i++)
        w->items[i].mask = w->masks + i * v->n_words;
    return 0;
}

static int open_scratch(const struct grammar_vocabulary *v, struct mask_scratch *s,
                        struct error *err)
{
    size_t n_nodes = v->trie.n_nodes, n_tokens = (size_t)v->n_words * 64;
    s->max_pending = (uint32_t)(n_nodes > PENDING_MIN ? n_nodes : PENDING_MIN);
    s->states = calloc(v->max_len + 2, sizeof *s->states);
    s->counts = calloc(v->max_len + 2, sizeof *s->counts);
    s->leaves = malloc(n_nodes * sizeof *s->leaves);
    s->need = malloc(n_tokens + 64);
    s->mask = malloc((v->n_words + 1) * sizeof *s->mask);
    s->many = malloc(n_tokens * sizeof *s->many);
    s->ends = malloc((RULE_STATES_MAX + 1) * sizeof *s->ends);
    s->is_end = calloc(RULE_STATES_MAX + 1, sizeof *s->is_end);
    s->pending = malloc(s->max_pending * sizeof *s->pending);
    s->seen = malloc(SEEN_SIZE * sizeof *s->seen);
    s->seen_stamp = calloc(SEEN_SIZE, sizeof *s->seen_stamp);
    if (s->states == NULL || s->counts == NULL || s->leaves == NULL || s->need == NULL ||
        s->mask == NULL || s->many == NULL || s->ends == NULL || s->is_end == NULL ||
        s->pending == NULL || s->seen == NULL || s->seen_stamp == NULL)
        return fail_memory(err);
    return 0;
}

int grammar_vocabulary_open_sized(struct grammar_vocabulary **out,
                                  const struct grammar_token_info *tokens, uint32_t n_tokens,
                                  size_t store_bytes, struct error *err)
{
    struct grammar_vocabulary *v = calloc(1, sizeof *v);
    *out = NULL;
    if (v == NULL)
        return fail_memory(err);
    v->n_tokens = n_tokens;
    v->look_after = LOOK_AFTER;
    v->n_words = n_tokens > 0 ? (n_tokens + 63) / 64 : 1;
    if (copy_tokens(v, tokens, err) != 0 || open_trie(v, err) != 0 ||
        open_store(v, store_bytes, err) != 0 || open_whole(v, err) != 0 ||
        open_scratch(v, &v->scratch, err) != 0 || open_scratch(v, &v->spare, err) != 0) {
        grammar_vocabulary_close(v);
        return -1;
    }
    *out = v;
    return 0;
}

int grammar_vocabulary_open(struct grammar_vocabulary **out,
                            const struct grammar_token_info *tokens, uint32_t n_tokens,
                            struct error *err)
{
    size_t mask_bytes = (n_tokens / 64 + 1) * sizeof(uint64_t);
    size_t bytes = STORE_BYTES + STORE_FREE_MASKS * mask_bytes + (size_t)STORE_COUNTED * n_tokens;
    return grammar_vocabulary_open_sized(out, tokens, n_tokens, bytes, err);
}

static void free_all(void *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(all[i]);
}

static void close_scratch(const struct mask_scratch *c)
{
    void *const all[] = {c->states, c->counts, c->leaves,  c->need, c->mask,      c->many,
                         c->ends,   c->is_end, c->pending, c->seen, c->seen_stamp};
    free_all(all, sizeof all / sizeof *all);
}

void grammar_vocabulary_close(struct grammar_vocabulary *v)
{
    if (v == NULL)
        return;
    const struct token_trie *t = &v->trie;
    const struct mask_store *s = &v->store;
    void *const all[] = {v->bytes, v->offsets,     v->kinds,      v->end_mask, t->nodes,
                         t->same,  t->pairs,       s->pool,       s->automata, s->masks,
                         s->index, v->whole.items, v->whole.masks};
    free_all(all, sizeof all / sizeof *all);
    close_scratch(&v->scratch);
    close_scratch(&v->spare);
    free(v);
}

const uint64_t *grammar_vocabulary_ends(const struct grammar_vocabulary *v)
{
    return v->end_mask;
}

size_t grammar_vocabulary_reserved(const struct grammar_vocabulary *v)
{
    const struct mask_scratch *s = &v->scratch;
    size_t n_tokens = (size_t)v->n_words * 64;
    size_t scratch = v->trie.n_nodes * sizeof *s->leaves + n_tokens + n_tokens * sizeof *s->many +
                     s->max_pending * sizeof *s->pending;
    return v->store.pool_bytes + (size_t)WHOLE_MASKS * v->n_words * sizeof *v->whole.masks +
           2 * scratch;
}

uint32_t grammar_vocabulary_words(const struct grammar_vocabulary *v)
{
    return v->n_words;
}
