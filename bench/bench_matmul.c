/* How close the matrix products come to the machine's limits (machine_limits.h). For each kernel
 * path and the shapes of the default model (30 layers of Q4_1, a Q8_0 head) it shows multiply-adds
 * per second at 1 to 512 rows, as a share of the dot-product peak and of the read bandwidth. Both
 * limits are measured before and in between.
 *
 *   bench_matmul [THREADS [PATH [formats]]]
 *
 * `formats` shows one shape in many weight types instead: how close each comes to the read
 * bandwidth, and what its decoding costs with many rows.
 *
 * There are enough copies of a shape for a model's worth of memory, so that one row reads them from
 * memory, as decoding does, and not from a cache. Every figure is the faster quartile of many runs,
 * in processor time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parallel.h"
#include "engine/cpu/machine_limits.h"

enum {
    MODEL_BYTES = 98 << 20,
    N_LAYERS = 30,
    MAX_ROWS = 512,
    MAX_COLS = 1536,
    ROUNDS = 5,
    MAX_THREADS = 64,
    FIRST_PROBE_MS = 300,
    PROBE_MS = 60,
};

static struct parallel *threads;
static struct machine_probe *probe;

struct shape {
    const char *name;
    enum tensor_type type;
    uint32_t rows, cols;
    uint32_t per_layer; /* 0: one for the whole model */
    uint32_t slices;    /* timed separately, so that all times are of similar length */
    enum tensor_type scale_type;
    uint32_t group_cols; /* columns per group of separate scales; 0: none */
};
static const struct shape shapes[] = {
    {"q, o     576 x  576 Q4_1", TENSOR_Q4_1, 576, 576, 2, 1},
    {"k, v     192 x  576 Q4_1", TENSOR_Q4_1, 192, 576, 2, 1},
    {"gate,up 1536 x  576 Q4_1", TENSOR_Q4_1, 1536, 576, 2, 1},
    {"down     576 x 1536 Q4_1", TENSOR_Q4_1, 576, 1536, 1, 1},
    {"head   49152 x  576 Q8_0", TENSOR_Q8_0, 49152, 576, 0, 32},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static const struct shape formats[] = {
    {"Q4_0", TENSOR_Q4_0, 1536, 1536, 0, 1},
    {"Q4_1", TENSOR_Q4_1, 1536, 1536, 0, 1},
    {"Q4_K", TENSOR_Q4_K, 1536, 1536, 0, 1},
    {"Q6_K", TENSOR_Q6_K, 1536, 1536, 0, 1},
    {"Q8_0", TENSOR_Q8_0, 1536, 1536, 0, 1},
    {"IQ4_XS", TENSOR_IQ4_XS, 1536, 1536, 0, 1},
    {"IQ3_S", TENSOR_IQ3_S, 1536, 1536, 0, 1},
    {"IQ2_XS", TENSOR_IQ2_XS, 1536, 1536, 0, 1},
    {"TQ2_0", TENSOR_TQ2_0, 1536, 1536, 0, 1},
    {"MXFP4", TENSOR_FP4, 1536, 1536, 0, 1, TENSOR_E8M0, 32},
    {"NVFP4", TENSOR_FP4, 1536, 1536, 0, 1, TENSOR_F8_E4M3, 16},
    {"4 bits, BF16/64", TENSOR_AFFINE_4, 1536, 1536, 0, 1, TENSOR_BF16, 64},
    {"4 bits, BF16/32", TENSOR_AFFINE_4, 1536, 1536, 0, 1, TENSOR_BF16, 32},
    {"6 bits, BF16/64", TENSOR_AFFINE_6, 1536, 1536, 0, 1, TENSOR_BF16, 64},
    {"8 bits, BF16/64", TENSOR_AFFINE_8, 1536, 1536, 0, 1, TENSOR_BF16, 64},
    {"FP8, F32/128", TENSOR_F8_E4M3, 1536, 1536, 0, 1, TENSOR_F32, 128},
    {"MXFP8", TENSOR_F8_E4M3, 1536, 1536, 0, 1, TENSOR_E8M0, 32},
    {"BF16", TENSOR_BF16, 1536, 1536, 0, 1},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };
static const uint32_t row_counts[] = {1, 8, 64, 512};
enum { N_ROW_COUNTS = sizeof row_counts / sizeof row_counts[0] };

static void *allocate(size_t size)
{
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!p) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return p;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A job whose threads record their processor time. Unlike wall time, it excludes the time taken by
 * other programs. */
struct timed_job {
    parallel_job job;
    void *context;
    uint64_t ns[MAX_THREADS];
};

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void run_timed(void *context, uint32_t thread, uint32_t n_threads)
{
    struct timed_job *timed = context;
    uint64_t begin = thread_ns();
    timed->job(timed->context, thread, n_threads);
    timed->ns[thread] = thread_ns() - begin;
}

/* Runs job(contexts[i]) on all threads for each i, repeatedly. Returns the faster quartile of the
 * slowest thread's seconds. */
static double quartile_seconds(parallel_job job, void *const *contexts, uint32_t n, uint32_t rounds)
{
    uint64_t *times = allocate(sizeof *times * n * rounds);
    for (uint32_t i = 0; i < n * rounds; i++) {
        struct timed_job timed = {.job = job, .context = contexts[i % n]};
        parallel_run(threads, run_timed, &timed);
        times[i] = 0;
        for (uint32_t t = 0; t < MAX_THREADS; t++)
            times[i] = timed.ns[t] > times[i] ? timed.ns[t] : times[i];
    }
    qsort(times, n * rounds, sizeof *times, compare_u64);
    double seconds = (double)times[n * rounds / 4] * 1e-9;
    free(times);
    return seconds;
}

/* A product, or a slice of a long one, shared by threads as in an engine. */
struct product {
    const struct matmul_kernels *kernels;
    struct packed_matrix *matrix;
    uint32_t begin, end; /* panels */
    const struct activations *x;
    float *out;
};

static void multiply_job(void *context, uint32_t thread, uint32_t n_threads)
{
    const struct product *p = context;
    uint32_t panels = p->end - p->begin, begin = p->begin + panels * thread / n_threads;
    uint32_t end = p->begin + panels * (thread + 1) / n_threads;
    p->kernels->matmul(p->matrix, p->x, begin, end, p->out + (size_t)begin * PANEL,
                       matrix_rows(p->matrix));
}

/* Quants do not affect speed, but scales must be ordinary numbers. Clearing the two highest bits of
 * every byte makes them so in any type. */
static uint8_t *random_bytes(size_t n)
{
    uint8_t *bytes = allocate(n);
    uint32_t random = 1;
    for (size_t i = 0; i < n; i++)
        bytes[i] = (random = random * 1664525 + 1013904223) >> 24 & 0x3f;
    return bytes;
}

static struct packed_matrix *random_matrix(const struct shape *shape)
{
    const struct tensor_type_info *info = tensor_type_info(shape->type);
    uint8_t *data = random_bytes((size_t)shape->rows * shape->cols / info->block_len *
                                 info->block_bytes);
    struct weight w = weight_make(shape->type, shape->rows, shape->cols, data);
    uint8_t *scales = NULL;
    if (shape->group_cols) {
        uint32_t per_row = shape->cols / shape->group_cols;
        scales = random_bytes((size_t)shape->rows * per_row *
                              tensor_type_info(shape->scale_type)->block_bytes);
        w.groups = (struct weight_groups){scales,
                                          NULL,
                                          shape->scale_type,
                                          .rows = 1,
                                          .cols = shape->group_cols,
                                          .per_row = per_row,
                                          .row_step = 1};
    }
    struct error err;
    struct packed_matrix *m = matrix_pack(&w, &err);
    if (!m) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    free(scales);
    free(data);
    return m;
}

/* Enough copies of a shape for a model's worth of memory. */
struct copies {
    uint32_t n, n_slices;
    struct product *slices;
    void **contexts; /* pointers to the slices */
    struct activations x;
    struct act_block *q8;
    float *out;
};

static void copies_make(struct copies *c, const struct shape *shape, const struct kernels *path,
                        const float *x)
{
    struct packed_matrix *first = random_matrix(shape);
    c->n = (uint32_t)(MODEL_BYTES / matrix_bytes(first)) + 1;
    c->n_slices = c->n * shape->slices;
    c->slices = allocate(c->n_slices * sizeof *c->slices);
    c->contexts = allocate(c->n_slices * sizeof *c->contexts);
    c->q8 = allocate(activations_bytes(ACT_Q8, MAX_ROWS, shape->cols));
    c->x = (struct activations){
        .kind = matrix_act_kind(first), .cols = shape->cols, .f32 = x, .q8 = c->q8};
    c->out = allocate((size_t)shape->rows * MAX_ROWS * sizeof *c->out);
    for (uint32_t r = 0; r < MAX_ROWS; r++)
        path->matmul->quantize_row(x + (size_t)r * shape->cols, shape->cols, r, c->q8);
    for (uint32_t i = 0; i < c->n_slices; i++) {
        uint32_t slice = i % shape->slices, panels = matrix_panels(first) / shape->slices;
        struct packed_matrix *m = slice   ? c->slices[i - 1].matrix
                                  : i > 0 ? random_matrix(shape)
                                          : first;
        c->slices[i] = (struct product){path->matmul,         m,     slice * panels,
                                        (slice + 1) * panels, &c->x, c->out};
        c->contexts[i] = &c->slices[i];
    }
}

static void copies_free(struct copies *c, uint32_t slices)
{
    for (uint32_t i = 0; i < c->n; i++)
        matrix_free(c->slices[i * slices].matrix);
    free(c->out);
    free(c->q8);
    free(c->contexts);
    free(c->slices);
}

/* One line of figures, and the seconds that one matrix takes at each number of rows. */
static void bench_shape(const struct shape *shape, const struct kernels *path, const float *x,
                        struct machine_limits *limits, double *seconds)
{
    struct copies copies;
    copies_make(&copies, shape, path, x);
    double bytes = (double)matrix_bytes(copies.slices[0].matrix);
    printf("  %s", shape->name);
    for (int i = 0; i < N_ROW_COUNTS; i++) {
        uint32_t n_rows = copies.x.n_rows = row_counts[i];
        double macs = (double)shape->rows * shape->cols * n_rows;
        if (macs > 5e9) /* a prompt does not need the head for all its rows */
            continue;
        /* Many rows are not bound by memory: fewer copies give the same figure sooner. */
        uint32_t n = n_rows < 64 ? copies.n_slices : 16;
        seconds[i] = shape->slices * quartile_seconds(multiply_job, copies.contexts, n, ROUNDS);
        machine_probe_run(probe, path, PROBE_MS, limits);
        printf(" │ %6.1f %4.0f%%", macs / seconds[i] * 1e-9,
               macs / seconds[i] / limits->int8_macs_per_s * 100);
        if (n_rows <= 8)
            printf(" %4.0f%%", bytes / seconds[i] / limits->read_bytes_per_s * 100);
    }
    printf("\n");
    copies_free(&copies, shape->slices);
}

/* All paths have the same bandwidth, so the best value is passed on to the next. */
static void bench_path(const struct kernels *path, const float *x, double *read_bytes_per_s)
{
    struct machine_limits limits = {.read_bytes_per_s = *read_bytes_per_s};
    double layer[N_ROW_COUNTS] = {0}, head[N_ROW_COUNTS] = {0};
    machine_probe_run(probe, path, FIRST_PROBE_MS, &limits);
    printf("\n%s\n", path->name);
    printf("  %-24s │ 1 row: GMAC/s, %% of peak, %% of bandwidth │ 8 rows │ 64 rows │ 512 rows\n",
           "");
    for (int s = 0; s < N_SHAPES; s++) {
        double seconds[N_ROW_COUNTS] = {0};
        bench_shape(&shapes[s], path, x, &limits, seconds);
        for (int i = 0; i < N_ROW_COUNTS; i++)
            *(shapes[s].per_layer ? &layer[i] : &head[i]) += seconds[i] * (shapes[s].per_layer
                                                                               ? shapes[s].per_layer
                                                                               : 1);
    }
    printf("  the products of a whole model: %.0f tokens/s decoding 1, %.0f decoding 8, %.0f in "
           "a prompt of 512\n",
           1 / (layer[0] * N_LAYERS + head[0]), 8 / (layer[1] * N_LAYERS + head[1]),
           512 / (layer[3] * N_LAYERS));
    printf("  the machine: %.0f GMAC/s of int8, reading %.1f GB/s\n", limits.int8_macs_per_s * 1e-9,
           limits.read_bytes_per_s * 1e-9);
    *read_bytes_per_s = limits.read_bytes_per_s;
}

static void bench_formats(const struct kernels *path, const float *x, double *read_bytes_per_s)
{
    struct machine_limits limits = {.read_bytes_per_s = *read_bytes_per_s};
    machine_probe_run(probe, path, FIRST_PROBE_MS, &limits);
    printf("\n%s\n  %-16s │ bits │ 1 row: GMAC/s, GB/s, %% of bandwidth │ 64 rows: GMAC/s\n",
           path->name, "");
    for (int f = 0; f < N_FORMATS; f++) {
        struct copies copies;
        double weights = (double)formats[f].rows * formats[f].cols, seconds[2];
        copies_make(&copies, &formats[f], path, x);
        double bytes = (double)matrix_bytes(copies.slices[0].matrix);
        for (int i = 0; i < 2; i++) {
            copies.x.n_rows = i ? 64 : 1;
            seconds[i] = quartile_seconds(multiply_job, copies.contexts, i ? 16 : copies.n_slices,
                                          ROUNDS);
            machine_probe_run(probe, path, PROBE_MS, &limits);
        }
        printf("  %-16s │ %4.1f │ %6.1f %6.1f %4.0f%% │ %6.1f\n", formats[f].name,
               bytes * 8 / weights, weights / seconds[0] * 1e-9, bytes / seconds[0] * 1e-9,
               bytes / seconds[0] / limits.read_bytes_per_s * 100,
               64 * weights / seconds[1] * 1e-9);
        copies_free(&copies, formats[f].slices);
    }
    printf("  the machine: reading %.1f GB/s\n", limits.read_bytes_per_s * 1e-9);
    *read_bytes_per_s = limits.read_bytes_per_s;
}

int main(int argc, char **argv)
{
    struct error err;
    double read_bytes_per_s = 0;
    int n_threads = argc > 1 ? atoi(argv[1]) : 1;
    if (n_threads < 1 || n_threads > MAX_THREADS) {
        fprintf(stderr, "usage: bench_matmul [THREADS [PATH [formats]]]\n");
        return 2;
    }
    if (parallel_open(&threads, (uint32_t)n_threads, NULL, &err) ||
        machine_probe_open(&probe, threads, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    printf("%d thread%s\n", n_threads, n_threads == 1 ? "" : "s");
    float *x = allocate(MAX_ROWS * MAX_COLS * sizeof *x);
    for (int i = 0; i < MAX_ROWS * MAX_COLS; i++)
        x[i] = (float)(i % 251 - 125) / 100;
    for (unsigned i = 0; kernels_at(i); i++)
        if (argc > 2 ? strcmp(argv[2], kernels_at(i)->name) == 0 : i > 0)
            (argc > 3 ? bench_formats : bench_path)(kernels_at(i), x, &read_bytes_per_s);
    free(x);
    machine_probe_close(probe);
    parallel_close(threads);
    return 0;
}
