/* A batch of the mock engine: computes new pages and slots from inputs, pages and slots, and a
 * digest for each row that has an output. Runs on the device's thread.
 *
 * A row's digest is computed from its input, the page of the position before it, and what it sees
 * in each side group; then each group stores something derived from it:
 *
 *   input ─┬─► d ◄── last page of group 0          window: page = d, sum       sum += page
 *          │   ▲ ◄── sum of each window        ──► state:  state = state, d
 *   region ┘   └──── state                         group 0: page = d           all += page
 *
 * The row's output depends on all pages of group 0, the sums and the state. A region's rows depend
 * on the inputs of the whole region, for each group that sees regions.
 *
 * Pages and slots of a batch that failed or was stopped are filled with garbage on purpose, so that
 * using them is noticed. */
#include <assert.h>

#include "base/hash.h"
#include "engine/mock/mock_internal.h"

/* Walks one sequence's pages from the first; each call returns the page of the next position. */
struct page_walk {
    const struct page_run *run;
    uint32_t index; /* in the run */
};

static uint32_t page_walk_next(struct page_walk *walk)
{
    while (walk->index == walk->run->count) {
        walk->run++;
        walk->index = 0;
    }
    return walk->run->first + walk->index++;
}

/* The contribution of one position to the sum of those that a row sees. */
static uint64_t weighed(uint64_t digest, uint32_t position)
{
    return digest * (2 * (uint64_t)position + 1);
}

/* What the next row sees of a windowed group before itself: the sum of positions first .. next - 1,
 * a sliding window. */
struct window_view {
    const uint64_t *pages;
    struct page_walk front, back; /* at `next`, at `first` */
    uint32_t first, next;
    uint64_t sum;
};

/* A sequence's progress through the batch. */
struct seq_walk {
    struct mock_engine *m;
    const struct batch_seq *seq;
    const struct region *region; /* the next one, or that of the row */
    uint64_t region_digest;      /* of the row's region; 0: it is in none */
    struct page_walk walk;       /* group 0 */
    uint64_t last, seen;
    struct window_view views[KV_MAX_GROUPS]; /* windowed groups */
    uint64_t state;
};

static void view_begin(const struct mock_engine *m, struct window_view *v, uint32_t group,
                       const struct batch_seq *seq, uint32_t position)
{
    const struct page_view *pages = &seq->pages[group];
    uint32_t window = m->engine.info.groups[group].window;
    uint32_t first = position >= window ? position + 1 - window : 0;
    assert(pages->first <= first);
    *v = (struct window_view){m->pages[group], {pages->runs, 0}, {pages->runs, 0}, first, first, 0};
    for (uint32_t i = pages->first; i < first; i++) {
        page_walk_next(&v->front);
        page_walk_next(&v->back);
    }
    for (; v->next < position; v->next++)
        v->sum += weighed(v->pages[page_walk_next(&v->front)], v->next);
}

/* Drops the positions that the row at `next` does not see. In a region it sees all earlier rows of
 * the region, however small the window. */
static void view_slide(struct window_view *v, uint32_t window, const struct region *region)
{
    uint32_t first = v->next >= window ? v->next + 1 - window : 0;
    if (region && region->first < first)
        first = region->first;
    for (; v->first < first; v->first++)
        v->sum -= weighed(v->pages[page_walk_next(&v->back)], v->first);
}

/* A digest of the inputs of a region, starting at its first row. */
static uint64_t digest_region(const uint64_t *inputs, const struct region *region)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < region->count; i++)
        sum += weighed(hash_mix(inputs[i]), i);
    return hash_pair(sum, SALT_REGION);
}

/* Finds the row's region. */
static void enter_region(struct seq_walk *w, uint32_t position, const uint64_t *input)
{
    const struct region *end = w->seq->regions + w->seq->n_regions;
    if (w->region < end && position == w->region->first + w->region->count) {
        w->region++;
        w->region_digest = 0;
    }
    if (w->region < end && position == w->region->first)
        w->region_digest = digest_region(input, w->region);
}

/* What the row reads from a side group. */
static uint64_t read_group(struct seq_walk *w, uint32_t group, uint64_t digest)
{
    const struct kv_group *g = &w->m->engine.info.groups[group];
    bool sees_region = g->sees_regions && w->region_digest;
    if (g->kind == KV_STATE)
        return hash_pair(digest, w->state);
    view_slide(&w->views[group], g->window, sees_region ? w->region : NULL);
    digest = hash_pair(digest, w->views[group].sum);
    return sees_region ? hash_pair(digest, w->region_digest) : digest;
}

/* Writes to a side group; returns what the row sees there, including itself. */
static uint64_t write_group(struct seq_walk *w, uint32_t group, const struct batch_row *row,
                            uint64_t digest)
{
    struct mock_engine *m = w->m;
    if (group == m->state_group) {
        w->state = hash_pair(w->state, digest);
        if (row->pages[group] != PAGE_NONE)
            m->pages[group][row->pages[group]] = w->state;
        return hash_pair(w->state, SALT_STATE);
    }
    struct window_view *v = &w->views[group];
    uint32_t page = page_walk_next(&v->front);
    assert(row->pages[group] == page && v->next == row->position);
    m->pages[group][page] = hash_pair(digest, v->sum);
    v->sum += weighed(m->pages[group][page], v->next++);
    return hash_mix(v->sum);
}

/* Computes a row and returns its digest. */
static uint64_t pass_row(struct seq_walk *w, const struct batch_row *row, const uint64_t *input)
{
    struct mock_engine *m = w->m;
    const struct engine_info *info = &m->engine.info;
    uint32_t page = page_walk_next(&w->walk);
    assert(row->pages[0] == page);
    (void)page;
    if (w->seq->n_regions)
        enter_region(w, row->position, input);
    uint64_t digest = hash_pair(w->last, *input), seen = 0;
    if (w->region_digest && info->groups[0].sees_regions)
        digest = hash_pair(digest, w->region_digest);
    for (uint32_t g = 1; g < info->n_groups; g++)
        digest = read_group(w, g, digest);
    for (uint32_t g = 1; g < info->n_groups; g++)
        seen += write_group(w, g, row, digest);
    if (!m->options.no_full_layers) {
        m->pages[0][row->pages[0]] = w->last = digest;
        w->seen += weighed(digest, row->position);
    }
    return hash_mix(w->seen + seen);
}

static void begin_seq(struct seq_walk *w, uint32_t position)
{
    struct mock_engine *m = w->m;
    for (uint32_t p = 0; p < position; p++) {
        uint32_t page = page_walk_next(&w->walk);
        if (m->options.no_full_layers)
            continue;
        w->last = m->pages[0][page];
        w->seen += weighed(w->last, p);
    }
    for (uint32_t g = 1; g < m->engine.info.n_groups; g++)
        if (g != m->state_group)
            view_begin(m, &w->views[g], g, w->seq, position);
}

static void give(struct mock_engine *m, const struct batch_row *row, uint64_t digest)
{
    const struct row_output *out = row->output;
    bool has_logits = out->wants & (OUTPUT_LOGITS | OUTPUT_BEST);
    mock_give_output(&m->options, digest, row->source == ROW_TOKEN ? row->value : -1, m->scratch,
                     out);
    if (has_logits && m->options.nan_every && ++m->since_nan >= m->options.nan_every) {
        m->since_nan = 0;
        mock_give_nan(&m->options, m->scratch, out);
    }
}

/* Computes the rows of one sequence, `n` of them. */
static void compute_seq(struct mock_engine *m, const struct batch_seq *seq,
                        const struct batch_row *rows, const uint64_t *inputs, uint32_t n)
{
    struct seq_walk w = {.m = m,
                         .seq = seq,
                         .region = seq->regions,
                         .walk = {seq->pages[0].runs, 0},
                         .last = DIGEST_START};
    struct mock_slot *slot = NULL;
    uint64_t *drafts = NULL;
    begin_seq(&w, rows[0].position);
    if (m->state_group) {
        slot = &m->slots[seq->slot];
        drafts = m->drafts + (size_t)seq->slot * m->options.max_rollback;
        w.state = slot->state;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (slot && n - i <= seq->n_drafts)
            drafts[seq->n_drafts - (n - i)] = w.state;
        uint64_t digest = pass_row(&w, &rows[i], &inputs[i]);
        if (rows[i].output)
            give(m, &rows[i], digest);
    }
    if (slot)
        *slot = (struct mock_slot){w.state, m->n_batches, rows[n - 1].position + 1, seq->n_drafts};
}

static void spoil(struct mock_engine *m, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->n_rows; i++)
        for (uint32_t g = 0; g < m->engine.info.n_groups; g++)
            if (batch->rows[i].pages[g] != PAGE_NONE)
                m->pages[g][batch->rows[i].pages[g]] = device_rubbish(m);
    for (uint32_t i = 0; m->state_group && i < batch->n_seqs; i++)
        m->slots[batch->seqs[i].slot] = (struct mock_slot){.state = device_rubbish(m)};
}

static bool has_token(const struct batch *batch, int32_t token)
{
    for (uint32_t i = 0; i < batch->n_rows; i++)
        if (batch->rows[i].source == ROW_TOKEN && batch->rows[i].value == token)
            return true;
    return false;
}

/* Whether the batch must fail, and how. */
static int fail(struct mock_engine *m, const struct batch *batch, struct error *err)
{
    const struct mock_options *o = &m->options;
    if (o->lose_every && m->since_loss >= o->lose_every) {
        m->device_is_lost = true;
        return error_set(err, ERROR_DEVICE,
                         "the mock engine loses its device every %u batches, as configured",
                         o->lose_every);
    }
    if (o->fail_token >= 0 && has_token(batch, o->fail_token))
        return error_set(err, ERROR_FAILED, "the mock engine fails on token %d, as configured",
                         o->fail_token);
    if (o->fail_every && m->since_failure >= o->fail_every) {
        m->since_failure = 0;
        return error_set(err, ERROR_FAILED, "the mock engine fails every %u batches, as configured",
                         o->fail_every);
    }
    return 0;
}

int compute_batch(struct mock_engine *m, const struct batch *batch, uint64_t issued_ns,
                  struct error *err)
{
    uint64_t cost_us = (uint64_t)m->options.row_cost_us * batch->n_rows + m->options.batch_cost_us;
    m->n_batches++;
    m->since_failure++;
    m->since_loss++;
    int rc = device_spend(m, cost_us, issued_ns, batch->live)
                 ? fail(m, batch, err)
                 : error_set(err, ERROR_CANCELED, "the batch was stopped");
    if (rc) {
        spoil(m, batch);
        return rc;
    }
    for (uint32_t i = 0, n; i < batch->n_rows; i += n) {
        const struct batch_row *rows = batch->rows + i;
        for (n = 1; i + n < batch->n_rows && rows[n].seq == rows[0].seq;)
            n++;
        compute_seq(m, &batch->seqs[rows[0].seq], rows, m->inputs + i, n);
    }
    return 0;
}

void compute_copy(struct mock_engine *m, const struct state_copy *copy)
{
    uint64_t state = copy->from_place == STATE_ZERO   ? STATE_START
                     : copy->from_place == STATE_SLOT ? m->slots[copy->from].state
                                                      : m->pages[m->state_group][copy->from];
    if (copy->to_place == STATE_PAGE)
        m->pages[m->state_group][copy->to] = state;
    else
        m->slots[copy->to] = (struct mock_slot){.state = state};
}

void compute_roll_back(struct mock_engine *m, uint32_t index, uint32_t position)
{
    struct mock_slot *slot = &m->slots[index];
    uint32_t first = slot->end - slot->n_drafts;
    if (position == slot->end)
        return;
    assert(slot->batch == m->n_batches && position >= first && position < slot->end);
    slot->state = m->drafts[(size_t)index * m->options.max_rollback + (position - first)];
    slot->n_drafts = position - first;
    slot->end = position;
}
