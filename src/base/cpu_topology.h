#ifndef RADISH_BASE_CPU_TOPOLOGY_H
#define RADISH_BASE_CPU_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* The CPUs that this process may use, in the order in which compute threads should take them: one
 * hardware thread of each fast core first, then of each slow one, then the others of the same
 * cores. Within each of these, the package and the memory node with the most such cores come
 * first, so that a few threads stay close together.
 *
 *   two packages of two cores with two hardware threads each, of which CPU 0 may not be used
 *   cores   package 0: (0 4) (1 5)   package 1: (2 6) (3 7)
 *   order   1 4 │ 2 3 │ 5 │ 6 7      n_cpus 7, n_cores = n_fast = 4
 *
 * A virtual machine often reports neither: then every CPU is a core. */
struct cpu_topology {
    uint32_t *order;  /* [n_cpus] */
    uint32_t n_cpus;  /* hardware threads */
    uint32_t n_cores; /* that they belong to: order[0 .. n_cores - 1] are on different ones */
    uint32_t n_fast;  /* of these, as fast as the fastest, or nearly: the first n_fast */
    uint32_t quota;   /* CPUs' worth of time that the control group gives, n_cpus at most */
};

/* What the system reports for this process. */
int cpu_topology_open(struct cpu_topology *out, struct error *err);
/* The same for the CPUs `allowed`, from a folder like /sys/devices; without a quota. Where the
 * folder says nothing, the simplest case is assumed. */
int cpu_topology_read(struct cpu_topology *out, const char *devices, const uint32_t *allowed,
                      uint32_t n_allowed, struct error *err);
void cpu_topology_close(struct cpu_topology *t);

/* How many threads can run at once. */
uint32_t cpu_topology_available(const struct cpu_topology *t);
/* The default number of compute threads: one for each fast core, within the quota. They meet
 * hundreds of times per step, and all wait for the slowest. */
uint32_t cpu_topology_threads(const struct cpu_topology *t);
/* Whether to pin that many threads to the first CPUs of the order by default: yes if there is one
 * for each fast core and there are other CPUs that the system could wrongly choose. Not with fewer
 * threads, since another program that pins would choose the same CPUs; nor if they take all CPUs,
 * since other threads of ours then have to share them. */
bool cpu_topology_should_pin(const struct cpu_topology *t, uint32_t n_threads);

/* Makes the calling thread run on one of these CPUs. False if the system refuses. */
bool cpu_pin(const uint32_t *cpus, uint32_t n);

#endif
