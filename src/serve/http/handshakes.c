/* TLS handshakes take turns. Each costs about a millisecond of computing, and a client pays nothing
 * for sending the beginning of one. So each turn of the loop has one step of one handshake, and
 * streams go on in between; addresses take turns, so a client that begins hundreds delays its own.
 */
#include <event2/event.h>

#include "serve/http/connection.h"

static void turn_begin(struct http_server *s)
{
    struct timeval now = {0};
    if (!evtimer_pending(s->shake, NULL))
        evtimer_add(s->shake, &now);
}

void handshake_wait(struct http_exchange *c)
{
    struct http_server *s = c->server;
    c->shakes = true;
    c->ticket = limits_ticket(&s->limits, &c->peer, s->ticket);
    turn_begin(s);
}

void handshake_next(struct http_server *s)
{
    struct http_exchange *next = NULL;
    unsigned n = 0;
    for (struct http_exchange *c = s->connections; c; c = c->next) {
        if (!c->shakes)
            continue;
        n++;
        if (!next || c->ticket < next->ticket)
            next = c;
    }
    if (n > 1)
        turn_begin(s);
    if (!next)
        return;
    next->shakes = false;
    s->ticket = next->ticket;
    transport_handshake(next->transport);
}
