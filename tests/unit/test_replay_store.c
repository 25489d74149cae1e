/* The store of sampled answers: what is found, what is evicted, and that nothing grows. */
#include "prompt/replay_store.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/hash.h"
#include "test.h"

static struct replay_store *open_store(size_t max_bytes)
{
    struct replay_store *s;
    struct error err = {0};
    if (replay_store_open(&s, max_bytes, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return s;
}

static struct prompt_digest digest_of(const struct replay_store *s, const char *text)
{
    struct prefix_digest d;
    prefix_digest_open(&d, s);
    return prefix_digest_at(&d, text, strlen(text));
}

static void add(struct replay_store *s, uint64_t ns, const char *text, int32_t first, size_t n)
{
    int32_t ids[64];
    for (size_t i = 0; i < n; i++)
        ids[i] = first + (int32_t)i;
    replay_store_add(s, ns, digest_of(s, text), ids, n);
}

/* The first ids of the answers, the newest first: "7 3 " */
static const char *found(struct replay_store *s, uint64_t ns, const char *text)
{
    static char out[128];
    struct replay_answer *answers[REPLAY_MAX_ANSWERS];
    size_t n = replay_store_find(s, ns, digest_of(s, text), answers), length, at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        const int32_t *ids = replay_answer_ids(answers[i], &length);
        for (size_t k = 0; k < length; k++)
            CHECK_INT(ids[k], ids[0] + (int32_t)k);
        at += (size_t)snprintf(out + at, sizeof out - at, "%d ", ids[0]);
        replay_answer_release(answers[i]);
    }
    return out;
}

static struct replay_stats stats_of(struct replay_store *s)
{
    struct replay_stats stats;
    replay_store_read_stats(s, &stats);
    return stats;
}

TEST(replay_store, finds_what_was_added)
{
    struct replay_store *s = open_store(1 << 16);
    CHECK_STR(found(s, 0, "a"), "");
    add(s, 0, "a", 7, 3);
    add(s, 1, "b", 9, 5);
    CHECK_STR(found(s, 0, "a"), "7 ");
    CHECK_STR(found(s, 1, "b"), "9 ");
    CHECK_STR(found(s, 0, "b"), ""); /* another's */
    CHECK_STR(found(s, 1, "a"), "");
    CHECK_STR(found(s, 0, "a "), "");
    CHECK_INT(stats_of(s).entries, 2);
    CHECK_INT(stats_of(s).hits, 2);
    replay_store_close(s);
    replay_store_close(NULL);
}

TEST(replay_store, keeps_the_last_answers_of_a_rendering)
{
    struct replay_store *s = open_store(1 << 16);
    for (int32_t i = 1; i <= 6; i++)
        add(s, 0, "a", 10 * i, 2);
    CHECK_STR(found(s, 0, "a"), "60 50 40 30 ");
    CHECK_INT(stats_of(s).entries, 4);
    CHECK_INT(stats_of(s).evicted, 2);
    add(s, 0, "a", 30, 2); /* again: it is the newest now */
    CHECK_STR(found(s, 0, "a"), "30 60 50 40 ");
    add(s, 0, "a", 30, 3); /* longer: another */
    CHECK_STR(found(s, 0, "a"), "30 30 60 50 ");
    CHECK_INT(stats_of(s).entries, 4);
    replay_store_close(s);
}

TEST(replay_store, the_least_recently_used_goes)
{
    struct replay_store *s = open_store(4096);
    char text[24];
    for (int32_t i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "text %d", i);
        add(s, 0, text, i, 10);
        CHECK(stats_of(s).bytes <= 4096);
        CHECK_STR(found(s, 0, "text 0"), "0 "); /* which keeps it */
    }
    CHECK_STR(found(s, 0, "text 999"), "999 ");
    CHECK_STR(found(s, 0, "text 1"), "");
    CHECK_INT(stats_of(s).entries + stats_of(s).evicted, 1000);
    CHECK(stats_of(s).bytes > 3000);
    replay_store_close(s);
}

TEST(replay_store, an_answer_outlives_its_place)
{
    struct replay_store *s = open_store(1 << 16);
    struct replay_answer *answers[REPLAY_MAX_ANSWERS];
    size_t n;
    add(s, 0, "a", 5, 60);
    CHECK_INT(replay_store_find(s, 0, digest_of(s, "a"), answers), 1);
    replay_store_clear_all(s);
    CHECK_INT(stats_of(s).bytes, 0);
    CHECK_INT(replay_answer_ids(answers[0], &n)[59], 64);
    CHECK_INT(n, 60);
    replay_store_close(s);
    replay_answer_release(answers[0]);
}

TEST(replay_store, clears_one_namespace)
{
    struct replay_store *s = open_store(1 << 16);
    for (int32_t i = 0; i < 20; i++) {
        add(s, 3, "a", i, 2);
        add(s, 4, "a", 100 + i, 2);
        add(s, 3, "b", i, 2);
    }
    replay_store_clear(s, 3);
    CHECK_STR(found(s, 3, "a"), "");
    CHECK_STR(found(s, 3, "b"), "");
    CHECK_STR(found(s, 4, "a"), "119 118 117 116 ");
    CHECK_INT(stats_of(s).entries, 4);
    add(s, 3, "a", 1, 2);
    CHECK_STR(found(s, 3, "a"), "1 ");
    replay_store_close(s);
}

TEST(replay_store, refuses_what_cannot_fit)
{
    struct replay_store *s = open_store(1 << 12);
    int32_t *ids = calloc(1 << 16, sizeof *ids);
    add(s, 0, "small", 1, 4);
    replay_store_add(s, 0, digest_of(s, "large"), ids, 1 << 16);
    replay_store_add(s, 0, digest_of(s, "none"), ids, 0);
    CHECK_STR(found(s, 0, "large"), "");
    CHECK_STR(found(s, 0, "none"), "");
    CHECK_STR(found(s, 0, "small"), "1 "); /* and nothing went for them */
    replay_store_close(s);
    s = open_store(0);
    add(s, 0, "a", 1, 1);
    CHECK_STR(found(s, 0, "a"), "");
    CHECK_INT(stats_of(s).bytes, 0);
    replay_store_close(s);
    free(ids);
}

TEST(replay_store, a_million_answers_stay_within_bounds)
{
    enum { MAX_BYTES = 1 << 20 };
    struct replay_store *s = open_store(MAX_BYTES);
    int32_t ids[100];
    size_t most = 0;
    for (uint32_t i = 0; i < 1000000; i++) {
        uint64_t random = hash_mix(i);
        struct prompt_digest before = {random % 50000, 100};
        for (size_t k = 0; k < 100; k++)
            ids[k] = (int32_t)i;
        replay_store_add(s, random >> 60, before, ids, random >> 32 & 63);
        if (i % 1000 == 0 && stats_of(s).bytes > most)
            most = stats_of(s).bytes;
    }
    struct replay_stats stats = stats_of(s);
    CHECK(most <= MAX_BYTES && most > MAX_BYTES - 1024);
    CHECK(stats.entries > 2000 && stats.entries < MAX_BYTES / 64);
    replay_store_clear_all(s);
    CHECK_INT(stats_of(s).bytes, 0);
    CHECK_INT(stats_of(s).entries, 0);
    replay_store_close(s);
}

/* The digest of a prefix does not depend on where it was computed before. */
TEST(replay_store, digests_of_beginnings)
{
    struct replay_store *s = open_store(1 << 12);
    char text[200];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(hash_mix(i) % 3); /* zeros too */
    struct prompt_digest each[sizeof text + 1];
    struct prefix_digest all, some;
    prefix_digest_open(&all, s);
    for (size_t i = 0; i <= sizeof text; i++)
        each[i] = prefix_digest_at(&all, text, i);
    for (size_t step = 1; step < 30; step++) {
        prefix_digest_open(&some, s);
        for (size_t i = 0; i <= sizeof text; i += step)
            CHECK(prefix_digest_at(&some, text, i).hash == each[i].hash);
    }
    for (size_t i = 0; i <= sizeof text; i++)
        for (size_t k = 0; k < i; k++)
            CHECK(each[i].len != each[k].len && (each[i].hash != each[k].hash || text[i - 1] == 0));
    /* One changed byte anywhere changes it. */
    for (size_t i = 0; i < sizeof text; i++) {
        prefix_digest_open(&some, s);
        text[i] ^= 64;
        CHECK(prefix_digest_at(&some, text, sizeof text).hash != each[sizeof text].hash);
        text[i] ^= 64;
    }
    /* Another store has other digests. */
    struct replay_store *other = open_store(1 << 12);
    CHECK(digest_of(other, "some text").hash != digest_of(s, "some text").hash);
    replay_store_close(other);
    replay_store_close(s);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct crowd {
    struct replay_store *store;
    unsigned seed;
    bool adds;
    uint64_t wrong, hits;
};

/* Every answer says in its ids which key it belongs to. */
static void *crowd_run(void *arg)
{
    struct crowd *c = arg;
    int32_t ids[40];
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t random = hash_pair(c->seed, i);
        uint64_t ns = random % 3, key = random / 3 % 50;
        struct prompt_digest before = {key, 1};
        if (c->adds) {
            size_t n = 1 + (random >> 20) % 40;
            for (size_t k = 0; k < n; k++)
                ids[k] = (int32_t)(ns * 100 + key);
            replay_store_add(c->store, ns, before, ids, n);
            if (i % 5000 == 4999)
                replay_store_clear(c->store, 1);
            continue;
        }
        struct replay_answer *answers[REPLAY_MAX_ANSWERS];
        size_t n_answers = replay_store_find(c->store, ns, before, answers), n;
        for (size_t a = 0; a < n_answers; a++) {
            const int32_t *got = replay_answer_ids(answers[a], &n);
            for (size_t k = 0; k < n; k++)
                c->wrong += got[k] != (int32_t)(ns * 100 + key);
            replay_answer_release(answers[a]);
        }
        c->hits += n_answers > 0;
    }
    return NULL;
}

TEST(replay_store, many_threads)
{
    struct replay_store *s = open_store(16384);
    struct crowd crowd[5];
    pthread_t threads[5];
    for (unsigned i = 0; i < 5; i++) {
        crowd[i] = (struct crowd){.store = s, .seed = i, .adds = i < 2};
        CHECK(pthread_create(&threads[i], NULL, crowd_run, &crowd[i]) == 0);
    }
    uint64_t hits = 0;
    for (unsigned i = 0; i < 5; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(crowd[i].wrong, 0);
        hits += crowd[i].hits;
    }
    CHECK(hits > 0);
    CHECK_INT(stats_of(s).hits, hits);
    CHECK(stats_of(s).bytes <= 16384);
    replay_store_close(s);
}
