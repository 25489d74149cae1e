/* The store of compiled grammars. Workers take grammars, the event loop returns them; a mutex
 * protects the list, which is short. Two workers may compile the same grammar at the same time: the
 * second to finish finds the first one's and drops its own. */
#include "prompt/grammar/store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Most recently used first. */
struct entry {
    struct entry *prev, *next;
    struct grammar *grammar;
    size_t bytes;
    unsigned n_holders;
    size_t key_len;
    char key[];
};

struct grammar_store {
    pthread_mutex_t lock;
    struct entry *first, *last;
    size_t used_bytes, max_bytes;
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

/* With the lock held: makes room. Entries in use stay, even if they exceed the limit. */
static void store_trim(struct grammar_store *s)
{
    for (struct entry *e = s->last, *prev; e && s->used_bytes > s->max_bytes; e = prev) {
        prev = e->prev;
        if (e->n_holders)
            continue;
        s->used_bytes -= e->bytes;
        entry_unlink(s, e);
        entry_free(e);
    }
}

static struct entry *entry_make(const char *key, size_t key_len, grammar_build_fn *build,
                                void *context, struct error *err)
{
    struct grammar_builder *b = grammar_builder_new();
    struct entry *e = calloc(1, sizeof *e + key_len);
    if (!b || !e) {
        error_set(err, ERROR_MEMORY, "no memory for a grammar");
    } else {
        grammar_expr root = build(b, context, err);
        if (root != GRAMMAR_NONE)
            e->grammar = grammar_compile(b, root, err);
    }
    grammar_builder_free(b);
    if (!e || !e->grammar) {
        entry_free(e);
        return NULL;
    }
    e->key_len = key_len;
    memcpy(e->key, key, key_len);
    e->bytes = sizeof *e + key_len + grammar_bytes(e->grammar);
    e->n_holders = 1;
    return e;
}

const struct grammar *grammar_store_take(struct grammar_store *s, const char *key, size_t key_len,
                                         grammar_build_fn *build, void *context, struct error *err)
{
    pthread_mutex_lock(&s->lock);
    struct entry *found = entry_hold(s, key, key_len);
    pthread_mutex_unlock(&s->lock);
    if (found)
        return found->grammar;
    struct entry *made = entry_make(key, key_len, build, context, err);
    if (!made)
        return NULL;
    pthread_mutex_lock(&s->lock);
    found = entry_hold(s, key, key_len);
    if (!found) {
        s->used_bytes += made->bytes;
        entry_link_first(s, made);
        store_trim(s);
    }
    pthread_mutex_unlock(&s->lock);
    if (!found)
        return made->grammar;
    entry_free(made);
    return found->grammar;
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
    store_trim(s);
    pthread_mutex_unlock(&s->lock);
}
