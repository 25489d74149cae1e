/* The scheduler with images and adapters: what is encoded and what is not, who shares with whom,
 * what is refused, and an encoder that has hardly any room. The mock makes its answers from the
 * digests of images, from rope positions and adapters, and refuses a batch that cuts a region. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler_spy.h"
#include "test.h"

enum { N_IMAGES = 4 };

static struct request_image images[N_IMAGES];

static struct fixture_options with_images(void)
{
    struct fixture_options o = fixture_defaults();
    o.mock.max_region = 100;
    o.mock.rope_axes = 3;
    o.mock.groups[0].sees_regions = true;
    o.max_image_rows = 200;
    images[0] = image_make(10, 20, 5);
    images[1] = image_make(11, 20, 5);
    images[2] = image_make(12, 7, 0);
    images[3] = image_make(13, 60, 6);
    return o;
}

static void open_spied(struct fixture *f, const struct fixture_options *o)
{
    fixture_open(f, o);
    spy_on(f);
}

static void close_spied(struct fixture *f)
{
    struct scheduler_stats stats = fixture_stats(f);
    CHECK_INT(stats.n_private + stats.n_running + stats.n_waiting, 0);
    fixture_close(f);
    CHECK_INT(spy.n_frees, spy.n_encodes);
}

static struct client *show(const char *prompt, uint32_t max_tokens)
{
    return client_make_mixed(prompt, images, N_IMAGES, max_tokens);
}

static void finish_all(struct fixture *f, struct client **c, uint32_t n)
{
    fixture_run(f, c, n);
    for (uint32_t i = 0; i < n; i++) {
        check_oracle(f, c[i], NULL);
        client_free(c[i]);
    }
}

/* Runs a request alone and checks its answer; returns how much of it was cached. */
static uint32_t run_one(struct fixture *f, struct client *c, const char *adapter)
{
    client_submit(f, c);
    fixture_run(f, &c, 1);
    check_oracle(f, c, adapter);
    uint32_t cached = c->request.prompt_cached;
    client_free(c);
    return cached;
}

static uint32_t ask(struct fixture *f, const char *prompt)
{
    return run_one(f, show(prompt, 6), NULL);
}

TEST(scheduler_image, a_cached_image_is_never_encoded)
{
    struct fixture f;
    struct fixture_options o = with_images();
    open_spied(&f, &o);
    CHECK_INT(ask(&f, "look: 0 what is it?"), 0);
    CHECK_INT(fixture_stats(&f).n_encoded, 1);
    CHECK_INT(ask(&f, "look: 0 what is it?"), 6 + 20 + 11); /* all but the last token */
    CHECK_INT(ask(&f, "look: 0 who is it?"), 6 + 20 + 3);   /* another question about it */
    CHECK_INT(fixture_stats(&f).n_encoded, 1);
    CHECK_INT(ask(&f, "look: 1 what is it?"), 6); /* another image of the same shape */
    CHECK_INT(fixture_stats(&f).n_encoded, 2);
    CHECK_INT(ask(&f, "look: 1 what is it?"), 6 + 20 + 11);
    CHECK_INT(fixture_stats(&f).n_encoded, 2);
    close_spied(&f);
}

/* Equal bytes with another grid have other rope positions. */
TEST(scheduler_image, an_image_with_another_shape_is_another)
{
    struct fixture f;
    struct fixture_options o = with_images();
    images[1] = image_make(10, 20, 4);
    open_spied(&f, &o);
    CHECK_INT(ask(&f, "look: 0 what is it?"), 0);
    CHECK_INT(ask(&f, "look: 1 what is it?"), 6);
    close_spied(&f);
}

/* Its last row gives the first token, and a region is computed whole. */
TEST(scheduler_image, an_image_at_the_end_is_computed_again)
{
    struct fixture f;
    struct fixture_options o = with_images();
    open_spied(&f, &o);
    CHECK_INT(ask(&f, "look: 0"), 0);
    uint64_t rows = fixture_stats(&f).rows;
    CHECK_INT(ask(&f, "look: 0"), 6);
    CHECK_INT(fixture_stats(&f).rows, rows + 20 + 5);
    CHECK_INT(fixture_stats(&f).n_encoded, 2);
    close_spied(&f);
}

/* Chunks of prompts, scored rows, and window pages: whatever limits a batch, it has whole regions.
 * Here the limits are smaller than most regions. */
TEST(scheduler_image, no_bound_on_a_batch_cuts_a_region)
{
    for (uint32_t max_rows = 63; max_rows < 90; max_rows += 5) {
        struct fixture f;
        struct fixture_options o = with_images();
        struct client *c[5];
        mock_set_window(&o.mock, 9);
        o.mock.groups[1].sees_regions = true;
        o.n_window_pages = 8 + 60 + max_rows - 63; /* a window and the largest region */
        o.max_rows = max_rows;
        o.max_seqs = 4;
        open_spied(&f, &o);
        for (uint32_t i = 0; i < 5; i++) {
            static const char *const prompts[] = {"a0bc2ddd3e", "0123", "xx3", "2y2z2", "plain"};
            c[i] = show(prompts[i], 4 + i);
            if (i % 2)
                client_ask_logprobs(c[i], false, true, 0);
            client_submit(&f, c[i]);
        }
        finish_all(&f, c, 5);
        close_spied(&f);
    }
}

/* The text and the image would fit into a batch, but not into the window pages. */
TEST(scheduler_image, fewer_window_pages_than_rows_do_not_cut_a_region)
{
    struct fixture f;
    struct fixture_options o = with_images();
    mock_set_window(&o.mock, 9);
    o.mock.groups[1].sees_regions = true;
    o.n_window_pages = 8 + 20;
    open_spied(&f, &o);
    CHECK_INT(ask(&f, "twelve words0 and more"), 0);
    CHECK_INT(spy.batches[0].n_rows, 12);
    CHECK(spy.batches[1].n_rows >= 20);
    close_spied(&f);
}

/* Prompt log probabilities: text has one, also after an image; positions of images have none. */
TEST(scheduler_image, only_text_is_scored)
{
    struct fixture f;
    struct fixture_options o = with_images();
    o.max_seqs = 3; /* and so three rows of logits */
    open_spied(&f, &o);
    struct client *c = show("ab2cd0e", 3);
    client_ask_logprobs(c, false, true, 0);
    client_submit(&f, c);
    fixture_run(&f, &c, 1);
    uint32_t n_numbers = 0;
    for (uint32_t i = 0; i < c->request.n_tokens; i++)
        n_numbers += !isnan(c->request.prompt_logprobs[i].logprob);
    CHECK_INT(n_numbers, 4);
    finish_all(&f, &c, 1);
    close_spied(&f);
}

static void check_refused(struct fixture *f, struct client *c, const char *words)
{
    CHECK_INT(scheduler_submit(f->scheduler, &c->request), SUBMIT_INVALID);
    CHECK_INT(c->request.error.code, ERROR_INPUT);
    if (!strstr(c->request.error.message, words))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", c->request.error.message,
                  words);
    CHECK(!c->request.sequence);
    client_free(c);
}

TEST(scheduler_image, what_cannot_be_computed_is_refused_when_it_comes)
{
    struct fixture f;
    struct fixture_options o = with_images();
    open_spied(&f, &o);
    images[3] = image_make(13, 101, 0); /* the engine takes 100 */
    check_refused(&f, show("a3b", 4), "an image takes 101 positions, and at most 100");
    images[3] = image_make(13, 100, 0);
    CHECK_INT(ask(&f, "a3b"), 0);
    struct client *c = show("a2b", 4);
    c->prompt[3] = c->prompt[4]; /* out of order */
    check_refused(&f, c, "the tokens of an image are not in order");
    c = show("a2b", 4);
    c->request.n_tokens = 5; /* not all of it */
    check_refused(&f, c, "not in order");
    c = show("a2b", 4);
    c->prompt[1] = cache_token_image(N_IMAGES, 0, 7); /* no image has that index */
    check_refused(&f, c, "not in order");
    c = show("a2b", 4);
    c->prompt[7] = cache_token_text(1); /* its last position is missing */
    check_refused(&f, c, "not in order");
    close_spied(&f);
}

/* The room of a batch, of the encoder, of window pages and of a cache token: the smallest counts.
 */
TEST(scheduler_image, the_largest_image_is_what_every_part_can_take)
{
    struct fixture f;
    struct fixture_options o = with_images();
    o.max_rows = 80;
    o.max_seqs = 4; /* three others have a row each */
    open_spied(&f, &o);
    images[3] = image_make(13, 78, 0);
    check_refused(&f, show("a3", 4), "at most 77");
    images[3] = image_make(13, 77, 0);
    CHECK_INT(ask(&f, "a3b"), 0);
    close_spied(&f);

    o.max_image_rows = 50;
    open_spied(&f, &o);
    images[3] = image_make(13, 51, 0);
    check_refused(&f, show("a3", 4), "at most 50");
    close_spied(&f);

    mock_set_window(&o.mock, 9);
    o.n_window_pages = 40;
    open_spied(&f, &o);
    images[3] = image_make(13, 33, 0);
    check_refused(&f, show("a3", 4), "at most 32");
    images[3] = image_make(13, 32, 0);
    CHECK_INT(ask(&f, "a3b"), 0);
    close_spied(&f);

    o = with_images();
    o.mock.max_region = o.max_image_rows = o.n_pages = o.max_length = o.max_rows = 40000;
    open_spied(&f, &o);
    images[0] = image_make(10, CACHE_MAX_IMAGE_LENGTH, 0);
    struct client *c = show("a1", 4);
    c->prompt[1] = cache_token_image(0, 0, CACHE_MAX_IMAGE_LENGTH);
    images[0].shape.length++; /* more than a cache token can count */
    check_refused(&f, c, "an image takes 16385 positions, and at most 16384");
    close_spied(&f);
}

TEST(scheduler_image, a_model_without_images_takes_none)
{
    struct fixture f;
    struct fixture_options o = with_images();
    o.mock.max_region = 0;
    open_spied(&f, &o);
    check_refused(&f, show("a2b", 4), "this model takes no images");
    CHECK_INT(ask(&f, "only text"), 0);
    close_spied(&f);
}

TEST(scheduler_image, a_full_table_refuses_a_request_and_hurts_nobody)
{
    struct fixture f;
    struct fixture_options o = with_images();
    o.max_images = 2;
    open_spied(&f, &o);
    CHECK_INT(ask(&f, "a0b"), 0);
    struct client *running = show("a plain one", 30), *bad = show("1 and 2", 4);
    client_submit(&f, running);
    scheduler_step(f.scheduler);
    client_submit(&f, bad); /* one of its images fits, the other does not */
    fixture_run(&f, &bad, 1);
    CHECK_INT(bad->finish, FINISH_ERROR);
    CHECK_INT(bad->request.error.code, ERROR_LIMIT);
    CHECK_INT(bad->n_started, 0);
    CHECK_STR(bad->request.error.message,
              "the cache knows as many images as it can; try again later");
    client_free(bad);
    finish_all(&f, &running, 1);
    CHECK_INT(ask(&f, "a2b"), 1); /* it was let go of the first one */
    CHECK_INT(ask(&f, "a0b"), 21);
    close_spied(&f);
}

TEST(scheduler_image, images_take_turns_where_the_encoder_has_room_for_one)
{
    struct fixture f;
    struct fixture_options o = with_images();
    struct client *c[4];
    o.max_image_rows = 65;
    open_spied(&f, &o);
    for (uint32_t i = 0; i < 4; i++) {
        static const char *const prompts[] = {"first 3 x 0", "second 33", "third 0123", "none"};
        c[i] = show(prompts[i], 5);
        c[i]->request.no_cache = true;
        client_submit(&f, c[i]);
    }
    finish_all(&f, c, 4);
    CHECK_INT(fixture_stats(&f).n_encoded, 8);
    close_spied(&f);
}

/* The first sequence's next image is refused because the second has one; the second's is larger
 * than a step allows to any but the first. */
TEST(scheduler_image, who_waits_for_the_encoder_does_not_hold_up_others)
{
    struct fixture f;
    struct fixture_options o = with_images();
    images[0] = image_make(10, 35, 0);
    images[1] = image_make(11, 60, 0);
    images[2] = image_make(12, 45, 0);
    o.max_image_rows = 90;
    o.step_budget_ms = 1;
    o.mock.row_cost_us = 300;
    open_spied(&f, &o);
    struct client *c[] = {show("01", 2), show("2", 2)};
    for (int i = 0; i < 2; i++)
        client_submit(&f, c[i]);
    finish_all(&f, c, 2);
    close_spied(&f);
}

/* The same, with the first computed alone because a batch failed. */
TEST(scheduler_image, who_is_computed_alone_does_not_keep_others_from_giving_room)
{
    struct fixture f;
    struct fixture_options o = with_images();
    images[0] = image_make(10, 35, 0);
    images[1] = image_make(11, 60, 0);
    images[2] = image_make(12, 45, 0);
    o.max_image_rows = 90;
    mock_add_state(&o.mock, 1);
    o.n_state_pages = 20;
    open_spied(&f, &o);
    spy_fail(SPY_WAIT, 0, 1, ERROR_FAILED);
    struct client *c[] = {show("a0b1", 2), show("c2", 2)};
    for (int i = 0; i < 2; i++)
        client_submit(&f, c[i]);
    finish_all(&f, c, 2);
    close_spied(&f);
}

/* Small images do not overtake a large one forever. */
TEST(scheduler_image, who_waits_for_the_encoder_is_not_overtaken)
{
    struct fixture f;
    struct fixture_options o = with_images();
    struct client *c[4];
    images[1] = image_make(11, 100, 0);
    o.max_image_rows = 100;
    open_spied(&f, &o);
    for (uint32_t i = 0; i < 4; i++) {
        static const char *const prompts[] = {"a0", "b1", "c2", "d2"};
        c[i] = show(prompts[i], 2);
        client_submit(&f, c[i]);
    }
    finish_all(&f, c, 4);
    CHECK_INT(spy.n_encodes, 4);
    CHECK_INT(spy.encoded[0], 20);
    CHECK_INT(spy.encoded[1], 100);
    close_spied(&f);
}

/* Encoded images are used soon: one far down a prompt takes no room before that. */
TEST(scheduler_image, an_image_is_encoded_when_a_batch_may_reach_it)
{
    struct fixture f;
    struct fixture_options o = with_images();
    o.max_rows = 64;
    o.max_seqs = 4;
    open_spied(&f, &o);
    struct client *c = show("a long text comes before the image in this prompt, more than a batch "
                            "can have, and then: 0?",
                            3);
    client_submit(&f, c);
    scheduler_step(f.scheduler);
    CHECK_INT(spy.n_encodes, 0);
    finish_all(&f, &c, 1);
    CHECK_INT(spy.n_encodes, 1);
    close_spied(&f);
}

/* While a batch computes an image, the next one is encoded, if the batch after it may reach that.
 */
TEST(scheduler_image, an_image_is_encoded_while_the_one_before_waits)
{
    struct fixture f;
    struct fixture_options o = with_images();
    o.max_rows = 64;
    o.max_seqs = 4;
    open_spied(&f, &o);
    struct client *c = show("ten lettrs30?", 3); /* the text and image 3 are more than a batch */
    client_submit(&f, c);
    scheduler_step(f.scheduler);
    CHECK_INT(spy.n_encodes, 1);
    CHECK_INT(spy.batches[0].n_rows, 10);
    scheduler_step(f.scheduler);
    CHECK_INT(spy.n_encodes, 2);
    CHECK_INT(spy.batches[1].n_rows, 60);
    finish_all(&f, &c, 1);
    close_spied(&f);
}

/* An encoder that refuses although it holds nothing: waiting would last forever. */
TEST(scheduler_image, an_empty_encoder_without_room_fails_the_request)
{
    struct fixture f;
    struct fixture_options o = with_images();
    open_spied(&f, &o);
    spy_fail(SPY_ENCODE, 0, 1, ERROR_LIMIT);
    struct client *c = show("a0b", 3);
    client_submit(&f, c);
    fixture_run(&f, &c, 1);
    CHECK_INT(c->finish, FINISH_ERROR);
    CHECK_INT(c->request.error.code, ERROR_LIMIT);
    client_free(c);
    close_spied(&f);
}

TEST(scheduler_image, an_image_that_cannot_be_encoded_fails_its_request_alone)
{
    for (int call = SPY_ENCODE; call <= SPY_ENCODE_STEP; call++) {
        struct fixture f;
        struct fixture_options o = with_images();
        open_spied(&f, &o);
        spy_fail((enum spy_call)call, 0, 1, ERROR_FAILED);
        struct client *bad = show("x0", 3), *c[] = {show("y1", 3), show("text", 3)};
        client_submit(&f, bad);
        for (int i = 0; i < 2; i++)
            client_submit(&f, c[i]);
        fixture_run(&f, &bad, 1);
        CHECK_INT(bad->finish, FINISH_ERROR);
        client_free(bad);
        finish_all(&f, c, 2);
        close_spied(&f);
    }
}

TEST(scheduler_image, a_cancel_while_an_image_is_encoded_gives_its_room_back)
{
    struct fixture f;
    struct fixture_options o = with_images();
    o.max_image_rows = 60;
    o.step_budget_ms = 1;
    o.mock.image_row_cost_us = 100; /* six milliseconds for the large one */
    open_spied(&f, &o);
    struct client *c = show("a3b", 3), *next = show("c3d", 3);
    client_submit(&f, c);
    scheduler_step(f.scheduler);
    CHECK_INT(spy.n_encodes, 1);
    CHECK_INT(fixture_stats(&f).n_encoded, 0);
    scheduler_cancel(f.scheduler, &c->request);
    client_submit(&f, next);
    finish_all(&f, &next, 1);
    client_read(&f, c, 10);
    CHECK_INT(c->finish, FINISH_CANCELED);
    client_free(c);
    close_spied(&f);
}

static uint32_t ask_as(struct fixture *f, uint32_t owner, uint32_t n_public)
{
    struct client *c = show("hi 0 there", 3);
    c->request.owner = owner;
    c->request.n_public = n_public;
    return run_one(f, c, NULL);
}

TEST(scheduler_image, owners_keep_their_images_apart)
{
    struct fixture f;
    struct fixture_options o = with_images();
    open_spied(&f, &o);
    CHECK_INT(ask_as(&f, 1, 3), 0);
    CHECK_INT(ask_as(&f, 2, 3), 3); /* the text before the image is everyone's */
    CHECK_INT(ask_as(&f, 1, 3), 28);
    CHECK_INT(ask_as(&f, 2, 3), 28);
    CHECK_INT(fixture_stats(&f).n_encoded, 2);
    CHECK_INT(ask_as(&f, 1, 23), 3); /* here the image is everyone's as well */
    CHECK_INT(ask_as(&f, 2, 23), 23);
    CHECK_INT(fixture_stats(&f).n_encoded, 3);
    close_spied(&f);
}

/* ---- adapters ---- */

static uint32_t ask_adapter(struct fixture *f, uint64_t adapter, const char *path)
{
    struct client *c = show("what 2 says", 5);
    c->request.adapter = adapter;
    return run_one(f, c, path);
}

static uint64_t load(struct fixture *f, const char *path)
{
    uint64_t adapter;
    struct error err;
    CHECK(engine_load_adapter(f->engine, path, &adapter, &err) == 0);
    return adapter;
}

TEST(scheduler_adapter, adapters_never_share)
{
    struct fixture f;
    struct fixture_options o = with_images();
    open_spied(&f, &o);
    uint64_t red = load(&f, "red"), blue = load(&f, "blue");
    CHECK_INT(ask_adapter(&f, 0, NULL), 0);
    CHECK_INT(ask_adapter(&f, red, "red"), 0);
    CHECK_INT(ask_adapter(&f, blue, "blue"), 0);
    CHECK_INT(ask_adapter(&f, red, "red"), 16);
    CHECK_INT(ask_adapter(&f, blue, "blue"), 16);
    CHECK_INT(ask_adapter(&f, 0, NULL), 16);
    close_spied(&f);
}

/* Not even when they run at the same time: nobody waits for another adapter's flight. */
TEST(scheduler_adapter, adapters_run_side_by_side)
{
    struct fixture f;
    struct fixture_options o = with_images();
    static const char *const paths[] = {NULL, "red", "blue"};
    struct client *c[3];
    open_spied(&f, &o);
    for (int i = 0; i < 3; i++) {
        c[i] = show("what 2 says", 5);
        c[i]->request.adapter = i ? load(&f, paths[i]) : 0;
        client_submit(&f, c[i]);
    }
    fixture_run(&f, c, 3);
    CHECK_INT(spy.batches[2].n_seqs, 3);
    for (int i = 0; i < 3; i++) {
        check_oracle(&f, c[i], paths[i]);
        CHECK_INT(c[i]->request.prompt_cached, 0);
        client_free(c[i]);
    }
    close_spied(&f);
}

TEST(scheduler_adapter, a_reloaded_adapter_is_another)
{
    struct fixture f;
    struct fixture_options o = with_images();
    open_spied(&f, &o);
    uint64_t red = load(&f, "red");
    CHECK_INT(ask_adapter(&f, red, "red"), 0);
    engine_unload_adapter(f.engine, red);
    red = load(&f, "red"); /* its file may be another now */
    CHECK_INT(ask_adapter(&f, red, "red"), 0);
    CHECK_INT(ask_adapter(&f, red, "red"), 16);
    close_spied(&f);
}

TEST(scheduler_adapter, an_unloaded_adapter_fails_its_request_alone)
{
    for (int has_state = 0; has_state < 2; has_state++) {
        struct fixture f;
        struct fixture_options o = with_images();
        if (has_state)
            mock_add_state(&o.mock, 1);
        o.n_state_pages = 20;
        open_spied(&f, &o);
        uint64_t red = load(&f, "red");
        CHECK_INT(ask_adapter(&f, red, "red"), 0);
        engine_unload_adapter(f.engine, red);
        struct client *other = show("other 0", 9), *bad = show("what 2 says", 5);
        bad->request.adapter = red; /* all of it is cached but the last token */
        client_submit(&f, other);
        client_submit(&f, bad);
        fixture_run(&f, &bad, 1);
        CHECK_INT(bad->finish, FINISH_ERROR);
        CHECK_INT(bad->n_got, 0);
        CHECK_INT(bad->request.error.code, ERROR_INPUT);
        CHECK_STR(bad->request.error.message, "no adapter with that number is loaded");
        client_free(bad);
        finish_all(&f, &other, 1);
        close_spied(&f);
    }
}
