/* The scheduler, one behaviour at a time, on the mock engine and without its thread. */
#include "scheduler_fixture.h"

#include <stdlib.h>

#include "base/clock.h"
#include "test.h"

static const char *const story = "it was a dark and stormy night and the rain fell in torrents";

TEST(scheduler, one_request_gives_the_plain_answer)
{
    struct fixture f;
    struct fixture_options o = fixture_defaults();
    fixture_open(&f, &o);
    struct client *c = client_make_text(story, 200);
    client_submit(&f, c);
    CHECK(scheduler_step(f.scheduler));
    fixture_run(&f, &c, 1);
    check_answer(c, o.max_length);
    CHECK_INT(c->request.prompt_cached, 0);
    CHECK(c->request.submitted_ns <= c->request.started_ns);
    CHECK(c->request.started_ns <= c->request.first_token_ns);
    CHECK(c->request.first_token_ns <= c->request.done_ns);
    struct scheduler_stats stats = fixture_stats(&f);
    CHECK_INT(stats.rows, c->request.n_tokens + c->n_got - 1);
    CHECK_INT(stats.n_private, 0);
    CHECK_INT(stats.n_owned, c->request.n_tokens + c->n_got - 1); /* the last one has no KV */
    CHECK_INT(stats.tree.n_nodes, 2);                             /* the root, and one for all */
    CHECK_INT(stats.finished, 1);
    CHECK(f.n_notified > 0);
    CHECK(!scheduler_step(f.scheduler));
    client_free(c);
    fixture_close(&f);
}
