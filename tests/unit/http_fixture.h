#ifndef RADISH_HTTP_FIXTURE_H
#define RADISH_HTTP_FIXTURE_H

#include "serve/http/http_server.h"
#include "serve/http/listener.h"

#include "base/clock.h"
#include "test.h"

/* A server of connections with a small handler, driven from one thread: the loop turns, and between
 * turns the test checks the client's side. A test waits for a condition, never for a fixed time: a
 * busy machine may stop it anywhere.
 *
 * The handler: /wait never answers, /stream streams pieces while there is room, /big has a large
 * answer, /status/N has that status, /compute computes for COMPUTE_NS, anything else answers "ok".
 * X-Client: N says who asks. */
enum { MAX_CONNECTIONS = 4, BIG_BODY_BYTES = 16 << 20 }; /* more than a connection's buffers hold */
enum { COMPUTE_NS = 500000 };
#define PATIENCE_NS UINT64_C(20000000000)

struct site {
    struct event_base *base;
    struct http_listeners listeners;
    struct http_server *server;
    struct http_exchange *waiting;
    struct strbuf taken; /* its body, which it gives up if memory is short */
    int n_heads, n_requests, n_hangups, n_rooms, n_drained;
    size_t streamed;
};

struct deadlines { /* 0: none */
    unsigned header_ms, body_ms, idle_ms, write_ms;
};

extern const struct http_options ordinary_options;
void site_open_as(struct site *site, struct http_options options);
void site_open_with(struct site *site, struct deadlines deadlines);
void site_open(struct site *site);
void site_close(struct site *site);

int client_open(const struct site *site);
/* From an address such as 127.0.0.2, which counts as far. */
int client_open_from(const struct site *site, const char *address);
void client_send(int fd, const char *text);

void turn(struct site *site);
void turn_for(struct site *site, unsigned ms);
/* Turns the loop until the condition holds; fails after 20 s. */
#define TURN_UNTIL(site, condition)                                                                \
    for (uint64_t end_ = clock_now_ns() + PATIENCE_NS; !(condition); turn(site))                   \
    CHECK(clock_now_ns() < end_ || (condition))

/* Turns the loop until the server has closed the connection (or 20 s); what it sent is in `out`,
 * and how many milliseconds it took is returned. */
unsigned read_to_end(struct site *site, int fd, char *out, size_t size);
/* Turns the loop until a part of an answer has arrived (or 20 s). */
void read_some(struct site *site, int fd, char *out, size_t size);
/* Reads what has arrived, at most `size` bytes; returns how many. */
size_t take(int fd, size_t size);
/* Reads the rest of an answer until the server closes the connection; returns its size. */
size_t take_all(struct site *site, int fd);

bool has_bytes(int fd);
void await_bytes(int fd); /* the kernel may take a moment; the loop does not turn */
bool is_ended(int fd);

#define GET(path)  "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define POST(size) "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " size "\r\n\r\n"

#endif
