/* Numbers: exact bounds and multiples, as decimal digits, because a double would round. */
#include "prompt/schema/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    EXPONENT_DIGITS_MAX = 15,
    DECIMALS_MAX = 15, /* of a multipleOf */
};

/* ---- decimals ------------------------------------------------------------------------------ */

/* The exponent of a number's text, which begins at its 'e'. */
static bool exponent_read(const char *text, size_t len, int64_t *out)
{
    size_t i = 1;
    bool negative = i < len && text[i] == '-';
    i += i < len && (text[i] == '-' || text[i] == '+');
    while (i < len && text[i] == '0')
        i++;
    *out = 0;
    if (len - i > EXPONENT_DIGITS_MAX)
        return false;
    for (; i < len; i++)
        *out = *out * 10 + (text[i] - '0');
    if (negative)
        *out = -*out;
    return true;
}

bool decimal_parse(const char *text, size_t len, struct decimal *out)
{
    size_t begin = len && text[0] == '-', end = begin, dot = SIZE_MAX;
    int64_t exponent = 0;
    for (; end < len && text[end] != 'e' && text[end] != 'E'; end++)
        if (text[end] == '.')
            dot = end;
    bool ok = end == len || exponent_read(text + end, len - end, &exponent);
    size_t n_integer = (dot == SIZE_MAX ? end : dot) - begin; /* digits before the point */
    size_t n = end - begin - (dot != SIZE_MAX), n_zeros = 0;
    while (begin < end && (text[begin] == '0' || text[begin] == '.')) {
        n_zeros += text[begin] == '0';
        begin++;
    }
    *out = (struct decimal){.negative = text[0] == '-',
                            .n = (uint32_t)(n - n_zeros),
                            .point = (int64_t)n_integer - (int64_t)n_zeros + exponent,
                            .digits = text + begin,
                            .dot = dot == SIZE_MAX || dot < begin ? UINT32_MAX
                                                                  : (uint32_t)(dot - begin)};
    while (out->n && decimal_digit(out, out->n - 1) == '0')
        out->n--;
    if (out->n == 0)
        *out = (struct decimal){0};
    return ok || out->n == 0;
}

char decimal_digit(const struct decimal *d, int64_t i)
{
    return i >= 0 && i < d->n ? d->digits[i + (i >= d->dot)] : '0';
}

int64_t decimal_integer_digits(const struct decimal *d)
{
    return d->n && d->point > 0 ? d->point : 0;
}

int64_t decimal_fraction_digits(const struct decimal *d)
{
    return d->n > d->point ? d->n - d->point : 0;
}

static int magnitude_compare(const struct decimal *a, const struct decimal *b)
{
    if (!a->n || !b->n)
        return (a->n > 0) - (b->n > 0);
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    for (uint32_t i = 0; i < a->n && i < b->n; i++)
        if (decimal_digit(a, i) != decimal_digit(b, i))
            return decimal_digit(a, i) < decimal_digit(b, i) ? -1 : 1;
    return (a->n > b->n) - (a->n < b->n);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    int order = magnitude_compare(a, b);
    return a->negative ? -order : order;
}

/* All digits as one integer, without the point. False when it does not fit. */
static bool decimal_coefficient(const struct decimal *d, uint64_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        uint64_t digit = (uint64_t)(decimal_digit(d, i) - '0');
        if (*out > (UINT64_MAX - digit) / 10)
            return false;
        *out = *out * 10 + digit;
    }
    return true;
}

/* ---- keywords ------------------------------------------------------------------------------ */

/* Takes a bound if it is closer than the one so far: `side` is 1 for a low one, -1 for a high. */
static void bound_take(struct number_bound *bound, const struct number_bound *other, int side)
{
    int order = bound->is_set ? side * decimal_compare(&other->value, &bound->value) : 1;
    if (order > 0)
        *bound = *other;
    else if (order == 0)
        bound->exclusive |= other->exclusive;
}

/* Most validators read a bound with a point or an exponent as a double, and compare it with
 * integers exactly: 1e23 becomes 99999999999999991611392. For numbers without an exponent the
 * stricter of both is taken, so that an answer is valid either way. */
static bool bound_round(struct schema_walker *w, const struct json *number, int side,
                        struct decimal *value)
{
    char text[400];
    struct decimal rounded;
    if (!memchr(number->text, '.', number->text_len) && !strpbrk(number->text, "eE"))
        return true;
    if (fabs(number->number) < 9007199254740992.0 || isinf(number->number))
        return true;
    int len = snprintf(text, sizeof text, "%.0f", number->number);
    char *kept = arena_copy(&w->arena, text, (size_t)len);
    if (!kept)
        return schema_step(w, 1);
    if (decimal_parse(kept, (size_t)len, &rounded) && side * decimal_compare(&rounded, value) > 0)
        *value = rounded;
    return true;
}

static bool bound_read(struct schema_walker *w, const struct schema_item *item,
                       struct schema_facets *f, const char *keyword, const char *exclusive_keyword,
                       int side)
{
    struct number_bound *bound = side > 0 ? &f->low : &f->high;
    const struct json *values[2] = {json_get(item->node, keyword),
                                    json_get(item->node, exclusive_keyword)};
    bool exclusive = false; /* draft 4: a boolean beside the bound */
    if (json_is(values[1], JSON_BOOL)) {
        exclusive = values[1]->boolean;
        values[1] = NULL;
    }
    for (int i = 0; i < 2; i++) {
        struct number_bound other = {.is_set = true, .exclusive = i ? true : exclusive};
        if (!values[i])
            continue;
        if (values[i]->type != JSON_NUMBER)
            return schema_fail(w, item->place, i ? exclusive_keyword : keyword, "must be a number");
        if (!decimal_parse(values[i]->text, values[i]->text_len, &other.value)) {
            f->unheld = item;
            continue;
        }
        other.plain = other.value;
        if (!bound_round(w, values[i], side, &other.plain))
            return false;
        bound_take(bound, &other, side);
    }
    return true;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* multiple * 10^-decimals, with as few zeros at the end of `multiple` as can be. */
static void multiple_set(struct schema_facets *f, uint64_t multiple, int64_t decimals)
{
    while (multiple % 10 == 0) {
        multiple /= 10;
        decimals--;
    }
    f->multiple = multiple;
    f->decimals = (int)decimals;
}

static bool scale(uint64_t *value, int64_t zeros)
{
    for (; zeros > 0; zeros--) {
        if (*value > UINT64_MAX / 10)
            return false;
        *value *= 10;
    }
    return true;
}

/* Makes `f` the multiples of what it had and of another one: their least common multiple. */
static bool multiple_join(struct schema_facets *f, uint64_t multiple, int64_t decimals)
{
    uint64_t other = f->multiple;
    int64_t most = decimals > f->decimals ? decimals : f->decimals;
    if (!scale(&multiple, most - decimals) || !scale(&other, most - f->decimals))
        return false;
    uint64_t factor = multiple / common_divisor(other, multiple);
    if (other > UINT64_MAX / factor)
        return false;
    multiple_set(f, other * factor, most);
    return true;
}

static bool multiple_read(struct schema_walker *w, const struct schema_item *item,
                          struct schema_facets *f)
{
    const struct json *value = json_get(item->node, "multipleOf");
    struct decimal d;
    uint64_t multiple;
    if (!value)
        return true;
    if (value->type != JSON_NUMBER || !decimal_parse(value->text, value->text_len, &d) ||
        d.negative || !d.n)
        return schema_fail(w, item->place, "multipleOf", "must be a number greater than 0");
    int64_t decimals = d.n - d.point;
    if (!decimal_coefficient(&d, &multiple) || decimals > DECIMALS_MAX || decimals < -DECIMALS_MAX)
        f->unheld = item;
    else if (!f->multiple)
        multiple_set(f, multiple, decimals);
    else if (!multiple_join(f, multiple, decimals))
        f->unheld = item;
    return true;
}

bool schema_number_facets(struct schema_walker *w, const struct schema_item *item,
                          struct schema_facets *f)
{
    return bound_read(w, item, f, "minimum", "exclusiveMinimum", 1) &&
           bound_read(w, item, f, "maximum", "exclusiveMaximum", -1) && multiple_read(w, item, f);
}

/* Whether all numbers beyond a bound have too many digits to be written without an exponent, as
 * integers and multiples are. `side` is 1 for a low bound, -1 for a high one. */
static bool bound_is_far(const struct schema_facets *f, const struct number_bound *bound, int side)
{
    bool is_written_out = !(f->types & TYPE_FRACTION) || f->multiple;
    return is_written_out && bound->is_set && bound->value.negative == (side < 0) &&
           decimal_integer_digits(&bound->value) > DIGITS_MAX;
}

void schema_number_relax(struct schema_facets *f)
{
    f->unheld = NULL;
    if (f->multiple > MULTIPLE_MAX)
        f->multiple = 0;
    f->low.is_set &= !bound_is_far(f, &f->low, 1);
    f->high.is_set &= !bound_is_far(f, &f->high, -1);
}

bool schema_number_check(struct schema_walker *w, const struct schema_facets *f)
{
    if (f->unheld || f->multiple > MULTIPLE_MAX)
        return schema_refuse(
            w, f->unheld ? f->unheld->place : f->set->items[0]->place, NULL,
            "this 'multipleOf' or bound is not supported: a 'multipleOf' may be up "
            "to %d before or after zeros (0.25, 360000), with up to %d digits "
            "after the decimal point",
            MULTIPLE_MAX, DECIMALS_MAX);
    if (bound_is_far(f, &f->low, 1) || bound_is_far(f, &f->high, -1))
        return schema_refuse(w, f->set->items[0]->place, NULL,
                             "this bound is not supported: integers and multiples have up to %d "
                             "digits",
                             DIGITS_MAX);
    return true;
}

/* ---- values -------------------------------------------------------------------------------- */

/* Whether the number is `multiple` * 10^-decimals times an integer. */
static bool is_multiple(const struct decimal *d, uint64_t multiple, int decimals)
{
    uint64_t rest = 0;
    if (d->n - d->point > decimals) /* more decimals than any multiple has */
        return d->n == 0;
    for (int64_t i = 0; i < d->n; i++)
        rest = (rest * 10 + (uint64_t)(decimal_digit(d, i) - '0')) % multiple;
    /* Zeros that are still missing. After this many, all factors of 10 are there. */
    int64_t zeros = d->point + decimals - d->n;
    for (int64_t i = 0; i < zeros && i < 64 && rest; i++)
        rest = rest * 10 % multiple;
    return rest == 0;
}

bool schema_number_is_valid(const struct schema_walker *w, const struct schema_facets *f,
                            const struct json *value)
{
    bool doubtful = w->n_probing > 0; /* what the answer is when we cannot tell */
    struct decimal d;
    if (f->unheld || f->multiple > MULTIPLE_MAX || !decimal_parse(value->text, value->text_len, &d))
        return doubtful;
    if (!(f->types & TYPE_FRACTION)) {
        if (decimal_fraction_digits(&d))
            return false;
        if (strpbrk(value->text, ".eE") && !doubtful)
            return false; /* 1.0 is an integer in some drafts only */
    }
    int low = f->low.is_set ? decimal_compare(&d, &f->low.value) : 1;
    int high = f->high.is_set ? decimal_compare(&d, &f->high.value) : -1;
    if (low < 0 || (low == 0 && f->low.exclusive) || high > 0 || (high == 0 && f->high.exclusive))
        return false;
    return !f->multiple || is_multiple(&d, f->multiple, f->decimals);
}

/* About its value: 15 digits of it. */
static double decimal_estimate(const struct decimal *d)
{
    double value = 0;
    for (int64_t i = 0; i < d->n && i < 15; i++)
        value += (double)(decimal_digit(d, i) - '0') * pow(10, (double)(d->point - 1 - i));
    return d->negative ? -value : value;
}

bool schema_integers_suffice(const struct schema_facets *f, uint32_t n)
{
    double step = f->multiple ? (double)f->multiple : 1;
    if (n <= 1 || (!f->multiple && !(f->low.is_set && f->high.is_set)))
        return true;
    if (f->multiple && f->decimals < 0)
        return false;
    if (!f->low.is_set || !f->high.is_set)
        return true;
    double low = decimal_estimate(&f->low.value), high = decimal_estimate(&f->high.value);
    return low > -1e15 && high < 1e15 && (high - low) / step - 1 >= n;
}

bool schema_number_is_empty(const struct schema_facets *f)
{
    if (!f->low.is_set || !f->high.is_set)
        return false;
    int order = decimal_compare(&f->low.value, &f->high.value);
    return order > 0 || (order == 0 && (f->low.exclusive || f->high.exclusive));
}
