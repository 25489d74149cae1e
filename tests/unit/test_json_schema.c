/* JSON Schema as grammars: what each keyword allows, and what is rejected by name. */
#include "prompt/schema/json_schema.h"

#include <stdlib.h>

#include "base/json.h"
#include "base/strbuf.h"
#include "grammar_texts.h"
#include "test.h"
#include "test_memory.h"

#define S(...) #__VA_ARGS__ /* JSON without backslashes before its quotes */

static void check(const char *schema, const char *const *taken, const char *const *refused)
{
    CHECK_TEXTS(TEXTS_SCHEMA, schema, taken, refused);
}

static void check_canonical(const char *schema, const char *const *taken,
                            const char *const *refused)
{
    CHECK_TEXTS(TEXTS_CANONICAL, schema, taken, refused);
}

/* ---- values and spelling ------------------------------------------------------------------- */

TEST(json_schema, any_value)
{
    static const char *const values[] = {
        "null", "true",   "0",  "-1.5e+10", "\"\"",
        "[]",   "[1, 2]", "{}", "[[]]",     "{\"a\": {\"b\": [null]}}",
        NULL};
    static const char *const others[] = {"",     " 1",    "1 ",    "01",     "1.", "+1", "nul",
                                         "[1,]", "{a:1}", "[1 2]", "\"\n\"", ".5", NULL};
    check("{}", values, others);
    check("true", values, others);
    check(S({"title" : "x", "description" : "y", "x-unknown" : 1}), values, others);
    CHECK_ERROR(TEXTS_SCHEMA, "false", ERROR_INPUT, "matches no text");
    CHECK_ERROR(TEXTS_SCHEMA, "1", ERROR_INPUT, "#: a schema must be an object or a boolean");
}

TEST(json_schema, white_space)
{
    const char *schema = S({"type" : "array", "items" : {"type" : "object"}});
    check(schema,
          TEXTS("[{},{}]", "[ {}, {} ]", "[\n  {\n\t\"a\": 1,\n \"b\":2 }\n]", "[ ]", "[\n]"),
          TEXTS("[  {}]", "[{} ,{}]", "[\n\n{}]", "[{\"a\" :1}]", "[{\"a\":\n1}]", "[]\n",
                "[\n                                         {}]"));
    check_canonical(schema, TEXTS("[]", "[{}, {\"a\": 1, \"b\": [2, 3]}]"),
                    TEXTS("[{},{}]", "[ {}]", "[{\"a\":1}]", "[\n{}]"));
}

TEST(json_schema, strings_are_spelled_as_json)
{
    const char *schema = S({"type" : "string"});
    check(schema,
          TEXTS("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\u00e9\\uD83D\\uDE42\\u0000\"", "\"é\x7f\""),
          TEXTS("\"\\ud83d\"", "\"\\ude42\"", "\"\\ud83d\\u0041\"", "\"\\x\"", "\"\t\"", "\"a",
                "\"\xff\"", "'a'"));
    check_canonical(schema,
                    TEXTS("\"a\\\"\\\\/\\b\\f\\n\\r\\t\"", "\"\\u0000\\u001f\"", "\"é\x7f\""),
                    TEXTS("\"\\/\"", "\"\\u00e9\"", "\"\\u001F\"", "\"\\u000a\"", "\"\\u0041\""));
}

TEST(json_schema, numbers)
{
    check(S({"type" : "integer"}),
          TEXTS("0", "-0", "12", "-9223372036854775808", "18446744073709551615",
                "340282366920938463463374607431768211455"),
          TEXTS("1.0", "1e3", "00", "-", "99999999999999999999999999999999999999999"));
    check(S({"type" : "number"}),
          TEXTS("0", "1.50", "-2E-7", "123456789012345.6", "1e308", "-1.69E+308", "9.9e-307",
                "3.14159265358979323846264338327950288419"),
          TEXTS("1e", "1e1000", "1e309", "2e308", "12e308", ".1", "1.e1"));
    check_canonical(S({"type" : "integer"}), TEXTS("0", "-12"), TEXTS("-0"));
    check_canonical(S({"type" : "number"}), TEXTS("0", "1.5", "-1.0", "0.0001", "123456789.123456"),
                    TEXTS("-0", "1.50", "0.00001", "1e5", "1.00", "1234567890.5"));
}

TEST(json_schema, types)
{
    check(S({"type" : "null"}), TEXTS("null"), TEXTS("0", "false"));
    check(S({"type" : "boolean"}), TEXTS("true", "false"), TEXTS("null", "True"));
    check(S({"type" : [ "string", "null" ]}), TEXTS("\"a\"", "null"), TEXTS("1"));
    /* A keyword of OpenAPI, not of JSON Schema: null would not validate. */
    check(S({"type" : "string", "nullable" : true}), TEXTS("\"a\""), TEXTS("1", "null"));
    check(S({"type" : "string", "minimum" : 5, "minItems" : 3}), TEXTS("\"\""), TEXTS("6"));
    /* Without a type, every keyword applies to its own type. */
    check(S({"minLength" : 2, "minimum" : 5, "minItems" : 1, "required" : ["a"]}),
          TEXTS("\"ab\"", "5", "[0]", "{\"a\": 1}", "null", "true"),
          TEXTS("\"a\"", "4", "[]", "{}", "{\"b\": 1}"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"type" : "any"}), ERROR_INPUT, "#/type: must be null, boolean");
    CHECK_ERROR(TEXTS_SCHEMA, S({"properties" : {"a/b~" : {"type" : 1}}}), ERROR_INPUT,
                "#/properties/a~1b~0/type: must be");
}

TEST(json_schema, enum_and_const)
{
    check(S({"enum" : [ "a", 1, null, [ 1, {"k" : "v"} ] ]}),
          TEXTS("\"a\"", "1", "null", "[1,{\"k\":\"v\"}]", "[ 1, {\n \"k\": \"v\" } ]"),
          TEXTS("\"b\"", "2", "[1]"));
    check(S({"enum" : [ "a", "bb", 3 ], "type" : "string", "minLength" : 2}), TEXTS("\"bb\""),
          TEXTS("\"a\"", "3"));
    check(S({"enum" : [ 1, 2, 3.5, 4 ], "type" : "integer", "maximum" : 3}), TEXTS("1", "2"),
          TEXTS("3.5", "4"));
    check(S({
              "enum" : [ {"a" : 1}, {"a" : "x"}, {"b" : 1} ],
              "required" : ["a"],
              "properties" : {"a" : {"type" : "integer"}}
          }),
          TEXTS("{\"a\": 1}"), TEXTS("{\"a\": \"x\"}", "{\"b\": 1}"));
    check(S({"enum" : [ "ab", "cd" ], "pattern" : "^c"}), TEXTS("\"cd\""), TEXTS("\"ab\""));
    check(S({"const" : "x\"y"}), TEXTS("\"x\\\"y\""), TEXTS("\"xy\""));
    check_canonical(S({"enum" : [ [ 1, 2 ], {"a" : 1, "b" : 2}, 1e2, -0, 1.50 ]}),
                    TEXTS("[1, 2]", "{\"a\": 1, \"b\": 2}", "100.0", "0", "1.5"),
                    TEXTS("[1,2]", "1e2", "-0", "1.50"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"enum" : [ 1, 2 ], "type" : "string"}), ERROR_INPUT,
                "matches no text");
    CHECK_ERROR(TEXTS_SCHEMA, S({"enum" : 1}), ERROR_INPUT, "#/enum: must be an array");
}

/* ---- strings ------------------------------------------------------------------------------- */

TEST(json_schema, lengths)
{
    check(S({"type" : "string", "minLength" : 2, "maxLength" : 3}),
          TEXTS("\"ab\"", "\"東京都\"", "\"\\u00e9\\n\\ud83d\\ude42\""),
          TEXTS("\"a\"", "\"abcd\"", "\"東\""));
    check(S({"type" : "string", "maxLength" : 100000}), TEXTS("\"abc\""), NO_TEXTS);
    CHECK_ERROR(TEXTS_SCHEMA, S({"type" : "string", "minLength" : 3, "maxLength" : 2}), ERROR_INPUT,
                "matches no text");
    CHECK_ERROR(TEXTS_SCHEMA, S({"properties" : {"a" : {"minLength" : -1}}}), ERROR_INPUT,
                "#/properties/a/minLength: must be an integer that is not negative");
}

TEST(json_schema, patterns)
{
    check(S({"type" : "string", "pattern" : "^[a-z]+$"}), TEXTS("\"abc\""),
          TEXTS("\"\"", "\"aB\"", "\"abc\\n\""));
    check(S({"type" : "string", "pattern" : "b+"}), TEXTS("\"b\"", "\"abba\\n\"", "\"\\\"b\""),
          TEXTS("\"a\"", "\"\""));
    check(S({"type" : "string", "pattern" : "(^|-)x($|y)"}),
          TEXTS("\"x\"", "\"a-x\"", "\"xyz\"", "\"-xy-\""), TEXTS("\"ax\"", "\"xz\""));
    check("{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\\\n]$\"}",
          TEXTS("\"\\\"\"", "\"\\\\\"", "\"\\n\""), TEXTS("\"n\"", "\"\\u000a\"", "\"\n\""));
    CHECK_ERROR(TEXTS_SCHEMA, S({"properties" : {"a" : {"pattern" : "(?=x)"}}}), ERROR_INPUT,
                "#/properties/a/pattern: regular expression: look-around is not supported");
    check(S({"properties" : {"a" : {"type" : "integer", "pattern" : "(?=x)"}}}),
          TEXTS("{\"a\": 1}"), NO_TEXTS);
}

/* Large classes of characters, alone and together: each has hundreds of ranges. */
TEST(json_schema, patterns_of_letters)
{
    check("{\"type\":\"string\",\"pattern\":\"^\\\\p{L}[\\\\p{L}\\\\p{N}_]*$\"}",
          TEXTS("\"a1_\"", "\"é\"", "\"Жж٣\"", "\"東京\"", "\"𐐀𝟘\""),
          TEXTS("\"\"", "\"1\"", "\"a-\"", "\"a€\"", "\"🙂\""));
    check("{\"type\":\"string\",\"pattern\":\"\\\\p{L}cole\"}", TEXTS("\"école\"", "\"11acole!\""),
          TEXTS("\"cole\"", "\"1cole\""));
    check("{\"type\":\"string\",\"maxLength\":9,\"pattern\":\"^\\\\p{L}+( \\\\p{L}+)*$\"}",
          TEXTS("\"ab cd é\""), TEXTS("\"ab  cd\"", "\"abcdefghij\"", "\" a\""));
}

TEST(json_schema, patterns_with_lengths)
{
    check(S({"type" : "string", "pattern" : "^[a-z]+$", "minLength" : 2, "maxLength" : 4}),
          TEXTS("\"ab\"", "\"abcd\""), TEXTS("\"a\"", "\"abcde\"", "\"ABC\""));
    check(S({"type" : "string", "pattern" : "^a-[0-9]*$", "maxLength" : 4}),
          TEXTS("\"a-\"", "\"a-12\""), TEXTS("\"a-123\""));
    check(S({"type" : "string", "pattern" : "x", "maxLength" : 3}),
          TEXTS("\"x\"", "\"axb\"", "\"xxx\""), TEXTS("\"\"", "\"abc\"", "\"axbc\""));
    check(S({"type" : "string", "pattern" : "^(a+b+)*$", "minLength" : 3, "maxLength" : 5}),
          TEXTS("\"aab\"", "\"abab\"", "\"ababb\""),
          TEXTS("\"\"", "\"ab\"", "\"aba\"", "\"ababab\""));
    check(S({"type" : "string", "pattern" : "^(ab|c)$", "minLength" : 2}), TEXTS("\"ab\""),
          TEXTS("\"c\""));
    check(
        S({"type" : "string", "pattern" : "^(https?|ftp)://[a-z.]+/[a-z/]*$", "maxLength" : 2000}),
        TEXTS("\"http://a.b/c\""), TEXTS("\"http:/a/b\""));
    check(S({"allOf" : [ {"pattern" : "a"}, {"pattern" : "b"} ], "type" : "string"}),
          TEXTS("\"ab\"", "\"xbxax\""), TEXTS("\"a\"", "\"b\"", "\"\""));
    check(S({"type" : "string", "pattern" : "^a+", "minLength" : 2, "maxLength" : 100000}),
          TEXTS("\"ab\"", "\"aa\""), TEXTS("\"a\"", "\"ba\""));
    check(S({"type" : "string", "pattern" : "[a-z]*", "maxLength" : 100000}),
          TEXTS("\"\"", "\"1\""), NO_TEXTS);
    check(S({"type" : "string", "pattern" : "x?(ab)+y?", "maxLength" : 3}),
          TEXTS("\"ab\"", "\"cab\"", "\"abc\""), TEXTS("\"xby\"", "\"abcd\""));
    CHECK_ERROR(TEXTS_SCHEMA,
                S({"type" : "string", "pattern" : "^([a-z]+ )+$", "minLength" : 20000}),
                ERROR_LIMIT, "is over");
}

TEST(json_schema, formats)
{
    static const struct {
        const char *format, *good, *bad;
    } cases[] = {
        {"date", "2024-02-29", "2023-02-29"},
        {"date", "1999-12-31", "1999-13-01"},
        {"time", "23:59:59Z", "24:00:00Z"},
        {"date-time", "2024-01-31T00:00:00.25+02:00", "2024-01-31 00:00:00Z"},
        {"duration", "P1Y2M3DT4H5M6S", "P1S"},
        {"duration", "P4W", "P"},
        {"email", "joe.bloggs@example.com", "joe@"},
        {"hostname", "www.example-host.com", "-bad.com"},
        {"ipv4", "192.168.0.255", "256.1.1.1"},
        {"ipv6", "2001:db8::8a2e:370:7334", "1::2::3"},
        {"ipv6", "::1", ":::1"},
        {"uri", "https://example.com:8080/a/b?q=1#f", "/a/b"},
        {"uri-reference", "../a?b", "a b"},
        {"uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"},
        {"json-pointer", "/a/b~0c", "/a~2"},
        {"relative-json-pointer", "1/a", "/a"},
        {"regex", "^a[0-9]+$", "(a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char schema[100], good[100], bad[100];
        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"format\":\"%s\"}", cases[i].format);
        snprintf(good, sizeof good, "\"%s\"", cases[i].good);
        snprintf(bad, sizeof bad, "\"%s\"", cases[i].bad);
        check(schema, TEXTS(good), TEXTS(bad));
    }
    check(S({"type" : "string", "format" : "no-such-format"}), TEXTS("\"anything\""), NO_TEXTS);
    check(S({"type" : "string", "format" : "date", "pattern" : "^2024"}), TEXTS("\"2024-01-01\""),
          TEXTS("\"2023-01-01\""));
    check(S({"type" : "string", "format" : "email", "maxLength" : 10}), TEXTS("\"a@b.co\""),
          TEXTS("\"joe.bloggs@example.com\""));
}

/* ---- numbers ------------------------------------------------------------------------------- */

TEST(json_schema, integer_bounds)
{
    /* Against counting, for all small ranges around places where digits change. */
    static const int low[] = {-120, -99, -10, -1, 0, 1, 9, 10, 99};
    static const int high[] = {-100, -11, -9, 0, 5, 10, 19, 100, 317};
    for (size_t i = 0; i < 9; i++)
        for (size_t j = 0; j < 9; j++) {
            if (low[i] > high[j])
                continue;
            char schema[100], text[16];
            snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}",
                     low[i], high[j]);
            struct grammar_texts *t = texts_open(TEXTS_SCHEMA, schema);
            for (int value = -330; value <= 330; value++) {
                snprintf(text, sizeof text, "%d", value);
                CHECK_INT(texts_take(t, text), value >= low[i] && value <= high[j]);
            }
            texts_close(t);
        }
    check(
        S({"type" : "integer", "minimum" : -9223372036854775808, "maximum" : 18446744073709551615}),
        TEXTS("-9223372036854775808", "18446744073709551615", "0"),
        TEXTS("-9223372036854775809", "18446744073709551616"));
    check(S({"type" : "integer", "exclusiveMinimum" : 1.5, "exclusiveMaximum" : 4}),
          TEXTS("2", "3"), TEXTS("1", "4"));
    check(S({
              "type" : "integer",
              "minimum" : 1,
              "exclusiveMinimum" : true,
              "maximum" : 3,
              "exclusiveMaximum" : false
          }),
          TEXTS("2", "3"), TEXTS("1", "4"));
    check(S({"type" : "integer", "minimum" : 5}), TEXTS("5", "123456", "9223372036854775807"),
          TEXTS("4", "-5", "05"));
    check(S({"type" : "integer", "minimum" : -1e20, "exclusiveMaximum" : 2.5e19}),
          TEXTS("-100000000000000000000", "0", "24999999999999999999"),
          TEXTS("-100000000000000000001", "25000000000000000000", "99999999999999999999"));
    check(S({"type" : "integer", "minimum" : 1e45}),
          TEXTS("1000000000000000000000000000000000000000000000",
                "9999999999999999999999999999999999999999999999"),
          TEXTS("0", "-1", "999999999999999999999999999999999999999999999"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"type" : "integer", "minimum" : 5, "maximum" : 4}), ERROR_INPUT,
                "matches no text");
    CHECK_ERROR(TEXTS_SCHEMA, S({"minimum" : "5"}), ERROR_INPUT, "#/minimum: must be a number");
}

TEST(json_schema, number_bounds)
{
    check(S({"type" : "number", "minimum" : 0, "maximum" : 1}),
          TEXTS("0", "1", "0.5", "0.0", "1.0", "0.123456789"),
          TEXTS("1.01", "-0.1", "2", "2e0", "1e1", "1.1e0", "0.", "1."));
    check(S({"type" : "number", "exclusiveMinimum" : 0.25, "exclusiveMaximum" : 10.5}),
          TEXTS("0.251", "0.2501", "1", "9.99", "10.49", "10"),
          TEXTS("0.25", "0.250", "10.5", "11", "0"));
    check(S({"type" : "number", "minimum" : -2.5, "maximum" : -0.5}),
          TEXTS("-2.5", "-0.5", "-1", "-2.49"), TEXTS("-2.51", "-0.4", "0", "1"));
    check(S({"type" : "number", "minimum" : 100}), TEXTS("100", "100.5", "1234567890123"),
          TEXTS("99.9", "-100"));
    check(S({"type" : "number", "exclusiveMinimum" : 0}), TEXTS("0.001", "5", "1e-7", "2.5E+100"),
          TEXTS("0", "0.0", "-1", "0e5", "-1e-7"));
    check_canonical(S({"type" : "number", "minimum" : 0, "maximum" : 2}),
                    TEXTS("0", "0.5", "0.0001", "1.0", "1", "2", "2.0"),
                    TEXTS("0.50", "0.00001", "2.1", "1.10"));
}

/* Bounds that no machine number holds, in every spelling; and numbers with exponents. */
TEST(json_schema, large_number_bounds)
{
    check(
        S({"type" : "number", "maximum" : 1e20}),
        TEXTS("1e20", "100000000000000000000", "99999999999999999999", "-2e25", "1E+19", "1.0e20"),
        TEXTS("2e25", "1.1e20", "100000000000000000001", "1e21", "11e19"));
    check(S({"type" : "number", "exclusiveMaximum" : 0.1e21}), TEXTS("9.9e19", "5"),
          TEXTS("1e20", "100000000000000000000", "1.0e+20"));
    check(S({"type" : "number", "minimum" : -1E+19, "exclusiveMinimum" : -1e19}),
          TEXTS("-9999999999999999999", "-9.5e18", "1e300"),
          TEXTS("-10000000000000000000", "-1e19", "-1e20"));
    check(S({"type" : "number", "minimum" : 1e100}), TEXTS("1e100", "1.5e250", "1.7e308"),
          TEXTS("9.9e99", "0", "1e309", "99999999999999999999"));
    check(S({"type" : "number", "minimum" : 1.5e-9, "maximum" : 2.5e-9}),
          TEXTS("1.5e-9", "0.000000002", "2.49e-09", "2.5E-9"),
          TEXTS("1.4e-9", "2.6e-9", "0", "2e-8", "0.0000000026"));
    check(S({"type" : "number", "maximum" : 1e400}), TEXTS("1e308", "5"), TEXTS("1e309"));
    check(S({"const" : 1e30, "maximum" : 1e30}), TEXTS("1e30"), NO_TEXTS);
    /* As a double, this bound is smaller than written. */
    check(S({"type" : "integer", "maximum" : 1e23}), TEXTS("99999999999999991611392"),
          TEXTS("99999999999999991611393", "100000000000000000000000"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"const" : 2e25, "maximum" : 1e20}), ERROR_INPUT,
                "matches no text");
    CHECK_ERROR(TEXTS_SCHEMA, S({"type" : "number", "minimum" : 1e400}), ERROR_INPUT,
                "matches no text");
    CHECK_ERROR(TEXTS_SCHEMA, S({"type" : "number", "minimum" : 1e99999999999999999999}),
                ERROR_INPUT, "bound is not supported");
}

/* All decimals with up to two digits after the point, against a comparison of integers. */
TEST(json_schema, number_bounds_against_counting)
{
    static const int bounds[] = {-1200, -250, -100, -99, -50, -1, 0, 1, 25, 99, 100, 150, 1005};
    enum { N = sizeof bounds / sizeof *bounds };
    for (int i = 0; i < N; i += 2)
        for (int j = i; j < N; j += 3) {
            bool canonical = (i + j) % 2, exclusive = j % 2;
            char schema[160], text[32];
            snprintf(schema, sizeof schema, "{\"type\":\"number\",\"minimum\":%de-2,\"%s\":%de-2}",
                     bounds[i], exclusive ? "exclusiveMaximum" : "maximum", bounds[j]);
            if (i == j && exclusive)
                continue;
            struct grammar_texts *t = texts_open(canonical ? TEXTS_CANONICAL : TEXTS_SCHEMA,
                                                 schema);
            for (int value = -1300; value <= 1300; value++) {
                bool inside = value >= bounds[i] &&
                              (exclusive ? value < bounds[j] : value <= bounds[j]);
                int magnitude = value < 0 ? -value : value;
                snprintf(text, sizeof text, "%s%d.%02d", value < 0 ? "-" : "", magnitude / 100,
                         magnitude % 100);
                bool python = value % 10 != 0; /* Python writes no zero at the end */
                if (value != 0)
                    CHECK_INT(texts_take(t, text), inside && (python || !canonical));
                snprintf(text, sizeof text, "%s%d", value < 0 ? "-" : "", magnitude / 100);
                if (value % 100 == 0)
                    CHECK_INT(texts_take(t, text), inside);
                strcat(text, ".");
                CHECK(!texts_take(t, text));
            }
            texts_close(t);
        }
}

TEST(json_schema, multiples)
{
    struct grammar_texts *t = texts_open(
        TEXTS_SCHEMA, S({"type" : "integer", "multipleOf" : 7, "minimum" : -700}));
    for (int value = -1000; value <= 1000; value++) {
        char text[16];
        snprintf(text, sizeof text, "%d", value);
        CHECK_INT(texts_take(t, text), value % 7 == 0 && value >= -700);
    }
    texts_close(t);
    check(S({"type" : "number", "multipleOf" : 0.01, "minimum" : 0}), TEXTS("1.25", "3", "0.5"),
          TEXTS("1.255"));
    check(S({"type" : "integer", "multipleOf" : 1}), TEXTS("5"), TEXTS("5.5"));
    check(S({"type" : "number", "multipleOf" : 50, "maximum" : 120, "minimum" : 0}),
          TEXTS("0", "50", "100"), TEXTS("10", "150"));
    check(S({"allOf" : [ {"multipleOf" : 4}, {"multipleOf" : 6} ], "type" : "integer"}),
          TEXTS("12", "24"), TEXTS("4", "6"));
    check(S({"type" : "number", "multipleOf" : 0.3}), TEXTS("0.3", "-1.5", "3", "0", "3.0"),
          TEXTS("0.1", "0.33", "1"));
    check(S({"type" : "number", "multipleOf" : 0.25, "minimum" : -1, "exclusiveMaximum" : 12.5}),
          TEXTS("0.25", "12.25", "-1", "-0.5", "10.50", "7"),
          TEXTS("12.5", "-1.25", "0.3", "0.255", "12.75"));
    check(S({"type" : "integer", "multipleOf" : 2.5}), TEXTS("5", "-10", "0"), TEXTS("2", "7.5"));
    check(S({"type" : "integer", "multipleOf" : 86400, "minimum" : 1}),
          TEXTS("86400", "864000", "172800"), TEXTS("0", "86401", "86500", "8640"));
    check(S({"type" : "number", "multipleOf" : 1e3}), TEXTS("0", "-7000"), TEXTS("100", "1500"));
    check_canonical(S({"type" : "number", "multipleOf" : 0.5}), TEXTS("0.5", "2", "2.0", "-1.5"),
                    TEXTS("0.50", "0.25", "-0"));
    check(S({"allOf" : [ {"multipleOf" : 0.4}, {"multipleOf" : 0.6} ], "type" : "number"}),
          TEXTS("1.2", "2.4", "12"), TEXTS("0.4", "0.6", "1"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"type" : "number", "multipleOf" : 1.2345}), ERROR_INPUT,
                "'multipleOf'");
    CHECK_ERROR(TEXTS_SCHEMA, S({"multipleOf" : 0}), ERROR_INPUT,
                "#/multipleOf: must be a number greater than 0");
}

/* ---- arrays and objects -------------------------------------------------------------------- */

TEST(json_schema, arrays)
{
    check(S({"type" : "array", "items" : {"type" : "integer"}, "minItems" : 1, "maxItems" : 3}),
          TEXTS("[1]", "[1, 2, 3]"), TEXTS("[]", "[1,2,3,4]", "[\"a\"]"));
    check(S({
              "type" : "array",
              "prefixItems" : [ {"type" : "integer"}, {"type" : "string"} ],
              "items" : {"type" : "null"}
          }),
          TEXTS("[]", "[1]", "[1,\"a\"]", "[1,\"a\",null,null]"), TEXTS("[\"a\"]", "[1,\"a\",1]"));
    check(S({
              "type" : "array",
              "items" : [ {"const" : 1}, {"const" : 2} ],
              "additionalItems" : false,
              "minItems" : 1
          }),
          TEXTS("[1]", "[1,2]"), TEXTS("[]", "[1,2,3]", "[2]"));
    check(S({"type" : "array", "prefixItems" : [ {"const" : 1}, {"const" : 2} ], "maxItems" : 1}),
          TEXTS("[]", "[1]"), TEXTS("[1,2]"));
    check(S({"type" : "array", "items" : false}), TEXTS("[]"), TEXTS("[1]"));
    check(S({"type" : "array", "maxItems" : 0}), TEXTS("[]"), TEXTS("[1]"));
    check(S({"type" : "array", "uniqueItems" : true, "maxItems" : 1}), TEXTS("[1]"),
          TEXTS("[1,1]"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"type" : "array", "uniqueItems" : true}), ERROR_INPUT,
                "#: 'uniqueItems' is not supported");
}

TEST(json_schema, properties_come_in_order)
{
    const char *schema = S({
        "type" : "object",
        "properties" : {"a" : {"type" : "integer"}, "b" : {"type" : "integer"}, "c" : {}},
        "required" : ["b"],
        "additionalProperties" : false
    });
    check(schema, TEXTS("{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":2,\"c\":[]}"),
          TEXTS("{}", "{\"a\":1}", "{\"b\":1,\"a\":2}", "{\"b\":1,\"b\":2}", "{\"b\":1,}",
                "{,\"b\":1}", "{\"b\":1,\"d\":1}"));
    check_canonical(schema, TEXTS("{\"a\": 1, \"b\": 2}"), TEXTS("{\"a\":1, \"b\":2}"));
    check(S({
              "type" : "object",
              "properties" : {"a" : {}, "b" : {}, "c" : {}},
              "additionalProperties" : false
          }),
          TEXTS("{}", "{\"a\":1}", "{\"c\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}"),
          TEXTS("{\"c\":1,\"a\":1}", "{\"d\":1}"));
}

TEST(json_schema, other_properties)
{
    /* Other properties are explicitly allowed, or there are none. */
    check(S({"type" : "object", "properties" : {"ab" : {"type" : "integer"}}}),
          TEXTS("{\"ab\":1}", "{}"), TEXTS("{\"ab\":1,\"x\":null}", "{\"a\":null}"));
    check(S({"type" : "object", "properties" : {}}), TEXTS("{}"), TEXTS("{\"a\":null}"));
    check(S({"type" : "object"}), TEXTS("{}", "{\"a\":null}"), TEXTS("[]"));
    check(S({
              "type" : "object",
              "properties" : {"ab" : {"type" : "integer"}},
              "additionalProperties" : true
          }),
          TEXTS("{\"ab\":1,\"x\":null}", "{\"a\":null}", "{\"abc\":null}", "{\"\":0,\"東\":1}"),
          TEXTS("{\"ab\":null}", "{\"x\":1,\"ab\":null}", "{\"x\":1,\"ab\":1}",
                "{\"\\u0061b\":null}"));
    check(S({
              "type" : "object",
              "additionalProperties" : {"type" : "integer"},
              "required" : [ "z", "q\"" ]
          }),
          TEXTS("{\"z\":1,\"q\\\"\":2}", "{\"z\":1,\"q\\\"\":2,\"k\":3}"),
          TEXTS("{}", "{\"z\":1}", "{\"z\":null,\"q\\\"\":2}"));
    check(S({
              "type" : "object",
              "properties" : {"a" : {}},
              "patternProperties" : {"^x-" : {"type" : "string"}},
              "additionalProperties" : false
          }),
          TEXTS("{\"x-1\":\"s\"}", "{\"a\":1,\"x-\":\"\"}"), TEXTS("{\"x-1\":1}", "{\"b\":1}"));
    check(S({
              "type" : "object",
              "properties" : {"x-a" : {"minLength" : 2}},
              "patternProperties" : {"^x-" : {"type" : "string"}}
          }),
          TEXTS("{\"x-a\":\"ab\"}", "{\"y\":1}"), TEXTS("{\"x-a\":1}", "{\"x-a\":\"a\"}"));
    check(S({"type" : "object", "propertyNames" : {"pattern" : "^[a-z]+$", "maxLength" : 3}}),
          TEXTS("{\"abc\":1}"), TEXTS("{\"abcd\":1}", "{\"A\":1}", "{\"\":1}"));
    check(S({"type" : "object", "propertyNames" : {"enum" : [ "a", "b" ]}}), TEXTS("{\"a\":1}"),
          TEXTS("{\"c\":1}"));
}

TEST(json_schema, numbers_of_properties)
{
    check(S({"type" : "object", "minProperties" : 1, "maxProperties" : 2}),
          TEXTS("{\"a\":1}", "{\"a\":1,\"b\":2}"), TEXTS("{}", "{\"a\":1,\"b\":2,\"c\":3}"));
    check(S({
              "type" : "object",
              "properties" : {"a" : {}, "b" : {}, "c" : {}},
              "additionalProperties" : false,
              "minProperties" : 2
          }),
          TEXTS("{\"a\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}"), TEXTS("{}", "{\"b\":1}"));
    check(S({
              "type" : "object",
              "properties" : {"a" : {}, "b" : {}},
              "required" : ["b"],
              "maxProperties" : 1
          }),
          TEXTS("{\"b\":1}"), TEXTS("{\"a\":1,\"b\":1}", "{\"b\":1,\"x\":1}"));
    check(S({"type" : "object", "properties" : {"a" : {}}, "minProperties" : 2}),
          TEXTS("{\"a\":1,\"x\":1}"), TEXTS("{\"x\":1,\"x\":1}", "{\"a\":1}", "{\"x\":1}"));
    check(S({"type" : "object", "maxProperties" : 0}), TEXTS("{}"), TEXTS("{\"a\":1}"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"type" : "object", "minProperties" : 2}), ERROR_INPUT,
                "'minProperties' is not supported");
}

/* ---- combining ----------------------------------------------------------------------------- */

TEST(json_schema, any_of_and_all_of)
{
    check(S({"anyOf" : [ {"type" : "string"}, {"type" : "integer", "minimum" : 5} ]}),
          TEXTS("\"a\"", "5"), TEXTS("4", "null"));
    check(S({
              "type" : "object",
              "properties" : {"a" : {"type" : "integer"}},
              "anyOf" : [ {"required" : ["a"]}, {"required" : ["b"]} ]
          }),
          TEXTS("{\"a\":1}", "{\"b\":null}"), TEXTS("{}", "{\"c\":1}", "{\"a\":null}"));
    check(S({
              "allOf" : [
                  {"properties" : {"a" : {"type" : "integer"}}, "required" : ["a"]},
                  {"properties" : {"b" : {"type" : "string"}}, "required" : ["b"]}
              ],
              "type" : "object"
          }),
          TEXTS("{\"a\":1,\"b\":\"x\"}"), TEXTS("{\"a\":1}", "{\"b\":\"x\",\"a\":1}"));
    check(S({
              "allOf" : [
                  {"properties" : {"a" : {"minimum" : 3}}}, {"properties" : {"a" : {"maximum" : 5}}}
              ],
              "properties" : {"a" : {"type" : "integer"}},
              "additionalProperties" : false,
              "type" : "object"
          }),
          TEXTS("{\"a\":3}", "{}"), TEXTS("{\"a\":2}", "{\"a\":6}", "{\"b\":1}"));
    check(S({"allOf" : [ {"enum" : [ 1, 2 ]}, {"enum" : [ 2, 3 ]} ]}), TEXTS("2"), TEXTS("1", "3"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"allOf" : [ {"type" : "string"}, {"type" : "integer"} ]}),
                ERROR_INPUT, "matches no text");
    CHECK_ERROR(TEXTS_SCHEMA, S({"anyOf" : []}), ERROR_INPUT, "#/anyOf: must be a non-empty array");
}

TEST(json_schema, one_of)
{
    check(S({"oneOf" : [ {"type" : "string"}, {"type" : "integer"} ]}), TEXTS("\"a\"", "1"),
          TEXTS("null"));
    check(S({
              "oneOf" : [
                  {
                      "properties" : {"k" : {"const" : "a"}, "x" : {"type" : "integer"}},
                      "required" : [ "k", "x" ],
                      "type" : "object"
                  },
                  {
                      "properties" : {"k" : {"enum" : [ "b", "c" ]}},
                      "required" : ["k"],
                      "type" : "object"
                  }
              ]
          }),
          TEXTS("{\"k\":\"a\",\"x\":1}", "{\"k\":\"c\"}"), TEXTS("{\"k\":\"a\"}", "{\"k\":\"d\"}"));
    check(S({
              "oneOf" : [
                  {"minimum" : 1, "maximum" : 5, "type" : "integer"},
                  {"minimum" : 6, "type" : "integer"}
              ]
          }),
          TEXTS("1", "7"), TEXTS("0"));
    check(S({
              "oneOf" :
                  [ {"pattern" : "^a", "type" : "string"}, {"pattern" : "^b", "type" : "string"} ]
          }),
          TEXTS("\"ax\"", "\"b\""), TEXTS("\"c\""));
    /* Distinguished by what is absent, or by what is required. */
    check(S({
              "properties" : {"a" : {}, "b" : {}},
              "additionalProperties" : false,
              "oneOf" : [ {"required" : ["a"]}, {"required" : ["b"]} ]
          }),
          TEXTS("{\"a\":1}", "{\"b\":1}"), TEXTS("{}", "{\"a\":1,\"b\":1}", "1"));
    check(S({
              "type" : "object",
              "oneOf" :
                  [ {"properties" : {"t" : {"const" : 1}}}, {"properties" : {"t" : {"const" : 2}}} ]
          }),
          TEXTS("{\"t\":1}", "{\"t\":2}"), TEXTS("{}", "{\"t\":3}"));
    /* Distinguished by what the others do not allow. */
    check(
        S({"oneOf" : [ {"type" : "integer", "minimum" : 2}, {"type" : "integer", "maximum" : 5} ]}),
        TEXTS("1", "6"), TEXTS("2", "5", "3.5"));
    check(S({"oneOf" : [ {"type" : "string"}, {"enum" : [ "a", 1 ]} ]}), TEXTS("\"b\"", "1"),
          TEXTS("\"a\"", "2"));
    check(S({
              "type" : "object",
              "properties" : {"k" : {"enum" : [ "x", "y" ]}, "v" : {"type" : "integer"}},
              "oneOf" : [ {"properties" : {"k" : {"const" : "x"}}}, {"required" : ["v"]} ]
          }),
          TEXTS("{\"k\":\"x\"}", "{\"k\":\"y\",\"v\":1}", "{}"),
          TEXTS("{\"k\":\"x\",\"v\":1}", "{\"k\":\"y\"}"));
    CHECK_ERROR(TEXTS_SCHEMA,
                S({"oneOf" : [ {"format" : "date"}, {"format" : "time"} ], "type" : "string"}),
                ERROR_INPUT, "#/oneOf: schemas 0 and 1 may both match the same value");
    CHECK_ERROR(TEXTS_SCHEMA,
                S({"oneOf" : [ {"format" : "date", "type" : "string"}, {"const" : "0001-01-01"} ]}),
                ERROR_INPUT, "use 'anyOf'");
}

TEST(json_schema, references)
{
    check(S({
              "$ref" : "#/$defs/a%20b",
              "$defs" : {"a b" : {"$ref" : "#/$defs/x~1y~0"}, "x/y~" : {"type" : "integer"}}
          }),
          TEXTS("1"), TEXTS("\"a\""));
    check(S({
              "definitions" : {
                  "tree" : {
                      "type" : "object",
                      "properties" : {
                          "v" : {"type" : "integer"},
                          "kids" : {"type" : "array", "items" : {"$ref" : "#/definitions/tree"}}
                      },
                      "required" : ["v"],
                      "additionalProperties" : false
                  }
              },
              "$ref" : "#/definitions/tree"
          }),
          TEXTS("{\"v\":1}", "{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[{\"v\":3}]}]}"),
          TEXTS("{\"v\":1,\"kids\":[{}]}"));
    check(S({"type" : [ "integer", "array" ], "items" : {"$ref" : "#"}}),
          TEXTS("1", "[]", "[1,[2,[[]]]]"), TEXTS("[null]"));
    check(S({
              "properties" : {"a" : {"$ref" : "#node"}},
              "$defs" : {"x" : {"$anchor" : "node", "type" : "null"}}
          }),
          TEXTS("{\"a\":null}"), TEXTS("{\"a\":1}"));
    check(S({
              "$id" : "http://x/root.json",
              "properties" : {"a" : {"$ref" : "item.json#/$defs/i"}},
              "$defs" : {"q" : {"$id" : "item.json", "$defs" : {"i" : {"type" : "integer"}}}}
          }),
          TEXTS("{\"a\":1}"), TEXTS("{\"a\":null}"));
    check(S({
              "properties" : {"a" : {"$ref" : "#/definitions/s", "minLength" : 2}},
              "definitions" : {"s" : {"type" : "string"}}
          }),
          TEXTS("{\"a\":\"ab\"}"), TEXTS("{\"a\":\"a\"}", "{\"a\":1}"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"properties" : {"a" : {"$ref" : "http://x/y.json"}}}), ERROR_INPUT,
                "#/properties/a/$ref: 'http://x/y.json' is not in this document");
    CHECK_ERROR(TEXTS_SCHEMA, S({"$ref" : "#/nowhere"}), ERROR_INPUT,
                "'#/nowhere' points to nothing");
    CHECK_ERROR(TEXTS_SCHEMA, S({"$ref" : "#"}), ERROR_INPUT, "leads back to itself");
    CHECK_ERROR(TEXTS_SCHEMA, S({
                    "$ref" : "#/$defs/a",
                    "$defs" : {"a" : {"anyOf" : [ {"type" : "null"}, {"$ref" : "#/$defs/a"} ]}}
                }),
                ERROR_INPUT, "leads back to itself");
    CHECK_ERROR(TEXTS_SCHEMA, S({"$ref" : 1}), ERROR_INPUT, "#/$ref: must be a string");
}

TEST(json_schema, unevaluated_properties)
{
    check(S({
              "type" : "object",
              "properties" : {"a" : {}},
              "allOf" : [ {"properties" : {"b" : {}}} ],
              "unevaluatedProperties" : false
          }),
          TEXTS("{\"a\":1,\"b\":1}", "{}"), TEXTS("{\"c\":1}"));
    CHECK_ERROR(TEXTS_SCHEMA, S({
                    "type" : "object",
                    "properties" : {"a" : {}},
                    "allOf" : [ {"properties" : {"b" : {}}, "unevaluatedProperties" : false} ]
                }),
                ERROR_INPUT, "#/allOf/0: 'unevaluatedProperties' is not supported");
}

TEST(json_schema, negated_schemas)
{
    check(S({"items" : {"not" : {"type" : "null"}}}), TEXTS("[1, \"\", {}]", "null"),
          TEXTS("[null]"));
    check(S({"not" : {"enum" : [ "a", "bc", 5, true, [], {} ]}}),
          TEXTS("\"ab\"", "\"\"", "4", "5.5", "false", "null", "[0]", "{\"a\": 1}"),
          TEXTS("\"a\"", "\"\\u0061\"", "5", "5.0", "0.5e1", "true", "[]", "{}"));
    check(S({"type" : "string", "not" : {"pattern" : "^a"}}), TEXTS("\"ba\"", "\"\""),
          TEXTS("\"a\"", "\"ab\""));
    check(S({"type" : "object", "not" : {"required" : [ "a", "b" ]}}),
          TEXTS("{}", "{\"a\": 1}", "{\"b\": 1, \"c\": 2}"), TEXTS("{\"a\": 1, \"b\": 2}", "1"));
    check(S({"type" : "integer", "not" : {"anyOf" : [ {"minimum" : 5}, {"const" : 3} ]}}),
          TEXTS("4", "2", "-9"), TEXTS("3", "5", "6"));
    check(S({"type" : "array", "not" : {"allOf" : [ {"minItems" : 2}, {"maxItems" : 3} ]}}),
          TEXTS("[1]", "[1, 2, 3, 4]"), TEXTS("[1, 2]", "[1, 2, 3]"));
    check(S({"not" : {"not" : {"type" : "string", "maxLength" : 1}}}), TEXTS("\"a\""),
          TEXTS("\"ab\"", "1"));
    check(S({"not" : {"$ref" : "#/$defs/a"}, "$defs" : {"a" : {"type" : [ "string", "object" ]}}}),
          TEXTS("1", "[]"), TEXTS("\"\"", "{}"));
    /* A client's own keyword of that name means nothing. */
    check(S({"type" : "string", "$notEnum" : ["a"]}), TEXTS("\"a\""), NO_TEXTS);
    /* What violates only the format is not generated. */
    check(S({"not" : {"type" : "string", "format" : "date"}}), TEXTS("1", "null"),
          TEXTS("\"a\"", "\"2026-01-01\""));
    CHECK_ERROR(TEXTS_SCHEMA, S({"not" : {}}), ERROR_INPUT, "matches no text");
    CHECK_ERROR(TEXTS_SCHEMA, S({"a" : 1, "not" : {"format" : "date"}}), ERROR_INPUT,
                "#: 'not' is not supported");
    /* Negated items: an array with an item that does not fit. Negated contains: one without. */
    check(S({"items" : {"not" : {"items" : {"type" : "null"}}}}),
          TEXTS("[]", "[[null, 1]]", "[[0]]"),
          TEXTS("[2]", "[[]]", "[[null]]", "[[1], [null, null]]"));
    check(S({"type" : "array", "not" : {"contains" : {"type" : "null"}}}), TEXTS("[]", "[1, {}]"),
          TEXTS("[null]", "[1, null]"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"items" : {"not" : {"propertyNames" : {"maxLength" : 1}}}}),
                ERROR_INPUT, "#/items: 'not' is not supported");
}

TEST(json_schema, conditions)
{
    const char *schema = S({
        "type" : "object",
        "properties" : {"kind" : {"enum" : [ "x", "y" ]}, "v" : {"type" : "integer"}},
        "required" : ["kind"],
        "if" : {"properties" : {"kind" : {"const" : "x"}}},
        "then" : {"required" : ["v"]},
        "else" : {"properties" : {"v" : {"minimum" : 10}}}
    });
    check(schema,
          TEXTS("{\"kind\": \"x\", \"v\": 1}", "{\"kind\": \"y\"}", "{\"kind\": \"y\", \"v\": 10}"),
          TEXTS("{\"kind\": \"x\"}", "{\"kind\": \"y\", \"v\": 9}", "{}"));
    check(S({"if" : {"type" : "string"}, "then" : {"maxLength" : 1}, "else" : {"type" : "null"}}),
          TEXTS("\"a\"", "null"), TEXTS("\"ab\"", "1"));
    check(S({"if" : true, "then" : {"const" : 1}, "else" : {"const" : 2}}), TEXTS("1"), TEXTS("2"));
    check(S({"if" : {"const" : 1}, "else" : {"type" : "boolean"}}), TEXTS("1", "true"),
          TEXTS("2", "null"));
    check(S({"type" : "array", "if" : {"items" : {"const" : 1}}, "then" : {"minItems" : 2}}),
          TEXTS("[1, 1]", "[2]", "[1, 2]"), TEXTS("[]", "[1]"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"if" : {"propertyNames" : {"maxLength" : 1}}, "then" : false}),
                ERROR_INPUT, "#: 'if' is not supported");
}

TEST(json_schema, dependencies)
{
    static const char *const keywords[] = {"dependentRequired", "dependencies"};
    for (size_t i = 0; i < 2; i++) {
        char schema[160];
        snprintf(schema, sizeof schema,
                 "{\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"%s\":{\"a\":[\"b\"]}}",
                 keywords[i]);
        check(schema, TEXTS("{}", "{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"c\":1}", "5"),
              TEXTS("{\"a\":1}", "{\"a\":1,\"c\":2}"));
    }
    check(S({
              "type" : "object",
              "properties" : {"card" : {"type" : "string"}, "zip" : {"type" : "string"}},
              "dependentSchemas" :
                  {"card" : {"properties" : {"zip" : {"minLength" : 5}}, "required" : ["zip"]}}
          }),
          TEXTS("{}", "{\"zip\":\"1\"}", "{\"card\":\"1\",\"zip\":\"12345\"}"),
          TEXTS("{\"card\":\"1\"}", "{\"card\":\"1\",\"zip\":\"1\"}"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"items" : {"dependencies" : {"a" : 1}}}), ERROR_INPUT,
                "#/items: 'dependencies' is not supported");
}

TEST(json_schema, unique_items)
{
    check(S({"type" : "array", "uniqueItems" : true, "items" : {"enum" : [ "a", "b", "c" ]}}),
          TEXTS("[]", "[\"c\"]", "[\"c\", \"a\"]", "[\"b\",\"a\",\"c\"]"),
          TEXTS("[\"a\",\"a\"]", "[\"a\",\"b\",\"a\"]", "[\"d\"]", "[\"a\",]"));
    /* Many values come in the order of the schema. */
    check(S({
              "type" : "array",
              "uniqueItems" : true,
              "minItems" : 2,
              "maxItems" : 3,
              "items" : {"enum" : [ 1, 2, 3, 4, 5, 6, 7, 8, 2.0 ]}
          }),
          TEXTS("[1, 2]", "[2,5,8]", "[7, 8]"),
          TEXTS("[]", "[1]", "[1,1]", "[2,2.0]", "[1,2,3,4]", "[1,2,2]"));
    check(S({
              "type" : "array",
              "uniqueItems" : true,
              "items" : {"anyOf" : [ {"type" : [ "boolean", "null" ]}, {"const" : 0} ]}
          }),
          TEXTS("[true,false,null,0]", "[0]"), TEXTS("[true,true]", "[null,0,null]"));
    check(S({"enum" : [ [ 1, 2 ], [ 1, 1.0 ] ], "uniqueItems" : true}), TEXTS("[1,2]"),
          TEXTS("[1,1.0]"));
    check(S({"uniqueItems" : true, "maxItems" : 1, "type" : "array"}), TEXTS("[5]"),
          TEXTS("[5,5]"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"items" : {"uniqueItems" : true, "items" : {"type" : "object"}}}),
                ERROR_INPUT, "#/items: 'uniqueItems' is not supported here");
}

TEST(json_schema, unique_items_of_any_number)
{
    check(S({"type" : "array", "uniqueItems" : true, "items" : {"type" : "string"}}),
          TEXTS("[]", "[\"a\"]", "[\"ab\", \"a\",\n \"\"]", "[\"\\n\", \"n\"]",
                "[\"\\\\\", \"\\\"\"]"),
          TEXTS("[\"a\", \"a\"]", "[\"a\",\n\"b\",\n\"a\"]", "[\"\", \"\"]", "[\"a\", \"\\u0061\"]",
                "[\"\\n\", \"\\u000a\"]", "[\"/\", \"\\/\"]"));
    check(S({"type" : "array", "uniqueItems" : true, "items" : {"type" : "integer"}}),
          TEXTS("[1, 10, 100, -1]", "[0]"),
          TEXTS("[1, 1]", "[1, 1.0]", "[1, 1e0]", "[0, -0]", "[10, 1, 10]"));
    check(S({"type" : "array", "uniqueItems" : true, "items" : {"type" : "number"}}),
          TEXTS("[1.5, 15, -1.5, 0.05]", "[0.123456789012345, 12345678901234.5]"),
          TEXTS("[1.5, 1.50]", "[1, 1.0]", "[100, 1e2]", "[0, -0.0]", "[0.5, 0.5]",
                "[0.1234567890123456, 0.12345678901234561]", /* the same double */
                "[123456789012345680, 123456789012345680.1]"));
    check(S({
              "type" : "array",
              "uniqueItems" : true,
              "minItems" : 2,
              "maxItems" : 3,
              "items" : {"type" : "integer", "minimum" : 1, "maximum" : 300}
          }),
          TEXTS("[300, 30]", "[1, 2, 3]"), TEXTS("[1]", "[1, 1]", "[1, 2, 3, 4]", "[301, 1]"));
    /* Values that do not suffice, whose number is not known, or that have several texts. */
    static const char *const refused[] = {
        S({
            "uniqueItems" : true,
            "minItems" : 4,
            "items" : {"type" : "integer", "minimum" : 1, "maximum" : 3}
        }),
        S({"uniqueItems" : true, "minItems" : 2, "items" : {"type" : "string", "maxLength" : 0}}),
        S({"uniqueItems" : true, "minItems" : 2, "items" : {"type" : "string", "pattern" : "^a$"}}),
        S({"uniqueItems" : true, "minItems" : 2000, "items" : {"type" : "string"}}),
        S({"uniqueItems" : true, "items" : {"type" : "number", "minimum" : 1}}),
        S({"uniqueItems" : true, "items" : {"type" : [ "string", "integer" ]}}),
        S({"uniqueItems" : true, "prefixItems" : [ {"type" : "string"} ]}),
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK_ERROR(TEXTS_SCHEMA, refused[i], ERROR_INPUT, "'uniqueItems' is not supported here");
}

TEST(json_schema, contained_items)
{
    check(S({"type" : "array", "contains" : {"const" : 5}, "items" : {"type" : "integer"}}),
          TEXTS("[5]", "[1, 5]", "[5,1,5]", "[1,2,5,3]"), TEXTS("[]", "[1]", "[5,null]"));
    check(S({"type" : "array", "contains" : {"const" : 5}, "minContains" : 2, "maxItems" : 3}),
          TEXTS("[5,5]", "[5,5,\"a\"]"), TEXTS("[5]", "[5,1,1]", "[5,5,1,1]"));
    check(S({"type" : "array", "contains" : {"type" : "null"}, "maxContains" : 1}),
          TEXTS("[null]", "[null,1,2]"), TEXTS("[]", "[1]", "[null,null]", "[null,1,null]"));
    check(S({"type" : "array", "contains" : {"const" : 1}, "minContains" : 0}),
          TEXTS("[]", "[2]", "[1]"), TEXTS("1"));
    check(S({"enum" : [ [ 1, 2 ], [3] ], "contains" : {"const" : 3}}), TEXTS("[3]"),
          TEXTS("[1,2]"));
    check(S({"type" : "array", "prefixItems" : [ {"const" : 1} ], "unevaluatedItems" : false}),
          TEXTS("[1]", "[]"), TEXTS("[1,2]", "[2]"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"contains" : {}, "prefixItems" : [ {} ]}), ERROR_INPUT,
                "#: 'contains' is not supported beside 'prefixItems'");
    CHECK_ERROR(TEXTS_SCHEMA, S({"contains" : {}, "minContains" : 1000}), ERROR_INPUT,
                "'contains' is not supported here");
    CHECK_ERROR(TEXTS_SCHEMA, S({"contains" : false, "type" : "array"}), ERROR_INPUT,
                "matches no text");
}

TEST(json_schema, refused_by_name_and_place)
{
    CHECK_ERROR(TEXTS_SCHEMA,
                S({"unevaluatedItems" : false, "allOf" : [ {"items" : {"type" : "null"}} ]}),
                ERROR_INPUT, "'unevaluatedItems'");
    CHECK_ERROR(TEXTS_SCHEMA, S({"$dynamicRef" : "#x"}), ERROR_INPUT, "'$dynamicRef'");
    /* Without effect on the type, or on anything. */
    check(S({
              "type" : "string",
              "contains" : {},
              "uniqueItems" : true,
              "dependencies" : {"a" : ["b"]}
          }),
          TEXTS("\"\""), NO_TEXTS);
    check(S({"not" : false, "if" : {}, "unevaluatedItems" : true, "dependencies" : {}}), TEXTS("1"),
          NO_TEXTS);
}

/* ---- hostile schemas ----------------------------------------------------------------------- */

/* {"k": {"k": ... inner ... }}, n deep. */
static char *nested(const char *open, const char *inner, const char *close, size_t n)
{
    struct strbuf s = STRBUF_INIT;
    for (size_t i = 0; i < n; i++)
        strbuf_adds(&s, open);
    strbuf_adds(&s, inner);
    for (size_t i = 0; i < n; i++)
        strbuf_adds(&s, close);
    CHECK(!s.failed);
    return s.data;
}

TEST(json_schema, deep_schemas)
{
    char *schema = nested("{\"properties\":{\"a\":", "{\"type\":\"null\"}", "}}", 60);
    texts_close(texts_open(TEXTS_SCHEMA, schema));
    free(schema);
    schema = nested("{\"allOf\":[", "{\"type\":\"null\"}", "]}", 60);
    check(schema, TEXTS("null"), TEXTS("1"));
    free(schema);
    schema = nested("{\"oneOf\":[", "{\"type\":\"integer\"},{\"type\":\"null\"}", "]}", 60);
    check(schema, TEXTS("null", "1"), TEXTS("\"\""));
    free(schema);
}

TEST(json_schema, exponential_schemas_end_soon)
{
    /* Twenty choices of two: a million combinations. */
    struct strbuf s = STRBUF_INIT;
    strbuf_adds(&s, "{\"type\":\"object\",\"allOf\":[");
    for (int i = 0; i < 20; i++)
        strbuf_addf(&s, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
                    i ? "," : "", i, i);
    strbuf_adds(&s, "]}");
    CHECK_ERROR(TEXTS_SCHEMA, s.data, ERROR_LIMIT, "too many alternatives");
    strbuf_clear(&s);
    /* Each definition refers twice to the next: 2^40 ways, but only forty schemas. */
    strbuf_adds(&s, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 40; i++)
        strbuf_addf(&s,
                    "\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]},",
                    i, i + 1, i + 1);
    strbuf_adds(&s, "\"d40\":{\"type\":\"null\"}}}");
    check(s.data, TEXTS("null"), TEXTS("1"));
    strbuf_clear(&s);
    strbuf_adds(&s, "{\"enum\":[");
    for (int i = 0; i < 20000; i++)
        strbuf_addf(&s, "%s\"value%d\"", i ? "," : "", i);
    strbuf_adds(&s, "]}");
    check(s.data, TEXTS("\"value0\"", "\"value19999\""), TEXTS("\"value20000\""));
    strbuf_clear(&s);
    strbuf_adds(&s, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 5000; i++)
        strbuf_addf(&s, "%s\"p%d\":{}", i ? "," : "", i);
    strbuf_adds(&s, "}}");
    CHECK_ERROR(TEXTS_SCHEMA, s.data, ERROR_LIMIT, "too many properties");
    strbuf_free(&s);
}

TEST(json_schema, combinations_of_items_end)
{
    /* A set of schemas that grows on the way down; nothing finite fits below the first level. */
    check(S({
              "$ref" : "#/$defs/a",
              "$defs" : {
                  "a" : {
                      "type" : "array",
                      "items" : {"allOf" : [ {"$ref" : "#/$defs/a"}, {"$ref" : "#/$defs/b"} ]}
                  },
                  "b" : {"items" : {"type" : "array"}, "minItems" : 1}
              }
          }),
          TEXTS("[]"), TEXTS("[[]]", "[[[]]]"));
}

/* The results of random walks parse, and satisfy the schema in the ways checked here. */
TEST(json_schema, samples_parse)
{
    static const char *const schemas[] = {
        "{}",
        S({
            "type" : "object",
            "properties" : {
                "a" : {"type" : "number", "minimum" : -1.5},
                "b" : {"type" : "string", "format" : "date-time"}
            },
            "required" : [ "a", "zz" ]
        }),
        S({
            "type" : "array",
            "items" : {"anyOf" : [ {"type" : "string", "maxLength" : 5}, {"type" : "boolean"} ]}
        }),
        S({
            "type" : "object",
            "patternProperties" : {"^[a-f]+$" : {"type" : "integer", "multipleOf" : 3}},
            "additionalProperties" : false,
            "maxProperties" : 3
        }),
    };
    for (size_t i = 0; i < 2 * sizeof schemas / sizeof *schemas; i++) {
        struct grammar_texts *t = texts_open(i & 1 ? TEXTS_CANONICAL : TEXTS_SCHEMA,
                                             schemas[i / 2]);
        for (unsigned seed = 0; seed < 20; seed++) {
            struct arena arena = ARENA_INIT;
            struct error err = {0};
            const char *text = texts_sample(t, seed);
            if (!json_parse(&arena, text, strlen(text), &err) && !strstr(err.message, "twice"))
                test_fail(__FILE__, __LINE__, "%s: %s", err.message, text);
            arena_free(&arena);
        }
        texts_close(t);
    }
}

TEST(json_schema, without_memory)
{
    static const char source[] = S({
        "type" : "object",
        "properties" : {
            "a" : {"type" : "string", "pattern" : "x", "maxLength" : 9},
            "b" : {"oneOf" : [ {"type" : "integer", "minimum" : 3}, {"type" : "null"} ]}
        },
        "patternProperties" : {"^y" : {"enum" : [ 1, "2" ]}}
    });
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    struct json *schema = json_parse(&arena, source, sizeof source - 1, &err);
    CHECK(schema);
    for (uint32_t n = 0; n < 120; n++) {
        struct grammar_builder *b = grammar_builder_new();
        err = (struct error){0};
        memory_ends_after(n);
        grammar_expr e = json_schema_add(b, schema, schema, JSON_RELAXED, SCHEMA_EXACT, &err);
        struct grammar *g = e == GRAMMAR_NONE ? NULL : grammar_compile(b, e, &err);
        memory_is_back();
        CHECK(g || err.code != ERROR_NONE);
        grammar_free(g);
        grammar_builder_free(b);
    }
    arena_free(&arena);
}

TEST(json_schema, a_part_of_a_document)
{
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    static const char source[] = S({
        "tools" : [ {"parameters" : {"$ref" : "#/shared", "minLength" : "x"}} ],
        "shared" : {"type" : "string"}
    });
    struct json *root = json_parse(&arena, source, sizeof source - 1, &err);
    const struct json *part = json_get(json_get(root, "tools")->first, "parameters");
    struct grammar_builder *b = grammar_builder_new();
    CHECK_INT(json_schema_add(b, part, root, JSON_RELAXED, SCHEMA_EXACT, &err), GRAMMAR_NONE);
    CHECK(strstr(err.message, "#/tools/0/parameters/minLength: must be an integer"));
    CHECK(json_value_add(b, JSON_RELAXED) != GRAMMAR_NONE);
    CHECK(json_object_add(b, JSON_CANONICAL) != GRAMMAR_NONE);
    grammar_builder_free(b);
    arena_free(&arena);
}

/* ---- lenient --------------------------------------------------------------------------------- */

TEST(json_schema, passes_over_what_it_cannot_hold_to_if_it_may)
{
    static const char text[] = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
                               "\"array\", \"uniqueItems\": true, "
                               "\"items\": {\"type\": \"integer\"}}, \"b\": {\"type\": \"string\", "
                               "\"pattern\": \"(?=x)\"}, "
                               "\"c\": {\"type\": \"string\", \"not\": {\"const\": \"\"}}, \"d\": "
                               "{\"oneOf\": [{\"minimum\": 1}, "
                               "{\"minimum\": 2}]}}, \"required\": [\"a\"]}";
    struct arena arena = ARENA_INIT;
    struct error err;
    const struct json *schema = json_parse(&arena, text, sizeof text - 1, &err);
    for (int mode = SCHEMA_EXACT; mode <= SCHEMA_LENIENT; mode++) {
        struct grammar_builder *b = grammar_builder_new();
        grammar_expr e = json_schema_add(b, schema, schema, JSON_CANONICAL,
                                         (enum json_schema_mode)mode, &err);
        CHECK_INT(e != GRAMMAR_NONE, mode == SCHEMA_LENIENT);
        struct grammar *g = e ? grammar_compile(b, e, &err) : NULL;
        CHECK_INT(g != NULL, mode == SCHEMA_LENIENT);
        grammar_free(g);
        grammar_builder_free(b);
    }
    arena_free(&arena);
}
