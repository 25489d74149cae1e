/* Measures the machine's best speed; see machine_limits.h. The owner of the thread pool calls this
 * and takes part as thread 0. Threads do not all start when a job does, so a slice is timed from
 * the first thread's start to the last one's end, by their own clocks, not by the length of the
 * job. */
#include "engine/cpu/machine_limits.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu_topology.h"
#include "engine/cpu/kernels/buffer.h"

enum {
    LINE_BYTES = 64,
    CACHES = 8, /* memory to read, in largest caches, so that little of it is cached */
    FEWEST_BYTES = 256 << 20,
    MOST_BYTES = 1 << 30,
    SLICE_NS = 100 * 1000,
    READ_SLICE_NS = 40 * 1000 * 1000,
    ENOUGH_SLICES = 8, /* with all threads running, before the best of them is trusted */
    FIRST_ROUNDS = 256,
};

/* One thread's part of a slice, in a cache line of its own. */
struct part {
    _Alignas(64) uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t work;     /* bytes or multiply-adds */
    double best_per_s; /* of this thread alone */
};

struct machine_probe {
    struct parallel *pool;
    uint32_t n_at_once; /* threads that can run at the same time */
    struct buffer memory;
    struct part *parts;
    /* A slice runs `rounds` of a peak loop or, if NULL, reads all memory. */
    uint64_t (*loop)(uint32_t rounds);
    uint32_t rounds;
};

/* The start of the thread's share of memory, in whole lines. */
static uint64_t share_begin(const struct machine_probe *p, uint32_t thread)
{
    return p->memory.size_bytes / LINE_BYTES * thread / parallel_threads(p->pool) * LINE_BYTES;
}

static uint64_t read_share(const struct machine_probe *p, uint32_t thread)
{
    uint64_t begin = share_begin(p, thread), n_bytes = share_begin(p, thread + 1) - begin;
    const uint64_t *words = (const uint64_t *)((const uint8_t *)p->memory.data + begin);
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < n_bytes / sizeof *words; i += 8)
        for (int k = 0; k < 8; k++)
            sums[k] ^= words[i + k];
    for (int k = 1; k < 8; k++)
        sums[0] ^= sums[k];
    volatile uint64_t keep = sums[0];
    (void)keep;
    return n_bytes;
}

static void slice_job(void *context, uint32_t thread, uint32_t n_threads)
{
    struct machine_probe *p = context;
    struct part *part = &p->parts[thread];
    (void)n_threads;
    parallel_barrier(p->pool, thread);
    part->begin_ns = clock_now_ns();
    part->work = p->loop ? p->loop(p->rounds) : read_share(p, thread);
    part->end_ns = clock_now_ns();
}

/* The result of one slice. */
struct slice {
    uint64_t length_ns, work;
    bool is_shared; /* all threads ran most of the time */
};

static struct slice slice_run(struct machine_probe *p)
{
    uint32_t n_threads = parallel_threads(p->pool);
    parallel_run(p->pool, slice_job, p);
    uint64_t begin_ns = p->parts[0].begin_ns, last_begin_ns = begin_ns;
    uint64_t end_ns = p->parts[0].end_ns;
    struct slice slice = {0};
    for (uint32_t t = 0; t < n_threads; t++) {
        const struct part *part = &p->parts[t];
        begin_ns = part->begin_ns < begin_ns ? part->begin_ns : begin_ns;
        last_begin_ns = part->begin_ns > last_begin_ns ? part->begin_ns : last_begin_ns;
        end_ns = part->end_ns > end_ns ? part->end_ns : end_ns;
        slice.work += part->work;
    }
    slice.length_ns = end_ns > begin_ns ? end_ns - begin_ns : 1;
    slice.is_shared = (last_begin_ns - begin_ns) * 5 < slice.length_ns;
    return slice;
}

static double rate_of(uint64_t work, uint64_t ns)
{
    return (double)work * 1e9 / (double)(ns > 0 ? ns : 1);
}

/* The sum of each thread's best, for machines so busy that threads never have their cores at the
 * same time. It may be more than they could do together, but not less. If there are more threads
 * than cores, only as many as cores count. */
static double sum_of_threads(const struct machine_probe *p)
{
    uint32_t n_threads = parallel_threads(p->pool);
    double sum = 0;
    for (uint32_t t = 0; t < n_threads; t++)
        sum += p->parts[t].best_per_s;
    return n_threads > p->n_at_once ? sum * p->n_at_once / n_threads : sum;
}

static void note_threads(struct machine_probe *p)
{
    for (uint32_t t = 0; t < parallel_threads(p->pool); t++) {
        struct part *part = &p->parts[t];
        double rate = rate_of(part->work, part->end_ns - part->begin_ns);
        part->best_per_s = rate > part->best_per_s ? rate : part->best_per_s;
    }
}

/* Bytes per second in the best slice of the given time, or *best if that is more. */
static void measure_reading(struct machine_probe *p, uint32_t duration_ms, double *best)
{
    uint64_t end_ns = clock_now_ns() + (uint64_t)duration_ms * 1000000;
    p->loop = NULL;
    do {
        struct slice whole = {0};
        do {
            struct slice once = slice_run(p);
            whole.work += once.work;
            whole.length_ns += once.length_ns;
        } while (whole.length_ns < READ_SLICE_NS && clock_now_ns() < end_ns);
        double rate = rate_of(whole.work, whole.length_ns);
        *best = rate > *best ? rate : *best;
    } while (clock_now_ns() < end_ns);
}

/* Work per second in the best slice of the given time, or *best if that is more. */
static void measure_loop(struct machine_probe *p, uint64_t (*loop)(uint32_t rounds),
                         uint32_t duration_ms, double *best)
{
    uint64_t end_ns = clock_now_ns() + (uint64_t)duration_ms * 1000000;
    uint32_t n_slices = 0, n_shared = 0;
    p->loop = loop;
    p->rounds = FIRST_ROUNDS;
    for (uint32_t t = 0; t < parallel_threads(p->pool); t++)
        p->parts[t].best_per_s = 0;
    do {
        struct slice slice = slice_run(p);
        if (p->parts[0].end_ns - p->parts[0].begin_ns < SLICE_NS) {
            p->rounds *= 2; /* too short to time, or for a CPU to reach its full clock */
            continue;
        }
        double rate = rate_of(slice.work, slice.length_ns);
        *best = rate > *best ? rate : *best;
        note_threads(p);
        n_slices++;
        n_shared += slice.is_shared;
    } while (clock_now_ns() < end_ns || n_slices == 0);
    if (n_shared < ENOUGH_SLICES && sum_of_threads(p) > *best)
        *best = sum_of_threads(p);
}

/* Size of the last-level cache according to the system; 0 if it does not say. sysconf would give
 * the size for the whole host of a virtual machine. */
static uint64_t cache_bytes(void)
{
    char path[64];
    unsigned long long kib = 0;
    for (int level = 3; level > 0 && kib == 0; level--) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", level);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%lluK", &kib) != 1)
            kib = 0;
        if (file)
            fclose(file);
    }
    return kib * 1024;
}

static void touch_job(void *context, uint32_t thread, uint32_t n_threads)
{
    struct machine_probe *p = context;
    uint64_t begin = share_begin(p, thread);
    (void)n_threads;
    memset((uint8_t *)p->memory.data + begin, 1, share_begin(p, thread + 1) - begin);
}

int machine_probe_open(struct machine_probe **out, struct parallel *pool, struct error *err)
{
    struct machine_probe *p = calloc(1, sizeof *p);
    uint32_t n_threads = parallel_threads(pool);
    size_t bytes = CACHES * cache_bytes();
    bytes = bytes < FEWEST_BYTES ? FEWEST_BYTES : bytes < MOST_BYTES ? bytes : MOST_BYTES;
    if (p)
        p->parts = aligned_alloc(64, n_threads * sizeof *p->parts);
    if (!p || !p->parts) {
        machine_probe_close(p);
        return error_set(err, ERROR_MEMORY, "no memory to measure the machine");
    }
    struct cpu_topology cpus;
    if (cpu_topology_open(&cpus, err)) {
        machine_probe_close(p);
        return -1;
    }
    p->pool = pool;
    p->n_at_once = cpu_topology_available(&cpus);
    cpu_topology_close(&cpus);
    if (buffer_map(&p->memory, bytes, "measuring memory", err)) {
        machine_probe_close(p);
        return -1;
    }
    parallel_run(pool, touch_job, p);
    *out = p;
    return 0;
}

void machine_probe_close(struct machine_probe *p)
{
    if (!p)
        return;
    buffer_unmap(&p->memory);
    free(p->parts);
    free(p);
}

void machine_probe_run(struct machine_probe *p, const struct kernels *kernels, uint32_t duration_ms,
                       struct machine_limits *best)
{
    measure_reading(p, duration_ms, &best->read_bytes_per_s);
    measure_loop(p, kernels->peak->int8_macs, duration_ms, &best->int8_macs_per_s);
    measure_loop(p, kernels->peak->float_macs, duration_ms, &best->float_macs_per_s);
    best->cache_bytes = cache_bytes();
}
