/* The store of compiled grammars. Workers take grammars, the event loop returns them; a mutex
 * protects the list, which is short. Careful: a worker may have so low a priority that it hardly
 * runs, and the event loop waits for the mutex, so nothing large is freed under it. Two workers may
 * compile the same grammar at the same time: the second to finish finds the first one's and drops
 * its own. */
#include "prompt/grammar/store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"

enum { MAX_ENTRIES = 1024 }; /* a search looks at all of them */

/* Most recently used first. */
struct entry {
    struct entry *prev, *next;
    struct grammar *grammar; /* NULL: it cannot be compiled */
    struct error *failure;   /* why */
    int wrong_part;
    size_t bytes;
    unsigned n_holders;
    uint64_t client; /* who had it made */
    size_t key_len;
    char key[];
};

struct grammar_store {
    pthread_mutex_t lock;
    struct entry *first, *last;
    size_t used_bytes, max_bytes, n_entries;
};

struct grammar_store *grammar_store_open(size_t max_bytes)
{
    struct grammar_store *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->max_bytes = max_bytes;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void entry_unlink(struct grammar_store *s, struct entry *e)
{
    *(e->prev ? &e->prev->next : &s->first) = e->next;
    *(e->next ? &e->next->prev : &s->last) = e->prev;
    e->prev = e->next = NULL;
}

static void entry_link_first(struct grammar_store *s, struct entry *e)
{
    e->next = s->first;
    *(s->first ? &s->first->prev : &s->last) = e;
    s->first = e;
}

static void entry_free(struct entry *e)
{
    if (!e)
        return;
    grammar_free(e->grammar);
    free(e->failure);
    free(e);
}

void grammar_store_close(struct grammar_store *s)
{
    if (!s)
        return;
    while (s->first) {
        struct entry *e = s->first;
        assert(e->n_holders == 0);
        entry_unlink(s, e);
        entry_free(e);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* With the lock held: adds a reference to the entry of the key and returns it, or NULL. */
static struct entry *entry_hold(struct grammar_store *s, const char *key, size_t key_len)
{
    for (struct entry *e = s->first; e; e = e->next) {
        if (e->key_len != key_len || memcmp(e->key, key, key_len) != 0)
            continue;
        entry_unlink(s, e);
        entry_link_first(s, e);
        e->n_holders++;
        return e;
    }
    return NULL;
}

/* With the lock held: makes room. Entries in use stay, even if they exceed the limit. Returns those
 * that went, for entries_free. */
static struct entry *store_trim(struct grammar_store *s)
{
    struct entry *gone = NULL;
    for (struct entry *e = s->last, *prev;
         e && (s->used_bytes > s->max_bytes || s->n_entries > MAX_ENTRIES); e = prev) {
        prev = e->prev;
        if (e->n_holders)
            continue;
        s->used_bytes -= e->bytes;
        s->n_entries--;
        entry_unlink(s, e);
        e->next = gone;
        gone = e;
    }
    return gone;
}

/* Without the lock. */
static void entries_free(struct entry *gone)
{
    for (struct entry *next; gone; gone = next) {
        next = gone->next;
        entry_free(gone);
    }
}

/* With the lock held: whether it is the first of its client that is in use. */
static bool is_clients_first(const struct grammar_store *s, const struct entry *of)
{
    for (const struct entry *e = s->first; e != of; e = e->next)
        if (e->n_holders && e->client == of->client)
            return false;
    return true;
}

/* With the lock held: whether one more grammar of the client may be in use. */
static bool has_room(const struct grammar_store *s, const struct entry *made)
{
    size_t n_held = made->bytes, n_own = n_held, n_clients = 1;
    for (const struct entry *e = s->first; e; e = e->next) {
        if (!e->n_holders)
            continue;
        n_held += e->bytes;
        n_own += e->client == made->client ? e->bytes : 0;
        n_clients += e->client != made->client && is_clients_first(s, e);
    }
    return n_held <= s->max_bytes || n_own <= s->max_bytes / n_clients;
}

/* Each client that comes has a smaller part than the one before. */
size_t grammar_store_bound(size_t max_bytes, uint32_t n)
{
    size_t all = max_bytes;
    for (uint32_t i = 2; i <= n; i++)
        all += max_bytes / i;
    return all;
}

/* Only the limits on compiling are worth remembering: other errors are found quickly. */
static bool is_costly(const struct error *err)
{
    return err->code == ERROR_LIMIT && !task_is_stopped();
}

/* An entry with one holder; NULL and `err`: there is nothing to keep. */
static struct entry *entry_make(const char *key, size_t key_len, struct grammar_source *source,
                                struct error *err)
{
    struct grammar_builder *b = grammar_builder_new();
    struct entry *e = calloc(1, sizeof *e + key_len);
    if (!b || !e) {
        error_set(err, ERROR_MEMORY, "no memory for a grammar");
    } else {
        grammar_expr root = source->build(source, b, err);
        if (root != GRAMMAR_NONE)
            e->grammar = grammar_compile(b, root, err);
        if (e->grammar && source->vocabulary)
            grammar_measure_for(e->grammar, source->vocabulary);
        if (!e->grammar && is_costly(err) && (e->failure = malloc(sizeof *err))) {
            *e->failure = *err;
            e->wrong_part = source->wrong_part;
        }
    }
    grammar_builder_free(b);
    if (!e || (!e->grammar && !e->failure)) {
        entry_free(e);
        return NULL;
    }
    e->key_len = key_len;
    memcpy(e->key, key, key_len);
    e->bytes = sizeof *e + key_len + (e->grammar ? grammar_bytes(e->grammar) : sizeof *e->failure);
    e->n_holders = 1;
    e->client = source->client;
    return e;
}

/* With the lock held: what the caller gets from an entry that is held for it. */
static const struct grammar *entry_give(struct entry *e, struct grammar_source *source,
                                        struct error *err)
{
    if (e->grammar)
        return e->grammar;
    *err = *e->failure;
    source->wrong_part = e->wrong_part;
    e->n_holders--;
    return NULL;
}

const struct grammar *grammar_store_take(struct grammar_store *s, const char *key, size_t key_len,
                                         struct grammar_source *source, struct error *err)
{
    const struct grammar *given = NULL;
    pthread_mutex_lock(&s->lock);
    struct entry *found = entry_hold(s, key, key_len);
    if (found)
        given = entry_give(found, source, err);
    pthread_mutex_unlock(&s->lock);
    if (found)
        return given;
    struct entry *made = entry_make(key, key_len, source, err);
    if (!made)
        return NULL;
    pthread_mutex_lock(&s->lock);
    found = entry_hold(s, key, key_len);
    if (!found && !has_room(s, made)) {
        pthread_mutex_unlock(&s->lock);
        entry_free(made);
        error_set(err, ERROR_MEMORY, "the client's other grammars take all its room");
        return NULL;
    }
    if (!found) {
        s->used_bytes += made->bytes;
        s->n_entries++;
        entry_link_first(s, made);
    }
    given = entry_give(found ? found : made, source, err);
    struct entry *gone = store_trim(s);
    pthread_mutex_unlock(&s->lock);
    entries_free(gone);
    if (found)
        entry_free(made);
    return given;
}

void grammar_store_leave(struct grammar_store *s, const struct grammar *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&s->lock);
    struct entry *e = s->first;
    while (e->grammar != g)
        e = e->next;
    assert(e->n_holders > 0);
    e->n_holders--;
    struct entry *gone = store_trim(s);
    pthread_mutex_unlock(&s->lock);
    entries_free(gone);
}
