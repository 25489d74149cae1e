/* For `make STATIC=1`: what libevent and OpenSSL take from a C library of 2022 or newer, so that
 * the program also runs with an older one. */
#include <features.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
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

/* Libraries that were compiled with glibc 2.38 or newer ask for these. Its own headers would make
 * each of them call itself. */
#if defined(__GLIBC__) && !__GLIBC_PREREQ(2, 38)

size_t strlcpy(char *to, const char *from, size_t size);
long __isoc23_strtol(const char *text, char **end, int base);
unsigned long __isoc23_strtoul(const char *text, char **end, int base);
long long __isoc23_strtoll(const char *text, char **end, int base);
unsigned long long __isoc23_strtoull(const char *text, char **end, int base);
int __isoc23_sscanf(const char *text, const char *format, ...);

size_t strlcpy(char *to, const char *from, size_t size)
{
    size_t len = 0;
    for (; from[len]; len++)
        if (len + 1 < size)
            to[len] = from[len];
    if (size)
        to[len < size ? len : size - 1] = '\0';
    return len;
}

long __isoc23_strtol(const char *text, char **end, int base)
{
    return strtol(text, end, base);
}

unsigned long __isoc23_strtoul(const char *text, char **end, int base)
{
    return strtoul(text, end, base);
}

long long __isoc23_strtoll(const char *text, char **end, int base)
{
    return strtoll(text, end, base);
}

unsigned long long __isoc23_strtoull(const char *text, char **end, int base)
{
    return strtoull(text, end, base);
}

int __isoc23_sscanf(const char *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsscanf(text, format, args);
    va_end(args);
    return n;
}

#endif
