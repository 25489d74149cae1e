/* TLS handshakes take turns. Each costs about a millisecond of computing, and a client pays nothing
 * for sending the beginning of one. So each turn of the loop has one step of one handshake, and
 * streams go on in between; addresses take turns, so a client that begins hundreds delays its own.
 */
#include <event2/event.h>

#include "base/clock.h"
#include "serve/http/connection.h"

/* A pause is that many times as long as the step before it took of the thread's own time:
 * handshakes get a ninth of a core at most while requests run, and half of one otherwise. */
enum { PAUSE_BUSY = 8, PAUSE_IDLE = 1 };

static void turn_begin(struct http_server *s)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t wait_us = s->handshake_ns > now_ns ? (s->handshake_ns - now_ns) / 1000 : 0;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000),
                           .tv_usec = (suseconds_t)(wait_us % 1000000)};
    if (!evtimer_pending(s->shake, NULL))
        evtimer_add(s->shake, &wait);
}

void handshake_wait(struct http_exchange *c)
{
    struct http_server *s = c->server;
    c->shakes = true;
    c->ticket = limits_ticket(&s->limits, &c->peer, TICKET_HANDSHAKE, s->ticket);
    turn_begin(s);
}

void handshake_next(struct http_server *s)
{
    struct http_exchange *next = NULL;
    unsigned n = 0;
    uint64_t pause = PAUSE_IDLE;
    for (struct http_exchange *c = s->connections; c; c = c->next) {
        if (c->state == X_RUNNING)
            pause = PAUSE_BUSY;
        if (!c->shakes)
            continue;
        n++;
        if (!next || c->ticket <= next->ticket) /* the list begins with the newest */
            next = c;
    }
    if (!next)
        return;
    next->shakes = false;
    s->ticket = next->ticket;
    uint64_t begin_ns = clock_thread_ns();
    transport_handshake(next->transport);
    s->handshake_ns = clock_now_ns() + pause * (clock_thread_ns() - begin_ns);
    if (n > 1)
        turn_begin(s);
}
