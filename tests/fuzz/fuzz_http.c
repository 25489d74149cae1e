/* Feeds the input to the HTTP parser whole and cut into pieces whose lengths come from the input
 * itself: the verdict, the bytes consumed, the fields and the bodies must be the same, and the
 * parser's guarantees about its result must hold. Pipelined requests are all read. */
#include "serve/http/http_parser.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 2048, MAX_BODY = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A parser that sees only pieces. Returns the bytes consumed. */
static size_t feed_pieces(struct http_parser *p, const char *bytes, size_t len, uint32_t seed)
{
    size_t used = 0, end = 0;
    while (p->state < HTTP_DONE && used < len) {
        if (end == used) {
            seed = seed * 1664525u + 1013904223u;
            size_t piece = 1 + (seed >> 24) % ((seed >> 8) % 3 ? 7 : 300);
            end = piece < len - used ? used + piece : len;
        }
        char *copy = malloc(end - used); /* a separate block, so that reading past it is detected */
        memcpy(copy, bytes + used, end - used);
        used += http_parser_feed(p, copy, end - used);
        free(copy);
    }
    return used;
}

static size_t feed_whole(struct http_parser *p, const char *bytes, size_t len)
{
    size_t used = 0;
    while (p->state < HTTP_DONE && used < len)
        used += http_parser_feed(p, bytes + used, len - used);
    return used;
}

static void check_promises(const struct http_parser *p)
{
    assert(p->header_bytes <= MAX_HEADER && p->body.len <= MAX_BODY);
    assert(p->head.len <= 3 * MAX_HEADER);
    assert(p->n_fields <= HTTP_MAX_FIELDS);
    assert((p->state == HTTP_REFUSED) == (p->status >= 400 && p->message));
    if (!http_parser_head_done(p))
        return;
    assert(p->minor_version == 0 || http_parser_field(p, "Host"));
    assert(!(http_parser_field(p, "Content-Length") && http_parser_field(p, "Transfer-Encoding")));
    assert(strlen(http_parser_method(p)) > 0 && strlen(http_parser_target(p)) > 0);
    struct strbuf path = STRBUF_INIT;
    http_parser_path(p, &path);
    assert(strlen(strbuf_str(&path)) == path.len);
    strbuf_free(&path);
    for (uint32_t i = 0; i < p->n_fields; i++)
        assert(!strpbrk(p->head.data + p->fields[i].value, "\r\n") &&
               !strpbrk(p->head.data + p->fields[i].name, " \t\r\n:"));
    if (p->state == HTTP_DONE && !p->chunked)
        assert(p->body.len == p->content_length);
}

static void check_same(const struct http_parser *a, const struct http_parser *b)
{
    assert(a->state == b->state && a->status == b->status && a->message == b->message);
    assert(a->n_fields == b->n_fields && a->keep_alive == b->keep_alive);
    assert(a->method == b->method && a->chunked == b->chunked);
    assert(a->body.len == b->body.len && a->remaining == b->remaining);
    assert(a->body.len == 0 || memcmp(a->body.data, b->body.data, a->body.len) == 0);
    for (uint32_t i = 0; i < a->n_fields; i++)
        assert(strcmp(a->head.data + a->fields[i].value, b->head.data + b->fields[i].value) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_parser whole, pieces;
    http_parser_open(&whole, MAX_HEADER, MAX_BODY);
    http_parser_open(&pieces, MAX_HEADER, MAX_BODY);
    uint32_t seed = (uint32_t)size;
    for (size_t i = 0; i < size; i++)
        seed = seed * 31 + data[i];
    for (size_t at = 0; at < size;) {
        size_t used = feed_whole(&whole, (const char *)data + at, size - at);
        assert(feed_pieces(&pieces, (const char *)data + at, size - at, seed) == used);
        check_promises(&whole);
        check_same(&whole, &pieces);
        at += used;
        if (whole.state != HTTP_DONE)
            break;
        http_parser_reset(&whole);
        http_parser_reset(&pieces);
    }
    http_parser_close(&whole);
    http_parser_close(&pieces);
    return 0;
}
