/* The shadow of a batch: what the scheduler does while an asynchronous engine computes, and that
 * none of it touches the batch. And the loss of a device, at every call that can report it. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "scheduler_spy.h"
#include "test.h"

static struct request_image images[2];

/* A mock with everything. */
static struct fixture_options everything(bool is_async)
{
    struct fixture_options o = fixture_defaults();
    mock_set_window(&o.mock, 9);
    mock_add_state(&o.mock, 4);
    o.mock.is_async = is_async;
    o.mock.max_region = 30;
    o.n_window_pages = o.n_pages;
    o.n_state_pages = 40;
    o.max_image_rows = 40;
    images[0] = image_make(10, 12, 4);
    images[1] = image_make(11, 30, 0);
    return o;
}

static void open_spied(struct fixture *f, const struct fixture_options *o)
{
    fixture_open(f, o);
    spy_on(f);
}

static struct client *say(const char *prompt, uint32_t max_tokens)
{
    return client_make_mixed(prompt, images, 2, max_tokens);
}

static void finish_all(struct fixture *f, struct client **c, uint32_t n)
{
    fixture_run(f, c, n);
    for (uint32_t i = 0; i < n; i++) {
        check_oracle(f, c[i], NULL);
        client_free(c[i]);
    }
    struct scheduler_stats stats = fixture_stats(f);
    CHECK_INT(stats.n_private + stats.sides[0].n_private + stats.sides[1].n_private, 0);
}

/* ---- events ---- */

enum { CROWD = 6, STEPS = 80 };

/* A number for all events of a step. */
static uint64_t read_step(struct fixture *f, struct client **c)
{
    struct sched_event event;
    uint64_t h = 0;
    for (uint32_t i = 0; i < CROWD; i++) {
        while (c[i]->n_done == 0 && scheduler_next_event(f->scheduler, &c[i]->request, &event)) {
            h = hash_pair(hash_pair(h, i), hash_pair(event.type, (uint64_t)event.token));
            h = hash_pair(hash_pair(h, event.finish), event.text_end);
            c[i]->n_done += event.type == EVENT_DONE;
        }
    }
    return h;
}

static void run_crowd(bool is_async, uint64_t *steps)
{
    struct fixture f;
    struct fixture_options o = everything(is_async);
    struct client *c[CROWD];
    o.max_seqs = 4; /* some wait for others to end */
    open_spied(&f, &o);
    for (uint32_t i = 0; i < CROWD; i++) {
        static const char *const prompts[CROWD] = {
            "a tale of two", "a tale of 0 three", "1 and 0", "a tale of two", "zero", "x"};
        c[i] = say(prompts[i], 5 + 3 * i);
        client_submit(&f, c[i]);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        scheduler_step(f.scheduler);
        steps[i] = read_step(&f, c);
    }
    for (uint32_t i = 0; i < CROWD; i++) {
        CHECK_INT(c[i]->n_done, 1);
        client_free(c[i]);
    }
    fixture_close(&f);
}

TEST(scheduler_overlap, an_asynchronous_engine_gives_the_same_events_in_the_same_steps)
{
    uint64_t steps[2][STEPS];
    run_crowd(false, steps[0]);
    run_crowd(true, steps[1]);
    for (uint32_t i = 0; i < STEPS; i++)
        CHECK(steps[0][i] == steps[1][i]);
}

/* ---- newcomers and cancels ---- */

struct newcomer {
    struct fixture *fixture;
    struct client *comes, *goes; /* or NULL */
    uint32_t at;                 /* in this batch */
};

static void submit_or_cancel(void *context)
{
    struct newcomer *n = context;
    if (spy.n_batches != n->at)
        return;
    if (n->comes)
        client_submit(n->fixture, n->comes);
    if (n->goes)
        scheduler_cancel(n->fixture->scheduler, &n->goes->request);
}

TEST(scheduler_overlap, who_arrives_while_a_batch_is_computed_is_in_the_next_one)
{
    for (int is_async = 0; is_async < 2; is_async++) {
        struct fixture f;
        struct fixture_options o = everything(is_async);
        open_spied(&f, &o);
        struct client *c[] = {say("first", 9), say("second", 9)};
        struct newcomer n = {&f, c[1], NULL, 3};
        spy.at_submit = submit_or_cancel;
        spy.context = &n;
        client_submit(&f, c[0]);
        for (int i = 0; i < 3; i++)
            scheduler_step(f.scheduler);
        CHECK_INT(spy.n_batches, 3);
        CHECK_INT(client_read(&f, c[1], 9), is_async); /* it was admitted in the meantime */
        scheduler_step(f.scheduler);
        CHECK_INT(spy.batches[2].n_seqs, 1);
        CHECK_INT(spy.batches[3].n_seqs, 2);
        finish_all(&f, c, 2);
        fixture_close(&f);
    }
}

TEST(scheduler_overlap, who_arrives_between_steps_is_in_the_next_batch)
{
    for (int is_async = 0; is_async < 2; is_async++) {
        struct fixture f;
        struct fixture_options o = everything(is_async);
        open_spied(&f, &o);
        struct client *c[] = {say("first", 9), say("second", 9)};
        for (uint32_t i = 0; i < 2; i++) {
            client_submit(&f, c[i]);
            scheduler_step(f.scheduler);
            CHECK_INT(spy.batches[i].n_seqs, i + 1);
        }
        finish_all(&f, c, 2);
        fixture_close(&f);
    }
}

/* A request that is done, or not in the batch, does not count as waiting for it. */
TEST(scheduler_overlap, a_late_cancel_does_not_stop_the_batch_of_another)
{
    for (int is_async = 0; is_async < 2; is_async++) {
        uint32_t n_batches[2];
        for (int cancels = 0; cancels < 2; cancels++) {
            struct fixture f;
            struct fixture_options o = everything(is_async);
            open_spied(&f, &o);
            struct client *c[] = {say("stays", 9), say("is done", 2)};
            struct newcomer n = {&f, NULL, cancels ? c[1] : NULL, 5};
            spy.at_submit = submit_or_cancel;
            spy.context = &n;
            for (int i = 0; i < 2; i++)
                client_submit(&f, c[i]);
            finish_all(&f, c, 2);
            n_batches[cancels] = spy.n_batches;
            fixture_close(&f);
        }
        CHECK_INT(n_batches[1], n_batches[0]);
    }
}

TEST(scheduler_overlap, a_cancel_during_a_batch_ends_one_request_in_the_next_step)
{
    for (int is_async = 0; is_async < 2; is_async++) {
        struct fixture f;
        struct fixture_options o = everything(is_async);
        open_spied(&f, &o);
        struct client *c[] = {say("stays", 9), say("goes", 9)};
        struct newcomer n = {&f, NULL, c[1], 3};
        spy.at_submit = submit_or_cancel;
        spy.context = &n;
        for (int i = 0; i < 2; i++)
            client_submit(&f, c[i]);
        for (int i = 0; i < 4; i++)
            scheduler_step(f.scheduler);
        client_read(&f, c[1], 99);
        CHECK_INT(c[1]->finish, FINISH_CANCELED);
        CHECK_INT(spy.batches[3].n_seqs, 1);
        check_oracle_beginning(&f, c[1], NULL);
        client_free(c[1]);
        finish_all(&f, c, 1);
        fixture_close(&f);
    }
}

/* ---- masks ---- */

struct watch {
    const struct script_filter *filter;
    uint32_t n_early; /* batches whose mask was there before they were waited for */
};

static void look_at_mask(void *context)
{
    struct watch *w = context;
    w->n_early += w->filter->is_asked;
}

TEST(scheduler_overlap, a_mask_is_asked_for_once_a_token_while_its_batch_is_computed)
{
    for (int is_async = 0; is_async < 2; is_async++) {
        struct fixture f;
        struct fixture_options o = everything(is_async);
        struct script_filter filter;
        open_spied(&f, &o);
        struct client *c = say("a form to fill in", 20);
        struct watch w = {&filter, 0};
        script_set(&filter, 5, c, o.max_length);
        spy.at_wait = look_at_mask;
        spy.context = &w;
        client_submit(&f, c);
        fixture_run(&f, &c, 1);
        CHECK_INT(filter.n_wrong, 0);
        CHECK_INT(filter.n_accepted, c->n_got);
        CHECK_INT(filter.n_asked, c->n_got);
        CHECK_INT(w.n_early, c->n_got);
        client_free(c);
        fixture_close(&f);
    }
}

/* ---- the batch ---- */

static uint64_t hash_view(uint64_t h, const struct page_view *view)
{
    h = hash_pair(h, view->first);
    for (uint32_t i = 0; i < view->n_runs; i++)
        h = hash_pair(h, (uint64_t)view->runs[i].first << 32 | view->runs[i].count);
    return h;
}

/* A hash of everything that the engine reads of a batch. */
static uint64_t hash_batch(const struct batch *b)
{
    uint64_t h = hash_pair(b->n_seqs, b->n_rows);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct batch_row *row = &b->rows[i];
        h = hash_pair(h, hash_pair((uint64_t)row->value, row->position));
        h = hash_pair(h, hash_pair(row->pages[0], (uint64_t)row->pages[1] << 32 | row->pages[2]));
    }
    for (uint32_t i = 0; i < b->n_seqs; i++) {
        const struct batch_seq *seq = &b->seqs[i];
        h = hash_view(hash_view(hash_pair(h, seq->slot), &seq->pages[0]), &seq->pages[1]);
        for (uint32_t k = 0; k < seq->n_regions; k++)
            h = hash_pair(h, (uint64_t)seq->regions[k].first << 32 | seq->regions[k].count);
    }
    return h;
}

struct shadow {
    struct fixture *fixture;
    struct cache_query query;
    struct client *comes[40];
    uint32_t n_come;
    uint64_t hash;
    uint32_t n_touched;
};

/* Many things arrive while a batch is computed: requests that need pages, and a clear. */
static void remember(void *context)
{
    struct shadow *s = context;
    s->hash = hash_batch(spy.batch);
    if (s->n_come < 40) {
        char prompt[] = "a newcomer with 0 of his own";
        prompt[0] = (char)('a' + s->n_come % 26);
        s->comes[s->n_come] = say(prompt, 12);
        client_submit(s->fixture, s->comes[s->n_come++]);
    }
    if (s->n_come % 4 == 0) {
        s->query = (struct cache_query){.type = QUERY_CLEAR};
        CHECK(scheduler_query(s->fixture->scheduler, &s->query));
    }
}

static void compare(void *context)
{
    struct shadow *s = context;
    s->n_touched += s->hash != hash_batch(spy.batch);
}

TEST(scheduler_overlap, the_shadow_touches_nothing_of_the_batch)
{
    struct fixture f;
    struct fixture_options o = everything(true);
    struct shadow *s = calloc(1, sizeof *s);
    o.n_pages = o.max_length = 250; /* hardly enough for four of them */
    o.n_window_pages = 120;
    o.n_state_pages = 5;
    o.max_seqs = 4;
    o.cache_ttl_ns = 1;
    open_spied(&f, &o);
    s->fixture = &f;
    spy.at_submit = remember;
    spy.at_wait = compare;
    spy.context = s;
    struct client *c = say("the first 1", 100);
    client_submit(&f, c);
    finish_all(&f, &c, 1);
    CHECK(s->n_come > 30);
    finish_all(&f, s->comes, s->n_come);
    CHECK_INT(s->n_touched, 0);
    free(s);
    fixture_close(&f);
}

/* ---- a lost device ---- */

static void make_three(struct fixture *f, struct client **c)
{
    static const char *const prompts[] = {"look at 0 now", "and 1 at 0", "plain text, no more"};
    for (uint32_t i = 0; i < 3; i++) {
        c[i] = say(prompts[i], 10 + i);
        client_submit(f, c[i]);
    }
}

/* At every call that can report it: all sequences continue with the same bits, on a device that has
 * lost everything. */
TEST(scheduler_loss, a_lost_device_costs_nobody_a_token)
{
    for (int is_async = 0; is_async < 2; is_async++)
        for (int call = 0; call < SPY_CALLS; call++) {
            for (uint32_t after = 0;; after++) {
                struct fixture f;
                struct fixture_options o = everything(is_async);
                struct client *c[3];
                open_spied(&f, &o);
                spy_fail((enum spy_call)call, after, 1, ERROR_DEVICE);
                make_three(&f, c);
                finish_all(&f, c, 3);
                CHECK_INT(spy.n_frees, spy.n_encodes);
                bool came = spy.n_failures == 0;
                uint32_t n_lost = (uint32_t)fixture_stats(&f).n_lost;
                fixture_close(&f); /* the loss may have come with the last copy of a state */
                CHECK(n_lost == came || (call == SPY_COPY && came));
                if (!came)
                    break;
            }
        }
}

/* The same for a batch that fails: all are computed again, and nobody is blamed twice. */
TEST(scheduler_loss, a_failed_call_for_a_batch_costs_nobody_a_token)
{
    for (int has_state = 0; has_state < 2; has_state++)
        for (int call = SPY_SUBMIT; call <= SPY_WAIT; call++) {
            for (uint32_t after = 0; after < 14; after++) {
                struct fixture f;
                struct fixture_options o = everything(false);
                struct client *c[3];
                o.mock.n_groups = has_state ? 3 : 2;
                open_spied(&f, &o);
                spy_fail((enum spy_call)call, after, 1, after % 2 ? ERROR_FAILED : ERROR_CANCELED);
                make_three(&f, c);
                finish_all(&f, c, 3);
                CHECK_INT(spy.n_failures, 0);
                fixture_close(&f);
            }
        }
}

/* A batch fails, each is computed alone, and then the device is lost. */
TEST(scheduler_loss, a_device_lost_while_each_is_computed_alone)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.mock.n_tokens = FIXTURE_VOCAB + 1;
    o.mock.fail_token = FIXTURE_VOCAB;
    open_spied(&f, &o);
    struct client *c[] = {say("one", 8), say("two", 8)}, *bad = say("bad", 8);
    bad->prompt[2] = cache_token_text(o.mock.fail_token);
    for (int i = 0; i < 2; i++)
        client_submit(&f, c[i]);
    client_submit(&f, bad);
    spy_fail(SPY_SUBMIT, 1, 1, ERROR_DEVICE); /* the first of them */
    scheduler_step(f.scheduler);
    CHECK_INT(spy.batches[0].n_seqs, 3);
    CHECK_INT(fixture_stats(&f).n_lost, 1);
    fixture_run(&f, &bad, 1);
    CHECK_INT(bad->finish, FINISH_ERROR);
    CHECK_STR(bad->request.error.message, "the mock engine fails on token 64, as configured");
    client_free(bad);
    finish_all(&f, c, 2);
    fixture_close(&f);
}

/* A device that cannot be reopened: all requests end with an error. Later ones try again. */
TEST(scheduler_loss, a_device_that_stays_away_ends_all_and_is_tried_again)
{
    struct fixture f;
    struct fixture_options o = everything(false);
    struct client *c[3];
    open_spied(&f, &o);
    spy_fail(SPY_WAIT, 4, 1, ERROR_DEVICE);
    spy.n_closed = 2;
    make_three(&f, c);
    fixture_run(&f, c, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(c[i]->finish, FINISH_ERROR);
        CHECK_STR(c[i]->request.error.message, "it cannot be opened");
        check_oracle_beginning(&f, c[i], NULL);
        client_free(c[i]);
    }
    CHECK(!scheduler_step(f.scheduler)); /* nobody asks: nothing is tried */
    CHECK_INT(spy.n_closed, 1);
    c[0] = say("is it back?", 3);
    client_submit(&f, c[0]);
    fixture_run(&f, c, 1);
    CHECK_INT(c[0]->finish, FINISH_ERROR);
    client_free(c[0]);
    c[0] = say("and now?", 3);
    client_submit(&f, c[0]);
    finish_all(&f, c, 1);
    CHECK_INT(spy.n_reopened, 1);
    fixture_close(&f);
}

/* Calls that lose the device every time end all running requests; once they succeed, all is as
 * before. */
TEST(scheduler_loss, repeated_losses_end)
{
    for (int call = 0; call < SPY_CALLS; call++) {
        struct fixture f;
        struct fixture_options o = everything(false);
        struct client *c[3];
        open_spied(&f, &o);
        spy_fail((enum spy_call)call, 0, UINT32_MAX, ERROR_DEVICE);
        make_three(&f, c);
        for (uint32_t i = 0; i < 200 && scheduler_step(f.scheduler); i++)
            continue;
        CHECK(!scheduler_step(f.scheduler));
        spy.n_failures = 0;
        fixture_run(&f, c, 3);
        for (int i = 0; i < 3; i++) {
            bool has_image = i < 2;
            CHECK_INT(c[i]->finish, has_image || call < SPY_ENCODE ? FINISH_ERROR : FINISH_LENGTH);
            client_free(c[i]);
        }
        c[0] = say("look at 0 again", 5);
        client_submit(&f, c[0]);
        finish_all(&f, c, 1);
        fixture_close(&f);
    }
}

/* A request that loses the device, after batches that succeed: the second time it runs alone, and
 * is ended. */
TEST(scheduler_loss, a_deadly_request_does_not_take_the_others_along)
{
    struct fixture f;
    struct fixture_options o = everything(false);
    o.mock.n_tokens = FIXTURE_VOCAB + 1;
    o.max_rows = 40;
    o.max_seqs = 5;
    open_spied(&f, &o);
    struct client *c[3];
    struct client *bad = say("a long prompt of which the deadly part comes late, after batches "
                             "that went well: here",
                             20);
    bad->prompt[bad->request.n_tokens - 2] = cache_token_text(FIXTURE_VOCAB);
    spy.deadly_token = FIXTURE_VOCAB;
    make_three(&f, c);
    client_submit(&f, bad);
    for (uint32_t i = 0; i < 200 && scheduler_step(f.scheduler); i++)
        continue;
    CHECK(!scheduler_step(f.scheduler)); /* it does not go on forever */
    fixture_run(&f, &bad, 1);
    CHECK_INT(bad->finish, FINISH_ERROR);
    CHECK_INT(bad->request.error.code, ERROR_DEVICE);
    CHECK_INT(fixture_stats(&f).n_lost, 2);
    client_free(bad);
    finish_all(&f, c, 3);
    fixture_close(&f);
}

TEST(scheduler_loss, a_cache_of_a_lost_device_is_forgotten)
{
    struct fixture f;
    struct fixture_options o = everything(false);
    open_spied(&f, &o);
    struct client *c = say("what do you know about 0?", 4);
    client_submit(&f, c);
    finish_all(&f, &c, 1);
    spy_fail(SPY_SUBMIT, 0, 1, ERROR_DEVICE);
    c = say("what do you know about 0?", 4);
    client_submit(&f, c);
    fixture_run(&f, &c, 1);
    CHECK_INT(c->request.prompt_cached, 0); /* it had to be computed after all */
    CHECK_INT(fixture_stats(&f).n_encoded, 2);
    finish_all(&f, &c, 1);
    fixture_close(&f);
}
