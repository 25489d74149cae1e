/* The sampler against a naive one that sorts everything in double precision. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "naive_sampler.h"
#include "sched/sampler.h"
#include "sched/sampler_parts.h"
#include "sched/sampler_scan.h"
#include "test_memory.h"

static struct sampler *open_sampler(uint32_t n_vocab)
{
    struct sampler *s;
    struct error err;
    CHECK(sampler_open(&s, n_vocab, 4096, &err) == 0);
    return s;
}

static int32_t pick(struct sampler *s, const float *logits, const struct sampling *o,
                    const int32_t *generated, uint32_t n_generated)
{
    return sampler_pick(
        s, logits,
        &(struct sampler_input){.sampling = o, .generated = generated, .n_generated = n_generated});
}

static float random_float(uint64_t *state, float low, float high)
{
    *state = hash_mix(*state);
    return low + (high - low) * (float)(*state >> 40) / (float)(1 << 24);
}

TEST(sampler, opens_whole_or_not_at_all)
{
    struct sampler *s;
    struct error err;
    uint32_t n = 0;
    for (;; n++) {
        memory_ends_after(n);
        int rc = sampler_open(&s, 300, 100, &err);
        memory_is_back();
        if (rc == 0)
            break;
        CHECK_INT(err.code, ERROR_MEMORY);
    }
    CHECK(n > 10); /* it makes more than ten allocations */
    sampler_close(s);
}

TEST(sampler, greedy_takes_the_largest_and_the_smaller_id)
{
    float logits[37];
    for (int i = 0; i < 37; i++)
        logits[i] = -1.0f;
    struct sampler *s = open_sampler(37);
    struct sampling greedy = SAMPLING_DEFAULT;
    greedy.temperature = 0;
    for (int at = 36; at >= 0; at--) {
        logits[at] = 2.5f; /* now the smallest of several that are equal */
        CHECK_INT(pick(s, logits, &greedy, NULL, 0), at);
    }
    logits[0] = NAN;
    CHECK_INT(pick(s, logits, &greedy, NULL, 0), 1);
    logits[20] = INFINITY;
    CHECK_INT(pick(s, logits, &greedy, NULL, 0), 20);
    greedy.temperature = 1;
    CHECK_INT(pick(s, logits, &greedy, NULL, 0), 20);
    sampler_close(s);
}

TEST(sampler, never_takes_what_is_masked)
{
    float logits[50];
    struct sampler *s = open_sampler(50);
    for (uint32_t round = 0; round < 400; round++) {
        uint64_t state = round;
        struct sampling o = SAMPLING_DEFAULT;
        o.temperature = round % 4 ? 1.5f : 0;
        o.top_k = round % 3 ? 0 : 10;
        o.top_p = round % 5 ? 1.0f : 0.9f;
        o.presence_penalty = round % 7 ? 0 : 0.5f;
        o.repetition_penalty = round % 11 ? 1 : 1.3f;
        o.seed = round;
        int32_t generated[3] = {1, 2, 3};
        bool any = false;
        for (int i = 0; i < 50; i++) {
            bool open = (state = hash_mix(state)) % 8 == 0;
            any |= open;
            logits[i] = open ? random_float(&state, -3, 3) : i % 2 ? -INFINITY : NAN;
        }
        int32_t id = pick(s, logits, &o, generated, 3);
        CHECK(any ? id >= 0 && id < 50 && isfinite(logits[id]) : id == -1);
    }
    for (int i = 0; i < 50; i++)
        logits[i] = i % 2 ? NAN : -INFINITY;
    struct sampling o = SAMPLING_DEFAULT;
    CHECK_INT(pick(s, logits, &o, NULL, 0), -1);
    o.temperature = 0;
    CHECK_INT(pick(s, logits, &o, NULL, 0), -1);
    sampler_close(s);
}

/* Where the draws fall, against the naive probabilities. With one option at a time, and all. */
static void check_input(const struct sampler_input *input, const float *logits, uint32_t n)
{
    enum { DRAWS = 4000 };
    struct sampler *s = open_sampler(n);
    struct naive *sorted = malloc(n * sizeof *sorted);
    uint32_t *drawn = calloc(n, sizeof *drawn);
    uint32_t kept = naive_distribution(logits, n, input, sorted);
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct sampling o = *input->sampling;
        struct sampler_input in = *input;
        in.sampling = &o;
        o.seed = 1000 + i;
        int32_t id = sampler_pick(s, logits, &in);
        CHECK(id >= 0 && (uint32_t)id < n);
        drawn[id]++;
    }
    uint32_t outside = DRAWS;
    double chi_square = 0, rest_p = 0, rest_drawn = 0;
    uint32_t freedom = 0;
    for (uint32_t i = 0; i < kept; i++) {
        outside -= drawn[sorted[i].id];
        double want = sorted[i].p * DRAWS, got = drawn[sorted[i].id];
        if (want < 8) {
            rest_p += sorted[i].p;
            rest_drawn += got;
            continue;
        }
        chi_square += (got - want) * (got - want) / want;
        freedom++;
    }
    if (rest_p * DRAWS >= 8) {
        double want = rest_p * DRAWS;
        chi_square += (rest_drawn - want) * (rest_drawn - want) / want;
        freedom++;
    }
    free(sorted);
    free(drawn);
    sampler_close(s);
    CHECK_INT(outside, 0); /* nothing beyond the cuts is ever drawn */
    /* Five standard deviations of chi-square: the seeds are fixed, so this never flickers. */
    CHECK(chi_square <= freedom + 5 * sqrt(2.0 * (freedom + 1)));
}

static void check_distribution(const struct sampling *o, const float *logits, uint32_t n,
                               const int32_t *generated, uint32_t n_generated)
{
    check_input(
        &(struct sampler_input){.sampling = o, .generated = generated, .n_generated = n_generated},
        logits, n);
}

TEST(sampler, draws_follow_the_naive_distribution)
{
    enum { N = 300 };
    float logits[N];
    uint64_t state = 7;
    for (int i = 0; i < N; i++)
        logits[i] = random_float(&state, -6, 3);
    int32_t generated[] = {3, 3, 3, 17, 40, 3, 120};
    struct sampling base = SAMPLING_DEFAULT, o;
    check_distribution(&base, logits, N, generated, 0);
    o = base, o.temperature = 0.6f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.temperature = 3.0f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.top_k = 12;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.top_p = 0.7f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.min_p = 0.2f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.presence_penalty = 1.5f, o.frequency_penalty = 0.5f;
    check_distribution(&o, logits, N, generated, 7);
    o = base, o.repetition_penalty = 1.8f;
    check_distribution(&o, logits, N, generated, 7);
    o = base, o.temperature = 1.4f, o.top_k = 50, o.top_p = 0.8f, o.min_p = 0.1f,
    o.presence_penalty = 0.5f, o.frequency_penalty = -0.3f, o.repetition_penalty = 1.1f;
    check_distribution(&o, logits, N, generated, 7);
    o = base, o.frequency_penalty = 0.9f, o.repeat_last_n = 3; /* two of the threes are forgotten */
    check_distribution(&o, logits, N, generated, 7);
    o = base, o.typical_p = 0.5f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.typical_p = 0.2f, o.temperature = 2.0f; /* without the most likely */
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.top_n_sigma = 0.6f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.xtc_probability = 1, o.xtc_threshold = 0.012f;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.xtc_probability = 1, o.xtc_threshold = 0.3f; /* nobody has so much */
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.xtc_probability = 1, o.xtc_threshold = 0.1f, o.top_k = 7;
    check_distribution(&o, logits, N, generated, 0);
    o = base, o.top_k = 40, o.typical_p = 0.8f, o.top_p = 0.9f, o.min_p = 0.3f,
    o.xtc_probability = 1, o.xtc_threshold = 0.05f, o.top_n_sigma = 1, o.temperature = 0.9f;
    check_distribution(&o, logits, N, generated, 0);
}

TEST(sampler, biases_bans_and_masks_shape_the_distribution)
{
    enum { N = 300, N_TOKENS = 290 };
    float logits[N];
    uint64_t state = 11, mask[(N_TOKENS + 63) / 64];
    for (int i = 0; i < N; i++)
        logits[i] = random_float(&state, -2, 3);
    logits[295] = 30; /* past the known tokens: only a mask covers them */
    for (uint32_t i = 0; i < sizeof mask / sizeof *mask; i++)
        mask[i] = state = hash_mix(state);
    struct logit_bias biases[] = {{5, 4.0f},     {17, 100.0f}, {17, -98.0f}, {40, -100.0f},
                                  {41, -99.9f},  {-3, 50},     {N, 50},      {INT32_MAX, 50},
                                  {42, -101.0f}, {42, 100.0f}, {295, -31.0f}};
    int32_t banned[] = {5, 60, 61}, generated[] = {5, 17, 17, 80};
    struct sampling o = SAMPLING_DEFAULT;
    struct sampler_input in = {.sampling = &o, .biases = biases, .n_biases = 11};
    check_input(&in, logits, N);
    in.banned = banned, in.n_banned = 3;
    check_input(&in, logits, N);
    in.mask = mask, in.n_tokens = N_TOKENS;
    check_input(&in, logits, N);
    in.generated = generated, in.n_generated = 4, o.frequency_penalty = 0.7f;
    check_input(&in, logits, N);
    in.n_biases = in.n_banned = 0, o.frequency_penalty = 0;
    check_input(&in, logits, N);
    o.top_p = 0.5f, o.top_n_sigma = 1.5f;
    check_input(&in, logits, N);
}

/* Only tokens of the mask, however few; and the reason, if there are none. */
TEST(sampler, a_mask_is_obeyed_down_to_its_last_token)
{
    enum { N = 1000, WORDS = 16 };
    static float logits[N];
    struct sampler *s = open_sampler(N);
    for (uint32_t round = 0; round < 600; round++) {
        uint64_t state = round + 1, mask[WORDS] = {0};
        uint32_t n_tokens = round % 3 ? N : 1 + (uint32_t)((state = hash_mix(state)) % N);
        uint32_t n_set = round % 4, n_open = 0;
        for (uint32_t i = 0; i < N; i++)
            logits[i] = random_float(&state, -30, 30);
        for (uint32_t i = 0; i < n_set; i++) {
            uint32_t id = (uint32_t)((state = hash_mix(state)) % N);
            mask[id / 64] |= UINT64_C(1) << id % 64;
        }
        if (round % 5 == 0)
            for (uint32_t i = n_tokens; i < WORDS * 64; i++)
                mask[i / 64] |= UINT64_C(1) << i % 64; /* bits that must not be read */
        for (uint32_t i = 0; i < n_tokens; i++)
            n_open += mask[i / 64] >> i % 64 & 1;
        struct sampling o = SAMPLING_DEFAULT;
        o.temperature = round % 2 ? 1 : 0;
        o.seed = round;
        o.top_k = round % 7 ? 0 : 5;
        o.typical_p = round % 11 ? 1 : 0.5f;
        o.xtc_probability = round % 13 ? 0 : 1;
        struct sampler_input in = {.sampling = &o, .mask = mask, .n_tokens = n_tokens};
        int32_t id = sampler_pick(s, logits, &in);
        CHECK(n_open ? id >= 0 && (uint32_t)id < n_tokens && mask[id / 64] >> id % 64 & 1
                     : id == SAMPLER_NO_TOKEN);
        /* A ban, or a bias, may take the last one. */
        struct logit_bias bias = {id, -100};
        in.banned = &id, in.n_banned = id >= 0 && round % 2;
        in.biases = &bias, in.n_biases = id >= 0 && round % 2 == 0;
        int32_t other = sampler_pick(s, logits, &in);
        CHECK(n_open > 1 ? other >= 0 && other != id : other == SAMPLER_NO_TOKEN);
        in.n_banned = in.n_biases = 0;
        for (uint32_t i = 0; i < N; i++) /* numbers only where the mask has nothing */
            if (i < n_tokens && mask[i / 64] >> i % 64 & 1)
                logits[i] = i % 2 ? NAN : -INFINITY;
        CHECK_INT(sampler_pick(s, logits, &in), n_open ? SAMPLER_NO_NUMBER : SAMPLER_NO_TOKEN);
    }
    sampler_close(s);
}

/* Half of the time the likely tokens are removed, independently of the draw. */
TEST(sampler, xtc_comes_as_often_as_it_says)
{
    enum { N = 4, DRAWS = 8000 };
    float logits[N] = {logf(0.4f), logf(0.3f), logf(0.2f), logf(0.1f)};
    uint32_t drawn[N] = {0};
    struct sampler *s = open_sampler(N);
    struct sampling o = SAMPLING_DEFAULT;
    o.xtc_probability = 0.5f, o.xtc_threshold = 0.25f;
    for (o.seed = 0; o.seed < DRAWS; o.seed++)
        drawn[pick(s, logits, &o, NULL, 0)]++;
    const double want[N] = {0.2, 0.15 + 0.25, 0.1 + 0.1 / 0.6, 0.05 + 0.05 / 0.6};
    for (int i = 0; i < N; i++)
        CHECK(fabs(drawn[i] / (double)DRAWS - want[i]) < 0.02);
    int32_t generated[8] = {0};
    for (o.seed = 0; o.seed < 50; o.seed++) /* and it is the same again */
        for (uint32_t i = 0; i < 8; i++)
            CHECK_INT(pick(s, logits, &o, generated, i), pick(s, logits, &o, generated, i));
    o.xtc_threshold = 0.51f; /* off */
    memset(drawn, 0, sizeof drawn);
    for (o.seed = 0; o.seed < DRAWS; o.seed++)
        drawn[pick(s, logits, &o, NULL, 0)]++;
    CHECK(fabs(drawn[0] / (double)DRAWS - 0.4) < 0.02);
    o.temperature = 0, o.xtc_threshold = 0.1f, o.xtc_probability = 1; /* greedy asks no cut */
    CHECK_INT(pick(s, logits, &o, NULL, 0), 0);
    sampler_close(s);
}

/* A setting that a caller left at zero is off. */
TEST(sampler, what_is_zero_is_off)
{
    enum { N = 300 };
    float logits[N];
    uint64_t state = 3;
    for (int i = 0; i < N; i++)
        logits[i] = random_float(&state, -2, 3);
    struct sampler *s = open_sampler(N);
    struct sampling o = SAMPLING_DEFAULT, zero = {.temperature = 1, .top_p = 1};
    zero.repetition_penalty = 1;
    for (o.seed = 0; o.seed < 200; o.seed++) {
        zero.seed = o.seed;
        CHECK_INT(pick(s, logits, &o, NULL, 0), pick(s, logits, &zero, NULL, 0));
    }
    sampler_close(s);
}

/* A bit for each token that is drawn with one of many seeds. */
static unsigned drawn(struct sampler *s, const float *logits, struct sampling o,
                      const struct sampler_input *more)
{
    unsigned set = 0;
    for (o.seed = 0; o.seed < 400; o.seed++) {
        struct sampler_input in = *more;
        in.sampling = &o;
        set |= 1u << sampler_pick(s, logits, &in);
    }
    return set;
}

TEST(sampler, the_temperature_may_come_behind_the_cuts)
{
    static const float logits[] = {2, 1, 0, -1, -9};
    struct sampler *s = open_sampler(5);
    struct sampling o = SAMPLING_DEFAULT;
    o.temperature = 10;
    o.top_p = 0.7f;
    CHECK_INT(drawn(s, logits, o, &(struct sampler_input){0}), 0x7);
    o.temperature_last = true;
    CHECK_INT(drawn(s, logits, o, &(struct sampler_input){0}), 0x3);
    o.top_p = 1; /* XTC removes the best: the rest still has weights at a low temperature */
    o.temperature = 0.01f;
    o.xtc_probability = 1;
    o.xtc_threshold = 0.2f;
    CHECK_INT(drawn(s, logits, o, &(struct sampler_input){0}), 0x2);
    sampler_close(s);
}

TEST(sampler, infill_ends_where_it_is_not_clear_how_to_go_on)
{
    static const char *const bytes[] = {"a", "ab", "x", "y", "z", "w", "v", ""};
    static const uint32_t lengths[] = {1, 2, 1, 1, 1, 1, 1, 0};
    static const bool is_end[] = {false, false, false, false, false, false, false, true};
    struct sampler_input in = {
        .n_tokens = 8, .bytes = bytes, .lengths = lengths, .is_end = is_end, .end = 7};
    static const struct {
        float logits[8];
        unsigned set;
    } cases[] = {
        {{3, -20, -20, -20, -20, -20, -20, -20}, 0x01}, /* sure */
        {{0, 0, 0, 0, 0, 0, 0, -20}, 0x01},             /* "a" and "ab" together are */
        {{-20, 0, 0, 0, 0, 0, 0, -20}, 0x80},           /* nobody has a fifth: it ends */
        {{3, 0, 0, 0, 0, 0, 0, 1}, 0x80},               /* an end is likely enough */
        {{2, -20, 2, -20, -20, -20, -20, -20}, 0x05},   /* two that are as sure */
        {{3, -20, 2, -20, -20, -20, -20, -20}, 0x01},   /* ... and where one is less */
    };
    struct sampler *s = open_sampler(8);
    struct sampling o = SAMPLING_DEFAULT;
    o.infill = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_INT(drawn(s, cases[i].logits, o, &in), cases[i].set);
    in.end = -1; /* not done where an answer must not end */
    CHECK_INT(drawn(s, cases[2].logits, o, &in), 0x7e);
    sampler_close(s);
}

/* However many tokens there are, few are compared with each other. */
TEST(sampler, infill_looks_at_the_likeliest_only)
{
    enum { N = 20000 };
    static float logits[N];
    static const char *bytes[N];
    static uint32_t lengths[N];
    static bool is_end[N];
    for (int i = 0; i < N; i++) {
        bytes[i] = "x";
        lengths[i] = 1;
    }
    struct sampler *s = open_sampler(N);
    struct sampling o = SAMPLING_DEFAULT;
    o.infill = true;
    struct sampler_input in = {
        .sampling = &o, .n_tokens = N, .bytes = bytes, .lengths = lengths, .is_end = is_end};
    CHECK(sampler_pick(s, logits, &in) < SAMPLER_INFILL_MOST);
    sampler_close(s);
}

TEST(sampler, cuts_keep_exactly_what_they_say)
{
    enum { N = 2000 };
    float logits[N];
    struct sampler *s = open_sampler(N);
    struct naive sorted[N];
    for (uint64_t round = 1; round <= 300; round++) {
        uint64_t state = round;
        float spread = round % 3 == 0 ? 0.001f : round % 3 == 1 ? 4.0f : 40.0f;
        for (int i = 0; i < N; i++) {
            logits[i] = random_float(&state, -spread, spread);
            if (round % 4 == 0)
                logits[i] = roundf(logits[i]); /* many ties */
        }
        struct sampling o = SAMPLING_DEFAULT;
        o.temperature = random_float(&state, 0.2f, 5.0f);
        o.top_k = round % 2 ? (int32_t)((state = hash_mix(state)) % N) : 0;
        o.top_p = round % 5 < 2 ? random_float(&state, 0.01f, 0.99f) : 1.0f;
        if (round % 7 == 0)
            o.typical_p = random_float(&state, 0.01f, 0.99f);
        if (round % 11 == 0)
            o.top_n_sigma = random_float(&state, 0.1f, 3.0f);
        if (round % 4 == 1)
            o.min_p = random_float(&state, 0.01f, 0.99f);
        struct sampler_input in = {.sampling = &o};
        uint32_t kept = naive_distribution(logits, N, &in, sorted);
        for (uint32_t draw = 0; draw < 20; draw++) {
            o.seed = draw;
            int32_t id = pick(s, logits, &o, NULL, 0);
            uint32_t rank = 0;
            while (rank < N && sorted[rank].id != id)
                rank++;
            /* Rounding may move a share's cut by one. */
            CHECK(rank < kept + (o.top_p < 1 || o.min_p > 0));
        }
    }
    sampler_close(s);
}

/* Large enough that a small top_k reads only the best blocks. Nearly flat logits, so that each of
 * the best k is drawn now and then; the best may all be in one block, or spread out. */
TEST(sampler, a_small_top_k_of_a_large_vocabulary_is_exact)
{
    enum { N = 12000, DRAWS = 250 };
    static float logits[N];
    static struct naive sorted[N];
    struct sampler *s = open_sampler(N);
    for (uint32_t round = 0; round < 30; round++) {
        uint64_t state = round + 99;
        for (uint32_t i = 0; i < N; i++) {
            logits[i] = random_float(&state, -0.5f, 0.5f);
            if (round % 3 == 0)
                logits[i] = roundf(logits[i] * 8) / 8; /* ties over the cut */
            if (round % 3 == 1)
                logits[i] -= (float)(i / 1000); /* the best stand together */
            if (round % 5 == 0 && i % 512 < 256)
                logits[i] = i % 2 ? NAN : -INFINITY; /* whole blocks are masked */
        }
        struct sampling o = SAMPLING_DEFAULT;
        o.top_k = 2 + (int32_t)(round % 22);
        uint32_t n = 0, n_seen = 0;
        for (uint32_t i = 0; i < N; i++)
            if (isfinite(logits[i]))
                sorted[n++] = (struct naive){(int32_t)i, logits[i], 0};
        qsort(sorted, n, sizeof *sorted, naive_order);
        bool seen[32] = {false};
        for (o.seed = 0; o.seed < DRAWS; o.seed++) {
            int32_t id = pick(s, logits, &o, NULL, 0), rank = 0;
            while (rank < o.top_k && sorted[rank].id != id)
                rank++;
            CHECK(rank < o.top_k);
            n_seen += !seen[rank];
            seen[rank] = true;
        }
        CHECK_INT(n_seen, o.top_k);
    }
    sampler_close(s);
}

TEST(sampler, equal_logits_are_cut_by_id)
{
    enum { N = 1000 };
    float logits[N] = {0};
    struct sampler *s = open_sampler(N);
    struct sampling o = SAMPLING_DEFAULT;
    bool seen[N] = {false};
    o.top_k = 10;
    for (o.seed = 0; o.seed < 300; o.seed++)
        seen[pick(s, logits, &o, NULL, 0)] = true;
    for (int i = 0; i < N; i++)
        CHECK_INT(seen[i], i < 10);
    memset(seen, 0, sizeof seen);
    o.top_k = 0, o.top_p = 0.0199f;
    for (o.seed = 0; o.seed < 600; o.seed++)
        seen[pick(s, logits, &o, NULL, 0)] = true;
    for (int i = 0; i < N; i++)
        CHECK_INT(seen[i], i < 20);
    o.top_p = 0; /* never empty */
    CHECK_INT(pick(s, logits, &o, NULL, 0), 0);
    o.top_p = 0.9999999f;
    CHECK(pick(s, logits, &o, NULL, 0) >= 0);
    sampler_close(s);
}

TEST(sampler, the_same_seed_choice_and_index_draw_the_same)
{
    enum { N = 500 };
    float logits[N] = {0};
    int32_t generated[64] = {0};
    struct sampler *s = open_sampler(N);
    struct sampling o = SAMPLING_DEFAULT;
    o.seed = 42;
    int same_choice = 0, same_index = 0, same_seed = 0;
    for (uint32_t i = 0; i < 64; i++) {
        int32_t first = pick(s, logits, &o, generated, i);
        CHECK_INT(pick(s, logits, &o, generated, i), first);
        struct sampling other = o;
        other.choice = 1;
        same_choice += pick(s, logits, &other, generated, i) == first;
        same_index += pick(s, logits, &o, generated, i + 1) == first;
        other = o, other.seed = 43;
        same_seed += pick(s, logits, &other, generated, i) == first;
    }
    CHECK(same_choice < 6 && same_index < 6 && same_seed < 6);
    sampler_close(s);
}

TEST(sampler, tiny_temperatures_are_greedy)
{
    float logits[] = {1.0f, 1.0001f, 0.5f, -3e38f, 3e37f, -2.0f};
    struct sampler *s = open_sampler(6);
    struct sampling o = SAMPLING_DEFAULT;
    for (o.temperature = 1e-3f; o.temperature > 0; o.temperature *= 1e-6f)
        for (o.seed = 0; o.seed < 10; o.seed++)
            CHECK_INT(pick(s, logits, &o, NULL, 0), 4);
    sampler_close(s);
}

enum { SCAN_N = 5 * SCAN_BLOCK, SCAN_BLOCKS = 5 };

/* The copy has every bit of the allowed logits, NaN too, and nothing is written past its last
 * block. */
static void check_mask_scans(const float *logits, uint32_t n, uint64_t state)
{
    static float out[SCAN_N + 1];
    uint64_t mask[SCAN_N / 64];
    uint32_t n_masked = n - (uint32_t)(state % 3 ? 0 : (state = hash_mix(state)) % n);
    for (uint32_t i = 0; i < SCAN_N / 64; i++)
        mask[i] = (state = hash_mix(state)) % 4 ? state : state % 8 ? 0 : UINT64_MAX;
    for (uint32_t k = 0; sampler_scan_at(k); k++) {
        float best[SCAN_BLOCKS];
        const float none = -INFINITY;
        uint32_t end = (n + SCAN_BLOCK - 1) / SCAN_BLOCK * SCAN_BLOCK;
        out[end] = 12345;
        sampler_scan_at(k)->mask(logits, n, mask, n_masked, out, best);
        CHECK(out[end] == 12345);
        for (uint32_t b = 0; b * SCAN_BLOCK < n; b++) {
            float want = -INFINITY;
            for (uint32_t i = b * SCAN_BLOCK; i < n && i < (b + 1) * SCAN_BLOCK; i++) {
                bool is_open = i < n_masked && mask[i / 64] >> i % 64 & 1;
                CHECK(memcmp(&out[i], is_open ? &logits[i] : &none, sizeof none) == 0);
                want = out[i] > want ? out[i] : want;
            }
            CHECK(best[b] == want);
        }
    }
}

static void check_spread_scans(const float *logits, uint32_t n)
{
    struct scan_spread plain[SCAN_BLOCKS], other[SCAN_BLOCKS];
    sampler_scan_at(0)->spread(logits, n, 20, plain);
    uint32_t n_blocks = (n + SCAN_BLOCK - 1) / SCAN_BLOCK;
    for (uint32_t k = 1; sampler_scan_at(k); k++) {
        sampler_scan_at(k)->spread(logits, n, 20, other);
        CHECK(memcmp(other, plain, n_blocks * sizeof *plain) == 0);
    }
    for (uint32_t b = 0; b < n_blocks; b++) {
        double count = 0, sum = 0, squares = 0;
        for (uint32_t i = b * SCAN_BLOCK; i < n && i < (b + 1) * SCAN_BLOCK; i++) {
            double below = isfinite(logits[i]) ? logits[i] - 20.0 : 0;
            count += isfinite(logits[i]);
            sum += below;
            squares += below * below;
        }
        CHECK(plain[b].count == count);
        CHECK(fabs(plain[b].sum - sum) <= 1e-5 * fabs(sum));
        CHECK(fabs(plain[b].squares - squares) <= 1e-5 * squares);
    }
}

/* Every scan gives the same bits as the plain one, which equals a sum in double precision except
 * for rounding; wherever the last block ends, and whatever is masked. */
TEST(sampler, scans_are_the_same_on_every_instruction_set)
{
    enum { N = 5 * SCAN_BLOCK, BLOCKS = 5 };
    static float logits[N];
    for (uint32_t round = 0; round < 200; round++) {
        uint64_t state = round;
        uint32_t n = round < 20 ? N - round : 1 + (uint32_t)((state = hash_mix(state)) % N);
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = random_float(&state, -60, 20);
            if (round % 2 && (state = hash_mix(state)) % 3 == 0)
                logits[i] = state % 2 ? NAN : -INFINITY;
            if (round % 7 == 3 && i / SCAN_BLOCK == 1)
                logits[i] = i % 2 ? NAN : -INFINITY; /* a whole block */
        }
        float plain_best[BLOCKS], plain_weight[BLOCKS];
        sampler_scan_at(0)->best(logits, n, plain_best);
        sampler_scan_at(0)->sum(logits, n, 20, 0.7f, plain_weight);
        static float plain_weights[N], weights[N];
        sampler_scan_at(0)->weigh(logits, n, 20, 0.7f, plain_weights);
        for (uint32_t b = 0; b * SCAN_BLOCK < n; b++) {
            float best = -INFINITY;
            double weight = 0;
            for (uint32_t i = b * SCAN_BLOCK; i < n && i < (b + 1) * SCAN_BLOCK; i++) {
                best = logits[i] > best ? logits[i] : best;
                weight += isnan(logits[i]) ? 0 : exp((logits[i] - 20.0) * (double)0.7f);
            }
            CHECK(plain_best[b] == best);
            CHECK(fabs(plain_weight[b] - weight) <= 1e-6 * weight + 1e-30);
        }
        for (uint32_t k = 1; sampler_scan_at(k); k++) {
            float other[BLOCKS];
            size_t bytes = (n + SCAN_BLOCK - 1) / SCAN_BLOCK * sizeof *other;
            sampler_scan_at(k)->best(logits, n, other);
            CHECK(memcmp(other, plain_best, bytes) == 0);
            sampler_scan_at(k)->sum(logits, n, 20, 0.7f, other);
            CHECK(memcmp(other, plain_weight, bytes) == 0);
            sampler_scan_at(k)->weigh(logits, n, 20, 0.7f, weights);
            CHECK(memcmp(weights, plain_weights, n * sizeof *weights) == 0);
        }
        check_mask_scans(logits, n, state);
        check_spread_scans(logits, n);
    }
}

/* Cuts that are reached far below the best, near it, and never: everything needed is gathered. */
TEST(sampler, cuts_reach_as_far_down_as_they_must)
{
    enum { N = 3000, DRAWS = 400 };
    static float logits[N];
    struct sampler *s = open_sampler(N);
    for (int i = 0; i < N; i++)
        logits[i] = i == 1500 ? 0.0f : i == 7 ? -3.0f : i == 2900 ? -30.0f : -70.0f;
    struct sampling o = SAMPLING_DEFAULT;
    o.top_k = 3;
    bool third = false;
    o.temperature = 40; /* nearly flat: all of the three come */
    for (o.seed = 0; o.seed < DRAWS; o.seed++) {
        int32_t id = pick(s, logits, &o, NULL, 0);
        CHECK(id == 1500 || id == 7 || id == 2900);
        third |= id == 2900;
    }
    CHECK(third);
    o.temperature = 1;
    o.top_k = 0;
    o.top_p = 0.999f; /* the second is needed, the third is not */
    bool second = false;
    for (o.seed = 0; o.seed < DRAWS; o.seed++) {
        int32_t id = pick(s, logits, &o, NULL, 0);
        CHECK(id == 1500 || id == 7);
        second |= id == 7;
    }
    CHECK(second);
    o.top_p = 1;
    o.min_p = 0.06f; /* e^-3 is 0.0498 */
    for (o.seed = 0; o.seed < DRAWS; o.seed++)
        CHECK_INT(pick(s, logits, &o, NULL, 0), 1500);
    o.min_p = 0.049f;
    second = false;
    for (o.seed = 0; o.seed < DRAWS; o.seed++)
        second |= pick(s, logits, &o, NULL, 0) == 7;
    CHECK(second);
    sampler_close(s);
}
