#ifndef RADISH_SERVE_HTTP_TRANSPORT_H
#define RADISH_SERVE_HTTP_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

/* The bytes of one connection, encrypted or not. The owner reads `input` and writes answers, and
 * does not know which it is.
 *
 *   without TLS ──────────────────────────────────────► open
 *   with TLS ────► first byte ─┬─ 0x16 ──► handshake ──► open     (in steps: `greeted`)
 *                              └─ another ────────────► open, in plain text: see
 *                                                       transport_is_plain_on_tls
 *
 * A turn of the event loop reads and writes a bounded number of bytes of each connection, so that a
 * fast client does not keep others waiting. */
struct transport;
struct tls_context;
struct event_base;
struct evbuffer;
struct hangups;

enum {
    TRANSPORT_READ_BYTES = 16 * 1024,   /* a turn; a whole TLS record */
    TRANSPORT_WRITE_BYTES = 256 * 1024, /* a turn */
};

enum transport_end {
    TRANSPORT_EOF,     /* the client sends no more; it may still read */
    TRANSPORT_FAILED,  /* the connection is broken, or TLS is */
    TRANSPORT_TIMEOUT, /* the client has read nothing for write_timeout_ms */
};

/* All are called from the event loop, never from within a function of this header that does not say
 * so, and may close the transport. */
struct transport_events {
    void (*greeted)(void *owner); /* a part of a handshake has come: call transport_handshake */
    /* Bytes have come: call transport_receive at once, or transport_wait and do it later. */
    void (*readable)(void *owner);
    void (*received)(void *owner); /* `input` has grown */
    void (*sent)(void *owner);     /* a part of the output is sent */
    void (*ended)(void *owner, enum transport_end how);
};

/* Takes the socket, also if it fails: returns NULL without memory. `tls`: NULL for plain text. */
struct transport *transport_open(struct event_base *base, int fd, struct tls_context *tls,
                                 struct hangups *hangups, unsigned write_timeout_ms,
                                 const struct transport_events *events, void *owner);
/* Tells a TLS client that this is the end, if all output is sent. */
void transport_close(struct transport *t);

/* Goes on with the handshake. It may take a millisecond of computing, so the owner decides when.
 * Unlike the others this may report events before it returns. */
void transport_handshake(struct transport *t);

/* Nothing is read until the wait ends. */
void transport_wait(struct transport *t, bool on);
/* Reads what has come, and reports `received` or `ended` before it returns. Ends a wait. Returns
 * the number of bytes. */
size_t transport_receive(struct transport *t);
/* For hangups_open: a transport has hung up while it is not read. */
void transport_hung_up(void *transport, bool is_reset);

struct evbuffer *transport_input(struct transport *t);
/* Bytes have arrived that the owner has not taken. */
bool transport_has_unread(const struct transport *t);
/* While reading is off, a hang-up is still noticed, and ends as TRANSPORT_FAILED. During a wait, it
 * is noticed once the bytes before it are read, and a reset at once. */
void transport_read(struct transport *t, bool on);

/* Queues bytes. Without memory for them the connection is cut, so that nothing follows the gap. */
void transport_write(struct transport *t, const char *bytes, size_t len);
/* Sends what is queued: at once if the socket takes it, and the rest from the loop. */
void transport_flush(struct transport *t);
size_t transport_unsent(const struct transport *t);

/* Sends no more, and tells the client so. What it sends is dropped unread from now on; its end is
 * reported. */
void transport_end_output(struct transport *t);
/* Breaks the connection; the loop then reports its end. */
void transport_cut(struct transport *t);
/* The client speaks plain text on a port for TLS. */
bool transport_is_plain_on_tls(const struct transport *t);

#endif
