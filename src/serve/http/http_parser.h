#ifndef RADISH_SERVE_HTTP_HTTP_PARSER_H
#define RADISH_SERVE_HTTP_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Parses one HTTP/1.1 request, strictly by RFC 9112: anything that two parsers could read
 * differently is rejected. It does no input or output: bytes are fed as they arrive, and the result
 * does not depend on how they were split.
 *
 *   start ─► fields ─┬─────────► body by length ──────────────┬─► done
 *     │         │    └─► chunk size ⇄ chunk data ─► trailers ─┘
 *     └─────────┴──────────────────┴──────────────────────────► refused (status, message)
 */
enum http_state {
    HTTP_START,  /* before or in the request line */
    HTTP_FIELDS, /* header lines */
    HTTP_BODY,
    HTTP_CHUNK_SIZE,
    HTTP_CHUNK_DATA,
    HTTP_CHUNK_END, /* the CRLF after a chunk's data */
    HTTP_TRAILERS,
    HTTP_DONE,
    HTTP_REFUSED,
};

enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_PUT,
    HTTP_PATCH,
    HTTP_DELETE,
    HTTP_OPTIONS,
    HTTP_TRACE,
    HTTP_CONNECT,
    HTTP_OTHER,
};

enum {
    HTTP_MAX_FIELDS = 100,
    HTTP_MAX_REQUEST_LINE = 8 * 1024,
    HTTP_MAX_CHUNK_LINE = 256,
    HTTP_MAX_FRAMES = 16 * 1024, /* lines before chunks that have little data */
    HTTP_MAX_EMPTY_LINES = 2,    /* before a request line, as some clients send them */
};

/* Names and values are NUL-terminated strings inside `head`. */
struct http_field {
    uint32_t name, value;
};

struct http_parser {
    enum http_state state;
    size_t max_header_bytes, max_body_bytes;

    enum http_method method;
    uint32_t method_at, target_at; /* in `head` */
    uint32_t path_at;              /* the target from its path on */
    uint32_t authority_at;         /* of an absolute target, 0: none */
    unsigned minor_version;
    bool keep_alive;
    bool expect_continue;
    bool chunked;
    uint64_t content_length; /* of a body that is not chunked */
    struct http_field fields[HTTP_MAX_FIELDS];
    uint32_t n_fields;
    struct strbuf head; /* the request line and the fields, split into strings */
    struct strbuf body;

    int status;          /* of a refused request: 400, 413, 414, 417, 431, 501, 503, 505 */
    const char *message; /* why */

    size_t line_at;       /* in `head`: start of the line being read */
    size_t header_bytes;  /* read so far, including line ends */
    size_t trailer_bytes; /* of lines after the last chunk */
    uint64_t frame_bytes; /* of lines before chunks, beyond what chunks may need */
    unsigned n_empty;     /* lines before the request line */
    uint64_t remaining;   /* bytes missing from the body or chunk */
};

void http_parser_open(struct http_parser *p, size_t max_header_bytes, size_t max_body_bytes);
void http_parser_close(struct http_parser *p);
/* Prepares for the next request, and discards the last one. */
void http_parser_reset(struct http_parser *p);

/* Takes bytes and returns how many it took. It takes fewer than `len` when the head is complete
 * (the state is then HTTP_BODY, HTTP_CHUNK_SIZE or HTTP_DONE, so that the caller can check the head
 * before the body), when the request is complete, and when it is rejected. */
size_t http_parser_feed(struct http_parser *p, const char *bytes, size_t len);

/* True if no part of a request has arrived yet, except perhaps empty lines before it. */
bool http_parser_is_idle(const struct http_parser *p);
static inline bool http_parser_head_done(const struct http_parser *p)
{
    return p->state >= HTTP_BODY && p->state <= HTTP_DONE;
}

/* The functions below may be called once the head is done. */
const char *http_parser_method(const struct http_parser *p);
const char *http_parser_target(const struct http_parser *p); /* as sent */
/* Appends the path with its percent-escapes decoded, without the query. It contains no NUL. */
void http_parser_path(const struct http_parser *p, struct strbuf *out);
/* The value of the first field of that name, ignoring case; NULL if there is none. */
const char *http_parser_field(const struct http_parser *p, const char *name);
/* The host of the request: the authority of an absolute target, else the Host field. May be NULL
 * for HTTP/1.0. */
const char *http_parser_host(const struct http_parser *p);

/* Splits "host:port" or "[v6]:port" as in RFC 3986; false if it is neither. The host's brackets are
 * kept; `port` is -1 if missing. */
bool http_split_authority(const char *authority, size_t len, size_t *host_len, int *port);

#endif
