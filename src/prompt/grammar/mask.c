/* The mask of a configuration: the base masks of its items and, for tokens that leave a rule, what
 * the stack allows. Also the end of an answer that runs out of budget.
 *
 * The mask is the union over all items: a token is allowed if one reading allows it. Making one can
 * pause and go on later, because others wait for the scheduler's thread, which makes all masks. */
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "prompt/grammar/grammar_internal.h"

/* ---- tokens that leave a rule ---- */

/* True the first time it is called with these; beyond a certain number, always. */
static bool is_new(struct mask_scratch *s, const struct pending *p)
{
    uint64_t hash = hash_pair((uint64_t)p->node << 32 | p->state,
                              (uint64_t)p->count << 32 | p->stack);
    if (s->n_seen > SEEN_SIZE / 2)
        return true;
    for (size_t at = hash % SEEN_SIZE;; at = (at + 1) % SEEN_SIZE) {
        struct pending *q = &s->seen[at];
        if (s->seen_stamp[at] != s->stamp_seen) {
            *q = *p;
            s->seen_stamp[at] = s->stamp_seen;
            s->n_seen++;
            return true;
        }
        if (q->node == p->node && q->state == p->state && q->count == p->count &&
            q->stack == p->stack)
            return false;
    }
}

static void begin_seen(struct mask_scratch *s)
{
    s->n_seen = s->n_pending = 0;
    if (++s->stamp_seen == 0) {
        memset(s->seen_stamp, 0, SEEN_SIZE * sizeof *s->seen_stamp);
        s->stamp_seen = 1;
    }
}

/* Beyond this many nodes a mask takes too long: unvisited tokens are not allowed. Only very
 * ambiguous grammars reach this limit. */
static uint64_t work_limit(const struct grammar_matcher *m)
{
    return WORK_MAX + (uint64_t)4 * m->v->trie.n_nodes;
}

/* Continues the walk below the node, if its byte leads anywhere. A long walk may reach the same
 * places in many ways: from then on each is visited once. */
static void go_on(struct grammar_matcher *m, const struct item *it, const struct pending *from,
                  struct walk *w)
{
    const struct grammar_rule *r = &m->g->rules[m->g->states[it->state].rule];
    size_t row = (size_t)(it->state - r->first_state) * r->n_classes;
    if (r->next[row + r->class_of[from->byte]] == 0)
        return;
    const struct pending p = {from->node, from->byte, it->state, it->count, it->stack};
    if (w->n_walked < SEEN_AFTER || is_new(&m->v->scratch, &p))
        walk_subtree(m, it, p.node, w);
}

bool making_is_late(const struct grammar_matcher *m)
{
    return m->making.until_ns != UINT64_MAX && clock_now_ns() >= m->making.until_ns;
}

/* The same, asked often: it reads the clock now and then. */
static bool is_late(struct grammar_matcher *m)
{
    struct making *k = &m->making;
    if (k->walk.n_walked - k->looked_at < m->v->look_after)
        return false;
    k->looked_at = k->walk.n_walked;
    return making_is_late(m);
}

static void follow(struct grammar_matcher *m, const struct pending *p)
{
    const struct grammar *g = m->g;
    struct walk *w = &m->making.walk;
    uint32_t calls = g->states[p->state].calls, end = g->states[p->state + 1].calls;
    struct item it = {.state = p->state, .count = p->count, .stack = p->stack}, made;
    if (item_pop(m, &it, &made))
        go_on(m, &made, p, w);
    for (uint32_t k = calls; k < end; k++)
        if (byte_set_has(&g->rules[g->calls[k].rule].first, p->byte) &&
            item_call(m, &it, &g->calls[k], FRAMES_MAX - FRAMES_SPARE, &made))
            go_on(m, &made, p, w);
    w->n_walked += 1 + (end - calls) / 8;
}

/* Follows every leave through the end of its rule and through the calls that its byte can start.
 * Both lead to walks below the place, which may leave again. False: the time is over. */
static bool follow_leaves(struct grammar_matcher *m)
{
    enum { AHEAD = 8 };
    struct mask_scratch *s = &m->v->scratch;
    while (s->n_pending > 0) {
        if (m->making.walk.n_walked > work_limit(m)) {
            s->n_pending = 0;
            return true;
        }
        if (is_late(m))
            return false;
        struct pending p = s->pending[--s->n_pending];
        if (s->n_pending >= AHEAD)
            __builtin_prefetch(&m->v->trie.nodes[s->pending[s->n_pending - AHEAD].node]);
        follow(m, &p);
    }
    return true;
}

/* ---- winding up ---- */

/* The rounds that a counted rule still needs, besides the current one. */
static uint64_t rounds_left(const struct grammar_rule *r, uint32_t state, uint32_t count)
{
    uint32_t done = state == r->first_state + STATE_START ? count : count + 1;
    return done < r->min ? r->min - done : 0;
}

uint32_t wind_cost(const struct grammar_matcher *m, uint32_t state, uint32_t count)
{
    const struct grammar_rule *r = &m->g->rules[m->g->states[state].rule];
    uint64_t cost = m->wind[state].cost;
    if (!r->is_counted)
        return (uint32_t)cost;
    uint32_t boundary = r->first_state + STATE_START;
    cost = (state == boundary ? 0 : cost) + rounds_left(r, state, count) * m->wind[boundary].cost;
    return cost < WIND_NEVER ? (uint32_t)cost : WIND_NEVER;
}

uint32_t wind_slack(const struct grammar_matcher *m, uint32_t state, uint32_t count)
{
    const struct grammar_rule *r = &m->g->rules[m->g->states[state].rule];
    uint64_t slack = m->wind[state].slack;
    if (!r->is_counted)
        return (uint32_t)slack;
    uint32_t boundary = r->first_state + STATE_START;
    slack = (state == boundary ? 0 : slack) +
            rounds_left(r, state, count) * m->wind[boundary].slack;
    return slack < WIND_NEVER ? (uint32_t)slack : WIND_NEVER;
}

/* The longest token along the shortest way from a state, within its rule and without calls. */
static struct wind_up wind_bytes(const struct grammar_matcher *m, uint32_t state)
{
    const struct grammar *g = m->g;
    const struct token_trie *t = &m->v->trie;
    const struct grammar_rule *r = &g->rules[g->states[state].rule];
    struct wind_up best = {WIND_NEVER, TOKEN_NONE, 0};
    uint32_t at = state, node = 0;
    while (g->states[at].best == BEST_BYTE) {
        uint32_t byte = g->states[at].best_with, end = t->nodes[node].skip;
        for (node++; node < end && t->nodes[node].byte != byte;)
            node = t->nodes[node].skip;
        if (node >= end)
            break;
        const uint16_t *row = r->next + (size_t)(at - r->first_state) * r->n_classes;
        at = r->first_state + (row[r->class_of[byte]] & STATE_MASK);
        bool is_round = r->is_counted && at == r->first_state + STATE_START;
        if (t->nodes[node].token != t->none && (is_round || m->wind[at].cost < WIND_NEVER))
            best = (struct wind_up){1 + (is_round ? 0 : m->wind[at].cost), t->nodes[node].token,
                                    is_round ? 0 : m->wind[at].slack};
        if (is_round)
            break;
    }
    return best;
}

/* Computes the number of tokens of the shortest way from each state to the end of its rule, with
 * the longest possible tokens. Ways are split at calls and ends of rules, so the costs of frames
 * add up. The targets of a way come before it in `by_distance`. */
void matcher_measure(struct grammar_matcher *m)
{
    const struct grammar *g = m->g;
    for (uint32_t i = 0; i < g->n_states; i++) {
        uint32_t state = g->by_distance[i], with = g->states[state].best_with;
        struct wind_up w = {WIND_NEVER, TOKEN_NONE, 0};
        uint64_t cost = WIND_NEVER;
        switch (g->states[state].best) {
        case BEST_END: cost = 0; break;
        case BEST_BYTE:
            w = wind_bytes(m, state);
            cost = w.cost;
            break;
        case BEST_TOKEN:
            w.token = (uint32_t)g->named[with].token;
            w.slack = m->wind[g->named[with].target].slack;
            cost = 1 + (uint64_t)m->wind[g->named[with].target].cost;
            break;
        case BEST_CALL: {
            uint32_t start = g->rules[g->calls[with].rule].first_state + STATE_START;
            uint32_t back = g->calls[with].back;
            bool is_last = back == GRAMMAR_TAIL || g->rules[g->states[state].rule].is_counted;
            w.token = m->wind[start].token;
            cost = (uint64_t)wind_cost(m, start, 0) + (is_last ? 0 : m->wind[back].cost);
            w.slack = wind_slack(m, start, 0) + (is_last ? 0 : m->wind[back].slack);
            if (g->rules[g->calls[with].rule].part == DISTINCT_ITEM) {
                w.slack += DISTINCT_SLACK;
                cost += DISTINCT_SLACK;
            }
            break;
        }
        default: break;
        }
        w.cost = cost < WIND_NEVER ? (uint32_t)cost : WIND_NEVER;
        m->own_wind[state] = w;
    }
}

/* The item with the shortest way to the end. */
static const struct item *find_shortest(const struct grammar_matcher *m, uint32_t *cost)
{
    const struct item *best = &m->items[0];
    *cost = UINT32_MAX;
    for (uint32_t i = 0; i < m->n_items; i++) {
        const struct item *it = &m->items[i];
        uint32_t here = wind_cost(m, it->state, it->count) + m->frames[it->stack].cost;
        if (here < *cost) {
            *cost = here;
            best = it;
        }
    }
    return best;
}

/* The first token of an item's shortest way to the end; TOKEN_NONE: already at the end. */
static uint32_t wind_token(const struct grammar_matcher *m, struct item it)
{
    while (wind_cost(m, it.state, it.count) == 0) {
        if (it.stack == 0)
            return TOKEN_NONE;
        const struct frame *f = &m->frames[it.stack];
        it = (struct item){f->state, f->count, f->below, 0};
    }
    return m->wind[it.state].token;
}

/* For a mask that the limits have emptied: there is always a way to the end. */
static void add_shortest(const struct grammar_matcher *m, uint64_t *mask)
{
    uint32_t cost, token = wind_token(m, *find_shortest(m, &cost));
    if (token != TOKEN_NONE)
        mask[token / 64] |= (uint64_t)1 << (token % 64);
}

/* ---- masks ---- */

static void add_named(struct grammar_matcher *m, const struct item *it, struct walk *w)
{
    const struct grammar *g = m->g;
    for (uint32_t k = g->states[it->state].named; k < g->states[it->state + 1].named; k++) {
        uint32_t token = (uint32_t)g->named[k].token;
        uint32_t cost = wind_cost(m, g->named[k].target, 0) + m->frames[it->stack].cost;
        if (!item_fits(m, g->named[k].target, it->stack) || cost > w->limit)
            continue;
        w->mask[token / 64] |= (uint64_t)1 << (token % 64);
        w->reach = cost > w->reach ? cost : w->reach;
    }
}

/* Makes a mask of the tokens after which the shortest way to the end takes at most `limit` more:
 * begins, ... */
static void walk_begin(struct grammar_matcher *m, uint64_t *mask, uint32_t limit)
{
    struct making *k = &m->making;
    k->walk = (struct walk){.mask = mask, .limit = limit};
    k->looked_at = 0;
    k->at = 0;
    k->is_entered = false;
    k->n_frames = m->n_frames;
    memset(mask, 0, m->v->n_words * sizeof *mask);
    begin_seen(&m->v->scratch);
    matcher_close_items(m, FRAMES_MAX - FRAMES_SPARE);
}

/* ... and goes on. False: the time is over. */
static bool walk_on(struct grammar_matcher *m)
{
    struct making *k = &m->making;
    struct walk *w = &k->walk;
    for (; k->at < m->closure->n && w->n_walked <= work_limit(m); k->at++) {
        const struct item *it = &m->closure->items[k->at];
        if (!k->is_entered) {
            k->is_entered = true;
            walk_item(m, it, w);
            if (making_is_late(m))
                return false;
        }
        if (!follow_leaves(m))
            return false;
        k->is_entered = false;
        add_named(m, it, w);
    }
    frame_truncate(m, k->n_frames);
    return true;
}

static void add_ends(const struct grammar_matcher *m, uint64_t *mask)
{
    for (uint32_t i = 0; i < m->v->n_words; i++)
        mask[i] |= m->v->end_mask[i];
}

/* The cache key of an item. Counts that no single token can bring to either bound are
 * equivalent. */
static struct item key_of(const struct grammar_matcher *m, struct item it)
{
    const struct grammar_rule *r = &m->g->rules[m->g->states[it.state].rule];
    if (r->is_counted && it.count > r->min && r->max - it.count > m->v->max_len)
        it.count = r->min;
    it.memory = 0;
    return it;
}

static bool is_for(const struct cached_mask *c, const struct grammar_matcher *m)
{
    if (c->n_items != m->n_items)
        return false;
    for (uint32_t i = 0; i < m->n_items; i++) {
        struct item key = key_of(m, m->items[i]);
        if (memcmp(&c->items[i], &key, sizeof key) != 0)
            return false;
    }
    return true;
}

static bool is_empty(const struct grammar_matcher *m, const uint64_t *mask)
{
    for (uint32_t i = 0; i < m->v->n_words; i++)
        if (mask[i] != 0)
            return false;
    return true;
}

/* ---- masks made by other answers ---- */

/* Writes the matcher's place as a key; 0: it takes too many words. */
static uint32_t place_write(const struct grammar_matcher *m, uint32_t key[WHOLE_KEY])
{
    uint32_t n = 0;
    key[n++] = (uint32_t)m->g->id;
    key[n++] = (uint32_t)(m->g->id >> 32);
    for (uint32_t i = 0; i < m->n_items; i++) {
        struct item it = key_of(m, m->items[i]);
        uint32_t depth = m->frames[it.stack].depth;
        if (n + 3 + 2 * (depth + 1) > WHOLE_KEY)
            return 0;
        key[n++] = it.state;
        key[n++] = it.count;
        uint32_t *length = &key[n++];
        for (uint32_t at = it.stack; at != 0 && n + 2 <= WHOLE_KEY; at = m->frames[at].below) {
            key[n++] = m->frames[at].state;
            key[n++] = m->frames[at].count;
            (*length)++;
        }
    }
    return n;
}

static struct whole_mask *whole_find(struct grammar_vocabulary *v, const uint32_t *key, uint32_t n)
{
    for (size_t i = 0; i < WHOLE_MASKS; i++) {
        struct whole_mask *w = &v->whole.items[i];
        if (w->key_len == n && memcmp(w->key, key, n * sizeof *key) == 0) {
            w->used = ++v->whole.clock;
            return w;
        }
    }
    return NULL;
}

static void whole_keep(struct grammar_vocabulary *v, const uint32_t *key, uint32_t n,
                       const struct cached_mask *made)
{
    struct whole_mask *oldest = &v->whole.items[0];
    for (size_t i = 1; i < WHOLE_MASKS; i++)
        if (v->whole.items[i].used < oldest->used)
            oldest = &v->whole.items[i];
    memcpy(oldest->key, key, n * sizeof *key);
    oldest->key_len = n;
    oldest->reach = made->reach;
    oldest->used = ++v->whole.clock;
    memcpy(oldest->mask, made->mask, v->n_words * sizeof *made->mask);
}

/* Copies the mask that another answer made at the same place. */
static bool mask_copy(const struct grammar_matcher *m, struct cached_mask *out)
{
    uint32_t key[WHOLE_KEY] = {0};
    uint32_t n = place_write(m, key);
    const struct whole_mask *known = n ? whole_find(m->v, key, n) : NULL;
    if (known == NULL)
        return false;
    memcpy(out->mask, known->mask, m->v->n_words * sizeof *out->mask);
    out->reach = known->reach;
    return true;
}

/* The walk is over: adds the ends, and keeps the mask for other answers if it took long. */
static void mask_finish(struct grammar_matcher *m, struct cached_mask *out)
{
    uint32_t key[WHOLE_KEY] = {0};
    if (grammar_matcher_may_end(m))
        add_ends(m, out->mask);
    if (is_empty(m, out->mask))
        add_shortest(m, out->mask);
    out->reach = m->making.walk.reach;
    uint32_t n = m->making.walk.n_walked >= WHOLE_WORTH ? place_write(m, key) : 0;
    if (n)
        whole_keep(m->v, key, n, out);
}

/* The matcher's own mask for its place; NULL: not there. `oldest` is where it may be put. */
static struct cached_mask *find_mask(struct grammar_matcher *m, struct cached_mask **oldest)
{
    *oldest = &m->cache[0];
    for (int i = 0; i < CACHE_MASKS; i++) {
        if (is_for(&m->cache[i], m))
            return &m->cache[i];
        if (m->cache[i].used < (*oldest)->used)
            *oldest = &m->cache[i];
    }
    return NULL;
}

static void name_mask(struct grammar_matcher *m, struct cached_mask *made)
{
    made->n_items = m->n_items <= CACHE_ITEMS ? m->n_items : 0;
    for (uint32_t i = 0; i < made->n_items; i++)
        made->items[i] = key_of(m, m->items[i]);
}

/* ---- stages ---- */

static void all_begin(struct grammar_matcher *m)
{
    struct making *k = &m->making;
    struct cached_mask *oldest, *known = find_mask(m, &oldest);
    k->all = known ? known : oldest;
    k->stage = MAKING_UNIQUE;
    if (!known) {
        oldest->n_items = 0;
        if (mask_copy(m, oldest)) {
            name_mask(m, oldest);
        } else {
            walk_begin(m, oldest->mask, UINT32_MAX);
            k->stage = MAKING_ALL;
        }
    }
}

static void unique_begin(struct grammar_matcher *m)
{
    struct making *k = &m->making;
    k->all->used = ++m->clock;
    k->mask = k->all->mask;
    if (m->distinct != NULL)
        distinct_begin_mask(m, k->mask);
}

/* Whether the answer must wind up. If so, `token` is the next one of the shortest way, or
 * TOKEN_NONE. */
static bool must_hurry(struct grammar_matcher *m, uint32_t *token)
{
    const struct making *k = &m->making;
    const uint64_t *mask = k->mask;
    uint32_t cost;
    if (k->n_left >= 2 && k->n_left - 2 >= k->all->reach)
        return false;
    const struct item *shortest = find_shortest(m, &cost);
    uint32_t slack = wind_slack(m, shortest->state, shortest->count) +
                     m->frames[shortest->stack].slack;
    if (cost > (uint64_t)k->n_left + slack)
        return false;
    *token = wind_token(m, *shortest);
    if (m->distinct != NULL && *token != TOKEN_NONE && !(mask[*token / 64] >> (*token % 64) & 1))
        *token = distinct_way(m, mask);
    return *token == TOKEN_NONE || (mask[*token / 64] >> (*token % 64) & 1);
}

/* Tokens after which the end can still be reached in time, including the end token; always includes
 * the next token of the shortest way. */
static void few_finish(struct grammar_matcher *m)
{
    struct making *k = &m->making;
    if (k->token != TOKEN_NONE)
        m->few[k->token / 64] |= (uint64_t)1 << (k->token % 64);
    if (grammar_matcher_may_end(m))
        add_ends(m, m->few);
    for (uint32_t i = 0; m->distinct != NULL && i < m->v->n_words; i++)
        m->few[i] &= k->mask[i];
    m->unhurried = k->mask;
    k->mask = m->few;
}

static void few_begin(struct grammar_matcher *m)
{
    struct making *k = &m->making;
    m->unhurried = NULL;
    k->stage = MAKING_DONE;
    if (!must_hurry(m, &k->token))
        return;
    if (k->n_left >= 2) {
        walk_begin(m, m->few, k->n_left - 2);
        k->stage = MAKING_FEW;
    } else {
        memset(m->few, 0, m->v->n_words * sizeof *m->few);
        few_finish(m);
    }
}

/* Goes through the stages. False: the time is over. */
static bool make_on(struct grammar_matcher *m)
{
    struct making *k = &m->making;
    if (k->stage == MAKING_NOTHING) {
        all_begin(m);
        if (k->stage == MAKING_UNIQUE)
            unique_begin(m);
    }
    if (k->stage == MAKING_ALL) {
        if (!walk_on(m))
            return false;
        mask_finish(m, k->all);
        name_mask(m, k->all);
        k->stage = MAKING_UNIQUE;
        unique_begin(m);
    }
    if (k->stage == MAKING_UNIQUE) {
        if (m->distinct != NULL && !distinct_make_mask(m))
            return false;
        if (m->distinct != NULL)
            k->mask = m->distinct->held;
        few_begin(m);
    }
    if (k->stage == MAKING_FEW) {
        if (!walk_on(m))
            return false;
        few_finish(m);
        k->stage = MAKING_DONE;
    }
    return true;
}

static void swap_scratch(struct grammar_vocabulary *v)
{
    struct mask_scratch held = v->scratch;
    v->scratch = v->spare;
    v->spare = held;
}

void grammar_matcher_drop(struct grammar_matcher *m)
{
    struct making *k = &m->making;
    if (k->stage == MAKING_NOTHING)
        return; /* it has nothing of the vocabulary's, which belongs to another thread */
    if (k->stage == MAKING_ALL || k->stage == MAKING_FEW)
        frame_truncate(m, k->n_frames);
    k->stage = MAKING_NOTHING;
    if (m->v->paused == m)
        m->v->paused = NULL;
}

enum grammar_progress grammar_matcher_make(struct grammar_matcher *m, uint32_t n_left,
                                           uint64_t until_ns)
{
    struct grammar_vocabulary *v = m->v;
    struct making *k = &m->making;
    if (k->stage != MAKING_NOTHING && k->n_left != n_left)
        grammar_matcher_drop(m);
    if (k->stage == MAKING_DONE)
        return GRAMMAR_READY;
    if (v->paused == m)
        swap_scratch(v);
    k->n_left = n_left;
    k->until_ns = until_ns;
    if (make_on(m)) {
        if (v->paused == m)
            v->paused = NULL;
        return GRAMMAR_READY;
    }
    if (v->paused != NULL && v->paused != m) {
        grammar_matcher_drop(m);
        return GRAMMAR_BUSY;
    }
    v->paused = m;
    swap_scratch(v);
    return GRAMMAR_PAUSED;
}

const uint64_t *grammar_matcher_mask(struct grammar_matcher *m, uint32_t n_left)
{
    grammar_matcher_make(m, n_left, UINT64_MAX);
    return m->making.mask;
}

const uint64_t *grammar_matcher_unhurried(const struct grammar_matcher *m)
{
    return m->unhurried;
}
