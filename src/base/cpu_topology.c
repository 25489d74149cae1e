/* Chooses the CPUs for compute threads, from what Linux reports under /sys/devices. Careful: CPU
 * numbers mean nothing. The two hardware threads of a core may be 0 and 1, or 0 and 8, and the fast
 * cores of a hybrid CPU may come first or last. */
#include "base/cpu_topology.h"

#include <ctype.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/machine.h"

#define DEVICES "/sys/devices"

enum { MAX_FILE_BYTES = 1 << 16, MAX_CPUS = 1 << 20, MAX_NODES = 1024 };

/* A CPU that the process may use. */
struct cpu {
    uint32_t id;
    uint32_t core; /* the lowest CPU among the hardware threads of its core */
    uint32_t rank; /* how many usable CPUs of the same core come before it */
    uint32_t package, node;
    uint32_t package_cores, node_cores; /* usable fast cores there */
    uint64_t speed;                     /* in any unit; 0: unknown */
    bool is_slow;
};

/* Reads a file below `devices`; NULL if it cannot be read. The caller frees `out`. */
__attribute__((format(printf, 3, 4))) static const char *text_read(struct strbuf *out,
                                                                   const char *devices,
                                                                   const char *format, ...)
{
    char path[4096];
    struct error ignored;
    int at = snprintf(path, sizeof path, "%s/", devices);
    if (at >= (int)sizeof path)
        return NULL;
    va_list args;
    va_start(args, format);
    int len = vsnprintf(path + at, sizeof path - (size_t)at, format, args);
    va_end(args);
    if (len >= (int)sizeof path - at || file_read(path, MAX_FILE_BYTES, out, &ignored))
        return NULL;
    return strbuf_str(out);
}

static bool number_next(const char **text, uint32_t *number)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return false;
    unsigned long value = strtoul(*text, &end, 10);
    *text = end;
    *number = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
    return true;
}

/* Iterates over a list like "0-3,8,10-11"; false at its end, or if it is not such a list. */
static bool list_next(const char **list, uint32_t *first, uint32_t *last)
{
    if (!*list || !number_next(list, first))
        return false;
    *last = *first;
    if (**list == '-') {
        (*list)++;
        if (!number_next(list, last))
            return false;
    }
    *list += **list == ',';
    return true;
}

static bool list_has(const char *list, uint32_t number)
{
    for (uint32_t first, last; list_next(&list, &first, &last);)
        if (number >= first && number <= last)
            return true;
    return false;
}

static uint64_t number_in(const char *text, uint64_t otherwise)
{
    uint64_t number;
    return text && *text != '-' && sscanf(text, "%" SCNu64, &number) == 1 ? number : otherwise;
}

static void core_read(struct cpu *c, const char *devices)
{
    static const char *const names[] = {"core_cpus_list", "thread_siblings_list"}; /* new, old */
    struct strbuf text = STRBUF_INIT;
    c->core = c->id;
    for (int i = 0; i < 2; i++) {
        uint32_t first, last;
        const char *list = text_read(&text, devices, "system/cpu/cpu%u/topology/%s", c->id,
                                     names[i]);
        bool is_found = list_has(list, c->id) && list_next(&list, &first, &last);
        strbuf_clear(&text);
        if (is_found) {
            c->core = first;
            break;
        }
    }
    c->package = (uint32_t)number_in(
        text_read(&text, devices, "system/cpu/cpu%u/topology/physical_package_id", c->id), 0);
    strbuf_free(&text);
}

static void speed_read(struct cpu *c, const char *devices)
{
    struct strbuf capacity = STRBUF_INIT, frequency = STRBUF_INIT;
    c->speed = number_in(text_read(&capacity, devices, "system/cpu/cpu%u/cpu_capacity", c->id), 0);
    if (c->speed == 0)
        c->speed = number_in(
            text_read(&frequency, devices, "system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", c->id), 0);
    strbuf_free(&capacity);
    strbuf_free(&frequency);
}

/* Intel's hybrid CPUs list their performance cores in a folder, and report no capacity. */
static void hybrid_read(struct cpu *cpus, uint32_t n, const char *devices)
{
    struct strbuf text = STRBUF_INIT;
    const char *list = text_read(&text, devices, "cpu_core/cpus");
    for (uint32_t i = 0; i < n && list; i++)
        cpus[i].speed = list_has(list, cpus[i].id) ? 2 : 1;
    strbuf_free(&text);
}

static void node_read(struct cpu *cpus, uint32_t n, const char *devices, uint32_t node)
{
    struct strbuf text = STRBUF_INIT;
    const char *list = text_read(&text, devices, "system/node/node%u/cpulist", node);
    for (uint32_t first, last; list_next(&list, &first, &last);)
        for (uint32_t i = 0; i < n; i++)
            if (cpus[i].id >= first && cpus[i].id <= last)
                cpus[i].node = node;
    strbuf_free(&text);
}

static void nodes_read(struct cpu *cpus, uint32_t n, const char *devices)
{
    struct strbuf text = STRBUF_INIT;
    const char *nodes = text_read(&text, devices, "system/node/online");
    for (uint32_t first, last; list_next(&nodes, &first, &last);)
        for (uint32_t node = first; node <= last && node < MAX_NODES; node++)
            node_read(cpus, n, devices, node);
    strbuf_free(&text);
}

/* The highest frequencies of cores differ a little; slow cores have less than three quarters of the
 * largest. If one CPU reports nothing, none counts as slow. */
static void find_slow(struct cpu *cpus, uint32_t n)
{
    uint64_t fastest = 0;
    for (uint32_t i = 0; i < n; i++)
        fastest = cpus[i].speed > fastest ? cpus[i].speed : fastest;
    for (uint32_t i = 0; i < n; i++)
        if (cpus[i].speed == 0)
            return;
    for (uint32_t i = 0; i < n; i++)
        cpus[i].is_slow = cpus[i].speed < fastest - fastest / 4;
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_core(const void *a, const void *b)
{
    const struct cpu *x = a, *y = b;
    int order = compare(x->core, y->core);
    return order ? order : compare(x->id, y->id);
}

static int by_preference(const void *a, const void *b)
{
    const struct cpu *x = a, *y = b;
    const int orders[] = {compare(x->rank, y->rank),
                          compare(x->is_slow, y->is_slow),
                          compare(y->package_cores, x->package_cores),
                          compare(x->package, y->package),
                          compare(y->node_cores, x->node_cores),
                          compare(x->node, y->node),
                          compare(x->id, y->id)};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (orders[i])
            return orders[i];
    return 0;
}

static void find_order(struct cpu *cpus, uint32_t n)
{
    qsort(cpus, n, sizeof *cpus, by_core);
    for (uint32_t i = 1; i < n; i++)
        cpus[i].rank = cpus[i].core == cpus[i - 1].core ? cpus[i - 1].rank + 1 : 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            if (cpus[j].rank > 0 || cpus[j].is_slow || cpus[j].package != cpus[i].package)
                continue;
            cpus[i].package_cores++;
            cpus[i].node_cores += cpus[j].node == cpus[i].node;
        }
    }
    qsort(cpus, n, sizeof *cpus, by_preference);
}

int cpu_topology_read(struct cpu_topology *out, const char *devices, const uint32_t *allowed,
                      uint32_t n_allowed, struct error *err)
{
    struct cpu *cpus = calloc(n_allowed, sizeof *cpus);
    *out = (struct cpu_topology){
        .order = calloc(n_allowed, sizeof *out->order), .n_cpus = n_allowed, .quota = n_allowed};
    if (!cpus || !out->order) {
        free(cpus);
        cpu_topology_close(out);
        return error_set(err, ERROR_MEMORY, "no memory for a list of %u CPUs", n_allowed);
    }
    for (uint32_t i = 0; i < n_allowed; i++) {
        cpus[i].id = allowed[i];
        core_read(&cpus[i], devices);
        speed_read(&cpus[i], devices);
    }
    hybrid_read(cpus, n_allowed, devices);
    nodes_read(cpus, n_allowed, devices);
    find_slow(cpus, n_allowed);
    find_order(cpus, n_allowed);
    for (uint32_t i = 0; i < n_allowed; i++) {
        out->order[i] = cpus[i].id;
        out->n_cores += cpus[i].rank == 0;
        out->n_fast += cpus[i].rank == 0 && !cpus[i].is_slow;
    }
    free(cpus);
    return 0;
}

/* The CPUs that the process may use, in a set of CPU_ALLOC, or NULL. The kernel rejects a set
 * smaller than its own, and does not report that size. */
static cpu_set_t *affinity_read(size_t *max_cpus)
{
    for (*max_cpus = CPU_SETSIZE; *max_cpus <= MAX_CPUS; *max_cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(*max_cpus);
        if (set && sched_getaffinity(0, CPU_ALLOC_SIZE(*max_cpus), set) == 0)
            return set;
        CPU_FREE(set);
    }
    return NULL;
}

/* The numbers of the usable CPUs. If the system does not report them, the first ones, as many as it
 * has. */
static uint32_t *allowed_cpus(uint32_t *n)
{
    size_t max_cpus;
    cpu_set_t *set = affinity_read(&max_cpus);
    long count = set ? CPU_COUNT_S(CPU_ALLOC_SIZE(max_cpus), set) : sysconf(_SC_NPROCESSORS_ONLN);
    *n = count > 0 ? (uint32_t)count : 1;
    uint32_t *cpus = calloc(*n, sizeof *cpus);
    for (uint32_t i = 0, cpu = 0; i < *n && cpus; cpu++)
        if (!set || CPU_ISSET_S(cpu, CPU_ALLOC_SIZE(max_cpus), set))
            cpus[i++] = cpu;
    CPU_FREE(set);
    return cpus;
}

int cpu_topology_open(struct cpu_topology *out, struct error *err)
{
    uint32_t n, *allowed = allowed_cpus(&n);
    if (!allowed)
        return error_set(err, ERROR_MEMORY, "no memory for a list of CPUs");
    int failed = cpu_topology_read(out, DEVICES, allowed, n, err);
    free(allowed);
    if (!failed)
        out->quota = machine_cpu_quota(n);
    return failed;
}

void cpu_topology_close(struct cpu_topology *t)
{
    free(t->order);
    *t = (struct cpu_topology){0};
}

uint32_t cpu_topology_available(const struct cpu_topology *t)
{
    return t->quota < t->n_cpus ? t->quota : t->n_cpus;
}

uint32_t cpu_topology_threads(const struct cpu_topology *t)
{
    return t->quota < t->n_fast ? t->quota : t->n_fast;
}

bool cpu_topology_should_pin(const struct cpu_topology *t, uint32_t n_threads)
{
    return n_threads == t->n_fast && n_threads < t->n_cpus && n_threads <= t->quota;
}

bool cpu_pin(const uint32_t *cpus, uint32_t n)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < n; i++)
        last = cpus[i] > last ? cpus[i] : last;
    size_t size_bytes = CPU_ALLOC_SIZE(last + 1);
    cpu_set_t *set = CPU_ALLOC(last + 1);
    if (!set)
        return false;
    CPU_ZERO_S(size_bytes, set);
    for (uint32_t i = 0; i < n; i++)
        CPU_SET_S(cpus[i], size_bytes, set);
    bool is_pinned = sched_setaffinity(0, size_bytes, set) == 0;
    CPU_FREE(set);
    return is_pinned;
}
