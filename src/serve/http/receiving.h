#ifndef RADISH_SERVE_HTTP_RECEIVING_H
#define RADISH_SERVE_HTTP_RECEIVING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Receiving takes turns. A turn reads once from one connection and handles what it has read. Each
 * is paid for; while too much is owed, connections wait in a line.
 *
 *   paid_until:   now - credit ······ now ·········· now + debt
 *                        turns at once │ turns from the line, once the debt is over
 *
 *   line:   ticket 7: A  B  │ 8: A  C  │ 9: A  │ 10: A      (A has many connections; see
 *                                                            limits_ticket) */
struct http_exchange;
struct event;
struct event_base;

enum { RECEIVING_CREDIT_NS = 4000000 }; /* of time in which nothing was received */

struct receiving {
    uint64_t paid_until_ns;
    struct http_exchange *first, *last; /* the line, by tickets */
    uint64_t ticket;                    /* of the last turn from the line */
    struct event *next;                 /* turn from the line */
};

/* Of a connection. */
struct receiving_turn {
    struct http_exchange *before, *behind; /* in the line */
    uint64_t ticket;
    bool in_line;
    bool goes_on; /* with the input that is there */
};

int receiving_open(struct receiving *r, struct event_base *base);
void receiving_close(struct receiving *r);

/* The connection has bytes to read, or (`goes_on`) input to handle: now or later calls
 * transport_receive, or connection_go_on. Either may close it. */
void receiving_turn(struct http_exchange *c, bool goes_on);
/* The connection closes. */
void receiving_forget(struct http_exchange *c);

/* How long it takes until nothing is owed. */
uint64_t receiving_debt_ns(const struct receiving *r, uint64_t now_ns);
/* Pays for a turn that took that much of the thread's time. */
void receiving_pay(struct receiving *r, uint64_t now_ns, uint64_t turn_ns, size_t n_bytes);

#endif
