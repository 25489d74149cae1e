/* Anchors of regular expressions. Each of an expression's two sides is the edge of the text
 * (ANCHORED), open to any text that a search skips (SEARCHED), or in the middle (INSIDE).
 *
 *   (^|\s)foo($|\.)     SEARCHED (^|\s) INSIDE   foo   INSIDE ($|\.) SEARCHED
 *                       choice: "", .*\s                choice: "", \..*
 */
#include "prompt/grammar/regex_internal.h"

struct resolver {
    struct arena *arena;
    struct regex *anything; /* any text */
    struct error *err;
};

enum side { INSIDE, SEARCHED, ANCHORED };

struct regex *regex_new(struct arena *arena, enum regex_kind kind)
{
    struct regex *e = arena_alloc(arena, sizeof *e);
    if (e) {
        e->kind = kind;
        e->has_anchor = kind == REGEX_BEGIN || kind == REGEX_END;
    }
    return e;
}

static struct regex *copy(struct resolver *r, const struct regex *e)
{
    struct regex *c = arena_alloc(r->arena, sizeof *c);
    if (!c)
        return error_set(r->err, ERROR_MEMORY, "no memory for a regular expression"), NULL;
    *c = *e;
    c->next = NULL;
    return c;
}

static struct regex *trim(struct resolver *r, const struct regex *e, bool left, bool right);

/* The parts of a sequence, with those at open sides trimmed, and omitted if nothing is left. */
static struct regex *sequence_trim(struct resolver *r, const struct regex *e, bool left, bool right)
{
    struct regex *out = regex_new(r->arena, REGEX_SEQUENCE);
    struct regex **link = out ? &out->first : NULL;
    for (const struct regex *part = e->first; out && part; part = part->next) {
        *link = trim(r, part, left, right && !part->next);
        if (!*link)
            return NULL;
        if ((*link)->kind == REGEX_EMPTY) {
            *link = NULL;
            continue;
        }
        left = false;
        link = &(*link)->next;
    }
    if (out && !out->first)
        out->kind = REGEX_EMPTY;
    return out;
}

/* Next to any text, a repetition can stop at its minimum, because any text covers the rest. This
 * simplifies expressions that are combined with a length. */
static struct regex *trim(struct resolver *r, const struct regex *e, bool left, bool right)
{
    struct regex *c = copy(r, e);
    if (!c || (!left && !right))
        return c;
    if (e->kind == REGEX_SEQUENCE)
        return sequence_trim(r, e, left, right);
    if (e->kind == REGEX_REPEAT) {
        c->max = c->min;
        if (c->min == 0)
            c->kind = REGEX_EMPTY;
    }
    return c;
}

/* Adds the text that a search skips to the sides of an expression without anchors. */
static struct regex *surround(struct resolver *r, struct regex *e, enum side left, enum side right)
{
    e = trim(r, e, left == SEARCHED, right == SEARCHED);
    if (!e || (left != SEARCHED && right != SEARCHED))
        return e;
    if (e->kind == REGEX_EMPTY) /* one run of any text, not two that could be split in many ways */
        return copy(r, r->anything);
    struct regex *sequence = regex_new(r->arena, REGEX_SEQUENCE);
    struct regex *before = copy(r, r->anything), *after = copy(r, r->anything);
    if (!sequence || !before || !after)
        return NULL;
    struct regex **link = &sequence->first;
    if (left == SEARCHED) {
        *link = before;
        link = &before->next;
    }
    *link = e;
    if (right == SEARCHED)
        e->next = after;
    return sequence;
}

static struct regex *refuse(struct resolver *r, const struct regex *anchor)
{
    error_set_at(r->err, ERROR_INPUT, anchor->position - 1,
                 "regular expression: '%c' in the middle is not supported, at byte %zu",
                 anchor->kind == REGEX_BEGIN ? '^' : '$', anchor->position - 1);
    return NULL;
}

static struct regex *resolve(struct resolver *r, struct regex *e, enum side left, enum side right);

/* Removes anchors at the sides of a sequence; then its first and last parts have the sides. */
static struct regex *sequence_resolve(struct resolver *r, struct regex *e, enum side left,
                                      enum side right)
{
    struct regex *first = e->first, *end = NULL; /* parts from `first` to before `end` */
    for (; first && first->kind == REGEX_BEGIN && left != INSIDE; first = first->next)
        left = ANCHORED;
    for (struct regex *part = first; part; part = part->next) {
        if (part->kind != REGEX_END)
            end = NULL;
        else if (!end)
            end = part;
    }
    if (end && right == INSIDE)
        return refuse(r, end);
    if (end)
        right = ANCHORED;
    struct regex *sequence = regex_new(r->arena, REGEX_SEQUENCE);
    if (!sequence)
        return error_set(r->err, ERROR_MEMORY, "no memory for a regular expression"), NULL;
    if (first == end) {
        sequence->kind = REGEX_EMPTY;
        return surround(r, sequence, left, right);
    }
    struct regex **link = &sequence->first;
    for (struct regex *part = first; part != end; part = part->next) {
        *link = resolve(r, part, part == first ? left : INSIDE, part->next == end ? right : INSIDE);
        if (!*link)
            return NULL;
        link = &(*link)->next;
    }
    return sequence;
}

static struct regex *resolve(struct resolver *r, struct regex *e, enum side left, enum side right)
{
    if (!e->has_anchor)
        return surround(r, e, left, right);
    struct regex *choice;
    struct regex **link;
    switch (e->kind) {
    case REGEX_SEQUENCE: return sequence_resolve(r, e, left, right);
    case REGEX_CHOICE:
        choice = copy(r, e);
        if (!choice)
            return NULL;
        link = &choice->first;
        for (struct regex *part = e->first; part; part = part->next) {
            *link = resolve(r, part, left, right);
            if (!*link)
                return NULL;
            link = &(*link)->next;
        }
        choice->has_anchor = false;
        return choice;
    default: break; /* ^ or $ alone, as a part of a sequence or a choice */
    }
    if (e->kind == REGEX_BEGIN ? left == INSIDE : right == INSIDE)
        return refuse(r, e);
    struct regex one = {.kind = REGEX_SEQUENCE, .has_anchor = true, .first = copy(r, e)};
    return one.first ? sequence_resolve(r, &one, left, right) : NULL;
}

struct regex *regex_resolve_anchors(struct arena *arena, struct regex *e, enum regex_mode mode,
                                    struct error *err)
{
    struct regex *all = regex_new(arena, REGEX_SET), *anything = regex_new(arena, REGEX_REPEAT);
    if (!all || !anything)
        return error_set(err, ERROR_MEMORY, "no memory for a regular expression"), NULL;
    all->set = code_set_new(arena, NULL, 0, true);
    anything->first = all;
    anything->max = REGEX_NO_MAX;
    struct resolver r = {arena, anything, err};
    enum side side = mode == REGEX_WHOLE ? ANCHORED : SEARCHED;
    return resolve(&r, e, side, side);
}
