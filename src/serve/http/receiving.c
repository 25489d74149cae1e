/* Receiving takes turns. Reading and parsing what clients send, and answering what can be answered
 * at once, gets a part of a core and of the memory's bandwidth, however many send: those who
 * generate need the rest. While that part is used up, connections wait in a line where addresses
 * take turns, so a client that sends a lot, or on hundreds of connections, delays its own.
 *
 * Time is measured as the thread's own: the machine may stop the loop in the middle of a turn. */
#include <event2/event.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "serve/http/connection.h"

enum {
    PART = 4,               /* a turn pays for as many times its own length */
    TURN_NS = 4000,         /* what the loop does for a turn beside it */
    BYTE_NS = 8,            /* 125 MB/s */
    TURN_MOST_NS = 20000000 /* that a turn pays, so that an odd one delays nobody for long */
};

/* ---- the budget --------------------------------------------------------------------------- */

uint64_t receiving_debt_ns(const struct receiving *r, uint64_t now_ns)
{
    return r->paid_until_ns > now_ns ? r->paid_until_ns - now_ns : 0;
}

void receiving_pay(struct receiving *r, uint64_t now_ns, uint64_t turn_ns, size_t n_bytes)
{
    uint64_t ns = max_u64(PART * (turn_ns + TURN_NS), BYTE_NS * (uint64_t)n_bytes);
    r->paid_until_ns = max_u64(r->paid_until_ns, now_ns - RECEIVING_CREDIT_NS) +
                       min_u64(ns, TURN_MOST_NS);
}

/* ---- the line ----------------------------------------------------------------------------- */

/* Those who send a lot have the most connections in the line, and join at its end. */
static void line_join(struct receiving *r, struct http_exchange *c)
{
    c->turn.ticket = limits_ticket(&c->server->limits, &c->peer, TICKET_RECEIVE, r->ticket);
    struct http_exchange *before = r->last;
    while (before && before->turn.ticket > c->turn.ticket)
        before = before->turn.before;
    c->turn.before = before;
    c->turn.behind = before ? before->turn.behind : r->first;
    *(before ? &before->turn.behind : &r->first) = c;
    *(c->turn.behind ? &c->turn.behind->turn.before : &r->last) = c;
    c->turn.in_line = true;
    connection_place(c);
}

static void line_leave(struct receiving *r, struct http_exchange *c)
{
    *(c->turn.before ? &c->turn.before->turn.behind : &r->first) = c->turn.behind;
    *(c->turn.behind ? &c->turn.behind->turn.before : &r->last) = c->turn.before;
    c->turn.in_line = false;
}

/* Returns how many bytes were read. */
static size_t turn_take(struct http_exchange *c)
{
    struct receiving *r = &c->server->receiving;
    uint64_t begin_ns = clock_thread_ns();
    size_t n_bytes = 0;
    if (c->turn.goes_on) {
        c->turn.goes_on = false;
        transport_wait(c->transport, false);
        connection_go_on(c);
    } else {
        n_bytes = transport_receive(c->transport);
    }
    receiving_pay(r, clock_now_ns(), clock_thread_ns() - begin_ns, n_bytes);
    return n_bytes;
}

static void next_plan(struct receiving *r)
{
    uint64_t wait_us = receiving_debt_ns(r, clock_now_ns()) / 1000 + 1;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000),
                           .tv_usec = (suseconds_t)(wait_us % 1000000)};
    if (!evtimer_pending(r->next, NULL))
        evtimer_add(r->next, &wait);
}

/* A turn of the first in the line. One that has sent more joins again at once, not after the loop
 * has seen it: that is too late for its next turn. */
static void turn_next(struct receiving *r)
{
    struct http_exchange *c = r->first;
    line_leave(r, c);
    connection_place(c);
    r->ticket = c->turn.ticket;
    if (turn_take(c) && c->transport && !c->turn.in_line) {
        transport_wait(c->transport, true);
        line_join(r, c);
    }
}

static void next_cb(evutil_socket_t fd, short what, void *arg)
{
    enum { MOST = 32 }; /* turns; the loop has more to do */
    (void)fd, (void)what;
    struct receiving *r = arg;
    for (int i = 0; i < MOST && r->first && !receiving_debt_ns(r, clock_now_ns()); i++)
        turn_next(r);
    if (r->first)
        next_plan(r);
}

void receiving_turn(struct http_exchange *c, bool goes_on)
{
    struct receiving *r = &c->server->receiving;
    c->turn.goes_on |= goes_on;
    if (!r->first && !receiving_debt_ns(r, clock_now_ns())) {
        turn_take(c);
        return;
    }
    transport_wait(c->transport, true);
    if (!c->turn.in_line)
        line_join(r, c);
    next_plan(r);
}

void receiving_forget(struct http_exchange *c)
{
    if (c->turn.in_line)
        line_leave(&c->server->receiving, c);
}

int receiving_open(struct receiving *r, struct event_base *base)
{
    r->next = evtimer_new(base, next_cb, r);
    return r->next ? 0 : -1;
}

void receiving_close(struct receiving *r)
{
    if (r->next)
        event_free(r->next);
    r->next = NULL;
}
