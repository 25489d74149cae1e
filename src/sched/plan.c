/* Plans a step: a row for every decoding sequence, and as much of the prompts as fits into the
 * budget. Owned by the scheduler's thread.
 *
 *   budget   [ decode rows │ first prompt: half of the rest │ other prompts, shortest first │ ]
 *
 * First is the oldest prompt of whoever has used least (shares.h). It always moves, so none
 * starves: each becomes the first. A short prompt behind a long one still gets its turn in the next
 * step. The first gets what the others leave. */
#include "sched/state.h"
#include "base/minmax.h"

#include <assert.h>
#include <math.h>

enum { MIN_ROWS = 32 }; /* prompt rows in a step, however long they take */

struct budget {
    double time_ns;
    uint32_t rows;
};

static uint32_t rows_left(const struct sequence *seq)
{
    uint32_t n = seq->n_tokens - seq->n_computed;
    n = n < seq->most_rows ? n : seq->most_rows;
    return n > seq->n_rows ? n - seq->n_rows : 0;
}

/* While a prompt is scored, each of its rows gives logits, and there is room for only `max_seqs`
 * rows of logits. Sequences that are not scored keep one each; those that are share the rest, at
 * least one each. A last row waits for the mask of the token that it gives. */
static void limit_rows(struct scheduler *s)
{
    uint32_t n_scoring = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        n_scoring += sequence_is_scoring(s->running[i]);
    uint32_t room = s->options.max_seqs - (s->n_running - n_scoring);
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct sequence *seq = s->running[i];
        seq->most_rows = sequence_is_scoring(seq) ? room / n_scoring : UINT32_MAX;
        if (!mask_allows_row(s, seq))
            seq->most_rows = min_u32(seq->most_rows, seq->n_tokens - seq->n_computed - 1);
    }
}

/* Plans rows of a prompt, as many as fit into the given time and number. If it must move, it gets
 * at least one row, or a whole region. */
static void give_rows(const struct scheduler *s, struct sequence *seq, struct budget *budget,
                      double time_ns, uint32_t most, bool must_move)
{
    const struct step_cost *cost = &s->cost;
    uint32_t position = seq->n_computed + seq->n_rows;
    uint32_t n = step_cost_rows(cost, position, time_ns);
    n = must_move && n == 0 ? 1 : n;
    n = n < most ? n : most;
    n = n < rows_left(seq) ? n : rows_left(seq);
    n = state_cut(s, seq, position, regions_whole(&seq->regions, position, n));
    if (must_move && n == 0)
        n = regions_least(&seq->regions, position);
    budget->time_ns -= n * (cost->row_ns + (position + n * 0.5) * cost->position_ns);
    budget->rows -= n < budget->rows ? n : budget->rows;
    seq->n_rows += n;
}

/* A sequence that was parked when pages were reserved may have been read since then, and has none.
 */
static bool has_pages(const struct scheduler *s, const struct sequence *seq)
{
    for (uint32_t i = 0; i < s->cache.n_sides; i++)
        if (side_is_window(&s->cache, i) &&
            seq->sides[i].n_reserved <
                seq->n_computed + regions_least(&seq->regions, seq->n_computed))
            return false;
    return seq->n_reserved > seq->n_computed;
}

/* False while its reader is slow, its next image is not encoded, or its mask is not made. */
static bool can_move(const struct scheduler *s, const struct sequence *seq)
{
    uint32_t least = regions_least(&seq->regions, seq->n_computed);
    return !sequence_is_parked(seq) && has_pages(s, seq) && least > 0 &&
           (seq->n_computed + least < seq->n_tokens || mask_allows_row(s, seq));
}

/* The oldest sequence that must be computed alone, or NULL. One that cannot move blocks nobody: it
 * may be waiting for what another holds. */
static const struct sequence *find_alone(const struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->alone_until > s->running[i]->n_computed && can_move(s, s->running[i]))
            return s->running[i];
    return NULL;
}

/* Plans the decode rows, and lists the prompts. */
static uint32_t plan_decodes(struct scheduler *s, struct step_work *work)
{
    const struct sequence *alone = find_alone(s);
    uint32_t n_prefills = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct sequence *seq = s->running[i];
        seq->n_rows = 0;
        if (!can_move(s, seq) || (alone && seq != alone))
            continue;
        if (rows_left(seq) > 1 || regions_least(&seq->regions, seq->n_computed) > 1) {
            s->prefills[n_prefills++] = seq;
            continue;
        }
        seq->n_rows = 1;
        work->rows++;
        work->positions += seq->n_computed;
    }
    return n_prefills;
}

static void sort_shortest_first(struct sequence **prefills, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct sequence *seq = prefills[i];
        uint32_t at = i;
        for (; at > 0 && rows_left(prefills[at - 1]) > rows_left(seq); at--)
            prefills[at] = prefills[at - 1];
        prefills[at] = seq;
    }
}

/* The time that prompts get, whatever else the step does: enough for MIN_ROWS, because a prompt
 * computed in single rows would take forever; a quarter of the budget, so that prompts advance
 * beside many decoders; and more if reading the weights takes most of a step, which is then long
 * anyway. */
static double least_time_ns(const struct step_cost *cost, uint32_t position, double limit_ns)
{
    double rows_ns = MIN_ROWS * (cost->row_ns + (position + MIN_ROWS * 0.5) * cost->position_ns);
    return fmax(fmax(limit_ns / 4, rows_ns), cost->batch_ns - limit_ns / 2);
}

/* Puts the prompt that is due at the front. */
static void put_first(struct scheduler *s, uint32_t n)
{
    uint32_t first = 0;
    for (uint32_t i = 1; i < n; i++)
        if (shares_has_used_less(&s->shares, s->prefills[i], s->prefills[first]))
            first = i;
    struct sequence *seq = s->prefills[first];
    s->prefills[first] = s->prefills[0];
    s->prefills[0] = seq;
}

/* Rows that only partly fill one of the engine's tiles cost nearly as much as a full tile. The
 * first prompt leaves them for the next step, unless that would leave prompts too few rows, or it
 * ends in this step. */
static void trim_to_tiles(const struct scheduler *s, struct sequence *first, uint32_t n_decodes,
                          uint32_t n_prompts)
{
    uint32_t tile = s->engine->info.row_tile;
    uint32_t excess = tile ? (n_decodes + n_prompts) % tile : 0;
    uint32_t n = first->n_rows - (excess < first->n_rows ? excess : 0);
    if (n_prompts - excess >= MIN_ROWS && rows_left(first) > 0 &&
        regions_whole(&first->regions, first->n_computed, n) == n)
        first->n_rows = n;
}

static void plan_prefills(struct scheduler *s, uint32_t n, const struct step_work *decodes)
{
    double limit_ns = s->options.step_budget_ms * 1e6;
    put_first(s, n);
    struct sequence *first = s->prefills[0];
    uint32_t room = s->engine->limits.max_rows - decodes->rows;
    struct budget budget = {limit_ns - step_cost_predict(&s->cost, decodes),
                            room < s->cost.max_rows ? room : s->cost.max_rows};
    budget.time_ns = fmax(budget.time_ns, least_time_ns(&s->cost, first->n_computed, limit_ns));
    uint32_t share = n > 1 ? 2 : 1, rows = budget.rows;
    give_rows(s, first, &budget, budget.time_ns / share, (budget.rows + share - 1) / share, true);
    sort_shortest_first(s->prefills + 1, n - 1);
    for (uint32_t i = 1; i < n; i++)
        give_rows(s, s->prefills[i], &budget, budget.time_ns, budget.rows, false);
    give_rows(s, first, &budget, budget.time_ns, budget.rows, false);
    trim_to_tiles(s, first, decodes->rows, rows - budget.rows);
}

void scheduler_plan(struct scheduler *s)
{
    struct step_work decodes = {0, 0};
    limit_rows(s);
    uint32_t n_prefills = plan_decodes(s, &decodes);
    assert(decodes.rows <= s->engine->limits.max_rows);
    if (n_prefills)
        plan_prefills(s, n_prefills, &decodes);
    s->n_planned = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->n_rows)
            s->planned[s->n_planned++] = s->running[i];
}
