/* Sends a step's batch to the engine and hands out the results: KV into the tree, tokens into the
 * events. Owned by the scheduler's thread. Careful: after scheduler_finish, do not touch the
 * sequence or its request; the request's owner may already have freed it. */
#include "sched/state.h"

#include <assert.h>
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "sched/event_ring.h"

enum { MAX_LOSSES = 3 }; /* device losses before all waiting requests are failed */

static bool is_canceled(const struct sequence *seq)
{
    return atomic_load(&seq->request->canceled);
}

/* Whether the step computes the sequence's last token, whose row gives the next one. */
static bool wants_token(const struct sequence *seq)
{
    return seq->n_computed + seq->n_rows == seq->n_tokens && seq->request->max_tokens > 0;
}

/* Whether the row gives the log probability of the next prompt token. Only text has one. */
static bool is_scored(const struct sequence *seq, uint32_t position)
{
    const struct request *r = seq->request;
    return sequence_is_scoring(seq) && position + 1 < r->n_tokens &&
           cache_token_is_text(r->tokens[position + 1]);
}

/* How many of its rows in this step give logits. */
static uint32_t n_outputs(const struct sequence *seq)
{
    uint32_t n = wants_token(seq), end = seq->n_computed + seq->n_rows;
    for (uint32_t p = seq->n_computed; sequence_is_scoring(seq) && p < end; p++)
        n += is_scored(seq, p);
    return n;
}

/* The input of a row, and where its KV goes. */
static struct batch_row make_row(const struct scheduler *s, const struct sequence *seq,
                                 uint32_t index, uint32_t position)
{
    uint64_t token = seq->tokens[position];
    struct batch_row row = {.source = ROW_TOKEN,
                            .value = cache_token_payload(token),
                            .seq = index,
                            .position = position,
                            .pages = {seq->pages[position]}};
    regions_rope(&seq->regions, position, row.rope);
    for (uint32_t i = 0; i < s->cache.n_sides; i++)
        row.pages[1 + i] = seq->sides[i].pages[position];
    switch (cache_token_kind(token)) {
    case CACHE_TOKEN_TEXT: break;
    case CACHE_TOKEN_COORDINATE: row.source = ROW_COORDINATE; break;
    case CACHE_TOKEN_SIZE: row.source = ROW_SIZE; break;
    case CACHE_TOKEN_IMAGE:
        row.source = ROW_IMAGE;
        row.value = (int32_t)cache_token_image_begun(token) - 1;
        row.image = seq->regions.images[regions_find(&seq->regions, position)].handle;
        break;
    }
    return row;
}

static struct batch_seq make_seq(struct scheduler *s, struct sequence *seq, uint32_t end)
{
    const struct regions *r = &seq->regions;
    uint32_t first = regions_find(r, seq->n_computed), after = regions_find(r, end);
    sequence_set_runs(seq, end);
    struct batch_seq out = {.pages = {{seq->runs, seq->n_runs, 0}},
                            .length = end,
                            .slot = seq->slot,
                            .adapter = seq->request->adapter,
                            .regions = r->n ? r->spans + first : NULL,
                            .n_regions = after - first};
    for (uint32_t i = 0; i < s->cache.n_sides; i++) {
        const struct seq_side *x = &seq->sides[i];
        if (!side_is_window(&s->cache, i))
            continue;
        seq_window_set_runs(seq, &s->cache, i, end);
        out.pages[1 + i] = (struct page_view){x->runs + x->first_run, x->end_run - x->first_run,
                                              x->from};
    }
    return out;
}

static struct batch make_batch(struct scheduler *s, struct sequence *const *seqs, uint32_t n,
                               struct step_work *work)
{
    const uint32_t n_vocab = s->engine->info.n_vocab;
    uint32_t n_out = 0;
    *work = (struct step_work){0, 0};
    for (uint32_t i = 0; i < n; i++) {
        struct sequence *seq = seqs[i];
        uint32_t end = seq->n_computed + seq->n_rows;
        s->batch_seqs[i] = make_seq(s, seq, end);
        for (uint32_t p = seq->n_computed; p < end; p++) {
            struct batch_row *row = &s->rows[work->rows++];
            *row = make_row(s, seq, i, p);
            work->positions += p;
            if (!is_scored(seq, p) && !(p + 1 == end && wants_token(seq)))
                continue;
            s->outputs[n_out] = (struct row_output){.wants = OUTPUT_LOGITS,
                                                    .logits = s->logits + (size_t)n_out * n_vocab};
            row->output = &s->outputs[n_out++];
        }
    }
    assert(n_out <= s->options.max_seqs);
    struct batch batch = {.seqs = s->batch_seqs,
                          .rows = s->rows,
                          .n_seqs = n,
                          .n_rows = work->rows,
                          .live = &s->live,
                          .page_end = {s->cache.pool.end}};
    for (uint32_t i = 0; i < s->cache.n_sides; i++)
        batch.page_end[1 + i] = s->cache.sides[i].pool.end;
    return batch;
}

/* From here until lower_flags, a cancel also lowers the live count. A late cancel may lower it
 * during the next batch; that batch then stops early and is computed again. */
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

/* A batch is in flight from submit to wait, and never outlives a step. */
static int submit(struct scheduler *s, struct sequence *const *seqs, uint32_t n, struct error *err)
{
    s->batch = make_batch(s, seqs, n, &s->work);
    raise_flags(s, seqs, n);
    s->submitted_ns = clock_now_ns();
    if (engine_submit(s->engine, &s->batch, err) == 0)
        return 0;
    lower_flags(seqs, n);
    return -1;
}

/* Time between submit and wait counts as the engine's only if the engine computes by itself. */
static int wait_for(struct scheduler *s, struct sequence *const *seqs, uint32_t n,
                    struct error *err)
{
    uint64_t start_ns = s->engine->info.is_async ? s->submitted_ns : clock_now_ns();
    int rc = engine_wait(s->engine, err);
    uint64_t took_ns = clock_now_ns() - start_ns;
    lower_flags(seqs, n);
    if (rc)
        return rc; /* the pages count as unwritten: n_computed does not change */
    s->stats.rows += s->work.rows;
    shares_charge(&s->shares, seqs, n);
    step_cost_learn(&s->cost, &s->work, (double)took_ns);
    return 0;
}

static bool is_stop_token(const struct request *r, int32_t token, uint32_t n_generated)
{
    for (uint32_t i = 0; i < r->n_stop_tokens && n_generated >= r->min_tokens; i++)
        if (r->stop_tokens[i] == token)
            return true;
    return false;
}

/* Whether the text ends a line after the answer's time limit. */
static bool is_late(const struct request *r, const char *bytes, uint32_t len)
{
    return r->line_limit_ns && memchr(bytes, '\n', len) &&
           clock_now_ns() - r->first_token_ns > r->line_limit_ns;
}

/* Adds a sampled token to the sequence and its text. Returns why the answer ends, or FINISH_NONE.
 */
static enum finish_reason add_token(struct scheduler *s, struct sequence *seq, int32_t token)
{
    const struct token_table *table = &s->options.tokens;
    struct request *r = seq->request;
    seq->generated[seq->n_tokens - r->n_tokens] = token;
    seq->tokens[seq->n_tokens] = sequence_token(seq, seq->n_tokens, cache_token_text(token));
    seq->n_tokens++;
    s->stats.generated_tokens++;
    enum filter_verdict verdict = r->filter ? r->filter->ops->accept(r->filter, token)
                                            : FILTER_GO_ON;
    bool is_over = verdict == FILTER_END;
    seq->has_mask = false;
    enum finish_reason complete = seq->is_hurried ? FINISH_LENGTH : FINISH_STOP;
    if (is_stop_token(r, token, seq->n_tokens - r->n_tokens))
        return FINISH_STOP;
    if ((uint32_t)token < table->n_tokens) {
        uint32_t len = table->lengths[token], kept = len;
        if (table->is_end[token] && (is_over || !r->ignore_end))
            return complete; /* an end token is not text */
        if (r->min_indent)
            kept = line_rule_feed(&seq->lines, r->min_indent, table->bytes[token], len);
        if (verdict == FILTER_WROTE)
            stop_matcher_pass(&seq->stops, kept);
        else if (stop_matcher_feed(&seq->stops, table->bytes[token], kept))
            return FINISH_STOP;
        if (kept < len || is_late(r, table->bytes[token], len))
            return FINISH_LENGTH;
    }
    if (is_over)
        return complete;
    return seq->n_tokens == seq->capacity ? FINISH_LENGTH : FINISH_NONE;
}

/* Whether the filter excluded the most likely token that it would otherwise allow, in order to end
 * in time. */
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

/* The next token, or a negative result of sampler_pick. */
static int32_t pick(struct scheduler *s, struct sequence *seq, const float *logits)
{
    const struct request *r = seq->request;
    uint32_t n_generated = seq->n_tokens - r->n_tokens;
    bool bans_ends = n_generated < r->min_tokens || (r->filter && r->ignore_end);
    bool may_end = s->n_ends && !bans_ends && !r->ignore_end && !r->filter;
    struct sampler_input in = {.sampling = &r->sampling,
                               .generated = seq->generated,
                               .n_generated = n_generated,
                               .context = seq->tokens,
                               .n_context = seq->n_tokens,
                               .n_tokens = s->options.tokens.n_tokens,
                               .dry_breakers = r->dry_breakers,
                               .biases = r->biases,
                               .n_biases = r->n_biases,
                               .bytes = s->options.tokens.bytes,
                               .lengths = s->options.tokens.lengths,
                               .is_end = s->options.tokens.is_end,
                               .end = may_end ? s->ends[0] : -1,
                               .banned = s->ends,
                               .n_banned = bans_ends ? s->n_ends : 0};
    if (r->filter) {
        in.mask = seq->mask;
        seq->is_hurried |= in.mask && is_hurried(r->filter, in.mask, logits, in.n_tokens);
    }
    int32_t token = sampler_pick(s->sampler, logits, &in);
    if (token != SAMPLER_NO_TOKEN || in.n_banned == 0)
        return token;
    in.n_banned = 0; /* only an end is possible */
    return sampler_pick(s->sampler, logits, &in);
}

/* A picked token, with its log probabilities if the request asks for them. They are taken right
 * after the pick, because the sampler knows only the last distribution that it drew from. */
struct picked {
    int32_t token;
    struct token_logprobs logprobs;
};

/* Picks the next token; if there is none, returns false, and the sequence no longer runs. */
static bool choose(struct scheduler *s, struct sequence *seq, const float *logits,
                   struct picked *out)
{
    const struct request *r = seq->request;
    out->token = pick(s, seq, logits);
    if (out->token == SAMPLER_NO_NUMBER) {
        scheduler_doubt(s, seq);
    } else if (out->token == SAMPLER_NO_TOKEN) {
        error_set(&seq->request->error, ERROR_INPUT,
                  "no token may follow after %u: the answer's format and logit_bias together rule "
                  "out all of them",
                  seq->n_tokens - seq->request->n_tokens);
        scheduler_finish(s, seq, FINISH_ERROR);
    } else if (r->logprobs_ring && r->wants_drawn_logprobs) {
        sampler_drawn_logprobs(s->sampler, out->token, r->n_top_logprobs, &out->logprobs);
    } else if (r->logprobs_ring) {
        sampler_logprobs(s->sampler, logits, out->token, r->n_top_logprobs, &out->logprobs);
    }
    return out->token >= 0;
}

/* Ends the sequence if the token does. */
static void take_token(struct scheduler *s, struct sequence *seq, const struct picked *picked)
{
    struct request *r = seq->request;
    if (seq->n_tokens == r->n_tokens)
        r->first_token_ns = clock_now_ns();
    enum finish_reason reason = add_token(s, seq, picked->token);
    struct sched_event event = {
        .type = EVENT_TOKEN, .token = picked->token, .text_end = seq->stops.text_end};
    if (r->logprobs_ring) {
        struct token_logprobs *entry = event_ring_logprobs(r);
        *entry = picked->logprobs;
        event.logprobs = entry;
    }
    event_ring_push(r, &event);
    s->has_events = true;
    if (reason != FINISH_NONE)
        scheduler_finish(s, seq, reason);
}

/* Sequences with the same prompt continue from its end, each with its own choice. Once a mask takes
 * long, the others come by themselves: they compute the last token of the prompt again. */
static void fork_choices(struct scheduler *s, struct sequence *leader, const float *logits)
{
    for (struct sequence *seq = s->waiting.head, *next; seq; seq = next) {
        next = seq->next;
        struct picked picked;
        if (seq->request->leader != leader->request)
            continue;
        if (!mask_make_now(s, seq))
            return;
        if (scheduler_fork(s, leader, seq) && choose(s, seq, logits, &picked))
            take_token(s, seq, &picked);
    }
}

/* A part of the prompt, or its end, has been computed. */
static void take_prefill(struct scheduler *s, struct sequence *seq, const float *logits)
{
    struct request *r = seq->request;
    uint32_t n_prompt = seq->n_computed < r->n_tokens ? seq->n_computed : r->n_tokens;
    atomic_store_explicit(&r->prompt_done, n_prompt, memory_order_relaxed);
    if (r->wants_progress && seq->n_tokens == r->n_tokens &&
        event_ring_free(r) > REQUEST_RING / 2) {
        event_ring_push(r, &(struct sched_event){.type = EVENT_PROGRESS, .prompt_done = n_prompt});
        s->has_events = true;
    }
    sequence_insert(seq, &s->cache, s->now_ns);
    flight_advance(&s->waiting, seq);
    if (seq->n_computed < seq->prefill_end)
        return;
    if (r->keeps_prompt && s->cache.n_sides && seq->node != NODE_NONE &&
        seq->n_tokens == r->n_tokens)
        prefix_tree_keep_end(s->cache.tree, seq->node);
    if (r->pin_ns && !r->is_pinned && seq->node != NODE_NONE)
        r->is_pinned = scheduler_pin(s, seq->node, r->pin_ns);
    if (logits && seq->n_tokens == r->n_tokens)
        fork_choices(s, seq, logits);
    flight_end(&s->waiting, seq, false);
}

/* Fills in the log probabilities of the prompt tokens that follow its rows; false if a row has no
 * numbers. Advances `*logits` past the rows it used. */
static bool score_prompt(struct scheduler *s, const struct sequence *seq, const float **logits)
{
    const struct request *r = seq->request;
    uint32_t end = seq->n_computed + seq->n_rows;
    end = end < r->n_tokens - 1 ? end : r->n_tokens - 1;
    for (uint32_t p = seq->n_computed; sequence_is_scoring(seq) && p < end; p++) {
        if (!is_scored(seq, p)) {
            r->prompt_logprobs[p + 1] = (struct token_logprobs){.logprob = NAN};
            continue;
        }
        if (!sampler_logprobs(s->sampler, *logits, cache_token_payload(r->tokens[p + 1]),
                              r->n_top_logprobs, &r->prompt_logprobs[p + 1]))
            return false;
        *logits += s->engine->info.n_vocab;
    }
    return true;
}

/* The sequence's rows are computed. `logits` has the rows that asked for them: those that score the
 * prompt, then the last one if it gives a token. */
static void take_result(struct scheduler *s, struct sequence *seq, const float *logits)
{
    struct request *r = seq->request;
    bool has_token = wants_token(seq);
    struct picked picked;
    if (!score_prompt(s, seq, &logits)) {
        scheduler_doubt(s, seq);
        return;
    }
    if (has_token && mask_is_missing(seq)) { /* the last row is computed again once it is there */
        has_token = false;
        if (--seq->n_rows == 0)
            return;
    }
    if (has_token && !choose(s, seq, logits, &picked))
        return;
    if (seq->n_suspect && seq->n_computed + seq->n_rows == seq->n_tokens)
        scheduler_condemn(s, seq);
    seq->n_computed += seq->n_rows;
    seq->n_rows = 0;
    if (seq->alone_until <= seq->n_computed)
        seq->alone_until = 0;
    scheduler_free_images(s, seq, seq->n_computed);
    if (sequence_is_scoring(seq) && seq->n_scored <= seq->n_computed)
        seq->n_scored = seq->n_computed < r->n_tokens ? seq->n_computed + 1 : r->n_tokens;
    if (seq->n_computed <= seq->prefill_end)
        take_prefill(s, seq, has_token ? logits : NULL);
    if (has_token)
        take_token(s, seq, &picked);
    else if (seq->n_computed == seq->n_tokens)
        scheduler_finish(s, seq, FINISH_LENGTH); /* nothing to generate */
}

static void take_results(struct scheduler *s, struct sequence *const *seqs, uint32_t n)
{
    const float *logits = s->logits;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_logits = n_outputs(seqs[i]);
        take_result(s, seqs[i], logits);
        logits += (size_t)n_logits * s->engine->info.n_vocab;
    }
}

static void fail_alone(struct scheduler *s, struct sequence *seq, const struct error *err)
{
    if (err->code == ERROR_CANCELED || is_canceled(seq))
        return;
    log_warn("a request of %u tokens failed: %s", seq->n_tokens, err->message);
    seq->request->error = *err;
    scheduler_finish(s, seq, FINISH_ERROR);
}

/* The device was lost during a batch of these sequences. Each is suspected once. A sequence that
 * then loses the device alone is ended, so that one request cannot take it from the others again
 * and again. */
static void lose_device(struct scheduler *s, struct sequence *const *seqs, uint32_t n,
                        const struct error *err)
{
    s->is_lost = true;
    for (uint32_t i = 0; i < n; i++) {
        struct sequence *seq = seqs[i];
        seq->has_state = false;
        if (!sequence_suspect(seq, seq->n_computed + seq->n_rows))
            fail_alone(s, seq, err);
    }
    scheduler_recover(s, err);
}

/* After a failed batch, retries each sequence alone, once, so that only the one that fails is
 * affected. */
static void retry_alone(struct scheduler *s, const struct error *why)
{
    log_debug("a batch of %u failed: %s", s->n_planned, why->message);
    for (uint32_t i = 0; i < s->n_planned; i++) {
        struct sequence *seq = s->planned[i];
        struct error err;
        if (is_canceled(seq))
            continue;
        if (submit(s, &seq, 1, &err) == 0 && wait_for(s, &seq, 1, &err) == 0) {
            take_results(s, &seq, 1);
        } else if (err.code == ERROR_DEVICE) {
            lose_device(s, &seq, 1, &err); /* nobody runs any more */
            return;
        } else {
            fail_alone(s, seq, &err);
        }
    }
}

/* If layers keep a state, a batch that failed or was stopped leaves it undefined, so every sequence
 * starts over from what the tree has. After a failure, each is then computed alone, up to where it
 * was. */
static void restart_all(struct scheduler *s, const struct error *err)
{
    for (uint32_t i = 0; i < s->n_planned; i++) {
        struct sequence *seq = s->planned[i];
        bool was_stopped = err->code == ERROR_CANCELED;
        seq->has_state = false;
        if (is_canceled(seq))
            continue; /* the next step ends it */
        if (was_stopped || sequence_suspect(seq, seq->n_computed + seq->n_rows))
            scheduler_restart(s, seq);
        else
            fail_alone(s, seq, err);
    }
}

static void fail_all(struct scheduler *s, const struct error *err)
{
    for (struct sequence *seq = s->waiting.head, *next; seq; seq = next) {
        next = seq->next;
        seq->request->error = *err;
        scheduler_finish(s, seq, FINISH_ERROR);
    }
}

void scheduler_recover(struct scheduler *s, const struct error *err)
{
    struct error reason = *err;
    log_warn("the device was lost: %s; the cache is empty, and the engine opens again",
             err->message);
    s->is_lost = true;
    s->stats.n_lost++;
    while (s->n_running > 0) {
        struct sequence *seq = s->running[s->n_running - 1];
        seq->n_computed = seq->n_inserted;
        seq->has_state = false;
        scheduler_restart(s, seq);
    }
    prefix_tree_invalidate(s->cache.tree, NULL);
    s->is_lost = engine_reopen(s->engine, &reason) != 0;
    if (s->is_lost || ++s->n_losses > MAX_LOSSES)
        fail_all(s, &reason);
}

static bool any_canceled(const struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_planned; i++)
        if (is_canceled(s->planned[i]))
            return true;
    return atomic_load(&s->is_stopping);
}

void scheduler_submit_batch(struct scheduler *s)
{
    s->stats.steps++;
    s->is_flying = submit(s, s->planned, s->n_planned, &s->batch_error) == 0;
}

void scheduler_take_batch(struct scheduler *s)
{
    struct error *err = &s->batch_error;
    bool is_computed = s->is_flying && wait_for(s, s->planned, s->n_planned, err) == 0;
    s->is_flying = false;
    if (is_computed)
        take_results(s, s->planned, s->n_planned);
    else if (err->code == ERROR_DEVICE)
        lose_device(s, s->planned, s->n_planned, err);
    else if (s->free_slots)
        restart_all(s, err);
    else if (err->code != ERROR_CANCELED || !any_canceled(s))
        retry_alone(s, err);
}
