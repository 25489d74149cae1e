/* Brings the model's matrices into memory: packed by all threads, or read from a file that an
 * earlier start wrote; see weight_store.h. Owned by the thread that opens the engine. No byte of a
 * matrix changes after loading, so a background thread may write them to the file while others
 * compute with them. */
#include "engine/cpu/weight_store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/cpu/kernels/matmul_internal.h"
#include "engine/cpu/pack_cache.h"

enum { PIECE_BYTES = 4 << 20, WRITER_NICE = 10 };

static uint32_t piece_panels(const struct packed_matrix *m)
{
    return m->panel_bytes < PIECE_BYTES ? (uint32_t)(PIECE_BYTES / m->panel_bytes) : 1;
}

static int cut_pieces(struct weight_store *s, struct error *err)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_matrices; i++)
        n += s->matrices[i]->n_panels / piece_panels(s->matrices[i]) + 1;
    s->pieces = calloc(n, sizeof *s->pieces);
    if (!s->pieces)
        return error_set(err, ERROR_MEMORY, "no memory for the list of weights");
    for (uint32_t i = 0; i < s->n_matrices; i++) {
        uint32_t end = s->matrices[i]->n_panels, step = piece_panels(s->matrices[i]);
        for (uint32_t at = 0; at < end; at += step)
            s->pieces[s->n_pieces++] = (struct weight_piece){
                .matrix = i, .panel_begin = at, .panel_end = end - at < step ? end : at + step};
    }
    return 0;
}

int weight_store_open(struct weight_store *s, const struct checkpoint *checkpoint,
                      const struct weight *const *weights, uint32_t n_weights, struct error *err)
{
    *s = (struct weight_store){.checkpoint = checkpoint};
    s->weights = calloc(n_weights, sizeof *s->weights);
    s->matrices = calloc(n_weights, sizeof *s->matrices);
    if (!s->weights || !s->matrices)
        return error_set(err, ERROR_MEMORY, "no memory for the list of weights");
    for (; s->n_matrices < n_weights; s->n_matrices++) {
        struct packed_matrix *m = matrix_new(weights[s->n_matrices], err);
        if (!m)
            return -1;
        s->weights[s->n_matrices] = weights[s->n_matrices];
        s->matrices[s->n_matrices] = m;
        s->size_bytes += m->bytes;
    }
    return cut_pieces(s, err);
}

/* Every thread takes the next piece until none is left. */
struct loading {
    struct weight_store *store;
    bool from_file, clear; /* read instead of pack; a failed read left data behind */
    atomic_uint next, n_done;
    atomic_ullong compute_ns; /* of all threads together */
    atomic_bool failed;
    struct error *errors; /* [n_threads] */
    engine_progress progress;
    void *context;
};

static int piece_load(const struct loading *l, uint32_t index, struct error *err)
{
    const struct weight_store *s = l->store;
    if (l->from_file)
        return pack_cache_read(s->cache, index, err);
    const struct weight_piece *piece = &s->pieces[index];
    const struct packed_matrix *m = s->matrices[piece->matrix];
    uint8_t *panels = m->data + piece->panel_begin * m->panel_bytes;
    if (l->clear)
        memset(panels, 0, (piece->panel_end - piece->panel_begin) * m->panel_bytes);
    return matrix_fill(m, s->weights[piece->matrix], piece->panel_begin, piece->panel_end, panels,
                       err);
}

/* The time that this thread computed. Excludes waiting for the disk, for other programs, and for
 * the system to allocate memory, all of which it would wait for in any case. */
static uint64_t thread_compute_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_utime.tv_sec * 1000000000u + (uint64_t)usage.ru_utime.tv_usec * 1000u;
}

static void load_job(void *context, uint32_t thread, uint32_t n_threads)
{
    struct loading *l = context;
    (void)n_threads;
    uint64_t start = thread_compute_ns();
    for (uint32_t i; (i = atomic_fetch_add(&l->next, 1)) < l->store->n_pieces;) {
        if (atomic_load(&l->failed))
            break;
        if (piece_load(l, i, &l->errors[thread]))
            atomic_store(&l->failed, true);
        uint32_t n_done = atomic_fetch_add(&l->n_done, 1) + 1;
        if (thread == 0 && l->progress)
            l->progress(l->context, (double)n_done / l->store->n_pieces);
    }
    atomic_fetch_add(&l->compute_ns, thread_compute_ns() - start);
}

/* Returns how long it took. */
static uint64_t load_pieces(struct loading *l, struct parallel *pool)
{
    uint64_t start = clock_now_ns();
    l->next = l->n_done = 0;
    l->compute_ns = 0;
    l->failed = false;
    parallel_run(pool, load_job, l);
    return clock_now_ns() - start;
}

static void file_log(const struct weight_store *s, const char *what, uint64_t ns)
{
    log_info("%s %s: %.0f MiB in %.2f s", what, pack_cache_path(s->cache),
             (double)s->size_bytes / (1 << 20), (double)ns * 1e-9);
}

/* The error that stopped a failed load. */
static const struct error *first_error(const struct loading *l, const struct parallel *pool)
{
    uint32_t t = 0;
    while (t + 1 < parallel_threads(pool) && l->errors[t].code == ERROR_NONE)
        t++;
    return &l->errors[t];
}

/* Whether all weights were read from the file. */
static bool load_from_file(struct loading *l, struct parallel *pool)
{
    struct weight_store *s = l->store;
    l->from_file = true;
    uint64_t ns = load_pieces(l, pool);
    l->from_file = false;
    if (!l->failed) {
        file_log(s, "packed weights read from", ns);
        return true;
    }
    log_info("%s is not used: %s", pack_cache_path(s->cache), first_error(l, pool)->message);
    memset(l->errors, 0, parallel_threads(pool) * sizeof *l->errors);
    l->clear = true;
    return false;
}

static void *writer_main(void *context)
{
    struct weight_store *s = context;
    struct error err;
    setpriority(PRIO_PROCESS, 0, WRITER_NICE); /* on Linux, of this thread only */
    uint64_t start = clock_now_ns();
    if (pack_cache_write(s->cache, &s->stop, &err))
        log_info("%s is not written: %s", pack_cache_path(s->cache), err.message);
    else
        file_log(s, "packed weights saved for the next start in", clock_now_ns() - start);
    return NULL;
}

/* Looks for the file. If there cannot be a cache, goes on without one. */
static enum pack_cache_state cache_begin(struct weight_store *s)
{
    enum pack_cache_state state = PACK_CACHE_ABSENT;
    struct error err;
    if (pack_cache_open(&s->cache, s, &state, &err))
        log_info("no cache of packed weights: %s", err.message);
    else if (state == PACK_CACHE_BAD)
        log_info("%s is not used: %s", pack_cache_path(s->cache), err.message);
    return state;
}

/* Writes the file if it is missing, or removes it if it is bad. */
static void cache_renew(struct weight_store *s, struct parallel *pool, bool is_wanted,
                        enum pack_cache_state state)
{
    parallel_release(pool); /* otherwise the writer would be pinned to this thread's CPU */
    if (is_wanted && pthread_create(&s->writer, NULL, writer_main, s) == 0)
        s->is_writing = true;
    else if (state != PACK_CACHE_ABSENT)
        pack_cache_remove(s->cache);
}

/* Packs all matrices, and updates the file. */
static int load_from_model(struct loading *l, struct parallel *pool, bool keeps,
                           enum pack_cache_state state, struct error *err)
{
    struct weight_store *s = l->store;
    uint32_t n_threads = parallel_threads(pool);
    uint64_t ns = load_pieces(l, pool);
    if (l->failed) {
        if (err)
            *err = *first_error(l, pool);
        return -1;
    }
    log_debug("weights packed: %.0f MiB in %.2f s, %.2f s of it computing",
              (double)s->size_bytes / (1 << 20), (double)ns * 1e-9,
              (double)l->compute_ns * 1e-9 / n_threads);
    bool pays = pack_cache_pays(l->compute_ns / n_threads, s->size_bytes, n_threads);
    if (s->cache)
        cache_renew(s, pool, keeps || pays, state);
    return 0;
}

int weight_store_load(struct weight_store *s, struct parallel *pool, enum pack_cache_mode mode,
                      engine_progress progress, void *context, struct error *err)
{
    struct loading l = {.store = s, .progress = progress, .context = context};
    l.errors = calloc(parallel_threads(pool), sizeof *l.errors);
    if (!l.errors)
        return error_set(err, ERROR_MEMORY, "no memory for the list of weights");
    enum pack_cache_state state = mode == PACK_CACHE_OFF ? PACK_CACHE_ABSENT : cache_begin(s);
    int rc = 0;
    if (state != PACK_CACHE_USABLE || !load_from_file(&l, pool))
        rc = load_from_model(&l, pool, mode == PACK_CACHE_ON, state, err);
    free(l.errors);
    return rc;
}

void weight_store_close(struct weight_store *s)
{
    atomic_store(&s->stop, true);
    if (s->is_writing)
        pthread_join(s->writer, NULL);
    pack_cache_close(s->cache);
    for (uint32_t i = 0; i < s->n_matrices; i++)
        matrix_free(s->matrices[i]);
    free(s->weights);
    free(s->matrices);
    free(s->pieces);
    *s = (struct weight_store){0};
}
