/* Filters, biases and banned end tokens: the scheduler asks before each token, obeys, and reports
 * each token once, whatever happens to the sequence in between. */
#include "scheduler_fixture.h"

#include <stdlib.h>

#include "base/hash.h"
#include "sched/state.h"
#include "test.h"

enum { LIMIT = 1024, MANY = 6 };

#define END_BIT (UINT64_C(1) << FIXTURE_END)

/* The end token's logit is 40 or -40, all others are in 0..4: with this it is always the best. */
static const struct logit_bias end_bias = {FIXTURE_END, 90};

/* A filter with a mask for each token (the last mask is repeated), and an end. */
struct list_filter {
    struct token_filter filter;
    uint64_t masks[4];
    uint32_t n_masks, end_at, n_accepted;
};

static const uint64_t *list_mask(struct token_filter *filter, uint32_t n_left)
{
    struct list_filter *f = (struct list_filter *)filter;
    CHECK(n_left > 0);
    return &f->masks[f->n_accepted < f->n_masks ? f->n_accepted : f->n_masks - 1];
}

static enum filter_verdict list_accept(struct token_filter *filter, int32_t token)
{
    struct list_filter *f = (struct list_filter *)filter;
    CHECK(token >= 0);
    return ++f->n_accepted == f->end_at ? FILTER_END : FILTER_GO_ON;
}

static const struct token_filter_ops list_ops = {.mask = list_mask, .accept = list_accept};

/* The same; with tokens to spare, the last mask would have been the next one. */
static const uint64_t *list_unhurried(struct token_filter *filter)
{
    struct list_filter *f = (struct list_filter *)filter;
    return f->n_accepted + 1 < f->end_at ? NULL : &f->masks[f->n_masks];
}

static const struct token_filter_ops hurried_ops = {
    .mask = list_mask, .unhurried = list_unhurried, .accept = list_accept};

static struct client *client_random(uint64_t seed, uint32_t n, uint32_t max_tokens)
{
    int32_t tokens[LIMIT];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(hash_pair(seed, i) % 60);
    return client_make(tokens, n, max_tokens);
}

static uint64_t text_length(const struct client *c, uint32_t n)
{
    uint64_t length = 0;
    for (uint32_t i = 0; i < n; i++)
        length += fixture_table().lengths[c->got[i]];
    return length;
}

/* The answer is the plain one, and the filter saw all of it, once. */
static void check_script(struct client *c, struct script_filter *f)
{
    CHECK_INT(f->n_wrong, 0);
    CHECK_INT(f->n_accepted, c->n_got);
    CHECK(memcmp(f->accepted, c->got, c->n_got * sizeof *c->got) == 0);
    script_reset(f);
    if (c->finish == FINISH_CANCELED || c->finish == FINISH_ERROR)
        check_beginning(c, LIMIT);
    else
        check_answer(c, LIMIT);
}

static void run_one(struct client *c)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    client_submit(&f, c);
    fixture_run(&f, &c, 1);
    fixture_close(&f);
}

TEST(scheduler_filter, every_token_is_asked_for_and_told)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct client *c = client_random(seed, 1 + seed % 30, 100);
        struct script_filter f;
        if (seed % 3) {
            c->request.sampling.temperature = 1;
            c->request.sampling.seed = seed;
        }
        c->request.ignore_end = seed % 4 == 0;
        script_set(&f, seed, c, LIMIT);
        f.end_at = seed % 5 ? 0 : 7;
        f.has_ends = seed % 2;
        run_one(c);
        CHECK(f.n_asked == c->n_got);
        CHECK(f.end_at == 0 || c->n_got <= 7);
        check_script(c, &f);
        client_free(c);
    }
}

/* n_left counts down to 1, limited by max_tokens first and by the context second. */
TEST(scheduler_filter, knows_how_many_tokens_are_left)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.max_length = 50;
    fixture_open(&f, &o);
    struct client *c[2] = {client_random(1, 40, 6), client_random(2, 40, 300)};
    struct script_filter filters[2];
    for (int i = 0; i < 2; i++) {
        c[i]->request.ignore_end = true;
        script_set(&filters[i], 7, c[i], 50);
        client_submit(&f, c[i]);
    }
    CHECK_INT(filters[0].n_in_all, 6);
    CHECK_INT(filters[1].n_in_all, 10);
    fixture_run(&f, c, 2);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(c[i]->finish, FINISH_LENGTH);
        CHECK_INT(c[i]->n_got, filters[i].n_in_all);
        CHECK_INT(filters[i].n_wrong, 0);
        client_free(c[i]);
    }
    fixture_close(&f);
}

TEST(scheduler_filter, an_answer_that_is_complete_ends_with_its_last_token)
{
    struct list_filter f = {{&list_ops}, {~END_BIT}, 1, 5, 0};
    struct client *c = client_random(3, 10, 100);
    c->request.filter = &f.filter;
    run_one(c);
    CHECK_INT(c->finish, FINISH_STOP);
    CHECK_INT(c->n_got, 5);
    CHECK_INT(c->text_end, text_length(c, 5)); /* the last token is text */
    client_free(c);
    /* At its last token it is complete and not cut off. */
    f.n_accepted = 0;
    c = client_random(3, 10, 5);
    c->request.filter = &f.filter;
    run_one(c);
    CHECK_INT(c->finish, FINISH_STOP);
    client_free(c);
}

TEST(scheduler_filter, end_tokens_come_where_the_text_may_end)
{
    /* The end token is by far the best all the time, and allowed at the third token. */
    struct list_filter f = {{&list_ops}, {~END_BIT, ~END_BIT, UINT64_MAX}, 3, 0, 0};
    struct client *c = client_random(4, 10, 20);
    c->request.filter = &f.filter;
    c->request.biases = &end_bias;
    c->request.n_biases = 1;
    run_one(c);
    CHECK_INT(c->finish, FINISH_STOP);
    CHECK_INT(c->n_got, 3);
    CHECK_INT(c->got[2], FIXTURE_END);
    CHECK_INT(c->text_end, text_length(c, 2));
    CHECK_INT(f.n_accepted, 3); /* it gets the end token too */
    client_free(c);
}

TEST(scheduler_filter, ignored_end_tokens_come_only_when_nothing_else_is_left)
{
    for (int ends = 0; ends < 2; ends++) {
        struct list_filter f = {
            {&list_ops}, {UINT64_MAX, END_BIT | 1 << 7, END_BIT, 1 << 9}, 4, ends ? 3 : 0, 0};
        struct client *c = client_random(5, 10, 8);
        c->request.filter = &f.filter;
        c->request.biases = &end_bias;
        c->request.n_biases = 1;
        c->request.ignore_end = true;
        run_one(c);
        CHECK(c->got[0] != FIXTURE_END);
        CHECK_INT(c->got[1], 7);
        CHECK_INT(c->got[2], FIXTURE_END);
        CHECK_INT(c->finish, ends ? FINISH_STOP : FINISH_LENGTH);
        CHECK_INT(c->n_got, ends ? 3 : 8);
        CHECK_INT(f.n_accepted, c->n_got);
        if (ends)
            CHECK_INT(c->text_end, text_length(c, 2)); /* an end token is not text */
        else
            CHECK_INT(c->got[3], 9);
        client_free(c);
    }
}

TEST(scheduler_filter, end_tokens_wait_for_min_tokens)
{
    for (uint32_t min_tokens = 0; min_tokens < 8; min_tokens++) {
        struct client *c = client_random(6, 10, 20);
        c->request.biases = &end_bias;
        c->request.n_biases = 1;
        c->request.min_tokens = min_tokens;
        run_one(c);
        CHECK_INT(c->n_got, min_tokens + 1);
        CHECK_INT(c->finish, FINISH_STOP);
        check_answer(c, LIMIT);
        client_free(c);
    }
    struct list_filter f = {{&list_ops}, {~END_BIT, END_BIT}, 2, 0, 0};
    struct client *c = client_random(6, 10, 20);
    c->request.min_tokens = 9;
    c->request.filter = &f.filter;
    run_one(c);
    CHECK_INT(c->n_got, 2); /* the filter allows only the end */
    CHECK_INT(c->finish, FINISH_STOP);
    client_free(c);
}

TEST(scheduler_filter, biases_choose_and_ban)
{
    struct logit_bias biases[] = {{11, 50}, {12, 49}, {11, -100}, {-1, 99}, {FIXTURE_VOCAB, 99}};
    struct client *c = client_random(7, 10, 9);
    c->request.biases = biases;
    c->request.n_biases = 5;
    c->request.ignore_end = true;
    run_one(c);
    for (uint32_t i = 0; i < 9; i++)
        CHECK(c->got[i] == 12 || c->got[i] == FIXTURE_END);
    check_answer(c, LIMIT);
    client_free(c);
}

/* If no token is allowed, this request fails, with a reason, and no other. */
TEST(scheduler_filter, a_mask_without_tokens_is_an_error)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct logit_bias ban = {7, -100};
    struct list_filter empty = {{&list_ops}, {~END_BIT, ~END_BIT, 0}, 3, 0, 0};
    struct list_filter banned = {{&list_ops}, {1 << 7}, 1, 0, 0};
    struct client *c[3];
    for (uint32_t i = 0; i < 3; i++)
        c[i] = client_random(8 + i, 10, 30);
    c[0]->request.filter = &empty.filter;
    c[1]->request.filter = &banned.filter;
    c[1]->request.biases = &ban;
    c[1]->request.n_biases = 1;
    for (uint32_t i = 0; i < 3; i++)
        client_submit(&f, c[i]);
    fixture_run(&f, c, 3);
    CHECK_INT(c[0]->finish, FINISH_ERROR);
    CHECK_INT(c[0]->n_got, 2);
    CHECK_INT(c[1]->finish, FINISH_ERROR);
    CHECK_INT(c[1]->n_got, 0);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(c[i]->request.error.code, ERROR_INPUT);
        CHECK(strstr(c[i]->request.error.message, "no token may follow"));
    }
    check_answer(c[2], LIMIT);
    CHECK_INT(fixture_stats(&f).failed, 2);
    CHECK_INT(fixture_stats(&f).retried, 0); /* the model is not to blame */
    CHECK_INT(fixture_stats(&f).n_private, 0);
    for (uint32_t i = 0; i < 3; i++)
        client_free(c[i]);
    fixture_close(&f);
}

/* Many requests with their own filters, in the given engine and pool. */
static struct scheduler_stats run_many(const struct fixture_options *o, uint32_t max_tokens)
{
    struct fixture f;
    fixture_open(&f, o);
    struct client *c[MANY];
    struct script_filter filters[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        c[i] = client_random(i, 20, max_tokens);
        c[i]->request.ignore_end = true;
        c[i]->request.sampling.temperature = 1;
        script_set(&filters[i], i, c[i], LIMIT);
        client_submit(&f, c[i]);
    }
    fixture_run(&f, c, MANY);
    struct scheduler_stats stats = fixture_stats(&f);
    for (uint32_t i = 0; i < MANY; i++) {
        check_script(c[i], &filters[i]);
        client_free(c[i]);
    }
    fixture_close(&f);
    return stats;
}

TEST(scheduler_filter, goes_on_as_it_is_after_a_preemption)
{
    struct fixture_options o = fixture_defaults();
    o.n_pages = 300;
    CHECK(run_many(&o, 200).preempted > 2);
}

TEST(scheduler_filter, is_told_once_when_a_sequence_starts_over)
{
    struct fixture_options o = fixture_defaults();
    o.mock.nan_every = 100;
    CHECK(run_many(&o, 60).retried > 1);
    o = fixture_defaults();
    o.mock.fail_every = 7;
    CHECK_INT(run_many(&o, 60).failed, 0);
}

/* Choices of one request have a filter each; one that allows nothing affects no other. */
TEST(scheduler_filter, each_choice_has_its_own)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c[MANY];
    struct script_filter filters[MANY];
    struct list_filter empty = {{&list_ops}, {0}, 1, 0, 0};
    for (uint32_t i = 0; i < MANY; i++) {
        c[i] = client_random(77, 50, 30);
        c[i]->request.sampling.temperature = 1;
        c[i]->request.sampling.choice = i;
        c[i]->request.leader = i ? &c[0]->request : NULL;
        script_set(&filters[i], i * 3, c[i], LIMIT);
        if (i == 2)
            c[i]->request.filter = &empty.filter;
        client_submit(&f, c[i]);
    }
    fixture_run(&f, c, MANY);
    CHECK_INT(fixture_stats(&f).forked, MANY - 1);
    for (uint32_t i = 0; i < MANY; i++) {
        if (i != 2)
            check_script(c[i], &filters[i]);
        CHECK_INT(c[i]->finish == FINISH_ERROR, i == 2);
    }
    for (uint32_t i = 0; i < MANY; i++)
        client_free(c[i]);
    fixture_close(&f);
}

/* After EVENT_DONE the filter belongs to its creator: here it is freed at once. */
TEST(scheduler_filter, is_not_called_after_a_cancel)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c = client_random(9, 20, 300);
    struct script_filter *script = malloc(sizeof *script);
    c->request.ignore_end = true;
    script_set(script, 4, c, LIMIT);
    client_submit(&f, c);
    for (int i = 0; i < 20; i++)
        CHECK(scheduler_step(f.scheduler));
    client_read(&f, c, 1000);
    CHECK(c->n_got > 10);
    scheduler_cancel(f.scheduler, &c->request);
    scheduler_step(f.scheduler);
    client_read(&f, c, 1000);
    CHECK_INT(c->finish, FINISH_CANCELED);
    check_script(c, script);
    free(script);
    while (scheduler_step(f.scheduler))
        continue;
    client_free(c);
    fixture_close(&f);
}

/* The second token of an answer to `seed` whose first is 5. */
static int32_t second_of(uint64_t seed, uint64_t mask, bool hurries, uint64_t wide,
                         enum finish_reason *finish)
{
    struct client *c = client_random(seed, 10, 4);
    struct list_filter f = {.filter = {hurries ? &hurried_ops : &list_ops},
                            .masks = {1 << 5, mask, wide},
                            .n_masks = 2,
                            .end_at = 2};
    c->request.filter = &f.filter;
    run_one(c);
    CHECK_INT(c->n_got, 2);
    int32_t second = c->got[1];
    *finish = c->finish;
    client_free(c);
    return second;
}

/* An answer that its filter ends early counts as cut off, unless the model wanted to end there. */
TEST(scheduler_filter, tells_an_end_in_a_hurry)
{
    uint32_t n_hurried = 0;
    enum { TRIES = 40 };
    for (uint64_t seed = 0; seed < TRIES; seed++) {
        uint64_t wide = seed % 2 ? 1 << 5 | 1 << 8 : ~END_BIT;
        enum finish_reason finish;
        int32_t wanted = second_of(seed, wide, false, 0, &finish);
        CHECK_INT(finish, FINISH_STOP);
        CHECK_INT(second_of(seed, 1 << 5, true, wide, &finish), 5);
        CHECK_INT(finish, wanted == 5 ? FINISH_STOP : FINISH_LENGTH);
        n_hurried += finish == FINISH_LENGTH;
    }
    CHECK(n_hurried > TRIES / 2 && n_hurried < TRIES);
}
