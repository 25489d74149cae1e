/* Answering: what the handler writes becomes HTTP. Everything belongs to the event loop's thread.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/minmax.h"
#include "serve/http/connection.h"
#include "serve/http/host_rules.h"

enum { STREAM_PIECE = 64 * 1024 }; /* stream bytes sent without waiting for more */

static const char *status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {{200, "OK"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {417, "Expectation Failed"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].status == status)
            return texts[i].text;
    return "Unknown";
}

enum { CLIENT_CLOSED = 499 }; /* for the log */

void tell_over(struct http_exchange *c, bool hung_up)
{
    const struct http_handler *handler = &c->server->handler;
    const struct http_outcome outcome = {.status = c->status ? c->status : CLIENT_CLOSED,
                                         .duration_ns = clock_now_ns() - c->began_ns,
                                         .hung_up = hung_up,
                                         .is_quiet = c->quiet,
                                         .note = strbuf_str(&c->note)};
    if (handler->over)
        handler->over(handler->context, c, &outcome);
}

/* ---- the request -------------------------------------------------------------------------- */

const struct http_parser *http_request(const struct http_exchange *x)
{
    return &x->parser;
}

struct strbuf http_take_body(struct http_exchange *x)
{
    struct strbuf body = x->parser.body;
    x->parser.body = (struct strbuf)STRBUF_INIT;
    x->taken_bytes = x->body_bytes;
    x->body_bytes = 0;
    return body;
}

void http_body_freed(struct http_server *s, struct http_exchange *x, size_t n_bytes)
{
    assert(n_bytes <= s->body_bytes);
    s->body_bytes -= n_bytes;
    if (x) {
        x->taken_bytes = 0;
        x->is_kept = false;
    }
    if (n_bytes >= TRIM_BYTES)
        memory_return(s);
}

const char *http_peer_address(const struct http_exchange *x)
{
    return x->peer_text;
}

const char *http_local_address(const struct http_exchange *x)
{
    return x->local;
}

bool http_peer_is_local(const struct http_exchange *x)
{
    return x->peer.key == 0 || address_is_loopback(x->peer_text);
}

void *http_memory(struct http_exchange *x)
{
    return x->memory;
}

void http_set_user(struct http_exchange *x, void *user)
{
    x->user = user;
}

void *http_user(const struct http_exchange *x)
{
    return x->user;
}

void http_add_field(struct http_exchange *x, const char *name, const char *value)
{
    strbuf_addf(&x->fields, "%s: %s\r\n", name, value);
}

void http_note(struct http_exchange *x, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?'; /* client bytes must not start a line of their own */
    strbuf_addf(&x->note, "%s%s", x->note.len ? ", " : "", text);
}

void http_set_client(struct http_exchange *x, uint64_t client)
{
    x->client = hash_pair(x->server->secret, client);
}

void http_limit_body(struct http_exchange *x, size_t max_bytes)
{
    x->parser.max_body_bytes = min_size(x->parser.max_body_bytes, max_bytes);
}

void http_log_quietly(struct http_exchange *x)
{
    x->quiet = true;
}

void http_close_after(struct http_exchange *x)
{
    x->parser.keep_alive = false;
}

/* ---- the answer --------------------------------------------------------------------------- */

/* Status line and fields, up to where Content-Length or Transfer-Encoding goes. */
static void head_begin(struct http_exchange *c, struct strbuf *out, int status,
                       const char *content_type)
{
    char date[64];
    time_t now = (time_t)clock_unix_seconds();
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    c->status = status;
    /* An unread body would be parsed as the next request. */
    c->close = c->server->draining || !c->parser.keep_alive || c->parser.state != HTTP_DONE;
    strbuf_addf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: radish/%s\r\n", status,
                status_text(status), date, RADISH_VERSION);
    strbuf_addf(out, "Content-Type: %s\r\n", content_type);
    strbuf_add(out, c->fields.data, c->fields.len);
    if (c->close)
        strbuf_adds(out, "Connection: close\r\n");
}

void http_reply(struct http_exchange *x, int status, const char *content_type, const char *body,
                size_t len)
{
    assert(x->transport && !x->streaming);
    struct strbuf head = STRBUF_INIT;
    head_begin(x, &head, status, content_type);
    strbuf_addf(&head, "Content-Length: %zu\r\n\r\n", len);
    tell_over(x, false);
    if (head.failed) {
        x->close = true;
    } else {
        transport_write(x->transport, head.data, head.len);
        if (x->parser.method != HTTP_HEAD)
            transport_write(x->transport, body, len);
        transport_flush(x->transport);
    }
    strbuf_free(&head);
    exchange_done(x);
}

void http_stream_begin(struct http_exchange *x, const char *content_type)
{
    assert(x->transport && !x->streaming);
    x->chunked = x->parser.minor_version > 0;
    head_begin(x, &x->out, 200, content_type);
    strbuf_adds(&x->out, x->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    x->streaming = true;
}

/* "1f\r\n", as a chunk begins. */
static void chunk_size_add(struct strbuf *out, size_t len)
{
    char text[2 * sizeof len + 2];
    size_t at = sizeof text;
    text[--at] = '\n';
    text[--at] = '\r';
    do
        text[--at] = "0123456789abcdef"[len % 16];
    while (len /= 16);
    strbuf_add(out, text + at, sizeof text - at);
}

void http_stream_write(struct http_exchange *x, const char *bytes, size_t len)
{
    assert(x->transport && x->streaming);
    if (len == 0)
        return; /* an empty chunk would be the last */
    if (x->chunked)
        chunk_size_add(&x->out, len);
    strbuf_add(&x->out, bytes, len);
    if (x->chunked)
        strbuf_add(&x->out, "\r\n", 2);
    if (x->out.len >= STREAM_PIECE)
        http_stream_flush(x);
}

void http_stream_flush(struct http_exchange *x)
{
    assert(x->transport && x->streaming);
    if (x->out.failed)
        transport_cut(x->transport); /* hang up, so that nothing follows the gap */
    else if (x->out.len)
        transport_write(x->transport, x->out.data, x->out.len);
    strbuf_clear(&x->out);
    transport_flush(x->transport);
    unsent_count(x);
    if (x->unsent_bytes > HTTP_OUTPUT_HIGH)
        x->full = true;
}

bool http_stream_has_room(const struct http_exchange *x)
{
    return !x->full;
}

void http_stream_end(struct http_exchange *x)
{
    assert(x->transport && x->streaming);
    if (x->chunked)
        strbuf_adds(&x->out, "0\r\n\r\n");
    tell_over(x, false);
    http_stream_flush(x);
    exchange_done(x);
}
