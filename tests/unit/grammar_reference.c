/* The reference of grammar_reference.h: recursion over expressions with memoized results, and
 * random grammars. */
#include "grammar_reference.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/utf8.h"

uint32_t ref_random(uint64_t *seed, uint32_t below)
{
    return (uint32_t)((hash_mix(++*seed) >> 32) % below);
}

/* ---- what it matches ---- */

static bool in_class(const struct ref_expr *e, uint32_t code)
{
    bool in = false;
    for (unsigned i = 0; i < e->n_ranges; i++)
        in = in || (code >= e->ranges[i].first && code <= e->ranges[i].last);
    return in != e->negated && (code < 0xd800 || code > 0xdfff);
}

/* Whether a code point from `first` to `last` is in the class; it is enough to check the edges. */
static bool has_code(const struct ref_expr *e, uint32_t first, uint32_t last)
{
    uint32_t edges[12] = {first, last, 0xd7ff, 0xe000};
    unsigned n = 4;
    for (unsigned i = 0; i < e->n_ranges; i++) {
        edges[n++] = e->ranges[i].first;
        edges[n++] = e->ranges[i].last;
        edges[n++] = e->ranges[i].first - 1;
        edges[n++] = e->ranges[i].last + 1;
    }
    for (unsigned i = 0; i < n; i++)
        if (edges[i] >= first && edges[i] <= last && in_class(e, edges[i]))
            return true;
    return false;
}

/* How `n` bytes begin the encoding of a code point in the class: 2 if they are all of it, 1 a part,
 * 0 not at all. */
static int class_prefix(const struct ref_expr *e, const char *bytes, unsigned n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char lead = (unsigned char)bytes[0];
    unsigned width = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (width == 0 || n > width || lead > 0xf4)
        return 0;
    uint32_t first = width == 1 ? lead : lead & (0x7fu >> width), last = first;
    for (unsigned i = 1; i < width; i++) {
        if (i < n && ((unsigned char)bytes[i] & 0xc0) != 0x80)
            return 0;
        first = first << 6 | (i < n ? bytes[i] & 0x3f : 0);
        last = last << 6 | (i < n ? bytes[i] & 0x3f : 0x3f);
    }
    if (first < least[width])
        first = least[width];
    if (last > 0x10ffff)
        last = 0x10ffff;
    return has_code(e, first, last) ? (n == width ? 2 : 1) : 0;
}

static struct ref_memo *look(struct ref_grammar *r, unsigned at, unsigned from);

static void look_class(struct ref_grammar *r, const struct ref_expr *e, unsigned from,
                       struct ref_memo *m)
{
    char bytes[4];
    for (unsigned n = 0; n < 4 && from + n < r->len && r->text[from + n] < SYMBOL_NAMED; n++) {
        bytes[n] = (char)r->text[from + n];
        int how = class_prefix(e, bytes, n + 1);
        if (how == 2)
            m->ends |= (uint64_t)1 << (from + n + 1);
        if (how == 1 && from + n + 1 == r->len)
            m->is_alive = true;
    }
}

static void look_sequence(struct ref_grammar *r, const struct ref_expr *e, unsigned from,
                          struct ref_memo *m)
{
    uint64_t places = (uint64_t)1 << from;
    for (unsigned k = 0; k < e->n_parts; k++) {
        uint64_t next = 0;
        for (unsigned i = from; i <= r->len; i++) {
            if (!(places >> i & 1))
                continue;
            const struct ref_memo *part = look(r, e->parts[k], i);
            next |= part->ends;
            m->is_alive = m->is_alive || part->is_alive;
        }
        places = next;
    }
    m->ends = places;
}

static void look_repeat(struct ref_grammar *r, const struct ref_expr *e, unsigned from,
                        struct ref_memo *m)
{
    uint64_t places = (uint64_t)1 << from;
    uint64_t most = (uint64_t)e->min + REF_TEXT_MAX + 1;
    if (e->min == 0)
        m->ends = places;
    if (e->max < most)
        most = e->max;
    for (uint64_t k = 1; k <= most && places != 0 && r->exprs[e->parts[0]].is_productive; k++) {
        uint64_t next = 0;
        for (unsigned i = from; i <= r->len; i++) {
            if (!(places >> i & 1))
                continue;
            const struct ref_memo *part = look(r, e->parts[0], i);
            next |= part->ends;
            m->is_alive = m->is_alive || part->is_alive;
        }
        places = next;
        if (k >= e->min)
            m->ends |= places;
    }
}

static struct ref_memo *look(struct ref_grammar *r, unsigned at, unsigned from)
{
    const struct ref_expr *e = &r->exprs[at];
    struct ref_memo *m = &r->memo[at][from];
    if (m->is_known)
        return m;
    *m = (struct ref_memo){.is_known = true};
    if (!e->is_productive)
        return m;
    m->is_alive = from == r->len;
    unsigned n = 0;
    switch (e->kind) {
    case REF_EMPTY: m->ends = (uint64_t)1 << from; break;
    case REF_LITERAL:
        while (e->literal[n] && from + n < r->len && r->text[from + n] == (uint8_t)e->literal[n])
            n++;
        if (e->literal[n] == 0)
            m->ends = (uint64_t)1 << (from + n);
        else
            m->is_alive = from + n == r->len;
        break;
    case REF_CLASS: look_class(r, e, from, m); break;
    case REF_TOKEN:
        if (from < r->len && r->text[from] == SYMBOL_NAMED + e->token)
            m->ends = (uint64_t)1 << (from + 1);
        break;
    case REF_SEQUENCE: look_sequence(r, e, from, m); break;
    case REF_CHOICE:
    case REF_RULE:
        for (unsigned k = 0; k < e->n_parts; k++) {
            const struct ref_memo *part = look(r, e->parts[k], from);
            m->ends |= part->ends;
            m->is_alive = m->is_alive || part->is_alive;
        }
        break;
    case REF_REPEAT: look_repeat(r, e, from, m); break;
    case REF_NEVER: break;
    }
    return m;
}

static const struct ref_memo *look_at_text(struct ref_grammar *r, const uint16_t *text,
                                           unsigned len)
{
    for (unsigned i = 0; i < r->n_exprs; i++)
        for (unsigned k = 0; k <= len; k++)
            r->memo[i][k].is_known = false;
    for (unsigned i = 0; i < len; i++)
        r->text[i] = text[i];
    r->len = len;
    return look(r, r->root, 0);
}

bool ref_can_go_on(struct ref_grammar *r, const uint16_t *text, unsigned len)
{
    const struct ref_memo *m = look_at_text(r, text, len);
    return m->is_alive || (m->ends >> len & 1);
}

bool ref_matches(struct ref_grammar *r, const uint16_t *text, unsigned len)
{
    return look_at_text(r, text, len)->ends >> len & 1;
}

/* ---- what it is like ---- */

static void find_traits(struct ref_grammar *r)
{
    for (unsigned round = 0; round <= r->n_exprs; round++) {
        for (unsigned i = 1; i < r->n_exprs; i++) {
            struct ref_expr *e = &r->exprs[i];
            bool all = true, all_null = true, any = false, any_null = false, any_text = false;
            for (unsigned k = 0; k < e->n_parts; k++) {
                const struct ref_expr *p = &r->exprs[e->parts[k]];
                all = all && p->is_productive;
                all_null = all_null && p->is_nullable;
                any = any || p->is_productive;
                any_null = any_null || p->is_nullable;
                any_text = any_text || p->has_text;
            }
            bool is_list = e->kind == REF_SEQUENCE || e->kind == REF_RULE;
            bool is_repeat = e->kind == REF_REPEAT;
            e->is_productive = is_list                 ? all
                               : e->kind == REF_CHOICE ? any
                               : is_repeat             ? any || e->min == 0
                                                       : e->kind != REF_NEVER;
            e->has_text = e->n_parts == 0 ? e->kind != REF_EMPTY && e->kind != REF_NEVER &&
                                                e->kind != REF_SEQUENCE
                                          : any_text && (all || !is_list);
            e->is_nullable = is_list                 ? all && all_null
                             : e->kind == REF_CHOICE ? any_null
                             : is_repeat             ? any_null || e->min == 0
                                                     : e->kind == REF_EMPTY;
        }
    }
}

/* The expressions that can come first in `at`. Those that match only the empty text are harmless
 * there. */
static void mark_left(const struct ref_grammar *r, unsigned at, bool *marks)
{
    const struct ref_expr *e = &r->exprs[at];
    if (marks[at] || !e->is_productive || !e->has_text)
        return;
    marks[at] = true;
    for (unsigned k = 0; k < e->n_parts; k++) {
        mark_left(r, e->parts[k], marks);
        if (e->kind == REF_SEQUENCE && !r->exprs[e->parts[k]].is_nullable)
            break;
    }
}

static void mark_used(const struct ref_grammar *r, unsigned at, bool *marks)
{
    if (marks[at] || !r->exprs[at].is_productive)
        return;
    marks[at] = true;
    for (unsigned k = 0; k < r->exprs[at].n_parts; k++)
        mark_used(r, r->exprs[at].parts[k], marks);
}

bool ref_is_left_recursive(const struct ref_grammar *r)
{
    bool used[REF_EXPRS_MAX] = {false};
    mark_used(r, r->root, used);
    for (unsigned i = 1; i < r->n_exprs; i++) {
        bool marks[REF_EXPRS_MAX] = {false};
        if (!used[i] || r->exprs[i].kind != REF_RULE)
            continue;
        if (r->exprs[i].has_text)
            mark_left(r, r->exprs[i].parts[0], marks);
        if (marks[i])
            return true;
    }
    return false;
}

bool ref_matches_something(const struct ref_grammar *r)
{
    return r->exprs[r->root].is_productive;
}

void ref_print(const struct ref_grammar *r)
{
    static const char *const kinds[] = {"empty",    "never",  "literal", "class", "token",
                                        "sequence", "choice", "repeat",  "rule"};
    for (unsigned i = 1; i < r->n_exprs; i++) {
        const struct ref_expr *e = &r->exprs[i];
        printf("%3u %s '%s' token %d {%u,%u}", i, kinds[e->kind], e->literal, e->token, e->min,
               e->max);
        for (unsigned k = 0; k < e->n_ranges; k++)
            printf(" %s%x-%x", e->negated ? "^" : "", e->ranges[k].first, e->ranges[k].last);
        for (unsigned k = 0; k < e->n_parts; k++)
            printf(" %u", e->parts[k]);
        printf("\n");
    }
}

/* ---- random grammars ---- */

static unsigned add(struct ref_grammar *r, struct ref_expr e)
{
    r->exprs[r->n_exprs] = e;
    return r->n_exprs++;
}

static unsigned make_leaf(struct ref_grammar *r, uint64_t *seed, int32_t n_named)
{
    static const char *const literals[] = {"a", "b", "ab", "ba", "aab", "c", "é", "\"", "\xff"};
    static const struct code_range ranges[] = {{'a', 'b'}, {'b', 'c'},        {0xe9, 0x20ac},
                                               {'"', '"'}, {0x20ac, 0x1f600}, {0, 0x7f}};
    struct ref_expr e = {.kind = REF_LITERAL};
    uint32_t what = ref_random(seed, 20);
    if (what < 2) {
        e.kind = what == 0 ? REF_EMPTY : REF_NEVER;
    } else if (what < 4 && n_named > 0) {
        e.kind = REF_TOKEN;
        e.token = (int32_t)ref_random(seed, (uint32_t)n_named);
    } else if (what < 10) {
        e.kind = REF_CLASS;
        e.n_ranges = 1 + ref_random(seed, 2);
        e.negated = ref_random(seed, 3) == 0;
        for (unsigned i = 0; i < e.n_ranges; i++)
            e.ranges[i] = ranges[ref_random(seed, sizeof ranges / sizeof *ranges)];
    } else {
        strcpy(e.literal, literals[ref_random(seed, sizeof literals / sizeof *literals)]);
    }
    return add(r, e);
}

static unsigned make_expr(struct ref_grammar *r, uint64_t *seed, int32_t n_named, int depth,
                          unsigned n_rules)
{
    static const uint32_t bounds[][2] = {
        {0, 1},
        {0, GRAMMAR_NO_MAX},
        {1, GRAMMAR_NO_MAX},
        {0, 3},
        {2, 2},
        {2, 5},
        {0, 40},
        {33, 36},
        {3, GRAMMAR_NO_MAX},
        {5, 7},
        {0, 9},
        {40, GRAMMAR_NO_MAX},
        {1, 2},
        {0, 1000000},
        {2, GRAMMAR_NO_MAX},
        {4, 44},
    };
    uint32_t what = ref_random(seed, 10);
    struct ref_expr e = {.kind = REF_SEQUENCE};
    if (depth == 0 || what < 2 || r->n_exprs > REF_EXPRS_MAX - 40)
        return make_leaf(r, seed, n_named);
    if (what < 4)
        return 1 + ref_random(seed, n_rules);
    if (what < 6) {
        e.kind = REF_REPEAT;
        const uint32_t *bound = bounds[ref_random(seed, sizeof bounds / sizeof *bounds)];
        e.min = bound[0];
        e.max = bound[1];
        e.n_parts = 1;
    } else {
        e.kind = what < 8 ? REF_CHOICE : REF_SEQUENCE;
        e.n_parts = ref_random(seed, REF_PARTS_MAX + 1);
    }
    for (unsigned k = 0; k < e.n_parts; k++)
        e.parts[k] = make_expr(r, seed, n_named, depth - 1, n_rules);
    if (e.kind == REF_CHOICE && e.n_parts == 0)
        e.kind = REF_NEVER;
    return add(r, e);
}

void ref_make(struct ref_grammar *r, uint64_t *seed, int32_t n_named)
{
    unsigned n_rules = 1 + ref_random(seed, 4);
    r->n_exprs = 1;
    r->root = 1;
    for (unsigned i = 0; i < n_rules; i++)
        add(r, (struct ref_expr){.kind = REF_RULE, .n_parts = 1});
    for (unsigned i = 1; i <= n_rules; i++)
        r->exprs[i].parts[0] = make_expr(r, seed, n_named, 3, n_rules);
    find_traits(r);
}

grammar_expr ref_build(const struct ref_grammar *r, struct grammar_builder *b)
{
    grammar_expr built[REF_EXPRS_MAX] = {0};
    for (unsigned i = 1; i < r->n_exprs; i++) {
        const struct ref_expr *e = &r->exprs[i];
        grammar_expr parts[REF_PARTS_MAX];
        for (unsigned k = 0; k < e->n_parts && e->kind != REF_RULE; k++)
            parts[k] = built[e->parts[k]];
        switch (e->kind) {
        case REF_EMPTY: built[i] = grammar_empty(b); break;
        case REF_NEVER: built[i] = grammar_never(b); break;
        case REF_LITERAL: built[i] = grammar_literal(b, e->literal, strlen(e->literal)); break;
        case REF_CLASS: built[i] = grammar_class(b, e->ranges, e->n_ranges, e->negated); break;
        case REF_TOKEN: built[i] = grammar_token(b, e->token); break;
        case REF_SEQUENCE: built[i] = grammar_sequence(b, parts, e->n_parts); break;
        case REF_CHOICE: built[i] = grammar_choice(b, parts, e->n_parts); break;
        case REF_REPEAT: built[i] = grammar_repeat(b, parts[0], e->min, e->max); break;
        case REF_RULE: built[i] = grammar_rule(b); break;
        }
    }
    for (unsigned i = 1; i < r->n_exprs; i++)
        if (r->exprs[i].kind == REF_RULE)
            grammar_define(b, built[i], built[r->exprs[i].parts[0]]);
    return built[r->root];
}
