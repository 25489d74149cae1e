#ifndef RADISH_SERVE_HTTP_HTTP_SERVER_H
#define RADISH_SERVE_HTTP_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "serve/http/http_parser.h"

/* serve/http/ speaks HTTP: connections, parsing, allowed hosts. Nothing here knows the API. */

/* Connections, with TLS or without: limits, deadlines, hang-ups, keep-alive. The handler knows what
 * requests mean. Everything here runs on the event loop's thread.
 *
 *               first byte   head done     body done      answered       sent
 *  new ─► idle ──────────► head ───────► body ───────► running ──────► flushing ──► lingering
 *      ▲    │               │             │              │ │              │           │ until the
 *      │    └ idle_timeout  └ header_     └ body_        │ └ none;        └ write_    │ client
 *      │      closes          timeout       timeout      │   reading        timeout   │ closes,
 *      │      (new: header_   408           and slow:    │   stays on       closes    │ or 2 s
 *      │      timeout)                      408          │                            │
 *      └─────────────────── kept alive ──────────────────┘
 *
 *  Without a free slot a new connection takes that of a lingering one, else of an idle one, else of
 *  a head, else of a body, else of a slow reader, the oldest first (connection_limits.h). With too
 * many bytes in bodies, the largest of the client with most is refused, also while it waits for the
 * handler's work; with too many unsent, who has held the most for the longest is dropped. A TLS
 * handshake counts as a part of the head.
 *
 * An exchange is one request and its answer; a connection has one at a time, and pipelined bytes
 * wait in its input buffer, at most about HTTP_MAX_PIPELINED of them. A client that closes, resets
 * or shuts down its sending side while its request runs has hung up: the work is canceled at once.
 * (A half-closed connection looks the same as a closed one until something is sent, and no known
 * client of these APIs half-closes and still wants the answer.) */
struct http_server;
struct http_exchange;
struct event_base;
struct http_listeners;
struct tls_context;

enum {
    HTTP_MAX_PIPELINED = 16 * 1024,
    HTTP_OUTPUT_HIGH = 256 * 1024, /* a stream with more than this unsent has no room */
    HTTP_OUTPUT_LOW = 64 * 1024,   /* and has room again below this */
    HTTP_MEMORY_BYTES = 320,
};

struct http_options {
    struct http_listeners *listeners; /* closed by the server, at the latest when it is closed */
    struct tls_context *tls; /* for TCP; NULL: plain text. The caller closes it after the server. */
    uint32_t max_connections;
    uint32_t max_connections_per_address; /* 0: no limit */
    size_t max_header_bytes, max_body_bytes;
    size_t max_bodies_bytes; /* of all requests that are being read */
    size_t max_unsent_bytes; /* of all answers */
    unsigned header_timeout_ms, body_timeout_ms, idle_timeout_ms, write_timeout_ms;
};

/* How an exchange ended. */
struct http_outcome {
    int status; /* 499 if the client hung up before the answer began, as in nginx */
    uint64_t duration_ns;
    bool hung_up; /* before the answer was complete */
    bool is_quiet;
    const char *note; /* what http_note has collected */
};

/* Each is called on the event loop's thread. `head` and `request` may answer at once, `refused`
 * must; the exchange ends with its answer, or with `hangup`, and must not be touched after either.
 */
struct http_handler {
    void *context;
    /* The head has arrived, but not the body. Answer now to reject the request, or return to
     * receive the body. */
    void (*head)(void *context, struct http_exchange *x);
    /* The whole request has arrived: answer now or later. */
    void (*request)(void *context, struct http_exchange *x);
    /* The request cannot be read: http_reply with this status. */
    void (*refused)(void *context, struct http_exchange *x, int status, const char *message);
    /* A stream that had no room has room again. */
    void (*room)(void *context, struct http_exchange *x);
    /* The client hung up before its answer was complete. */
    void (*hangup)(void *context, struct http_exchange *x);
    /* Bodies take too much memory: gives up a request whose body it took, and frees that. False: it
     * is not waiting any more. May be NULL. */
    bool (*withdraw)(void *context, struct http_exchange *x);
    /* After http_server_drain: the last answer is sent and the last connection closed. */
    void (*drained)(void *context);
    /* The exchange is over. Called for each whose head was complete or was refused, before its
     * memory is forgotten and before the client can know. May be NULL. */
    void (*over)(void *context, struct http_exchange *x, const struct http_outcome *outcome);
};

int http_server_open(struct http_server **out, struct event_base *base,
                     const struct http_options *options, const struct http_handler *handler,
                     struct error *err);
/* Closes every connection without calling the handler. */
void http_server_close(struct http_server *s);
/* "http://127.0.0.1:8080, unix:/run/radish.sock" */
const char *http_server_url(const struct http_server *s);
uint32_t http_server_connections(const struct http_server *s);
/* Closes idle connections now, and the others after their answers. Until the last answer is sent,
 * new connections are accepted and told that the server is stopping. */
void http_server_drain(struct http_server *s);
/* Leaves new connections waiting, for another server of the same sockets. */
void http_server_stop_accepting(struct http_server *s);
/* Reads the certificate again; if that fails, logs it and keeps the old one. */
void http_server_reload_tls(struct http_server *s);
/* The most memory that connections with their requests and answers take. */
size_t http_memory_bound(const struct http_options *options);

/* For `head`: a body of more bytes gets 413, whatever the server's limit is. */
void http_limit_body(struct http_exchange *x, size_t max_bytes);

/* The request. */
const struct http_parser *http_request(const struct http_exchange *x);
/* For `head`: who asks. Those who ask have equal shares of max_bodies_bytes. */
void http_set_client(struct http_exchange *x, uint64_t client);
/* The caller frees the body. It counts toward max_bodies_bytes until http_body_freed. */
struct strbuf http_take_body(struct http_exchange *x);
/* `x`: NULL after a hang-up. */
void http_body_freed(struct http_server *s, struct http_exchange *x, size_t n_bytes);
/* Numeric addresses; "unix" for a Unix socket. */
const char *http_peer_address(const struct http_exchange *x);
const char *http_local_address(const struct http_exchange *x);
/* The peer is on this machine: it came over loopback or a Unix socket. It may be a proxy. */
bool http_peer_is_local(const struct http_exchange *x);
/* HTTP_MEMORY_BYTES for the handler's notes on a request: zeroed when the head arrives, kept until
 * the exchange is over. */
void *http_memory(struct http_exchange *x);
void http_set_user(struct http_exchange *x, void *user);
void *http_user(const struct http_exchange *x);

/* The answer. Add fields before it begins, and notes, which go into its log line, before it ends.
 */
void http_add_field(struct http_exchange *x, const char *name, const char *value);
__attribute__((format(printf, 2, 3))) void http_note(struct http_exchange *x, const char *format,
                                                     ...);
void http_log_quietly(struct http_exchange *x); /* log it only at debug level */
void http_close_after(struct http_exchange *x); /* close the connection after the answer */
/* The exchange is over. */
void http_reply(struct http_exchange *x, int status, const char *content_type, const char *body,
                size_t len);
void http_stream_begin(struct http_exchange *x, const char *content_type);
/* Written bytes are sent together, by the next flush or at the end. */
void http_stream_write(struct http_exchange *x, const char *bytes, size_t len);
void http_stream_flush(struct http_exchange *x);
bool http_stream_has_room(const struct http_exchange *x);
void http_stream_end(struct http_exchange *x);

#endif
