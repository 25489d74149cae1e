/* The passes over all logits, compiled for the instructions in this file's name. */
#if defined(__x86_64__)
#include "sched/sampler_scan_loops.h"

const struct sampler_scan sampler_scan_avx512 = SCAN_FUNCTIONS;
#endif
