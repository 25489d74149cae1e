/* What the prefix tree costs, and that the cost does not grow with it.
 *
 *   build/bench_tree
 *
 * Trees of 1,000, 100,000 and 1,000,000 leaves, each a text of its own behind one of a few shared
 * prompts. Printed are the times to match, insert, unlock, evict and expire, best of several
 * rounds; the ratio to the smallest tree, where what remains above 1 is the price of memory that is
 * no longer in the processor's caches; and a match next to the limit, a bare comparison of the same
 * tokens in two arrays. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cache/tree_node.h"

enum {
    PROMPT = 240, /* tokens that many leaves share */
    N_PROMPTS = 16,
    TAIL = 16, /* tokens of a leaf's own */
    LENGTH = PROMPT + TAIL,
    BATCH = 500, /* operations in a round */
    ROUNDS = 7,
};

struct bench {
    struct page_pool pool;
    struct prefix_tree *tree;
    uint64_t n_stored; /* leaf number k was stored k-th, and used last at time k */
    uint64_t n_gone;   /* the first leaves, which went first */
};

enum { PEEK, ACQUIRE, INSERT, UNLOCK, EVICT, EXPIRE, TIMES };
static const char *const time_names[] = {"peek", "acquire", "insert", "unlock", "evict", "expire"};

static uint64_t texts[BATCH][LENGTH];
static uint32_t pages[BATCH][LENGTH];
static uint32_t lengths[BATCH];
static node_id held[BATCH];

static void fail(const char *what)
{
    fprintf(stderr, "bench_tree: %s\n", what);
    exit(1);
}

static void make_text(uint64_t leaf, uint64_t *tokens)
{
    for (uint32_t i = 0; i < PROMPT; i++)
        tokens[i] = cache_token_text((int32_t)(hash_pair(leaf % N_PROMPTS, i) % 50000));
    tokens[PROMPT] = cache_token_text((int32_t)leaf); /* every tail is a leaf of its own */
    for (uint32_t i = PROMPT + 1; i < LENGTH; i++)
        tokens[i] = cache_token_text((int32_t)(hash_pair(leaf + N_PROMPTS, i) % 50000));
}

static void take_pages(struct page_pool *pool, uint32_t *out, uint32_t n)
{
    for (uint32_t got = 0; got < n;) {
        struct page_run run = page_pool_take(pool, n - got, got ? out[got - 1] : PAGE_NONE);
        if (run.count == 0)
            fail("no pages left");
        for (uint32_t i = 0; i < run.count; i++)
            out[got++] = run.first + i;
    }
}

static double since(uint64_t begin, uint32_t n)
{
    return (double)(clock_now_ns() - begin) / n;
}

static void keep_best(double *best, double ns)
{
    if (*best == 0 || ns < *best)
        *best = ns;
}

static void acquire_all(struct bench *b)
{
    enum match_kind kind;
    for (uint32_t i = 0; i < BATCH; i++)
        held[i] = prefix_tree_acquire(b->tree, 0, texts[i], LENGTH, b->n_stored, &lengths[i],
                                      &kind);
}

/* Stores BATCH new leaves: all matched first, then all inserted, then all unlocked. */
static void store_batch(struct bench *b, double *best)
{
    for (uint32_t i = 0; i < BATCH; i++)
        make_text(b->n_stored + i, texts[i]);
    acquire_all(b);
    for (uint32_t i = 0; i < BATCH; i++)
        take_pages(&b->pool, pages[i], LENGTH - lengths[i]);
    uint64_t begin = clock_now_ns();
    for (uint32_t i = 0; i < BATCH; i++) {
        uint32_t n = LENGTH - lengths[i], claimed = 0;
        held[i] = prefix_tree_insert(b->tree, held[i], texts[i] + lengths[i], pages[i], n,
                                     b->n_stored + i, &claimed);
        /* The first of a prompt's leaves bring the prompt; the others find it there. */
        for (uint32_t k = 0; k < n - claimed; k++)
            page_pool_give(&b->pool, (struct page_run){pages[i][k], 1});
    }
    keep_best(&best[INSERT], since(begin, BATCH));
    begin = clock_now_ns();
    for (uint32_t i = 0; i < BATCH; i++)
        prefix_tree_unlock(b->tree, held[i], b->n_stored + i);
    keep_best(&best[UNLOCK], since(begin, BATCH));
    b->n_stored += BATCH;
}

static void time_match(struct bench *b, double *best, uint64_t round)
{
    for (uint32_t i = 0; i < BATCH; i++)
        make_text(b->n_gone + hash_pair(round, i) % (b->n_stored - b->n_gone), texts[i]);
    uint64_t begin = clock_now_ns();
    for (uint32_t i = 0; i < BATCH; i++)
        lengths[i] = prefix_tree_peek(b->tree, 0, texts[i], LENGTH);
    keep_best(&best[PEEK], since(begin, BATCH));
    for (uint32_t i = 0; i < BATCH; i++)
        make_text(b->n_gone + hash_pair(~round, i) % (b->n_stored - b->n_gone), texts[i]);
    begin = clock_now_ns();
    acquire_all(b);
    keep_best(&best[ACQUIRE], since(begin, BATCH));
    for (uint32_t i = 0; i < BATCH; i++) {
        if (lengths[i] != LENGTH)
            fail("a stored text was not found");
        prefix_tree_unlock(b->tree, held[i], b->n_stored);
    }
}

static void time_evict(struct bench *b, double *best)
{
    uint32_t freed = 0;
    uint64_t begin = clock_now_ns();
    for (uint32_t i = 0; i < BATCH; i++)
        freed += prefix_tree_evict(b->tree, TAIL, UINT32_MAX, b->n_stored);
    keep_best(&best[EVICT], since(begin, BATCH));
    if (freed != BATCH * TAIL)
        fail("evicted something else");
    b->n_gone += BATCH;
}

static void time_expire(struct bench *b, double *best)
{
    uint64_t begin = clock_now_ns();
    uint32_t freed = prefix_tree_expire(b->tree, b->n_gone + BATCH, UINT32_MAX, b->n_stored);
    keep_best(&best[EXPIRE], since(begin, BATCH));
    if (freed != BATCH * TAIL)
        fail("expired something else");
    b->n_gone += BATCH;
}

/* The limit: the same comparisons with nothing to look for. */
static double time_compare(void)
{
    static uint64_t copies[BATCH][LENGTH];
    double best = 0;
    for (uint32_t i = 0; i < BATCH; i++)
        for (uint32_t k = 0; k < LENGTH; k++)
            copies[i][k] = texts[i][k];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t begin = clock_now_ns();
        for (uint32_t i = 0; i < BATCH; i++) {
            uint32_t same = 0;
            while (same < LENGTH && copies[i][same] == texts[i][same])
                same++;
            lengths[i] = same;
        }
        keep_best(&best, since(begin, BATCH));
    }
    return lengths[BATCH - 1] == LENGTH ? best : 0;
}

/* A read that waits for memory: each address depends on what was read before. */
static double time_cold_read(void)
{
    enum { WORDS = 1 << 25, READS = 20000 };
    uint64_t *words = malloc(WORDS * sizeof *words), at = 1;
    double best = 0;
    if (!words)
        fail("no memory");
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = i;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t begin = clock_now_ns();
        for (uint32_t i = 0; i < READS; i++)
            at = hash_mix(at + words[at % WORDS]);
        keep_best(&best, since(begin, READS));
    }
    static volatile uint64_t result; /* or the reads would be found useless, and left out */
    result = at;
    (void)result;
    free(words);
    return best;
}

static uint64_t resident_bytes(void)
{
    unsigned long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu %lu", &size, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void run(uint32_t n_leaves, double *best)
{
    struct bench b = {0};
    struct error err;
    uint64_t before = resident_bytes();
    struct prefix_tree_options options = {.pool = &b.pool,
                                          .max_nodes = n_leaves + BATCH + 2 * N_PROMPTS};
    /* A batch holds its pages before it knows that another of it brought the prompt. */
    if (page_pool_open(&b.pool, n_leaves * TAIL + BATCH * LENGTH, &err) != 0 ||
        prefix_tree_open(&b.tree, &options, &err) != 0)
        fail(err.message);
    while (b.n_stored < n_leaves)
        store_batch(&b, best);
    printf("%9u leaves: %.0f bytes resident a leaf of %d tokens\n", n_leaves,
           (double)(resident_bytes() - before) / n_leaves, TAIL);
    best[INSERT] = best[UNLOCK] = 0; /* of the full tree, not of the growing one */
    for (uint32_t round = 0; round < ROUNDS; round++) {
        time_expire(&b, best);
        store_batch(&b, best);
        time_evict(&b, best);
        store_batch(&b, best);
    }
    for (uint32_t round = 0; round < ROUNDS; round++)
        time_match(&b, best, round);
    if (!prefix_tree_check(b.tree))
        fail("the tree contradicts itself");
    prefix_tree_close(b.tree);
    page_pool_close(&b.pool);
}

int main(void)
{
    static const uint32_t sizes[] = {1000, 100000, 1000000};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    double best[SIZES][TIMES] = {{0}};
    printf("a node: %zu bytes, and %zu to %zu in the edge table; a token: %zu bytes and 3 bits\n",
           sizeof(struct tree_node), 2 * sizeof(struct edge), 4 * sizeof(struct edge),
           sizeof(uint64_t) + 2 * sizeof(uint32_t));
    for (int i = 0; i < SIZES; i++)
        run(sizes[i], best[i]);
    double cold = time_cold_read();
    printf("a cold read takes %.0f ns\n", cold);
    printf("\nns each   ");
    for (int i = 0; i < SIZES; i++)
        printf("%9u leaves", sizes[i]);
    printf("   cold reads\n");
    for (int t = 0; t < TIMES; t++) {
        printf("%-10s", time_names[t]);
        for (int i = 0; i < SIZES; i++)
            printf("%16.1f", best[i][t]);
        printf("%13.1f\n", (best[SIZES - 1][t] - best[0][t]) / cold);
    }
    double compare = time_compare();
    printf(
        "\npeek of %d tokens: %.2f ns a token, in the largest tree %.2f; bare comparison: %.2f\n",
        LENGTH, best[0][PEEK] / LENGTH, best[SIZES - 1][PEEK] / LENGTH, compare / LENGTH);
    return 0;
}
