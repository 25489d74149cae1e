/* Behaviour of the scheduler that single faults would change without any other test noticing. */
#include "scheduler_fixture.h"

#include <stdlib.h>

#include "test.h"

static const char *const story = "it was a dark and stormy night and the rain fell in torrents";

/* A choice that found no slot when its leader's prompt was computed gets one while the leader still
 * writes: it waits for the prompt, not for the answer. */
TEST(scheduler_faults, a_choice_does_not_wait_for_its_leaders_answer)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    o.max_seqs = 2;
    fixture_open(&f, &o);
    struct client *c[3] = {client_make_text("another one", 4), client_make_text(story, 400),
                           client_make_text(story, 4)};
    for (int i = 0; i < 3; i++) {
        c[i]->request.ignore_end = true;
        client_submit(&f, c[i]);
        if (i == 0)
            scheduler_step(f.scheduler);
        if (i == 1)
            c[2]->request.leader = &c[1]->request;
    }
    for (int i = 0; i < 60; i++) {
        scheduler_step(f.scheduler);
        for (int k = 0; k < 3; k++)
            client_read(&f, c[k], UINT32_MAX);
    }
    CHECK_INT(c[0]->n_done, 1);
    CHECK_INT(c[1]->n_done, 0);
    CHECK_INT(c[2]->n_done, 1);
    CHECK_INT(fixture_stats(&f).forked, 0);
    fixture_run(&f, c, 3);
    for (int i = 0; i < 3; i++) {
        check_answer(c[i], o.max_length);
        client_free(c[i]);
    }
    fixture_close(&f);
}

/* A sequence that nobody reads holds window pages for nothing: it yields to another, and resumes
 * when it is read. */
TEST(scheduler_faults, unread_answers_give_their_windows_to_others)
{
    enum { W = 20 };
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    mock_set_window(&o.mock, W);
    o.max_rows = 48;
    o.n_window_pages = W + W / 2; /* for one, not for two */
    fixture_open(&f, &o);
    struct client *c[2] = {client_make_text(story, 400), client_make_text("another one", 30)};
    for (int i = 0; i < 2; i++) {
        c[i]->request.ignore_end = true;
        client_submit(&f, c[i]);
        for (int k = 0; k < 300; k++) {
            scheduler_step(f.scheduler);
            client_read(&f, c[1], i * UINT32_MAX);
        }
    }
    CHECK_INT(c[1]->n_done, 1);
    CHECK_INT(c[0]->n_done, 0);
    CHECK(fixture_stats(&f).preempted > 0);
    fixture_run(&f, c, 2);
    for (int i = 0; i < 2; i++) {
        check_answer(c[i], o.max_length);
        client_free(c[i]);
    }
    fixture_close(&f);
}
