#ifndef RADISH_BASE_MACHINE_H
#define RADISH_BASE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

/* What this process may use: the machine's resources, or less if a container or a service manager
 * limits it. Which CPUs it may run on is in cpu_topology.h. */
uint64_t machine_memory_bytes(void);
/* The CPU quota in whole CPUs, at least 1 and at most n_cpus. Fractions are dropped: with one
 * thread more than the quota allows, all threads would be stopped for the rest of every period. */
uint32_t machine_cpu_quota(uint32_t n_cpus);
/* The memory that could be taken now without anyone else having to give some up. */
uint64_t machine_free_memory_bytes(void);

/* The memory of this process: resident, and allocated with malloc, resident or not. 0: unknown.
 */
uint64_t machine_resident_bytes(void);
uint64_t machine_heap_bytes(void);
/* Gives large blocks back to the system as soon as they are freed. Call it before other threads
 * run. */
void machine_heap_is_lean(void);
/* Gives all free memory of the heap back to the system. Takes a millisecond for each few MiB, and
 * stops threads that allocate. */
void machine_heap_trim(void);

/* True if this process has a terminal that is still there. */
bool machine_has_terminal(void);

/* The same limits read from a tree of cgroup files: `root` is where it is mounted, and `groups` a
 * file like /proc/self/cgroup that says which groups the process is in. No limit: `n_cpus` or
 * `bytes` as given. */
uint32_t cgroup_cpu_quota(const char *root, const char *groups, uint32_t n_cpus);
uint64_t cgroup_memory_bytes(const char *root, const char *groups, uint64_t bytes);
/* MemAvailable of a file like /proc/meminfo; 0 when it does not say. */
uint64_t meminfo_available_bytes(const char *path);

#endif
