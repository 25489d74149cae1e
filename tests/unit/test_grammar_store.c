/* The store of compiled grammars: compiled once, bounded, compared whole, used by many threads. */
#include "prompt/grammar/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "test.h"

static atomic_int n_built;

static grammar_expr build_literal(struct grammar_builder *b, void *context, struct error *err)
{
    (void)err;
    atomic_fetch_add(&n_built, 1);
    return grammar_literal(b, context, strlen(context));
}

static grammar_expr build_nothing(struct grammar_builder *b, void *context, struct error *err)
{
    (void)b, (void)context;
    error_set(err, ERROR_INPUT, "no such thing");
    return GRAMMAR_NONE;
}

static const struct grammar *take(struct grammar_store *s, const char *key)
{
    struct error err;
    const struct grammar *g = grammar_store_take(s, key, strlen(key), build_literal, (void *)key,
                                                 &err);
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
    struct grammar_store *s = grammar_store_open(1); /* room for none */
    n_built = 0;
    const struct grammar *a = take(s, "a"), *b = take(s, "b");
    CHECK(take(s, "a") == a && take(s, "b") == b);
    CHECK_INT(n_built, 2);
    grammar_store_leave(s, a);
    grammar_store_leave(s, a); /* now nobody holds it: it goes */
    a = take(s, "a");
    CHECK_INT(n_built, 3);
    CHECK_INT(take(s, "b") == b, true);
    grammar_store_leave(s, a);
    for (int i = 0; i < 3; i++)
        grammar_store_leave(s, b);
    grammar_store_close(s);
}

TEST(grammar_store, says_why_not)
{
    struct grammar_store *s = grammar_store_open(1 << 20);
    struct error err;
    CHECK(!grammar_store_take(s, "x", 1, build_nothing, NULL, &err));
    CHECK_INT(err.code, ERROR_INPUT);
    CHECK_STR(err.message, "no such thing");
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
