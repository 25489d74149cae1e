#include "base/idle_pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "test.h"

TEST(idle_pool, gives_what_was_left)
{
    struct idle_pool pool = {.slots = {NULL}};
    int pieces[IDLE_POOL_SLOTS + 1];
    bool seen[IDLE_POOL_SLOTS] = {false};
    CHECK(!idle_pool_take(&pool));
    for (int i = 0; i < IDLE_POOL_SLOTS; i++)
        CHECK(idle_pool_leave(&pool, &pieces[i]));
    CHECK(!idle_pool_leave(&pool, &pieces[IDLE_POOL_SLOTS]));
    for (int i = 0; i < IDLE_POOL_SLOTS; i++) {
        int *piece = idle_pool_take(&pool);
        CHECK(piece >= pieces && piece < pieces + IDLE_POOL_SLOTS && !seen[piece - pieces]);
        seen[piece - pieces] = true;
    }
    CHECK(!idle_pool_take(&pool));
}

/* A piece is one thread's at a time: without a lock, its counter loses nothing. */
static void *take_and_leave(void *arg)
{
    struct idle_pool *pool = arg;
    for (int i = 0; i < 20000; i++) {
        int *piece = idle_pool_take(pool);
        if (!piece)
            piece = calloc(1, sizeof *piece);
        if (!piece)
            return NULL;
        ++*piece;
        if (!idle_pool_leave(pool, piece))
            return NULL;
    }
    return pool;
}

TEST(idle_pool, threads)
{
    struct idle_pool pool = {.slots = {NULL}};
    pthread_t threads[4];
    int sum = 0, n = 0;
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, take_and_leave, &pool), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        CHECK(result == &pool);
    }
    for (int *piece; (piece = idle_pool_take(&pool)); n++) {
        sum += *piece;
        free(piece);
    }
    CHECK_INT(sum, 4 * 20000);
    CHECK(n >= 1 && n <= 4);
}
