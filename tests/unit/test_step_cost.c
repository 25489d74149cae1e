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
                uint32_t most = cost.max_rows < 512 ? cost.max_rows : 512;
                n = n < 1 ? 1 : n > most ? most : n;
                struct step_work work = {n, (uint64_t)n * position + (uint64_t)n * n / 2};
                double took_ns = true_cost(e, &work);
                if (prompt > 2) /* it has seen a few of every kind */
                    CHECK(took_ns < 1.6 * budget_ns);
                if (prompt > 2 && n < most && position + n < 4000)
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

/* Reading the weights takes most of the budget, and the first estimate of a row is ten times too
 * high: the chunks are small, but it must still learn. */
TEST(step_cost, small_chunks_teach_the_cost_of_a_row)
{
    struct step_cost cost;
    const struct engine_shape e = {80e6, 0.3e6, 100};
    step_cost_init(&cost, 3e6);
    uint64_t state = 5;
    uint32_t n = 0;
    for (uint32_t i = 0; i < 150; i++) {
        struct step_work none = {0, 0};
        n = step_cost_rows(&cost, 500, fmax(100e6 - step_cost_predict(&cost, &none), 25e6));
        struct step_work chunk = {n, n * 500}, decode = {1, 500};
        const struct step_work *work = i % 4 ? &chunk : &decode;
        state = hash_mix(state);
        double noise = 0.95 + 0.1 * (double)(state >> 40) / (1 << 24);
        step_cost_learn(&cost, work, true_cost(&e, work) * noise);
    }
    CHECK(n > 40);
    CHECK(cost.row_ns < 0.6e6 && cost.batch_ns < 100e6);
}

/* Steps that take anything from half to four times as long: chunks never run away. */
TEST(step_cost, noise_does_not_make_rows_free)
{
    const struct engine_shape e = {55e6, 3e6, 500};
    uint64_t state = 1;
    for (int run = 0; run < 20; run++) {
        struct step_cost cost;
        uint64_t n_rows = 0;
        step_cost_init(&cost, 3e6);
        for (uint32_t i = 0; i < 400; i++) {
            struct step_work none = {0, 0};
            double time_ns = fmax(100e6 - step_cost_predict(&cost, &none), 25e6);
            uint32_t n = step_cost_rows(&cost, 1000, time_ns);
            n = n < 1 ? 1 : n > cost.max_rows ? cost.max_rows : n;
            struct step_work work = {i % 5 ? n : 1, (i % 5 ? n : 1) * 1000};
            state = hash_mix(state);
            double u = (double)(state >> 40) / (1 << 24);
            CHECK(true_cost(&e, &work) < 400e6);
            step_cost_learn(&cost, &work, true_cost(&e, &work) * (0.5 + 3.5 * u * u * u));
            n_rows += work.rows;
        }
        CHECK(n_rows > 400 * 3);
    }
}

/* Chunks double while steps take as long as predicted, and shrink to one that took too long. */
TEST(step_cost, chunks_grow_by_doubling)
{
    struct step_cost cost;
    step_cost_init(&cost, 1e6);
    uint32_t first = cost.max_rows;
    CHECK(first > 1 && first % 2 == 0);
    step_cost_learn(&cost, &(struct step_work){first / 2, 0}, first / 2 * 1e6);
    CHECK_INT(cost.max_rows, first); /* half a chunk says nothing about larger ones */
    step_cost_learn(&cost, &(struct step_work){first / 2 + 1, 0}, (first / 2 + 1) * 1e6);
    CHECK_INT(cost.max_rows, first + 2);
    step_cost_learn(&cost, &(struct step_work){first + 2, 0}, (first + 2) * 1e6);
    CHECK_INT(cost.max_rows, 2 * first + 4);
    step_cost_learn(&cost, &(struct step_work){2 * first, 0}, 20 * first * 1e6);
    CHECK_INT(cost.max_rows, 2 * first);
    /* A slow step that was already small is no reason for smaller ones. */
    step_cost_learn(&cost, &(struct step_work){1, 0}, 1e12);
    CHECK_INT(cost.max_rows, 2 * first);
    step_cost_learn(&cost, &(struct step_work){first, 0}, 1e15);
    CHECK_INT(cost.max_rows, first);
    step_cost_init(&cost, 1);
    cost.max_rows = UINT32_MAX;
    step_cost_learn(&cost, &(struct step_work){UINT32_MAX - 1, 0}, UINT32_MAX);
    CHECK_INT(cost.max_rows, UINT32_MAX);
}
