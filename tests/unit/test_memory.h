#ifndef RADISH_TEST_MEMORY_H
#define RADISH_TEST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory that runs out, and time that passes, when a test says so. The unit binaries are linked so
 * that calls of malloc, calloc, realloc, aligned_alloc and clock_now_ns in our own code come here
 * first (see the Makefile); those of libraries do not. */

/* After `n` more successful allocations of this thread, every one but realloc fails, until
 * memory_is_back. */
void memory_ends_after(uint32_t n);
void memory_is_back(void);

/* Bytes that this thread has allocated so far, freed or not. */
uint64_t memory_taken(void);

/* For a test and processes that it forks: of the allocations in processes that have called
 * memory_is_watched, on any thread, the n-th from now on fails, realloc too, and the others do
 * not. 0: none. */
void memory_is_watched(bool yes);
void memory_fails_once(uint32_t n);
bool memory_has_failed(void); /* it came to that one */

/* In the same processes: a malloc or calloc of at least that many bytes does not return until
 * this is called again with 0. */
void memory_holds(size_t n_bytes);
uint32_t memory_n_held(void); /* threads that wait for it */

/* Moves the clock forward, here and in the forked processes. */
void clock_skip_ns(uint64_t ns);

#endif
