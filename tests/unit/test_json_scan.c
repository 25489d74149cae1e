/* The scanner must agree with the parser of documents, byte for byte of the value's end. */
#include "prompt/answer/json_scan.h"

#include "answer_check.h"
#include "test.h"

static enum json_scan_result scan(const char *text, size_t len, size_t *used)
{
    struct json_scan s;
    enum json_scan_result result = JSON_SCAN_MORE;
    json_scan_begin(&s);
    for (*used = 0; *used < len && result == JSON_SCAN_MORE; ++*used)
        result = json_scan_byte(&s, text[*used]);
    return result;
}

static void check_agrees(const char *text, size_t len)
{
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    size_t used;
    bool control = false;
    for (size_t i = 0; i < len; i++)
        control |= (unsigned char)text[i] < 0x20 && text[i] != '\n' && text[i] != '\t';
    struct json *value = json_parse(&arena, text, len, &err);
    enum json_scan_result result = scan(text, len, &used);
    bool spaces = true;
    for (size_t i = used; i < len; i++)
        spaces &= strchr(" \n\t", text[i]) != NULL;
    bool whole = (result == JSON_SCAN_LAST && spaces) ||
                 (result == JSON_SCAN_BEHIND && spaces && strchr(" \n\t", text[used - 1]));
    if (value && value->type == JSON_NUMBER && result == JSON_SCAN_MORE)
        whole = true; /* nothing follows it */
    bool mended = strstr(err.message, "control") || strstr(err.message, "UTF-8") ||
                  strstr(err.message, "twice") || strstr(err.message, "surrogate") ||
                  strstr(err.message, "duplicate");
    if (whole != (value != NULL) && !mended && !control)
        test_fail(__FILE__, __LINE__, "%.*s: %d, but %s", (int)len, text, result, err.message);
    arena_free(&arena);
}

TEST(json_scan, agrees_with_the_parser)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "{\"a\": [1, -0.5e+3, 0, true, false, null, \"\\u00e9\\n\\\\\"]}",
        " {\"a\" : {} } ",
        "\"x\"",
        "true",
        "nul",
        "01",
        "-",
        "1.",
        "1e",
        "1e5 ",
        "-0",
        "[1,]",
        "[,1]",
        "{\"a\":1,}",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "[1 2]",
        "[1}",
        "{\"a\":1]",
        "\"\\x\"",
        "\"\\u12g4\"",
        "",
        " ",
        "truefalse",
        "{}{}",
        "[[[[[]]]]]",
        "\"unfinished",
        "[1.5.5]",
        "[--1]",
        "[1e+]",
    };
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char damaged[128];
        size_t len = strlen(texts[i]);
        check_agrees(texts[i], len);
        for (int k = 0; k < 300 && len; k++) {
            memcpy(damaged, texts[i], len);
            for (uint32_t n = answer_random(&seed, 3) + 1; n; n--)
                damaged[answer_random(&seed, (uint32_t)len)] =
                    "{}[]\",:\\01.-+eEtfnu aA"[answer_random(&seed, 23)];
            check_agrees(damaged, len);
        }
    }
}

TEST(json_scan, depth_is_bounded)
{
    char deep[JSON_MAX_DEPTH * 2 + 4];
    size_t used;
    memset(deep, '[', JSON_MAX_DEPTH);
    memset(deep + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
    CHECK_INT(scan(deep, 2 * JSON_MAX_DEPTH, &used), JSON_SCAN_LAST);
    CHECK_INT(used, 2 * JSON_MAX_DEPTH);
    memset(deep, '[', JSON_MAX_DEPTH + 1);
    CHECK_INT(scan(deep, JSON_MAX_DEPTH + 1, &used), JSON_SCAN_BAD);
}

TEST(json_scan, objects)
{
    CHECK(json_scan_is_object(" {\"a\": 1}\n", 10));
    CHECK(!json_scan_is_object("", 0) && !json_scan_is_object("  ", 2));
    CHECK(!json_scan_is_object("[]", 2) && !json_scan_is_object("{", 1));
    CHECK(!json_scan_is_object("{} x", 4) && !json_scan_is_object("{}{}", 4));
    CHECK(json_scan_is_object("{\"a\": \"\n\"}", 10)); /* forgiven: see the header */
}
