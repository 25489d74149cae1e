/* Lists whose items all differ: what a matcher remembers about them, and what it rejects.
 *
 * Masks of states ignore this, so that all answers can share them. They contain some tokens too
 * many: those that make an item equal to an earlier one. These are found here, by trying them. Few
 * need to be tried: inside an item, those that follow the text of an earlier one, and those that
 * end the item and continue. Where an item may start or end, masks are small.
 *
 * No answer gets stuck: a token is also rejected if no new item is possible after it. */
#include <stdlib.h>
#include <string.h>

#include "prompt/grammar/grammar_internal.h"

/* Work is counted in visits to an item in a state, which take a few nanoseconds each. A search for
 * a new item gives up when the searches of a token together exceed DISTINCT_TRY_WORK, or beyond
 * PROBE_DEPTH bytes, and the list has to end. Integers, and strings without a pattern, stay within
 * the limits. When a mask exceeds DISTINCT_MASK_WORK, the tokens that it has not tried are
 * rejected.
 *
 * A matcher never gets stuck: it only goes where a search has found a way. The search goes through
 * bytes in a fixed order, and masks try tokens of one byte first, in the same order: with twice the
 * work of the search they reach its way again. */
enum { PROBE_ITEMS = 8, PROBE_DEPTH = 256 };

static struct remembered *memory_at(const struct grammar_matcher *m, uint32_t at)
{
    return &m->distinct->memory[at];
}

bool distinct_is_open(const struct grammar_matcher *m, const struct item *it)
{
    return it->memory != 0 && memory_at(m, it->memory)->part == DISTINCT_ITEM;
}

/* Equal entries are shared. 0: out of memory. */
static uint32_t memory_push(struct distinct *d, const struct remembered *r)
{
    for (size_t i = d->n_memory; i-- > r->before + 1;) {
        const struct remembered *q = &d->memory[i];
        if (q->part == r->part && q->rule == r->rule && q->before == r->before &&
            q->start == r->start && q->len == r->len)
            return (uint32_t)i;
    }
    if (d->n_memory >= UINT32_MAX ||
        !grammar_grow((void **)&d->memory, &d->cap_memory, d->n_memory, 1, sizeof *d->memory))
        return 0;
    d->memory[d->n_memory] = *r;
    return (uint32_t)d->n_memory++;
}

bool distinct_add_byte(struct grammar_matcher *m, uint8_t byte)
{
    struct distinct *d = m->distinct;
    if (!grammar_grow((void **)&d->text, &d->cap_text, d->n_text, 1, 1))
        return false;
    d->text[d->n_text++] = (char)byte;
    return true;
}

void distinct_forget(struct grammar_matcher *m)
{
    if (m->distinct == NULL)
        return;
    for (uint32_t i = 0; i < m->n_items; i++)
        if (m->items[i].memory != 0)
            return;
    m->distinct->n_memory = 1;
    m->distinct->n_text = 0;
}

/* ---- items ---- */

bool distinct_pop(struct grammar_matcher *m, const struct item *it, struct item *made)
{
    struct distinct *d = m->distinct;
    if (m->g->rules[m->g->states[it->state].rule].part != DISTINCT_ITEM)
        return true;
    if (d->is_probing)
        return false; /* a search stays in the item */
    struct remembered over = *memory_at(m, it->memory);
    over.part = DISTINCT_MORE;
    over.len = d->n_text - over.start;
    for (uint32_t i = over.before, n = 0; i != 0; i = d->memory[i].before) {
        const struct remembered *other = &d->memory[i];
        d->n_work += ++n % 8 == 0;
        if (other->part == DISTINCT_MORE && other->len == over.len &&
            memcmp(d->text + other->start, d->text + over.start, over.len) == 0)
            return false;
    }
    made->memory = memory_push(d, &over);
    return made->memory != 0;
}

static bool is_live(struct grammar_matcher *m, const struct item *it);

/* True if a new item is possible in the list. */
static bool has_more(struct grammar_matcher *m, const struct item *it)
{
    struct distinct *d = m->distinct;
    const struct remembered *last = memory_at(m, it->memory);
    if (d->is_probing || last->part != DISTINCT_MORE)
        return true;
    struct remembered open = {DISTINCT_ITEM, last->rule, it->memory, d->n_text, 0};
    uint32_t start = m->g->rules[last->rule].first_state + STATE_START;
    struct item first = {start, 0, it->stack, memory_push(d, &open)};
    return first.memory != 0 && is_live(m, &first);
}

bool distinct_call(struct grammar_matcher *m, const struct item *it, uint32_t rule,
                   struct item *made)
{
    struct distinct *d = m->distinct;
    struct remembered r = {m->g->rules[rule].part, rule, it->memory, d->n_text, 0};
    switch (r.part) {
    case DISTINCT_LIST: r.before = 0; break;
    case DISTINCT_ITEM: break;
    case DISTINCT_MORE: return has_more(m, it);
    default: return true;
    }
    made->memory = memory_push(d, &r);
    return made->memory != 0;
}

/* ---- ways out ---- */

/* The next earlier item that starts with the text of the open one; 0: none. */
static uint32_t next_alike(const struct grammar_matcher *m, const struct remembered *open,
                           uint32_t at)
{
    const struct distinct *d = m->distinct;
    size_t len = d->n_text - open->start;
    for (; at != 0; at = d->memory[at].before) {
        const struct remembered *other = &d->memory[at];
        if (other->part == DISTINCT_MORE && other->len >= len &&
            memcmp(d->text + other->start, d->text + open->start, len) == 0)
            return at;
    }
    return 0;
}

bool distinct_is_alike(const struct grammar_matcher *m, const struct item *it)
{
    if (!distinct_is_open(m, it))
        return false;
    const struct remembered *open = memory_at(m, it->memory);
    return next_alike(m, open, open->before) != 0;
}

/* True if the text so far is a complete item. */
static bool can_end(const struct grammar_matcher *m, const struct item *it)
{
    struct item at = *it;
    while (state_may_end(m->g, at.state, at.count)) {
        struct item popped;
        if (m->g->rules[m->g->states[at.state].rule].part == DISTINCT_ITEM)
            return true;
        if (!item_pop(m, &at, &popped))
            break;
        at = popped;
    }
    return false;
}

/* True if some reading continues with the byte, or might. */
static bool may_lead(const struct grammar_matcher *m, const struct item *items, uint32_t n,
                     uint32_t byte)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct grammar_rule *r = &m->g->rules[m->g->states[items[i].state].rule];
        size_t row = (size_t)(items[i].state - r->first_state) * r->n_classes;
        if (r->next[row + r->class_of[byte]] != 0)
            return true;
    }
    return false;
}

/* Moves the items that have `byte` at `at` to the front; returns their number. */
static uint32_t alike_select(const struct distinct *d, uint32_t *alike, uint32_t n, size_t at,
                             uint32_t byte)
{
    uint32_t n_front = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct remembered *other = &d->memory[alike[i]];
        if (other->len <= at || (uint8_t)d->text[other->start + at] != byte)
            continue;
        uint32_t swap = alike[n_front];
        alike[n_front++] = alike[i];
        alike[i] = swap;
    }
    return n_front;
}

/* True if the open item, with these readings, can become a new one. `alike` has the earlier items
 * that start with its text. Every byte that none of them has at this place leads to a new item. */
static bool can_differ(struct grammar_matcher *m, const struct item *items, uint32_t n,
                       uint32_t depth, uint32_t *alike, uint32_t n_alike)
{
    struct distinct *d = m->distinct;
    size_t len = d->n_text - memory_at(m, items[0].memory)->start;
    bool is_taken[256] = {false}, is_there = false;
    if (n_alike == 0)
        return true;
    d->n_work += 16 * (uint64_t)n + n_alike / 8;
    if (depth > PROBE_DEPTH || d->n_work > d->work_max)
        return false;
    for (uint32_t i = 0; i < n_alike; i++) {
        const struct remembered *other = &d->memory[alike[i]];
        if (other->len > len)
            is_taken[(uint8_t)d->text[other->start + len]] = true;
        else
            is_there = true;
    }
    for (uint32_t i = 0; i < n && !is_there; i++)
        if (can_end(m, &items[i]))
            return true;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t byte = (i + '0') % 256;
        if (!is_taken[byte] && may_lead(m, items, n, byte) &&
            matcher_step(m, items, n, (uint8_t)byte) > 0)
            return true;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        struct item on[PROBE_ITEMS];
        uint32_t n_on = 0, n_next = is_taken[byte] ? matcher_step(m, items, n, (uint8_t)byte) : 0;
        for (uint32_t i = 0; i < n_next && n_on < PROBE_ITEMS; i++)
            if (m->next[i].memory == items[0].memory)
                on[n_on++] = m->next[i];
        if (n_on == 0 || !distinct_add_byte(m, (uint8_t)byte))
            continue;
        uint32_t n_front = alike_select(d, alike, n_alike, len, byte);
        bool differs = can_differ(m, on, n_on, depth + 1, alike, n_front);
        d->n_text--;
        if (differs)
            return true;
    }
    return false;
}

/* The earlier items that begin with the text of the open one; false: no memory. */
static bool alike_collect(struct grammar_matcher *m, const struct item *it, uint32_t *n)
{
    struct distinct *d = m->distinct;
    const struct remembered *open = memory_at(m, it->memory);
    size_t len = d->n_text - open->start;
    uint32_t n_looked = 0;
    *n = 0;
    for (uint32_t i = open->before; i != 0; i = d->memory[i].before, n_looked++) {
        const struct remembered *other = &d->memory[i];
        if (other->part != DISTINCT_MORE || other->len < len ||
            memcmp(d->text + other->start, d->text + open->start, len) != 0)
            continue;
        if (!grammar_grow((void **)&d->alike, &d->cap_alike, *n, 1, sizeof *d->alike))
            return false;
        d->alike[(*n)++] = i;
    }
    d->n_work += 1 + n_looked / 8;
    return true;
}

static bool is_live(struct grammar_matcher *m, const struct item *it)
{
    struct distinct *d = m->distinct;
    struct item *next = m->next;
    struct closure *closure = m->closure;
    uint32_t n_frames = m->n_frames, n_alike;
    size_t n_memory = d->n_memory;
    uint64_t begin = d->n_work;
    if (!alike_collect(m, it, &n_alike))
        return false;
    d->work_max = begin + d->search_left;
    d->is_probing = true;
    m->next = d->next;
    m->closure = d->closure;
    bool differs = can_differ(m, it, 1, 0, d->alike, n_alike);
    m->next = next;
    m->closure = closure;
    d->is_probing = false;
    d->n_memory = n_memory;
    d->search_left -= d->n_work - begin < d->search_left ? d->n_work - begin : d->search_left;
    frame_truncate(m, n_frames);
    return differs;
}

void distinct_begin_try(struct grammar_matcher *m)
{
    if (m->distinct != NULL)
        m->distinct->search_left = DISTINCT_TRY_WORK;
}

uint32_t distinct_keep_live(struct grammar_matcher *m, struct item *items, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!distinct_is_open(m, &items[i]) || is_live(m, &items[i]))
            items[kept++] = items[i];
    return kept;
}

/* ---- masks ---- */

static void merge(const struct grammar_matcher *m, uint64_t *to, const uint64_t *from)
{
    for (uint32_t i = 0; i < m->v->n_words; i++)
        to[i] |= from[i];
}

static void suspect(struct grammar_matcher *m, uint32_t node)
{
    const struct token_trie *t = &m->v->trie;
    if (t->nodes[node].token == t->none)
        return;
    for (uint32_t token = t->nodes[node].token; token != TOKEN_NONE; token = t->same[token])
        m->distinct->suspects[token / 64] |= (uint64_t)1 << (token % 64);
}

/* Adds tokens that are a prefix of the bytes, and tokens that start with all of them. */
static void suspect_along(struct grammar_matcher *m, const char *bytes, size_t len)
{
    const struct token_trie *t = &m->v->trie;
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        uint32_t end = t->nodes[node].skip;
        for (node++; node < end && t->nodes[node].byte != (uint8_t)bytes[i];)
            node = t->nodes[node].skip;
        if (node >= end)
            return;
        suspect(m, node);
    }
    for (uint32_t i = node; i < t->nodes[node].skip; i++)
        suspect(m, i);
}

static void suspect_for(struct grammar_matcher *m, const struct item *it, const uint64_t *mask)
{
    const struct distinct *d = m->distinct;
    if (!distinct_is_open(m, it) || can_end(m, it)) {
        merge(m, d->suspects, it->memory != 0 ? mask : d->opening);
        return;
    }
    const struct remembered *open = memory_at(m, it->memory);
    size_t len = d->n_text - open->start;
    merge(m, d->suspects, d->several);
    for (uint32_t i = next_alike(m, open, open->before); i != 0;
         i = next_alike(m, open, d->memory[i].before)) {
        const struct remembered *other = &d->memory[i];
        suspect_along(m, d->text + other->start + len, other->len - len);
    }
}

static bool token_is_taken(struct grammar_matcher *m, uint32_t token)
{
    const struct grammar_vocabulary *v = m->v;
    uint32_t at = v->offsets[token], len = v->offsets[token + 1] - at;
    uint64_t distance;
    if (v->kinds[token] != 0)
        return true;
    return m->distinct->n_work < DISTINCT_MASK_WORK &&
           matcher_tries(m, v->bytes + at, len, &distance);
}

/* Tries a suspect, once. */
static void suspect_try(struct grammar_matcher *m, uint32_t token)
{
    struct distinct *d = m->distinct;
    uint64_t bit = (uint64_t)1 << (token % 64);
    d->suspects[token / 64] &= ~bit;
    if (!token_is_taken(m, token))
        d->held[token / 64] &= ~bit;
}

void distinct_begin_mask(struct grammar_matcher *m, const uint64_t *mask)
{
    struct distinct *d = m->distinct;
    uint32_t n_words = m->v->n_words;
    d->n_work = 0;
    memset(d->suspects, 0, n_words * sizeof *d->suspects);
    memcpy(d->held, mask, n_words * sizeof *d->held);
    for (uint32_t i = 0; i < m->n_items; i++)
        suspect_for(m, &m->items[i], mask);
    for (uint32_t i = 0; i < n_words; i++)
        d->suspects[i] &= mask[i];
}

/* A suspect that has been tried is none any more, so this can begin anew after each pause. */
bool distinct_make_mask(struct grammar_matcher *m)
{
    struct distinct *d = m->distinct;
    const struct token_trie *t = &m->v->trie;
    for (uint32_t node = 1; node < t->n_nodes; node = t->nodes[node].skip) {
        uint32_t token = t->nodes[node].token;
        if (token == t->none || !(d->suspects[token / 64] >> (token % 64) & 1))
            continue;
        suspect_try(m, token);
        if (making_is_late(m))
            return false;
    }
    for (uint32_t i = 0; i < m->v->n_words; i++) {
        while (d->suspects[i] != 0) {
            suspect_try(m, 64 * i + (uint32_t)__builtin_ctzll(d->suspects[i]));
            if (making_is_late(m))
                return false;
        }
    }
    return true;
}

/* The shortest way leads to an item that already exists: one byte leads out of it. */
uint32_t distinct_way(struct grammar_matcher *m, const uint64_t *mask)
{
    const struct token_trie *t = &m->v->trie;
    uint32_t way = TOKEN_NONE;
    uint64_t nearest = UINT64_MAX;
    m->distinct->n_work = 0;
    for (uint32_t node = 1; node < t->n_nodes; node = t->nodes[node].skip) {
        uint32_t token = t->nodes[node].token;
        uint64_t distance;
        if (token == t->none || !(mask[token / 64] >> (token % 64) & 1) ||
            m->distinct->n_work > DISTINCT_MASK_WORK ||
            !matcher_tries(m, (const char *)&t->nodes[node].byte, 1, &distance))
            continue;
        if (distance < nearest) {
            nearest = distance;
            way = token;
        }
    }
    return way;
}

/* ---- life ---- */

/* Tokens with a byte of the first set and, later, one of the second. */
static void find_tokens(const struct grammar_vocabulary *v, const struct byte_set *first,
                        const struct byte_set *second, uint64_t *out)
{
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        uint32_t at = v->offsets[i], end = v->offsets[i + 1];
        while (at < end && !byte_set_has(first, (uint8_t)v->bytes[at]))
            at++;
        for (at++; at < end; at++)
            if (byte_set_has(second, (uint8_t)v->bytes[at]))
                out[i / 64] |= (uint64_t)1 << (i % 64);
    }
}

/* Adds the bytes that can be the last of an item. */
static void find_last(const struct grammar *g, const struct grammar_rule *r, struct byte_set *out)
{
    for (uint32_t i = 0; i < r->n_states; i++) {
        const struct grammar_state *s = &g->states[r->first_state + i];
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t next = r->next[(size_t)i * r->n_classes + r->class_of[b]] & STATE_MASK;
            if (g->states[r->first_state + next].flags & STATE_FINAL)
                byte_set_add(out, b);
        }
        for (uint32_t k = s[0].calls; k < s[1].calls; k++)
            if (g->calls[k].back == GRAMMAR_TAIL ||
                (g->states[g->calls[k].back].flags & STATE_FINAL))
                memset(out->bits, 0xff, 256 / 8);
    }
}

int distinct_open(struct grammar_matcher *m, struct error *err)
{
    const struct grammar *g = m->g;
    struct distinct *d = m->distinct = calloc(1, sizeof *d);
    struct byte_set first[DISTINCT_MORE + 1] = {0}, last = {0};
    uint32_t n_words = m->v->n_words;
    if (d != NULL) {
        d->next = malloc(ITEMS_MAX * sizeof *d->next);
        d->closure = calloc(1, sizeof *d->closure);
        d->opening = calloc(n_words, sizeof *d->opening);
        d->several = calloc(n_words, sizeof *d->several);
        d->suspects = calloc(n_words, sizeof *d->suspects);
        d->held = calloc(n_words, sizeof *d->held);
    }
    if (d == NULL || d->next == NULL || d->closure == NULL || d->opening == NULL ||
        d->several == NULL || d->suspects == NULL || d->held == NULL ||
        !grammar_grow((void **)&d->memory, &d->cap_memory, 0, 1, sizeof *d->memory))
        return error_set(err, ERROR_MEMORY, "no memory for a grammar's matcher");
    d->n_memory = 1;
    for (uint32_t i = 0; i < g->n_rules; i++) {
        byte_set_merge(&first[g->rules[i].part], &g->rules[i].first);
        if (g->rules[i].part == DISTINCT_ITEM)
            find_last(g, &g->rules[i], &last);
    }
    find_tokens(m->v, &first[DISTINCT_LIST], &first[DISTINCT_MORE], d->opening);
    find_tokens(m->v, &last, &first[DISTINCT_MORE], d->several);
    return 0;
}

void distinct_close(struct distinct *d)
{
    if (d == NULL)
        return;
    free(d->memory);
    free(d->text);
    free(d->alike);
    free(d->next);
    free(d->closure);
    free(d->opening);
    free(d->several);
    free(d->suspects);
    free(d->held);
    free(d);
}
