/* Who runs: waiting sequences are admitted in the order of their shares and then their age, running
 * ones get pages to continue, and when pages run out the youngest of whoever runs most is
 * preempted. Owned by the scheduler's thread. Careful: only running sequences hold pages or locks.
 * A waiting one has only its tokens, so it can neither block the pool nor be blocked by it. */
#include "sched/state.h"
#include "base/minmax.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "sched/event_ring.h"

bool sequence_is_parked(const struct sequence *seq)
{
    return event_ring_free(seq->request) < RING_ROOM_TO_RUN;
}

static bool is_running(const struct sequence *seq)
{
    return seq->n_reserved > 0;
}

static void running_add(struct scheduler *s, struct sequence *seq)
{
    uint32_t at = s->n_running++;
    for (; at > 0 && s->running[at - 1]->age > seq->age; at--)
        s->running[at] = s->running[at - 1];
    s->running[at] = seq;
    shares_add_running(seq);
    window_charge(s, seq, false);
}

static void running_remove(struct scheduler *s, struct sequence *seq)
{
    uint32_t at = 0;
    while (s->running[at] != seq)
        at++;
    s->n_running--;
    shares_remove_running(seq);
    window_charge(s, seq, true);
    memmove(s->running + at, s->running + at + 1, (s->n_running - at) * sizeof *s->running);
}

/* Takes a sequence off the running list: gives back its pages and lock, leaves what it computed in
 * the tree, and wakes the sequences that slept for it. */
static void stop_running(struct scheduler *s, struct sequence *seq)
{
    running_remove(s, seq);
    mask_forget(s, seq);
    state_end(s, seq);
    scheduler_free_images(s, seq, UINT32_MAX);
    sequence_release(seq, &s->cache, s->now_ns);
    flight_end(&s->waiting, seq, true);
    s->n_releases++;
}

static void preempt(struct scheduler *s, struct sequence *seq)
{
    assert(!s->is_flying || seq->n_rows == 0);
    log_debug("preempting a sequence of %u tokens", seq->n_tokens);
    stop_running(s, seq);
    sequence_list_add(&s->waiting, seq);
    s->stats.preempted++;
}

void scheduler_restart(struct scheduler *s, struct sequence *seq)
{
    stop_running(s, seq);
    sequence_list_add(&s->waiting, seq);
    s->stats.retried++;
}

void scheduler_finish(struct scheduler *s, struct sequence *seq, enum finish_reason reason)
{
    struct request *r = seq->request;
    if (is_running(seq))
        stop_running(s, seq);
    else
        sequence_list_remove(&s->waiting, seq);
    s->stats.stopped += reason == FINISH_STOP;
    s->stats.ran_out += reason == FINISH_LENGTH;
    s->stats.canceled += reason == FINISH_CANCELED;
    s->stats.failed += reason == FINISH_ERROR;
    stop_matcher_finish(&seq->stops);
    s->n_losses = 0;
    r->stopped_by = stop_matcher_found(&seq->stops);
    r->n_generated = seq->n_tokens - r->n_tokens;
    r->done_ns = clock_now_ns();
    r->sequence = NULL;
    struct sched_event done = {
        .type = EVENT_DONE, .finish = reason, .text_end = seq->stops.text_end};
    scheduler_forget_images(s, seq);
    sequence_free(seq);
    shares_leave(&s->shares, r);
    event_ring_push(r, &done); /* from here on the request may be freed */
    s->has_events = true;
}

/* The pages that a sequence needs to start: one per token, and a run for decoding. */
static uint32_t pages_to_start(const struct sequence *seq)
{
    return seq->n_tokens + min_u32(seq->capacity - seq->n_tokens, RESERVE_RUN);
}

static bool has_pages(const struct scheduler *s, uint32_t n)
{
    return s->cache.pool.n_free + prefix_tree_stats(s->cache.tree)->n_evictable >= n;
}

/* Counts how much of the prompt was cached. A preempted sequence may find less when it resumes, and
 * then computes tokens that were counted as cached before. */
static void count_cached(struct scheduler *s, struct sequence *seq, uint32_t matched)
{
    struct request *r = seq->request;
    if (!seq->is_started) {
        r->prompt_cached = matched;
        r->prompt_shared = matched > seq->n_found ? matched - seq->n_found : 0;
        s->stats.prompt_tokens += r->n_tokens;
        s->stats.cached_tokens += matched;
        s->stats.shared_tokens += r->prompt_shared;
        return;
    }
    uint32_t cached = min_u32(r->prompt_cached, matched),
             shared = min_u32(r->prompt_shared, cached);
    s->stats.cached_tokens -= r->prompt_cached - cached;
    s->stats.shared_tokens -= r->prompt_shared - shared;
    r->prompt_cached = cached;
    r->prompt_shared = shared;
}

static void start_event(struct scheduler *s, struct sequence *seq, uint32_t prompt_done)
{
    if (seq->is_started)
        return;
    seq->is_started = true;
    seq->request->admitted_ns = clock_now_ns();
    event_ring_push(seq->request,
                    &(struct sched_event){.type = EVENT_STARTED, .prompt_done = prompt_done});
    s->has_events = true;
}

static void start_running(struct scheduler *s, struct sequence *seq, node_id node, uint32_t matched)
{
    sequence_list_remove(&s->waiting, seq);
    sequence_begin(seq, &s->cache, node, matched);
    uint32_t want = pages_to_start(seq) - matched;
    uint32_t got = sequence_reserve(seq, &s->cache, want, s->now_ns);
    assert(got == want);
    (void)got;
    running_add(s, seq);
    state_begin(s, seq, NULL);
    seq->in_flight = node != NODE_NONE;
    count_cached(s, seq, matched);
    start_event(s, seq, min_u32(matched, seq->request->n_tokens));
}

bool scheduler_fork(struct scheduler *s, const struct sequence *leader, struct sequence *seq)
{
    struct request *r = seq->request;
    uint32_t room = min_u32(seq->capacity - seq->n_tokens, RESERVE_RUN);
    if (seq->is_started || sequence_is_scoring(seq) || room == 0 ||
        leader->n_inserted != seq->n_tokens || atomic_load(&r->canceled) ||
        s->n_running == s->options.max_seqs || !has_pages(s, room) ||
        !window_has_room(s, seq, false))
        return false;
    prefix_tree_lock(s->cache.tree, leader->node);
    sequence_list_remove(&s->waiting, seq);
    sequence_begin(seq, &s->cache, leader->node, seq->n_tokens);
    running_add(s, seq);
    state_begin(s, seq, leader);
    seq->waits_for = NULL;
    seq->n_found = 0; /* never looked: everything was computed while it waited */
    count_cached(s, seq, seq->n_tokens);
    atomic_store_explicit(&r->prompt_done, seq->n_tokens, memory_order_relaxed);
    s->stats.forked++;
    start_event(s, seq, r->n_tokens);
    return true;
}

void scheduler_doubt(struct scheduler *s, struct sequence *seq)
{
    struct request *r = seq->request;
    if (seq->node != NODE_NONE && seq->n_inserted > seq->n_matched)
        prefix_tree_withdraw(s->cache.tree, seq->node, seq->n_matched);
    seq->n_suspect = seq->n_matched;
    r->is_pinned = false;              /* withdrawn with the end of the prompt */
    seq->n_computed = seq->n_inserted; /* the rest is lost with its pages */
    seq->n_rows = 0;
    if (seq->is_doubted) {
        error_set(&r->error, ERROR_FAILED, "the model gave no number for any token, twice");
        scheduler_finish(s, seq, FINISH_ERROR);
        return;
    }
    log_warn("a request of %u tokens gave no numbers; it starts over", seq->n_tokens);
    seq->is_doubted = true;
    scheduler_restart(s, seq);
}

/* Computed without the cache, the sequence gave numbers, so the cached prefix that it used at first
 * is bad: withdraw it. Otherwise bad KV would stay forever, because a sequence withdraws only the
 * positions that it computed itself. (A prompt that produces NaN by itself fails without the cache
 * too, and does not get here.) */
void scheduler_condemn(struct scheduler *s, struct sequence *seq)
{
    struct prefix_tree *tree = s->cache.tree;
    node_id node = prefix_tree_lock_path(tree, seq->ns, seq->tokens, seq->n_suspect, s->now_ns);
    seq->n_suspect = 0;
    if (node == NODE_NONE)
        return;
    prefix_tree_withdraw(tree, node, 0);
    prefix_tree_unlock(tree, node, s->now_ns);
    s->n_releases++;
}

enum admission {
    ADMITTED,
    ASLEEP,  /* waits for another's flight, or for its reader */
    REFUSED, /* no slot, or not enough pages */
};

static bool uses_tree(const struct sequence *seq)
{
    return !seq->request->no_cache && !seq->is_doubted;
}

/* The most tokens that may come from the tree: the last token must be computed for its logits, and
 * so must each prompt token before one that still lacks its log probability. */
static uint32_t most_matched(const struct sequence *seq)
{
    return sequence_is_scoring(seq) ? seq->n_scored - 1 : seq->n_tokens - 1;
}

/* The running sequence that it may fork from, while that one computes the prompt. */
static struct sequence *find_leader(const struct scheduler *s, const struct sequence *seq)
{
    const struct request *leader = seq->request->leader;
    for (uint32_t i = 0; leader && !seq->is_started && i < s->n_running; i++)
        if (s->running[i]->request == leader && s->running[i]->in_flight)
            return s->running[i];
    return NULL;
}

/* Whether the sequence sleeps until another has computed their common prefix. */
static bool falls_asleep(struct scheduler *s, struct sequence *seq, uint32_t matched)
{
    if (sequence_is_scoring(seq))
        return false; /* it computes everything itself */
    struct sequence *owner = find_leader(s, seq);
    if (owner) {
        seq->waits_until = owner->prefill_end;
    } else {
        owner = flight_find(s->running, s->n_running, seq, matched, &seq->waits_until);
        if (owner && owner->fork_point <= owner->n_computed)
            owner->fork_point = seq->waits_until; /* it can only resume from a state there */
    }
    seq->waits_for = owner;
    if (owner && seq->n_found == UINT32_MAX)
        seq->n_found = matched;
    return owner;
}

/* Frees pages for a sequence; if that takes many nodes, spread over several steps. */
static bool evict_for(struct scheduler *s, uint32_t n_pages)
{
    uint32_t n_free = s->cache.pool.n_free;
    if (n_pages <= n_free)
        return true;
    uint64_t before = prefix_tree_stats(s->cache.tree)->evicted_nodes;
    cache_evict(&s->cache, min_u32(n_pages - n_free, EVICT_PAGES), s->evict_left, s->now_ns);
    uint64_t n_nodes = prefix_tree_stats(s->cache.tree)->evicted_nodes - before;
    s->evict_left -= n_nodes < s->evict_left ? (uint32_t)n_nodes : s->evict_left;
    s->is_evicting = n_pages > s->cache.pool.n_free;
    return !s->is_evicting;
}

/* Locks the cached prefix of a sequence and ensures that there are pages for the rest. If there are
 * not enough, returns false and holds nothing; the match is up to date then too. */
static bool lock_and_reclaim(struct scheduler *s, struct sequence *seq, node_id *node,
                             struct tree_match *m)
{
    struct prefix_tree *tree = s->cache.tree;
    struct request *r = seq->request;
    uint32_t most = most_matched(seq);
    enum match_kind kind = MATCH_MISS;
    struct miss miss;
    if (r->explain)
        prefix_tree_explain(tree, seq->ns, seq->tokens, most, m, r->explain_others, &miss);
    uint64_t start_ns = op_times_start(s->cache.times);
    *node = prefix_tree_acquire(tree, seq->ns, seq->tokens, most, s->now_ns, m, &kind);
    op_times_add(s->cache.times, OP_MATCH, op_times_since(s->cache.times, start_ns));
    if (*node == NODE_NONE)
        m->length = 0; /* no nodes left: it runs without the tree */
    else if (s->options.tenant_pages && cache_namespace_tenant(seq->ns))
        prefix_tree_set_cap(tree, seq->ns, s->options.tenant_pages);
    /* The matched pages are locked now and can no longer be evicted. */
    uint32_t want = pages_to_start(seq) - m->length;
    bool has_room = has_pages(s, want);
    if (!has_room)
        seq->refused_at = s->n_releases;
    if (!has_room || !evict_for(s, want)) {
        if (*node != NODE_NONE)
            prefix_tree_unlock(tree, *node, s->now_ns);
        *m = prefix_tree_match(tree, seq->ns, seq->tokens, most);
        return false;
    }
    if (!seq->is_started) {
        s->stats.lookups[kind]++;
        if (r->explain)
            r->miss = miss;
    }
    return true;
}

/* Fills in what the tree has of the sequence. */
static enum admission try_admit(struct scheduler *s, struct sequence *seq, struct tree_match *m)
{
    node_id node = NODE_NONE;
    *m = (struct tree_match){0};
    if (uses_tree(seq)) {
        uint64_t start_ns = op_times_start(s->cache.times);
        *m = prefix_tree_match(s->cache.tree, seq->ns, seq->tokens, most_matched(seq));
        op_times_add(s->cache.times, OP_MATCH, op_times_since(s->cache.times, start_ns));
        if (falls_asleep(s, seq, m->length))
            return ASLEEP;
    }
    const uint32_t want = pages_to_start(seq) - m->length;
    if (s->n_running == s->options.max_seqs || s->is_evicting || !has_pages(s, want) ||
        !window_has_room(s, seq, false) || seq->refused_at == s->n_releases)
        return REFUSED;
    if (uses_tree(seq) ? !lock_and_reclaim(s, seq, &node, m) : !evict_for(s, want))
        return REFUSED;
    seq->fork_point = m->walked > m->length ? m->walked : 0;
    start_running(s, seq, node, m->length);
    return ADMITTED;
}

static struct sequence *youngest_parked(const struct scheduler *s)
{
    for (uint32_t i = s->n_running; i-- > 0;)
        if (sequence_is_parked(s->running[i]))
            return s->running[i];
    return NULL;
}

/* What the engine computes at this moment must keep its pages. */
static bool is_computed_now(const struct scheduler *s, const struct sequence *seq)
{
    return s->is_flying && seq->n_rows > 0;
}

/* Marks the running sequences that yield to this one: those that are parked, which cannot use what
 * they hold, and the youngest of a tenant or client that runs more than its share. Returns how many
 * there are. */
static uint32_t mark_yielding(struct scheduler *s, const struct sequence *seq)
{
    uint32_t n_excess, n_yielding = 0;
    const struct share *most = shares_find_excess(s->running, s->n_running, seq, &n_excess);
    for (uint32_t i = s->n_running; i-- > 0;) {
        struct sequence *other = s->running[i];
        const bool is_excess = n_excess > 0 && !is_computed_now(s, other) &&
                               (other->tenant == most || other->client == most);
        other->yields = is_excess || sequence_is_parked(other);
        n_excess -= is_excess;
        n_yielding += other->yields;
    }
    return n_yielding;
}

/* Pages that can be taken once those that yield have stopped: not those of a prefix that others run
 * with, or that the newcomer has in common with them. */
static uint64_t pages_without_yielding(struct scheduler *s, const struct tree_match *m)
{
    uint64_t n_pages = s->cache.pool.n_free;
    uint32_t n_nodes = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct sequence *other = s->running[i];
        if (!other->yields)
            continue;
        n_pages += other->n_reserved - other->n_inserted;
        if (other->node != NODE_NONE)
            s->yielding[n_nodes++] = other->node;
    }
    return n_pages + prefix_tree_evictable_without(s->cache.tree, s->yielding, n_nodes, m);
}

/* Whether the sequence, which matches `m`, would get its place and its pages if all stopped that
 * yield to it. */
static bool yielding_suffice(struct scheduler *s, const struct sequence *seq,
                             const struct tree_match *m)
{
    return mark_yielding(s, seq) > 0 && window_has_room(s, seq, true) &&
           pages_without_yielding(s, m) >= pages_to_start(seq) - m->length;
}

/* Parked ones first, then the youngest. */
static struct sequence *pick_yielding(const struct scheduler *s)
{
    struct sequence *parked = youngest_parked(s);
    uint32_t i = s->n_running - 1;
    while (!parked && !s->running[i]->yields)
        i--;
    return parked ? parked : s->running[i];
}

/* Admits a sequence, preempting others that yield to it if necessary. */
static enum admission admit_one(struct scheduler *s, struct sequence *seq)
{
    for (struct tree_match m;;) {
        enum admission result = try_admit(s, seq, &m);
        if (result != REFUSED || s->is_evicting || !yielding_suffice(s, seq, &m))
            return result;
        preempt(s, pick_yielding(s));
    }
}

/* Sleeps for a flight, or was preempted and its reader has not yet emptied half of its ring. */
static bool is_asleep(const struct sequence *seq)
{
    return seq->waits_for || event_ring_free(seq->request) < REQUEST_RING / 2;
}

/* Who is admitted next; NULL: nobody. */
static struct sequence *next_waiting(const struct scheduler *s, bool is_heir)
{
    struct sequence *first = NULL;
    for (struct sequence *seq = s->waiting.head; seq; seq = seq->next)
        if (!is_asleep(seq) && seq->is_heir >= is_heir &&
            (!first || shares_is_before(&s->shares, seq, first)))
            first = seq;
    return first;
}

/* The first one that does not fit blocks those after it, or it might wait forever. Heirs of an
 * aborted flight go before everyone, because others sleep for their result. */
bool scheduler_admit(struct scheduler *s)
{
    bool worked = false;
    for (int heirs = 1; heirs >= 0; heirs--) {
        enum admission result = ADMITTED;
        for (struct sequence *seq; result != REFUSED && (seq = next_waiting(s, heirs));) {
            result = admit_one(s, seq);
            seq->is_heir = false;
            worked |= result == ADMITTED;
        }
    }
    return worked;
}

/* Parked ones first, then the youngest of whoever runs most. */
static struct sequence *pick_victim(const struct scheduler *s)
{
    struct sequence *parked = youngest_parked(s), *last = s->running[0];
    for (uint32_t i = 1; i < s->n_running; i++)
        if (shares_runs_last(s->running[i], last))
            last = s->running[i];
    return parked ? parked : last;
}

static bool needs_page(const struct sequence *seq)
{
    return seq->n_reserved == seq->n_computed && !sequence_is_parked(seq);
}

/* Oldest first. The oldest never yields: of those that run beside it, the youngest of the same
 * tenant and client would, or one of a tenant or client that runs more. A sequence that runs alone
 * can be its own victim only if it holds several positions twice: once private, and once in the
 * tree under its own lock (because another answer had the same tokens). When it restarts, it shares
 * them. One position held twice is harmless: the last token of a sequence is never fed, so one page
 * is left over. */
void scheduler_reserve(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->n_running;) {
        struct sequence *seq = s->running[i];
        uint32_t want = min_u32(seq->capacity - seq->n_reserved, RESERVE_RUN);
        if (!needs_page(seq) || sequence_reserve(seq, &s->cache, want, s->now_ns) > 0) {
            i++;
            continue;
        }
        struct sequence *victim = pick_victim(s);
        bool was_before = victim->age < seq->age;
        preempt(s, victim);
        i -= was_before;
    }
}
