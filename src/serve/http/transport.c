/* Bytes between a socket and two buffers, with TLS in between or without it.
 *
 * Reading and writing are events of the loop; only transport_flush tries to write at once, because
 * most answers fit into the socket, and waiting for a socket that is ready anyway costs three more
 * system calls. Its errors recur when the loop sends the rest. */
#include "serve/http/transport.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "serve/http/tls.h"

enum { TLS_HANDSHAKE = 0x16, TLS_RECORD = 16 * 1024 };
/* Receiving costs time whatever is received, so all connections together receive about REST_BYTES
 * in REST_US: who has sent that much without a pause rests, the longer the more others do. A TLS
 * record without data counts as EMPTY_BYTES. */
enum { REST_BYTES = 256 * 1024, REST_US = 2000, PAUSE_NS = 10000000, EMPTY_BYTES = 8 * 1024 };

enum stage { FIRST_BYTE, HANDSHAKE, OPEN };

/* What reading or writing came to, if not to a number of bytes. */
enum { AGAIN = -1, FAILED = -2, NEEDS_WRITE = -3 };

struct transport {
    int fd;
    enum stage stage;
    struct tls_context *tls; /* NULL: plain text */
    SSL *ssl;                /* NULL in plain text, and before the first byte */
    struct evbuffer *input, *output;
    struct event *readable, *writable;
    struct event *rest;    /* its end; may be NULL */
    bool rests;            /* `readable` is off until then */
    size_t busy_bytes;     /* received since the last rest or pause */
    uint64_t received_ns;  /* last */
    int closed_fd;         /* an epoll of its own that knows only hang-ups; -1: none yet */
    struct event *closed;  /* detects a hang-up while reading is off; may be NULL */
    bool reading;          /* as the owner wants it */
    bool read_needs_write; /* TLS must write before it can read on */
    bool greeted;          /* a part of the handshake waits for transport_handshake */
    bool drops;            /* what arrives is dropped */
    bool ended;            /* the client sends no more */
    bool broken;           /* TLS has failed and can say nothing more */
    unsigned write_timeout_ms;
    const struct transport_events *events;
    void *owner;
};

/* ---- TLS ---------------------------------------------------------------------------------- */

/* Sorts the result of a function of OpenSSL that is not a number of bytes. 0: the end. */
static ptrdiff_t tls_result(struct transport *t, int result)
{
    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ: return AGAIN;
    case SSL_ERROR_WANT_WRITE: return NEEDS_WRITE;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: break;
    }
    unsigned long code = ERR_peek_error();
    t->broken = true;
    /* A client that closes the socket without a word of TLS is common, and no failure: a request
     * says itself where it ends. */
    if (code == 0 && t->stage == OPEN)
        return 0;
    log_debug("TLS: %s", code ? ERR_reason_error_string(code) : "the client hung up");
    return FAILED;
}

static ptrdiff_t tls_read(struct transport *t, void *bytes, size_t len)
{
    ERR_clear_error();
    int n = SSL_read(t->ssl, bytes, (int)len);
    return n > 0 ? n : tls_result(t, n);
}

/* One record. The same bytes may lie elsewhere when this is tried again. */
static ptrdiff_t tls_write(struct transport *t)
{
    size_t len = min_size(evbuffer_get_length(t->output), TLS_RECORD);
    unsigned char *bytes = evbuffer_pullup(t->output, (ev_ssize_t)len);
    if (!bytes)
        return FAILED;
    ERR_clear_error();
    int n = SSL_write(t->ssl, bytes, (int)len);
    if (n <= 0) {
        ptrdiff_t result = tls_result(t, n);
        return result == 0 ? FAILED : result == NEEDS_WRITE ? AGAIN : result;
    }
    evbuffer_drain(t->output, (size_t)n);
    return n;
}

/* ---- reading and writing ------------------------------------------------------------------ */

static void writable_arm(struct transport *t)
{
    struct timeval timeout = timeval_from_ms(t->write_timeout_ms);
    if (!event_pending(t->writable, EV_WRITE, NULL))
        event_add(t->writable, t->write_timeout_ms ? &timeout : NULL);
}

/* The number of bytes, 0 at the end, or one of the above. */
static ptrdiff_t receive(struct transport *t)
{
    struct evbuffer_iovec space;
    if (evbuffer_reserve_space(t->input, TRANSPORT_READ_BYTES, &space, 1) != 1)
        return FAILED;
    space.iov_len = min_size(space.iov_len, TRANSPORT_READ_BYTES);
    ptrdiff_t n;
    if (t->ssl)
        n = tls_read(t, space.iov_base, space.iov_len);
    else if ((n = recv(t->fd, space.iov_base, space.iov_len, 0)) < 0)
        n = errno == EAGAIN || errno == EINTR ? AGAIN : FAILED;
    if (n > 0) {
        space.iov_len = (size_t)n;
        evbuffer_commit_space(t->input, &space, 1);
    }
    return n;
}

/* Sends until the socket is full or this turn's share is sent. Returns the number of bytes, or
 * FAILED. */
static ptrdiff_t send_some(struct transport *t)
{
    ptrdiff_t sum = 0;
    while (evbuffer_get_length(t->output) > 0 && sum < TRANSPORT_WRITE_BYTES) {
        ptrdiff_t n;
        if (t->ssl)
            n = tls_write(t);
        else if ((n = evbuffer_write_atmost(t->output, t->fd, TRANSPORT_WRITE_BYTES)) < 0)
            n = errno == EAGAIN || errno == EINTR ? AGAIN : FAILED;
        if (n == FAILED)
            return FAILED;
        if (n < 0)
            break;
        sum += n;
    }
    return sum;
}

static void end(struct transport *t, enum transport_end how)
{
    t->ended = true;
    event_del(t->readable);
    if (t->closed)
        event_del(t->closed);
    t->events->ended(t->owner, how);
}

static atomic_int n_resting;

static void rest_if_busy(struct transport *t, size_t n_bytes)
{
    const uint64_t now_ns = clock_now_ns();
    t->busy_bytes = n_bytes + (now_ns - t->received_ns < PAUSE_NS ? t->busy_bytes : 0);
    t->received_ns = now_ns;
    if (t->busy_bytes < REST_BYTES || t->rests || !t->rest)
        return;
    const long us = (long)REST_US * (1 + atomic_fetch_add(&n_resting, 1));
    struct timeval pause = {.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    t->rests = true;
    t->busy_bytes = 0;
    event_del(t->readable);
    evtimer_add(t->rest, &pause);
}

static void rest_end(struct transport *t)
{
    if (t->rests)
        atomic_fetch_sub(&n_resting, 1);
    t->rests = false;
}

static void rest_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct transport *t = arg;
    rest_end(t);
    if (t->reading && !t->ended)
        event_add(t->readable, NULL);
}

static void read_more(struct transport *t)
{
    ptrdiff_t n = receive(t);
    rest_if_busy(t, n > 0 ? (size_t)n : EMPTY_BYTES);
    t->read_needs_write = n == NEEDS_WRITE;
    if (t->read_needs_write)
        writable_arm(t);
    else if (n > 0)
        t->events->received(t->owner);
    else if (n != AGAIN)
        end(t, n == 0 ? TRANSPORT_EOF : TRANSPORT_FAILED);
}

/* ---- the beginning ------------------------------------------------------------------------ */

/* Looks at the first byte without taking it. False: not yet open. */
static bool first_byte(struct transport *t)
{
    unsigned char byte;
    ssize_t n = recv(t->fd, &byte, 1, MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    t->stage = OPEN; /* where a read reports the end, or gets the plain text */
    if (n <= 0 || byte != TLS_HANDSHAKE)
        return true;
    t->stage = HANDSHAKE;
    t->ssl = tls_accept(t->tls, t->fd);
    if (!t->ssl) {
        end(t, TRANSPORT_FAILED);
        return false;
    }
    return true;
}

/* True once the handshake is complete. */
static bool handshake(struct transport *t)
{
    ERR_clear_error();
    int rc = SSL_accept(t->ssl);
    if (rc == 1) {
        t->stage = OPEN;
        return true;
    }
    ptrdiff_t result = tls_result(t, rc);
    if (result == NEEDS_WRITE)
        writable_arm(t);
    else if (result != AGAIN)
        end(t, TRANSPORT_FAILED);
    return false;
}

static void closed_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    end(arg, TRANSPORT_FAILED);
}

/* Looks out for a hang-up while nothing is read. libevent's EV_CLOSED does not see resets, and its
 * loop spins on them. Without files for it, a hang-up is seen later. */
static void closed_watch(struct transport *t)
{
    struct epoll_event hangup = {.events = EPOLLRDHUP};
    if (t->closed_fd < 0) {
        t->closed_fd = epoll_create1(EPOLL_CLOEXEC);
        if (t->closed_fd < 0 || epoll_ctl(t->closed_fd, EPOLL_CTL_ADD, t->fd, &hangup))
            return;
        t->closed = event_new(event_get_base(t->readable), t->closed_fd, EV_READ, closed_cb, t);
    }
    if (t->closed)
        event_add(t->closed, NULL);
}

/* Stops reading until it is this client's turn. */
static void greet(struct transport *t)
{
    t->greeted = true;
    event_del(t->readable);
    closed_watch(t);
    t->events->greeted(t->owner);
}

/* A client that goes on sending what nobody wants must not cost more than it has to: the kernel
 * need not copy it (TCP), and it is not decrypted. */
static void drop(struct transport *t)
{
    static char sink[REST_BYTES];
    ssize_t n = recv(t->fd, sink, sizeof sink, MSG_TRUNC);
    if (n > 0)
        rest_if_busy(t, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        end(t, n == 0 ? TRANSPORT_EOF : TRANSPORT_FAILED);
}

static void readable_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct transport *t = arg;
    if (t->drops) {
        drop(t);
        return;
    }
    if (t->stage == FIRST_BYTE && !first_byte(t))
        return;
    if (t->stage == HANDSHAKE)
        greet(t);
    else
        read_more(t);
}

void transport_handshake(struct transport *t)
{
    assert(t->greeted && t->stage == HANDSHAKE);
    t->greeted = false;
    if (t->closed)
        event_del(t->closed);
    if (t->reading)
        event_add(t->readable, NULL);
    if (handshake(t))
        read_more(t);
}

static void writable_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    struct transport *t = arg;
    if (what & EV_TIMEOUT) {
        end(t, TRANSPORT_TIMEOUT);
        return;
    }
    ptrdiff_t n = t->stage == OPEN ? send_some(t) : 0;
    if (n == FAILED) {
        end(t, TRANSPORT_FAILED);
        return;
    }
    /* The owner may close the transport, so a read that waits has the next turn. */
    bool is_last = n == 0 || !t->read_needs_write;
    if (evbuffer_get_length(t->output) == 0 && is_last)
        event_del(t->writable);
    if (t->stage == HANDSHAKE && !t->greeted)
        handshake(t);
    else if (n > 0)
        t->events->sent(t->owner);
    else if (t->read_needs_write)
        read_more(t);
}

/* ---- the interface ------------------------------------------------------------------------ */

struct transport *transport_open(struct event_base *base, int fd, struct tls_context *tls,
                                 unsigned write_timeout_ms, const struct transport_events *events,
                                 void *owner)
{
    struct transport *t = calloc(1, sizeof *t);
    if (!t) {
        close(fd);
        return NULL;
    }
    *t = (struct transport){.fd = fd,
                            .stage = tls ? FIRST_BYTE : OPEN,
                            .tls = tls,
                            .write_timeout_ms = write_timeout_ms,
                            .events = events,
                            .owner = owner,
                            .closed_fd = -1};
    t->input = evbuffer_new();
    t->output = evbuffer_new();
    t->readable = event_new(base, fd, EV_READ | EV_PERSIST, readable_cb, t);
    t->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, writable_cb, t);
    t->rest = evtimer_new(base, rest_cb, t);
    if (!t->input || !t->output || !t->readable || !t->writable) {
        transport_close(t);
        return NULL;
    }
    transport_read(t, true);
    return t;
}

static void event_release(struct event *event)
{
    if (event)
        event_free(event);
}

void transport_close(struct transport *t)
{
    event_release(t->readable);
    event_release(t->writable);
    event_release(t->closed);
    if (t->closed_fd >= 0)
        close(t->closed_fd);
    event_release(t->rest);
    rest_end(t);
    if (t->ssl) {
        ERR_clear_error();
        if (t->stage == OPEN && !t->broken && evbuffer_get_length(t->output) == 0)
            SSL_shutdown(t->ssl);
        SSL_free(t->ssl);
    }
    if (t->input)
        evbuffer_free(t->input);
    if (t->output)
        evbuffer_free(t->output);
    close(t->fd);
    free(t);
}

struct evbuffer *transport_input(struct transport *t)
{
    return t->input;
}

bool transport_has_unread(const struct transport *t)
{
    char byte;
    return evbuffer_get_length(t->input) > 0 || recv(t->fd, &byte, 1, MSG_PEEK) > 0;
}

void transport_read(struct transport *t, bool on)
{
    if (t->ended || t->reading == on)
        return;
    t->reading = on;
    if (on && !t->rests)
        event_add(t->readable, NULL);
    else if (!on)
        event_del(t->readable);
    if (!on)
        closed_watch(t);
    else if (t->closed)
        event_del(t->closed);
}

void transport_write(struct transport *t, const char *bytes, size_t len)
{
    if (len && evbuffer_add(t->output, bytes, len))
        transport_cut(t);
}

void transport_flush(struct transport *t)
{
    if (event_pending(t->writable, EV_WRITE, NULL))
        return; /* the socket is full */
    send_some(t);
    if (evbuffer_get_length(t->output) > 0)
        writable_arm(t);
}

size_t transport_unsent(const struct transport *t)
{
    return evbuffer_get_length(t->output);
}

void transport_end_output(struct transport *t)
{
    if (t->ssl && !t->broken) {
        ERR_clear_error();
        SSL_shutdown(t->ssl);
    }
    shutdown(t->fd, SHUT_WR);
    t->drops = true;
    t->read_needs_write = false;
}

void transport_cut(struct transport *t)
{
    shutdown(t->fd, SHUT_RDWR);
}

bool transport_is_plain_on_tls(const struct transport *t)
{
    return t->tls && !t->ssl;
}
