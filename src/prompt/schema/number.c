/* Numbers: bounds and multiples, exactly, as decimal digits; a double would round. */
#include "prompt/schema/number.h"

#include <string.h>

#include "base/ascii.h"

/* ---- decimals ------------------------------------------------------------------------------ */

/* The digits of a number's text without its point, and where the point would be. */
struct digits {
    char digit[64];
    size_t n;
    long point;
};

static bool digits_read(const char *text, size_t len, struct digits *d)
{
    long exponent = 0, sign = 1;
    bool behind = false;
    size_t i = 0;
    *d = (struct digits){.n = 0};
    for (; i < len && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') {
            behind = true;
            continue;
        }
        if (d->n == 0 && text[i] == '0') { /* a zero in front only moves the point */
            d->point -= behind;
            continue;
        }
        if (d->n == sizeof d->digit)
            return false;
        d->digit[d->n++] = text[i];
        d->point += !behind;
    }
    if (i < len && i + 1 < len) {
        i++;
        if (text[i] == '-')
            sign = -1;
        i += text[i] == '-' || text[i] == '+';
        for (; i < len; i++)
            if ((exponent = exponent * 10 + (text[i] - '0')) > 1000)
                return false;
    }
    d->point += sign * exponent;
    while (d->n && d->digit[d->n - 1] == '0')
        d->n--;
    return true;
}

bool decimal_parse(const char *text, size_t len, struct decimal *out)
{
    struct digits d;
    *out = (struct decimal){.negative = len && text[0] == '-'};
    if (!digits_read(text + out->negative, len - out->negative, &d))
        return false;
    if (d.n == 0) {
        out->negative = false;
        return true;
    }
    if (d.point > (long)sizeof out->integer || (long)d.n - d.point > (long)sizeof out->fraction)
        return false;
    for (long i = 0; i < d.point; i++)
        out->integer[out->n_integer++] = i < (long)d.n ? d.digit[i] : '0';
    for (long i = d.point; i < (long)d.n; i++)
        out->fraction[out->n_fraction++] = i < 0 ? '0' : d.digit[i];
    return true;
}

static int magnitude_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->n_integer != b->n_integer)
        return a->n_integer < b->n_integer ? -1 : 1;
    int order = memcmp(a->integer, b->integer, a->n_integer);
    if (order)
        return order;
    size_t n = a->n_fraction < b->n_fraction ? a->n_fraction : b->n_fraction;
    order = memcmp(a->fraction, b->fraction, n);
    return order ? order : (a->n_fraction > b->n_fraction) - (a->n_fraction < b->n_fraction);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    int order = magnitude_compare(a, b);
    return a->negative ? -order : order;
}

bool decimal_magnitude(const struct decimal *d, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < d->n_integer; i++) {
        uint64_t digit = (uint64_t)(d->integer[i] - '0');
        if (*out > (UINT64_MAX - digit) / 10)
            return false;
        *out = *out * 10 + digit;
    }
    return true;
}

/* ---- keywords ------------------------------------------------------------------------------ */

/* Takes a bound if it is closer than the one so far: `side` is 1 for a low one, -1 for a high. */
static void bound_take(struct number_bound *bound, const struct decimal *value, bool exclusive,
                       int side)
{
    int order = bound->is_set ? side * decimal_compare(value, &bound->value) : 1;
    if (order > 0)
        *bound = (struct number_bound){true, exclusive, *value};
    else if (order == 0)
        bound->exclusive |= exclusive;
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
        struct decimal value;
        if (!values[i])
            continue;
        if (values[i]->type != JSON_NUMBER)
            return schema_fail(w, item->place, i ? exclusive_keyword : keyword, "must be a number");
        if (decimal_parse(values[i]->text, values[i]->text_len, &value)) {
            bound_take(bound, &value, i ? true : exclusive, side);
        } else if (values[i]->number * side > -1e17) {
            /* Not a bound that all numbers we write keep to anyway, such as -1e308 below. */
            f->unheld = item;
        }
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

/* Integers up to MULTIPLE_MAX and negative powers of ten can be held to. */
static bool multiple_read(struct schema_walker *w, const struct schema_item *item,
                          struct schema_facets *f)
{
    const struct json *value = json_get(item->node, "multipleOf");
    struct decimal d;
    uint64_t multiple;
    if (!value)
        return true;
    if (value->type != JSON_NUMBER || !(value->number > 0))
        return schema_fail(w, item->place, "multipleOf", "must be a number greater than 0");
    if (!decimal_parse(value->text, value->text_len, &d)) {
        f->unheld = item;
    } else if (d.n_fraction == 0 && decimal_magnitude(&d, &multiple)) {
        uint64_t factor = f->multiple ? multiple / common_divisor(f->multiple, multiple) : multiple;
        if (f->multiple && factor > MULTIPLE_MAX)
            f->unheld = item;
        else
            f->multiple = (f->multiple ? f->multiple : 1) * factor;
    } else if (d.n_integer == 0 && d.fraction[d.n_fraction - 1] == '1' &&
               strspn(d.fraction, "0") == d.n_fraction - 1u) {
        if (f->decimals < 0 || f->decimals > d.n_fraction)
            f->decimals = d.n_fraction;
    } else {
        f->unheld = item;
    }
    return true;
}

bool schema_number_facets(struct schema_walker *w, const struct schema_item *item,
                          struct schema_facets *f)
{
    return bound_read(w, item, f, "minimum", "exclusiveMinimum", 1) &&
           bound_read(w, item, f, "maximum", "exclusiveMaximum", -1) && multiple_read(w, item, f);
}

bool schema_number_check(struct schema_walker *w, const struct schema_facets *f)
{
    if (f->unheld)
        return schema_fail(w, f->unheld->place, NULL,
                           "this 'multipleOf', or a bound with so many digits, is not supported "
                           "(supported: integers up to %d, 0.1, 0.01 and so on, 20 digits)",
                           MULTIPLE_MAX);
    if (f->multiple > MULTIPLE_MAX && f->multiple)
        return schema_fail(w, f->set->items[0]->place, "multipleOf",
                           "integers over %d are not supported", MULTIPLE_MAX);
    return true;
}

/* ---- values -------------------------------------------------------------------------------- */

/* The rest of the digits divided by `divisor`. */
static uint64_t decimal_modulo(const struct decimal *d, uint64_t divisor)
{
    uint64_t rest = 0;
    for (size_t i = 0; i < d->n_integer; i++)
        rest = (rest * 10 + (uint64_t)(d->integer[i] - '0')) % divisor;
    return rest;
}

bool schema_number_is_valid(const struct schema_walker *w, const struct schema_facets *f,
                            const struct json *value)
{
    bool doubtful = w->n_probing > 0; /* what the answer is when we cannot tell */
    struct decimal d;
    if (f->unheld || f->multiple > MULTIPLE_MAX || !decimal_parse(value->text, value->text_len, &d))
        return doubtful;
    if (!(f->types & TYPE_FRACTION)) {
        if (d.n_fraction)
            return false;
        if (strpbrk(value->text, ".eE") && !doubtful)
            return false; /* 1.0 is an integer in some drafts only */
    }
    int low = f->low.is_set ? decimal_compare(&d, &f->low.value) : 1;
    int high = f->high.is_set ? decimal_compare(&d, &f->high.value) : -1;
    if (low < 0 || (low == 0 && f->low.exclusive) || high > 0 || (high == 0 && f->high.exclusive))
        return false;
    if (f->multiple && (d.n_fraction || decimal_modulo(&d, f->multiple)))
        return false;
    return f->decimals < 0 || d.n_fraction <= f->decimals;
}

bool schema_number_is_empty(const struct schema_facets *f)
{
    if (!f->low.is_set || !f->high.is_set)
        return false;
    int order = decimal_compare(&f->low.value, &f->high.value);
    return order > 0 || (order == 0 && (f->low.exclusive || f->high.exclusive));
}
