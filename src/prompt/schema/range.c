/* The grammar of numbers within bounds, digit by digit. While all digits so far equal those of a
 * bound, the next digit is bounded too ("tight"); from the first different digit on, all are free.
 *
 *   between 25 and 317:   2[5-9] | [3-9]\d | [1-2]\d\d | 30\d | 31[0-7]
 *
 * Positive and negative numbers are handled separately, each as magnitudes between a near and a far
 * bound; so are numbers with and without an exponent. With multipleOf, digits go through a table of
 * remainders. Nothing is converted to a machine number: bounds are exact. */
#include "prompt/schema/number.h"

#include <string.h>

enum {
    DOUBLE_EXACT = 15,      /* digits that all doubles keep: different decimals stay different */
    DOUBLE_DIGITS = 17,     /* digits that any double can be written with */
    FRACTION_MAX = 40,      /* digits after the point, where a bound has so many */
    CANONICAL_INTEGER = 9,  /* digits before the point where nothing bounds a number, */
    CANONICAL_FRACTION = 6, /* and after it */
    LISTED_MAX = 64,        /* multiples that are written one by one */
    REST_DIGITS = 20,       /* before the point, with multipleOf, */
    RESTS_MAX = 15000,      /* as long as remainders times digits do not exceed this */
    EXPONENT_MAX = 307,     /* with any digits before it: no double is infinite */
};

/* An integer that is not negative, without leading zeros. */
struct magnitude {
    unsigned n;
    char digits[DIGITS_MAX + 2];
};

struct range_writer {
    struct schema_walker *w;
    struct grammar_builder *b;
    uint64_t multiple;   /* 0: any */
    unsigned decimals;   /* decimals of the multiples */
    unsigned n_fraction; /* the most digits after the point */
    bool canonical;      /* no zero at the end of a fraction */
    grammar_expr *rests; /* [DIGITS_MAX + 1][multiple]: digits to come, remainder so far */
    grammar_expr *tails; /* [decimals + 1][multiple][2]: digits after the point so far, the
                            remainder, and whether the last digit is 0 */
};

/* The bounds of a fraction whose digits before the point are those of the bounds. */
struct edges {
    const struct number_bound *near, *far; /* NULL: not bounded on that side */
};

/* ---- magnitudes ---------------------------------------------------------------------------- */

static void magnitude_set(struct magnitude *m, unsigned value)
{
    m->n = 1;
    m->digits[0] = (char)('0' + value);
}

/* The integer part of a decimal; false when it has too many digits. */
static bool magnitude_floor(const struct decimal *d, struct magnitude *out)
{
    int64_t n = decimal_integer_digits(d);
    magnitude_set(out, 0);
    if (n > DIGITS_MAX)
        return false;
    for (int64_t i = 0; i < n; i++)
        out->digits[i] = decimal_digit(d, i);
    out->n = n ? (unsigned)n : 1;
    return true;
}

/* The largest integer of `n` digits. */
static void magnitude_nines(struct magnitude *m, unsigned n)
{
    m->n = n;
    memset(m->digits, '9', n);
}

static int magnitude_compare(const struct magnitude *a, const struct magnitude *b)
{
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return memcmp(a->digits, b->digits, a->n);
}

static void magnitude_add_one(struct magnitude *m)
{
    unsigned i = m->n;
    while (i > 0 && m->digits[i - 1] == '9')
        m->digits[--i] = '0';
    if (i > 0) {
        m->digits[i - 1]++;
        return;
    }
    memmove(m->digits + 1, m->digits, m->n++);
    m->digits[0] = '1';
}

/* Of a magnitude that is not 0. */
static void magnitude_take_one(struct magnitude *m)
{
    unsigned i = m->n;
    while (m->digits[i - 1] == '0')
        m->digits[--i] = '9';
    m->digits[i - 1]--;
    if (m->digits[0] == '0' && m->n > 1)
        memmove(m->digits, m->digits + 1, --m->n);
}

static bool magnitude_to_uint64(const struct magnitude *m, uint64_t *out)
{
    *out = 0;
    for (unsigned i = 0; i < m->n; i++) {
        uint64_t digit = (uint64_t)(m->digits[i] - '0');
        if (*out > (UINT64_MAX - digit) / 10)
            return false;
        *out = *out * 10 + digit;
    }
    return true;
}

static void magnitude_from_uint64(struct magnitude *m, uint64_t value)
{
    char reversed[20];
    m->n = 0;
    do
        reversed[m->n++] = (char)('0' + value % 10);
    while (value /= 10);
    for (unsigned i = 0; i < m->n; i++)
        m->digits[i] = reversed[m->n - 1 - i];
}

/* ---- remainders ---------------------------------------------------------------------------- */

static uint64_t rest_after(const struct range_writer *r, uint64_t rest, char digit)
{
    return r->multiple ? (rest * 10 + (uint64_t)(digit - '0')) % r->multiple : 0;
}

/* Whether a number may end after `i` digits of its fraction. */
static bool rest_may_end(const struct range_writer *r, uint64_t rest, unsigned i)
{
    if (!r->multiple)
        return true;
    for (; i < r->decimals && rest; i++)
        rest = rest * 10 % r->multiple;
    return rest == 0;
}

/* ---- fractions ----------------------------------------------------------------------------- */

static char digit_of(const struct number_bound *bound, unsigned i)
{
    return decimal_digit(&bound->value, bound->value.point + i);
}

/* Whether a fraction of `i` digits, all those of the bounds that are given, is between them. */
static bool may_end(const struct number_bound *near, const struct number_bound *far, unsigned i)
{
    if (near && (i < decimal_fraction_digits(&near->value) || near->exclusive))
        return false;
    return !far || i < decimal_fraction_digits(&far->value) || !far->exclusive;
}

static grammar_expr bounded_fraction(struct range_writer *r, const struct number_bound *near,
                                     const struct number_bound *far, unsigned i, bool after_zero,
                                     uint64_t rest);

/* Free digits from the i-th on, after a digit that is zero or not; right after the point at least
 * one. */
static grammar_expr free_fraction(struct range_writer *r, unsigned i, bool after_zero,
                                  uint64_t rest)
{
    unsigned left = r->n_fraction - i;
    if (r->multiple) {
        grammar_expr *rule = &r->tails[2 * (i * r->multiple + rest) + after_zero];
        if (*rule == GRAMMAR_NONE && schema_step(r->w, 10)) {
            grammar_expr known = *rule = grammar_rule(r->b);
            grammar_define(r->b, known, bounded_fraction(r, NULL, NULL, i, after_zero, rest));
            return known;
        }
        return *rule;
    }
    if (!r->canonical)
        return grammar_digits(r->b, '0', '9', i == 0, left);
    grammar_expr more = left ? grammar_pair(r->b, grammar_digits(r->b, '0', '9', 0, left - 1),
                                            grammar_digits(r->b, '1', '9', 1, 1))
                             : grammar_never(r->b);
    if (i == 0) /* "1.0" is as Python writes it */
        return grammar_either(r->b, grammar_text(r->b, "0"), more);
    return !after_zero || i == 1 ? grammar_optional(r->b, more) : more;
}

/* What may follow `i` digits that are so far those of the bounds that are given. Without bounds,
 * and with multiples, the body of free_fraction. */
static grammar_expr bounded_fraction(struct range_writer *r, const struct number_bound *near,
                                     const struct number_bound *far, unsigned i, bool after_zero,
                                     uint64_t rest)
{
    bool was_tight = near || far;
    if (near && i >= decimal_fraction_digits(&near->value) && !near->exclusive)
        near = NULL; /* reached: whatever follows is not less */
    if (!near && !far && (was_tight || !r->multiple))
        return free_fraction(r, i, after_zero, rest);
    grammar_expr parts[13];
    size_t count = 0;
    if (i > 0 && may_end(near, far, i) && rest_may_end(r, rest, i) &&
        (!r->canonical || !after_zero || i == 1))
        parts[count++] = grammar_empty(r->b);
    char a = near ? digit_of(near, i) : '0', z = far ? digit_of(far, i) : '9';
    for (char c = a; i < r->n_fraction && c <= z; c++) {
        const struct number_bound *low = near && c == a ? near : NULL;
        const struct number_bound *high = far && c == z ? far : NULL;
        uint64_t next = rest_after(r, rest, c);
        grammar_expr more = low || high ? bounded_fraction(r, low, high, i + 1, c == '0', next)
                                        : free_fraction(r, i + 1, c == '0', next);
        parts[count++] = grammar_pair(r->b, grammar_literal(r->b, &c, 1), more);
    }
    return count ? grammar_choice(r->b, parts, count) : grammar_never(r->b);
}

/* The point and the digits after it, or neither. */
static grammar_expr fraction_write(struct range_writer *r, struct edges e, uint64_t rest)
{
    grammar_expr parts[2];
    size_t count = 0;
    if (may_end(e.near, e.far, 0) && rest_may_end(r, rest, 0))
        parts[count++] = grammar_empty(r->b);
    if (r->n_fraction) {
        grammar_expr digits = e.near || e.far ? bounded_fraction(r, e.near, e.far, 0, false, rest)
                                              : free_fraction(r, 0, false, rest);
        parts[count++] = grammar_pair(r->b, grammar_text(r->b, "."), digits);
    }
    return count ? grammar_choice(r->b, parts, count) : grammar_never(r->b);
}

/* ---- integers ------------------------------------------------------------------------------ */

/* `n` digits that complete a number whose digits so far leave `rest`; with multiples, its fraction
 * too. */
static grammar_expr free_digits(struct range_writer *r, unsigned n, uint64_t rest)
{
    if (!r->multiple)
        return n ? grammar_digits(r->b, '0', '9', n, n) : grammar_empty(r->b);
    grammar_expr *rule = &r->rests[n * r->multiple + rest];
    if (*rule != GRAMMAR_NONE)
        return *rule;
    *rule = grammar_rule(r->b);
    grammar_expr known = *rule, parts[10];
    if (!schema_step(r->w, 10))
        return known;
    if (n == 0) {
        grammar_define(r->b, known, fraction_write(r, (struct edges){NULL, NULL}, rest));
        return known;
    }
    for (unsigned digit = 0; digit < 10; digit++) {
        char c = (char)('0' + digit);
        parts[digit] = grammar_pair(r->b, grammar_literal(r->b, &c, 1),
                                    free_digits(r, n - 1, rest_after(r, rest, c)));
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
        parts[count++] = grammar_pair(r->b, grammar_literal(r->b, &c, 1),
                                      free_digits(r, n, rest_after(r, rest, c)));
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
        parts[count++] = grammar_pair(r->b, grammar_literal(r->b, &c, 1),
                                      same_length(r, on_low ? low + 1 : NULL,
                                                  on_high ? high + 1 : NULL, n - 1,
                                                  rest_after(r, rest, c)));
    }
    char first = low ? (char)(a + 1) : a, last = high ? (char)(z - 1) : z;
    if (first <= last)
        parts[count++] = digit_then_free(r, first, last, n - 1, rest);
    return grammar_choice(r->b, parts, count);
}

/* The multiples between two integers one by one, if they are few; else GRAMMAR_NONE. */
static grammar_expr multiples_list(struct range_writer *r, const struct magnitude *from,
                                   const struct magnitude *to)
{
    uint64_t low, high;
    grammar_expr parts[LISTED_MAX + 1];
    size_t count = 0;
    if (!r->multiple || r->n_fraction || !magnitude_to_uint64(from, &low) ||
        !magnitude_to_uint64(to, &high) || (high - low) / r->multiple >= LISTED_MAX)
        return GRAMMAR_NONE;
    uint64_t skip = (r->multiple - low % r->multiple) % r->multiple;
    for (uint64_t left = high - low; skip <= left; skip = r->multiple) {
        struct magnitude value;
        left -= skip;
        magnitude_from_uint64(&value, high - left);
        parts[count++] = grammar_literal(r->b, value.digits, value.n);
    }
    return count ? grammar_choice(r->b, parts, count) : grammar_never(r->b);
}

/* Integers of exactly `n` digits, between those of the bounds that have as many. */
static grammar_expr integers_of_length(struct range_writer *r, const struct magnitude *low,
                                       const struct magnitude *high, unsigned n)
{
    char least[DIGITS_MAX + 1];
    memset(least, '0', sizeof least);
    least[0] = '1';
    if (n == 1 && low->digits[0] == '0')
        return digit_then_free(r, '0', n == high->n ? high->digits[0] : '9', 0, 0);
    return same_length(r, n == low->n ? low->digits : least, n == high->n ? high->digits : NULL, n,
                       0);
}

/* Integers from `low` to `high`, without a sign. */
static grammar_expr integers(struct range_writer *r, const struct magnitude *low,
                             const struct magnitude *high)
{
    if (magnitude_compare(low, high) > 0)
        return grammar_never(r->b);
    grammar_expr listed = multiples_list(r, low, high);
    if (listed != GRAMMAR_NONE)
        return listed;
    struct magnitude nines;
    magnitude_nines(&nines, high->n);
    /* Lengths that no bound says anything about are one expression, without multiples. */
    unsigned first = low->n + 1, last = high->n - (magnitude_compare(high, &nines) != 0);
    bool is_free = !r->multiple && first <= last;
    grammar_expr parts[DIGITS_MAX + 1];
    size_t count = 0;
    for (unsigned n = low->n; n <= high->n && n <= DIGITS_MAX; n++)
        if (!is_free || n < first || n > last)
            parts[count++] = integers_of_length(r, low, high, n);
    if (is_free)
        parts[count++] = grammar_pair(r->b, grammar_digits(r->b, '1', '9', 1, 1),
                                      grammar_digits(r->b, '0', '9', first - 1, last - 1));
    return grammar_choice(r->b, parts, count);
}

/* ---- numbers ------------------------------------------------------------------------------- */

/* One part before the point, with a fraction that is bounded or not. */
static grammar_expr at_integer(struct range_writer *r, const struct magnitude *integer,
                               struct edges e)
{
    /* 0.0001 */
    static const struct number_bound least = {
        .is_set = true, .value = {.n = 1, .point = -3, .digits = "1", .dot = UINT32_MAX}};
    grammar_expr text = grammar_literal(r->b, integer->digits, integer->n);
    uint64_t rest = 0;
    for (unsigned i = 0; i < integer->n; i++)
        rest = rest_after(r, rest, integer->digits[i]);
    if (!r->canonical || integer->digits[0] != '0')
        return grammar_pair(r->b, text, fraction_write(r, e, rest));
    /* Python writes numbers below 0.0001 with an exponent: these are left out. */
    grammar_expr parts[2];
    size_t count = 0;
    if (may_end(e.near, e.far, 0))
        parts[count++] = text;
    if (!e.near || decimal_compare(&e.near->value, &least.value) < 0)
        e.near = &least;
    if (r->n_fraction)
        parts[count++] = grammar_sequence(
            r->b,
            (grammar_expr[]){text, grammar_text(r->b, "."),
                             bounded_fraction(r, e.near, e.far, 0, false, rest)},
            3);
    return count ? grammar_choice(r->b, parts, count) : grammar_never(r->b);
}

/* Numbers whose parts before the point go from `low` to `high`; the bounds are those of the
 * fractions at either end. */
static grammar_expr numbers_between(struct range_writer *r, const struct magnitude *low,
                                    const struct magnitude *high, struct edges e)
{
    int order = magnitude_compare(low, high);
    if (order > 0)
        return grammar_never(r->b);
    if (order == 0)
        return at_integer(r, low, e);
    grammar_expr parts[3] = {at_integer(r, low, (struct edges){e.near, NULL}),
                             at_integer(r, high, (struct edges){NULL, e.far})};
    size_t count = 2;
    struct magnitude first = *low, last = *high;
    magnitude_add_one(&first);
    magnitude_take_one(&last);
    if (magnitude_compare(&first, &last) <= 0) {
        parts[count] = integers(r, &first, &last);
        if (!r->multiple) /* else they have their fractions */
            parts[count] = grammar_pair(r->b, parts[count],
                                        fraction_write(r, (struct edges){NULL, NULL}, 0));
        count++;
    }
    return grammar_choice(r->b, parts, count);
}

/* The most digits that numbers get where no bound says more. */
static unsigned digits_cap(const struct range_writer *r)
{
    unsigned cap = r->multiple ? REST_DIGITS : JSON_INTEGER_DIGITS;
    if (r->multiple && cap > RESTS_MAX / r->multiple)
        cap = (unsigned)(RESTS_MAX / r->multiple);
    if (r->canonical && r->decimals && cap > DOUBLE_EXACT - r->decimals)
        cap = r->decimals < DOUBLE_EXACT ? DOUBLE_EXACT - r->decimals : 1;
    return cap;
}

/* Numbers without an exponent between two magnitudes. */
static grammar_expr numbers(struct range_writer *r, const struct number_bound *near,
                            const struct number_bound *far)
{
    struct magnitude low, high;
    magnitude_set(&low, 0);
    if (near->is_set && !magnitude_floor(&near->value, &low))
        return grammar_never(r->b);
    unsigned cap = digits_cap(r) > low.n ? digits_cap(r) : low.n;
    struct edges e = {near->is_set ? near : NULL, far->is_set ? far : NULL};
    if (!far->is_set || !magnitude_floor(&far->value, &high) || high.n > cap) {
        magnitude_nines(&high, cap);
        e.far = NULL;
    }
    return numbers_between(r, &low, &high, e);
}

/* ---- exponents ----------------------------------------------------------------------------- */

/* Exponents from `first` to `last`, neither below 0. Python writes 1e-07, others 1e-7. */
static grammar_expr exponent_digits(struct range_writer *r, int64_t first, int64_t last)
{
    struct magnitude low, high;
    magnitude_from_uint64(&low, (uint64_t)first);
    magnitude_from_uint64(&high, (uint64_t)last);
    return grammar_pair(r->b, grammar_optional(r->b, grammar_text(r->b, "0")),
                        integers(r, &low, &high));
}

static grammar_expr exponents(struct range_writer *r, int64_t first, int64_t last)
{
    grammar_expr parts[2];
    size_t count = 0;
    if (last >= 0)
        parts[count++] = grammar_pair(r->b, grammar_optional(r->b, grammar_text(r->b, "+")),
                                      exponent_digits(r, first > 0 ? first : 0, last));
    if (first < 0)
        parts[count++] = grammar_pair(r->b, grammar_text(r->b, "-"),
                                      exponent_digits(r, last < 0 ? -last : 1, -first));
    return grammar_pair(r->b, grammar_one_of(r->b, "eE"), grammar_choice(r->b, parts, count));
}

/* A digit before the point and a fraction, from `near` to `far` (NULL: 1, or below 10), and
 * exponents from `first` to `last`. */
static grammar_expr scientific(struct range_writer *r, const struct number_bound *near,
                               const struct number_bound *far, int64_t first, int64_t last)
{
    struct number_bound from = {0}, to = {0};
    struct magnitude low, high;
    if (first > last)
        return grammar_never(r->b);
    magnitude_set(&low, 1);
    magnitude_set(&high, 9);
    if (near) {
        from = *near;
        from.value.point = 1;
        magnitude_floor(&from.value, &low);
    }
    if (far) {
        to = *far;
        to.value.point = 1;
        magnitude_floor(&to.value, &high);
    }
    return grammar_pair(
        r->b,
        numbers_between(r, &low, &high, (struct edges){near ? &from : NULL, far ? &to : NULL}),
        exponents(r, first, last));
}

/* Numbers with an exponent between two magnitudes; 0 is not among them. */
static grammar_expr scientific_numbers(struct range_writer *r, const struct number_bound *near,
                                       const struct number_bound *far)
{
    static const struct number_bound largest = {
        .is_set = true,
        .value = {.n = 2, .point = EXPONENT_MAX + 2, .digits = "17", .dot = UINT32_MAX}};
    if (!far->is_set || decimal_compare(&far->value, &largest.value) > 0)
        far = &largest;
    int64_t first = -EXPONENT_MAX - 1, last = far->value.point - 1;
    if (far->value.n == 0 || last < -EXPONENT_MAX)
        return grammar_never(r->b);
    if (near->is_set && near->value.n && near->value.point - 1 > first)
        first = near->value.point - 1;
    else
        near = NULL; /* whatever has a larger exponent is larger */
    if (first > last)
        return grammar_never(r->b);
    if (first == last)
        return scientific(r, near, far, first, last);
    grammar_expr parts[3];
    size_t count = 0;
    if (near)
        parts[count++] = scientific(r, near, NULL, first, first);
    parts[count++] = scientific(r, NULL, NULL, first + 1, last - 1);
    parts[count++] = scientific(r, NULL, far, last, last);
    return grammar_choice(r->b, parts, count);
}

/* ---- both signs ---------------------------------------------------------------------------- */

/* The integers of a range of magnitudes: the least and the greatest, false when there is none. */
static bool integer_range(const struct range_writer *r, const struct number_bound *near,
                          const struct number_bound *far, bool negative, struct magnitude *low,
                          struct magnitude *high)
{
    magnitude_set(low, negative); /* -0 is left out */
    if (near->is_set) {
        struct magnitude value;
        if (!magnitude_floor(&near->value, &value))
            return false;
        if (decimal_fraction_digits(&near->value) || near->exclusive)
            magnitude_add_one(&value);
        if (magnitude_compare(&value, low) > 0)
            *low = value;
    }
    unsigned cap = digits_cap(r) > low->n ? digits_cap(r) : low->n;
    if (cap > DIGITS_MAX)
        return false;
    if (!far->is_set || !magnitude_floor(&far->value, high) || high->n > cap) {
        magnitude_nines(high, cap);
    } else if (far->exclusive && !decimal_fraction_digits(&far->value)) {
        if (high->digits[0] == '0')
            return false;
        magnitude_take_one(high);
    }
    return magnitude_compare(low, high) <= 0;
}

/* Integers that end with so many zeros, or 0. */
static grammar_expr integers_with_zeros(struct range_writer *r, struct number_bound near,
                                        struct number_bound far, bool negative, int zeros)
{
    struct magnitude low, high;
    near.value.point -= near.value.n ? zeros : 0;
    far.value.point -= far.value.n ? zeros : 0;
    if (!integer_range(r, &near, &far, negative, &low, &high))
        return grammar_never(r->b);
    if (!zeros)
        return integers(r, &low, &high);
    grammar_expr parts[2];
    size_t count = 0;
    if (low.digits[0] == '0') {
        parts[count++] = grammar_text(r->b, "0");
        magnitude_set(&low, 1);
    }
    grammar_expr zero = grammar_text(r->b, "0");
    parts[count++] = grammar_pair(r->b, integers(r, &low, &high),
                                  grammar_repeat(r->b, zero, (uint32_t)zeros, (uint32_t)zeros));
    return grammar_choice(r->b, parts, count);
}

/* Whether a bound is exclusive. A reader that takes numbers as doubles must not round one to such a
 * bound, so numbers then have no more digits than doubles keep. */
static bool is_exclusive(const struct number_bound *near, const struct number_bound *far)
{
    return (near->is_set && near->exclusive && near->value.n) || (far->is_set && far->exclusive);
}

/* How many digits may follow the point where there is no multipleOf. */
static unsigned fraction_digits(const struct number_bound *near, const struct number_bound *far)
{
    int64_t n = near->is_set ? decimal_integer_digits(&near->value) : 0;
    if (n > DOUBLE_EXACT)
        return 0;
    if (is_exclusive(near, far))
        return (unsigned)(DOUBLE_EXACT - n);
    int64_t most = DOUBLE_DIGITS;
    if (near->is_set && decimal_fraction_digits(&near->value) > most)
        most = decimal_fraction_digits(&near->value);
    if (far->is_set && decimal_fraction_digits(&far->value) > most)
        most = decimal_fraction_digits(&far->value);
    return most < FRACTION_MAX ? (unsigned)most : FRACTION_MAX;
}

/* The integers above `end`, which has as many digits as doubles keep: no fraction follows them. */
static grammar_expr integers_beyond(struct range_writer *r, const struct number_bound *near,
                                    const struct number_bound *far, const struct number_bound *end,
                                    bool negative)
{
    struct number_bound beyond = *end;
    struct magnitude low, high;
    beyond.exclusive = true;
    if (near->is_set && decimal_compare(&near->value, &end->value) > 0)
        beyond = *near;
    return integer_range(r, &beyond, far, negative, &low, &high) ? integers(r, &low, &high)
                                                                 : grammar_never(r->b);
}

/* Numbers without an exponent and without multipleOf. The more digits there are before the
 * point, the fewer may follow it if a bound is exclusive. */
static grammar_expr plain_numbers(struct range_writer *r, const struct number_bound *near,
                                  const struct number_bound *far, bool negative)
{
    static const struct number_bound end = {.is_set = true,
                                            .value = {.n = DOUBLE_EXACT,
                                                      .point = DOUBLE_EXACT,
                                                      .digits = "999999999999999",
                                                      .dot = UINT32_MAX}};
    struct magnitude low, high, from, to;
    bool is_long = far->is_set && decimal_integer_digits(&far->value) > DOUBLE_EXACT;
    r->n_fraction = fraction_digits(near, far);
    if (!far->is_set || !r->n_fraction || (!is_long && !is_exclusive(near, far)))
        return numbers(r, near, far);
    if (!is_exclusive(near, far))
        return grammar_either(r->b, numbers(r, near, &end),
                              integers_beyond(r, near, far, &end, negative));
    magnitude_set(&low, 0);
    if (near->is_set)
        magnitude_floor(&near->value, &low);
    if (is_long)
        magnitude_nines(&high, DOUBLE_EXACT);
    else
        magnitude_floor(&far->value, &high);
    grammar_expr parts[DOUBLE_EXACT + 1];
    size_t count = 0;
    for (unsigned n = low.n; n <= high.n; n++) {
        bool is_first = n == low.n, is_last = n == high.n;
        magnitude_nines(&to, n - 1);
        from = low;
        if (!is_first) {
            from = to;
            magnitude_add_one(&from);
        }
        magnitude_nines(&to, n);
        r->n_fraction = DOUBLE_EXACT - n;
        parts[count++] = numbers_between(r, &from, is_last ? &high : &to,
                                         (struct edges){is_first && near->is_set ? near : NULL,
                                                        is_last && !is_long ? far : NULL});
    }
    if (is_long)
        parts[count++] = integers_beyond(r, near, far, &end, negative);
    return count ? grammar_choice(r->b, parts, count) : grammar_never(r->b);
}

/* In canonical style, as Python writes them: with a fraction up to 15 digits in all, and where the
 * range goes further, integers. */
static grammar_expr canonical_numbers(struct range_writer *r, const struct number_bound *near,
                                      const struct number_bound *far, bool negative)
{
    if (far->is_set && decimal_integer_digits(&far->value) <= DOUBLE_EXACT) {
        r->n_fraction = DOUBLE_EXACT - (unsigned)decimal_integer_digits(&far->value);
        return numbers(r, near, far);
    }
    static const struct number_bound end = {.is_set = true,
                                            .value = {.n = CANONICAL_INTEGER,
                                                      .point = CANONICAL_INTEGER,
                                                      .digits = "999999999",
                                                      .dot = UINT32_MAX}};
    r->n_fraction = CANONICAL_FRACTION;
    return grammar_either(r->b, numbers(r, near, &end),
                          integers_beyond(r, near, far, &end, negative));
}

/* Magnitudes of one sign. */
static grammar_expr sign_write(struct range_writer *r, const struct schema_facets *f,
                               const struct number_bound *near_exact,
                               const struct number_bound *far_exact, bool negative)
{
    struct number_bound plain[2] = {*near_exact, *far_exact};
    const struct number_bound *near = &plain[0], *far = &plain[1];
    plain[0].value = plain[0].plain;
    plain[1].value = plain[1].plain;
    if (!(f->types & TYPE_FRACTION) || (f->multiple && f->decimals <= 0))
        return integers_with_zeros(r, *near, *far, negative,
                                   f->multiple && f->decimals < 0 ? -f->decimals : 0);
    if (f->multiple) {
        r->n_fraction = r->decimals;
        return numbers(r, near, far);
    }
    if (r->canonical)
        return canonical_numbers(r, near, far, negative);
    grammar_expr without = plain_numbers(r, near, far, negative);
    bool is_close = is_exclusive(near, far) || (near->is_set && near->value.n > DOUBLE_EXACT) ||
                    (far->is_set && far->value.n > DOUBLE_EXACT);
    r->n_fraction = (is_close ? DOUBLE_EXACT : DOUBLE_DIGITS) - 1;
    return grammar_either(r->b, without, scientific_numbers(r, near_exact, far_exact));
}

/* The bounds of one sign's magnitudes. False when there are none of that sign. */
static bool sign_bounds(const struct schema_facets *f, bool negative, struct number_bound *near,
                        struct number_bound *far)
{
    *near = negative ? f->high : f->low;
    *far = negative ? f->low : f->high;
    if (far->is_set && far->value.negative != negative) {
        if (far->value.n || negative || far->exclusive)
            return false;
    }
    if (near->is_set && near->value.negative != negative) {
        bool zero = !near->value.n;
        near->exclusive &= zero; /* "greater than 0" stays; "greater than -5" is all of them */
        near->is_set = zero && near->exclusive;
    }
    if (negative && !near->is_set) /* -0 is left out: it is 0 */
        *near = (struct number_bound){.is_set = true, .exclusive = true};
    near->value.negative = far->value.negative = false;
    near->plain.negative = far->plain.negative = false;
    return true;
}

/* Integers that are multiples of multiple * 10^-decimals: the multiple that is left of it. */
static uint64_t integer_multiple(const struct schema_facets *f)
{
    uint64_t multiple = f->multiple;
    for (int i = 0; i < f->decimals; i++) {
        if (multiple % 2 == 0)
            multiple /= 2;
        if (multiple % 5 == 0)
            multiple /= 5;
    }
    return multiple;
}

static bool writer_init(struct range_writer *r, struct schema_walker *w,
                        const struct schema_facets *f)
{
    bool integral = !(f->types & TYPE_FRACTION);
    *r = (struct range_writer){.w = w, .b = w->b, .canonical = w->text.style == JSON_CANONICAL};
    if (!f->multiple)
        return true;
    r->multiple = integral ? integer_multiple(f) : f->multiple;
    r->decimals = !integral && f->decimals > 0 ? (unsigned)f->decimals : 0;
    if (r->multiple == 1)
        r->multiple = 0; /* only the number of digits matters */
    r->rests = arena_alloc_array(&w->arena, (DIGITS_MAX + 1) * r->multiple + 1, sizeof *r->rests);
    r->tails = arena_alloc_array(&w->arena, 2 * (r->decimals + 1) * r->multiple + 1,
                                 sizeof *r->tails);
    return (r->rests && r->tails) || schema_step(w, 1);
}

grammar_expr schema_number(struct schema_walker *w, const struct schema_facets *f)
{
    if (!schema_number_check(w, f))
        return GRAMMAR_NONE;
    if (!f->low.is_set && !f->high.is_set && !f->multiple)
        return f->types & TYPE_FRACTION ? w->text.number : w->text.integer;
    if (schema_number_is_empty(f))
        return grammar_never(w->b);
    struct range_writer r;
    if (!writer_init(&r, w, f))
        return GRAMMAR_NONE;
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
