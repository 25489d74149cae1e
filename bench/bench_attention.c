/* How close attention comes to the machine's limits (machine_limits.h). For each kernel path and
 * the heads of some models it shows multiply-adds per second as a share of the float peak, and
 * bytes of keys and values per second as a share of the read bandwidth, for
 *
 *   prefill    the last 256 of 2048 positions
 *   decode     one row at position 4095
 *   branches   eight rows at position 4095, of sequences that have 3968 positions in common
 *
 *   bench_attention [PATH [SHAPE]]     SHAPE: a prefix of its name
 *
 * One thread. There are enough layers for a model's worth of KV, so that one row reads it from
 * memory, not from a cache. Every figure is the faster quartile of many runs, in processor time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/cpu/attention.h"
#include "engine/cpu/machine_limits.h"

enum {
    KV_BYTES = 96 << 20,
    PREFILL_ROWS = 256,
    PREFILL_LENGTH = 2048,
    DECODE_LENGTH = 4096,
    N_BRANCHES = 8,
    BRANCH_LENGTH = 128,
    N_PAGES = DECODE_LENGTH + (N_BRANCHES - 1) * BRANCH_LENGTH,
    MAX_RUNS = 400,
    PROBE_MS = 200,
    CASE_MS = 400,
};

static const struct shape {
    const char *name;
    uint32_t n_heads, n_kv_heads, key_dim, value_dim;
    bool values_in_keys;
    uint32_t window;
    float softcap;
} shapes[] = {
    {"smollm2   9 heads / 3, 64", 9, 3, 64, 64, false, 0, 0},
    {"llama    32 heads / 8, 128", 32, 8, 128, 128, false, 0, 0},
    {"gpt-oss  64 heads / 8, 64", 64, 8, 64, 64, false, 0, 0},
    {"gpt-oss  ... window of 128", 64, 8, 64, 64, false, 128, 0},
    {"gemma2    8 heads / 4, 256, cap", 8, 4, 256, 256, false, 0, 50},
    {"gemma4    8 heads / 1, 512", 8, 1, 512, 512, false, 0, 0},
    {"mla      16 heads / 1, 576", 16, 1, 576, 512, true, 0, 0},
    {"mla     128 heads / 1, 576", 128, 1, 576, 512, true, 0, 0},
};

static void *allocate(size_t size)
{
    void *p = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!p) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    memset(p, 0x2c, size); /* about 0.07 as half-precision numbers */
    return p;
}

static uint64_t process_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A batch, the positions that its rows attend to, and the positions that it reads. */
struct work {
    struct page_run runs[N_BRANCHES][2];
    struct batch_seq seqs[N_BRANCHES];
    struct batch_row rows[PREFILL_ROWS];
    struct batch batch;
    double seen, read;
};

static double visible(const struct shape *shape, double position)
{
    return shape->window > 0 && position >= shape->window ? shape->window : position + 1;
}

static void work_prefill(struct work *w, const struct shape *shape)
{
    *w = (struct work){.runs = {{{0, PREFILL_LENGTH}}}};
    w->seqs[0] = (struct batch_seq){.pages = {{w->runs[0], 1, 0}}, .length = PREFILL_LENGTH};
    for (uint32_t i = 0; i < PREFILL_ROWS; i++) {
        w->rows[i] = (struct batch_row){.position = PREFILL_LENGTH - PREFILL_ROWS + i};
        w->seen += visible(shape, w->rows[i].position);
    }
    w->read = visible(shape, PREFILL_LENGTH - PREFILL_ROWS) + PREFILL_ROWS;
    w->batch = (struct batch){w->seqs, w->rows, .n_seqs = 1, .n_rows = PREFILL_ROWS};
}

static void work_decode(struct work *w, const struct shape *shape, uint32_t n_branches)
{
    uint32_t common = DECODE_LENGTH - BRANCH_LENGTH;
    *w = (struct work){0};
    for (uint32_t i = 0; i < n_branches; i++) {
        w->runs[i][0] = (struct page_run){0, common};
        w->runs[i][1] = (struct page_run){common + i * BRANCH_LENGTH, BRANCH_LENGTH};
        w->seqs[i] = (struct batch_seq){.pages = {{w->runs[i], 2, 0}}, .length = DECODE_LENGTH};
        w->rows[i] = (struct batch_row){.position = DECODE_LENGTH - 1, .seq = i};
    }
    w->seen = n_branches * visible(shape, DECODE_LENGTH - 1);
    w->read = visible(shape, DECODE_LENGTH - 1) + (n_branches - 1) * BRANCH_LENGTH;
    w->batch = (struct batch){w->seqs, w->rows, .n_seqs = n_branches, .n_rows = n_branches};
}

/* The keys and values of all layers, and a batch's queries and results. */
struct memory {
    uint32_t n_layers;
    size_t key_bytes, value_bytes; /* of a layer */
    uint8_t *keys, *values;
    float *q, *out;
};

static struct memory memory_make(const struct shape *shape)
{
    struct memory m = {
        .key_bytes = (size_t)N_PAGES * shape->n_kv_heads * shape->key_dim * 2,
        .value_bytes = (size_t)N_PAGES * shape->n_kv_heads * shape->value_dim * 2,
    };
    if (shape->values_in_keys)
        m.value_bytes = 0;
    m.n_layers = (uint32_t)(KV_BYTES / (m.key_bytes + m.value_bytes)) + 1;
    m.keys = allocate(m.n_layers * m.key_bytes);
    m.values = allocate(m.n_layers * m.value_bytes + 1);
    size_t n_q = (size_t)PREFILL_ROWS * shape->n_heads * shape->key_dim;
    m.q = allocate(n_q * sizeof *m.q);
    m.out = allocate((size_t)PREFILL_ROWS * shape->n_heads * shape->value_dim * sizeof *m.out);
    for (size_t i = 0; i < n_q; i++)
        m.q[i] = (float)(i % 251) / 251 - 0.5f;
    return m;
}

static void memory_free(struct memory *m)
{
    free(m->keys);
    free(m->values);
    free(m->q);
    free(m->out);
}

static double quartile_seconds(struct attention *a, const struct shape *shape,
                               const struct memory *m, const struct work *work)
{
    static uint64_t times[MAX_RUNS];
    uint32_t n = 0;
    attention_plan(a, &work->batch);
    for (uint64_t sum = 0; n < MAX_RUNS && (n < 8 || sum < CASE_MS * 1000000ull);
         sum += times[n++]) {
        struct attention_io io = {
            .keys = m->keys + n % m->n_layers * m->key_bytes,
            .values = m->values + n % m->n_layers * m->value_bytes,
            .q = m->q,
            .out = m->out,
            .scale = 1.0f / sqrtf((float)shape->key_dim),
            .softcap = shape->softcap,
        };
        uint64_t begin = process_ns();
        attention_run(a, &io, 0);
        if (attention_must_combine(a))
            attention_combine(a, &io, 0);
        times[n] = process_ns() - begin;
    }
    qsort(times, n, sizeof *times, compare_u64);
    return (double)times[n / 4] * 1e-9;
}

static void bench_shape(const struct shape *shape, const struct kernels *path,
                        const struct machine_limits *limits)
{
    struct attention_shape s = {.n_heads = shape->n_heads,
                                .n_kv_heads = shape->n_kv_heads,
                                .key_dim = shape->key_dim,
                                .value_dim = shape->value_dim,
                                .values_in_keys = shape->values_in_keys,
                                .window = shape->window,
                                .kv_type = KV_F16,
                                .max_rows = PREFILL_ROWS,
                                .max_length = DECODE_LENGTH,
                                .n_threads = 1};
    struct attention *a;
    struct error err;
    if (attention_open(&a, &s, path->vector, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    struct memory m = memory_make(shape);
    static struct work work;
    printf("  %-32s", shape->name);
    for (int i = 0; i < 3; i++) {
        if (i == 0)
            work_prefill(&work, shape);
        else
            work_decode(&work, shape, i == 1 ? 1 : N_BRANCHES);
        double seconds = quartile_seconds(a, shape, &m, &work);
        double macs = work.seen * shape->n_heads * (shape->key_dim + shape->value_dim);
        double bytes = work.read * (double)(m.key_bytes + m.value_bytes) / N_PAGES;
        printf(" │ %8.3f ms %6.1f %4.0f%% %4.0f%%", seconds * 1e3, macs / seconds * 1e-9,
               macs / seconds / limits->float_macs_per_s * 100,
               bytes / seconds / limits->read_bytes_per_s * 100);
        fflush(stdout);
    }
    printf("\n");
    memory_free(&m);
    attention_close(a);
}

int main(int argc, char **argv)
{
    struct error err;
    struct parallel *pool;
    struct machine_probe *probe;
    if (argc > 3) {
        fprintf(stderr, "usage: bench_attention [PATH [SHAPE]]\n");
        return 2;
    }
    if (parallel_open(&pool, 1, NULL, &err) || machine_probe_open(&probe, pool, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (unsigned i = 0; kernels_at(i); i++) {
        const struct kernels *path = kernels_at(i);
        bool is_repeated = i == 0 || path->vector == kernels_at(i - 1)->vector;
        if (argc > 1 ? strcmp(argv[1], path->name) != 0 : is_repeated)
            continue;
        struct machine_limits limits = {0};
        machine_probe_run(probe, path, PROBE_MS, &limits);
        printf("%s: %.1f GMAC/s of floats, reading %.1f GB/s\n", path->name,
               limits.float_macs_per_s * 1e-9, limits.read_bytes_per_s * 1e-9);
        printf("  %-32s │ prefill: GMAC/s, %% of peak, of reading │ decode │ branches\n", "");
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            if (argc < 3 || strncmp(shapes[s].name, argv[2], strlen(argv[2])) == 0)
                bench_shape(&shapes[s], path, &limits);
    }
    machine_probe_close(probe);
    parallel_close(pool);
    return 0;
}
