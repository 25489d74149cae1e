#ifndef RADISH_TEST_MEMORY_H
#define RADISH_TEST_MEMORY_H

#include <stdint.h>

/* Memory that runs out when a test says so. The unit binaries are linked so that malloc, calloc and
 * aligned_alloc of our own code come here first (see the Makefile); the libraries' do not. */

/* After `n` more successful allocations of this thread, every one fails, until memory_is_back. */
void memory_ends_after(uint32_t n);
void memory_is_back(void);

/* Bytes that this thread has allocated so far, freed or not. */
uint64_t memory_taken(void);

#endif
