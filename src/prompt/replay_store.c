/* The store of sampled answers. Workers look answers up and the event loop adds them, all under one
 * mutex that is held only briefly: an answer never changes, so a finder takes a reference to it and
 * reads it without the lock.
 *
 *   buckets  [ ]  [●]──► answer ──► answer      chained by `next`; of equal keys the newest first
 *   recency  oldest ⇄ answer ⇄ answer ⇄ newest  the oldest is evicted to make room
 *
 * A digest is not proof. It says where to look; the bytes of the ids are compared with the
 * rendering before they are used. */
#include "prompt/replay_store.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"

struct replay_key {
    uint64_t ns;
    struct prompt_digest before;
};

struct replay_answer {
    struct replay_key key;
    struct replay_answer *next;          /* in the bucket */
    struct replay_answer *older, *newer; /* by recency */
    atomic_uint holders;                 /* the store and every finder */
    uint32_t n_ids;
    int32_t ids[];
};

struct replay_store {
    pthread_mutex_t mutex;
    struct replay_answer **buckets;
    size_t mask;
    struct replay_answer *oldest, *newest;
    struct replay_stats stats;
    uint64_t base; /* of the digests; never changes */
};

enum {
    BYTES_A_BUCKET = 1024,
    MAX_BUCKETS = 1 << 20,
    MALLOC_BYTES = 16, /* overhead of an allocation */
};

/* ---- digests: a polynomial over the field of 2^61 - 1, seven bytes a term ----------------------
 */

#define PRIME ((1ull << 61) - 1)
enum { TERM_BYTES = 7 };

static uint64_t multiply_add(uint64_t a, uint64_t b, uint64_t c)
{
    unsigned __int128 product = (unsigned __int128)a * b + c;
    uint64_t sum = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61);
    return sum >= PRIME ? sum - PRIME : sum;
}

static uint64_t term(const char *bytes, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    return value;
}

void prefix_digest_open(struct prefix_digest *d, const struct replay_store *s)
{
    *d = (struct prefix_digest){.base = s->base};
}

struct prompt_digest prefix_digest_at(struct prefix_digest *d, const char *text, size_t len)
{
    while (len - d->folded >= TERM_BYTES) {
        d->hash = multiply_add(d->hash, d->base, term(text + d->folded, TERM_BYTES));
        d->folded += TERM_BYTES;
    }
    uint64_t rest = term(text + d->folded, len - d->folded);
    return (struct prompt_digest){multiply_add(d->hash, d->base, rest), len};
}

/* A secret base, so that nobody can construct two texts with the same digest. */
static uint64_t base_draw(struct error *err)
{
    uint64_t base = 0;
    while (base < 256 || base >= PRIME) {
        if (getrandom(&base, sizeof base, 0) != (ssize_t)sizeof base) {
            error_set(err, ERROR_IO, "getrandom: %s", strerror(errno));
            return 0;
        }
        base &= PRIME;
    }
    return base;
}

/* ---- the store ---------------------------------------------------------------------------------
 */

int replay_store_open(struct replay_store **out, size_t max_bytes, struct error *err)
{
    size_t n = 16;
    while (n < MAX_BUCKETS && n < max_bytes / BYTES_A_BUCKET)
        n *= 2;
    uint64_t base = base_draw(err);
    if (!base)
        return -1;
    struct replay_store *s = calloc(1, sizeof *s);
    struct replay_answer **buckets = calloc(n, sizeof(struct replay_answer *));
    if (!s || !buckets || pthread_mutex_init(&s->mutex, NULL) != 0) {
        free(s);
        free(buckets);
        return error_set(err, ERROR_MEMORY, "no memory for a store of answers");
    }
    s->buckets = buckets;
    s->mask = n - 1;
    s->base = base;
    s->stats.max_bytes = max_bytes;
    *out = s;
    return 0;
}

void replay_store_close(struct replay_store *s)
{
    if (!s)
        return;
    replay_store_clear_all(s);
    pthread_mutex_destroy(&s->mutex);
    free(s->buckets);
    free(s);
}

static size_t bytes_of(size_t n_ids)
{
    return sizeof(struct replay_answer) + MALLOC_BYTES + n_ids * sizeof(int32_t);
}

static struct replay_answer **bucket_of(struct replay_store *s, const struct replay_key *key)
{
    uint64_t hash = hash_pair(hash_pair(key->ns, key->before.len), key->before.hash);
    return &s->buckets[hash & s->mask];
}

static bool key_is(const struct replay_answer *a, const struct replay_key *key)
{
    return a->key.before.hash == key->before.hash && a->key.before.len == key->before.len &&
           a->key.ns == key->ns;
}

static void recency_remove(struct replay_store *s, struct replay_answer *a)
{
    *(a->older ? &a->older->newer : &s->oldest) = a->newer;
    *(a->newer ? &a->newer->older : &s->newest) = a->older;
}

static void recency_add(struct replay_store *s, struct replay_answer *a)
{
    a->older = s->newest;
    a->newer = NULL;
    *(s->newest ? &s->newest->newer : &s->oldest) = a;
    s->newest = a;
}

static void bucket_remove(struct replay_store *s, struct replay_answer *a)
{
    struct replay_answer **link = bucket_of(s, &a->key);
    while (*link != a)
        link = &(*link)->next;
    *link = a->next;
}

static void bucket_add(struct replay_store *s, struct replay_answer *a)
{
    struct replay_answer **bucket = bucket_of(s, &a->key);
    a->next = *bucket;
    *bucket = a;
}

static void answer_drop(struct replay_store *s, struct replay_answer *a)
{
    bucket_remove(s, a);
    recency_remove(s, a);
    s->stats.entries--;
    s->stats.bytes -= bytes_of(a->n_ids);
    replay_answer_release(a);
}

/* The answer with these ids, if the store has it. Otherwise evicts the oldest answer with the same
 * key if there is no room for another. */
static struct replay_answer *answer_seek(struct replay_store *s, const struct replay_key *key,
                                         const int32_t *ids, size_t n)
{
    struct replay_answer *last = NULL;
    size_t n_answers = 0;
    for (struct replay_answer *a = *bucket_of(s, key); a; a = a->next) {
        if (!key_is(a, key))
            continue;
        if (a->n_ids == n && memcmp(a->ids, ids, n * sizeof *ids) == 0)
            return a;
        last = a;
        n_answers++;
    }
    if (n_answers == REPLAY_MAX_ANSWERS) {
        answer_drop(s, last);
        s->stats.evicted++;
    }
    return NULL;
}

static void answer_insert(struct replay_store *s, struct replay_answer *a)
{
    size_t bytes = bytes_of(a->n_ids);
    while (s->stats.bytes + bytes > s->stats.max_bytes) {
        answer_drop(s, s->oldest);
        s->stats.evicted++;
    }
    s->stats.bytes += bytes;
    s->stats.entries++;
    bucket_add(s, a);
    recency_add(s, a);
}

void replay_store_add(struct replay_store *s, uint64_t ns, struct prompt_digest before,
                      const int32_t *ids, size_t n)
{
    if (n == 0 || n > UINT32_MAX || bytes_of(n) > s->stats.max_bytes)
        return;
    struct replay_answer *added = malloc(sizeof *added + n * sizeof *ids);
    if (!added)
        return;
    *added = (struct replay_answer){.key = {ns, before}, .holders = 1, .n_ids = (uint32_t)n};
    memcpy(added->ids, ids, n * sizeof *ids);
    pthread_mutex_lock(&s->mutex);
    struct replay_answer *known = answer_seek(s, &added->key, ids, n);
    if (known) {
        bucket_remove(s, known);
        bucket_add(s, known);
        recency_remove(s, known);
        recency_add(s, known);
    } else {
        answer_insert(s, added);
    }
    pthread_mutex_unlock(&s->mutex);
    if (known)
        replay_answer_release(added);
}

size_t replay_store_find(struct replay_store *s, uint64_t ns, struct prompt_digest before,
                         struct replay_answer *answers[REPLAY_MAX_ANSWERS])
{
    struct replay_key key = {ns, before};
    size_t n = 0;
    pthread_mutex_lock(&s->mutex);
    for (struct replay_answer *a = *bucket_of(s, &key); a; a = a->next)
        if (key_is(a, &key))
            answers[n++] = a;
    for (size_t i = n; i-- > 0;) { /* the newest is touched last */
        atomic_fetch_add(&answers[i]->holders, 1);
        recency_remove(s, answers[i]);
        recency_add(s, answers[i]);
    }
    s->stats.hits += n > 0;
    pthread_mutex_unlock(&s->mutex);
    return n;
}

const int32_t *replay_answer_ids(const struct replay_answer *a, size_t *n)
{
    *n = a->n_ids;
    return a->ids;
}

void replay_answer_release(struct replay_answer *a)
{
    if (a && atomic_fetch_sub(&a->holders, 1) == 1)
        free(a);
}

void replay_store_clear(struct replay_store *s, uint64_t ns)
{
    pthread_mutex_lock(&s->mutex);
    for (struct replay_answer *a = s->oldest, *newer; a; a = newer) {
        newer = a->newer;
        if (a->key.ns == ns)
            answer_drop(s, a);
    }
    pthread_mutex_unlock(&s->mutex);
}

void replay_store_clear_all(struct replay_store *s)
{
    pthread_mutex_lock(&s->mutex);
    while (s->oldest)
        answer_drop(s, s->oldest);
    pthread_mutex_unlock(&s->mutex);
}

void replay_store_read_stats(struct replay_store *s, struct replay_stats *out)
{
    pthread_mutex_lock(&s->mutex);
    *out = s->stats;
    pthread_mutex_unlock(&s->mutex);
}
