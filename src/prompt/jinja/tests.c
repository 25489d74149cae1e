/* `value is test`. */
#include "prompt/jinja/builtin.h"

#include <math.h>
#include <string.h>

#define TEST_FUNCTION(name)                                                                        \
    static bool name(struct jinja *j, const struct value *self, const struct value *args,          \
                     bool *result)
#define UNUSED (void)j, (void)self, (void)args

static bool remainder_is(struct jinja *j, const struct value *value, struct value divisor,
                         int64_t wanted, bool *result)
{
    struct value rest, expected = value_int(wanted);
    if (!op_binary(j, OP_MOD, value, &divisor, &rest))
        return false;
    *result = value_equal(j, &rest, &expected);
    return true;
}

TEST_FUNCTION(is_odd)
{
    UNUSED;
    return remainder_is(j, self, value_int(2), 1, result);
}

TEST_FUNCTION(is_even)
{
    UNUSED;
    return remainder_is(j, self, value_int(2), 0, result);
}

TEST_FUNCTION(is_divisible)
{
    UNUSED;
    return remainder_is(j, self, args[0], 0, result);
}

TEST_FUNCTION(is_defined)
{
    UNUSED;
    *result = self->type != V_UNDEFINED;
    return true;
}

TEST_FUNCTION(is_undefined)
{
    UNUSED;
    *result = self->type == V_UNDEFINED;
    return true;
}

TEST_FUNCTION(is_none)
{
    UNUSED;
    *result = self->type == V_NONE;
    return true;
}

TEST_FUNCTION(is_boolean)
{
    UNUSED;
    *result = self->type == V_BOOL;
    return true;
}

TEST_FUNCTION(is_false)
{
    UNUSED;
    *result = self->type == V_BOOL && !self->boolean;
    return true;
}

TEST_FUNCTION(is_true)
{
    UNUSED;
    *result = self->type == V_BOOL && self->boolean;
    return true;
}

TEST_FUNCTION(is_integer)
{
    UNUSED;
    *result = self->type == V_INT || self->type == V_BIGINT;
    return true;
}

TEST_FUNCTION(is_float)
{
    UNUSED;
    *result = self->type == V_FLOAT;
    return true;
}

TEST_FUNCTION(is_number)
{
    UNUSED;
    *result = value_is_number(self);
    return true;
}

TEST_FUNCTION(is_string)
{
    UNUSED;
    *result = self->type == V_STRING;
    return true;
}

TEST_FUNCTION(is_mapping)
{
    UNUSED;
    *result = self->type == V_DICT;
    return true;
}

TEST_FUNCTION(is_iterable)
{
    UNUSED;
    *result = value_is_iterable(self) || self->type == V_LOOP;
    return true;
}

/* Jinja tests for len() and indexing, which an undefined value also supports. */
TEST_FUNCTION(is_sequence)
{
    UNUSED;
    *result = self->type == V_STRING || self->type == V_LIST || self->type == V_TUPLE ||
              self->type == V_DICT || self->type == V_RANGE || self->type == V_UNDEFINED;
    return true;
}

TEST_FUNCTION(is_callable)
{
    UNUSED;
    *result = self->type == V_MACRO || self->type == V_FUNCTION || self->type == V_METHOD ||
              self->type == V_LOOP || self->type == V_JOINER || self->type == V_UNDEFINED;
    return true;
}

TEST_FUNCTION(is_lower)
{
    UNUSED;
    const struct text *text = value_str(j, self);
    *result = text && string_has_case(text, false);
    return text != NULL;
}

TEST_FUNCTION(is_upper)
{
    UNUSED;
    const struct text *text = value_str(j, self);
    *result = text && string_has_case(text, true);
    return text != NULL;
}

TEST_FUNCTION(is_escaped)
{
    UNUSED;
    *result = self->type == V_STRING && self->text->markup;
    return true;
}

/* The same object; for values without identity, the same type and value. */
TEST_FUNCTION(is_sameas)
{
    UNUSED;
    if (self->type != args[0].type)
        *result = false;
    else if (self->type == V_LIST || self->type == V_TUPLE || self->type == V_DICT ||
             self->type == V_FLOAT)
        *result = self->list == args[0].list;
    else
        *result = value_equal(j, self, &args[0]);
    return true;
}

TEST_FUNCTION(is_in)
{
    UNUSED;
    return value_contains(j, &args[0], self, result);
}

TEST_FUNCTION(is_filter)
{
    UNUSED;
    *result = self->type == V_STRING && filter_find(self->text->data, self->text->len);
    return true;
}

TEST_FUNCTION(is_test)
{
    UNUSED;
    *result = self->type == V_STRING && test_find(self->text->data, self->text->len);
    return true;
}

TEST_FUNCTION(is_equal)
{
    UNUSED;
    *result = value_equal(j, self, &args[0]);
    return !j->failed;
}

TEST_FUNCTION(is_unequal)
{
    UNUSED;
    *result = !value_equal(j, self, &args[0]);
    return !j->failed;
}

#define ORDER_TEST(name, op, condition)                                                            \
    TEST_FUNCTION(name)                                                                            \
    {                                                                                              \
        int order;                                                                                 \
        if (!value_order(j, self, &args[0], op, &order))                                           \
            return false;                                                                          \
        *result = condition;                                                                       \
        return true;                                                                               \
    }
ORDER_TEST(is_less, "<", order < 0)
ORDER_TEST(is_less_equal, "<=", order <= 0)
ORDER_TEST(is_greater, ">", order > 0)
ORDER_TEST(is_greater_equal, ">=", order >= 0)

const struct test *test_find(const char *name, size_t len)
{
    static const struct test tests[] = {
        {"defined", is_defined, 0},
        {"undefined", is_undefined, 0},
        {"none", is_none, 0},
        {"string", is_string, 0},
        {"mapping", is_mapping, 0},
        {"iterable", is_iterable, 0},
        {"sequence", is_sequence, 0},
        {"number", is_number, 0},
        {"integer", is_integer, 0},
        {"float", is_float, 0},
        {"boolean", is_boolean, 0},
        {"true", is_true, 0},
        {"false", is_false, 0},
        {"odd", is_odd, 0},
        {"even", is_even, 0},
        {"divisibleby", is_divisible, 1},
        {"callable", is_callable, 0},
        {"lower", is_lower, 0},
        {"upper", is_upper, 0},
        {"escaped", is_escaped, 0},
        {"sameas", is_sameas, 1},
        {"in", is_in, 1},
        {"filter", is_filter, 0},
        {"test", is_test, 0},
        {"==", is_equal, 1},
        {"eq", is_equal, 1},
        {"equalto", is_equal, 1},
        {"!=", is_unequal, 1},
        {"ne", is_unequal, 1},
        {"<", is_less, 1},
        {"lt", is_less, 1},
        {"lessthan", is_less, 1},
        {"<=", is_less_equal, 1},
        {"le", is_less_equal, 1},
        {">", is_greater, 1},
        {"gt", is_greater, 1},
        {"greaterthan", is_greater, 1},
        {">=", is_greater_equal, 1},
        {"ge", is_greater_equal, 1},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (strlen(tests[i].name) == len && memcmp(tests[i].name, name, len) == 0)
            return &tests[i];
    return NULL;
}
