#ifndef RADISH_SERVE_HTTP_CONNECTION_LIMITS_H
#define RADISH_SERVE_HTTP_CONNECTION_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Who may connect, and who makes room.
 *
 *   slots:  │ anybody ······································· │ reserved: near peers only │
 *           0                                   max - reserved                          max
 *
 * An address has at most `max_per_address` of them. If there is no slot for a new connection, the
 * one that has kept the server waiting longest is closed, in this order: one whose answer is sent,
 * an idle one, one that has not sent a whole header, one that has not sent a whole body, one whose
 * client has been slow to read its answer for LIMITS_READER_MS. A connection whose request runs, or
 * whose answer is being read, is never closed for another.
 *
 * Near peers are 127.0.0.1, ::1 and Unix sockets: health checks, the operator, and reverse proxies,
 * which bring many clients. They have no limit per address. Near peers make room for near ones, and
 * far peers for far ones, as long as there are any. */
struct http_exchange;
struct sockaddr;

enum { LIMITS_READER_MS = 5000 };

enum waiting {
    WAITS_TO_CLOSE, /* answered; the client has not closed yet */
    WAITS_IDLE,     /* kept alive */
    WAITS_HEAD,     /* also before its first byte */
    WAITS_BODY,
    WAITS_READER, /* for the client to read its answer */
    WAITING_LISTS,
    WAITS_NOT = WAITING_LISTS,
};

/* An address, as limits count it: IPv4 whole, IPv6 by its /64, which one client usually has. */
struct peer {
    uint64_t key; /* 0: a Unix socket */
    bool is_near;
};

struct waiting_list {
    struct http_exchange *oldest, *newest;
};

enum ticket { TICKET_HANDSHAKE, TICKET_RECEIVE, TICKET_KINDS };

struct address_count {
    uint64_t key;
    uint32_t n;                     /* 0: the slot is free */
    uint64_t tickets[TICKET_KINDS]; /* the last ones drawn */
};

struct connection_limits {
    uint32_t max, reserved, max_per_address; /* max_per_address 0: no limit */
    uint32_t n;                              /* open connections */
    struct waiting_list lists[WAITING_LISTS];
    struct address_count *addresses; /* hash table of n_slots, a power of two above 2 * max */
    uint32_t n_slots;
};

enum admission { ADMITTED, FULL, ADDRESS_FULL };

int limits_open(struct connection_limits *l, uint32_t max, uint32_t max_per_address,
                struct error *err);
void limits_close(struct connection_limits *l);

struct peer peer_of(const struct sockaddr *address);

/* Whether the peer may connect now. If not, `victim` is the connection to close instead, or NULL if
 * none may be. */
enum admission limits_admit(const struct connection_limits *l, const struct peer *peer,
                            struct http_exchange **victim);
/* Counts a connection, or no longer. */
void limits_add(struct connection_limits *l, const struct peer *peer);
void limits_remove(struct connection_limits *l, const struct peer *peer);
/* A place in a line where addresses take turns, and the connections of one stand behind each other:
 * the smallest ticket is next. `now`: the ticket that was served last. */
uint64_t limits_ticket(struct connection_limits *l, const struct peer *peer, enum ticket kind,
                       uint64_t now);
/* Moves a connection to the newest end of a list; WAITS_NOT takes it out. */
void limits_place(struct connection_limits *l, struct http_exchange *c, enum waiting list);

#endif
