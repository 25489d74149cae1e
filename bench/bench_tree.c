/* The cost of the prefix tree, which must not grow with its size.
 *
 *   build/bench_tree
 *
 * Trees have 1,000, 100,000 and 1,000,000 leaves, each with its own text after one of a few shared
 * prompts. Leaves are used in random order, so that the next one to evict can be anywhere in
 * memory; eviction is also timed with leaves used in the order they were stored. The tree is full:
 * each insert follows an eviction. Each call handles one leaf.
 *   warm   consecutive calls: the mean of the best round, and from rounds that time each call
 *          separately, p99 and the maximum (including other activity on the machine)
 *   cold   each call after reading 128 MB, as a forward pass does between two calls, so
 *          that neither the tree nor its code is in the processor's caches: the median
 * State: matches that end anywhere in one long node, shortened to the nearest copy of the state,
 * compared with the same matches without a state. Limits: a match compared with a plain comparison
 * of the same tokens in two arrays; and the extra time of a call over the smallest tree compared
 * with a read that waits for memory. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cache/tree_node.h"

enum {
    PROMPT = 240, /* tokens shared by many leaves */
    N_PROMPTS = 16,
    TAIL = 16, /* tokens of one leaf */
    LENGTH = PROMPT + TAIL,
    BATCH = 400, /* calls in a round */
    ROUNDS = 1000,
    COLD_CALLS = 24,
    COLD_BYTES = 128 << 20,
    BURST = 1024, /* nodes in the largest call of evict */
};

enum { MATCH, ACQUIRE, ADMIT, INSERT, UNLOCK, EVICT, EXPIRE, EVICT_IN_ORDER, CALLS };
static const char *const call_names[] = {
    "match", "acquire", "match and acquire", "insert", "unlock",
    "evict", "expire",  "evict in order",
};

struct times {
    double mean, p99, max, cold, cold_max;
    uint64_t cold_calls[COLD_CALLS];
};

struct bench {
    struct page_pool pool;
    struct prefix_tree *tree;
    uint64_t *order; /* leaves, least recently used first: [n_gone, n_stored) are in the tree */
    uint64_t n_gone, n_stored, next_leaf, now_ns;
    struct times *times; /* [CALLS] */
};

static uint64_t texts[BATCH][LENGTH];
static uint32_t pages[BATCH][LENGTH];
static uint32_t lengths[BATCH];
static node_id held[BATCH];
static uint64_t clock_ns; /* the time of reading the clock */

static void fail(const char *what)
{
    fprintf(stderr, "bench_tree: %s\n", what);
    exit(1);
}

static void make_text(uint64_t leaf, uint64_t *tokens)
{
    for (uint32_t i = 0; i < PROMPT; i++)
        tokens[i] = cache_token_text((int32_t)(hash_pair(leaf % N_PROMPTS, i) % 50000));
    tokens[PROMPT] = cache_token_text((int32_t)leaf); /* every tail is a separate leaf */
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

/* ---- one call, and a round of them ---- */

static void call_one(struct bench *b, int call, uint32_t i)
{
    struct tree_match m = {0};
    enum match_kind kind;
    uint32_t claimed;
    switch (call) {
    case MATCH: lengths[i] = prefix_tree_match(b->tree, 0, texts[i], LENGTH).length; break;
    case ADMIT: m = prefix_tree_match(b->tree, 0, texts[i], LENGTH); /* fall through */
    case ACQUIRE:
        held[i] = prefix_tree_acquire(b->tree, 0, texts[i], LENGTH, ++b->now_ns, &m, &kind);
        lengths[i] = m.length;
        break;
    case INSERT:
        held[i] = prefix_tree_insert(b->tree, held[i], texts[i] + lengths[i], pages[i], NULL,
                                     LENGTH - lengths[i], ++b->now_ns, &claimed);
        break;
    case UNLOCK: prefix_tree_unlock(b->tree, held[i], ++b->now_ns); break;
    case EVICT:
    case EVICT_IN_ORDER:
        if (prefix_tree_evict(b->tree, TAIL, UINT32_MAX, ++b->now_ns) != TAIL)
            fail("evicted something else");
        break;
    default:
        if (prefix_tree_expire(b->tree, UINT64_MAX, 1, ++b->now_ns) != TAIL)
            fail("expired something else");
    }
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t timed(struct bench *b, int call, uint32_t i)
{
    uint64_t begin = clock_now_ns();
    call_one(b, call, i);
    uint64_t took = clock_now_ns() - begin;
    return took > clock_ns ? took - clock_ns : 0;
}

/* Even rounds time the whole round, odd ones each call. */
static void call_all(struct bench *b, int call, int round)
{
    static uint64_t took[BATCH];
    struct times *t = &b->times[call];
    if (round % 2 == 0) {
        uint64_t begin = clock_now_ns();
        for (uint32_t i = 0; i < BATCH; i++)
            call_one(b, call, i);
        double mean = (double)(clock_now_ns() - begin) / BATCH;
        t->mean = t->mean == 0 || mean < t->mean ? mean : t->mean;
        return;
    }
    for (uint32_t i = 0; i < BATCH; i++)
        took[i] = timed(b, call, i);
    qsort(took, BATCH, sizeof *took, compare_u64);
    double p99 = (double)took[BATCH - 1 - BATCH / 100], max = (double)took[BATCH - 1];
    t->p99 = t->p99 == 0 || p99 < t->p99 ? p99 : t->p99;
    t->max = t->max == 0 || max < t->max ? max : t->max;
}

/* ---- storing and finding ---- */

static void pick_stored(struct bench *b, uint64_t seed)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        uint64_t at = b->n_gone + hash_pair(seed, i) % (b->n_stored - b->n_gone);
        make_text(b->order[at], texts[i]);
    }
}

/* Stores BATCH new leaves: all matched first, then all inserted, then all unlocked. */
static void store_batch(struct bench *b, int round)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        b->order[b->n_stored + i] = b->next_leaf;
        make_text(b->next_leaf++, texts[i]);
        call_one(b, ACQUIRE, i);
    }
    for (uint32_t i = 0; i < BATCH; i++)
        take_pages(&b->pool, pages[i], LENGTH - lengths[i]);
    call_all(b, INSERT, round);
    call_all(b, UNLOCK, round);
    b->n_stored += BATCH;
}

/* Stores the prompts first, so that later inserts add only leaves. */
static void fill(struct bench *b, uint32_t n_leaves, bool shuffled)
{
    for (uint64_t leaf = 0; leaf < n_leaves; leaf++) {
        make_text(leaf, texts[0]);
        call_one(b, ACQUIRE, 0);
        take_pages(&b->pool, pages[0], LENGTH - lengths[0]);
        call_one(b, INSERT, 0);
        call_one(b, UNLOCK, 0);
        b->order[leaf] = leaf;
    }
    for (uint64_t i = n_leaves - 1; shuffled && i > 0; i--) {
        uint64_t other = hash_mix(i) % (i + 1), swap = b->order[i];
        b->order[i] = b->order[other];
        b->order[other] = swap;
    }
    for (uint64_t i = 0; i < n_leaves; i++) {
        make_text(b->order[i], texts[0]);
        call_one(b, ACQUIRE, 0);
        call_one(b, UNLOCK, 0);
    }
    b->n_stored = b->next_leaf = n_leaves;
}

static void match_batch(struct bench *b, int round)
{
    pick_stored(b, (uint64_t)round);
    call_all(b, MATCH, round);
    for (int call = ACQUIRE; call <= ADMIT; call++) {
        pick_stored(b, ~(uint64_t)round * (uint64_t)call);
        call_all(b, call, round);
        for (uint32_t i = 0; i < BATCH; i++) {
            if (lengths[i] != LENGTH)
                fail("a stored text was not found");
            call_one(b, UNLOCK, i);
        }
    }
}

/* ---- cold ---- */

static uint64_t *stream;

static void go_cold(void)
{
    static volatile uint64_t result;
    uint64_t sum = 0;
    for (size_t i = 0; i < COLD_BYTES / sizeof *stream; i += 8)
        sum += stream[i];
    result = sum;
    (void)result;
}

static void call_cold(struct bench *b, int call, uint32_t i, uint32_t nth)
{
    go_cold();
    b->times[call].cold_calls[nth] = timed(b, call, i);
}

static void cold_calls(struct bench *b)
{
    for (uint32_t i = 0; i < COLD_CALLS; i++) {
        pick_stored(b, 1000 + i);
        call_cold(b, MATCH, 0, i);
        call_cold(b, ACQUIRE, 1, i);
        call_cold(b, UNLOCK, 1, i);
        call_cold(b, ADMIT, 2, i);
        call_one(b, UNLOCK, 2);
        call_cold(b, EVICT, 0, i);
        call_cold(b, EXPIRE, 0, i);
        for (uint32_t k = 0; k < 2; k++) {
            make_text(b->next_leaf++, texts[k]);
            call_one(b, ACQUIRE, k);
            take_pages(&b->pool, pages[k], LENGTH - lengths[k]);
        }
        call_cold(b, INSERT, 0, i);
        call_one(b, INSERT, 1);
        call_one(b, UNLOCK, 0);
        call_one(b, UNLOCK, 1);
    }
    for (int call = 0; call < EVICT_IN_ORDER; call++) {
        struct times *t = &b->times[call];
        qsort(t->cold_calls, COLD_CALLS, sizeof *t->cold_calls, compare_u64);
        t->cold = (double)t->cold_calls[COLD_CALLS / 2];
        t->cold_max = (double)t->cold_calls[COLD_CALLS - 1];
    }
}

/* Microseconds of one call that evicts a thousand nodes. */
static void burst(struct bench *b, double *warm, double *cold)
{
    for (int round = 0; round < 4; round++) {
        if (round == 3)
            go_cold();
        uint64_t begin = clock_now_ns();
        uint32_t freed = prefix_tree_evict(b->tree, UINT32_MAX, BURST, ++b->now_ns);
        double us = (double)(clock_now_ns() - begin) / 1000;
        if (freed != BURST * TAIL)
            fail("evicted something else");
        if (round == 3)
            *cold = us;
        else
            *warm = us > *warm ? us : *warm;
    }
}

/* ---- a state beside the positions ---- */

enum { LONG = 100000, N_MATCHES = 200, STATE_ROUNDS = 10 };

/* The mean of the best round of matches in a node of LONG tokens, whose state was copied after
 * every `every` tokens; 0: no state. */
static double time_long_match(uint32_t every)
{
    static uint64_t tokens[LONG];
    static uint32_t long_pages[LONG], copies[LONG];
    uint32_t *const side_pages[] = {copies}, claimed;
    struct page_pool pool, state;
    struct prefix_tree *tree;
    struct error err;
    struct prefix_tree_options options = {
        .pool = &pool, .max_nodes = 8, .sides = {{&state, 1}}, .n_sides = every > 0};
    if (page_pool_open(&pool, LONG, &err) != 0 || page_pool_open(&state, LONG, &err) != 0 ||
        prefix_tree_open(&tree, &options, &err) != 0)
        fail(err.message);
    take_pages(&pool, long_pages, LONG);
    for (uint32_t i = 0; i < LONG; i++) {
        tokens[i] = cache_token_text((int32_t)(hash_mix(i) % 50000));
        copies[i] = every && (i + 1) % every == 0 ? page_pool_take(&state, 1, PAGE_NONE).first
                                                  : PAGE_NONE;
    }
    struct tree_match m = {0};
    enum match_kind kind;
    node_id node = prefix_tree_acquire(tree, 0, tokens, LONG, 1, &m, &kind);
    node = prefix_tree_insert(tree, node, tokens, long_pages, side_pages, LONG, 2, &claimed);
    double best = 0;
    for (int round = 0; round < STATE_ROUNDS; round++) {
        uint64_t begin = clock_now_ns();
        for (uint32_t i = 0; i < N_MATCHES; i++) {
            uint32_t n = (uint32_t)(hash_pair(7, i) % LONG);
            if (prefix_tree_match(tree, 0, tokens, n).length != (every ? n - n % every : n))
                fail("a match does not end at a copy");
        }
        double ns = (double)(clock_now_ns() - begin) / N_MATCHES;
        best = best == 0 || ns < best ? ns : best;
    }
    prefix_tree_unlock(tree, node, 3);
    prefix_tree_close(tree);
    page_pool_close(&state);
    page_pool_close(&pool);
    return best;
}

static void run_state(void)
{
    static const uint32_t everies[] = {1, 64, 2000, LONG};
    double bare = time_long_match(0);
    printf("\nmatches that end anywhere in a node of %d tokens: %.1f us; and with a state copied\n",
           LONG, bare / 1000);
    for (size_t i = 0; i < sizeof everies / sizeof *everies; i++)
        printf("%26s %6u: %+.2f us\n", "every", everies[i],
               (time_long_match(everies[i]) - bare) / 1000);
}

/* ---- limits ---- */

/* The same comparisons without a tree search. */
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
        double ns = (double)(clock_now_ns() - begin) / BATCH;
        best = best == 0 || ns < best ? ns : best;
    }
    return lengths[BATCH - 1] == LENGTH ? best : 0;
}

/* A read that waits for memory: each address depends on what was read before. */
static double time_cold_read(void)
{
    enum { READS = 20000 };
    static volatile uint64_t result; /* keeps the compiler from dropping the reads */
    uint64_t at = 1;
    uint64_t begin = clock_now_ns();
    for (uint32_t i = 0; i < READS; i++)
        at = hash_mix(at + stream[at % (COLD_BYTES / sizeof *stream)]);
    result = at;
    (void)result;
    return (double)(clock_now_ns() - begin) / READS;
}

static void time_clock(void)
{
    clock_ns = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        uint64_t begin = clock_now_ns(), took = clock_now_ns() - begin;
        clock_ns = took < clock_ns ? took : clock_ns;
    }
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

static void bench_open(struct bench *b, uint32_t n_leaves, bool shuffled, struct times *times)
{
    struct error err;
    struct prefix_tree_options options = {.pool = &b->pool,
                                          .max_nodes = n_leaves + BATCH + 2 * N_PROMPTS};
    *b = (struct bench){.times = times};
    b->order = malloc((n_leaves + 2 * BATCH * (uint64_t)ROUNDS) * sizeof *b->order);
    if (!b->order)
        fail("no memory");
    if (page_pool_open(&b->pool, (n_leaves + BATCH) * TAIL + N_PROMPTS * LENGTH, &err) != 0 ||
        prefix_tree_open(&b->tree, &options, &err) != 0)
        fail(err.message);
    fill(b, n_leaves, shuffled);
}

static void bench_close(struct bench *b)
{
    if (!prefix_tree_check(b->tree))
        fail("the tree contradicts itself");
    prefix_tree_close(b->tree);
    page_pool_close(&b->pool);
    free(b->order);
}

/* Evicts leaves and stores as many new ones. If there are enough leaves, rounds follow each other
 * directly, so that each starts with the caches as the previous one left them. */
static void replace_leaves(struct bench *b, uint32_t n_leaves, int call)
{
    int in_a_row = n_leaves >= 40 * BATCH ? 20 : 1;
    for (int round = 0; round < ROUNDS; round += in_a_row) {
        for (int i = 0; i < in_a_row; i++)
            call_all(b, call, round + i);
        b->n_gone += (uint64_t)BATCH * (uint64_t)in_a_row;
        for (int i = 0; i < in_a_row; i++)
            store_batch(b, round + i);
    }
}

static void run(uint32_t n_leaves, struct times *times)
{
    struct bench b;
    uint64_t before = resident_bytes();
    bench_open(&b, n_leaves, true, times);
    printf("%9u leaves: %.0f bytes resident a leaf of %d tokens\n", n_leaves,
           (double)(resident_bytes() - before) / n_leaves, TAIL);
    replace_leaves(&b, n_leaves, EVICT);
    replace_leaves(&b, n_leaves, EXPIRE);
    for (int round = 0; round < ROUNDS / 5; round++)
        match_batch(&b, round);
    cold_calls(&b);
    double warm = 0, cold = 0;
    if (n_leaves >= 8 * BURST) {
        burst(&b, &warm, &cold);
        printf("           one call of evict that frees %d nodes: at most %.1f us warm, %.1f us "
               "cold\n",
               BURST, warm, cold);
    }
    bench_close(&b);
}

static void run_in_order(uint32_t n_leaves, struct times *times)
{
    struct bench b;
    bench_open(&b, n_leaves, false, times);
    replace_leaves(&b, n_leaves, EVICT_IN_ORDER);
    bench_close(&b);
}

int main(void)
{
    static const uint32_t sizes[] = {1000, 100000, 1000000};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    static struct times times[SIZES][CALLS];
    stream = malloc(COLD_BYTES);
    if (!stream)
        fail("no memory");
    for (size_t i = 0; i < COLD_BYTES / sizeof *stream; i++)
        stream[i] = i;
    time_clock();
    printf("a node: %zu bytes, and %zu to %zu in the edge table; a token: %zu bytes and 3 bits\n",
           sizeof(struct tree_node), 2 * sizeof(struct edge), 4 * sizeof(struct edge),
           2 * sizeof(uint64_t) + 2 * sizeof(uint32_t));
    for (int i = 0; i < SIZES; i++)
        run(sizes[i], times[i]);
    for (int i = 0; i < SIZES; i++)
        run_in_order(sizes[i], times[i]);
    double cold_read = time_cold_read();
    printf("a read that waits for memory: %.0f ns; reading the clock: %llu ns, taken off\n",
           cold_read, (unsigned long long)clock_ns);
    for (int i = 0; i < SIZES; i++) {
        printf("\n%8u leaves, ns a call:    warm     p99     max |    cold     max |\n", sizes[i]);
        for (int c = 0; c < CALLS; c++) {
            const struct times *t = &times[i][c], *small = &times[0][c];
            printf("%26s %7.0f %7.0f %7.0f |", call_names[c], t->mean, t->p99, t->max);
            printf(t->cold > 0 ? " %7.0f %7.0f |" : "                 |", t->cold, t->cold_max);
            if (i > 0)
                printf(" warm %.1f times the smallest tree's, %+.1f such reads",
                       t->mean / small->mean, (t->mean - small->mean) / cold_read);
            if (i > 0 && t->cold > 0)
                printf("; cold %.1f times", t->cold / small->cold);
            printf("\n");
        }
    }
    double compare = time_compare();
    printf(
        "\nmatch of %d tokens: %.2f ns a token, in the largest tree %.2f; bare comparison: %.2f\n",
        LENGTH, times[0][MATCH].mean / LENGTH, times[SIZES - 1][MATCH].mean / LENGTH,
        compare / LENGTH);
    run_state();
    free(stream);
    return 0;
}
