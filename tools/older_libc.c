/* For `make STATIC=1`: what libevent takes from a C library of 2022 or newer, so that the program
 * also runs with an older one. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void);
void arc4random_buf(void *buffer, size_t n);

void arc4random_buf(void *buffer, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = getrandom((char *)buffer + done, n - done, 0);
        done += got > 0 ? (size_t)got : 0;
    }
}

uint32_t arc4random(void)
{
    uint32_t value;
    arc4random_buf(&value, sizeof value);
    return value;
}
