/* What the scheduler does with the cache besides matching: forks, pins, owners, doubts,
 * explanations, eviction in pieces, and answers to queries. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scheduler_fixture.h"
#include "test.h"

enum { LIMIT = 1024 };

static void fill(int32_t *tokens, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((i * 7 + seed * 13 + i * i % 11) % (FIXTURE_VOCAB - 1));
}

static struct client *client_of(uint32_t n, uint32_t seed, uint32_t max_tokens)
{
    int32_t tokens[LIMIT];
    fill(tokens, n, seed);
    return client_make(tokens, n, max_tokens);
}

static void run_one(struct fixture *f, struct client *c)
{
    client_submit(f, c);
    fixture_run(f, &c, 1);
    CHECK_INT(c->n_done, 1);
}

static void query(struct fixture *f, struct cache_query *q)
{
    CHECK(scheduler_query(f->scheduler, q));
    while (!atomic_load(&q->is_done))
        CHECK(scheduler_step(f->scheduler));
}

/* ---- forks ---- */

enum { CHOICES = 4, FORK_PROMPT = 100 };

static void run_choices(struct fixture *f, struct client **choices, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        choices[i] = client_of(FORK_PROMPT, 1, 12);
        choices[i]->request.sampling.temperature = 1;
        choices[i]->request.sampling.seed = 5;
        choices[i]->request.sampling.choice = i;
        choices[i]->request.leader = i ? &choices[0]->request : NULL;
        client_submit(f, choices[i]);
    }
    fixture_run(f, choices, n);
}

static void check_choices(struct client **choices, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        check_answer(choices[i], LIMIT);
        client_free(choices[i]);
    }
}

TEST(scheduler_cache, choices_fork_at_the_first_sampled_token)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    struct client *choices[CHOICES];
    fixture_open(&f, &o);
    run_choices(&f, choices, CHOICES);
    struct scheduler_stats stats = fixture_stats(&f);
    uint32_t generated = 0;
    for (int i = 0; i < CHOICES; i++)
        generated += choices[i]->n_got;
    CHECK_INT(stats.forked, CHOICES - 1);
    CHECK_INT(stats.rows, FORK_PROMPT + generated - CHOICES); /* no row twice */
    CHECK_INT(choices[0]->request.prompt_cached, 0);
    CHECK_INT(choices[1]->request.prompt_cached, FORK_PROMPT);
    check_choices(choices, CHOICES);
    /* Once more, with all of the prompt except its last token from the cache. */
    run_choices(&f, choices, CHOICES);
    CHECK_INT(fixture_stats(&f).forked, 2 * (CHOICES - 1));
    CHECK_INT(choices[0]->request.prompt_cached, FORK_PROMPT - 1);
    check_choices(choices, CHOICES);
    CHECK_INT(fixture_stats(&f).n_private, 0);
    fixture_close(&f);
}

TEST(scheduler_cache, choices_without_room_to_fork_come_later)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    struct client *choices[CHOICES];
    o.max_seqs = 2;
    fixture_open(&f, &o);
    run_choices(&f, choices, CHOICES);
    CHECK_INT(fixture_stats(&f).forked, 1);
    CHECK_INT(choices[3]->request.prompt_cached, FORK_PROMPT - 1);
    check_choices(choices, CHOICES);
    fixture_close(&f);
}

TEST(scheduler_cache, choices_go_on_when_the_first_is_canceled)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    struct client *choices[CHOICES];
    o.max_rows = 16;
    fixture_open(&f, &o);
    for (uint32_t i = 0; i < CHOICES; i++) {
        choices[i] = client_of(FORK_PROMPT, 1, 12);
        choices[i]->request.leader = i ? &choices[0]->request : NULL;
        client_submit(&f, choices[i]);
    }
    CHECK(scheduler_step(f.scheduler));
    scheduler_cancel(f.scheduler, &choices[0]->request);
    fixture_run(&f, choices, CHOICES);
    CHECK_INT(choices[0]->finish, FINISH_CANCELED);
    for (uint32_t i = 1; i < CHOICES; i++)
        check_answer(choices[i], LIMIT);
    for (uint32_t i = 0; i < CHOICES; i++)
        client_free(choices[i]);
    fixture_close(&f);
}

/* A fork that starts over computes what it was given, and is counted that way. */
TEST(scheduler_cache, what_a_fork_was_given_is_counted_and_taken_back)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    struct client *choices[CHOICES];
    fixture_open(&f, &o);
    run_choices(&f, choices, CHOICES);
    check_choices(choices, CHOICES);
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK_INT(stats.prompt_tokens, CHOICES * FORK_PROMPT);
    CHECK_INT(stats.cached_tokens, (CHOICES - 1) * FORK_PROMPT);
    CHECK_INT(stats.shared_tokens, stats.cached_tokens);
    fixture_close(&f);

    o.mock.nan_every = 3; /* rows 1 and 2 are the first choice's */
    fixture_open(&f, &o);
    run_choices(&f, choices, 2);
    stats = fixture_stats(&f);
    CHECK_INT(stats.forked, 1);
    CHECK(stats.retried > 0);
    CHECK_INT(choices[1]->request.prompt_cached, 0);
    CHECK_INT(choices[1]->request.prompt_shared, 0);
    CHECK_INT(stats.cached_tokens, 0);
    CHECK_INT(stats.shared_tokens, 0);
    client_free(choices[0]);
    client_free(choices[1]);
    fixture_close(&f);
}

TEST(scheduler_cache, who_generates_nothing_does_not_fork)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    struct client *clients[2] = {client_of(FORK_PROMPT, 1, 3), client_of(FORK_PROMPT, 1, 0)};
    clients[1]->request.leader = &clients[0]->request;
    fixture_open(&f, &o);
    client_submit(&f, clients[0]);
    client_submit(&f, clients[1]);
    fixture_run(&f, clients, 2);
    CHECK_INT(fixture_stats(&f).forked, 0);
    CHECK_INT(clients[1]->finish, FINISH_LENGTH);
    CHECK_INT(clients[1]->n_got, 0);
    CHECK_INT(clients[1]->request.prompt_cached, FORK_PROMPT - 1);
    client_free(clients[0]);
    client_free(clients[1]);
    fixture_close(&f);
}

/* ---- shared in flight ---- */

TEST(scheduler_cache, says_what_another_computed_meanwhile)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.max_rows = 16;
    fixture_open(&f, &o);
    struct client *clients[2] = {client_of(200, 1, 4), client_of(200, 1, 4)};
    client_submit(&f, clients[0]);
    CHECK(scheduler_step(f.scheduler));
    client_submit(&f, clients[1]);
    fixture_run(&f, clients, 2);
    CHECK_INT(clients[1]->request.prompt_cached, 199);
    CHECK(clients[1]->request.prompt_shared > 100 && clients[1]->request.prompt_shared < 199);
    CHECK_INT(clients[0]->request.prompt_shared, 0);
    CHECK_INT(fixture_stats(&f).shared_tokens, clients[1]->request.prompt_shared);
    client_free(clients[0]);
    client_free(clients[1]);
    fixture_close(&f);
}

/* ---- owners ---- */

TEST(scheduler_cache, owners_share_only_what_is_public)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    for (uint32_t owner = 1; owner <= 2; owner++) {
        struct client *c = client_of(100, 1, 4);
        c->request.n_public = 40;
        c->request.owner = owner;
        run_one(&f, c);
        CHECK_INT(c->request.prompt_cached, owner == 1 ? 0 : 40);
        check_answer(c, LIMIT);
        client_free(c);
    }
    struct client *again = client_of(100, 1, 4);
    again->request.n_public = 40;
    again->request.owner = 1;
    run_one(&f, again);
    CHECK_INT(again->request.prompt_cached, 99);
    client_free(again);
    fixture_close(&f);
}

/* ---- doubts ---- */

TEST(scheduler_cache, what_gave_no_numbers_starts_over)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.mock.nan_every = 14;
    fixture_open(&f, &o);
    struct client *c = client_of(100, 1, 13);
    run_one(&f, c);
    CHECK_INT(c->n_got, 13);
    check_answer(c, LIMIT);
    client_free(c);
    struct client *waiters[2] = {client_of(150, 1, 5), client_of(150, 1, 5)};
    client_submit(&f, waiters[0]);
    client_submit(&f, waiters[1]);
    fixture_run(&f, waiters, 2); /* row 14 is the first one's, at the end of its prompt */
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK(stats.retried >= 1);
    CHECK_INT(stats.failed, 0);
    for (int i = 0; i < 2; i++) {
        CHECK(waiters[i]->finish == FINISH_STOP || waiters[i]->finish == FINISH_LENGTH);
        check_answer(waiters[i], LIMIT);
        client_free(waiters[i]);
    }
    CHECK_INT(stats.n_private, 0);
    CHECK_INT(stats.tree.n_invalid, 0);
    fixture_close(&f);
}

/* The prompt's beginning came from the tree, and computed alone it gives numbers, so the cached KV
 * was bad. If it stayed, a pinned prompt with bad KV would spoil everything that begins with it
 * while the pin lasts. */
TEST(scheduler_cache, what_gave_no_numbers_to_another_leaves_the_tree)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.mock.nan_every = 3;
    fixture_open(&f, &o);
    struct client *warm = client_of(100, 1, 0), *other = client_of(80, 2, 1);
    warm->request.pin_ns = UINT64_C(3600) * 1000000000;
    run_one(&f, warm);
    run_one(&f, other);
    struct client *c = client_of(110, 1, 2);
    run_one(&f, c); /* its second row is the third of all, and then it starts over */
    CHECK_INT(fixture_stats(&f).retried, 1);
    check_answer(c, LIMIT);
    CHECK_INT(fixture_stats(&f).tree.n_pins, 0);
    CHECK_INT(fixture_stats(&f).n_owned, 80); /* what it did not have is left alone */
    client_free(warm);
    client_free(other);
    client_free(c);
    fixture_close(&f);
}

/* Its own tokens are to blame: the shared prefix stays. */
TEST(scheduler_cache, who_gives_no_numbers_by_itself_takes_nothing_along)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.mock.nan_every = 1;
    fixture_open(&f, &o);
    struct client *warm = client_of(100, 1, 0), *c = client_of(110, 1, 2);
    run_one(&f, warm);
    run_one(&f, c);
    CHECK_INT(c->finish, FINISH_ERROR);
    CHECK_INT(fixture_stats(&f).n_owned, 100);
    client_free(warm);
    client_free(c);
    fixture_close(&f);
}

TEST(scheduler_cache, who_gives_no_numbers_twice_fails_and_leaves_nothing)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.mock.nan_every = 1;
    o.max_rows = 32;
    fixture_open(&f, &o);
    struct client *c = client_of(100, 1, 5);
    run_one(&f, c);
    CHECK_INT(c->finish, FINISH_ERROR);
    CHECK(strstr(c->request.error.message, "no number"));
    client_free(c);
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK_INT(stats.retried, 1);
    CHECK_INT(stats.failed, 1);
    CHECK_INT(stats.n_owned, 0); /* earlier chunks were in the tree, and left it */
    CHECK_INT(stats.n_free, stats.n_pages);
    fixture_close(&f);
}

/* ---- pins and caps ---- */

TEST(scheduler_cache, a_pinned_prompt_outlives_pressure)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = 512;
    o.max_length = 400;
    fixture_open(&f, &o);
    struct client *pinned = client_of(100, 1, 0);
    pinned->request.pin_ns = UINT64_C(3600) * 1000000000;
    run_one(&f, pinned);
    CHECK_INT(pinned->finish, FINISH_LENGTH);
    CHECK(pinned->request.is_pinned);
    CHECK_INT(fixture_stats(&f).tree.n_pinned, 100);
    for (uint32_t i = 2; i < 12; i++) {
        struct client *c = client_of(200, i, 4);
        run_one(&f, c);
        client_free(c);
    }
    CHECK(fixture_stats(&f).tree.evicted_pages > 1000);
    struct client *again = client_of(100, 1, 4);
    run_one(&f, again);
    CHECK_INT(again->request.prompt_cached, 99);
    client_free(again);
    struct client *large = client_of(300, 20, 0);
    large->request.pin_ns = UINT64_C(3600) * 1000000000;
    run_one(&f, large); /* pins take half of the cache at most */
    CHECK(!large->request.is_pinned);
    client_free(large);
    client_free(pinned);
    fixture_close(&f);
}

TEST(scheduler_cache, what_left_the_tree_is_not_called_pinned)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.mock.nan_every = 2; /* after the prompt, which is pinned by then */
    fixture_open(&f, &o);
    struct client *c = client_of(100, 1, 2);
    c->request.pin_ns = UINT64_C(3600) * 1000000000;
    run_one(&f, c);
    CHECK_INT(fixture_stats(&f).retried, 1);
    CHECK_INT(fixture_stats(&f).tree.n_pins, 0);
    CHECK(!c->request.is_pinned);
    client_free(c);
    fixture_close(&f);
}

TEST(scheduler_cache, pins_end_in_time_where_nothing_expires)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c = client_of(100, 1, 0);
    c->request.pin_ns = 1;
    run_one(&f, c);
    CHECK(c->request.is_pinned);
    client_free(c);
    for (uint64_t end = clock_now_ns() + UINT64_C(5000000000); fixture_stats(&f).tree.n_pins > 0;) {
        CHECK(clock_now_ns() < end);
        scheduler_step(f.scheduler);
    }
    CHECK_INT(fixture_stats(&f).n_owned, 100);
    fixture_close(&f);
}

TEST(scheduler_cache, a_tenant_stays_within_its_cap)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.tenant_pages = 300;
    fixture_open(&f, &o);
    struct client *other = client_of(100, 50, 4);
    other->request.ns = cache_namespace(2, -1, -1);
    run_one(&f, other);
    client_free(other);
    for (uint32_t i = 0; i < 10; i++) {
        struct client *c = client_of(200, i, 4);
        c->request.ns = cache_namespace(1, -1, -1);
        run_one(&f, c);
        client_free(c);
        CHECK(fixture_stats(&f).n_owned <= 300 + 104);
    }
    other = client_of(100, 50, 4);
    other->request.ns = cache_namespace(2, -1, -1);
    run_one(&f, other);
    CHECK_INT(other->request.prompt_cached, 99);
    client_free(other);
    fixture_close(&f);
}

/* ---- explanations ---- */

TEST(scheduler_cache, explains_where_and_why_a_prompt_was_missed)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = 512;
    fixture_open(&f, &o);
    struct client *c = client_of(100, 1, 4);
    c->request.explain = true;
    run_one(&f, c);
    CHECK_INT(c->request.miss.reason, MISS_NEVER_SEEN);
    CHECK_INT(c->request.miss.position, 0);
    client_free(c);

    c = client_of(100, 1, 4);
    c->request.explain = true;
    run_one(&f, c);
    CHECK_INT(c->request.miss.reason, MISS_NONE);
    client_free(c);

    c = client_of(100, 1, 4);
    int32_t was = cache_token_payload(c->prompt[60]);
    c->prompt[60] = was == 5 ? 6 : 5;
    c->request.explain = true;
    run_one(&f, c);
    CHECK_INT(c->request.miss.reason, MISS_DIVERGED);
    CHECK_INT(c->request.miss.position, 60);
    CHECK(c->request.miss.n_tokens > 0);
    CHECK_INT(c->request.miss.tokens[0], cache_token_text(was));
    client_free(c);

    c = client_of(100, 1, 4);
    c->request.explain = c->request.explain_others = true;
    c->request.ns = 1;
    run_one(&f, c);
    CHECK_INT(c->request.miss.reason, MISS_NAMESPACE);
    CHECK_INT(c->request.miss.ns, 0);
    CHECK_INT(c->request.miss.ns_length, 99);
    client_free(c);

    for (uint32_t i = 2; i < 8; i++) {
        struct client *more = client_of(200, i, 4);
        run_one(&f, more);
        client_free(more);
    }
    c = client_of(100, 1, 4);
    c->request.explain = true;
    run_one(&f, c);
    CHECK_INT(c->request.miss.reason, MISS_EVICTED);
    CHECK_INT(c->request.miss.position, c->request.prompt_cached);
    CHECK(c->request.miss.gone_ns >= c->request.miss.last_used_ns);
    client_free(c);
    fixture_close(&f);
}

/* ---- eviction in pieces ---- */

TEST(scheduler_cache, many_nodes_are_evicted_over_several_steps)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    enum { LEAVES = 2500 };
    o.n_pages = 2 * LEAVES + 500;
    o.max_length = o.n_pages;
    fixture_open(&f, &o);
    int32_t tokens[2] = {0};
    for (uint32_t i = 0; i < LEAVES; i++) { /* each a leaf of two tokens, or one after a branch */
        tokens[0] = (int32_t)(i / 50);
        tokens[1] = (int32_t)(i % 50);
        struct client *c = client_make(tokens, 2, 0);
        run_one(&f, c);
        client_free(c);
    }
    struct scheduler_stats before = fixture_stats(&f);
    CHECK(before.tree.n_nodes > LEAVES);
    int32_t *prompt = malloc((size_t)o.n_pages * sizeof *prompt);
    uint32_t n = o.n_pages - 100;
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (int32_t)(60 + i % 2);
    struct client *large = client_make(prompt, n, 4);
    client_submit(&f, large);
    uint64_t evicted = 0;
    for (int steps = 0; large->n_done == 0; steps++) {
        CHECK(steps < 1000);
        CHECK(scheduler_step(f.scheduler));
        client_read(&f, large, 1000);
        uint64_t now = fixture_stats(&f).tree.evicted_nodes;
        CHECK(now - evicted <= 1024 + 64);
        evicted = now;
    }
    CHECK(evicted > 1024);
    CHECK(large->finish == FINISH_STOP || large->finish == FINISH_LENGTH);
    client_free(large);
    free(prompt);
    fixture_close(&f);
}

/* ---- queries ---- */

TEST(scheduler_cache, lists_outlines_and_clears_what_is_cached)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    struct tree_entry entries[16];
    fixture_open(&f, &o);
    for (uint32_t i = 0; i < 3; i++) {
        struct client *c = client_of(100 + i, i, 1);
        c->request.ns = i;
        run_one(&f, c);
        client_free(c);
    }
    struct cache_query list = {.type = QUERY_ENTRIES, .entries = entries, .max_entries = 2};
    query(&f, &list);
    CHECK_INT(list.n_entries, 2);
    CHECK(list.cursor != 0);
    uint32_t depths = entries[0].depth + entries[1].depth;
    query(&f, &list);
    CHECK_INT(list.n_entries, 1);
    CHECK_INT(depths + entries[0].depth, 100 + 101 + 102);
    CHECK_INT(list.cursor, 0);

    struct cache_query outline = {
        .type = QUERY_OUTLINE, .entries = entries, .max_entries = 16, .max_level = 1};
    query(&f, &outline);
    CHECK_INT(outline.n_entries, 6); /* three roots, and a node below each */

    struct client *running = client_of(100, 9, 50);
    client_submit(&f, running);
    CHECK(scheduler_step(f.scheduler));
    struct cache_query clear = {.type = QUERY_CLEAR, .in_one_namespace = true, .ns = 1};
    query(&f, &clear);
    CHECK_INT(clear.n_cleared, 101);
    clear.in_one_namespace = false;
    query(&f, &clear);
    CHECK_INT(clear.n_cleared, 100 + 102);
    fixture_run(&f, &running, 1);
    check_answer(running, LIMIT); /* what is in use stays */
    client_free(running);
    fixture_close(&f);
}

TEST(scheduler_cache, answers_one_query_a_step)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    struct tree_entry entries[3];
    struct cache_query queries[3];
    fixture_open(&f, &o);
    for (uint32_t i = 0; i < 3; i++) {
        queries[i] = (struct cache_query){
            .type = QUERY_ENTRIES, .entries = &entries[i], .max_entries = 1};
        CHECK(scheduler_query(f.scheduler, &queries[i]));
    }
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(scheduler_step(f.scheduler));
        for (uint32_t k = 0; k < 3; k++)
            CHECK_INT(atomic_load(&queries[k].is_done), k <= i);
    }
    CHECK(!scheduler_step(f.scheduler));
    fixture_close(&f);
}

/* Even a single token that another is about to compute is waited for, and not computed twice. */
TEST(scheduler_cache, shares_a_single_token_in_flight)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c[] = {client_make((int32_t[]){1, 2, 3, 4}, 4, 2),
                          client_make((int32_t[]){1, 5, 6, 7}, 4, 2)};
    for (int i = 0; i < 2; i++)
        client_submit(&f, c[i]);
    fixture_run(&f, c, 2);
    CHECK_INT(fixture_stats(&f).shared_tokens, 1);
    for (int i = 0; i < 2; i++) {
        check_answer(c[i], LIMIT);
        client_free(c[i]);
    }
    fixture_close(&f);
}

/* A step clears for a while, not only a handful of nodes. It may be interrupted, but not each time.
 */
TEST(scheduler_cache, clears_much_in_a_step)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    bool at_once = false;
    for (int attempt = 0; attempt < 20 && !at_once; attempt++) {
        for (int32_t i = 0; i < 50; i++) {
            struct client *c = client_make(&i, 1, 1);
            client_submit(&f, c);
            fixture_run(&f, &c, 1);
            client_free(c);
        }
        struct cache_query clear = {.type = QUERY_CLEAR};
        CHECK(scheduler_query(f.scheduler, &clear));
        scheduler_step(f.scheduler);
        at_once = atomic_load(&clear.is_done);
        while (!atomic_load(&clear.is_done))
            scheduler_step(f.scheduler);
        CHECK_INT(clear.n_cleared, 50);
    }
    CHECK(at_once);
    fixture_close(&f);
}

/* Work that exceeds a step continues in the next ones, before other queries. */
TEST(scheduler_cache, clears_over_many_steps)
{
    enum { N = 60, NODES = N * N };
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.n_pages = 2 * NODES + 100;
    fixture_open(&f, &o);
    for (int32_t i = 0; i < NODES; i++) {
        struct client *c = client_make((int32_t[]){i / N, i % N}, 2, 1);
        client_submit(&f, c);
        fixture_run(&f, &c, 1);
        client_free(c);
    }
    struct cache_query clear = {.type = QUERY_CLEAR}, look = {.type = QUERY_ENTRIES};
    CHECK(scheduler_query(f.scheduler, &clear));
    CHECK(scheduler_query(f.scheduler, &look));
    for (int steps = 0; steps < NODES && !atomic_load(&clear.is_done); steps++) {
        CHECK(!atomic_load(&look.is_done));
        scheduler_step(f.scheduler);
    }
    CHECK(atomic_load(&clear.is_done));
    CHECK_INT(clear.n_cleared, NODES + N);
    scheduler_step(f.scheduler);
    CHECK(atomic_load(&look.is_done));
    fixture_close(&f);
}

TEST(scheduler_cache, refuses_more_queries_than_may_wait)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    struct cache_query queries[100];
    fixture_open(&f, &o);
    uint32_t n = 0;
    for (; n < 100; n++) {
        queries[n] = (struct cache_query){.type = QUERY_CLEAR};
        if (!scheduler_query(f.scheduler, &queries[n]))
            break;
    }
    CHECK(n >= 16 && n < 100);
    fixture_close(&f); /* those that wait are answered at the close */
    for (uint32_t i = 0; i < n; i++)
        CHECK(atomic_load(&queries[i].is_done));
}
