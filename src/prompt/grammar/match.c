/* The matcher: the position of an answer in its grammar.
 *
 * It can be in several places at once (items), because a grammar may be ambiguous; each place is a
 * state and a stack. Ends of rules and calls are followed only when the next byte needs them, so an
 * item stays where its last byte led.
 *
 * Limits make the language smaller, never larger: a step that would exceed one is not taken. After
 * every step there is a way to the end within the limits (see `height`). */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "prompt/grammar/grammar_internal.h"

/* ---- frames ---- */

static uint32_t cost_sum(uint64_t a, uint64_t b)
{
    return a + b < WIND_NEVER ? (uint32_t)(a + b) : WIND_NEVER;
}

static uint64_t frame_hash(uint32_t state, uint32_t count, uint32_t below)
{
    return hash_pair((uint64_t)state << 32 | count, below);
}

static bool state_goes_on(const struct grammar *g, uint32_t state, uint32_t count)
{
    const struct grammar_rule *r = &g->rules[g->states[state].rule];
    return (g->states[state].flags & STATE_GOES_ON) &&
           state_is_open(r, state - r->first_state, count);
}

uint32_t frame_push(struct grammar_matcher *m, uint32_t state, uint32_t count, uint32_t below,
                    uint32_t limit, uint32_t slack)
{
    size_t at = frame_hash(state, count, below) % FRAME_INDEX;
    for (; m->frame_index[at] != 0; at = (at + 1) % FRAME_INDEX) {
        const struct frame *f = &m->frames[m->frame_index[at]];
        if (f->state == state && f->count == count && f->below == below)
            return m->frame_index[at];
    }
    if (m->n_frames >= limit)
        return UINT32_MAX;
    const struct frame *under = &m->frames[below];
    bool may_end = state_may_end(m->g, state, count);
    m->frames[m->n_frames] = (struct frame){
        .state = state,
        .count = count,
        .below = below,
        .cost = cost_sum(wind_cost(m, state, count) + slack, under->cost),
        .slack = cost_sum(wind_slack(m, state, count) + slack, under->slack),
        .depth = (uint16_t)(under->depth + 1),
        .may_end = may_end && under->may_end,
        .goes_on = state_goes_on(m->g, state, count) || (may_end && under->goes_on),
    };
    m->frame_index[at] = m->n_frames;
    return m->n_frames++;
}

/* If frames are removed in reverse order, their slots of the index can simply be cleared. */
void frame_truncate(struct grammar_matcher *m, uint32_t n)
{
    while (m->n_frames > n) {
        uint32_t last = --m->n_frames;
        const struct frame *f = &m->frames[last];
        size_t at = frame_hash(f->state, f->count, f->below) % FRAME_INDEX;
        while (m->frame_index[at] != last)
            at = (at + 1) % FRAME_INDEX;
        m->frame_index[at] = 0;
    }
}

static void forget_masks(struct grammar_matcher *m)
{
    for (int i = 0; i < CACHE_MASKS; i++)
        m->cache[i].n_items = 0;
}

/* Keeps only the frames that the items use. */
static void compact_frames(struct grammar_matcher *m)
{
    uint32_t n = m->n_frames, kept = 1;
    memset(m->frame_moved, 0, n * sizeof *m->frame_moved);
    for (uint32_t i = 0; i < m->n_items; i++)
        for (uint32_t f = m->items[i].stack; f != 0 && m->frame_moved[f] == 0;
             f = m->frames[f].below)
            m->frame_moved[f] = 1;
    memset(m->frame_index, 0, FRAME_INDEX * sizeof *m->frame_index);
    for (uint32_t i = 1; i < n; i++) {
        if (m->frame_moved[i] == 0)
            continue;
        struct frame f = m->frames[i];
        f.below = m->frame_moved[f.below];
        size_t at = frame_hash(f.state, f.count, f.below) % FRAME_INDEX;
        while (m->frame_index[at] != 0)
            at = (at + 1) % FRAME_INDEX;
        m->frames[kept] = f;
        m->frame_index[at] = kept;
        m->frame_moved[i] = kept++;
    }
    for (uint32_t i = 0; i < m->n_items; i++)
        m->items[i].stack = m->frame_moved[m->items[i].stack];
    m->n_frames = kept;
    forget_masks(m);
}

/* ---- items ---- */

bool item_fits(const struct grammar_matcher *m, uint32_t state, uint32_t stack)
{
    return m->frames[stack].depth + m->g->states[state].height <= GRAMMAR_DEPTH_MAX;
}

bool item_pop(const struct grammar_matcher *m, const struct item *it, struct item *out)
{
    if (it->stack == 0 || !state_may_end(m->g, it->state, it->count))
        return false;
    const struct frame *f = &m->frames[it->stack];
    uint8_t part = m->g->rules[m->g->states[it->state].rule].part;
    *out = (struct item){f->state, f->count, f->below, part == DISTINCT_LIST ? 0 : it->memory};
    return true;
}

bool item_call(struct grammar_matcher *m, const struct item *it, const struct grammar_call *call,
               uint32_t frame_limit, struct item *out)
{
    const struct grammar *g = m->g;
    const struct grammar_rule *r = &g->rules[g->states[it->state].rule];
    if (!state_is_open(r, it->state - r->first_state, it->count))
        return false;
    uint32_t start = g->rules[call->rule].first_state + STATE_START;
    *out = (struct item){start, 0, it->stack, it->memory};
    if (call->back == GRAMMAR_TAIL)
        return item_fits(m, start, it->stack);
    if (!item_fits(m, call->back, it->stack) ||
        m->frames[it->stack].depth + 1 + g->states[start].height > GRAMMAR_DEPTH_MAX)
        return false;
    uint32_t count = count_after(r, call->back - r->first_state, it->count);
    out->stack = frame_push(m, call->back, count, it->stack, frame_limit,
                            g->rules[call->rule].part == DISTINCT_ITEM ? DISTINCT_SLACK : 0);
    return out->stack != UINT32_MAX;
}

static bool is_same(const struct item *a, const struct item *b)
{
    return a->state == b->state && a->stack == b->stack && a->count == b->count &&
           a->memory == b->memory;
}

/* Where the item is in the index of the closure, or a free place for it. */
static size_t closure_slot(const struct closure *c, const struct item *it)
{
    size_t at = hash_pair((uint64_t)it->state << 32 | it->stack,
                          (uint64_t)it->count << 32 | it->memory) %
                CLOSURE_INDEX;
    while (c->index[at].stamp == c->stamp && !is_same(&c->items[c->index[at].at], it))
        at = (at + 1) % CLOSURE_INDEX;
    return at;
}

/* Adds an item if it is new; drops it if there is no room. */
static void closure_add(struct closure *c, const struct item *it)
{
    for (uint32_t i = 0; i < c->n && i < CLOSURE_SHORT; i++)
        if (is_same(&c->items[i], it))
            return;
    if (c->n == CLOSURE_MAX)
        return;
    if (c->n >= CLOSURE_SHORT) {
        size_t at = closure_slot(c, it);
        if (c->index[at].stamp == c->stamp)
            return;
        c->index[at].stamp = c->stamp;
        c->index[at].at = c->n;
    }
    c->items[c->n++] = *it;
}

/* At most CLOSURE_MAX items. */
static void closure_begin(struct closure *c, const struct item *items, uint32_t n)
{
    if (++c->stamp == 0) {
        memset(c->index, 0, sizeof c->index);
        c->stamp = 1;
    }
    c->n = 0;
    for (uint32_t i = 0; i < n; i++)
        closure_add(c, &items[i]);
}

/* The items that stay after a step: if there are too many, those nearest to an end. */
struct kept {
    struct item *items; /* [ITEMS_MAX] */
    uint32_t n;
    uint32_t costs[ITEMS_MAX], worst; /* known once it was full */
    bool was_full;
};

/* The costs stay unset: they are rarely needed. */
static void kept_begin(struct kept *k, struct item *items, uint32_t n)
{
    k->items = items;
    k->n = n;
    k->was_full = false;
}

static uint32_t item_cost(const struct grammar_matcher *m, const struct item *it)
{
    return wind_cost(m, it->state, it->count) + m->frames[it->stack].cost;
}

static void find_worst(struct kept *k)
{
    k->worst = 0;
    for (uint32_t i = 1; i < k->n; i++)
        if (k->costs[i] > k->costs[k->worst])
            k->worst = i;
}

static void keep_item(const struct grammar_matcher *m, struct kept *k, const struct item *it)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (is_same(&k->items[i], it))
            return;
    if (k->n < ITEMS_MAX) {
        k->items[k->n++] = *it;
        return;
    }
    for (uint32_t i = 0; i < k->n && !k->was_full; i++)
        k->costs[i] = item_cost(m, &k->items[i]);
    if (!k->was_full)
        find_worst(k);
    k->was_full = true;
    uint32_t cost = item_cost(m, it);
    if (cost >= k->costs[k->worst])
        return;
    k->items[k->worst] = *it;
    k->costs[k->worst] = cost;
    find_worst(k);
}

/* Adds what item `i` of the closure becomes by ending its rule or calling another; with a byte,
 * only what that byte can start. */
static void close_item(struct grammar_matcher *m, uint32_t i, int byte, uint32_t frame_limit)
{
    const struct grammar *g = m->g;
    struct closure *c = m->closure;
    struct item it = c->items[i], made;
    bool remembers = m->distinct != NULL && byte >= 0;
    if (item_pop(m, &it, &made) && (!remembers || distinct_pop(m, &it, &made)))
        closure_add(c, &made);
    for (uint32_t k = g->states[it.state].calls;
         k < g->states[it.state + 1].calls && c->n < CLOSURE_MAX; k++)
        if ((byte < 0 || byte_set_has(&g->rules[g->calls[k].rule].first, (uint32_t)byte)) &&
            item_call(m, &it, &g->calls[k], frame_limit, &made) &&
            (!remembers || distinct_call(m, &it, g->calls[k].rule, &made)))
            closure_add(c, &made);
}

void matcher_close_items(struct grammar_matcher *m, uint32_t frame_limit)
{
    closure_begin(m->closure, m->items, m->n_items);
    for (uint32_t i = 0; i < m->closure->n; i++)
        close_item(m, i, -1, frame_limit);
}

uint32_t matcher_step(struct grammar_matcher *m, const struct item *items, uint32_t n_items,
                      uint8_t byte)
{
    const struct grammar *g = m->g;
    struct kept next_items;
    struct closure *c = m->closure;
    kept_begin(&next_items, m->next, 0);
    closure_begin(c, items, n_items);
    for (uint32_t i = 0; i < c->n; i++) {
        struct item it = c->items[i];
        const struct grammar_rule *r = &g->rules[g->states[it.state].rule];
        uint32_t local = it.state - r->first_state;
        uint16_t entry = r->next[(size_t)local * r->n_classes + r->class_of[byte]];
        uint32_t next = entry & STATE_MASK;
        if (entry & STATE_LEAVES)
            close_item(m, i, byte, FRAMES_MAX);
        if (next == 0 || !state_is_open(r, local, it.count) ||
            !item_fits(m, r->first_state + next, it.stack))
            continue;
        keep_item(m, &next_items,
                  &(struct item){r->first_state + next, count_after(r, next, it.count), it.stack,
                                 it.memory});
    }
    if (m->distinct != NULL)
        m->distinct->n_work += c->n;
    return next_items.n;
}

/* The same with a token that the grammar names. */
static uint32_t step_named(struct grammar_matcher *m, int32_t token)
{
    const struct grammar *g = m->g;
    struct kept next_items;
    kept_begin(&next_items, m->next, 0);
    if (token > g->max_token)
        return 0;
    matcher_close_items(m, FRAMES_MAX);
    for (uint32_t i = 0; i < m->closure->n; i++) {
        struct item it = m->closure->items[i];
        for (uint32_t k = g->states[it.state].named; k < g->states[it.state + 1].named; k++)
            if (g->named[k].token == token && item_fits(m, g->named[k].target, it.stack))
                keep_item(m, &next_items,
                          &(struct item){g->named[k].target, 0, it.stack, it.memory});
    }
    return next_items.n;
}

/* Steps the matcher's items through all bytes, into m->ahead; returns their number. */
static uint32_t step_bytes(struct grammar_matcher *m, const char *bytes, size_t len)
{
    uint32_t n = m->n_items;
    memcpy(m->ahead, m->items, n * sizeof *m->items);
    for (size_t i = 0; i < len && n > 0; i++) {
        if (i % (m->v->max_len + 1) == 0)
            distinct_begin_try(m); /* what is longer than a token is taken in parts */
        n = matcher_step(m, m->ahead, n, (uint8_t)bytes[i]);
        memcpy(m->ahead, m->next, n * sizeof *m->next);
        if (m->distinct != NULL && !distinct_add_byte(m, (uint8_t)bytes[i]))
            return 0;
    }
    return m->distinct != NULL ? distinct_keep_live(m, m->ahead, n) : n;
}

/* State to restore after a failed try. */
struct mark {
    uint32_t n_frames;
    size_t n_memory, n_text;
};

static struct mark matcher_mark(const struct grammar_matcher *m)
{
    struct mark at = {.n_frames = m->n_frames};
    if (m->distinct != NULL) {
        at.n_memory = m->distinct->n_memory;
        at.n_text = m->distinct->n_text;
    }
    return at;
}

static void matcher_undo(struct grammar_matcher *m, const struct mark *to)
{
    frame_truncate(m, to->n_frames);
    if (m->distinct != NULL) {
        m->distinct->n_memory = to->n_memory;
        m->distinct->n_text = to->n_text;
    }
}

static void matcher_take(struct grammar_matcher *m, uint32_t n)
{
    m->making.stage = MAKING_NOTHING;
    memcpy(m->items, m->ahead, n * sizeof *m->items);
    m->n_items = n;
    distinct_forget(m);
}

bool matcher_tries(struct grammar_matcher *m, const char *bytes, size_t len, uint64_t *distance)
{
    struct mark at = matcher_mark(m);
    uint32_t n = step_bytes(m, bytes, len);
    *distance = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t here = 4 * (uint64_t)item_cost(m, &m->ahead[i]) +
                        (distinct_is_open(m, &m->ahead[i]) ? distinct_is_alike(m, &m->ahead[i])
                                                           : 2);
        *distance = here < *distance ? here : *distance;
    }
    matcher_undo(m, &at);
    return n > 0;
}

/* Before a step: an unfinished mask would be in its way. */
static void make_room(struct grammar_matcher *m)
{
    if (m->making.stage != MAKING_DONE)
        grammar_matcher_drop(m);
    if (m->n_frames > FRAMES_MAX / 2)
        compact_frames(m);
}

bool grammar_matcher_accept_bytes(struct grammar_matcher *m, const char *bytes, size_t len)
{
    make_room(m);
    struct mark at = matcher_mark(m);
    uint32_t n = step_bytes(m, bytes, len);
    if (n == 0) {
        matcher_undo(m, &at);
        return false;
    }
    matcher_take(m, n);
    return true;
}

bool grammar_matcher_accept(struct grammar_matcher *m, int32_t token)
{
    const struct grammar_vocabulary *v = m->v;
    if (token < 0 || (uint32_t)token >= v->n_tokens)
        return false;
    if ((v->kinds[token] & TOKEN_IS_END) && grammar_matcher_may_end(m))
        return true;
    make_room(m);
    struct mark at = matcher_mark(m);
    uint32_t n = 0, len = v->offsets[token + 1] - v->offsets[token];
    if (v->kinds[token] == 0 && len > 0)
        n = step_bytes(m, v->bytes + v->offsets[token], len);
    struct kept all;
    kept_begin(&all, m->ahead, n);
    uint32_t n_named = step_named(m, token);
    for (uint32_t i = 0; i < n_named; i++)
        keep_item(m, &all, &m->next[i]);
    if (all.n > 0) {
        matcher_take(m, all.n);
        return true;
    }
    matcher_undo(m, &at);
    return false;
}

bool grammar_matcher_may_end(const struct grammar_matcher *m)
{
    for (uint32_t i = 0; i < m->n_items; i++)
        if (state_may_end(m->g, m->items[i].state, m->items[i].count) &&
            m->frames[m->items[i].stack].may_end)
            return true;
    return false;
}

bool grammar_matcher_must_end(const struct grammar_matcher *m)
{
    for (uint32_t i = 0; i < m->n_items; i++) {
        const struct item *it = &m->items[i];
        if (state_goes_on(m->g, it->state, it->count) ||
            (state_may_end(m->g, it->state, it->count) && m->frames[it->stack].goes_on))
            return false;
    }
    return grammar_matcher_may_end(m);
}

/* ---- life ---- */

void grammar_measure_for(struct grammar *g, struct grammar_vocabulary *v)
{
    struct wind_up *wind = malloc(g->n_states * sizeof *wind);
    if (wind == NULL)
        return;
    matcher_measure(&(struct grammar_matcher){.g = g, .v = v, .wind = wind, .own_wind = wind});
    g->wind = wind;
    g->measured_for = v;
    g->size_bytes += g->n_states * sizeof *g->wind;
}

int grammar_matcher_open(struct grammar_matcher **out, const struct grammar *g,
                         struct grammar_vocabulary *v, struct error *err)
{
    *out = NULL;
    if (g->max_token >= 0 && (uint32_t)g->max_token >= v->n_tokens)
        return error_set(err, ERROR_INPUT,
                         "the grammar names token %d, but the vocabulary has only %u tokens",
                         g->max_token, v->n_tokens);
    struct grammar_matcher *m = calloc(1, sizeof *m);
    if (m == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a grammar's matcher");
    m->g = g;
    m->v = v;
    const bool is_measured = g->measured_for == v;
    m->own_wind = is_measured ? NULL : malloc(g->n_states * sizeof *m->own_wind);
    m->wind = is_measured ? g->wind : m->own_wind;
    m->items = malloc(ITEMS_MAX * sizeof *m->items);
    m->next = malloc(ITEMS_MAX * sizeof *m->next);
    m->ahead = malloc(ITEMS_MAX * sizeof *m->ahead);
    m->closure = calloc(1, sizeof *m->closure);
    m->frames = malloc(FRAMES_MAX * sizeof *m->frames);
    m->frame_index = calloc(FRAME_INDEX, sizeof *m->frame_index);
    m->frame_moved = malloc(FRAMES_MAX * sizeof *m->frame_moved);
    m->automata = malloc(g->n_rules * sizeof *m->automata);
    m->few = malloc(v->n_words * sizeof *m->few);
    m->masks = malloc((size_t)CACHE_MASKS * v->n_words * sizeof *m->masks);
    if (m->wind == NULL || m->items == NULL || m->next == NULL || m->ahead == NULL ||
        m->closure == NULL || m->frames == NULL || m->frame_index == NULL ||
        m->frame_moved == NULL || m->automata == NULL || m->few == NULL || m->masks == NULL) {
        grammar_matcher_close(m);
        return error_set(err, ERROR_MEMORY, "no memory for a grammar's matcher");
    }
    for (int i = 0; i < CACHE_MASKS; i++)
        m->cache[i].mask = m->masks + (size_t)i * v->n_words;
    m->frames[0] = (struct frame){.may_end = true};
    m->n_frames = 1;
    if (!is_measured)
        matcher_measure(m);
    if (g->has_distinct && distinct_open(m, err)) {
        grammar_matcher_close(m);
        return -1;
    }
    grammar_matcher_reset(m);
    *out = m;
    return 0;
}

size_t grammar_matcher_bound(const struct grammar_vocabulary *v)
{
    const struct grammar_matcher *m = NULL;
    return sizeof *m + ITEMS_MAX * (sizeof *m->items + sizeof *m->next + sizeof *m->ahead) +
           sizeof *m->closure + FRAMES_MAX * (sizeof *m->frames + sizeof *m->frame_moved) +
           FRAME_INDEX * sizeof *m->frame_index + GRAMMAR_RULES_MAX * sizeof *m->automata +
           (size_t)(CACHE_MASKS + 1) * v->n_words * sizeof *m->masks;
}

void grammar_matcher_close(struct grammar_matcher *m)
{
    if (m == NULL)
        return;
    free(m->own_wind);
    free(m->items);
    free(m->next);
    free(m->ahead);
    free(m->closure);
    free(m->frames);
    free(m->frame_index);
    free(m->frame_moved);
    free(m->automata);
    free(m->few);
    free(m->masks);
    distinct_close(m->distinct);
    free(m);
}

void grammar_matcher_reset(struct grammar_matcher *m)
{
    m->items[0] = (struct item){m->g->rules[0].first_state + STATE_START, 0, 0, 0};
    m->n_items = 1;
    distinct_forget(m);
    grammar_matcher_drop(m);
}
