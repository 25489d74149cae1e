/* Traces through the real tree and scheduler: they find exactly what they can. */
#include "cli/replay.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/strbuf.h"
#include "test.h"

/* Conversations that take turns: each request is a beginning of an earlier one, all of it at times,
 * and new blocks. */
static void conversations_make(struct trace *t, uint64_t seed)
{
    enum { MAX_BLOCKS = 24, N_TALKS = 5, BLOCK = 8 };
    struct strbuf text = STRBUF_INIT;
    struct error err;
    uint64_t n = 0, next_id = 0, ids[N_TALKS][MAX_BLOCKS];
    uint32_t lengths[N_TALKS] = {0};
    strbuf_addf(&text, "{\"block_size\": %d, \"requests\": [", BLOCK);
    for (int r = 0; r < 60; r++) {
        uint32_t talk = hash_pair(seed, n++) % N_TALKS, other = hash_pair(seed, n++) % N_TALKS;
        if (lengths[other] && hash_pair(seed, n++) % 8 == 0) { /* forks off another's */
            lengths[talk] = 1 + hash_pair(seed, n++) % lengths[other];
            memmove(ids[talk], ids[other], lengths[talk] * sizeof ids[talk][0]);
        }
        for (uint32_t k = hash_pair(seed, n++) % 4; k > 0 && lengths[talk] < MAX_BLOCKS; k--)
            ids[talk][lengths[talk]++] = next_id++;
        if (lengths[talk] == 0)
            ids[talk][lengths[talk]++] = next_id++;
        uint32_t cut = hash_pair(seed, n++) % 3, n_output = hash_pair(seed, n++) % 20;
        strbuf_addf(&text, "%s{\"in\": %u, \"out\": %u, \"hash_ids\": [", r ? "," : "",
                    lengths[talk] * BLOCK - cut, n_output);
        for (uint32_t i = 0; i < lengths[talk]; i++)
            strbuf_addf(&text, "%s%u", i ? "," : "", (unsigned)ids[talk][i]);
        strbuf_adds(&text, "]}");
    }
    strbuf_adds(&text, "]}");
    if (trace_parse(t, text.data, text.len, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    strbuf_free(&text);
}

static void replay(const struct trace *t, struct replay_options options,
                   struct replay_result *result)
{
    struct trace_ideal ideal;
    struct error err;
    CHECK(trace_ideal(t, &ideal, &err) == 0);
    if (options.n_pages == 0)
        CHECK(replay_pages(t, &ideal, &options, &options.n_pages, &err) == 0);
    if (replay_run(t, &options, result, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

TEST(replay, an_unlimited_cache_finds_the_ideal)
{
    static const uint32_t clients[] = {1, 2, 16};
    struct replay_result *result = malloc(sizeof *result);
    CHECK(result);
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct trace t;
        struct trace_ideal ideal;
        struct error err;
        conversations_make(&t, seed);
        CHECK(trace_ideal(&t, &ideal, &err) == 0);
        for (int i = 0; i < 3; i++) {
            replay(&t, (struct replay_options){.n_clients = clients[i], .max_output = 7}, result);
            CHECK_INT(result->asked, ideal.asked);
            CHECK_INT(result->asked, result->hit + result->computed);
            CHECK_INT(result->stats.tree.evicted_pages, 0);
            CHECK_INT(result->stats.preempted, 0);
            CHECK_INT(result->n_refused, 0);
            CHECK_INT(result->hit, ideal.hit);
        }
        trace_free(&t);
    }
    free(result);
}

TEST(replay, a_small_cache_evicts_and_refuses)
{
    struct replay_result *result = malloc(sizeof *result);
    CHECK(result);
    uint64_t n_refused = 0, n_evicted = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct trace t;
        struct trace_ideal ideal;
        struct error err;
        conversations_make(&t, seed);
        CHECK(trace_ideal(&t, &ideal, &err) == 0);
        uint32_t n_pages = 100 + 40 * (uint32_t)(seed % 4);
        uint64_t n_longer = 0;
        for (size_t i = 0; i < t.n_requests; i++)
            n_longer += t.requests[i].n_input >= n_pages;
        replay(&t,
               (struct replay_options){
                   .n_pages = n_pages, .n_clients = 1 + seed % 5, .max_output = 100},
               result);
        CHECK_INT(result->n_pages, n_pages);
        CHECK_INT(result->n_refused, n_longer);
        CHECK_INT(result->asked, ideal.asked);
        CHECK(result->hit <= ideal.hit);
        CHECK_INT(result->stats.stopped + result->stats.ran_out + result->n_refused, t.n_requests);
        CHECK(result->times.kinds[OP_EVICT].count > 0 && result->times.kinds[OP_MATCH].count > 0);
        n_refused += result->n_refused;
        n_evicted += result->stats.tree.evicted_pages;
        trace_free(&t);
    }
    CHECK(n_refused > 0 && n_evicted > 0);
    free(result);
}

TEST(replay, answers_are_as_long_as_they_were)
{
    struct replay_result *result = malloc(sizeof *result);
    struct trace t;
    uint64_t all = 0, capped = 0;
    CHECK(result);
    conversations_make(&t, 1);
    for (size_t i = 0; i < t.n_requests; i++) {
        uint32_t n = t.requests[i].n_output;
        all += n;
        capped += n < 5 ? n : 5;
    }
    replay(&t, (struct replay_options){.n_clients = 4, .max_output = 1000}, result);
    CHECK_INT(result->generated, all);
    replay(&t, (struct replay_options){.n_clients = 4, .max_output = 5}, result);
    CHECK_INT(result->generated, capped);
    replay(&t, (struct replay_options){.n_clients = 4, .max_output = 0}, result);
    CHECK_INT(result->generated, 0);
    trace_free(&t);
    free(result);
}
