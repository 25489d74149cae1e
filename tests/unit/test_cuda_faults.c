/* The CUDA engine on the fake driver: everything is closed again, whatever fails and whenever. What
 * it computes is tested on a device. */
#include <limits.h>
#include <pthread.h>

#include "base/log.h"
#include "batch_rows.h"
#include "engine/cuda/cuda_engine.h"
#include "../cuda/shaped_model.h"
#include "fake_driver.h"
#include "test_memory.h"
#include "tiny_model.h"

enum { N_PAGES = 64, MAX_ROWS = 20, N_VOCAB = 96 };

static const struct engine_limits limits = {
    .n_pages = {N_PAGES}, .max_rows = MAX_ROWS, .max_seqs = 2, .max_length = N_PAGES};

static void open_model(struct tiny_model *t)
{
    const struct tiny_options options = {.n_layers = 2,
                                         .n_embd = 64,
                                         .n_heads = 4,
                                         .n_kv_heads = 2,
                                         .head_dim = 16,
                                         .n_ff = 96,
                                         .n_vocab = N_VOCAB,
                                         .rope_dim = 16,
                                         .matrix = TENSOR_Q8_0,
                                         .seed = 3};
    tiny_open(t, &options);
}

static int try_model(struct engine **e, const struct model *m, struct error *err)
{
    static const char kernels[] = "an image";
    const struct cuda_options options = {.driver_path = fake_driver_path(), .kernels = kernels};
    return cuda_engine_open(e, m, &limits, &options, err);
}

static int try_open(struct engine **e, const struct tiny_model *t, struct error *err)
{
    return try_model(e, &t->model, err);
}

static struct engine *open_engine(const struct tiny_model *t)
{
    struct engine *e;
    struct error err;
    if (try_open(&e, t, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return e;
}

/* n rows of one sequence from position 0 on; the last one's logits. */
static int compute(struct engine *e, uint32_t n, float *logits, struct error *err)
{
    struct page_run run = {0, N_PAGES};
    struct batch_seq seq = {.pages = {{&run, 1, 0}}, .length = n};
    struct batch_row rows[MAX_ROWS];
    for (uint32_t i = 0; i < n; i++)
        rows[i] = token_row((int32_t)i, i, i, 0, i + 1 == n ? WANTS_LOGITS : NULL);
    struct batch batch = {.seqs = &seq, .rows = rows, .n_seqs = 1, .n_rows = n};
    return forward_rows(e, &batch, rows, logits, err);
}

TEST(cuda_faults, takes_what_it_says_and_gives_it_back)
{
    struct tiny_model t;
    struct fake_cuda *fake = fake_driver_reset();
    open_model(&t);
    struct engine *e = open_engine(&t);
    const struct engine_info *info = &e->info;
    CHECK_STR(info->name, "cuda (Fake GPU 0)");
    CHECK_STR(info->fingerprint, "cuda/sm_90/1");
    CHECK_INT(info->weight_bytes + info->buffer_bytes, cuda_engine_bytes(&t.model, &limits));
    CHECK_INT(info->weight_bytes + info->buffer_bytes + info->kv_bytes, fake->memory_bytes);
    CHECK_INT(fake->memory_bytes, fake->most_bytes);
    engine_close(e);
    fake_driver_check_closed();
    tiny_close(&t);
}

TEST(cuda_faults, a_step_creates_nothing)
{
    struct tiny_model t;
    struct error err;
    float logits[N_VOCAB];
    struct fake_cuda *fake = fake_driver_reset();
    open_model(&t);
    struct engine *e = open_engine(&t);
    CHECK_INT(compute(e, 3, logits, &err), 0);
    int n_created = fake->n_created;
    for (uint32_t n = 1; n <= MAX_ROWS; n++) {
        int n_before = fake->n_launched;
        CHECK_INT(compute(e, n, logits, &err), 0);
        CHECK(fake->n_launched > n_before);
    }
    CHECK_INT(fake->n_created, n_created);
    engine_close(e);
    fake_driver_check_closed();
    tiny_close(&t);
}

/* A graph, and launches that are none. */
static int compute_some(struct engine *e, struct error *err)
{
    float logits[N_VOCAB];
    return compute(e, 3, logits, err) || compute(e, MAX_ROWS, logits, err);
}

/* Pages there and back. */
static int move_pages(struct engine *e, struct error *err)
{
    uint8_t data[4096] = {1, 2, 3, 4, 5, 6, 7}, back[sizeof data] = {0};
    const struct page_run run = {5, 3};
    struct page_io to = {.runs = &run, .n_runs = 1, .data = data, .is_write = true};
    struct page_io from = {.runs = &run, .n_runs = 1, .data = back};
    uint64_t tickets[2];
    size_t bytes = (size_t)run.count * e->info.groups[0].page_bytes;
    if (bytes > sizeof data || engine_page_io(e, &to, &tickets[0], err) ||
        engine_page_io(e, &from, &tickets[1], err) ||
        engine_io_poll(e, tickets[0], true, err) != 1 ||
        engine_io_poll(e, tickets[1], true, err) != 1)
        return -1;
    return memcmp(data, back, bytes);
}

static int measure(struct engine *e, struct error *err)
{
    struct machine_limits best = {0};
    return engine_measure(e, 1, &best, err) || best.read_bytes_per_s == 0;
}

static int close_engine(struct engine *e, struct error *err)
{
    (void)err;
    engine_close(e);
    return 0;
}

struct call {
    int (*make)(struct engine *e, struct error *err);
    struct engine *engine;
    struct error err;
    int failed;
};

static void *make_call(void *context)
{
    struct call *call = context;
    call->failed = call->make(call->engine, &call->err);
    return NULL;
}

/* CUDA keeps the current context for each thread. The command line opens an engine, and the
 * scheduler's thread uses it. */
TEST(cuda_faults, every_call_may_come_from_a_thread_of_its_own)
{
    static int (*const calls[])(struct engine *, struct error *) = {
        compute_some, move_pages, measure, engine_reopen, compute_some, close_engine};
    struct tiny_model t;
    fake_driver_reset();
    open_model(&t);
    struct engine *e = open_engine(&t);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct call call = {.make = calls[i], .engine = e};
        pthread_t thread;
        CHECK_INT(pthread_create(&thread, NULL, make_call, &call), 0);
        CHECK_INT(pthread_join(thread, NULL), 0);
        if (call.failed)
            test_fail(__FILE__, __LINE__, "call %zu: %s", i, call.err.message);
    }
    fake_driver_check_closed();
    tiny_close(&t);
}

/* Kernels of an older architecture do not wait for the kernel before. */
TEST(cuda_faults, launches_overlap_only_if_kernels_wait)
{
    struct tiny_model t;
    float logits[N_VOCAB];
    struct error err;
    open_model(&t);
    for (int made_for = 0; made_for <= 100; made_for += 10) {
        struct fake_cuda *fake = fake_driver_reset();
        enum log_level level = log_get_level();
        fake->kernels_made_for = made_for;
        log_set_level(LOG_ERROR); /* it warns */
        struct engine *e = open_engine(&t);
        log_set_level(level);
        CHECK_INT(compute(e, 3, logits, &err), 0);
        CHECK((fake->n_dependent > 0) == (made_for >= 90));
        engine_close(e);
    }
    tiny_close(&t);
}

/* Each call that creates something fails once, with each code. */
static void check_every_creation_fails(int code, enum error_code expected)
{
    struct tiny_model t;
    struct engine *e = NULL;
    struct error err;
    struct fake_cuda *fake = fake_driver_reset();
    open_model(&t);
    engine_close(open_engine(&t));
    const int n_calls = fake->n_created;
    CHECK(n_calls > 6);
    for (int n = 1; n <= n_calls; n++) {
        fake = fake_driver_reset();
        fake->create_code = code;
        fake->fail_create = n;
        CHECK_INT(try_open(&e, &t, &err), -1);
        CHECK_INT(err.code, expected);
        CHECK(strlen(err.message) > 20);
        fake_driver_check_closed();
    }
    tiny_close(&t);
}

TEST(cuda_faults, the_device_may_run_out_at_every_allocation)
{
    check_every_creation_fails(2, ERROR_MEMORY);
}

TEST(cuda_faults, every_creation_may_fail)
{
    check_every_creation_fails(999, ERROR_DEVICE);
}

TEST(cuda_faults, the_hosts_memory_may_run_out)
{
    struct tiny_model t;
    struct engine *e = NULL;
    struct error err;
    uint32_t n = 0;
    open_model(&t);
    for (int failed = -1; failed; n++) {
        fake_driver_reset();
        memory_ends_after(n);
        failed = try_open(&e, &t, &err);
        memory_is_back();
        CHECK(n < 1000);
        if (failed) {
            CHECK_INT(err.code, ERROR_MEMORY);
            fake_driver_check_closed();
        }
    }
    CHECK(n > 2);
    engine_close(e);
    fake_driver_check_closed();
    tiny_close(&t);
}

TEST(cuda_faults, what_has_no_room_is_named)
{
    struct tiny_model t;
    struct engine *e;
    struct error err;
    struct fake_cuda *fake = fake_driver_reset();
    open_model(&t);
    e = open_engine(&t);
    uint64_t weights = e->info.weight_bytes, all = fake->memory_bytes;
    engine_close(e);
    fake->total_bytes = weights - 1;
    CHECK_INT(try_open(&e, &t, &err), -1);
    CHECK(strstr(err.message, "Fake GPU 0 has no room for the weights: it takes "));
    fake->total_bytes = weights;
    CHECK_INT(try_open(&e, &t, &err), -1);
    CHECK(strstr(err.message, "Fake GPU 0 has no room for buffers: it takes "));
    fake->total_bytes = all - 1;
    CHECK_INT(try_open(&e, &t, &err), -1);
    CHECK(strstr(err.message, "Fake GPU 0 has no room for the KV cache: it takes "));
    fake_driver_check_closed();
    fake->total_bytes = all;
    engine_close(open_engine(&t));
    tiny_close(&t);
}

static void open_experts(struct shaped_model *m)
{
    struct shaped_options options = {.n_layers = 1,
                                     .n_embd = 64,
                                     .n_heads = 2,
                                     .n_kv_heads = 1,
                                     .head_dim = 32,
                                     .n_vocab = N_VOCAB,
                                     .n_experts = 3,
                                     .n_chosen = 2,
                                     .n_ff_expert = 64};
    struct error err;
    CHECK(shaped_types_named("q8_0", &options.types));
    CHECK_INT(shaped_model_open(m, &options, &err), 0);
}

/* Of three matrices of 64 x 64 values, 34 bytes for each 32 in Q8_0. */
TEST(cuda_faults, an_expert_that_is_not_chosen_costs_nothing)
{
    uint64_t layer_bytes[2];
    struct shaped_model m;
    struct engine *e;
    struct error err;
    fake_driver_reset();
    open_experts(&m);
    for (uint32_t i = 0; i < 2; i++) {
        m.model.hparams.router.n_chosen = 1 + 2 * i;
        CHECK_INT(try_model(&e, &m.model, &err), 0);
        layer_bytes[i] = e->info.cost.layer_bytes;
        engine_close(e);
    }
    CHECK_INT(layer_bytes[1] - layer_bytes[0], 2 * 3 * 64 * 64 / 32 * 34);
    shaped_model_close(&m);
}

/* Kernels take all experts of a layer in one format; a file may have each in a type of its own. */
TEST(cuda_faults, experts_of_different_types_are_refused)
{
    static const uint16_t zeros[64 * 64];
    struct shaped_model m;
    struct engine *e;
    struct error err;
    fake_driver_reset();
    open_experts(&m);
    CHECK_INT(try_model(&e, &m.model, &err), 0);
    engine_close(e);
    m.model.layers[0].experts[2].up = weight_make(TENSOR_F16, 64, 64, zeros);
    CHECK_INT(try_model(&e, &m.model, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    CHECK(strstr(err.message, "experts of different types"));
    fake_driver_check_closed();
    shaped_model_close(&m);
}

TEST(cuda_faults, a_kernel_that_is_missing)
{
    struct tiny_model t;
    struct engine *e;
    struct error err;
    struct fake_cuda *fake = fake_driver_reset();
    open_model(&t);
    fake->missing_function = "add_experts"; /* the image of another version */
    CHECK_INT(try_open(&e, &t, &err), -1);
    CHECK_INT(err.code, ERROR_DEVICE);
    fake_driver_check_closed();
    tiny_close(&t);
}

static int launches_of_a_step(struct engine *e, struct fake_cuda *fake, uint32_t n_rows)
{
    float logits[N_VOCAB];
    struct error err;
    int before = fake->n_launched;
    CHECK_INT(compute(e, n_rows, logits, &err), 0);
    return fake->n_launched - before;
}

/* Every launch of a step fails once: the step fails, then every call until reopen. */
static void check_every_launch_fails(uint32_t n_rows, int code, const char *text)
{
    struct tiny_model t;
    struct error err;
    float logits[N_VOCAB];
    struct fake_cuda *fake = fake_driver_reset();
    open_model(&t);
    struct engine *e = open_engine(&t);
    const int n_launches = launches_of_a_step(e, fake, n_rows);
    CHECK(n_launches > 5);
    for (int n = 1; n <= n_launches; n++) {
        fake->launch_code = code;
        fake->fail_launch = fake->n_launched + n;
        CHECK_INT(compute(e, n_rows, logits, &err), -1);
        CHECK_INT(err.code, ERROR_DEVICE);
        CHECK(strstr(err.message, text));
        CHECK_INT(compute(e, n_rows, logits, &err), -1);
        CHECK_INT(err.code, ERROR_DEVICE);
        CHECK_INT(engine_reopen(e, &err), 0);
        CHECK_INT(launches_of_a_step(e, fake, n_rows), n_launches);
    }
    engine_close(e);
    fake_driver_check_closed();
    tiny_close(&t);
}

TEST(cuda_faults, every_launch_of_a_graph_may_fail)
{
    check_every_launch_fails(1, 700, "an illegal memory access was encountered (700, ");
}

TEST(cuda_faults, an_uncorrectable_memory_error)
{
    check_every_launch_fails(MAX_ROWS, 214, "uncorrectable ECC error encountered (214, ");
}

/* A device that nothing brings back: reopen says so, and can be tried again. */
TEST(cuda_faults, a_device_that_stays_broken)
{
    struct tiny_model t;
    struct error err;
    float logits[N_VOCAB];
    struct fake_cuda *fake = fake_driver_reset();
    open_model(&t);
    struct engine *e = open_engine(&t);
    fake->stays_broken = 1;
    fake->fail_launch = fake->n_launched + 1;
    CHECK_INT(compute(e, 2, logits, &err), -1);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(engine_reopen(e, &err), -1);
        CHECK_INT(err.code, ERROR_DEVICE);
        CHECK_INT(compute(e, 2, logits, &err), -1);
    }
    fake->stays_broken = fake->broken = 0;
    CHECK_INT(engine_reopen(e, &err), 0);
    CHECK_INT(compute(e, 2, logits, &err), 0);
    engine_close(e);
    fake_driver_check_closed();
    tiny_close(&t);
}

TEST(cuda_faults, closing_a_lost_engine)
{
    struct tiny_model t;
    struct error err;
    float logits[N_VOCAB];
    struct fake_cuda *fake = fake_driver_reset();
    open_model(&t);
    struct engine *e = open_engine(&t);
    fake->fail_launch = fake->n_launched + 1;
    CHECK_INT(compute(e, 2, logits, &err), -1);
    engine_close(e);
    fake_driver_check_closed();
    tiny_close(&t);
}
