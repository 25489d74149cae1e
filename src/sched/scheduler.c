/* The scheduler's outside and its loop: submit, cancel, events, and the step that its thread
 * repeats. Everything that a step touches belongs to that thread; what other threads may touch is
 * marked in state.h. The files around this one are the parts of the step. */
#include "sched/state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sched/event_ring.h"

enum { CAREFUL_ROWS = 32, SPARE_NODES = 1024 }; /* for roots, and for nodes about to be split */

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int open_buffers(struct scheduler *s, struct error *err)
{
    uint32_t n_seqs = s->options.max_seqs, n_vocab = s->engine->info.n_vocab;
    s->running = calloc(n_seqs, sizeof *s->running);
    s->planned = calloc(n_seqs, sizeof *s->planned);
    s->prefills = calloc(n_seqs, sizeof *s->prefills);
    s->batch_seqs = calloc(n_seqs, sizeof *s->batch_seqs);
    s->rows = calloc(s->engine->limits.max_rows, sizeof *s->rows);
    s->outputs = calloc(n_seqs, sizeof *s->outputs);
    s->logits = calloc((size_t)n_seqs * n_vocab, sizeof *s->logits);
    s->needs = calloc(n_seqs, sizeof *s->needs);
    if (!s->running || !s->planned || !s->prefills || !s->batch_seqs || !s->rows || !s->outputs ||
        !s->logits || !s->needs)
        return error_set(err, ERROR_MEMORY, "no memory to schedule %u sequences", n_seqs);
    for (uint32_t i = 0; i < n_seqs; i++)
        s->outputs[i] = (struct row_output){.wants = OUTPUT_LOGITS,
                                            .logits = s->logits + (size_t)i * n_vocab};
    return sampler_open(&s->sampler, n_vocab, s->limit, err);
}

/* The end tokens as a list, without those that the model has no logits for. */
static int list_ends(struct scheduler *s, struct error *err)
{
    const struct token_table *table = &s->options.tokens;
    uint32_t n = min_u32(table->n_tokens, s->engine->info.n_vocab);
    for (uint32_t i = 0; i < n; i++)
        s->n_ends += table->is_end[i];
    s->ends = calloc(s->n_ends + (size_t)1, sizeof *s->ends);
    if (!s->ends)
        return error_set(err, ERROR_MEMORY, "no memory for %u end tokens", s->n_ends);
    for (uint32_t i = 0, k = 0; i < n; i++)
        if (table->is_end[i])
            s->ends[k++] = (int32_t)i;
    return 0;
}

static void close_buffers(struct scheduler *s)
{
    sampler_close(s->sampler);
    free(s->running);
    free(s->planned);
    free(s->prefills);
    free(s->batch_seqs);
    free(s->rows);
    free(s->outputs);
    free(s->logits);
    free(s->needs);
    free(s->ends);
}

/* Pages of the second group, if the engine has one: at least a window for a sequence, or all of the
 * longest one. A sequence takes as many at a time as leaves room for all. */
static int open_window(struct scheduler *s, struct error *err)
{
    const struct engine *e = s->engine;
    if (e->info.n_groups < 2)
        return 0;
    uint32_t window = e->info.groups[1].window, n_pages = e->limits.n_pages[1];
    uint32_t least = min_u32(window, s->limit);
    if (n_pages < least || n_pages > SCHEDULER_MAX_PAGES)
        return error_set(err, ERROR_INPUT,
                         "a cache of %u tokens for layers with a window of %u is too %s", n_pages,
                         window, n_pages < least ? "small" : "large");
    uint32_t share = n_pages / s->options.max_seqs;
    s->cache.window = window;
    s->window_run = share <= window ? 1 : min_u32(share - window + 1, RESERVE_RUN);
    return page_pool_open(&s->cache.window_pool, n_pages, err);
}

uint32_t scheduler_page_bytes(bool has_window)
{
    return page_pool_page_bytes() + prefix_tree_page_bytes(has_window);
}

uint32_t scheduler_window_page_bytes(void)
{
    return page_pool_page_bytes();
}

static int open_tree(struct scheduler *s, struct error *err)
{
    uint32_t n_pages = s->engine->limits.n_pages[0];
    struct prefix_tree_options options = {
        .pool = &s->cache.pool,
        .max_nodes = n_pages + s->options.max_seqs + SPARE_NODES,
        .max_pinned = n_pages / 2,
        .window_pool = s->cache.window ? &s->cache.window_pool : NULL,
        .window = s->cache.window,
    };
    return prefix_tree_open(&s->cache.tree, &options, err);
}

int scheduler_open(struct scheduler **out, const struct scheduler_options *options,
                   struct error *err)
{
    const struct engine_limits *limits = &options->engine->limits;
    assert(options->step_budget_ms > 0);
    if (limits->n_pages[0] > SCHEDULER_MAX_PAGES)
        return error_set(err, ERROR_INPUT, "a cache of %u tokens is too large: %d are the most",
                         limits->n_pages[0], SCHEDULER_MAX_PAGES);
    struct scheduler *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, ERROR_MEMORY, "no memory for the scheduler");
    s->options = *options;
    s->engine = options->engine;
    s->cache.times = options->op_times;
    s->options.max_seqs = min_u32(options->max_seqs, min_u32(limits->max_seqs, limits->max_rows));
    s->limit = min_u32(options->max_length, min_u32(limits->max_length, limits->n_pages[0]));
    if (s->options.max_seqs == 0 || s->limit < 2) {
        error_set(err, ERROR_INPUT,
                  "%u sequences of at most %u positions cannot run; give more sequences, a longer "
                  "context or a larger cache",
                  s->options.max_seqs, s->limit);
        free(s);
        return -1;
    }
    step_cost_init(&s->cost, s->options.step_budget_ms * 1e6 / CAREFUL_ROWS);
    wake_open(&s->wake);
    if (open_buffers(s, err) || list_ends(s, err) ||
        queue_open(&s->arrivals, (size_t)s->options.max_seqs + options->max_waiting, err) ||
        queue_open(&s->queries, MAX_QUERIES, err) ||
        page_pool_open(&s->cache.pool, limits->n_pages[0], err) || open_window(s, err) ||
        open_tree(s, err)) {
        scheduler_close(s);
        return -1;
    }
    scheduler_publish(s);
    *out = s;
    return 0;
}

/* True when something came. */
static bool take_arrivals(struct scheduler *s)
{
    bool any = false;
    for (struct request *r; (r = queue_pop(&s->arrivals)); any = true) {
        r->sequence->age = s->next_age++;
        sequence_list_add(&s->waiting, r->sequence);
    }
    return any;
}

/* `all`: canceled or not. */
static bool end_canceled(struct scheduler *s, bool all)
{
    bool any = false;
    for (uint32_t i = s->n_running; i-- > 0;) {
        if (!all && !atomic_load(&s->running[i]->request->canceled))
            continue;
        scheduler_finish(s, s->running[i], FINISH_CANCELED);
        any = true;
    }
    for (struct sequence *seq = s->waiting.head, *next; seq; seq = next) {
        next = seq->next;
        if (!all && !atomic_load(&seq->request->canceled))
            continue;
        scheduler_finish(s, seq, FINISH_CANCELED);
        any = true;
    }
    return any;
}

#ifndef NDEBUG
enum { CHECK_ALL_PAGES = 1 << 14, CHECK_EVERY = 64 };

/* Conservation, law 2: what the pool calls private is what the sequences have. The tree and the
 * pool are recounted after each step too, where that takes less than the step. */
static bool is_conserved(const struct scheduler *s)
{
    uint32_t n_private = 0, n_window = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct sequence *seq = s->running[i];
        n_window += seq->window.n_reserved - seq->window.private_from;
        uint32_t n = 0;
        for (uint32_t p = seq->n_matched; p < seq->n_reserved; p++)
            n += seq->is_private[p];
        if (n != seq->n_private)
            return false;
        n_private += n;
    }
    bool skips = s->cache.pool.n_pages > CHECK_ALL_PAGES && s->stats.steps % CHECK_EVERY;
    return n_private == page_pool_private(&s->cache.pool) &&
           n_window == page_pool_private(&s->cache.window_pool) &&
           (skips || (page_pool_check(&s->cache.pool) && prefix_tree_check(s->cache.tree) &&
                      (s->cache.window == 0 || page_pool_check(&s->cache.window_pool))));
}
#endif

static void notify(struct scheduler *s)
{
    if (s->has_events && s->options.notify)
        s->options.notify(s->options.notify_context);
    s->has_events = false;
}

bool scheduler_step(struct scheduler *s)
{
    s->now_ns = clock_now_ns();
    s->evict_left = EVICT_NODES;
    s->is_evicting = false;
    uint64_t preempted = s->stats.preempted, retried = s->stats.retried;
    bool worked = take_arrivals(s);
    if (end_canceled(s, false)) {
        worked = true;
        scheduler_publish(s); /* now, and not behind the batch: their work has stopped */
    }
    worked |= scheduler_admit(s);
    scheduler_reserve(s);
    scheduler_reserve_window(s);
    scheduler_plan(s);
    scheduler_reserve_rows(s);
    if (s->n_planned) {
        scheduler_forward(s);
        worked = true;
    }
    worked |= scheduler_expire(s);
    worked |= scheduler_answer_queries(s);
    worked |= s->is_evicting || s->stats.preempted != preempted || s->stats.retried != retried;
    if (worked)
        scheduler_publish(s);
    op_times_end_step(s->cache.times);
    assert(is_conserved(s));
    notify(s);
    return worked;
}

static void *run(void *context)
{
    struct scheduler *s = context;
    pthread_setname_np(pthread_self(), "radish-sched");
    while (!atomic_load(&s->is_stopping)) {
        uint32_t seen = wake_count(&s->wake);
        if (scheduler_step(s))
            continue;
        wake_wait(&s->wake, seen, scheduler_idle_ns(s));
    }
    return NULL;
}

int scheduler_start(struct scheduler *s, struct error *err)
{
    assert(!s->has_thread);
    int rc = pthread_create(&s->thread, NULL, run, s);
    if (rc)
        return error_set(err, ERROR_MEMORY, "cannot start the scheduler's thread: %s",
                         strerror(rc));
    s->has_thread = true;
    return 0;
}

void scheduler_close(struct scheduler *s)
{
    if (!s)
        return;
    atomic_store(&s->is_stopping, true);
    atomic_store(&s->live, 0);
    wake_raise(&s->wake);
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    if (s->arrivals.cells) {
        take_arrivals(s);
        end_canceled(s, true);
        queue_close(&s->arrivals);
    }
    if (s->cache.tree) { /* and with it the queue of queries */
        while (scheduler_answer_queries(s))
            continue;
        notify(s);
    }
    if (s->queries.cells)
        queue_close(&s->queries);
    if (s->cache.tree)
        prefix_tree_close(s->cache.tree);
    if (s->cache.pool.n_pages)
        page_pool_close(&s->cache.pool);
    if (s->cache.window_pool.n_pages)
        page_pool_close(&s->cache.window_pool);
    close_buffers(s);
    wake_close(&s->wake);
    free(s);
}

/* What a request starts with; the maker's half is left alone. */
static void request_init(struct request *r)
{
    atomic_init(&r->canceled, false);
    atomic_init(&r->in_batch, false);
    atomic_init(&r->prompt_done, 0);
    atomic_init(&r->ring_head, 0);
    atomic_init(&r->ring_tail, 0);
    r->prompt_cached = r->prompt_shared = r->n_generated = 0;
    r->is_pinned = false;
    r->miss = (struct miss){0};
    r->first_token_ns = r->done_ns = 0;
    r->submitted_ns = clock_now_ns();
    r->error = (struct error){0};
    r->sequence = NULL;
}

enum submit_result scheduler_submit(struct scheduler *s, struct request *r)
{
    assert(r->n_tokens > 0 && r->n_stops <= REQUEST_MAX_STOPS);
    assert(r->n_top_logprobs <= REQUEST_MAX_TOP_LOGPROBS);
    request_init(r);
    if (r->n_tokens >= s->limit) {
        error_set(&r->error, ERROR_LIMIT,
                  "the prompt has %u tokens, and at most %u fit beside an answer: the context is "
                  "%u tokens; shorten the prompt",
                  r->n_tokens, s->limit - 1, s->limit);
        return SUBMIT_TOO_LONG;
    }
    uint32_t most = s->options.max_seqs + s->options.max_waiting;
    if (atomic_fetch_add(&s->n_accepted, 1) >= most)
        goto full;
    r->sequence = sequence_make(r, s->limit, s->cache.window > 0, &r->error);
    if (!r->sequence)
        goto full;
    bool is_queued = queue_push(&s->arrivals, r);
    assert(is_queued); /* it has room for all that are accepted */
    (void)is_queued;
    wake_raise(&s->wake);
    return SUBMIT_OK;
full:
    atomic_fetch_sub(&s->n_accepted, 1);
    if (r->error.code == ERROR_NONE)
        error_set(&r->error, ERROR_LIMIT, "%u requests are running or waiting; try again later",
                  most);
    return SUBMIT_FULL;
}

void scheduler_cancel(struct scheduler *s, struct request *r)
{
    if (atomic_exchange(&r->canceled, true))
        return;
    if (atomic_exchange(&r->in_batch, false))
        atomic_fetch_sub(&s->live, 1);
    wake_raise(&s->wake);
}

bool scheduler_next_event(struct scheduler *s, struct request *r, struct sched_event *event)
{
    uint32_t n_waiting;
    if (!event_ring_pop(r, event, &n_waiting))
        return false;
    /* Only a ring that was half full or more can have kept its sequence from running. */
    if (n_waiting >= REQUEST_RING / 2 && event->type != EVENT_DONE)
        wake_raise(&s->wake);
    return true;
}
