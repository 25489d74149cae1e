/* A step's batch goes to the engine, and what comes back goes to the sequences: KV into the tree,
 * tokens into the events. Owned by the scheduler's thread.
 * What a newcomer gets wrong: after scheduler_finish neither the sequence nor its request may be
 * looked at again; the request's maker may have freed it already. */
#include "sched/state.h"

#include <assert.h>

#include "base/clock.h"
#include "base/log.h"
#include "sched/event_ring.h"

static bool is_canceled(const struct sequence *seq)
{
    return atomic_load(&seq->request->canceled);
}

/* The last row of its tokens, and so of the step for it, gives the next token. */
static bool wants_logits(const struct sequence *seq)
{
    return seq->n_computed + seq->n_rows == seq->n_tokens && seq->request->max_tokens > 0;
}

static struct batch make_batch(struct scheduler *s, struct sequence *const *seqs, uint32_t n,
                               struct step_work *work)
{
    *work = (struct step_work){0, 0};
    for (uint32_t i = 0; i < n; i++) {
        struct sequence *seq = seqs[i];
        uint32_t end = seq->n_computed + seq->n_rows;
        sequence_set_runs(seq, end);
        s->batch_seqs[i] = (struct batch_seq){seq->runs, seq->n_runs, end};
        for (uint32_t p = seq->n_computed; p < end; p++) {
            s->rows[work->rows++] = (struct batch_row){
                .token = (int32_t)seq->tokens[p], .position = p, .page = seq->pages[p], .seq = i};
            work->positions += p;
        }
        if (wants_logits(seq))
            s->rows[work->rows - 1].output = OUTPUT_LOGITS;
    }
    return (struct batch){s->batch_seqs, s->rows,          n, work->rows, s->logits,
                          &s->live,      s->cache.pool.end};
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
    if ((uint32_t)token < table->n_tokens) {
        if (table->is_end[token] && !r->ignore_end)
            return FINISH_STOP; /* an end token is no text */
        if (stop_matcher_feed(&seq->stops, table->bytes[token], table->lengths[token]))
            return FINISH_STOP;
    }
    return seq->n_tokens == seq->capacity ? FINISH_LENGTH : FINISH_NONE;
}

/* The next token, or -1 when the logits are no numbers. */
static int32_t pick(struct scheduler *s, const struct sequence *seq, const float *logits)
{
    const struct request *r = seq->request;
    return sampler_pick(s->sampler, logits, &r->sampling, seq->generated,
                        seq->n_tokens - r->n_tokens);
}

/* Ends the sequence if the token does. */
static void take_token(struct scheduler *s, struct sequence *seq, int32_t token)
{
    struct request *r = seq->request;
    if (seq->n_tokens == r->n_tokens)
        r->first_token_ns = clock_now_ns();
    enum finish_reason reason = add_token(s, seq, token);
    event_ring_push(r, &(struct sched_event){
                           .type = EVENT_TOKEN, .token = token, .text_end = seq->stops.text_end});
    s->has_events = true;
    if (reason != FINISH_NONE)
        scheduler_finish(s, seq, reason);
}

/* Those who came with the same prompt go on from its end, each with a choice of its own. */
static void fork_choices(struct scheduler *s, struct sequence *leader, const float *logits)
{
    for (struct sequence *seq = s->waiting.head, *next; seq; seq = next) {
        next = seq->next;
        if (seq->request->leader == leader->request && scheduler_fork(s, leader, seq))
            take_token(s, seq, pick(s, seq, logits));
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
    if (r->pin_ns && !r->is_pinned && seq->node != NODE_NONE)
        r->is_pinned = scheduler_pin(s, seq->node, r->pin_ns);
    if (logits && seq->n_tokens == r->n_tokens)
        fork_choices(s, seq, logits);
    flight_end(&s->waiting, seq, false);
}

/* The sequence's rows are computed. `logits` are those of its last row, if it asked for them. */
static void take_result(struct scheduler *s, struct sequence *seq, const float *logits)
{
    int32_t token = logits ? pick(s, seq, logits) : -1;
    if (logits && token < 0) {
        scheduler_doubt(s, seq);
        return;
    }
    if (logits && seq->n_suspect)
        scheduler_condemn(s, seq);
    seq->n_computed += seq->n_rows;
    seq->n_rows = 0;
    if (seq->n_computed <= seq->prefill_end)
        take_prefill(s, seq, logits);
    if (logits)
        take_token(s, seq, token);
    else if (seq->n_computed == seq->n_tokens)
        scheduler_finish(s, seq, FINISH_LENGTH); /* nothing was to be generated */
}

static void take_results(struct scheduler *s, struct sequence *const *seqs, uint32_t n)
{
    const float *logits = s->logits;
    for (uint32_t i = 0; i < n; i++) {
        bool wants = wants_logits(seqs[i]);
        take_result(s, seqs[i], wants ? logits : NULL);
        if (wants)
            logits += s->engine->info.n_vocab;
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
