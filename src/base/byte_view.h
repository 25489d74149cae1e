#ifndef RADISH_BASE_BYTE_VIEW_H
#define RADISH_BASE_BYTE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The one view of bytes stored elsewhere: any bytes, not followed by a NUL unless their owner says
 * so. A view does not keep its bytes alive. */
struct byte_view {
    const char *bytes;
    size_t len;
};

static inline struct byte_view byte_view_of(const char *string)
{
    return (struct byte_view){string, strlen(string)};
}

static inline bool byte_view_equal(struct byte_view a, struct byte_view b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.bytes, b.bytes, a.len) == 0);
}

static inline bool byte_view_is(struct byte_view view, const char *string)
{
    return byte_view_equal(view, byte_view_of(string));
}

/* Less than, equal to or greater than 0, by unsigned bytes; a prefix comes before the whole. */
static inline int byte_view_compare(struct byte_view a, struct byte_view b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common ? memcmp(a.bytes, b.bytes, common) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static inline bool byte_view_starts(struct byte_view view, struct byte_view start)
{
    return view.len >= start.len &&
           byte_view_equal((struct byte_view){view.bytes, start.len}, start);
}

static inline bool byte_view_ends(struct byte_view view, struct byte_view end)
{
    return view.len >= end.len &&
           byte_view_equal((struct byte_view){view.bytes + view.len - end.len, end.len}, end);
}

/* The same for C strings. */
static inline bool string_starts(const char *string, const char *start)
{
    return byte_view_starts(byte_view_of(string), byte_view_of(start));
}

static inline bool string_ends(const char *string, const char *end)
{
    return byte_view_ends(byte_view_of(string), byte_view_of(end));
}

#endif
