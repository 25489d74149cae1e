/* The order of CPUs and the number of threads, from trees of files like those under /sys/devices.
 */
#include "test.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "base/cpu_topology.h"

static char root[256];

static void tree_begin(const char *name)
{
    snprintf(root, sizeof root, "%s/%s", test_scratch_dir(), name);
    CHECK(mkdir(root, 0700) == 0 || errno == EEXIST);
}

/* Adds a file below the root, and the folders on the way to it. */
__attribute__((format(printf, 2, 3))) static void tree_add(const char *content, const char *format,
                                                           ...)
{
    char path[600];
    va_list args;
    int len = snprintf(path, sizeof path, "%s/", root);
    va_start(args, format);
    vsnprintf(path + len, sizeof path - (size_t)len, format, args);
    va_end(args);
    for (char *slash = path + len; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    CHECK(f && fprintf(f, "%s\n", content) > 0 && fclose(f) == 0);
}

/* A CPU of a package with the hardware threads of its core. */
static void add_cpu(unsigned cpu, unsigned package, const char *siblings)
{
    char text[16];
    snprintf(text, sizeof text, "%u", package);
    tree_add(text, "system/cpu/cpu%u/topology/physical_package_id", cpu);
    tree_add(siblings, "system/cpu/cpu%u/topology/core_cpus_list", cpu);
}

/* Cores 0 .. n - 1 with the hardware threads i and i + n. */
static void add_far_siblings(unsigned n, unsigned n_packages)
{
    for (unsigned i = 0; i < n; i++) {
        char siblings[32];
        snprintf(siblings, sizeof siblings, "%u,%u", i, i + n);
        add_cpu(i, i * n_packages / n, siblings);
        add_cpu(i + n, i * n_packages / n, siblings);
    }
}

/* Compares with "order of CPUs|cores|fast cores" for the CPUs [first, end) without `hole`. */
static void check_order(uint32_t first, uint32_t end, uint32_t hole, const char *want)
{
    uint32_t allowed[64], n = 0;
    char got[512];
    size_t len = 0;
    struct cpu_topology t;
    struct error err;
    for (uint32_t i = first; i < end; i++)
        if (i != hole)
            allowed[n++] = i;
    CHECK_INT(cpu_topology_read(&t, root, allowed, n, &err), 0);
    CHECK_INT(t.n_cpus, n);
    CHECK_INT(t.quota, n);
    for (uint32_t i = 0; i < n; i++)
        len += (size_t)snprintf(got + len, sizeof got - len, "%s%u", i ? " " : "", t.order[i]);
    snprintf(got + len, sizeof got - len, "|%u|%u", t.n_cores, t.n_fast);
    cpu_topology_close(&t);
    CHECK_STR(got, want);
}

enum { NO_HOLE = 1000 };

TEST(cpu_topology, without_files_every_cpu_is_a_core)
{
    tree_begin("nothing");
    check_order(3, 7, NO_HOLE, "3 4 5 6|4|4");
    snprintf(root, sizeof root, "/nonexistent");
    check_order(0, 2, NO_HOLE, "0 1|2|2");
}

TEST(cpu_topology, plain_cores_in_their_order)
{
    tree_begin("plain");
    for (unsigned i = 0; i < 16; i++) {
        char own[16];
        snprintf(own, sizeof own, "%u", i);
        add_cpu(i, 0, own);
        tree_add(i == 3 ? "3500000" : "3400000", "system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", i);
    }
    tree_add("0-15", "system/node/node0/cpulist");
    tree_add("0", "system/node/online");
    check_order(0, 16, NO_HOLE, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15|16|16");
    check_order(5, 8, 6, "5 7|2|2");
}

TEST(cpu_topology, second_threads_of_a_core_come_last)
{
    tree_begin("far");
    add_far_siblings(8, 1);
    check_order(0, 16, NO_HOLE, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15|8|8");
    tree_begin("near");
    for (unsigned i = 0; i < 8; i++) {
        char siblings[32];
        snprintf(siblings, sizeof siblings, "%u-%u", i & ~1u, i | 1);
        add_cpu(i, 0, siblings);
    }
    check_order(0, 8, NO_HOLE, "0 2 4 6 1 3 5 7|4|4");
    tree_begin("old kernel");
    for (unsigned i = 0; i < 4; i++)
        tree_add(i % 2 ? "1,3" : "0,2", "system/cpu/cpu%u/topology/thread_siblings_list", i);
    check_order(0, 4, NO_HOLE, "0 1 2 3|2|2");
}

TEST(cpu_topology, a_core_may_be_allowed_in_part)
{
    tree_begin("part");
    add_far_siblings(4, 1);
    check_order(1, 8, NO_HOLE, "1 2 3 4 5 6 7|4|4"); /* 4 is all there is of core 0 */
    check_order(2, 7, NO_HOLE, "2 3 4 5 6|4|4");
    check_order(4, 8, NO_HOLE, "4 5 6 7|4|4");
    check_order(3, 8, 4, "3 5 6 7|3|3");
}

TEST(cpu_topology, few_threads_stay_in_one_package)
{
    tree_begin("packages");
    add_far_siblings(4, 2);
    check_order(1, 8, NO_HOLE, "1 4 2 3 5 6 7|4|4"); /* as drawn in cpu_topology.h */
    check_order(1, 4, NO_HOLE, "2 3 1|3|3");         /* the package with more cores first */
    tree_begin("nodes");
    for (unsigned i = 0; i < 6; i++) {
        char own[16];
        snprintf(own, sizeof own, "%u", i);
        add_cpu(i, 0, own);
    }
    tree_add("0,2,4", "system/node/node1/cpulist");
    tree_add("1,3,5", "system/node/node3/cpulist");
    tree_add("1,3", "system/node/online");
    check_order(0, 6, NO_HOLE, "0 2 4 1 3 5|6|6");
    check_order(0, 6, 2, "1 3 5 0 4|5|5");
}

/* 4 fast cores with two hardware threads and 8 slow ones with one. */
static void tree_hybrid(const char *name)
{
    tree_begin(name);
    for (unsigned i = 0; i < 16; i++) {
        char siblings[32];
        if (i < 8)
            snprintf(siblings, sizeof siblings, "%u-%u", i & ~1u, i | 1);
        else
            snprintf(siblings, sizeof siblings, "%u", i);
        add_cpu(i, 0, siblings);
    }
}

TEST(cpu_topology, fast_cores_first)
{
    static const char want[] = "0 2 4 6 8 9 10 11 12 13 14 15 1 3 5 7|12|4";
    tree_hybrid("intel");
    for (unsigned i = 0; i < 16; i++) /* their frequencies are too close to tell */
        tree_add(i < 8 ? "5000000" : "4000000", "system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", i);
    tree_add("0-7", "cpu_core/cpus");
    tree_add("8-15", "cpu_atom/cpus");
    check_order(0, 16, NO_HOLE, want);
    check_order(8, 16, NO_HOLE, "8 9 10 11 12 13 14 15|8|8"); /* only slow ones: none is slower */
    tree_hybrid("frequencies");
    for (unsigned i = 0; i < 16; i++)
        tree_add(i < 8 ? "5100000" : "3300000", "system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", i);
    check_order(0, 16, NO_HOLE, want);
    tree_begin("arm"); /* slow ones have the low numbers */
    for (unsigned i = 0; i < 8; i++) {
        tree_add(i < 4 ? "325" : i < 7 ? "870" : "1024", "system/cpu/cpu%u/cpu_capacity", i);
        tree_add("2000000", "system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", i);
    }
    check_order(0, 8, NO_HOLE, "4 5 6 7 0 1 2 3|8|4");
}

TEST(cpu_topology, nonsense_is_plain)
{
    static const char *const lists[] = {"x", "-", "0-", "1-0", "99999999999999999999", ",", "7,8"};
    tree_begin("nonsense");
    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) {
        add_cpu(i, 0, lists[i]);
        tree_add(lists[i], "system/cpu/cpu%u/topology/physical_package_id", i);
        tree_add(lists[i], "system/cpu/cpu%u/cpu_capacity", i);
    }
    tree_add("0-4294967295", "system/node/online");
    tree_add("0-4294967295,", "system/node/node0/cpulist");
    tree_add("?", "cpu_atom/cpus");
    uint32_t allowed[] = {0, 1, 2, 3, 4, 5, 6};
    struct cpu_topology t;
    struct error err;
    CHECK_INT(cpu_topology_read(&t, root, allowed, 7, &err), 0);
    CHECK_INT(t.n_cores, 7);
    CHECK_INT(t.n_fast, 7);
    cpu_topology_close(&t);
    tree_begin("some are silent"); /* then the speeds mean nothing */
    tree_add("1024", "system/cpu/cpu0/cpu_capacity");
    tree_add("100", "system/cpu/cpu1/cpu_capacity");
    check_order(0, 3, NO_HOLE, "0 1 2|3|3");
}

TEST(cpu_topology, one_thread_for_each_fast_core_within_the_quota)
{
    static const struct {
        struct cpu_topology t; /* order, n_cpus, n_cores, n_fast, quota */
        uint32_t available, threads;
        bool pin;
    } cases[] = {
        {{NULL, 16, 16, 16, 16}, 16, 16, false}, /* nothing left for others: not pinned */
        {{NULL, 16, 8, 8, 16}, 16, 8, true},     {{NULL, 16, 12, 4, 16}, 16, 4, true},
        {{NULL, 16, 8, 8, 2}, 2, 2, false}, /* other containers would pin to the same two */
        {{NULL, 16, 8, 8, 8}, 8, 8, true},       {{NULL, 1, 1, 1, 1}, 1, 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(cpu_topology_available(&cases[i].t), cases[i].available);
        CHECK_INT(cpu_topology_threads(&cases[i].t), cases[i].threads);
        CHECK_INT(cpu_topology_should_pin(&cases[i].t, cases[i].threads), cases[i].pin);
        CHECK(!cpu_topology_should_pin(&cases[i].t, cases[i].threads + 1));
        CHECK(!cpu_topology_should_pin(&cases[i].t, cases[i].threads - 1));
    }
}

TEST(cpu_topology, this_machine_has_what_the_process_may_use)
{
    struct cpu_topology t;
    struct error err;
    cpu_set_t set;
    CHECK_INT(cpu_topology_open(&t, &err), 0);
    CHECK(t.n_fast >= 1 && t.n_fast <= t.n_cores && t.n_cores <= t.n_cpus);
    CHECK(t.quota >= 1 && t.quota <= t.n_cpus);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        CHECK_INT(t.n_cpus, CPU_COUNT(&set));
        for (uint32_t i = 0; i < t.n_cpus; i++) {
            CHECK(CPU_ISSET(t.order[i], &set));
            CPU_CLR(t.order[i], &set); /* each once */
        }
    }
    cpu_topology_close(&t);
}
