#ifndef RADISH_BASE_STRBUF_H
#define RADISH_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

/* The one string builder: a growable run of bytes, always followed by a NUL. A failure to grow (no
 * memory, or past `limit`) sets `failed`, and later appends do nothing, so a caller can build
 * freely and check once at the end. Zero-initialize, or use STRBUF_INIT. */
struct strbuf {
    char *data; /* NULL until something is appended: use strbuf_str() for a C string */
    size_t len;
    size_t capacity;
    size_t limit; /* largest len; 0: no limit */
    bool failed;
};

#define STRBUF_INIT                                                                                \
    {                                                                                              \
        0                                                                                          \
    }

void strbuf_free(struct strbuf *sb);
void strbuf_clear(struct strbuf *sb); /* empty again; keeps the memory; forgets the failure */
bool strbuf_reserve(struct strbuf *sb, size_t extra);
void strbuf_add(struct strbuf *sb, const void *bytes, size_t len);
void strbuf_adds(struct strbuf *sb, const char *string);
void strbuf_addc(struct strbuf *sb, char c);
__attribute__((format(printf, 2, 3))) void strbuf_addf(struct strbuf *sb, const char *format, ...);
void strbuf_remove_front(struct strbuf *sb, size_t len);
const char *strbuf_str(const struct strbuf *sb);

#endif
