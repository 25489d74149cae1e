/* Limits on what a client may use. Owned by the event loop's thread.
 *
 * A bucket is kept as the time at which it will be full again. Using n of `limit` a minute moves
 * that time by n/limit of a minute, which needs no clock tick and loses nothing to rounding but
 * fractions of a nanosecond per charge. */
#include "serve/api/limits.h"

#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/hash.h"

#define MINUTE_NS UINT64_C(60000000000)

/* ---- reading them ------------------------------------------------------------------------- */

static const char *const names[N_LIMITS] = {
    [LIMIT_REQUESTS_AT_ONCE] = "requests-at-once",
    [LIMIT_REQUESTS_PER_MINUTE] = "requests-per-minute",
    [LIMIT_TOKENS_PER_MINUTE] = "tokens-per-minute",
    [LIMIT_TOKENS_PER_REQUEST] = "tokens-per-request",
};

const char *limit_names(void)
{
    return "requests-at-once, requests-per-minute, tokens-per-minute and tokens-per-request";
}

/* A whole number up to LIMIT_MAX; false if it is none. */
static bool number_read(const char *text, size_t len, uint32_t *out)
{
    uint32_t value = 0;
    if (len == 0 || len > 9)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!ascii_is_digit(text[i]))
            return false;
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    *out = value;
    return value <= LIMIT_MAX;
}

bool limit_read(struct limit_set *set, const char *text, size_t len, int *failed, struct error *err)
{
    for (int i = 0; i < N_LIMITS; i++) {
        size_t n = strlen(names[i]);
        uint32_t value;
        if (len <= n || memcmp(text, names[i], n) != 0 || text[n] != '=')
            continue;
        *failed = 0;
        if (!number_read(text + n + 1, len - n - 1, &value))
            *failed = error_set(err, ERROR_INPUT,
                                "%s needs a whole number up to %d, or 0 for no limit", names[i],
                                LIMIT_MAX);
        else if (set->of[i])
            *failed = error_set(err, ERROR_INPUT, "%s is given twice", names[i]);
        else
            set->of[i] = value ? value : LIMIT_NONE;
        return true;
    }
    return false;
}

int limits_read(struct limit_set *set, const char *text, struct error *err)
{
    *set = (struct limit_set){0};
    for (text += strspn(text, " ,"); *text; text += strspn(text, " ,")) {
        size_t len = strcspn(text, " ,");
        int failed;
        if (!limit_read(set, text, len, &failed, err))
            return error_set(err, ERROR_INPUT,
                             "'%.*s' is not a limit: write NAME=NUMBER; there are %s",
                             (int)(len < 60 ? len : 60), text, limit_names());
        if (failed)
            return -1;
        text += len;
    }
    return limits_any(set) ? 0 : error_set(err, ERROR_INPUT, "there is no limit in it");
}

struct limit_set limits_or(const struct limit_set *set, const struct limit_set *otherwise)
{
    struct limit_set both = *set;
    for (int i = 0; i < N_LIMITS; i++)
        if (!both.of[i])
            both.of[i] = otherwise->of[i];
    return both;
}

bool limits_any(const struct limit_set *set)
{
    for (int i = 0; i < N_LIMITS; i++)
        if (set->of[i])
            return true;
    return false;
}

uint32_t limit_of(const struct limit_set *set, enum limit limit)
{
    return set->of[limit] == LIMIT_NONE ? 0 : set->of[limit];
}

/* ---- buckets ------------------------------------------------------------------------------ */

/* Rounded down, so that `limit` times the cost of one fits into a minute. */
static uint64_t cost_ns(uint64_t n, uint32_t limit)
{
    return n * MINUTE_NS / limit;
}

static uint64_t owed_ns(uint64_t full_ns, uint64_t now_ns)
{
    return full_ns > now_ns ? full_ns - now_ns : 0;
}

static void bucket_take(uint64_t *full_ns, uint64_t n, uint32_t limit, uint64_t now_ns)
{
    *full_ns = now_ns + owed_ns(*full_ns, now_ns) + cost_ns(n, limit);
}

/* How long until one more can be taken; 0: now. */
static uint64_t bucket_wait_ns(uint64_t full_ns, uint32_t limit, uint64_t now_ns)
{
    uint64_t after = owed_ns(full_ns, now_ns) + cost_ns(1, limit);
    return after > MINUTE_NS ? after - MINUTE_NS : 0;
}

static uint32_t bucket_left(uint64_t full_ns, uint32_t limit, uint64_t now_ns)
{
    uint64_t owed = owed_ns(full_ns, now_ns);
    return owed >= MINUTE_NS ? 0 : (uint32_t)((MINUTE_NS - owed) * limit / MINUTE_NS);
}

/* ---- meters ------------------------------------------------------------------------------- */

static uint32_t *chain_of(struct limiter *l, uint64_t client)
{
    return &l->chains[hash_mix(client) % LIMITER_CHAINS];
}

/* The first meter is for clients that find no other. */
static struct meter *meter_find(struct limiter *l, uint64_t client)
{
    if (!l->meters)
        return NULL;
    for (uint32_t at = *chain_of(l, client); at; at = l->meters[at - 1].next)
        if (l->meters[at - 1].client == client)
            return &l->meters[at - 1];
    return NULL;
}

static bool is_as_new(const struct meter *m, uint64_t now_ns)
{
    return m->n_running == 0 && m->full_ns[LIMIT_REQUESTS_PER_MINUTE] <= now_ns &&
           m->full_ns[LIMIT_TOKENS_PER_MINUTE] <= now_ns;
}

/* Takes a meter that is as new from its client. Looks at a few only, so that no request is slow. */
static struct meter *meter_reclaim(struct limiter *l, uint64_t now_ns)
{
    enum { LOOKS = 64 };
    for (int i = 0; i < LOOKS; i++) {
        l->hand = l->hand % (LIMITER_METERS - 1) + 1; /* never the shared one */
        struct meter *m = &l->meters[l->hand];
        if (!is_as_new(m, now_ns))
            continue;
        uint32_t *at = chain_of(l, m->client);
        while (*at != l->hand + 1)
            at = &l->meters[*at - 1].next;
        *at = m->next;
        return m;
    }
    return NULL;
}

/* NULL: out of memory; then nothing is limited. */
static struct meter *meter_make(struct limiter *l, uint64_t client, uint64_t now_ns)
{
    struct meter *m = meter_find(l, client);
    if (m)
        return m;
    if (!l->meters) {
        l->meters = calloc(LIMITER_METERS, sizeof *l->meters);
        l->chains = calloc(LIMITER_CHAINS, sizeof *l->chains);
        l->n_used = 1;
        if (!l->meters || !l->chains) {
            limiter_free(l);
            return NULL;
        }
    }
    m = l->n_used < LIMITER_METERS ? &l->meters[l->n_used++] : meter_reclaim(l, now_ns);
    if (!m)
        return &l->meters[0];
    uint32_t *chain = chain_of(l, client);
    *m = (struct meter){.client = client, .next = *chain};
    *chain = (uint32_t)(m - l->meters) + 1;
    return m;
}

static bool refuse(struct limit_refusal *refusal, enum limit limit, uint32_t allowed,
                   uint64_t wait_ns)
{
    *refusal = (struct limit_refusal){.limit = limit, .allowed = allowed, .wait_ns = wait_ns};
    return false;
}

bool limiter_begin(struct limiter *l, uint64_t client, const struct limit_set *limits,
                   uint64_t now_ns, uint32_t *meter, struct limit_refusal *refusal)
{
    struct meter *m = limits_any(limits) ? meter_make(l, client, now_ns) : NULL;
    *meter = m ? (uint32_t)(m - l->meters) + 1 : 0;
    if (!m)
        return true;
    m->limits = *limits;
    const uint32_t at_once = limit_of(limits, LIMIT_REQUESTS_AT_ONCE);
    if (at_once && m->n_running >= at_once)
        return refuse(refusal, LIMIT_REQUESTS_AT_ONCE, at_once, 0);
    for (int i = LIMIT_REQUESTS_PER_MINUTE; i <= LIMIT_TOKENS_PER_MINUTE; i++) {
        const uint32_t limit = limit_of(limits, (enum limit)i);
        const uint64_t wait_ns = limit ? bucket_wait_ns(m->full_ns[i], limit, now_ns) : 0;
        if (wait_ns)
            return refuse(refusal, (enum limit)i, limit, wait_ns);
    }
    const uint32_t requests = limit_of(limits, LIMIT_REQUESTS_PER_MINUTE);
    if (requests)
        bucket_take(&m->full_ns[LIMIT_REQUESTS_PER_MINUTE], 1, requests, now_ns);
    m->n_running++;
    return true;
}

void limiter_end(struct limiter *l, uint32_t meter)
{
    if (meter)
        l->meters[meter - 1].n_running--;
}

void limiter_charge(struct limiter *l, uint32_t meter, uint64_t client, uint64_t n_tokens,
                    uint64_t now_ns)
{
    struct meter *m = meter ? &l->meters[meter - 1] : NULL;
    const uint32_t limit = m ? limit_of(&m->limits, LIMIT_TOKENS_PER_MINUTE) : 0;
    bool is_anothers = meter > 1 && m->client != client; /* the request has ended */
    if (limit && !is_anothers)
        bucket_take(&m->full_ns[LIMIT_TOKENS_PER_MINUTE], n_tokens, limit, now_ns);
}

struct limit_level limiter_level(const struct limiter *l, uint32_t meter, enum limit limit,
                                 uint64_t now_ns)
{
    const struct meter *m = meter ? &l->meters[meter - 1] : NULL;
    const uint32_t allowed = m ? limit_of(&m->limits, limit) : 0;
    if (!allowed)
        return (struct limit_level){0};
    return (struct limit_level){.limit = allowed,
                                .left = bucket_left(m->full_ns[limit], allowed, now_ns),
                                .full_in_ns = owed_ns(m->full_ns[limit], now_ns)};
}

void limiter_free(struct limiter *l)
{
    free(l->meters);
    free(l->chains);
    *l = (struct limiter){0};
}
