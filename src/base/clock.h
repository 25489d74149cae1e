#ifndef RADISH_BASE_CLOCK_H
#define RADISH_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_now_ns(void);      /* monotonic */
int64_t clock_unix_seconds(void); /* wall clock */

#endif
