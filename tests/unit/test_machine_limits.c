/* Limits of the machine: plausible and only ever raised; what the engine says a batch costs, and
 * where it says the time went. */
#include "test.h"

#include "base/clock.h"
#include "base/cpu_topology.h"
#include "batch_rows.h"
#include "engine/cpu/machine_limits.h"
#include "engine/cpu/cpu_engine.h"
#include "engine/mock/mock_engine.h"
#include "test_memory.h"
#include "tiny_model.h"

enum {
    LEAST_BYTES = 256 << 20, /* that the probe reads at a time, and */
    LEAST_ROUNDS = 256,      /* that a thread runs of a loop */
};

/* The probe does a known amount of work, in no more time than the whole call takes. That bounds
 * each rate from below, however busy the machine is. The upper bounds are beyond any core. */
TEST(machine_limits, are_raised_by_every_path_and_never_lowered)
{
    enum { THREADS = 2 };
    const double most_bytes = THREADS * 1e12, most_macs = THREADS * 1e14;
    struct parallel *pool;
    struct machine_probe *probe;
    struct error err;
    CHECK_INT(parallel_open(&pool, THREADS, NULL, &err), 0);
    CHECK_INT(machine_probe_open(&probe, pool, &err), 0);
    for (unsigned i = 0; kernels_at(i); i++) {
        const struct peak_kernels *peak = kernels_at(i)->peak;
        const double n_loops = THREADS * LEAST_ROUNDS;
        struct machine_limits seen = {0};
        uint64_t begin_ns = clock_now_ns();
        machine_probe_run(probe, kernels_at(i), 0, &seen);
        double whole_s = (double)(clock_now_ns() - begin_ns) * 1e-9;
        CHECK(seen.read_bytes_per_s >= LEAST_BYTES / whole_s && seen.read_bytes_per_s < most_bytes);
        CHECK(seen.int8_macs_per_s >= n_loops * (double)peak->int8_macs(1) / whole_s &&
              seen.int8_macs_per_s < most_macs);
        CHECK(seen.float_macs_per_s >= n_loops * (double)peak->float_macs(1) / whole_s &&
              seen.float_macs_per_s < most_macs);
        struct machine_limits best = {1e18, 1e18, 1e18, 0};
        machine_probe_run(probe, kernels_at(i), 1, &best);
        CHECK(best.read_bytes_per_s == 1e18 && best.int8_macs_per_s == 1e18);
        CHECK(best.float_macs_per_s == 1e18);
    }
    machine_probe_close(probe);
    parallel_close(pool);
}

/* Loops that take a known time for a known amount of work, and never less. */
enum { INT8_WORK = 5000, FLOAT_WORK = 70, ROUND_NS = 200 };

static uint64_t spin(uint32_t rounds, uint64_t work)
{
    uint64_t end_ns = clock_now_ns() + (uint64_t)rounds * ROUND_NS;
    while (clock_now_ns() < end_ns)
        continue;
    return rounds * work;
}

static uint64_t spin_int8(uint32_t rounds)
{
    return spin(rounds, INT8_WORK);
}

static uint64_t spin_float(uint32_t rounds)
{
    return spin(rounds, FLOAT_WORK);
}

/* Threads that can run at once. */
static uint32_t n_at_once(void)
{
    struct cpu_topology cpus;
    struct error err;
    CHECK_INT(cpu_topology_open(&cpus, &err), 0);
    uint32_t n = cpu_topology_available(&cpus);
    cpu_topology_close(&cpus);
    return n;
}

/* A rate never exceeds what all threads can do. Measured often enough, it comes close to what the
 * threads that can run at once do. */
TEST(machine_limits, are_what_the_threads_can_do_together)
{
    enum { TRIES = 1000 };
    const struct peak_kernels peak = {spin_int8, spin_float};
    struct kernels kernels = *kernels_at(0);
    kernels.peak = &peak;
    for (uint32_t n_threads = 1; n_threads <= 2; n_threads++) {
        const uint32_t n_useful = n_threads < n_at_once() ? n_threads : n_at_once();
        const double int8_s = INT8_WORK * 1e9 / ROUND_NS, float_s = FLOAT_WORK * 1e9 / ROUND_NS;
        const double nearly = 0.8 * n_useful, all = 1.001 * n_threads; /* rounding */
        struct parallel *pool;
        struct machine_probe *probe;
        struct machine_limits best = {0};
        struct error err;
        CHECK_INT(parallel_open(&pool, n_threads, NULL, &err), 0);
        CHECK_INT(machine_probe_open(&probe, pool, &err), 0);
        for (int i = 0; i < TRIES && (best.int8_macs_per_s < nearly * int8_s ||
                                      best.float_macs_per_s < nearly * float_s);
             i++)
            machine_probe_run(probe, &kernels, 1, &best);
        CHECK(best.int8_macs_per_s >= nearly * int8_s && best.int8_macs_per_s <= all * int8_s);
        CHECK(best.float_macs_per_s >= nearly * float_s && best.float_macs_per_s <= all * float_s);
        machine_probe_close(probe);
        parallel_close(pool);
    }
}

TEST(machine_limits, say_when_memory_runs_out)
{
    struct parallel *pool;
    struct machine_probe *probe;
    struct error err;
    CHECK_INT(parallel_open(&pool, 1, NULL, &err), 0);
    for (int i = 0; i < 2; i++) {
        memory_ends_after((uint32_t)i);
        int failed = machine_probe_open(&probe, pool, &err);
        memory_is_back();
        CHECK_INT(failed, -1);
        CHECK_INT(err.code, ERROR_MEMORY);
    }
    parallel_close(pool);
}

/* The loops do what they count: a fused multiply-add or a dot product for each. */
TEST(machine_limits, peaks_count_their_rounds)
{
    for (unsigned i = 0; kernels_at(i); i++) {
        const struct peak_kernels *peak = kernels_at(i)->peak;
        uint64_t dots = peak->int8_macs(1), floats = peak->float_macs(1);
        CHECK(dots > 0 && floats > 0);
        CHECK_INT(peak->int8_macs(7), 7 * dots);
        CHECK_INT(peak->float_macs(7), 7 * floats);
    }
}

static void engine_of(struct engine **out, const struct model *m)
{
    struct error err;
    struct engine_limits limits = {
        .n_pages = {64}, .max_rows = 16, .max_seqs = 2, .max_length = 64};
    if (cpu_engine_open(out, m, &limits, &(struct cpu_options){.n_threads = 2}, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

/* 2 layers of 64 inputs, 4 heads and 2 kv heads of 16, 96 in the feed-forward, 100 tokens. */
static const struct tiny_options floats = {.n_layers = 2,
                                           .n_embd = 64,
                                           .n_heads = 4,
                                           .n_kv_heads = 2,
                                           .head_dim = 16,
                                           .n_ff = 96,
                                           .n_vocab = 100,
                                           .rope_dim = 16,
                                           .matrix = TENSOR_F32};
enum { LAYER_WEIGHTS = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 96 * 64, HEAD_WEIGHTS = 100 * 64 };

TEST(engine_cost, of_float_weights)
{
    struct tiny_model t;
    struct engine *e;
    tiny_open(&t, &floats);
    engine_of(&e, &t.model);
    struct engine_cost cost = e->info.cost;
    CHECK_INT(cost.layer_macs.int8, 0);
    CHECK_INT(cost.layer_macs.floats, 2 * LAYER_WEIGHTS);
    CHECK_INT(cost.head_macs.floats, HEAD_WEIGHTS);
    CHECK_INT(cost.layer_bytes, 2 * LAYER_WEIGHTS * 4);
    CHECK_INT(cost.head_bytes, 112 * 64 * 4); /* whole panels */
    CHECK_INT(cost.position_macs, 2 * 2 * 4 * 16);
    engine_close(e);
    tiny_close(&t);
}

/* A block of 32 with a min takes three float operations, one without two. */
TEST(engine_cost, of_quantised_weights)
{
    static const struct {
        enum tensor_type type;
        uint32_t floats_of_block;
    } formats[] = {{TENSOR_Q4_1, 3}, {TENSOR_Q8_0, 2}};
    for (int i = 0; i < 2; i++) {
        struct tiny_options options = floats;
        struct tiny_model t;
        struct engine *e;
        options.matrix = formats[i].type;
        tiny_open(&t, &options);
        engine_of(&e, &t.model);
        struct engine_cost cost = e->info.cost;
        CHECK_INT(cost.layer_macs.int8, 2 * LAYER_WEIGHTS);
        CHECK_INT(cost.layer_macs.floats, 2 * LAYER_WEIGHTS / 32 * formats[i].floats_of_block);
        CHECK_INT(cost.head_macs.int8, HEAD_WEIGHTS);
        CHECK_INT(cost.head_macs.floats, HEAD_WEIGHTS / 32 * formats[i].floats_of_block);
        engine_close(e);
        tiny_close(&t);
    }
}

/* The parts of the time add up to the whole, and each of them grows. */
TEST(engine_times, add_up)
{
    struct tiny_model t;
    struct engine *e;
    struct error err;
    static float logits[100];
    struct page_run run = {0, 10};
    struct batch_seq seq = {.pages = {{&run, 1, 0}}, .length = 10};
    struct batch_row rows[10];
    for (uint32_t i = 0; i < 10; i++)
        rows[i] = token_row((int32_t)i, i, i, 0, i == 9 ? WANTS_LOGITS : NULL);
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = 10};
    tiny_open(&t, &floats);
    engine_of(&e, &t.model);
    struct engine_times before = e->times;
    uint64_t begin_ns = clock_now_ns();
    CHECK_INT(forward_rows(e, &batch, rows, logits, &err), 0);
    uint64_t whole_ns = clock_now_ns() - begin_ns;
    uint64_t products_ns = e->times.products_ns - before.products_ns;
    uint64_t attention_ns = e->times.attention_ns - before.attention_ns;
    uint64_t other_ns = e->times.other_ns - before.other_ns;
    CHECK(products_ns > 0 && attention_ns > 0 && other_ns > 0);
    CHECK(products_ns + attention_ns + other_ns <= whole_ns);
    struct machine_limits best = {0};
    CHECK_INT(engine_measure(e, 1, &best, &err), 0);
    CHECK(best.read_bytes_per_s > 0 && best.int8_macs_per_s > 0 && best.float_macs_per_s > 0);
    engine_close(e);
    tiny_close(&t);
}

TEST(engine_times, are_not_known_to_the_mock)
{
    struct engine *e;
    struct error err;
    struct mock_options options = {.n_vocab = 10, .fail_token = -1, .end_token = -1};
    struct engine_limits limits = {.n_pages = {4}, .max_rows = 1, .max_seqs = 1, .max_length = 4};
    struct machine_limits best = {0};
    CHECK_INT(mock_engine_open(&e, &options, &limits, &err), 0);
    CHECK_INT(engine_measure(e, 1, &best, &err), 0);
    CHECK(best.read_bytes_per_s == 0 && e->info.cost.layer_bytes == 0);
    CHECK_INT(e->info.cost.layer_macs.floats, 0);
    engine_close(e);
}
