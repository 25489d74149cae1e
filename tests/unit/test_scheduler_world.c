/* The scheduler on everything that an engine can have; `make soak` runs more of it. */
#include "sched_world.h"

#include "test.h"

enum { WORLDS = 24, STEPS = 1200 };

TEST(scheduler_world, every_token_follows_from_its_tokens_alone)
{
    struct sched_totals t = {0};
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        struct sched_world *w = sched_world_open(seed);
        for (uint32_t i = 0; i < STEPS; i++)
            sched_world_step(w);
        sched_world_close(w, &t);
    }
    /* The test is useful only if all of this happened. */
    CHECK(t.n_tokens > 10000 && t.cached_tokens > t.prompt_tokens / 8);
    CHECK(t.n_images > 1000 && t.n_encoded > 1000 && t.n_adapters > 20 && t.n_forked > 50);
    CHECK(t.n_preempted > 0 && t.n_retried > 0 && t.n_lost > 0 && t.n_canceled > 0);
    CHECK(t.tails[0] > 0 && t.tails[1] > 0 && t.interior[0] > 0);
}
