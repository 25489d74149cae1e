/* Lengths of the texts that regular expressions match: built into the tree if that is simple. */
#include "prompt/grammar/regex_internal.h"

static uint32_t sum(uint32_t a, uint32_t b)
{
    return a > REGEX_NO_MAX - b ? REGEX_NO_MAX : a + b;
}

static uint32_t product(uint32_t a, uint32_t b)
{
    uint64_t p = (uint64_t)a * b;
    return p > REGEX_NO_MAX ? REGEX_NO_MAX : (uint32_t)p;
}

/* The least and greatest number of code points; `max` is REGEX_NO_MAX if there is no bound.
 * REGEX_NEVER counts as empty; any result would do. */
void regex_length_range(const struct regex *e, uint32_t *min, uint32_t *max)
{
    uint32_t low, high;
    *min = *max = 0;
    switch (e->kind) {
    case REGEX_SET: *min = *max = 1; break;
    case REGEX_SEQUENCE:
        for (const struct regex *part = e->first; part; part = part->next) {
            regex_length_range(part, &low, &high);
            *min = sum(*min, low);
            *max = sum(*max, high);
        }
        break;
    case REGEX_CHOICE:
        *min = REGEX_NO_MAX;
        for (const struct regex *part = e->first; part; part = part->next) {
            regex_length_range(part, &low, &high);
            *min = low < *min ? low : *min;
            *max = high > *max ? high : *max;
        }
        break;
    case REGEX_REPEAT:
        regex_length_range(e->first, &low, &high);
        *min = product(low, e->min);
        *max = high ? product(high, e->max) : 0;
        break;
    default: break;
    }
}

/* A sequence whose parts have fixed lengths except for one, which repeats a single character: the
 * bounds apply to its count. */
static struct regex *sequence_limit(struct arena *arena, struct regex *e, uint32_t min,
                                    uint32_t max)
{
    const struct regex *loop = NULL;
    uint32_t fixed = 0;
    for (const struct regex *part = e->first; part; part = part->next) {
        uint32_t low, high;
        regex_length_range(part, &low, &high);
        if (low == high) {
            fixed = sum(fixed, low);
        } else if (!loop && part->kind == REGEX_REPEAT && part->first->kind == REGEX_SET) {
            loop = part;
        } else {
            return NULL;
        }
    }
    struct regex *out = regex_new(arena, REGEX_SEQUENCE);
    if (!out || !loop)
        return NULL;
    uint32_t low = min > fixed ? min - fixed : 0;
    uint32_t high = max == REGEX_NO_MAX ? max : max - fixed;
    low = low > loop->min ? low : loop->min;
    high = high < loop->max ? high : loop->max;
    if (max < fixed || low > high)
        return regex_new(arena, REGEX_NEVER);
    struct regex **link = &out->first;
    for (const struct regex *part = e->first; part; part = part->next) {
        struct regex *c = arena_alloc(arena, sizeof *c);
        if (!c)
            return NULL;
        *c = *part;
        c->next = NULL;
        if (part == loop) {
            c->min = low;
            c->max = high;
        }
        *link = c;
        link = &c->next;
    }
    return out;
}

struct regex *regex_limit_length(struct arena *arena, struct regex *e, uint32_t min, uint32_t max)
{
    uint32_t low, high;
    regex_length_range(e, &low, &high);
    if (low >= min && high <= max)
        return e;
    if (low > max || high < min)
        return regex_new(arena, REGEX_NEVER);
    if (e->kind == REGEX_SEQUENCE && e->first && !e->first->next)
        return regex_limit_length(arena, e->first, min, max);
    if (e->kind == REGEX_SEQUENCE)
        return sequence_limit(arena, e, min, max);
    if (e->kind == REGEX_REPEAT) {
        struct regex one = {.kind = REGEX_SEQUENCE, .first = regex_new(arena, REGEX_REPEAT)};
        if (!one.first)
            return NULL;
        *one.first = *e;
        one.first->next = NULL;
        return sequence_limit(arena, &one, min, max);
    }
    if (e->kind != REGEX_CHOICE)
        return NULL;
    struct regex *choice = regex_new(arena, REGEX_CHOICE);
    if (!choice)
        return NULL;
    struct regex **link = &choice->first;
    for (struct regex *part = e->first; part; part = part->next) {
        struct regex *limited = regex_limit_length(arena, part, min, max);
        *link = limited ? arena_alloc(arena, sizeof **link) : NULL;
        if (!*link)
            return NULL;
        **link = *limited;
        (*link)->next = NULL;
        link = &(*link)->next;
    }
    return choice;
}

/* ---- shrinking ----------------------------------------------------------------------------- */

enum {
    SHRINK_LEAST = 32, /* the fewest characters that a loop keeps */
    SHRINK_UNIT = 3,   /* the longest unit of a loop: %20 */
    PARTS_MAX = 64,
};

static struct regex *copy(struct arena *arena, const struct regex *e)
{
    struct regex *c = arena_alloc(arena, sizeof *c);
    if (c) {
        *c = *e;
        c->next = NULL;
    }
    return c;
}

/* The parts of a sequence share the room that their minimum lengths leave: those that need less
 * than their share leave it to the others. */
static struct regex *sequence_shrink(struct arena *arena, const struct regex *e, uint32_t max)
{
    uint32_t low[PARTS_MAX] = {0}, high[PARTS_MAX] = {0}, share[PARTS_MAX] = {0}, needed = 0;
    size_t n = 0, n_open = 0;
    for (const struct regex *part = e->first; part; part = part->next, n++) {
        if (n == PARTS_MAX)
            return NULL;
        regex_length_range(part, &low[n], &high[n]);
        needed = sum(needed, low[n]);
    }
    if (needed > max)
        return NULL;
    uint32_t left = max - needed;
    for (bool changed = true; changed;) {
        changed = false;
        n_open = 0;
        for (size_t i = 0; i < n; i++)
            n_open += !share[i] && high[i] > low[i];
        for (size_t i = 0; i < n && n_open; i++) {
            uint32_t want = high[i] - low[i];
            if (share[i] || !want || want > left / n_open)
                continue;
            share[i] = want;
            left -= want;
            n_open--;
            changed = true;
        }
    }
    struct regex *out = regex_new(arena, REGEX_SEQUENCE);
    struct regex **link = out ? &out->first : NULL;
    size_t i = 0;
    for (const struct regex *part = e->first; out && part; part = part->next, i++) {
        uint32_t room = low[i] +
                        (share[i] || high[i] == low[i] ? share[i] : left / (uint32_t)n_open);
        const struct regex *shrunk = regex_shrink(arena, part, room);
        *link = shrunk ? copy(arena, shrunk) : NULL;
        if (!*link)
            return NULL;
        link = &(*link)->next;
    }
    return out;
}

static struct regex *repeat_shrink(struct arena *arena, const struct regex *e, uint32_t max)
{
    uint32_t low, high;
    regex_length_range(e->first, &low, &high);
    struct regex *out = copy(arena, e);
    if (!out)
        return NULL;
    if (e->max == 1) {
        const struct regex *inner = regex_shrink(arena, e->first, max);
        out->first = inner ? copy(arena, inner) : NULL;
        return out->first ? out : NULL;
    }
    if (high == 0 || high > SHRINK_UNIT || max < SHRINK_LEAST || max / high < e->min)
        return NULL;
    out->max = max / high;
    return out;
}

const struct regex *regex_shrink(struct arena *arena, const struct regex *e, uint32_t max)
{
    uint32_t low, high;
    regex_length_range(e, &low, &high);
    if (high <= max)
        return e;
    if (e->kind == REGEX_SEQUENCE)
        return sequence_shrink(arena, e, max);
    if (e->kind == REGEX_REPEAT)
        return repeat_shrink(arena, e, max);
    if (e->kind != REGEX_CHOICE)
        return NULL;
    struct regex *choice = regex_new(arena, REGEX_CHOICE);
    struct regex **link = choice ? &choice->first : NULL;
    for (const struct regex *part = e->first; choice && part; part = part->next) {
        const struct regex *shrunk = regex_shrink(arena, part, max);
        *link = shrunk ? copy(arena, shrunk) : NULL;
        if (!*link)
            return NULL;
        link = &(*link)->next;
    }
    return choice;
}
