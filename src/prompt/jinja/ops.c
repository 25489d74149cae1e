/* Python's operators. Integers have 64 bits: overflow is an error, never a wrong number. Division
 * and remainder round towards minus infinity, as in Python. */
#include "prompt/jinja/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prompt/jinja/builtin.h"
#include "prompt/unicode/unicode.h"

static const char *const op_names[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

static bool fail_types(struct jinja *j, enum binary_op op, const struct value *a,
                       const struct value *b)
{
    if (op == OP_ADD && (a->type == V_STRING || a->type == V_LIST || a->type == V_TUPLE)) {
        const char *left = value_type_name(a);
        return jinja_fail(j, "can only concatenate %s (not \"%s\") to %s", left, value_type_name(b),
                          left);
    }
    return jinja_fail(j, "unsupported operand type(s) for %s: '%s' and '%s'", op_names[op],
                      value_type_name(a), value_type_name(b));
}

static bool fail_overflow(struct jinja *j)
{
    return jinja_fail(j, "integer out of range: numbers beyond 64 bits are not supported");
}

static bool int_power(struct jinja *j, int64_t base, int64_t exponent, struct value *out)
{
    if (exponent < 0) {
        if (base == 0)
            return jinja_fail(j, "0.0 cannot be raised to a negative power");
        *out = value_real(pow((double)base, (double)exponent));
        return true;
    }
    int64_t result = 1;
    while (exponent) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result))
            return fail_overflow(j);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base))
            return fail_overflow(j);
    }
    *out = value_int(result);
    return true;
}

static bool int_binary(struct jinja *j, enum binary_op op, int64_t a, int64_t b, struct value *out)
{
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
    case OP_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case OP_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
    case OP_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
    case OP_DIV:
        if (b == 0)
            return jinja_fail(j, "division by zero");
        *out = value_real((double)a / (double)b);
        return true;
    case OP_FLOORDIV:
    case OP_MOD:
        if (b == 0)
            return jinja_fail(j, "integer division or modulo by zero");
        if (b == -1) {
            overflow = op == OP_FLOORDIV && __builtin_sub_overflow(0, a, &result);
            break;
        }
        result = op == OP_FLOORDIV ? a / b : a % b;
        if (a % b != 0 && (a < 0) != (b < 0))
            result += op == OP_FLOORDIV ? -1 : b;
        break;
    case OP_POW: return int_power(j, a, b, out);
    }
    if (overflow)
        return fail_overflow(j);
    *out = value_int(result);
    return true;
}

static bool real_binary(struct jinja *j, enum binary_op op, double a, double b, struct value *out)
{
    double result = 0;
    if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
        return jinja_fail(j, op == OP_MOD ? "float modulo" : "float division by zero");
    switch (op) {
    case OP_ADD: result = a + b; break;
    case OP_SUB: result = a - b; break;
    case OP_MUL: result = a * b; break;
    case OP_DIV: result = a / b; break;
    case OP_FLOORDIV:
    case OP_MOD: {
        double mod = fmod(a, b);
        double div = (a - mod) / b;
        if (mod != 0 && (b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        } else if (mod == 0) {
            mod = copysign(0, b);
        }
        double whole = floor(div);
        if (div - whole > 0.5)
            whole += 1;
        result = op == OP_MOD ? mod : div != 0 ? whole : copysign(0, a / b);
        break;
    }
    case OP_POW:
        if (a == 0 && b < 0)
            return jinja_fail(j, "0.0 cannot be raised to a negative power");
        if (a < 0 && b != floor(b))
            return jinja_fail(j, "complex numbers are not supported");
        result = pow(a, b);
        if (isinf(result) && isfinite(a) && isfinite(b))
            return jinja_fail(j, "Numerical result out of range");
        break;
    }
    *out = value_real(result);
    return true;
}

static bool list_concat(struct jinja *j, const struct value *a, const struct value *b,
                        struct value *out)
{
    struct list *list = list_new(j, a->list->len + b->list->len);
    if (!list)
        return false;
    for (size_t i = 0; i < a->list->len; i++)
        list->items[list->len++] = a->list->items[i];
    for (size_t i = 0; i < b->list->len; i++)
        list->items[list->len++] = b->list->items[i];
    *out = a->type == V_LIST ? value_list(list) : value_tuple(list);
    return jinja_step(j, list->len / 8);
}

static bool repeat(struct jinja *j, const struct value *v, int64_t times, struct value *out)
{
    times = times < 0 ? 0 : times;
    if (v->type == V_STRING) {
        struct builder b = {0};
        if (v->text->len && (uint64_t)times > JINJA_MAX_MEMORY_BYTES / v->text->len)
            return jinja_fail_memory(j);
        if (!builder_reserve(j, &b, v->text->len * (size_t)times))
            return false;
        for (int64_t i = 0; v->text->len && i < times && !j->failed; i++)
            builder_add_text(j, &b, v->text);
        return value_set_text(text_with_markup(j, builder_text(j, &b), v->text->markup), out);
    }
    if (v->list->len && (uint64_t)times > JINJA_MAX_MEMORY_BYTES / v->list->len)
        return jinja_fail_memory(j);
    struct list *list = list_new(j, v->list->len * (size_t)times);
    if (!list)
        return false;
    for (int64_t i = 0; v->list->len && i < times; i++)
        for (size_t k = 0; k < v->list->len; k++)
            list->items[list->len++] = v->list->items[k];
    *out = v->type == V_LIST ? value_list(list) : value_tuple(list);
    return jinja_step(j, list->len / 8);
}

static bool is_sequence(const struct value *v)
{
    return v->type == V_STRING || v->type == V_LIST || v->type == V_TUPLE;
}

static bool is_integer(const struct value *v)
{
    return v->type == V_INT || v->type == V_BOOL;
}

static int64_t to_integer(const struct value *v)
{
    return v->type == V_INT ? v->integer : v->boolean;
}

bool op_binary(struct jinja *j, enum binary_op op, const struct value *a, const struct value *b,
               struct value *out)
{
    if (op == OP_ADD && a->type == V_STRING && b->type == V_STRING)
        return value_set_text(text_concat(j, a->text, b->text), out);
    if (op == OP_MOD && a->type == V_STRING)
        return format_percent(j, a->text, b, out);
    if (a->type == V_UNDEFINED || b->type == V_UNDEFINED)
        return jinja_fail_undefined(j, a->type == V_UNDEFINED ? a : b);
    if (is_integer(a) && is_integer(b))
        return int_binary(j, op, to_integer(a), to_integer(b), out);
    if (value_is_number(a) && value_is_number(b)) {
        if (a->type != V_FLOAT && b->type != V_FLOAT)
            return fail_overflow(j); /* one is a big integer */
        return real_binary(j, op, value_to_real(a), value_to_real(b), out);
    }
    if (op == OP_ADD && a->type == b->type && is_sequence(a))
        return list_concat(j, a, b, out);
    if (op == OP_MUL && is_sequence(a) && is_integer(b))
        return repeat(j, a, to_integer(b), out);
    if (op == OP_MUL && is_integer(a) && is_sequence(b))
        return repeat(j, b, to_integer(a), out);
    return fail_types(j, op, a, b);
}

bool op_negate(struct jinja *j, const struct value *v, struct value *out)
{
    if (v->type == V_UNDEFINED)
        return jinja_fail_undefined(j, v);
    if (v->type == V_FLOAT) {
        *out = value_real(-v->real);
        return true;
    }
    if (!is_integer(v))
        return jinja_fail(j, "bad operand type for unary -: '%s'", value_type_name(v));
    return int_binary(j, OP_SUB, 0, to_integer(v), out);
}

/* Start, end and step of a slice in a sequence of `len` items, like Python's slice.indices(). */
static bool slice_bounds(struct jinja *j, const struct value bounds[3], int64_t len, int64_t *start,
                         int64_t *stop, int64_t *step)
{
    int64_t *const wanted[3] = {start, stop, step};
    bool given[3];
    for (int i = 0; i < 3; i++) {
        given[i] = bounds[i].type != V_MISSING && bounds[i].type != V_NONE;
        *wanted[i] = given[i] ? to_integer(&bounds[i]) : 0;
    }
    if (!given[2])
        *step = 1;
    if (*step == 0)
        return jinja_fail(j, "slice step cannot be zero");
    *step = *step > len ? len + 1 : *step < -len ? -len - 1 : *step; /* i + step cannot overflow */
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? len - 1 : len;
    for (int i = 0; i < 2; i++) {
        if (!given[i])
            *wanted[i] = (i == 0) == (*step > 0) ? low : high;
        else if (*wanted[i] < 0)
            *wanted[i] = *wanted[i] + len < low ? low : *wanted[i] + len;
        else if (*wanted[i] > high)
            *wanted[i] = high;
    }
    return true;
}

static bool string_slice(struct jinja *j, const struct text *t, int64_t start, int64_t stop,
                         int64_t step, struct value *out)
{
    if (!jinja_step(j, t->len / 64))
        return false;
    if (step == 1) {
        size_t from = text_offset(t, (size_t)start);
        size_t to = stop > start ? text_offset(t, (size_t)stop) : from;
        return value_set_text(text_slice(j, t, from, to), out);
    }
    struct builder b = {0};
    if (text_chars(t) == t->len) {
        for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
            builder_add_slice(j, &b, t, (size_t)i, (size_t)i + 1);
        return value_set_text(text_with_markup(j, builder_text(j, &b), t->markup), out);
    }
    size_t n = text_chars(t);
    size_t *offsets = jinja_alloc_array(j, n + 1, sizeof *offsets);
    if (!offsets)
        return false;
    uint32_t code;
    for (size_t i = 0; i < n; i++)
        offsets[i + 1] = offsets[i] +
                         unicode_next(t->data + offsets[i], t->len - offsets[i], &code);
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
        builder_add_slice(j, &b, t, offsets[i], offsets[i + 1]);
    return value_set_text(text_with_markup(j, builder_text(j, &b), t->markup), out);
}

bool op_slice(struct jinja *j, const struct value *object, const struct value bounds[3],
              struct value *out)
{
    if (object->type == V_UNDEFINED)
        return jinja_fail_undefined(j, object);
    if (!is_sequence(object) && object->type != V_RANGE)
        return jinja_fail(j,
                          object->type == V_DICT ? "unhashable type: 'slice'"
                                                 : "'%s' object is not subscriptable",
                          value_type_name(object));
    for (int i = 0; i < 3; i++)
        if (bounds[i].type != V_MISSING && bounds[i].type != V_NONE && !is_integer(&bounds[i]))
            return jinja_fail(j,
                              "slice indices must be integers or None or have an __index__ method");
    const struct list *list = object->type == V_RANGE ? object->range->items : object->list;
    int64_t start = 0, stop = 0, step = 1;
    int64_t len = object->type == V_STRING ? (int64_t)text_chars(object->text) : (int64_t)list->len;
    if (!slice_bounds(j, bounds, len, &start, &stop, &step))
        return false;
    if (object->type == V_STRING)
        return string_slice(j, object->text, start, stop, step, out);
    struct list *slice = list_new(j, 0);
    if (!slice)
        return false;
    if (step == 1) {
        *slice = (struct list){.items = list->items ? list->items + start : NULL,
                               .len = stop > start ? (size_t)(stop - start) : 0};
        slice->capacity = slice->len;
    } else {
        for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
            if (!list_add(j, slice, &list->items[i]) || !jinja_step(j, 1))
                return false;
    }
    *out = object->type == V_TUPLE ? value_tuple(slice) : value_list(slice);
    return true;
}

bool op_round(struct jinja *j, const struct value *number, int64_t digits, struct value *out)
{
    if (number->type == V_UNDEFINED)
        return jinja_fail_undefined(j, number);
    if (!is_integer(number) && number->type != V_FLOAT)
        return jinja_fail(j, "type %s doesn't define __round__ method", value_type_name(number));
    if (is_integer(number)) {
        int64_t scale = 1, value = to_integer(number);
        for (int64_t i = digits; i < 0 && scale; i++)
            scale = scale > INT64_MAX / 20 ? 0 : scale * 10;
        if (digits >= 0 || scale == 0) {
            *out = value_int(digits >= 0 ? value : 0);
            return true;
        }
        int64_t rest = value % scale, half = scale / 2, down = value - rest;
        int64_t away = rest < 0 ? -scale : scale, size = rest < 0 ? -rest : rest;
        bool up = size > half || (size == half && (down / scale) % 2 != 0);
        if (up && __builtin_add_overflow(down, away, &down))
            return fail_overflow(j);
        *out = value_int(down);
        return true;
    }
    char printed[400];
    if (!isfinite(number->real) || digits > 22) {
        *out = *number;
    } else if (digits >= 0) { /* the C library rounds the exact decimal value, as Python does */
        snprintf(printed, sizeof printed, "%.*f", (int)digits, number->real);
        *out = value_real(strtod(printed, NULL));
    } else {
        double scale = digits < -308 ? INFINITY : pow(10, (double)-digits);
        *out = value_real(isinf(scale) ? copysign(0, number->real)
                                       : nearbyint(number->real / scale) * scale);
    }
    return true;
}
