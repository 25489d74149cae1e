/* Slots for connections: counts by address, and lists of those that keep the server waiting, oldest
 * first. A connection is in at most one list. */
#include "serve/http/connection_limits.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/hash.h"
#include "serve/http/connection.h"

enum { RESERVED_PART = 16 }; /* one slot in 16 is reserved */

int limits_open(struct connection_limits *l, uint32_t max, uint32_t max_per_address,
                struct error *err)
{
    *l = (struct connection_limits){.max = max,
                                    .reserved = max / RESERVED_PART,
                                    .max_per_address = max_per_address,
                                    .n_slots = 4};
    while (l->n_slots <= 2 * max)
        l->n_slots *= 2;
    l->addresses = calloc(l->n_slots, sizeof *l->addresses);
    return l->addresses ? 0 : error_set(err, ERROR_MEMORY, "no memory for the HTTP server");
}

void limits_close(struct connection_limits *l)
{
    free(l->addresses);
    l->addresses = NULL;
}

/* ---- addresses ---------------------------------------------------------------------------- */

static struct peer peer_v4(uint32_t address)
{
    return (struct peer){.key = UINT64_C(1) << 32 | address, .is_near = address == INADDR_LOOPBACK};
}

struct peer peer_of(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return peer_v4(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr));
    if (address->sa_family != AF_INET6)
        return (struct peer){.is_near = true};
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    uint32_t mapped;
    struct peer peer;
    memcpy(&mapped, v6->s6_addr + 12, sizeof mapped);
    if (IN6_IS_ADDR_V4MAPPED(v6))
        return peer_v4(ntohl(mapped));
    memcpy(&peer.key, v6->s6_addr, sizeof peer.key);
    peer.is_near = IN6_IS_ADDR_LOOPBACK(v6);
    peer.key = hash_pair(peer.key, AF_INET6) | UINT64_C(1) << 63; /* not an IPv4 key */
    return peer;
}

/* The slot of the address, or the free one where it would be. */
static uint32_t slot_of(const struct connection_limits *l, uint64_t key)
{
    uint32_t at = (uint32_t)hash_pair(key, 0) & (l->n_slots - 1);
    while (l->addresses[at].n && l->addresses[at].key != key)
        at = (at + 1) & (l->n_slots - 1);
    return at;
}

void limits_add(struct connection_limits *l, const struct peer *peer)
{
    struct address_count *slot = &l->addresses[slot_of(l, peer->key)];
    if (!slot->n)
        *slot = (struct address_count){.key = peer->key};
    slot->n++;
    l->n++;
}

void limits_remove(struct connection_limits *l, const struct peer *peer)
{
    uint32_t at = slot_of(l, peer->key), mask = l->n_slots - 1;
    l->n--;
    if (--l->addresses[at].n)
        return;
    /* Those behind the free slot may have been put there because it was taken: put them again. */
    for (uint32_t i = (at + 1) & mask; l->addresses[i].n; i = (i + 1) & mask) {
        struct address_count moved = l->addresses[i];
        l->addresses[i].n = 0;
        l->addresses[slot_of(l, moved.key)] = moved;
    }
}

uint64_t limits_ticket(struct connection_limits *l, const struct peer *peer, enum ticket kind,
                       uint64_t now)
{
    uint64_t *last = &l->addresses[slot_of(l, peer->key)].tickets[kind];
    *last = (*last > now ? *last : now) + 1;
    return *last;
}

/* ---- who waits ---------------------------------------------------------------------------- */

void limits_place(struct connection_limits *l, struct http_exchange *c, enum waiting list)
{
    if (c->waits != WAITS_NOT) {
        struct waiting_list *from = &l->lists[c->waits];
        *(c->older ? &c->older->newer : &from->oldest) = c->newer;
        *(c->newer ? &c->newer->older : &from->newest) = c->older;
    }
    c->waits = list;
    c->older = c->newer = NULL;
    if (list == WAITS_NOT)
        return;
    struct waiting_list *to = &l->lists[list];
    c->older = to->newest;
    *(to->newest ? &to->newest->newer : &to->oldest) = c;
    to->newest = c;
}

static bool is_same_address(const struct peer *a, const struct peer *b)
{
    return a->key == b->key;
}

static bool is_as_near(const struct peer *a, const struct peer *b)
{
    return a->is_near == b->is_near;
}

/* The connection that should make room for the peer, of those that are like it. NULL: any. */
static struct http_exchange *victim_for(const struct connection_limits *l, const struct peer *peer,
                                        bool (*is_alike)(const struct peer *, const struct peer *))
{
    for (enum waiting list = WAITS_TO_CLOSE; list <= WAITS_BODY; list++)
        for (struct http_exchange *c = l->lists[list].oldest; c; c = c->newer)
            if (!is_alike || is_alike(&c->peer, peer))
                return c;
    uint64_t now_ns = clock_now_ns();
    for (struct http_exchange *c = l->lists[WAITS_READER].oldest; c; c = c->newer)
        if ((!is_alike || is_alike(&c->peer, peer)) &&
            now_ns - c->unsent_since_ns >= LIMITS_READER_MS * UINT64_C(1000000))
            return c;
    return NULL;
}

enum admission limits_admit(const struct connection_limits *l, const struct peer *peer,
                            struct http_exchange **victim)
{
    *victim = NULL;
    if (!peer->is_near && l->max_per_address &&
        l->addresses[slot_of(l, peer->key)].n >= l->max_per_address) {
        *victim = victim_for(l, peer, is_same_address);
        return ADDRESS_FULL;
    }
    if (l->n < l->max - (peer->is_near ? 0 : l->reserved))
        return ADMITTED;
    *victim = victim_for(l, peer, is_as_near);
    if (!*victim)
        *victim = victim_for(l, peer, NULL);
    return FULL;
}
