/* The bounded queue: what it promises to one thread, then to many. */
#include "base/queue.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#include "test.h"
#include "test_death.h"

static void *item(uintptr_t number)
{
    return (void *)number;
}

TEST(queue, first_in_first_out)
{
    struct queue q;
    struct error err;
    CHECK_INT(queue_open(&q, 4, &err), 0);
    CHECK(!queue_pop(&q));
    for (uintptr_t i = 1; i <= 4; i++)
        CHECK(queue_push(&q, item(i)));
    for (uintptr_t i = 1; i <= 4; i++)
        CHECK(queue_pop(&q) == item(i));
    CHECK(!queue_pop(&q));
    queue_close(&q);
}

TEST(queue, says_no_when_full)
{
    struct queue q;
    struct error err;
    CHECK_INT(queue_open(&q, 4, &err), 0);
    for (uintptr_t i = 1; i <= 4; i++)
        CHECK(queue_push(&q, item(i)));
    CHECK(!queue_push(&q, item(5)));
    CHECK(!queue_push(&q, item(5)));
    CHECK(queue_pop(&q) == item(1));
    CHECK(queue_push(&q, item(5)));
    CHECK(!queue_push(&q, item(6)));
    for (uintptr_t i = 2; i <= 5; i++)
        CHECK(queue_pop(&q) == item(i));
    CHECK(!queue_pop(&q));
    queue_close(&q);
}

TEST(queue, capacity_is_rounded_up)
{
    static const size_t wanted[] = {0, 1, 2, 3, 5, 64, 65}, room[] = {2, 2, 2, 4, 8, 64, 128};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct queue q;
        struct error err;
        size_t n = 0;
        CHECK_INT(queue_open(&q, wanted[i], &err), 0);
        while (queue_push(&q, &q))
            n++;
        CHECK_INT(n, room[i]);
        queue_close(&q);
    }
}

TEST(queue, goes_round_many_times)
{
    struct queue q;
    struct error err;
    uintptr_t in = 1, out = 1;
    CHECK_INT(queue_open(&q, 8, &err), 0);
    for (int lap = 0; lap < 10000; lap++) {
        for (int i = 0; i < lap % 9; i++)
            CHECK(queue_push(&q, item(in++)) == true);
        for (int i = 0; i < lap % 9; i++)
            CHECK(queue_pop(&q) == item(out++));
    }
    CHECK(!queue_pop(&q));
    queue_close(&q);
}

TEST(queue, nothing_is_no_item)
{
    struct queue q;
    struct error err;
    CHECK_INT(queue_open(&q, 2, &err), 0);
    CHECK_ABORTS(queue_push(&q, NULL));
    queue_close(&q);
}

/* ---- threads ---- */

enum { MAX_THREADS = 4, PER_PRODUCER = 20000 };

struct load {
    struct queue q;
    uint32_t n_producers, n_consumers;
    atomic_uint n_popped;
    atomic_uchar seen[MAX_THREADS * PER_PRODUCER];
    atomic_bool order_broken;
};

struct worker {
    struct load *load;
    uint32_t index;
};

/* Items carry their producer and sequence number. What they point to is written before the push and
 * read after the pop with plain accesses: the queue must order them. */
struct parcel {
    uint32_t producer, number;
};
static struct parcel parcels[MAX_THREADS][PER_PRODUCER];

static void *produce(void *arg)
{
    const struct worker *w = arg;
    for (uint32_t i = 0; i < PER_PRODUCER; i++) {
        struct parcel *p = &parcels[w->index][i];
        *p = (struct parcel){w->index, i};
        while (!queue_push(&w->load->q, p))
            sched_yield();
    }
    return NULL;
}

static void *consume(void *arg)
{
    const struct worker *w = arg;
    struct load *load = w->load;
    uint32_t next[MAX_THREADS] = {0}, total = load->n_producers * PER_PRODUCER;
    while (atomic_load(&load->n_popped) < total) {
        struct parcel *p = queue_pop(&load->q);
        if (!p) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(&load->n_popped, 1);
        atomic_fetch_add(&load->seen[p->producer * PER_PRODUCER + p->number], 1);
        /* Whatever others took in between, one producer's items come in order. */
        if (p->number < next[p->producer])
            atomic_store(&load->order_broken, true);
        next[p->producer] = p->number + 1;
        *p = (struct parcel){0, 0};
    }
    return NULL;
}

static void run_load(uint32_t n_producers, uint32_t n_consumers, size_t capacity)
{
    struct load *load = calloc(1, sizeof *load + 64);
    struct worker workers[2 * MAX_THREADS];
    pthread_t threads[2 * MAX_THREADS];
    struct error err;
    CHECK(load);
    /* The queue's ends are on separate cache lines, which calloc does not guarantee. */
    struct load *aligned = (struct load *)(((uintptr_t)load + 63) / 64 * 64);
    aligned->n_producers = n_producers;
    aligned->n_consumers = n_consumers;
    CHECK_INT(queue_open(&aligned->q, capacity, &err), 0);
    for (uint32_t i = 0; i < n_producers + n_consumers; i++) {
        bool producer = i < n_producers;
        workers[i] = (struct worker){aligned, producer ? i : i - n_producers};
        CHECK_INT(pthread_create(&threads[i], NULL, producer ? produce : consume, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < n_producers + n_consumers; i++)
        pthread_join(threads[i], NULL);
    CHECK(!queue_pop(&aligned->q));
    CHECK(!atomic_load(&aligned->order_broken));
    CHECK_INT(atomic_load(&aligned->n_popped), n_producers * PER_PRODUCER);
    for (uint32_t i = 0; i < n_producers * PER_PRODUCER; i++)
        CHECK_INT(atomic_load(&aligned->seen[i]), 1);
    queue_close(&aligned->q);
    free(load);
}

TEST(queue, threads_one_to_one)
{
    run_load(1, 1, 16);
}

TEST(queue, threads_many_to_one)
{
    run_load(4, 1, 64);
}

TEST(queue, threads_one_to_many)
{
    run_load(1, 3, 8);
}

TEST(queue, threads_many_to_many_in_a_tiny_queue)
{
    run_load(3, 3, 2);
}
