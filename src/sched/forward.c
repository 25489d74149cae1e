/* A step's batch goes to the engine, and what comes back goes to the sequences: KV into the tree,
 * tokens into the events. Owned by the scheduler's thread.
 * What a newcomer gets wrong: after scheduler_finish neither the sequence nor its request may be
 * looked at again; the request's maker may have freed it already. */
#include "sched/state.h"

#include <assert.h>
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "sched/event_ring.h"

static bool is_canceled(const struct sequence *seq)
{
    return atomic_load(&seq->request->canceled);
}

/* The last row of its tokens, and so of the step for it, gives the next token. */
static bool wants_token(const struct sequence *seq)
{
    return seq->n_computed + seq->n_rows == seq->n_tokens && seq->request->max_tokens > 0;
}

/* Rows of the step for it, the first ones, that give the log probability of the prompt token behind
 * them. */
static uint32_t n_scores(const struct sequence *seq)
{
    if (!sequence_is_scoring(seq))
        return 0;
    uint32_t left = seq->request->n_tokens - 1 - seq->n_computed;
    return seq->n_rows < left ? seq->n_rows : left;
}

static struct batch make_batch(struct scheduler *s, struct sequence *const *seqs, uint32_t n,
                               struct step_work *work)
{
    uint32_t n_outputs = 0;
    *work = (struct step_work){0, 0};
    for (uint32_t i = 0; i < n; i++) {
        struct sequence *seq = seqs[i];
        uint32_t end = seq->n_computed + seq->n_rows, scored_end = seq->n_computed + n_scores(seq);
        sequence_set_runs(seq, end);
        s->batch_seqs[i] = (struct batch_seq){.pages = {{seq->runs, seq->n_runs, 0}},
                                              .length = end};
        if (s->cache.window) {
            const struct seq_window *w = &seq->window;
            seq_window_set_runs(seq, &s->cache, end);
            s->batch_seqs[i].pages[1] = (struct page_view){w->runs + w->first_run,
                                                           w->end_run - w->first_run, w->from};
        }
        for (uint32_t p = seq->n_computed; p < end; p++) {
            struct batch_row *row = &s->rows[work->rows++];
            *row = (struct batch_row){.value = (int32_t)seq->tokens[p],
                                      .seq = i,
                                      .position = p,
                                      .rope = {p, p, p, p},
                                      .pages = {seq->pages[p]}};
            if (s->cache.window)
                row->pages[1] = seq->window.pages[p];
            if (p < scored_end || (p + 1 == end && wants_token(seq)))
                row->output = &s->outputs[n_outputs++];
            work->positions += p;
        }
    }
    return (struct batch){.seqs = s->batch_seqs,
                          .rows = s->rows,
                          .n_seqs = n,
                          .n_rows = work->rows,
                          .live = &s->live,
                          .page_end = {s->cache.pool.end, s->cache.window_pool.end}};
}

/* From here until lower_flags a cancel also lowers the live count. A cancel that was on its way
 * may lower it late, in the next batch; that batch then stops early and is computed again. */
static void raise_flags(struct scheduler *s, struct sequence *const *seqs, uint32_t n)
{
    atomic_store(&s->live, (int)n);
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = seqs[i]->request;
        atomic_store(&r->in_batch, true);
        if (atomic_load(&r->canceled) && atomic_exchange(&r->in_batch, false))
            atomic_fetch_sub(&s->live, 1);
    }
    if (atomic_load(&s->is_stopping))
        atomic_store(&s->live, 0);
}

static void lower_flags(struct sequence *const *seqs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        atomic_store(&seqs[i]->request->in_batch, false);
}

static int compute(struct scheduler *s, struct sequence *const *seqs, uint32_t n, struct error *err)
{
    struct step_work work;
    struct batch batch = make_batch(s, seqs, n, &work);
    raise_flags(s, seqs, n);
    uint64_t start_ns = clock_now_ns();
    int rc = engine_forward(s->engine, &batch, err);
    uint64_t took_ns = clock_now_ns() - start_ns;
    lower_flags(seqs, n);
    if (rc)
        return rc; /* the pages count as unwritten: n_computed stays where it is */
    s->stats.rows += work.rows;
    step_cost_learn(&s->cost, &work, (double)took_ns);
    return 0;
}

/* Adds a sampled token to the sequence and its text; says why the answer ends, if it does. */
static enum finish_reason add_token(struct scheduler *s, struct sequence *seq, int32_t token)
{
    const struct token_table *table = &s->options.tokens;
    struct request *r = seq->request;
    seq->generated[seq->n_tokens - r->n_tokens] = token;
    seq->tokens[seq->n_tokens] = sequence_token(seq, seq->n_tokens, token);
    seq->n_tokens++;
    s->stats.generated_tokens++;
    enum filter_verdict verdict = r->filter ? r->filter->ops->accept(r->filter, token)
                                            : FILTER_GO_ON;
    bool is_over = verdict == FILTER_END;
    enum finish_reason complete = seq->is_hurried ? FINISH_LENGTH : FINISH_STOP;
    if ((uint32_t)token < table->n_tokens) {
        if (table->is_end[token] && (is_over || !r->ignore_end))
            return complete; /* an end token is no text */
        if (verdict == FILTER_WROTE)
            stop_matcher_pass(&seq->stops, table->lengths[token]);
        else if (stop_matcher_feed(&seq->stops, table->bytes[token], table->lengths[token]))
            return FINISH_STOP;
    }
    if (is_over)
        return complete;
    return seq->n_tokens == seq->capacity ? FINISH_LENGTH : FINISH_NONE;
}

/* Whether the likeliest token that the filter would allow is left out to end in time. */
static bool is_hurried(struct token_filter *f, const uint64_t *mask, const float *logits,
                       uint32_t n_tokens)
{
    const uint64_t *wide = f->ops->unhurried ? f->ops->unhurried(f) : NULL;
    uint32_t best = 0;
    float most = -INFINITY;
    for (uint32_t i = 0; wide && i < n_tokens; i++) {
        if ((wide[i / 64] >> (i % 64) & 1) && logits[i] > most) {
            most = logits[i];
            best = i;
        }
    }
    return wide && !(mask[best / 64] >> (best % 64) & 1);
}

/* The next token, or as sampler_pick has it. The filter is asked for its mask here, and told of the
 * token when it is taken: a sequence that starts over asks again. */
static int32_t pick(struct scheduler *s, struct sequence *seq, const float *logits)
{
    const struct request *r = seq->request;
    uint32_t n_generated = seq->n_tokens - r->n_tokens;
    bool bans_ends = n_generated < r->min_tokens || (r->filter && r->ignore_end);
    struct sampler_input in = {.sampling = &r->sampling,
                               .generated = seq->generated,
                               .n_generated = n_generated,
                               .context = seq->tokens,
                               .n_context = seq->n_tokens,
                               .n_tokens = s->options.tokens.n_tokens,
                               .dry_breakers = r->dry_breakers,
                               .biases = r->biases,
                               .n_biases = r->n_biases,
                               .banned = s->ends,
                               .n_banned = bans_ends ? s->n_ends : 0};
    if (r->filter) {
        in.mask = r->filter->ops->mask(r->filter, seq->capacity - seq->n_tokens);
        seq->is_hurried |= in.mask && is_hurried(r->filter, in.mask, logits, in.n_tokens);
    }
    int32_t token = sampler_pick(s->sampler, logits, &in);
    if (token != SAMPLER_NO_TOKEN || in.n_banned == 0)
        return token;
    in.n_banned = 0; /* nothing is left but to end */
    return sampler_pick(s->sampler, logits, &in);
}

/* Picks the next token; false when there is none, and then the sequence runs no more. */
static bool choose(struct scheduler *s, struct sequence *seq, const float *logits, int32_t *token)
{
    *token = pick(s, seq, logits);
    if (*token == SAMPLER_NO_NUMBER) {
        scheduler_doubt(s, seq);
    } else if (*token == SAMPLER_NO_TOKEN) {
        error_set(&seq->request->error, ERROR_INPUT,
                  "no token may follow after %u: the answer's format and logit_bias together rule "
                  "out all of them",
                  seq->n_tokens - seq->request->n_tokens);
        scheduler_finish(s, seq, FINISH_ERROR);
    }
    return *token >= 0;
}

/* Ends the sequence if the token does. */
static void take_token(struct scheduler *s, struct sequence *seq, int32_t token,
                       const float *logits)
{
    struct request *r = seq->request;
    if (seq->n_tokens == r->n_tokens)
        r->first_token_ns = clock_now_ns();
    enum finish_reason reason = add_token(s, seq, token);
    struct sched_event event = {
        .type = EVENT_TOKEN, .token = token, .text_end = seq->stops.text_end};
    if (r->logprobs_ring) {
        struct token_logprobs *entry = event_ring_logprobs(r);
        sampler_logprobs(s->sampler, logits, token, r->n_top_logprobs, entry);
        event.logprobs = entry;
    }
    event_ring_push(r, &event);
    s->has_events = true;
    if (reason != FINISH_NONE)
        scheduler_finish(s, seq, reason);
}

/* Those who came with the same prompt go on from its end, each with a choice of its own. */
static void fork_choices(struct scheduler *s, struct sequence *leader, const float *logits)
{
    for (struct sequence *seq = s->waiting.head, *next; seq; seq = next) {
        next = seq->next;
        int32_t token;
        if (seq->request->leader == leader->request && scheduler_fork(s, leader, seq) &&
            choose(s, seq, logits, &token))
            take_token(s, seq, token, logits);
    }
}

/* More of what it had at the start is computed, or all of it. */
static void take_prefill(struct scheduler *s, struct sequence *seq, const float *logits)
{
    struct request *r = seq->request;
    uint32_t n_prompt = seq->n_computed < r->n_tokens ? seq->n_computed : r->n_tokens;
    atomic_store_explicit(&r->prompt_done, n_prompt, memory_order_relaxed);
    sequence_insert(seq, &s->cache, s->now_ns);
    flight_advance(&s->waiting, seq);
    if (seq->n_computed < seq->prefill_end)
        return;
    if (r->keeps_prompt && s->cache.window && seq->node != NODE_NONE &&
        seq->n_tokens == r->n_tokens)
        prefix_tree_keep_end(s->cache.tree, seq->node);
    if (r->pin_ns && !r->is_pinned && seq->node != NODE_NONE)
        r->is_pinned = scheduler_pin(s, seq->node, r->pin_ns);
    if (logits && seq->n_tokens == r->n_tokens)
        fork_choices(s, seq, logits);
    flight_end(&s->waiting, seq, false);
}

/* Fills in the log probabilities of the prompt tokens behind its first `n` rows; false when a row
 * has no numbers. */
static bool score_prompt(struct scheduler *s, const struct sequence *seq, const float *logits,
                         uint32_t n)
{
    const struct request *r = seq->request;
    for (uint32_t i = 0; i < n; i++, logits += s->engine->info.n_vocab) {
        uint32_t at = seq->n_computed + i + 1;
        if (!sampler_logprobs(s->sampler, logits, r->tokens[at], r->n_top_logprobs,
                              &r->prompt_logprobs[at]))
            return false;
    }
    return true;
}

/* The sequence's rows are computed. `logits` are of those that asked for them: rows that score the
 * prompt, and behind them the last one if it gives a token. */
static void take_result(struct scheduler *s, struct sequence *seq, const float *logits)
{
    struct request *r = seq->request;
    uint32_t n = n_scores(seq);
    bool has_token = wants_token(seq);
    int32_t token = -1;
    if (!score_prompt(s, seq, logits, n)) {
        scheduler_doubt(s, seq);
        return;
    }
    logits += (size_t)n * s->engine->info.n_vocab;
    if (has_token && !choose(s, seq, logits, &token))
        return;
    if (seq->n_suspect && seq->n_computed + seq->n_rows == seq->n_tokens)
        scheduler_condemn(s, seq);
    seq->n_computed += seq->n_rows;
    seq->n_rows = 0;
    if (sequence_is_scoring(seq) && seq->n_scored <= seq->n_computed)
        seq->n_scored = seq->n_computed < r->n_tokens ? seq->n_computed + 1 : r->n_tokens;
    if (seq->n_computed <= seq->prefill_end)
        take_prefill(s, seq, has_token ? logits : NULL);
    if (has_token)
        take_token(s, seq, token, logits);
    else if (seq->n_computed == seq->n_tokens)
        scheduler_finish(s, seq, FINISH_LENGTH); /* nothing was to be generated */
}

static void take_results(struct scheduler *s, struct sequence *const *seqs, uint32_t n)
{
    const float *logits = s->logits;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_logits = n_scores(seqs[i]) + wants_token(seqs[i]);
        take_result(s, seqs[i], logits);
        logits += (size_t)n_logits * s->engine->info.n_vocab;
    }
}

/* After a failed batch: each alone, once, so that only the one that fails is hurt. */
static void retry_alone(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_planned; i++) {
        struct sequence *seq = s->planned[i];
        struct error err;
        if (is_canceled(seq))
            continue;
        if (compute(s, &seq, 1, &err) == 0) {
            take_results(s, &seq, 1);
        } else if (err.code != ERROR_CANCELED && !is_canceled(seq)) {
            log_warn("a request of %u tokens failed: %s", seq->n_tokens, err.message);
            seq->request->error = err;
            scheduler_finish(s, seq, FINISH_ERROR);
        }
    }
}

static bool any_canceled(const struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_planned; i++)
        if (is_canceled(s->planned[i]))
            return true;
    return atomic_load(&s->is_stopping);
}

void scheduler_forward(struct scheduler *s)
{
    struct error err;
    s->stats.steps++;
    if (compute(s, s->planned, s->n_planned, &err) == 0) {
        take_results(s, s->planned, s->n_planned);
    } else if (err.code != ERROR_CANCELED || !any_canceled(s)) {
        log_debug("a batch of %u failed: %s", s->n_planned, err.message);
        retry_alone(s);
    }
}
