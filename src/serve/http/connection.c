/* One connection: reads requests, keeps deadlines, and closes. Everything belongs to the event
 * loop's thread. Mind what connection.h says about closing. */
#include "serve/http/connection.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"

enum {
    LINGER_MS = 2000,
    CLIENT_SLOTS = 256,
    REQUESTS_A_TURN = 8,   /* of one connection, whose next ones have arrived already */
    BODY_RATE = 16 * 1024, /* bytes a second that a late body must still grow by */
};

void connection_arm(struct http_exchange *c, unsigned timeout_ms)
{
    struct timeval tv = timeval_from_ms(timeout_ms);
    if (timeout_ms)
        evtimer_add(c->timer, &tv);
    else
        evtimer_del(c->timer);
}

/* ---- who waits for whom ------------------------------------------------------------------- */

static enum waiting waiting_of(const struct http_exchange *c)
{
    switch (c->state) {
    case X_IDLE:
        return c->unsent_bytes                ? WAITS_READER
               : c->is_new || c->turn.in_line ? WAITS_HEAD
                                              : WAITS_IDLE;
    case X_HEAD: return WAITS_HEAD;
    case X_BODY: return WAITS_BODY;
    case X_LINGERING: return WAITS_TO_CLOSE;
    default: return c->unsent_bytes ? WAITS_READER : WAITS_NOT;
    }
}

void connection_place(struct http_exchange *c)
{
    enum waiting list = waiting_of(c);
    if (list != c->waits)
        limits_place(&c->server->limits, c, list);
}

void unsent_count(struct http_exchange *c)
{
    struct http_server *s = c->server;
    size_t now = transport_unsent(c->transport);
    if (c->unsent_bytes == 0)
        c->unsent_since_ns = clock_now_ns();
    s->unsent_bytes += now - c->unsent_bytes;
    c->unsent_bytes = now;
    connection_place(c);
    if (s->unsent_bytes > s->options.max_unsent_bytes)
        event_active(s->unsent_check, 0, 0);
}

/* The connection that has held the most memory for the longest time: a client that takes a lot
 * quickly is no trouble, and one that holds a little is not either. */
static struct http_exchange *worst_reader(const struct http_server *s)
{
    uint64_t now_ns = clock_now_ns();
    struct http_exchange *worst = NULL;
    double most = -1;
    for (struct http_exchange *c = s->limits.lists[WAITS_READER].oldest; c; c = c->newer) {
        double held = (double)c->unsent_bytes * (double)(now_ns - c->unsent_since_ns + 1);
        if (held > most) {
            most = held;
            worst = c;
        }
    }
    return worst;
}

void unsent_check(struct http_server *s)
{
    struct http_exchange *c;
    while (s->unsent_bytes > s->options.max_unsent_bytes && (c = worst_reader(s))) {
        log_warn("hung up on %s, which reads too slowly: more than %zu MiB of answers were unsent "
                 "(--max-unsent-mib)",
                 c->peer_text, s->options.max_unsent_bytes >> 20);
        connection_lost(c);
    }
}

/* ---- ending exchanges and connections ----------------------------------------------------- */

/* The handler frees the body that it took. */
static void drop_body(struct http_exchange *c)
{
    strbuf_free(&c->parser.body);
    http_body_freed(c->server, NULL, c->body_bytes);
    c->body_bytes = 0;
}

static void forget_exchange(struct http_exchange *c)
{
    drop_body(c);
    c->user = NULL;
    c->client = c->taken_bytes = 0;
    c->is_kept = false;
    memset(c->memory, 0, sizeof c->memory);
    c->streaming = c->full = c->quiet = false;
    c->status = 0;
    strbuf_free(&c->out); /* idle connections are many */
    strbuf_clear(&c->fields);
    strbuf_clear(&c->note);
    c->parser.max_body_bytes = c->server->options.max_body_bytes;
    http_parser_reset(&c->parser);
}

void connection_close(struct http_exchange *c)
{
    struct http_server *s = c->server;
    assert(c->transport);
    transport_close(c->transport);
    c->transport = NULL;
    event_free(c->timer);
    event_free(c->again);
    forget_exchange(c);
    http_parser_close(&c->parser);
    strbuf_free(&c->fields);
    strbuf_free(&c->note);
    s->unsent_bytes -= c->unsent_bytes;
    limits_place(&s->limits, c, WAITS_NOT);
    limits_remove(&s->limits, &c->peer);
    receiving_forget(c);
    *(c->prev ? &c->prev->next : &s->connections) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->next = s->dead;
    s->dead = c;
    event_active(s->reap, 0, 0);
}

void connection_lost(struct http_exchange *c)
{
    if (c->state == X_RUNNING)
        c->server->handler.hangup(c->server->handler.context, c);
    if (c->state == X_RUNNING || c->state == X_BODY)
        tell_over(c, true);
    connection_close(c);
}

/* The answer is sent and the connection is to be closed. Closing with unread input would make the
 * kernel send a reset, which can overtake the answer; in that case wait for the client to close
 * first. */
static void close_gently(struct http_exchange *c)
{
    struct evbuffer *input = transport_input(c->transport);
    bool all_read = (c->parser.state == HTTP_DONE || http_parser_is_idle(&c->parser)) &&
                    !c->sends_more && !transport_has_unread(c->transport);
    if (c->eof || all_read) {
        connection_close(c);
        return;
    }
    c->state = X_LINGERING;
    connection_place(c);
    event_active(c->server->reap, 0, 0); /* a draining server does not wait for it */
    transport_end_output(c->transport);
    evbuffer_drain(input, evbuffer_get_length(input));
    transport_read(c->transport, true);
    connection_arm(c, LINGER_MS);
}

/* Handles waiting input from the loop: not within the handler's call, and after others had their
 * turn. */
static void read_again(struct http_exchange *c)
{
    struct timeval now = {0};
    if (evbuffer_get_length(transport_input(c->transport)) > 0)
        evtimer_add(c->again, &now);
}

void exchange_done(struct http_exchange *c)
{
    bool closes = c->close || c->server->draining; /* a stream may have begun before the drain */
    drop_body(c);
    c->user = NULL;
    c->taken_bytes = 0;
    c->state = closes ? X_FLUSHING : X_IDLE;
    c->is_new = false;
    unsent_count(c);
    if (!closes) {
        forget_exchange(c);
        connection_arm(c, c->server->options.idle_timeout_ms);
        read_again(c);
        return;
    }
    c->streaming = false;
    connection_arm(c, 0);
    if (c->unsent_bytes == 0)
        close_gently(c);
    else
        read_again(c);
}

/* ---- reading ------------------------------------------------------------------------------ */

void connection_refuse(struct http_exchange *c, int status, const char *message)
{
    struct http_server *s = c->server;
    drop_body(c);
    http_close_after(c);
    c->state = X_RUNNING;
    s->handler.refused(s->handler.context, c, status, message);
    assert(!c->transport || c->state != X_RUNNING);
}

/* The header is complete: calls the handler, then the body may follow. */
static void head_done(struct http_exchange *c)
{
    struct http_server *s = c->server;
    if (transport_is_plain_on_tls(c->transport)) {
        connection_refuse(c, 400, "this server speaks HTTPS: use https:// instead of http://");
        return;
    }
    c->state = X_RUNNING;
    connection_place(c);
    s->handler.head(s->handler.context, c);
    if (!c->transport || c->state != X_RUNNING || c->parser.state == HTTP_DONE)
        return;
    c->state = X_BODY;
    c->body_began_ns = clock_now_ns();
    c->body_mark = 0;
    connection_place(c);
    connection_arm(c, s->options.body_timeout_ms);
    if (c->parser.expect_continue && evbuffer_get_length(transport_input(c->transport)) == 0) {
        transport_write(c->transport, "HTTP/1.1 100 Continue\r\n\r\n", 25);
        transport_flush(c->transport);
        unsent_count(c);
    }
}

/* Feeds the parser the first piece of the input buffer. Returns by how much the body has grown. */
static size_t parse(struct http_exchange *c, struct evbuffer *input)
{
    size_t len = evbuffer_get_contiguous_space(input);
    len = len ? len : 1;
    const char *bytes = (const char *)evbuffer_pullup(input, (ev_ssize_t)len);
    size_t used = http_parser_feed(&c->parser, bytes, len);
    evbuffer_drain(input, used);
    size_t grown = c->parser.body.len - c->body_bytes;
    c->body_bytes += grown;
    c->server->body_bytes += grown;
    return grown;
}

static size_t held_bytes(const struct http_exchange *c)
{
    return c->body_bytes + c->taken_bytes;
}

/* Once answered, a request holds nothing. */
static bool is_refusable(const struct http_exchange *c)
{
    return c->state == X_BODY || (c->state == X_RUNNING && c->taken_bytes && !c->is_kept);
}

/* The largest body of the client that holds most. Few clients share a slot, and nobody can choose
 * with whom. */
static struct http_exchange *largest_body(const struct http_server *s)
{
    size_t held[CLIENT_SLOTS] = {0};
    struct http_exchange *largest = NULL;
    for (struct http_exchange *c = s->connections; c; c = c->next)
        held[c->client % CLIENT_SLOTS] += held_bytes(c);
    for (struct http_exchange *c = s->connections; c; c = c->next) {
        const size_t n = held[c->client % CLIENT_SLOTS];
        const size_t most = largest ? held[largest->client % CLIENT_SLOTS] : 0;
        if (is_refusable(c) && held_bytes(c) &&
            (n > most || (n == most && held_bytes(c) > held_bytes(largest))))
            largest = c;
    }
    return largest;
}

/* Bodies together are too large. */
static void bodies_check(struct http_server *s)
{
    struct http_exchange *c;
    if (s->body_bytes <= s->options.max_bodies_bytes)
        return;
    for (c = s->connections; c; c = c->next)
        c->is_kept = false;
    while (s->body_bytes > s->options.max_bodies_bytes && (c = largest_body(s))) {
        c->is_kept = c->state == X_RUNNING &&
                     !(s->handler.withdraw && s->handler.withdraw(s->handler.context, c));
        if (!c->is_kept)
            connection_refuse(c, 503,
                              "too many large requests are being read at once; try again soon");
    }
}

static void feed(struct http_exchange *c, struct evbuffer *input)
{
    struct http_server *s = c->server;
    size_t grown = parse(c, input);
    if (c->state == X_IDLE && !http_parser_is_idle(&c->parser)) {
        c->state = X_HEAD;
        c->began_ns = clock_now_ns();
        connection_place(c);
        connection_arm(c, s->options.header_timeout_ms);
    }
    if (c->parser.state == HTTP_REFUSED)
        connection_refuse(c, c->parser.status, c->parser.message);
    else if (grown)
        bodies_check(s);
    else if (c->state == X_HEAD && http_parser_head_done(&c->parser))
        head_done(c);
    if (c->transport && c->parser.state == HTTP_DONE &&
        (c->state == X_BODY || c->state == X_RUNNING)) {
        c->state = X_RUNNING;
        connection_place(c);
        connection_arm(c, 0);
        s->handler.request(s->handler.context, c);
        if (c->transport && c->state == X_RUNNING)
            drop_body(c); /* unless the handler took it, it does not need it */
    }
}

void connection_go_on(struct http_exchange *c)
{
    struct evbuffer *input = transport_input(c->transport);
    int n_begun = 0;
    while (c->transport && c->state <= X_BODY && evbuffer_get_length(input) > 0) {
        /* A client that sends requests without reading answers blocks only itself. */
        if (c->state == X_IDLE && c->unsent_bytes > HTTP_OUTPUT_LOW)
            break;
        if (c->state == X_IDLE && n_begun++ == REQUESTS_A_TURN) {
            read_again(c);
            break;
        }
        feed(c, input);
    }
    if (!c->transport)
        return;
    if (c->state >= X_FLUSHING) {
        c->sends_more = true;
        evbuffer_drain(input, evbuffer_get_length(input));
    }
    transport_read(c->transport, evbuffer_get_length(input) < HTTP_MAX_PIPELINED);
}

static void again_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    receiving_turn(arg, true);
}

static void greeted(void *arg)
{
    handshake_wait(arg);
}

static void readable(void *arg)
{
    receiving_turn(arg, false);
}

static void received(void *arg)
{
    connection_go_on(arg);
}

static void sent(void *arg)
{
    struct http_exchange *c = arg;
    struct http_server *s = c->server;
    unsent_count(c);
    if (c->state == X_FLUSHING && c->unsent_bytes == 0) {
        close_gently(c);
    } else if (c->eof && c->unsent_bytes == 0) {
        connection_lost(c);
    } else if (c->state == X_RUNNING && c->full && c->unsent_bytes <= HTTP_OUTPUT_LOW) {
        c->full = false;
        s->handler.room(s->handler.context, c);
    } else if (c->state == X_IDLE && c->unsent_bytes <= HTTP_OUTPUT_LOW) {
        read_again(c);
    }
}

static void ended(void *arg, enum transport_end how)
{
    struct http_exchange *c = arg;
    bool is_answered = c->state != X_RUNNING && c->state != X_LINGERING && c->unsent_bytes > 0;
    c->eof |= how == TRANSPORT_EOF;
    if (how == TRANSPORT_EOF && is_answered)
        evtimer_del(c->timer); /* a complete answer is being sent: let it arrive */
    else
        connection_lost(c);
}

/* A late body may go on as long as it grows. */
static void body_is_late(struct http_exchange *c)
{
    unsigned timeout_ms = c->server->options.body_timeout_ms;
    uint64_t grown = c->parser.body.len - c->body_mark;
    c->body_mark = c->parser.body.len;
    if (grown * 1000 >= (uint64_t)BODY_RATE * timeout_ms)
        connection_arm(c, timeout_ms);
    else
        connection_refuse(c, 408, "the request body did not arrive in time");
}

static void timer_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct http_exchange *c = arg;
    if (c->state == X_HEAD)
        connection_refuse(c, 408, "the request header did not arrive in time");
    else if (c->state == X_BODY)
        body_is_late(c);
    else if (c->state == X_IDLE && (c->unsent_bytes > 0 || c->turn.in_line))
        connection_arm(c, c->server->options.idle_timeout_ms); /* it waits for us */
    else
        connection_lost(c);
}

/* ---- opening ------------------------------------------------------------------------------ */

/* Without an IPv6 zone: it is not part of the address. */
static void address_text(const struct sockaddr *address, char out[INET6_ADDRSTRLEN])
{
    if (address->sa_family == AF_UNIX) {
        memcpy(out, "unix", sizeof "unix");
        return;
    }
    bool v6 = address->sa_family == AF_INET6;
    const void *ip = v6 ? (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr
                        : (const void *)&((const struct sockaddr_in *)address)->sin_addr;
    inet_ntop(v6 ? AF_INET6 : AF_INET, ip, out, INET6_ADDRSTRLEN);
}

static struct http_exchange *connection_make(struct http_server *s, int fd, struct tls_context *tls)
{
    static const struct transport_events events = {greeted, readable, received, sent, ended};
    struct http_exchange *c = calloc(1, sizeof *c);
    struct event *timer = NULL, *again = NULL;
    if (c) {
        timer = evtimer_new(s->base, timer_cb, c);
        again = evtimer_new(s->base, again_cb, c);
    }
    if (timer && again)
        c->transport = transport_open(s->base, fd, tls, &s->hangups, s->options.write_timeout_ms,
                                      &events, c);
    else
        close(fd);
    if (c && c->transport) {
        c->server = s;
        c->timer = timer;
        c->again = again;
        return c;
    }
    if (timer)
        event_free(timer);
    if (again)
        event_free(again);
    free(c);
    return NULL;
}

void connection_open(struct http_server *s, int fd, const struct http_listener *from,
                     const struct sockaddr *address)
{
    struct sockaddr_storage local = {0};
    socklen_t local_len = sizeof local;
    int on = 1;
    struct http_exchange *c = connection_make(s, fd, from->is_unix ? NULL : s->options.tls);
    if (!c) {
        log_warn("cannot accept a connection: no memory");
        return;
    }
    if (!from->is_unix) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* for peers that vanish */
    }
    http_parser_open(&c->parser, s->options.max_header_bytes, s->options.max_body_bytes);
    c->peer = peer_of(address);
    address_text(address, c->peer_text);
    if (getsockname(fd, (struct sockaddr *)&local, &local_len) == 0)
        address_text((struct sockaddr *)&local, c->local);
    c->next = s->connections;
    if (c->next)
        c->next->prev = c;
    s->connections = c;
    c->is_new = true;
    c->waits = WAITS_NOT;
    limits_add(&s->limits, &c->peer);
    connection_place(c);
    connection_arm(c, s->options.header_timeout_ms);
}
