#ifndef RADISH_BASE_CLOCK_H
#define RADISH_BASE_CLOCK_H

#include <stdint.h>
#include <sys/time.h>

uint64_t clock_now_ns(void);      /* monotonic */
uint64_t clock_thread_ns(void);   /* computed by this thread so far; a system call */
int64_t clock_unix_seconds(void); /* wall clock */

static inline struct timeval timeval_from_ms(unsigned ms)
{
    return (struct timeval){ms / 1000, (ms % 1000) * 1000};
}

#endif
