/* CPU time and memory within the limits of control groups, version 2 and 1. A limit holds for all
 * groups below it, so every folder from the process's group up to the root counts, and the smallest
 * limit wins. In a container, the group's path is often that of the host, which does not exist
 * there: missing folders set no limit, and the root is the container's own group. */
#include "base/machine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CGROUP_ROOT  "/sys/fs/cgroup"
#define CGROUP_OF_US "/proc/self/cgroup"
#define MEMINFO      "/proc/meminfo"

enum { MAX_PATH = 1024, LARGE_BLOCK_BYTES = 256 * 1024 };

/* Reads a file's first line, without the line end. */
static bool line_read(const char *folder, const char *name, char *line, int size)
{
    char path[MAX_PATH];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return false;
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool is_read = fgets(line, size, f) != NULL;
    fclose(f);
    if (is_read)
        line[strcspn(line, "\n")] = '\0';
    return is_read;
}

static bool number_read(const char *folder, const char *name, uint64_t *number)
{
    char line[64], rest;
    return line_read(folder, name, line, sizeof line) &&
           sscanf(line, "%" SCNu64 "%c", number, &rest) == 1;
}

/* Lowers `*limit` to what a folder says. No limit is "max" in version 2 and -1 in version 1, which
 * reads as the largest number. */
typedef void (*folder_reader)(const char *folder, uint64_t *limit);

static void memory_in(const char *folder, uint64_t *limit)
{
    static const char *const names[] = {"memory.max", "memory.limit_in_bytes"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t bytes;
        if (number_read(folder, names[i], &bytes) && bytes > 0 && bytes < *limit)
            *limit = bytes;
    }
}

static void quota_in(const char *folder, uint64_t *limit)
{
    char line[64];
    uint64_t quota_us = 0, period_us = 0;
    if (line_read(folder, "cpu.max", line, sizeof line)) {
        if (sscanf(line, "%" SCNu64 " %" SCNu64, &quota_us, &period_us) != 2)
            return;
    } else if (!number_read(folder, "cpu.cfs_quota_us", &quota_us) ||
               !number_read(folder, "cpu.cfs_period_us", &period_us)) {
        return;
    }
    if (quota_us == 0 || period_us == 0)
        return;
    uint64_t cpus = quota_us < period_us ? 1 : quota_us / period_us;
    if (cpus < *limit)
        *limit = cpus;
}

/* Reads the folders of a group and of all groups above it, including the root of the controller. */
static void each_folder_up(const char *root, const char *controller, const char *group,
                           folder_reader read, uint64_t *limit)
{
    char folder[MAX_PATH];
    int root_len = snprintf(folder, sizeof folder, "%s%s%s", root, *controller ? "/" : "",
                            controller);
    if (root_len >= (int)sizeof folder ||
        snprintf(folder + root_len, sizeof folder - (size_t)root_len, "%s", group) >=
            (int)sizeof folder - root_len)
        return;
    for (;;) {
        read(folder, limit);
        char *slash = strrchr(folder + root_len, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* Lines are "0::/path" (version 2) or "7:cpu,cpuacct:/path" (version 1, mounted by controller). */
static uint64_t limit_read(const char *root, const char *groups, const char *controller,
                           folder_reader read, uint64_t limit)
{
    each_folder_up(root, "", "", read, &limit);
    each_folder_up(root, controller, "", read, &limit);
    FILE *f = fopen(groups, "re");
    if (!f)
        return limit;
    char line[MAX_PATH];
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        if (!*controllers)
            each_folder_up(root, "", group, read, &limit);
        for (char *name; (name = strsep(&controllers, ","));)
            if (strcmp(name, controller) == 0)
                each_folder_up(root, controller, group, read, &limit);
    }
    fclose(f);
    return limit;
}

uint32_t cgroup_cpu_quota(const char *root, const char *groups, uint32_t n_cpus)
{
    return (uint32_t)limit_read(root, groups, "cpu", quota_in, n_cpus);
}

uint64_t cgroup_memory_bytes(const char *root, const char *groups, uint64_t bytes)
{
    return limit_read(root, groups, "memory", memory_in, bytes);
}

uint32_t machine_cpu_quota(uint32_t n_cpus)
{
    return cgroup_cpu_quota(CGROUP_ROOT, CGROUP_OF_US, n_cpus);
}

uint64_t machine_memory_bytes(void)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    return cgroup_memory_bytes(CGROUP_ROOT, CGROUP_OF_US, bytes);
}

uint64_t meminfo_available_bytes(const char *path)
{
    char line[128];
    uint64_t kib = 0;
    FILE *f = fopen(path, "re");
    while (f && kib == 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) != 1)
            kib = 0;
    if (f)
        fclose(f);
    return kib < UINT64_MAX / 1024 ? kib * 1024 : 0;
}

uint64_t machine_free_memory_bytes(void)
{
    uint64_t all = machine_memory_bytes(), available = meminfo_available_bytes(MEMINFO);
    return available > 0 && available < all ? available : all;
}

uint64_t machine_resident_bytes(void)
{
    unsigned long long resident = 0;
    FILE *in = fopen("/proc/self/statm", "r");
    if (!in)
        return 0;
    if (fscanf(in, "%*u %llu", &resident) != 1)
        resident = 0;
    fclose(in);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t machine_heap_bytes(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
#elif defined(__GLIBC__)
    struct mallinfo heap = mallinfo(); /* counts up to 4 GiB */
    return (uint64_t)(unsigned)heap.uordblks + (unsigned)heap.hblkhd;
#else
    return 0;
#endif
}

/* By default, glibc keeps ever larger blocks once one of them has been freed. */
void machine_heap_is_lean(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
#endif
}

void machine_heap_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

bool machine_has_terminal(void)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}
