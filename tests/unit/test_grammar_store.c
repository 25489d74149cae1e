/* The store of compiled grammars: compiled once, bounded, compared whole, used by many threads. */
#include "prompt/grammar/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/task.h"
#include "test.h"

static atomic_int n_built;

struct literal {
    struct grammar_source source;
    const char *text;
};

static grammar_expr build_literal(struct grammar_source *source, struct grammar_builder *b,
                                  struct error *err)
{
    const char *text = ((struct literal *)source)->text;
    (void)err;
    atomic_fetch_add(&n_built, 1);
    return grammar_literal(b, text, strlen(text));
}

static grammar_expr build_nothing(struct grammar_source *source, struct grammar_builder *b,
                                  struct error *err)
{
    (void)source, (void)b;
    error_set(err, ERROR_INPUT, "no such thing");
    return GRAMMAR_NONE;
}

static const struct grammar *take(struct grammar_store *s, const char *key)
{
    struct literal literal = {{.build = build_literal}, key};
    struct error err;
    const struct grammar *g = grammar_store_take(s, key, strlen(key), &literal.source, &err);
    CHECK(g != NULL);
    return g;
}

TEST(grammar_store, builds_once)
{
    struct grammar_store *s = grammar_store_open(1 << 20);
    n_built = 0;
    const struct grammar *a = take(s, "a"), *again = take(s, "a"), *b = take(s, "b");
    CHECK(a == again && a != b);
    CHECK_INT(n_built, 2);
    grammar_store_leave(s, a);
    grammar_store_leave(s, again);
    CHECK(take(s, "a") == a);
    CHECK_INT(n_built, 2);
    grammar_store_leave(s, a);
    grammar_store_leave(s, b);
    grammar_store_leave(s, NULL);
    grammar_store_close(s);
}

TEST(grammar_store, keeps_what_is_held_and_drops_the_oldest)
{
    enum { ENTRY = 200 }; /* at most, besides the grammar */
    struct grammar_store *s = grammar_store_open(SIZE_MAX);
    const struct grammar *a = take(s, "a"), *b, *c;
    const size_t bytes = grammar_bytes(a);
    CHECK(bytes > 2 * ENTRY);
    grammar_store_leave(s, a);
    grammar_store_close(s);
    s = grammar_store_open(2 * (bytes + ENTRY)); /* room for two */
    n_built = 0;
    a = take(s, "a");
    b = take(s, "b");
    CHECK(take(s, "a") == a && take(s, "b") == b);
    CHECK_INT(n_built, 2);
    grammar_store_leave(s, a);
    grammar_store_leave(s, a); /* now nobody holds it: it goes when another comes */
    c = take(s, "c");
    CHECK_INT(n_built, 3);
    grammar_store_leave(s, c);
    a = take(s, "a");
    CHECK_INT(n_built, 4);
    CHECK(take(s, "b") == b);
    CHECK_INT(n_built, 4);
    grammar_store_leave(s, a);
    for (int i = 0; i < 3; i++)
        grammar_store_leave(s, b);
    grammar_store_close(s);
}

static const struct grammar *take_for(struct grammar_store *s, uint64_t client, const char *key)
{
    struct literal literal = {{.build = build_literal, .client = client}, key};
    struct error err;
    const struct grammar *g = grammar_store_take(s, key, strlen(key), &literal.source, &err);
    CHECK(g || err.code == ERROR_MEMORY);
    return g;
}

/* Whoever holds many leaves others their part, and the store its bound. */
TEST(grammar_store, clients_share_what_can_be_held)
{
    enum { ROOM = 20000, CLIENTS = 8 };
    struct grammar_store *s = grammar_store_open(ROOM);
    const struct grammar *held[500];
    size_t n = 0, n_bytes = 0;
    for (uint64_t client = 1; client <= CLIENTS; client++) {
        size_t n_own = 0;
        const struct grammar *g;
        do {
            char key[20];
            snprintf(key, sizeof key, "%d %d", (int)client, (int)n);
            CHECK(n < 500);
            if ((g = take_for(s, client, key))) {
                n_own += grammar_bytes(g);
                held[n++] = g;
            }
        } while (g);
        n_bytes += n_own;
        CHECK(n_own > 0);
        CHECK(n_own <= ROOM / client);
    }
    CHECK(n_bytes > ROOM);
    CHECK(n_bytes <= grammar_store_bound(ROOM, CLIENTS));
    CHECK(take_for(s, 1, "1 0") == held[0]); /* what is there may be shared */
    grammar_store_leave(s, held[0]);
    while (n > 0)
        grammar_store_leave(s, held[--n]);
    held[0] = take_for(s, 1, "again");
    CHECK(held[0] != NULL);
    grammar_store_leave(s, held[0]);
    grammar_store_close(s);
}

TEST(grammar_store, says_why_not)
{
    struct grammar_store *s = grammar_store_open(1 << 20);
    struct grammar_source source = {.build = build_nothing};
    struct error err;
    CHECK(!grammar_store_take(s, "x", 1, &source, &err));
    CHECK_INT(err.code, ERROR_INPUT);
    CHECK_STR(err.message, "no such thing");
    grammar_store_close(s);
}

static grammar_expr build_too_much(struct grammar_source *source, struct grammar_builder *b,
                                   struct error *err)
{
    (void)b;
    atomic_fetch_add(&n_built, 1);
    source->wrong_part = 7;
    error_set(err, ERROR_LIMIT, "too much");
    return GRAMMAR_NONE;
}

TEST(grammar_store, remembers_what_takes_too_long)
{
    struct grammar_store *s = grammar_store_open(1 << 20);
    n_built = 0;
    for (int i = 0; i < 3; i++) {
        struct grammar_source source = {.build = build_too_much};
        struct error err;
        CHECK(!grammar_store_take(s, "x", 1, &source, &err));
        CHECK_INT(err.code, ERROR_LIMIT);
        CHECK_STR(err.message, "too much");
        CHECK_INT(source.wrong_part, 7);
    }
    CHECK_INT(n_built, 1);
    grammar_store_leave(s, take(s, "y"));
    grammar_store_close(s);
}

TEST(grammar_store, forgets_a_build_that_was_stopped)
{
    struct grammar_store *s = grammar_store_open(1 << 20);
    const atomic_bool unwanted = true;
    n_built = 0;
    for (int i = 0; i < 2; i++) {
        struct grammar_source source = {.build = build_too_much};
        struct task task = {.flags = {&unwanted}};
        struct error err;
        task_begin(&task);
        CHECK(!task_goes_on(1));
        CHECK(!grammar_store_take(s, "x", 1, &source, &err));
        CHECK_INT(task_finish(NULL), TASK_UNWANTED);
    }
    CHECK_INT(n_built, 2);
    grammar_store_close(s);
}

TEST(grammar_store, bounds_its_entries)
{
    struct grammar_store *s = grammar_store_open(SIZE_MAX);
    n_built = 0;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 1100; i++) {
            char key[16];
            snprintf(key, sizeof key, "%d", i);
            grammar_store_leave(s, take(s, key));
        }
    CHECK_INT(n_built, 2200);
    grammar_store_close(s);
}

static void *worker(void *context)
{
    struct grammar_store *s = context;
    static const char *const keys[] = {"a", "bb", "ccc", "dddd", "eeeee"};
    for (int i = 0; i < 400; i++) {
        const char *key = keys[i * 7 % 5];
        grammar_store_leave(s, take(s, key));
    }
    return NULL;
}

TEST(grammar_store, serves_many_threads)
{
    struct grammar_store *s = grammar_store_open(4096);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, worker, s), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    grammar_store_close(s);
}
