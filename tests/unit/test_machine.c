/* The limits of control groups, from trees of files like the kernel's. */
#include "test.h"
#include "test_files.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/machine.h"

static char root[256], groups[300];

static void make_folder(const char *path)
{
    CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
}

/* A fresh tree in which the process is in the group that `line` names. */
static void tree_begin(const char *name, const char *line)
{
    snprintf(root, sizeof root, "%s/%s", test_scratch_dir(), name);
    snprintf(groups, sizeof groups, "%s/groups", root);
    make_folder(root);
    test_file_write_text(groups, line);
}

/* Adds a file below the root, and the folders on the way to it. */
static void tree_add(const char *relative, const char *content)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", root, relative);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        make_folder(path);
        *slash = '/';
    }
    test_file_write_text(path, content);
}

TEST(machine, has_time_and_memory)
{
    CHECK(machine_cpu_quota(1) == 1);
    CHECK(machine_cpu_quota(4096) >= 1 && machine_cpu_quota(4096) <= 4096);
    CHECK(machine_memory_bytes() >= (uint64_t)16 << 20);
}

TEST(machine, has_free_memory)
{
    CHECK(machine_free_memory_bytes() > 0);
    CHECK(machine_free_memory_bytes() <= machine_memory_bytes());
    tree_begin("meminfo", "");
    tree_add("full", "MemTotal:       64 kB\nMemFree:  1 kB\nMemAvailable:    48 kB\nX: 1 kB\n");
    tree_add("silent", "MemTotal:       64 kB\n");
    tree_add("odd", "MemAvailable: many kB\nMemAvailable: 18446744073709551615 kB\n");
    char path[300];
    snprintf(path, sizeof path, "%s/full", root);
    CHECK_INT(meminfo_available_bytes(path), 48 << 10);
    snprintf(path, sizeof path, "%s/silent", root);
    CHECK_INT(meminfo_available_bytes(path), 0);
    snprintf(path, sizeof path, "%s/odd", root);
    CHECK_INT(meminfo_available_bytes(path), 0);
    CHECK_INT(meminfo_available_bytes("/nonexistent/meminfo"), 0);
}

TEST(machine, without_groups_there_is_no_limit)
{
    CHECK_INT(cgroup_cpu_quota("build/nothing", "build/nothing", 8), 8);
    CHECK_INT(cgroup_memory_bytes("build/nothing", "build/nothing", 1 << 30), 1 << 30);
}

TEST(machine, version_2_takes_the_smallest_limit_on_the_way_up)
{
    tree_begin("v2", "0::/user/service\n");
    tree_add("user/service/cpu.max", "max 100000\n");
    tree_add("user/service/memory.max", "max\n");
    CHECK_INT(cgroup_cpu_quota(root, groups, 8), 8);
    CHECK_INT(cgroup_memory_bytes(root, groups, 1 << 30), 1 << 30);
    tree_add("user/cpu.max", "250000 100000\n");
    tree_add("user/memory.max", "268435456\n");
    CHECK_INT(cgroup_cpu_quota(root, groups, 8), 2); /* two and a half */
    CHECK_INT(cgroup_cpu_quota(root, groups, 1), 1);
    CHECK_INT(cgroup_memory_bytes(root, groups, 1 << 30), 268435456);
    tree_add("user/service/cpu.max", "1000 100000\n");
    CHECK_INT(cgroup_cpu_quota(root, groups, 8), 1);
}

TEST(machine, a_container_sees_its_group_as_the_root)
{
    tree_begin("container", "0::/../../host/name\n");
    tree_add("cpu.max", "300000 100000\n");
    tree_add("memory.max", "536870912\n");
    CHECK_INT(cgroup_cpu_quota(root, groups, 8), 3);
    CHECK_INT(cgroup_memory_bytes(root, groups, 1 << 30), 536870912);
}

TEST(machine, version_1_is_mounted_by_controller)
{
    tree_begin("v1", "7:cpuset:/\n4:memory:/pod/one\n2:cpu,cpuacct:/pod\n");
    tree_add("cpu/pod/cpu.cfs_quota_us", "-1\n");
    tree_add("cpu/pod/cpu.cfs_period_us", "100000\n");
    tree_add("memory/pod/one/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK_INT(cgroup_cpu_quota(root, groups, 8), 8);
    CHECK_INT(cgroup_memory_bytes(root, groups, 1 << 30), 1 << 30);
    tree_add("cpu/pod/cpu.cfs_quota_us", "200000\n");
    tree_add("memory/pod/memory.limit_in_bytes", "104857600\n");
    CHECK_INT(cgroup_cpu_quota(root, groups, 8), 2);
    CHECK_INT(cgroup_memory_bytes(root, groups, 1 << 30), 104857600);
}

TEST(machine, nonsense_is_no_limit)
{
    tree_begin("nonsense", "no colons\n:\n1:cpu\n0::relative\n0::/deep");
    tree_add("cpu.max", "0 0\n");
    tree_add("memory.max", "many\n");
    tree_add("deep/cpu.max", "");
    tree_add("deep/memory.max", "12 apples\n");
    CHECK_INT(cgroup_cpu_quota(root, groups, 8), 8);
    CHECK_INT(cgroup_memory_bytes(root, groups, 1 << 30), 1 << 30);
}

TEST(machine, knows_what_this_process_has)
{
    enum { MORE = 64 << 20 };
    uint64_t before = machine_resident_bytes();
    char *memory = malloc(MORE);
    CHECK(memory != NULL);
    memset(memory, 1, MORE);
    uint64_t after = machine_resident_bytes();
    CHECK(before > 0 && after >= before + MORE * 3ull / 4 && after < before + MORE * 5ull / 4);
    CHECK(memory[MORE - 1] == 1);
    free(memory);
}

/* Sanitizers replace malloc, and glibc's counters do not see theirs. So this calls glibc's own,
 * which maps large blocks and cuts small ones from its heap; each is counted separately. */
TEST(machine, knows_what_malloc_took)
{
    enum { SMALL = 1000, N_SMALL = 500, N_CACHED = 16, LARGE = 64 << 20 };
#if !defined(__GLIBC__) || !__GLIBC_PREREQ(2, 33)
    SKIP("this C library does not count its heap");
#endif
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    CHECK(libc != NULL);
    void *(*take)(size_t) = (void *(*)(size_t))dlsym(libc, "malloc");
    void (*give)(void *) = (void (*)(void *))dlsym(libc, "free");
    void *small[N_SMALL], *cached[N_CACHED];
    for (int i = 0; i < N_CACHED; i++) /* blocks kept for reuse count as taken */
        cached[i] = take(SMALL);
    uint64_t before = machine_heap_bytes();
    for (int i = 0; i < N_SMALL; i++)
        small[i] = take(SMALL);
    uint64_t with_small = machine_heap_bytes() - before;
    void *large = take(LARGE);
    uint64_t with_large = machine_heap_bytes() - before;
    CHECK(with_small >= N_SMALL * SMALL && with_small < 2 * N_SMALL * SMALL);
    CHECK(with_large >= with_small + LARGE && with_large < with_small + LARGE + (1 << 20));
    give(large);
    for (int i = 0; i < N_SMALL; i++)
        give(small[i]);
    CHECK(machine_heap_bytes() - before < with_small / 10); /* it caches a few */
    for (int i = 0; i < N_CACHED; i++)
        give(cached[i]);
    dlclose(libc);
}
