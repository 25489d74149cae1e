/* The one string builder; see strbuf.h for how errors are kept. */
#include "base/strbuf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void strbuf_free(struct strbuf *sb)
{
    free(sb->data);
    *sb = (struct strbuf){.limit = sb->limit};
}

void strbuf_clear(struct strbuf *sb)
{
    sb->len = 0;
    sb->failed = false;
    if (sb->data)
        sb->data[0] = '\0';
}

bool strbuf_reserve(struct strbuf *sb, size_t extra)
{
    if (sb->failed)
        return false;
    if (extra > SIZE_MAX / 2 - sb->len || (sb->limit && sb->len + extra > sb->limit)) {
        sb->failed = true;
        return false;
    }
    size_t need = sb->len + extra + 1;
    if (need <= sb->capacity)
        return true;
    size_t capacity = sb->capacity ? sb->capacity : 64;
    while (capacity < need)
        capacity *= 2;
    char *data = realloc(sb->data, capacity);
    if (!data) {
        sb->failed = true;
        return false;
    }
    sb->data = data;
    sb->capacity = capacity;
    return true;
}

void strbuf_add(struct strbuf *sb, const void *bytes, size_t len)
{
    if (!strbuf_reserve(sb, len))
        return;
    if (len)
        memcpy(sb->data + sb->len, bytes, len);
    sb->len += len;
    sb->data[sb->len] = '\0';
}

void strbuf_adds(struct strbuf *sb, const char *string)
{
    strbuf_add(sb, string, strlen(string));
}

void strbuf_addc(struct strbuf *sb, char c)
{
    strbuf_add(sb, &c, 1);
}

void strbuf_addf(struct strbuf *sb, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0) {
        sb->failed = true;
    } else if (strbuf_reserve(sb, (size_t)len)) {
        vsnprintf(sb->data + sb->len, (size_t)len + 1, format, again);
        sb->len += (size_t)len;
    }
    va_end(again);
}

void strbuf_remove_front(struct strbuf *sb, size_t len)
{
    assert(len <= sb->len);
    if (len == 0)
        return;
    memmove(sb->data, sb->data + len, sb->len - len + 1);
    sb->len -= len;
}

const char *strbuf_str(const struct strbuf *sb)
{
    return sb->data ? sb->data : "";
}
