/* Which tokens a state allows: walks over the trie of the vocabulary.
 *
 * A walk follows one automaton through all tokens that stay in it. Where a byte could leave the
 * automaton (the end of a rule, a call), the place is recorded and the stack decides later, in
 * mask.c. So the result of a walk does not depend on the stack; if the walk was long, it is kept as
 * a base mask. Rules with equal tables share base masks, even across grammars. A counted rule's
 * base mask also says how many rounds each token takes, and serves all counts.
 *
 * Used only on the scheduler's thread, because it writes to the vocabulary's store and scratch. */
#include <string.h>

#include "base/hash.h"
#include "prompt/grammar/grammar_internal.h"

static void set_token(uint64_t *mask, uint32_t token)
{
    mask[token / 64] |= (uint64_t)1 << (token % 64);
}

static void set_tokens(uint64_t *mask, const struct token_trie *t, uint32_t token)
{
    for (; token != TOKEN_NONE; token = t->same[token])
        set_token(mask, token);
}

/* ---- walks without a stack ---- */

/* Completes the result of a walk: tokens with the same bytes as others, and the states that tokens
 * end in. */
static void finish_walk(struct grammar_vocabulary *v, const struct grammar_rule *r,
                        struct base_mask *out)
{
    struct mask_scratch *s = &v->scratch;
    for (uint32_t i = v->trie.n_pairs; i-- > 0;) {
        const struct token_pair *p = &v->trie.pairs[i];
        if (!(out->mask[p->token / 64] >> (p->token % 64) & 1))
            continue;
        set_token(out->mask, p->same);
        if (out->need != NULL)
            out->need[p->same] = out->need[p->token];
    }
    for (uint32_t i = 0; i < r->n_states; i++)
        if (s->is_end[i])
            s->ends[out->n_ends++] = (uint16_t)i;
    memset(s->is_end, 0, r->n_states);
}

/* The inner loop of masks: a step takes a few nanoseconds. Whether a token ends at a node cannot be
 * predicted, so it always sets a bit. Leaves at the first byte of a token are not recorded, because
 * the configuration already has the results of ends and calls as separate items. */
static uint32_t walk_all(struct grammar_vocabulary *v, const struct grammar_rule *r,
                         struct base_mask *out)
{
    const struct token_trie *t = &v->trie;
    struct mask_scratch *s = &v->scratch;
    const uint16_t *next = r->next;
    const uint32_t n_classes = r->n_classes, n_nodes = t->n_nodes, none = t->none;
    uint64_t *mask = out->mask;
    uint16_t *states = s->states;
    uint32_t n_walked = 0, n_leaves = 0;
    states[0] = (uint16_t)out->state;
    for (uint32_t i = 1; i < n_nodes;) {
        const struct trie_node *node = &t->nodes[i];
        uint32_t depth = node->depth, from = states[depth - 1], token = node->token;
        uint32_t entry = next[from * n_classes + r->class_of[node->byte]];
        uint32_t to = entry & STATE_MASK;
        n_walked++;
        if ((entry & STATE_LEAVES) && depth > 1)
            s->leaves[n_leaves++] = (struct leave){i, (uint16_t)from, 0, node->byte};
        if (to == 0) {
            i = node->skip;
            continue;
        }
        states[depth] = (uint16_t)to;
        mask[token / 64] |= (uint64_t)1 << (token % 64);
        s->is_end[to] |= token != none;
        i++;
    }
    out->n_leaves = n_leaves;
    return n_walked;
}

static void note_many(struct grammar_vocabulary *v, struct base_mask *out, uint32_t token,
                      uint32_t need)
{
    for (; token != v->trie.none && token != TOKEN_NONE; token = v->trie.same[token])
        v->scratch.many[out->n_many++] = (struct token_need){token, need};
}

/* The same for a counted rule, as if every count were allowed. */
static uint32_t walk_all_counted(struct grammar_vocabulary *v, const struct grammar_rule *r,
                                 struct base_mask *out)
{
    const struct token_trie *t = &v->trie;
    struct mask_scratch *s = &v->scratch;
    uint32_t n_walked = 0, n_leaves = 0, max_need = 0;
    memset(out->need, NEED_MANY, (size_t)v->n_words * 64);
    s->states[0] = (uint16_t)out->state;
    s->counts[0] = 0;
    for (uint32_t i = 1; i < t->n_nodes;) {
        const struct trie_node *node = &t->nodes[i];
        uint32_t depth = node->depth, from = s->states[depth - 1], rounds = s->counts[depth - 1];
        uint32_t entry = r->next[from * r->n_classes + r->class_of[node->byte]];
        uint32_t to = entry & STATE_MASK, token = node->token;
        n_walked++;
        if ((entry & STATE_LEAVES) && depth > 1)
            s->leaves[n_leaves++] = (struct leave){i, (uint16_t)from, (uint16_t)rounds, node->byte};
        if (to == 0) {
            i = node->skip;
            continue;
        }
        rounds += to == STATE_START;
        s->states[depth] = (uint16_t)to;
        s->counts[depth] = rounds;
        uint32_t need = rounds + (to != STATE_START);
        max_need = need > max_need ? need : max_need;
        out->mask[token / 64] |= (uint64_t)1 << (token % 64);
        out->need[token] = (uint8_t)(need < NEED_MANY ? need : NEED_MANY);
        if (need >= NEED_MANY)
            note_many(v, out, token, need);
        s->is_end[to] |= token != t->none;
        i++;
    }
    out->n_leaves = n_leaves;
    out->max_need = max_need;
    return n_walked;
}

/* ---- the store ---- */

static void store_clear(struct mask_store *s)
{
    s->generation++;
    s->pool_used = 0;
    s->n_automata = s->n_masks = 0;
    memset(s->index, 0, STORE_INDEX * sizeof *s->index);
}

static void *store_copy(struct mask_store *s, const void *from, size_t size)
{
    void *to = s->pool + s->pool_used;
    if (size > 0)
        memcpy(to, from, size);
    s->pool_used += (size + 7) / 8 * 8;
    return to;
}

static bool is_copy_of(const struct automaton_copy *a, const struct grammar_rule *r)
{
    return a->hash == r->hash && a->n_states == r->n_states && a->n_classes == r->n_classes &&
           a->is_counted == r->is_counted &&
           memcmp(a->class_of, r->class_of, sizeof r->class_of) == 0 &&
           memcmp(a->next, r->next, (size_t)r->n_states * r->n_classes * sizeof *r->next) == 0;
}

static size_t copy_size(const struct grammar_rule *r)
{
    return sizeof r->class_of + (size_t)r->n_states * r->n_classes * sizeof *r->next + 16;
}

/* The number of the rule's table in the store, or UINT32_MAX. */
static uint32_t find_automaton(struct grammar_matcher *m, uint32_t rule)
{
    struct mask_store *s = &m->v->store;
    const struct grammar_rule *r = &m->g->rules[rule];
    if (m->generation != s->generation) {
        memset(m->automata, 0xff, m->g->n_rules * sizeof *m->automata);
        m->generation = s->generation;
    }
    for (uint32_t i = 0; i < s->n_automata && m->automata[rule] == UINT32_MAX; i++)
        if (is_copy_of(&s->automata[i], r))
            m->automata[rule] = i;
    return m->automata[rule];
}

static void add_automaton(struct grammar_matcher *m, uint32_t rule)
{
    struct mask_store *s = &m->v->store;
    const struct grammar_rule *r = &m->g->rules[rule];
    size_t entries = (size_t)r->n_states * r->n_classes;
    m->automata[rule] = s->n_automata;
    s->automata[s->n_automata++] = (struct automaton_copy){
        .hash = r->hash,
        .n_states = r->n_states,
        .n_classes = r->n_classes,
        .is_counted = r->is_counted,
        .class_of = store_copy(s, r->class_of, sizeof r->class_of),
        .next = store_copy(s, r->next, entries * sizeof *r->next),
    };
}

static uint32_t *index_slot(struct mask_store *s, uint32_t automaton, uint32_t state)
{
    size_t at = hash_pair(automaton, state) % STORE_INDEX;
    for (; s->index[at] != 0; at = (at + 1) % STORE_INDEX) {
        const struct base_mask *mask = &s->masks[s->index[at] - 1];
        if (mask->automaton == automaton && mask->state == state)
            break;
    }
    return &s->index[at];
}

/* Keeps a copy of what was found, if it fits at all; clears the store if it is full. */
static void keep_base(struct grammar_matcher *m, uint32_t rule, const struct base_mask *found)
{
    struct mask_store *s = &m->v->store;
    size_t mask_size = m->v->n_words * sizeof *found->mask;
    size_t need_size = found->need != NULL ? (size_t)m->v->n_words * 64 : 0;
    size_t size = mask_size + need_size + found->n_leaves * sizeof *found->leaves +
                  found->n_ends * sizeof *found->ends + found->n_many * sizeof *found->many + 40;
    size_t with_copy = size + copy_size(&m->g->rules[rule]);
    if (with_copy > s->pool_bytes)
        return;
    uint32_t automaton = find_automaton(m, rule);
    if (s->n_masks == STORE_MASKS || s->n_automata == STORE_AUTOMATA ||
        s->pool_used + with_copy > s->pool_bytes) {
        store_clear(s);
        automaton = find_automaton(m, rule);
    }
    if (automaton == UINT32_MAX) {
        add_automaton(m, rule);
        automaton = m->automata[rule];
    }
    struct base_mask *kept = &s->masks[s->n_masks];
    *kept = *found;
    kept->automaton = automaton;
    kept->mask = store_copy(s, found->mask, mask_size);
    kept->leaves = store_copy(s, found->leaves, found->n_leaves * sizeof *found->leaves);
    kept->many = store_copy(s, found->many, found->n_many * sizeof *found->many);
    kept->need = need_size > 0 ? store_copy(s, found->need, need_size) : NULL;
    kept->ends = store_copy(s, found->ends, found->n_ends * sizeof *found->ends);
    *index_slot(s, automaton, found->state) = ++s->n_masks;
}

/* The base mask of a state, from the store or made in `made`. */
static const struct base_mask *find_base(struct grammar_matcher *m, uint32_t rule, uint32_t local,
                                         struct base_mask *made)
{
    struct grammar_vocabulary *v = m->v;
    const struct grammar_rule *r = &m->g->rules[rule];
    uint32_t automaton = find_automaton(m, rule);
    if (automaton != UINT32_MAX) {
        uint32_t slot = *index_slot(&v->store, automaton, local);
        if (slot != 0)
            return &v->store.masks[slot - 1];
    }
    *made = (struct base_mask){.state = local,
                               .mask = v->scratch.mask,
                               .leaves = v->scratch.leaves,
                               .ends = v->scratch.ends,
                               .many = v->scratch.many,
                               .need = r->is_counted ? v->scratch.need : NULL};
    memset(made->mask, 0, (v->n_words + 1) * sizeof *made->mask);
    uint32_t n_walked = r->is_counted ? walk_all_counted(v, r, made) : walk_all(v, r, made);
    finish_walk(v, r, made);
    if (n_walked >= v->store.worth)
        keep_base(m, rule, made);
    return made;
}

/* ---- with a stack ---- */

void walk_append(struct grammar_matcher *m, const struct pending *p)
{
    struct mask_scratch *s = &m->v->scratch;
    if (s->n_pending < s->max_pending)
        s->pending[s->n_pending++] = *p;
}

/* A walk that checks everything: counts, the depth of the stack, the cost of the way to the end. It
 * visits the nodes from `begin` to before `end`, the first of which are at `depth_first`. */
static void walk_checked(struct grammar_matcher *m, const struct item *it, uint32_t begin,
                         uint32_t end, uint32_t depth_first, struct walk *w)
{
    const struct token_trie *t = &m->v->trie;
    const struct grammar *g = m->g;
    struct mask_scratch *s = &m->v->scratch;
    const struct grammar_rule *r = &g->rules[g->states[it->state].rule];
    const uint32_t base = r->first_state, below = m->frames[it->stack].cost;
    s->states[depth_first - 1] = (uint16_t)(it->state - base);
    s->counts[depth_first - 1] = it->count;
    for (uint32_t i = begin; i < end;) {
        const struct trie_node *node = &t->nodes[i];
        uint32_t depth = node->depth, from = s->states[depth - 1], count = s->counts[depth - 1];
        uint32_t entry = r->next[from * r->n_classes + r->class_of[node->byte]];
        uint32_t to = entry & STATE_MASK;
        w->n_walked++;
        if ((entry & STATE_LEAVES) && depth > 1)
            walk_append(m, &(struct pending){i, node->byte, base + from, count, it->stack});
        if (to == 0 || !state_is_open(r, from, count) || !item_fits(m, base + to, it->stack)) {
            i = node->skip;
            continue;
        }
        count = count_after(r, to, count);
        s->states[depth] = (uint16_t)to;
        s->counts[depth] = count;
        if (node->token != t->none) {
            uint32_t cost = wind_cost(m, base + to, count) + below;
            if (cost <= w->limit) {
                set_tokens(w->mask, t, node->token);
                w->reach = cost > w->reach ? cost : w->reach;
            }
        }
        i++;
    }
}

void walk_subtree(struct grammar_matcher *m, const struct item *it, uint32_t node, struct walk *w)
{
    const struct token_trie *t = &m->v->trie;
    walk_checked(m, it, node, t->nodes[node].skip, t->nodes[node].depth, w);
}

/* Adds, eight tokens at a time, those that need at most `rounds`, which is less than NEED_MANY. */
static void merge_counted(uint64_t *mask, const struct base_mask *base, uint32_t n_words,
                          uint32_t rounds)
{
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t most = ones * (0x80 + rounds);
    for (uint32_t i = 0; i < n_words; i++) {
        uint64_t word = 0;
        for (uint32_t k = 0; k < 8; k++) {
            uint64_t need;
            memcpy(&need, base->need + (size_t)i * 64 + k * 8, sizeof need);
            uint64_t fits = (most - need) >> 7 & ones;
            word |= fits * 0x0102040810204080u >> 56 << (8 * k);
        }
        mask[i] |= word;
    }
}

/* The highest cost of the shortest way to the end after one of the base mask's tokens. */
static uint32_t base_reach(const struct grammar_matcher *m, const struct grammar_rule *r,
                           const struct base_mask *base, const struct item *it)
{
    uint32_t reach = 0;
    for (uint32_t i = 0; i < base->n_ends; i++) {
        uint32_t cost = wind_cost(m, r->first_state + base->ends[i], it->count);
        reach = cost > reach ? cost : reach;
    }
    return reach + m->frames[it->stack].cost;
}

static void merge_base(struct grammar_matcher *m, const struct grammar_rule *r,
                       const struct base_mask *base, const struct item *it, struct walk *w)
{
    const uint32_t n_words = m->v->n_words;
    uint32_t rounds = UINT32_MAX;
    if (r->is_counted && r->max != GRAMMAR_NO_MAX)
        rounds = r->max - it->count;
    if (base->need == NULL || rounds >= base->max_need) {
        for (uint32_t i = 0; i < n_words; i++)
            w->mask[i] |= base->mask[i];
    } else {
        merge_counted(w->mask, base, n_words, rounds < NEED_MANY ? rounds : NEED_MANY - 1);
        for (uint32_t i = 0; i < base->n_many; i++)
            if (base->many[i].need <= rounds)
                set_token(w->mask, base->many[i].token);
    }
    for (uint32_t i = 0; i < base->n_leaves; i++) {
        const struct leave *l = &base->leaves[i];
        if (l->rounds > rounds)
            continue;
        uint32_t count = it->count + l->rounds;
        if (r->is_counted && r->max == GRAMMAR_NO_MAX && count > r->min)
            count = r->min;
        walk_append(
            m, &(struct pending){l->node, l->byte, r->first_state + l->state, count, it->stack});
    }
}

void walk_item(struct grammar_matcher *m, const struct item *it, struct walk *w)
{
    const struct grammar *g = m->g;
    const struct grammar_state *s = &g->states[it->state];
    const struct grammar_rule *r = &g->rules[s->rule];
    uint32_t local = it->state - r->first_state;
    struct base_mask made;
    if (!(s->flags & STATE_HAS_BYTES) || !state_is_open(r, local, it->count))
        return;
    bool is_deep = m->frames[it->stack].depth + g->max_height > GRAMMAR_DEPTH_MAX;
    if (!is_deep && r->is_wide) {
        const struct base_mask *base = find_base(m, s->rule, local, &made);
        uint32_t reach = base_reach(m, r, base, it);
        if (reach <= w->limit) {
            merge_base(m, r, base, it, w);
            w->reach = reach > w->reach ? reach : w->reach;
            return;
        }
    }
    walk_checked(m, it, 1, m->v->trie.n_nodes, 1, w);
}
