/* The grammar of numbers within bounds, digit by digit. While all digits so far are those of a
 * bound, the next digit is bounded too ("tight"); from the first other digit on, all are free.
 *
 *   between 25 and 317:   2[5-9] | [3-9]\d | [1-2]\d\d | 30\d | 31[0-7]
 *
 * Positive and negative numbers are written apart, each as magnitudes between a near and a far
 * bound. With multipleOf, free digits go through a table of remainders. */
#include "prompt/schema/number.h"

#include <string.h>

enum {
    DIGITS_MAX = 20,   /* of 64 bits */
    FREE_DIGITS = 15,  /* where nothing bounds a number */
    FRACTION_FREE = 6, /* ... with a fraction: 9 digits before and 6 behind the point */
    LISTED_MAX = 64,   /* multiples that are written one by one */
};

struct range_writer {
    struct schema_walker *w;
    struct grammar_builder *b;
    uint64_t multiple;   /* 0: any */
    grammar_expr *rests; /* [DIGITS_MAX + 1][multiple]: digits to come, remainder so far */
};

/* ---- integers ------------------------------------------------------------------------------ */

/* `n` digits that complete a number whose digits so far leave `rest`. */
static grammar_expr free_digits(struct range_writer *r, unsigned n, uint64_t rest)
{
    if (!r->multiple)
        return n ? grammar_digits(r->b, '0', '9', n, n) : grammar_empty(r->b);
    if (n == 0)
        return rest == 0 ? grammar_empty(r->b) : grammar_never(r->b);
    grammar_expr *rule = &r->rests[n * r->multiple + rest];
    if (*rule != GRAMMAR_NONE)
        return *rule;
    *rule = grammar_rule(r->b);
    grammar_expr known = *rule, parts[10];
    if (!schema_step(r->w, 10))
        return known;
    for (unsigned digit = 0; digit < 10; digit++) {
        char c = (char)('0' + digit);
        parts[digit] = grammar_pair(r->b, grammar_literal(r->b, &c, 1),
                                    free_digits(r, n - 1, (rest * 10 + digit) % r->multiple));
    }
    grammar_define(r->b, known, grammar_choice(r->b, parts, 10));
    return known;
}

/* Digits `first` to `last`, then `n` free ones. */
static grammar_expr digit_then_free(struct range_writer *r, char first, char last, unsigned n,
                                    uint64_t rest)
{
    if (!r->multiple)
        return grammar_pair(r->b, grammar_digits(r->b, first, last, 1, 1), free_digits(r, n, 0));
    grammar_expr parts[10];
    size_t count = 0;
    for (char c = first; c <= last; c++)
        parts[count++] = grammar_pair(
            r->b, grammar_literal(r->b, &c, 1),
            free_digits(r, n, (rest * 10 + (uint64_t)(c - '0')) % r->multiple));
    return grammar_choice(r->b, parts, count);
}

/* Numbers of exactly `n` digits between two of `n` digits; NULL: no bound on that side. */
static grammar_expr same_length(struct range_writer *r, const char *low, const char *high,
                                unsigned n, uint64_t rest)
{
    if (n == 0 || (!low && !high))
        return free_digits(r, n, rest);
    char a = low ? *low : '0', z = high ? *high : '9';
    grammar_expr parts[3];
    size_t count = 0;
    for (int side = 0; side < 2; side++) {
        char c = side ? z : a;
        bool on_low = low && c == a, on_high = high && c == z;
        if ((side ? !high : !low) || (side && low && a == z))
            continue; /* no bound here, or both begin with the same digit */
        uint64_t next = r->multiple ? (rest * 10 + (uint64_t)(c - '0')) % r->multiple : 0;
        parts[count++] = grammar_pair(
            r->b, grammar_literal(r->b, &c, 1),
            same_length(r, on_low ? low + 1 : NULL, on_high ? high + 1 : NULL, n - 1, next));
    }
    char first = low ? (char)(a + 1) : a, last = high ? (char)(z - 1) : z;
    if (first <= last)
        parts[count++] = digit_then_free(r, first, last, n - 1, rest);
    return grammar_choice(r->b, parts, count);
}

static unsigned digits_write(uint64_t value, char *out)
{
    char reversed[DIGITS_MAX];
    unsigned n = 0;
    do
        reversed[n++] = (char)('0' + value % 10);
    while (value /= 10);
    for (unsigned i = 0; i < n; i++)
        out[i] = reversed[n - 1 - i];
    return n;
}

/* Integers from `low` to `high`, without a sign. */
static grammar_expr integers(struct range_writer *r, uint64_t low, uint64_t high)
{
    if (low > high)
        return grammar_never(r->b);
    grammar_expr parts[2 * DIGITS_MAX + LISTED_MAX + 1];
    size_t count = 0;
    char digits[2][DIGITS_MAX];
    if (r->multiple && (high - low) / r->multiple < LISTED_MAX) {
        uint64_t value = low + (r->multiple - low % r->multiple) % r->multiple;
        while (value >= low && value <= high && count < LISTED_MAX) {
            parts[count++] = grammar_literal(r->b, digits[0], digits_write(value, digits[0]));
            if (value > UINT64_MAX - r->multiple)
                break;
            value += r->multiple;
        }
        return count ? grammar_choice(r->b, parts, count) : grammar_never(r->b);
    }
    unsigned n_low = digits_write(low, digits[0]), n_high = digits_write(high, digits[1]);
    for (unsigned n = n_low; n <= n_high; n++) {
        static const char least[] = "10000000000000000000";
        const char *from = n == n_low ? digits[0] : least;
        if (n == 1 && low == 0) { /* all digits but those past the bound */
            parts[count++] = digit_then_free(r, '0', n == n_high ? digits[1][0] : '9', 0, 0);
            continue;
        }
        parts[count++] = same_length(r, from, n == n_high ? digits[1] : NULL, n, 0);
    }
    return grammar_choice(r->b, parts, count);
}

/* ---- fractions ----------------------------------------------------------------------------- */

/* The fraction of a number whose part before the point is that of a bound. */
struct fraction {
    const struct number_bound *near, *far; /* NULL: not bounded on that side */
    unsigned max;                          /* digits */
    bool canonical;                        /* no zero at the end */
};

static char digit_of(const struct number_bound *bound, unsigned i)
{
    return i < bound->value.n_fraction ? bound->value.fraction[i] : '0';
}

/* Free digits from the i-th on, behind a digit that is zero or not; behind the point at least
 * one. */
static grammar_expr free_fraction(struct range_writer *r, const struct fraction *f, unsigned i,
                                  bool behind_zero)
{
    unsigned left = f->max - i;
    if (!f->canonical)
        return grammar_digits(r->b, '0', '9', i == 0, left);
    grammar_expr more = left ? grammar_pair(r->b, grammar_digits(r->b, '0', '9', 0, left - 1),
                                            grammar_digits(r->b, '1', '9', 1, 1))
                             : grammar_never(r->b);
    if (i == 0) /* "1.0" is as Python writes it */
        return grammar_either(r->b, grammar_text(r->b, "0"), more);
    return !behind_zero || i == 1 ? grammar_optional(r->b, more) : more;
}

/* Whether a fraction of `i` digits, all those of the bounds that are given, is between them. */
static bool may_end(const struct number_bound *near, const struct number_bound *far, unsigned i)
{
    if (near && (i < near->value.n_fraction || near->exclusive))
        return false;
    return !far || i < far->value.n_fraction || !far->exclusive;
}

/* What may follow `i` digits that are so far those of the bounds that are given. */
static grammar_expr bounded_fraction(struct range_writer *r, const struct fraction *f,
                                     const struct number_bound *near,
                                     const struct number_bound *far, unsigned i, bool behind_zero)
{
    if (near && i >= near->value.n_fraction && !near->exclusive)
        near = NULL; /* reached: whatever follows is not less */
    if (!near && !far)
        return free_fraction(r, f, i, behind_zero);
    grammar_expr parts[13];
    size_t count = 0;
    if (i > 0 && may_end(near, far, i) && (!f->canonical || !behind_zero || i == 1))
        parts[count++] = grammar_empty(r->b);
    char a = near ? digit_of(near, i) : '0', z = far ? digit_of(far, i) : '9';
    for (char c = a; i < f->max && c <= z; c++)
        parts[count++] = grammar_pair(r->b, grammar_literal(r->b, &c, 1),
                                      bounded_fraction(r, f, near && c == a ? near : NULL,
                                                       far && c == z ? far : NULL, i + 1,
                                                       c == '0'));
    return count ? grammar_choice(r->b, parts, count) : grammar_never(r->b);
}

/* The point and the digits behind it, or neither. */
static grammar_expr fraction_write(struct range_writer *r, const struct fraction *f)
{
    grammar_expr parts[2];
    size_t count = 0;
    if (may_end(f->near, f->far, 0))
        parts[count++] = grammar_empty(r->b);
    if (f->max) {
        grammar_expr digits = bounded_fraction(r, f, f->near, f->far, 0, false);
        parts[count++] = grammar_pair(r->b, grammar_text(r->b, "."), digits);
    }
    return count ? grammar_choice(r->b, parts, count) : grammar_never(r->b);
}

/* One part before the point, with a fraction that is bounded or not. */
static grammar_expr at_integer(struct range_writer *r, uint64_t integer, struct fraction f)
{
    static const struct number_bound least = {.is_set = true,
                                              .value = {.n_fraction = 4, .fraction = "0001"}};
    char digits[DIGITS_MAX];
    grammar_expr text = grammar_literal(r->b, digits, digits_write(integer, digits));
    if (!f.canonical || integer)
        return grammar_pair(r->b, text, fraction_write(r, &f));
    /* Python writes what is smaller than 0.0001 with an exponent: left out. */
    grammar_expr parts[2];
    size_t count = 0;
    if (may_end(f.near, f.far, 0))
        parts[count++] = text;
    if (!f.near || decimal_compare(&f.near->value, &least.value) < 0)
        f.near = &least;
    if (f.max)
        parts[count++] = grammar_sequence(
            r->b,
            (grammar_expr[]){text, grammar_text(r->b, "."),
                             bounded_fraction(r, &f, f.near, f.far, 0, false)},
            3);
    return count ? grammar_choice(r->b, parts, count) : grammar_never(r->b);
}

/* Numbers between two magnitudes, `far` given. */
static grammar_expr numbers(struct range_writer *r, const struct number_bound *near,
                            const struct number_bound *far, int decimals)
{
    uint64_t low = 0, high = 0;
    bool canonical = r->w->text.style == JSON_CANONICAL;
    if (!decimal_magnitude(&far->value, &high) ||
        (near->is_set && !decimal_magnitude(&near->value, &low)) || low > high)
        return grammar_never(r->b);
    /* All digits together stay within what a double keeps, so that what a reader sees is between
     * the bounds, too; the bounds' own digits come first. */
    unsigned max = FREE_DIGITS > far->value.n_integer ? FREE_DIGITS - far->value.n_integer : 0;
    if (!canonical) {
        if (max < far->value.n_fraction)
            max = far->value.n_fraction;
        if (near->is_set && max < near->value.n_fraction)
            max = near->value.n_fraction;
    }
    if (decimals >= 0 && max > (unsigned)decimals)
        max = (unsigned)decimals;
    const struct number_bound *from = near->is_set ? near : NULL;
    struct fraction f = {from, far, max, canonical};
    if (low == high)
        return at_integer(r, low, f);
    grammar_expr parts[3];
    size_t count = 0;
    f.far = NULL;
    parts[count++] = at_integer(r, low, f);
    f = (struct fraction){NULL, far, max, canonical};
    parts[count++] = at_integer(r, high, f);
    f.far = NULL;
    if (high - low > 1)
        parts[count++] = grammar_pair(r->b, integers(r, low + 1, high - 1), fraction_write(r, &f));
    return grammar_choice(r->b, parts, count);
}

/* ---- both signs ---------------------------------------------------------------------------- */

/* The integers of a range of magnitudes: the least and the greatest, false when there is none. */
static bool integer_range(const struct number_bound *near, const struct number_bound *far,
                          bool negative, uint64_t *low, uint64_t *high)
{
    *low = negative; /* -0 is left out */
    if (near->is_set) {
        uint64_t value;
        if (!decimal_magnitude(&near->value, &value))
            return false;
        if (near->value.n_fraction || near->exclusive) {
            if (value == UINT64_MAX)
                return false;
            value++;
        }
        *low = value > *low ? value : *low;
    }
    static const uint64_t limits[] = {999999999999999u, 999999999999999999u, UINT64_MAX};
    size_t i = 0;
    while (i < 2 && *low > limits[i])
        i++;
    *high = limits[i];
    if (far->is_set) {
        uint64_t value;
        if (decimal_magnitude(&far->value, &value)) {
            if (far->exclusive && !far->value.n_fraction && value-- == 0)
                return false;
            *high = value;
        }
    }
    return *low <= *high;
}

/* Magnitudes of one sign. */
static grammar_expr sign_write(struct range_writer *r, const struct schema_facets *f,
                               const struct number_bound *near, const struct number_bound *far,
                               bool negative)
{
    uint64_t low, high;
    bool integral = !(f->types & TYPE_FRACTION) || f->multiple || f->decimals == 0;
    if (integral)
        return integer_range(near, far, negative, &low, &high) ? integers(r, low, high)
                                                               : grammar_never(r->b);
    if (far->is_set)
        return numbers(r, near, far, f->decimals);
    /* No far bound: fractions up to nine digits before the point, integers beyond. */
    struct number_bound end = {.is_set = true};
    decimal_parse("999999999", 9, &end.value);
    struct number_bound beyond = {.is_set = true, .exclusive = true, .value = end.value};
    if (near->is_set && decimal_compare(&near->value, &end.value) > 0)
        beyond = *near;
    grammar_expr parts[2] = {numbers(r, near, &end, f->decimals),
                             integer_range(&beyond, far, negative, &low, &high)
                                 ? integers(r, low, high)
                                 : grammar_never(r->b)};
    return grammar_choice(r->b, parts, 2);
}

/* The bounds of one sign's magnitudes. False when there are none of that sign. */
static bool sign_bounds(const struct schema_facets *f, bool negative, struct number_bound *near,
                        struct number_bound *far)
{
    *near = negative ? f->high : f->low;
    *far = negative ? f->low : f->high;
    if (far->is_set && far->value.negative != negative) {
        bool zero = !far->value.n_integer && !far->value.n_fraction;
        if (!zero || negative || far->exclusive)
            return false;
    }
    if (near->is_set && near->value.negative != negative) {
        bool zero = !near->value.n_integer && !near->value.n_fraction;
        near->exclusive &= zero; /* "greater than 0" stays; "greater than -5" is all of them */
        near->is_set = zero && near->exclusive;
    }
    if (negative && !near->is_set) /* -0 is left out: it is 0 */
        *near = (struct number_bound){.is_set = true, .exclusive = true};
    near->value.negative = far->value.negative = false;
    return true;
}

grammar_expr schema_number(struct schema_walker *w, const struct schema_facets *f)
{
    if (!schema_number_check(w, f))
        return GRAMMAR_NONE;
    bool bounded = f->low.is_set || f->high.is_set;
    if (!bounded && !f->multiple && f->decimals < 0)
        return f->types & TYPE_FRACTION ? w->text.number : w->text.integer;
    if (schema_number_is_empty(f))
        return grammar_never(w->b);
    struct range_writer r = {w, w->b, f->multiple, NULL};
    if (r.multiple == 1)
        r.multiple = 0;
    if (r.multiple) {
        r.rests = arena_alloc_array(&w->arena, (DIGITS_MAX + 1) * r.multiple, sizeof *r.rests);
        if (!r.rests)
            return schema_step(w, 1), GRAMMAR_NONE;
    }
    grammar_expr parts[2];
    size_t n = 0;
    for (int negative = 0; negative < 2; negative++) {
        struct number_bound near, far;
        if (!sign_bounds(f, negative, &near, &far))
            continue;
        grammar_expr magnitude = sign_write(&r, f, &near, &far, negative);
        parts[n++] = negative ? grammar_pair(w->b, grammar_text(w->b, "-"), magnitude) : magnitude;
    }
    return n ? grammar_choice(w->b, parts, n) : grammar_never(w->b);
}
