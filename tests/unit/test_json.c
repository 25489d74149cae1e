/* JSON in and out: what must parse, what must not and where the error points, and writing. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"

static struct arena arena;

static const struct json *parse(const char *text)
{
    struct error err = {0};
    const struct json *value = json_parse(&arena, text, strlen(text), &err);
    if (!value)
        test_fail(__FILE__, __LINE__, "%s: %s", text, err.message);
    return value;
}

static void check_refused(const char *text, size_t len, size_t position)
{
    struct error err = {0};
    if (json_parse(&arena, text, len, &err))
        test_fail(__FILE__, __LINE__, "parsed: %s", text);
    CHECK(err.code == ERROR_INPUT && err.message[0]);
    CHECK_INT(err.position, position);
    arena_free(&arena);
}

TEST(json, writes_pieces_of_strings_cut_anywhere)
{
    struct strbuf out = STRBUF_INIT;
    json_write_escaped(&out, "a\"\\\b\f\n\r\t\x01\x1f\x7f\0z\xc3", 14);
    CHECK_STR(strbuf_str(&out), "a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\\u0000z\xc3");
    json_write_escaped(&out, "\xa9", 1);
    CHECK_STR(strbuf_str(&out) + out.len - 2, "\xc3\xa9");
    strbuf_free(&out);
}

TEST(json, round_trips_with_order_and_number_text)
{
    static const char *const texts[] = {
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1.50",
        "1e5",
        "18446744073709551615",
        "\"\"",
        "[]",
        "{}",
        "{\"b\":1,\"a\":[1,2.0,{\"c\":null}],\"\":\"x\"}",
        "[[[[]]],{},[{}]]",
        "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\"",
        "\"\xc3\xa9\xf0\x9f\x98\x80\"",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct strbuf out = STRBUF_INIT;
        json_write(&out, parse(texts[i]));
        CHECK_STR(strbuf_str(&out), texts[i]);
        strbuf_free(&out);
    }
    arena_free(&arena);
}

TEST(json, decodes_escapes)
{
    CHECK(json_equals(parse("\"\\u0041\\u00e9\\ud83d\\ude00\\/\""), "A\xc3\xa9\xf0\x9f\x98\x80/"));
    const struct json *nul = parse("\"a\\u0000b\"");
    CHECK_INT(nul->text_len, 3);
    CHECK(memcmp(nul->text, "a\0b", 3) == 0);
    arena_free(&arena);
}

TEST(json, refuses_and_says_where)
{
    static const struct {
        const char *text;
        size_t position;
    } bad[] = {
        {"", 0},
        {"  ", 2},
        {"tru", 0},
        {"nul", 0},
        {"[1,]", 3},
        {"[1 2]", 3},
        {"{\"a\"}", 4},
        {"{a:1}", 1},
        {"{\"a\":1,}", 7},
        {"01", 1},
        {"1.", 2},
        {".5", 0},
        {"+1", 0},
        {"1e", 2},
        {"-", 1},
        {"NaN", 0},
        {"\"abc", 4},
        {"\"\\x\"", 2},
        {"\"\\u12g4\"", 3},
        {"\"\\ud800\"", 7},
        {"\"\\udc00\"", 7},
        {"\"a\nb\"", 2},
        {"\"\xff\"", 1},
        {"\"\xc0\xaf\"", 1},
        {"\"\xed\xa0\x80\"", 1},
        {"1 1", 2},
        {"{\"a\":1,\"b\":2,\"a\":3}", 17},
        {"[", 1},
        {"{", 1},
        {"\"\\", 2},
        {"'a'", 0},
        {"[1]]", 3},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_refused(bad[i].text, strlen(bad[i].text), bad[i].position);
    check_refused("1\0", 2, 1);
}

TEST(json, bounds_depth)
{
    char deep[2 * (JSON_MAX_DEPTH + 1)];
    memset(deep, '[', JSON_MAX_DEPTH + 1);
    memset(deep + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
    CHECK(json_parse(&arena, deep + 1, 2 * JSON_MAX_DEPTH, NULL));
    check_refused(deep, sizeof deep, JSON_MAX_DEPTH + 1);
}

TEST(json, respects_the_arena_limit)
{
    struct arena small = {.limit_bytes = 4096};
    struct error err = {0};
    char text[2048] = "[";
    for (size_t i = 1; i < sizeof text - 2; i += 2)
        memcpy(text + i, "1,", 2);
    CHECK(!json_parse(&small, text, sizeof text, &err));
    CHECK_INT(err.code, ERROR_LIMIT);
    arena_free(&small);
}

TEST(json, survives_truncation_and_flipped_bytes)
{
    static const char text[] =
        "{\"a\":[1,-2.5e+3,\"x\\u00e9\\n\\ud83d\\ude00\"],\"b\":{\"c\":null,\"d\":[true]}}";
    for (size_t len = 0; len < sizeof text - 1; len++) {
        char *copy = malloc(len + 1); /* exact size: the sanitizer sees any overrun */
        memcpy(copy, text, len);
        CHECK(!json_parse(&arena, copy, len, NULL));
        for (size_t i = 0; i < len; i++) {
            for (int bit = 0; bit < 8; bit++) {
                copy[i] ^= (char)(1 << bit);
                json_parse(&arena, copy, len, NULL);
                copy[i] ^= (char)(1 << bit);
            }
        }
        free(copy);
        arena_free(&arena);
    }
}

TEST(json, reads_integers_exactly)
{
    int64_t i;
    uint64_t u;
    CHECK(json_to_int64(parse("-9223372036854775808"), &i) && i == INT64_MIN);
    CHECK(json_to_int64(parse("9223372036854775807"), &i) && i == INT64_MAX);
    CHECK(!json_to_int64(parse("9223372036854775808"), &i));
    CHECK(json_to_uint64(parse("18446744073709551615"), &u) && u == UINT64_MAX);
    CHECK(!json_to_uint64(parse("18446744073709551616"), &u));
    CHECK(!json_to_uint64(parse("-1"), &u));
    CHECK(json_to_int64(parse("1.0"), &i) && i == 1);
    CHECK(json_to_int64(parse("-1e2"), &i) && i == -100);
    CHECK(!json_to_int64(parse("1.5"), &i));
    CHECK(!json_to_int64(parse("1e30"), &i));
    CHECK(!json_to_int64(parse("\"1\""), &i));
    arena_free(&arena);
}

TEST(json, writes_doubles_as_python_does)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0.0"},
        {-0.0, "-0.0"},
        {1, "1.0"},
        {0.1, "0.1"},
        {1.5, "1.5"},
        {100, "100.0"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {1e-4, "0.0001"},
        {1e-5, "1e-05"},
        {1.0 / 3, "0.3333333333333333"},
        {123456.789, "123456.789"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {NAN, "null"},
        {INFINITY, "null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf out = STRBUF_INIT;
        json_write_double(&out, cases[i].value);
        CHECK_STR(strbuf_str(&out), cases[i].text);
        strbuf_free(&out);
    }
}

TEST(json, mends_bad_utf8_when_writing)
{
    struct strbuf out = STRBUF_INIT; /* one U+FFFD for the beginning of a character */
    json_write_string(&out, "a\xff\xe2\x82z\0\xf0\x9f\x98", 9);
    CHECK_STR(strbuf_str(&out), "\"a\xef\xbf\xbd\xef\xbf\xbdz\\u0000\xef\xbf\xbd\"");
    strbuf_free(&out);
}

TEST(json, writer_puts_commas)
{
    struct strbuf out = STRBUF_INIT;
    struct json_writer w = {.out = &out};
    json_object_begin(&w, NULL);
    json_add_int(&w, "a", -1);
    json_array_begin(&w, "b");
    json_add_string(&w, NULL, "x");
    json_object_begin(&w, NULL);
    json_object_end(&w);
    json_add_null(&w, NULL);
    json_array_end(&w);
    json_add_bool(&w, "c", true);
    json_object_end(&w);
    CHECK_STR(strbuf_str(&out), "{\"a\":-1,\"b\":[\"x\",{},null],\"c\":true}");
    strbuf_free(&out);
}

TEST(json, builds_trees)
{
    struct json *object = json_new(&arena, JSON_OBJECT);
    json_append(&arena, object, "s", json_new_string(&arena, "hi", 2));
    json_append(&arena, object, "t", json_new_bool(&arena, true));
    struct strbuf out = STRBUF_INIT;
    json_write(&out, object);
    CHECK_STR(strbuf_str(&out), "{\"s\":\"hi\",\"t\":true}");
    strbuf_free(&out);
    arena_free(&arena);
}

TEST(json, files_may_have_a_mark_and_pythons_constants)
{
    static const char text[] = "\xef\xbb\xbf {\"a\": [NaN, Infinity, -Infinity, -1], \"b\": NaN}\n";
    struct error err = {0};
    const struct json *root = json_parse_file(&arena, text, sizeof text - 1, &err);
    CHECK(root != NULL);
    const struct json *item = json_get(root, "a")->first;
    CHECK(item->type == JSON_NUMBER && isnan(item->number));
    CHECK(item->next->number == INFINITY && item->next->next->number == -INFINITY);
    CHECK(item->next->next->next->number == -1);
    int64_t integer;
    uint64_t natural;
    for (int i = 0; i < 3; i++, item = item->next)
        CHECK(!json_to_int64(item, &integer) && !json_to_uint64(item, &natural));
    static const char *const bad[] = {"NaNs",
                                      "nan",
                                      "-NaN",
                                      "Infinit",
                                      "-Inf",
                                      "",
                                      "\xef\xbb\xbf",
                                      "1 \xef\xbb\xbf",
                                      "\xef\xbb\xbf\xef\xbb\xbf"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!json_parse_file(&arena, bad[i], strlen(bad[i]), &err) && err.code == ERROR_INPUT);
    check_refused("\xef\xbb\xbf{}", 5, 0);
    check_refused("[NaN]", 5, 1);
    check_refused("[Infinity]", 10, 1);
    check_refused("[-Infinity]", 11, 2);
    arena_free(&arena);
}
