#ifndef RADISH_SERVE_HTTP_CONNECTION_H
#define RADISH_SERVE_HTTP_CONNECTION_H

#include <arpa/inet.h>
#include <stdalign.h>
#include <stddef.h>

#include "base/strbuf.h"
#include "serve/http/connection_limits.h"
#include "serve/http/hangups.h"
#include "serve/http/http_server.h"
#include "serve/http/listener.h"
#include "serve/http/receiving.h"
#include "serve/http/transport.h"

/* What http_server.c (the server: listeners, stopping), connection.c (reading requests, deadlines,
 * closing) and reply.c (answering) share. http_server.h draws the states.
 *
 * Calling the handler, or anything that writes an answer, may close the connection. So closing
 * frees the socket at once but the memory only later (`reap`), and code that continues after such a
 * call must first check that the connection is still open (`c->transport`). */
enum exchange_state {
    X_IDLE,     /* no part of a request yet */
    X_HEAD,     /* reading the header */
    X_BODY,     /* reading the body */
    X_RUNNING,  /* the handler owns it */
    X_FLUSHING, /* answered; closes once the answer is sent */
    X_LINGERING /* sent; waits for the client to close first, so that no reset eats the answer */
};

/* A connection and its current exchange. */
struct http_exchange {
    struct http_server *server;
    struct http_exchange *prev, *next; /* in the server's list; next also in the list of the dead */
    struct http_exchange *older, *newer; /* in the list of `waits`; see connection_limits.h */
    enum waiting waits;
    struct transport *transport; /* NULL: closed */
    struct event *timer;         /* deadline of the current state */
    struct event *again;         /* more input to handle, in the loop's next turn */
    struct http_parser parser;
    enum exchange_state state;
    bool is_new;    /* no request has been answered yet */
    bool eof;       /* the client sends no more */
    bool close;     /* close after this answer */
    bool streaming; /* the answer has started and has not ended */
    bool chunked;
    bool full;       /* the stream had no room */
    bool sends_more; /* bytes after the last request */
    bool quiet;
    bool shakes;     /* a part of its TLS handshake has come; see handshakes.c */
    uint64_t ticket; /* of that */
    struct receiving_turn turn;
    int status;
    uint64_t began_ns;      /* of the request */
    uint64_t body_began_ns; /* when its header was complete */
    size_t body_mark;       /* the body's size when its deadline was last extended */
    uint64_t client;        /* a hash of who asks */
    size_t body_bytes;      /* counted in the server's body_bytes */
    size_t taken_bytes;     /* of the body that the handler took and has not freed */
    bool is_kept;           /* ... and cannot give up now */
    size_t unsent_bytes;    /* counted in the server's unsent_bytes */
    uint64_t unsent_since_ns;
    struct strbuf fields, note;
    struct strbuf out; /* of the stream: written but not flushed */
    void *user;
    alignas(max_align_t) unsigned char memory[HTTP_MEMORY_BYTES];
    struct peer peer;
    char peer_text[INET6_ADDRSTRLEN], local[INET6_ADDRSTRLEN];
};

struct http_server {
    struct event_base *base;
    struct http_listeners *listeners;
    struct event *accepting[HTTP_MAX_LISTENERS]; /* for each listener */
    struct event *reap, *accept_again, *unsent_check, *trim, *shake;
    struct http_options options;
    struct http_handler handler;
    struct http_exchange *connections, *dead;
    struct connection_limits limits;
    struct hangups hangups;
    struct receiving receiving;
    size_t body_bytes, unsent_bytes;
    uint64_t secret;       /* of the hashes of clients */
    uint64_t ticket;       /* of the last handshake */
    uint64_t handshake_ns; /* the next may go on from then on */
    bool draining;
    struct strbuf url;
};

/* ---- connection.c ------------------------------------------------------------------------- */

/* Takes an accepted socket. */
void connection_open(struct http_server *s, int fd, const struct http_listener *from,
                     const struct sockaddr *address);
/* Closes at once; the handler is not called. */
void connection_close(struct http_exchange *c);
/* The client is gone, or we are done with it; a request that runs is told. */
void connection_lost(struct http_exchange *c);
/* Rejects a request that is being read. */
void connection_refuse(struct http_exchange *c, int status, const char *message);
/* Handles input that has arrived. */
void connection_go_on(struct http_exchange *c);
/* The answer is complete: waits for the next request, or closes. */
void exchange_done(struct http_exchange *c);
/* Counts what the connection has not sent yet. Call it after anything that may change that. */
void unsent_count(struct http_exchange *c);
/* If too much is unsent, hangs up on those who read slowest. */
void unsent_check(struct http_server *s);
/* Moves the connection to the list of those that wait as it does, after its state has changed. */
void connection_place(struct http_exchange *c);
void connection_arm(struct http_exchange *c, unsigned timeout_ms); /* 0: no deadline */

/* ---- handshakes.c ------------------------------------------------------------------------- */

/* A part of the client's handshake has come: it gets a turn. */
void handshake_wait(struct http_exchange *c);
/* Gives a turn to the next client. */
void handshake_next(struct http_server *s);

/* ---- http_server.c ------------------------------------------------------------------------ */

enum { TRIM_BYTES = 1 << 20 };
/* A request with a body of TRIM_BYTES or more is over: soon gives free memory back to the system.
 */
void memory_return(struct http_server *s);

/* ---- reply.c ------------------------------------------------------------------------------ */

void tell_over(struct http_exchange *c, bool hung_up);

#endif
