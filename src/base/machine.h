#ifndef RADISH_BASE_MACHINE_H
#define RADISH_BASE_MACHINE_H

#include <stdint.h>

/* What this process may use: the machine's, less where a container, a service manager or taskset
 * gives it a share. */
uint32_t machine_cores(void);
uint64_t machine_memory_bytes(void);
/* Of that, what could be taken now without anyone else having to give some up. */
uint64_t machine_free_memory_bytes(void);

/* The same limits read from a tree of cgroup files: `root` is where it is mounted, and `groups` a
 * file like /proc/self/cgroup that says which groups the process is in. No limit: `cores` or
 * `bytes` as given. */
uint32_t cgroup_cores(const char *root, const char *groups, uint32_t cores);
uint64_t cgroup_memory_bytes(const char *root, const char *groups, uint64_t bytes);
/* MemAvailable of a file like /proc/meminfo; 0 when it does not say. */
uint64_t meminfo_available_bytes(const char *path);

#endif
