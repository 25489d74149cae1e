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
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "serve/http/hangups.h"
#include "serve/http/tls.h"

enum { TLS_HANDSHAKE = 0x16, TLS_RECORD = 16 * 1024 };
/* All connections together drop about REST_BYTES in REST_US: who has sent that much rests, the
 * longer the more others do. Few bytes count as LEAST_BYTES. */
enum { REST_BYTES = 256 * 1024, REST_US = 2000, LEAST_BYTES = 8 * 1024 };

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
    struct event *rest;   /* its end; may be NULL */
    size_t dropped_bytes; /* since the last rest */
    struct hangups *hangups;
    bool watched;          /* there, because it is not read */
    bool reading;          /* as the owner wants it */
    bool waits;            /* for transport_receive */
    bool rests;            /* from dropping bytes */
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

static void watch(struct transport *t, bool on)
{
    if (on && !t->watched)
        hangups_watch(t->hangups, t->fd, t);
    else if (!on && t->watched)
        hangups_unwatch(t->hangups, t->fd);
    t->watched = on;
}

/* Reads, or looks out for a hang-up. Call it after anything that may change which. */
static void reading_update(struct transport *t)
{
    bool reads = t->reading && !t->greeted && !t->waits && !t->rests && !t->ended;
    if (reads)
        event_add(t->readable, NULL);
    else
        event_del(t->readable);
    watch(t, !reads && !t->ended);
}

static void end(struct transport *t, enum transport_end how)
{
    t->ended = true;
    reading_update(t);
    t->events->ended(t->owner, how);
}

void transport_hung_up(void *transport, bool is_reset)
{
    struct transport *t = transport;
    char byte;
    bool is_read_later = t->reading && t->stage == OPEN && !is_reset;
    if (!is_read_later)
        end(t, TRANSPORT_FAILED);
    else if (recv(t->fd, &byte, 1, MSG_PEEK) == 0)
        end(t, TRANSPORT_EOF);
}

static ptrdiff_t read_more(struct transport *t)
{
    ptrdiff_t n = receive(t);
    t->read_needs_write = n == NEEDS_WRITE;
    if (t->read_needs_write)
        writable_arm(t);
    else if (n > 0)
        t->events->received(t->owner);
    else if (n != AGAIN)
        end(t, n == 0 ? TRANSPORT_EOF : TRANSPORT_FAILED);
    return n;
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

/* Stops reading until it is this client's turn. */
static void greet(struct transport *t)
{
    t->greeted = true;
    reading_update(t);
    t->events->greeted(t->owner);
}

static atomic_int n_resting;

static void rest_if_busy(struct transport *t, size_t n_bytes)
{
    t->dropped_bytes += n_bytes > LEAST_BYTES ? n_bytes : LEAST_BYTES;
    if (t->dropped_bytes < REST_BYTES || t->rests || !t->rest)
        return;
    const long us = (long)REST_US * (1 + atomic_fetch_add(&n_resting, 1));
    struct timeval pause = {.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    t->rests = true;
    t->dropped_bytes = 0;
    reading_update(t);
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
    reading_update(t);
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
        t->events->readable(t->owner);
}

void transport_wait(struct transport *t, bool on)
{
    t->waits = on;
    reading_update(t);
}

size_t transport_receive(struct transport *t)
{
    transport_wait(t, false);
    if (t->ended || t->drops || !t->reading)
        return 0;
    ptrdiff_t n = read_more(t);
    return n > 0 ? (size_t)n : 0;
}

void transport_handshake(struct transport *t)
{
    assert(t->greeted && t->stage == HANDSHAKE);
    t->greeted = false;
    reading_update(t);
    if (handshake(t))
        t->events->readable(t->owner);
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
        t->events->readable(t->owner);
}

/* ---- the interface ------------------------------------------------------------------------ */

struct transport *transport_open(struct event_base *base, int fd, struct tls_context *tls,
                                 struct hangups *hangups, unsigned write_timeout_ms,
                                 const struct transport_events *events, void *owner)
{
    struct transport *t = calloc(1, sizeof *t);
    if (!t) {
        close(fd);
        return NULL;
    }
    *t = (struct transport){.fd = fd,
                            .stage = tls ? FIRST_BYTE : OPEN,
                            .tls = tls,
                            .hangups = hangups,
                            .write_timeout_ms = write_timeout_ms,
                            .events = events,
                            .owner = owner};
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
    event_release(t->rest);
    watch(t, false);
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
    reading_update(t);
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
