/* Whether a file of packed weights pays off (engine/cpu/pack_cache.h). For every weight type it
 * shows how fast one thread packs it, and how fast it reads it back from a file in the page cache
 * into memory that was used before, including checksums and samples. pack_cache_pays is based on
 * these figures.
 *
 *   bench_pack [FOLDER]      for temporary files, 0.2 GB (default: /tmp)
 *
 * Every figure is the best of some runs, in processor time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "engine/cpu/kernels/matmul_internal.h"
#include "engine/cpu/pack_cache.h"

enum { ROWS = 16384, COLS = 4096, RUNS = 5, HEADER_BYTES = 64 };

static const struct {
    const char *name;
    enum tensor_type type;
} types[] = {
    {"Q4_0", TENSOR_Q4_0},     {"Q4_1", TENSOR_Q4_1},   {"Q5_0", TENSOR_Q5_0},
    {"Q5_1", TENSOR_Q5_1},     {"Q8_0", TENSOR_Q8_0},   {"Q2_K", TENSOR_Q2_K},
    {"Q3_K", TENSOR_Q3_K},     {"Q4_K", TENSOR_Q4_K},   {"Q5_K", TENSOR_Q5_K},
    {"Q6_K", TENSOR_Q6_K},     {"F16", TENSOR_F16},     {"F32", TENSOR_F32},
    {"IQ4_NL", TENSOR_IQ4_NL}, {"MXFP4", TENSOR_MXFP4},
};

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_pack: %s\n", what);
    exit(1);
}

/* A model file with one matrix. */
static void model_make(struct gguf *g, struct gguf_tensor *tensor, struct weight *w, char *path)
{
    const struct tensor_type_info *info = tensor_type_info(w->type);
    size_t len = (size_t)w->rows * w->cols / info->block_len * info->block_bytes;
    uint64_t *bytes = malloc(HEADER_BYTES + len);
    FILE *out = fopen(path, "wb");
    if (!bytes || !out)
        fail(path);
    for (size_t i = 0; i < (HEADER_BYTES + len) / sizeof *bytes; i++)
        bytes[i] = hash_mix(i);
    if (fwrite(bytes, 1, HEADER_BYTES + len, out) != HEADER_BYTES + len || fclose(out) != 0)
        fail(path);
    w->data = tensor->data = (uint8_t *)bytes + HEADER_BYTES;
    *g = (struct gguf){.path = path,
                       .map = (uint8_t *)bytes,
                       .map_bytes = HEADER_BYTES + len,
                       .tensors = tensor,
                       .n_tensors = 1};
}

static double pack_seconds(const struct weight_store *s)
{
    double best = 1e9;
    struct packed_matrix *m = s->matrices[0];
    for (int i = 0; i < RUNS; i++) {
        memset(m->data, 0, m->bytes);
        double start = thread_seconds();
        matrix_fill(m, s->weights[0], 0, m->n_panels, m->data, NULL);
        double took = thread_seconds() - start;
        best = took < best ? took : best;
    }
    return best;
}

static double read_seconds(const struct weight_store *s)
{
    struct pack_cache *c;
    enum pack_cache_state state;
    struct error err;
    atomic_bool stop = false;
    double best = 1e9;
    if (pack_cache_open(&c, s, &state, &err) || pack_cache_write(c, &stop, &err))
        fail(err.message);
    pack_cache_close(c);
    if (pack_cache_open(&c, s, &state, &err) || state != PACK_CACHE_USABLE)
        fail("the file that was written is not usable");
    for (int run = 0; run < RUNS; run++) {
        double start = thread_seconds();
        for (uint32_t i = 0; i < s->n_pieces; i++)
            if (pack_cache_read(c, i, &err))
                fail(err.message);
        double took = thread_seconds() - start;
        best = took < best ? took : best;
    }
    unlink(pack_cache_path(c));
    pack_cache_close(c);
    return best;
}

int main(int argc, char **argv)
{
    char path[512];
    snprintf(path, sizeof path, "%s/bench_pack.%d", argc > 1 ? argv[1] : "/tmp", (int)getpid());
    printf("%d x %d, one thread\n", ROWS, COLS);
    printf("type    packed MB   pack GB/s   read GB/s   read is faster by\n");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct gguf gguf;
        struct gguf_tensor tensor = {0};
        struct weight w = weight_make(types[i].type, ROWS, COLS, NULL);
        const struct weight *weights[] = {&w};
        struct weight_store store;
        struct checkpoint checkpoint = {.path = path, .gguf = &gguf};
        model_make(&gguf, &tensor, &w, path);
        checkpoint.file_bytes = gguf.map_bytes;
        if (weight_store_open(&store, &checkpoint, weights, 1, NULL))
            fail("no memory");
        double pack = pack_seconds(&store), read = read_seconds(&store);
        printf("%-6s %10.0f %11.2f %11.2f %19.1f\n", types[i].name, (double)store.size_bytes / 1e6,
               (double)store.size_bytes / pack / 1e9, (double)store.size_bytes / read / 1e9,
               pack / read);
        weight_store_close(&store);
        free((void *)(uintptr_t)gguf.map);
        unlink(path);
    }
    return 0;
}
