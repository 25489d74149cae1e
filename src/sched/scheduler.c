/* The scheduler's interface and its loop: submit, cancel, events, and the step that its thread
 * repeats. Everything that a step touches belongs to that thread; state.h marks what other threads
 * may touch. The other files of this folder implement the parts of the step. */
#include "sched/state.h"
#include "base/minmax.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sched/event_ring.h"

enum {
    CAREFUL_ROWS = 32,
    SPARE_NODES = 1024,   /* for roots, and for nodes about to be split */
    MAX_IMAGES = 1 << 16, /* unless the options say otherwise */
};

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
    s->yielding = calloc(n_seqs, sizeof *s->yielding);
    if (!s->running || !s->planned || !s->prefills || !s->batch_seqs || !s->rows || !s->outputs ||
        !s->logits || !s->needs || !s->yielding)
        return error_set(err, ERROR_MEMORY, "no memory to schedule %u sequences", n_seqs);
    return sampler_open(&s->sampler, n_vocab, s->limit, err);
}

/* Lists the end tokens, except those that the model has no logits for. */
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
    free(s->yielding);
    free(s->ends);
}

/* Pages for windowed layers: at least one window per sequence, or all of the longest one. A
 * sequence takes only so many at a time that all fit. */
static int open_window(struct scheduler *s, uint32_t side, const struct kv_group *group,
                       struct error *err)
{
    struct cache_side *x = &s->cache.sides[side];
    uint32_t window = group->window, n_pages = s->engine->limits.n_pages[1 + side];
    uint32_t least = min_u32(window, s->limit);
    if (n_pages < least || n_pages > SCHEDULER_MAX_PAGES)
        return error_set(err, ERROR_INPUT,
                         "a cache of %u tokens for layers with a window of %u is too %s", n_pages,
                         window, n_pages < least ? "small" : "large");
    uint32_t share = n_pages / s->options.max_seqs;
    x->before = window - 1;
    x->run = share <= window ? 1 : min_u32(share - window + 1, RESERVE_RUN);
    if (s->max_region > n_pages - min_u32(x->before, n_pages))
        s->max_region = n_pages - min_u32(x->before, n_pages);
    return page_pool_open(&x->pool, n_pages, err);
}

/* Copies of states, and a slot for each running sequence. */
static int open_state(struct scheduler *s, uint32_t side, const struct kv_group *group,
                      struct error *err)
{
    struct cache_side *x = &s->cache.sides[side];
    uint32_t n_pages = s->engine->limits.n_pages[1 + side];
    if (n_pages == 0 || n_pages > SCHEDULER_MAX_PAGES)
        return error_set(err, ERROR_INPUT, "a cache of %u copies of the model's state is too %s",
                         n_pages, n_pages ? "large" : "small");
    assert(s->engine->limits.n_slots >= s->options.max_seqs && group->grain > 0);
    x->before = 1;
    x->grain = group->grain;
    s->state_side = side;
    s->free_slots = calloc(s->options.max_seqs, sizeof *s->free_slots);
    if (!s->free_slots)
        return error_set(err, ERROR_MEMORY, "no memory for %u slots", s->options.max_seqs);
    for (uint32_t i = s->options.max_seqs; i-- > 0;)
        s->free_slots[s->n_free_slots++] = i;
    return page_pool_open(&x->pool, n_pages, err);
}

static int open_sides(struct scheduler *s, struct error *err)
{
    const struct engine_info *info = &s->engine->info;
    s->state_side = TREE_MAX_SIDES;
    for (uint32_t i = 0; i + 1 < info->n_groups; i++) {
        const struct kv_group *group = &info->groups[i + 1];
        s->cache.sides[i].kind = group->kind;
        if (group->kind == KV_WINDOW ? open_window(s, i, group, err) : open_state(s, i, group, err))
            return -1;
        s->cache.n_sides++;
    }
    return 0;
}

uint32_t scheduler_page_bytes(uint32_t n_sides)
{
    return page_pool_page_bytes() + prefix_tree_page_bytes(n_sides);
}

uint32_t scheduler_side_page_bytes(void)
{
    return page_pool_page_bytes();
}

static int open_tree(struct scheduler *s, struct error *err)
{
    uint32_t n_pages = s->cache.pool.n_pages;
    struct prefix_tree_options options = {
        .pool = &s->cache.pool,
        .images = s->cache.images,
        .max_nodes = n_pages + s->options.max_seqs + SPARE_NODES,
        .max_pinned = n_pages / 2,
        .n_sides = s->cache.n_sides,
    };
    for (uint32_t i = 0; i < s->cache.n_sides; i++)
        options.sides[i] = (struct tree_side_options){&s->cache.sides[i].pool,
                                                      s->cache.sides[i].before};
    return prefix_tree_open(&s->cache.tree, &options, err);
}

/* A region is computed whole, together with a row of every other sequence, from rows that the
 * engine keeps. */
static int open_images(struct scheduler *s, struct error *err)
{
    const struct engine *e = s->engine;
    uint32_t room = e->limits.max_rows - (s->options.max_seqs - 1);
    uint32_t most = s->options.max_images ? s->options.max_images : MAX_IMAGES;
    room = min_u32(room, min_u32(e->limits.max_image_rows, CACHE_MAX_IMAGE_LENGTH));
    s->max_region = min_u32(e->info.max_region, room);
    return s->max_region ? image_table_open(&s->cache.images, most, err) : 0;
}

static bool has_state(const struct engine *e)
{
    for (uint32_t i = 1; i < e->info.n_groups; i++)
        if (e->info.groups[i].kind == KV_STATE)
            return true;
    return false;
}

/* Requests that may run or wait at a time. */
static uint32_t most_accepted(const struct scheduler *s)
{
    return s->options.max_seqs + s->options.max_waiting;
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
    if (has_state(options->engine))
        s->options.max_seqs = min_u32(s->options.max_seqs, limits->n_slots);
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
        queue_open(&s->arrivals, (size_t)2 * most_accepted(s), err) ||
        queue_open(&s->queries, MAX_QUERIES, err) ||
        page_pool_open(&s->cache.pool, limits->n_pages[0], err) || open_images(s, err) ||
        open_sides(s, err) || open_tree(s, err)) {
        scheduler_close(s);
        return -1;
    }
    scheduler_publish(s);
    *out = s;
    return 0;
}

static void set_full(const struct scheduler *s, struct error *err)
{
    error_set(err, ERROR_LIMIT, "%u requests are running or waiting; try again later",
              most_accepted(s));
}

/* More were accepted than may wait, because those who came last hold little of the queue: whoever
 * holds most gives up the youngest that has not started. */
static void shorten_queue(struct scheduler *s)
{
    while (atomic_load(&s->shares.all.n_accepted) > most_accepted(s)) {
        struct sequence *last = NULL;
        for (struct sequence *seq = s->waiting.head; seq; seq = seq->next)
            if (!seq->is_started && (!last || shares_waits_last(seq, last)))
                last = seq;
        if (!last)
            return;
        set_full(s, &last->request->error);
        scheduler_finish(s, last, FINISH_ERROR);
    }
}

/* True if any request arrived. */
static bool take_arrivals(struct scheduler *s)
{
    bool any = false;
    for (struct request *r; (r = queue_pop(&s->arrivals)); any = true) {
        r->sequence->age = s->next_age++;
        sequence_list_add(&s->waiting, r->sequence);
        if (!scheduler_place(s, r->sequence))
            scheduler_finish(s, r->sequence, FINISH_ERROR);
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

/* Conservation, law 2: the pages that the pool counts as private are those of the sequences. The
 * tree and the pool are recounted after each step too, if that takes less time than the step. */
static bool is_conserved(const struct scheduler *s)
{
    const struct cache *c = &s->cache;
    uint32_t n_private = 0, n_side[TREE_MAX_SIDES] = {0};
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct sequence *seq = s->running[i];
        for (uint32_t k = 0; k < c->n_sides; k++)
            n_side[k] += sequence_side_private(seq, c, k);
        uint32_t n = 0;
        for (uint32_t p = seq->n_matched; p < seq->n_reserved; p++)
            n += seq->is_private[p];
        if (n != seq->n_private)
            return false;
        n_private += n;
    }
    bool skips = c->pool.n_pages > CHECK_ALL_PAGES && s->stats.steps % CHECK_EVERY;
    for (uint32_t k = 0; k < c->n_sides; k++)
        if (n_side[k] != page_pool_private(&c->sides[k].pool) ||
            (!skips && !page_pool_check(&c->sides[k].pool)))
            return false;
    return n_private == page_pool_private(&c->pool) &&
           (s->n_free_slots + s->n_running == s->options.max_seqs || !s->free_slots) &&
           (skips || (page_pool_check(&c->pool) && prefix_tree_check(c->tree)));
}
#endif

static void notify(struct scheduler *s)
{
    if (s->has_events && s->options.notify)
        s->options.notify(s->options.notify_context);
    s->has_events = false;
}

/* The device was lost between two batches, or could not be reopened last time. */
static bool recover(struct scheduler *s)
{
    struct error err;
    if (s->n_running + s->waiting.n == 0)
        return false;
    error_set(&err, ERROR_DEVICE, "the device is not there");
    scheduler_recover(s, &err);
    return true;
}

/* Decides what the step computes. */
static bool step_front(struct scheduler *s)
{
    uint64_t preempted = s->stats.preempted;
    bool worked = take_arrivals(s);
    if (end_canceled(s, false)) {
        worked = true;
        scheduler_publish(s); /* now rather than after the batch: their work has stopped */
    }
    shorten_queue(s); /* those who have left need nobody to make room */
    worked |= scheduler_admit(s);
    scheduler_end_stateless(s);
    worked |= scheduler_encode(s);
    s->n_planned = 0;
    if (s->is_lost)
        return recover(s) || worked;
    worked |= scheduler_make_masks(s);
    scheduler_reserve(s);
    scheduler_reserve_windows(s);
    scheduler_plan(s);
    scheduler_reserve_rows(s);
    scheduler_plan_copies(s);
    return worked || s->stats.preempted != preempted;
}

/* Everything that needs no logits. An asynchronous engine computes in the meantime. With one that
 * computes in this thread the order does not matter, except that newcomers are admitted as late as
 * possible: in step_front. */
static bool step_shadow(struct scheduler *s)
{
    bool worked = scheduler_expire(s);
    worked |= scheduler_answer_queries(s);
    if (s->is_flying && s->engine->info.is_async) {
        scheduler_make_masks_meanwhile(s);
        notify(s);
        take_arrivals(s);
        scheduler_admit(s);
    }
    return worked;
}

bool scheduler_step(struct scheduler *s)
{
    uint64_t retried = s->stats.retried;
    s->now_ns = clock_now_ns();
    s->evict_left = EVICT_NODES;
    s->is_evicting = false;
    bool worked = step_front(s);
    if (s->n_planned) {
        scheduler_submit_batch(s);
        worked = true;
    }
    worked |= step_shadow(s);
    if (s->n_planned)
        scheduler_take_batch(s);
    worked |= s->is_evicting || s->stats.retried != retried;
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
    if (s->cache.tree) { /* the queue of queries exists too */
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
    for (uint32_t i = 0; i < TREE_MAX_SIDES; i++)
        if (s->cache.sides[i].pool.n_pages)
            page_pool_close(&s->cache.sides[i].pool);
    image_table_close(s->cache.images);
    free(s->free_slots);
    free(s->adapters);
    close_buffers(s);
    wake_close(&s->wake);
    free(s);
}

/* Initializes the scheduler's half of a request; the caller's half is left alone. */
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
    r->admitted_ns = r->first_token_ns = r->done_ns = 0;
    r->stopped_by = (struct byte_view){0};
    r->submitted_ns = clock_now_ns();
    r->error = (struct error){0};
    r->sequence = NULL;
}

/* Checks that the image at a token of the prompt has exactly its own positions, in order. */
static int check_image(const struct scheduler *s, const struct request *r, uint32_t at,
                       struct error *err)
{
    uint32_t index = cache_token_image_index(r->tokens[at]);
    uint32_t length = index < r->n_images ? r->images[index].shape.length : 0;
    if (s->max_region == 0)
        return error_set(err, ERROR_INPUT, "this model takes no images; send text only");
    if (length > s->max_region)
        return error_set(err, ERROR_INPUT,
                         "an image takes %u positions, and at most %u are possible here; send a "
                         "smaller one",
                         length, s->max_region);
    for (uint32_t i = 0; i < length; i++)
        if (length > r->n_tokens - at || r->tokens[at + i] != cache_token_image(index, i, length))
            length = 0;
    if (length == 0)
        return error_set_at(err, ERROR_INPUT, at, "the tokens of an image are not in order");
    return 0;
}

static int check_images(const struct scheduler *s, const struct request *r, struct error *err)
{
    for (uint32_t i = 0; i < r->n_tokens;) {
        if (!cache_token_is_image(r->tokens[i])) {
            i++;
            continue;
        }
        if (check_image(s, r, i, err))
            return -1;
        i += r->images[cache_token_image_index(r->tokens[i])].shape.length;
    }
    return 0;
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
    if (check_images(s, r, &r->error))
        return SUBMIT_INVALID;
    if (!shares_enter(&s->shares, r, most_accepted(s))) {
        set_full(s, &r->error);
        return SUBMIT_FULL;
    }
    r->sequence = sequence_make(r, s->limit, &s->cache, &r->error);
    if (!r->sequence) {
        shares_leave(&s->shares, r);
        return SUBMIT_FULL;
    }
    shares_of(&s->shares, r->sequence);
    bool is_queued = queue_push(&s->arrivals, r);
    assert(is_queued); /* the queue has room for all accepted requests */
    (void)is_queued;
    wake_raise(&s->wake);
    return SUBMIT_OK;
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
    /* Only a ring that was at least half full can have kept its sequence from running. */
    if (n_waiting >= REQUEST_RING / 2 && event->type != EVENT_DONE)
        wake_raise(&s->wake);
    return true;
}
