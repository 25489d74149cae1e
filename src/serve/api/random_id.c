/* Ids of answers and calls. Not secret: without the system's random bytes, the time is enough. */
#include "serve/api/random_id.h"

#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

void random_id(char *out, const char *prefix, unsigned n_letters)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char random[RANDOM_ID_LETTERS] = {0};
    if (getrandom(random, sizeof random, 0) < 0) {
        const uint64_t now = clock_now_ns();
        memcpy(random, &now, sizeof now);
    }
    size_t n = strlen(prefix);
    memcpy(out, prefix, n);
    for (size_t i = 0; i < sizeof random; i++)
        out[n++] = letters[random[i] % n_letters];
    out[n] = '\0';
}
