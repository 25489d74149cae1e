/* Learning what steps cost, from engines of several shapes. */
#include "test.h"

#include <math.h>

#include "base/hash.h"
#include "sched/step_cost.h"

struct engine_shape {
    double batch_ns, row_ns, position_ns;
};

static const struct engine_shape shapes[] = {
    {10e6, 0.3e6, 100}, /* a small model on a few cores */
    {60e6, 2e6, 1000},  /* a larger one */
    {5e6, 2e3, 1},      /* a device */
    {0, 1e6, 0},        /* the mock engine with a cost for each row */
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static double true_cost(const struct engine_shape *e, const struct step_work *w)
{
    return e->batch_ns + w->rows * e->row_ns + (double)w->positions * e->position_ns;
}

/* Prompts cut by the estimate, with decode steps between them, as the planner does it. The steps'
 * times have noise of a tenth. */
TEST(step_cost, chunks_come_near_the_budget_and_stay_there)
{
    for (int shape = 0; shape < N_SHAPES; shape++) {
        const struct engine_shape *e = &shapes[shape];
        struct step_cost cost;
        const double budget_ns = 100e6;
        uint64_t state = 3;
        step_cost_init(&cost, budget_ns / 64);
        for (int prompt = 0; prompt < 20; prompt++) {
            for (uint32_t position = 0; position < 4000;) {
                struct step_work none = {0, 0};
                double time_ns = budget_ns - step_cost_predict(&cost, &none);
                uint32_t n = step_cost_rows(&cost, position, time_ns);
                n = n < 1 ? 1 : n > 512 ? 512 : n;
                struct step_work work = {n, (uint64_t)n * position + (uint64_t)n * n / 2};
                double took_ns = true_cost(e, &work);
                if (prompt > 2) /* it has seen a few of every kind */
                    CHECK(took_ns < 1.6 * budget_ns);
                if (prompt > 2 && n < 512 && position + n < 4000)
                    CHECK(took_ns > 0.4 * budget_ns);
                state = hash_mix(state);
                step_cost_learn(&cost, &work,
                                took_ns * (0.95 + 0.1 * (double)(state >> 40) / (1 << 24)));
                position += n;
            }
            for (uint32_t i = 0; i < 30; i++) {
                struct step_work work = {4, 4 * (4000 + i)};
                step_cost_learn(&cost, &work, true_cost(e, &work));
            }
            struct step_work decode = {4, 4 * 4030};
            double error = step_cost_predict(&cost, &decode) / true_cost(e, &decode);
            CHECK(error > 0.8 && error < 1.25);
        }
    }
}

TEST(step_cost, rows_fit_into_the_time_they_were_planned_for)
{
    struct step_cost cost = {.batch_ns = 5e6, .row_ns = 1e5, .position_ns = 50};
    for (uint32_t position = 0; position < 100000; position += 7000) {
        uint32_t n = step_cost_rows(&cost, position, 50e6);
        struct step_work work = {n, (uint64_t)n * position + (uint64_t)n * (n + 1) / 2};
        double took_ns = step_cost_predict(&cost, &work) - cost.batch_ns;
        double one_more_ns = cost.row_ns + (position + n) * cost.position_ns;
        CHECK(took_ns <= 50.1e6 && took_ns + one_more_ns > 49.9e6);
    }
    CHECK_INT(step_cost_rows(&cost, 0, 0), 0);
    CHECK_INT(step_cost_rows(&cost, 0, -5e6), 0);
    CHECK_INT(step_cost_rows(&cost, 0, NAN), 0);
}

TEST(step_cost, an_outlier_does_not_last)
{
    struct step_cost cost;
    step_cost_init(&cost, 1e6);
    struct step_work work = {100, 100 * 50};
    for (int i = 0; i < 20; i++)
        step_cost_learn(&cost, &work, 50e6);
    step_cost_learn(&cost, &work, 2000e6); /* the machine was asleep */
    for (int i = 0; i < 20; i++)
        step_cost_learn(&cost, &work, 50e6);
    double error = step_cost_predict(&cost, &work) / 50e6;
    CHECK(error > 0.9 && error < 1.1);
}
