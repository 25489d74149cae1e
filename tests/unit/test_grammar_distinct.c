/* Lists whose items all differ: masks against what the matcher takes, ways out, and budgets. The
 * vocabulary has tokens with several items in one. */
#include <stdlib.h>

#include "base/hash.h"
#include "base/json.h"
#include "prompt/grammar/grammar_internal.h"
#include "prompt/schema/json_schema.h"
#include "test.h"
#include "test_memory.h"

static const char *const words[] = {"a\"",
                                    "\"a",
                                    "\"a\"",
                                    "\"a\",",
                                    "\", \"",
                                    "\",\"",
                                    "\"]",
                                    "ab",
                                    "b\", \"a\"",
                                    "\"a\", \"a\"",
                                    "\"a\", \"b\"",
                                    "[\"a\", \"a\"]",
                                    "[\"\"",
                                    "\"\", ",
                                    "\"\"",
                                    "[\"a\",\"b",
                                    "[\"a\",\"a",
                                    "1,",
                                    "1, 1",
                                    "10",
                                    "12",
                                    ", 1",
                                    ",1,",
                                    "[1,1]",
                                    "[1,2",
                                    "[1,1",
                                    "1]",
                                    "0,",
                                    "\"b\"",
                                    "\"a\"]}",
                                    "[[1,1]",
                                    "\":[1,1",
                                    "\\u0061\"",
                                    "\\n",
                                    ".5",
                                    "1.5, 1.5]",
                                    ": [",
                                    "],",
                                    "]], [\"a\"]",
                                    "\"bb\"",
                                    "\", \"bb\", \"a"};
static const char common[] = "[]{}\",: ab01-.\n";

enum {
    N_WORDS = sizeof words / sizeof *words,
    TOKEN_END = 256,
    TOKEN_WORDS,
    N_TOKENS = TOKEN_WORDS + N_WORDS,
    TEXT_MAX = 4000,
};

struct fixture {
    struct grammar_vocabulary *v;
    struct grammar *g;
    struct grammar_matcher *m, *other;
    char text[TEXT_MAX];
    size_t len;
};

static struct grammar_vocabulary *open_vocabulary(void)
{
    static char bytes[256];
    struct grammar_token_info tokens[N_TOKENS] = {{0}};
    struct grammar_vocabulary *v;
    struct error err;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct grammar_token_info){.bytes = &bytes[i], .len = 1};
    }
    tokens[TOKEN_END] = (struct grammar_token_info){
        .bytes = "", .is_special = true, .is_end = true};
    for (int i = 0; i < N_WORDS; i++)
        tokens[TOKEN_WORDS + i] = (struct grammar_token_info){.bytes = words[i],
                                                              .len = (uint32_t)strlen(words[i])};
    CHECK_INT(grammar_vocabulary_open(&v, tokens, N_TOKENS, &err), 0);
    return v;
}

static void begin(struct fixture *f, const char *source)
{
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    struct grammar_builder *b = grammar_builder_new();
    const struct json *schema = json_parse(&arena, source, strlen(source), &err);
    *f = (struct fixture){.v = open_vocabulary()};
    f->g = grammar_compile(b, json_schema_add(b, schema, schema, JSON_RELAXED, SCHEMA_EXACT, &err),
                           &err);
    CHECK_STR(err.message, "");
    CHECK_INT(grammar_matcher_open(&f->m, f->g, f->v, &err), 0);
    CHECK_INT(grammar_matcher_open(&f->other, f->g, f->v, &err), 0);
    grammar_builder_free(b);
    arena_free(&arena);
}

static void end(struct fixture *f)
{
    grammar_matcher_close(f->m);
    grammar_matcher_close(f->other);
    grammar_free(f->g);
    grammar_vocabulary_close(f->v);
}

static bool has(const uint64_t *mask, int token)
{
    return mask[token / 64] >> (token % 64) & 1;
}

static bool is_common(int token)
{
    return token >= TOKEN_WORDS || (token > 0 && token < 256 && strchr(common, token));
}

/* The mask has exactly what another matcher takes behind the same text. */
static void check_mask(struct fixture *f)
{
    const uint64_t *mask = grammar_matcher_mask(f->m, UINT32_MAX);
    bool is_fresh = false;
    for (int i = 0; i < N_TOKENS; i++) {
        if (!is_common(i))
            continue;
        if (!is_fresh) {
            grammar_matcher_reset(f->other);
            CHECK(grammar_matcher_accept_bytes(f->other, f->text, f->len));
        }
        bool taken = grammar_matcher_accept(f->other, i);
        is_fresh = !taken;
        if (taken != has(mask, i))
            test_fail(__FILE__, __LINE__, "token %d is %s behind %s", i,
                      taken ? "not in the mask" : "in the mask", f->text);
    }
}

static void take(struct fixture *f, int token)
{
    char byte[2] = {(char)token};
    const char *bytes = token >= TOKEN_WORDS ? words[token - TOKEN_WORDS] : byte;
    size_t len = token >= TOKEN_WORDS ? strlen(bytes) : 1;
    if (!grammar_matcher_accept(f->m, token))
        test_fail(__FILE__, __LINE__, "%s is in the mask behind %s", bytes, f->text);
    CHECK(f->len + len < TEXT_MAX);
    memcpy(f->text + f->len, bytes, len);
    f->text[f->len += len] = '\0';
}

/* A token of the mask, one of the common ones if there is any; false: the text is over. */
static bool step(struct fixture *f, uint64_t seed, uint32_t n_left, bool prefers_common)
{
    const uint64_t *mask = grammar_matcher_mask(f->m, n_left);
    int all[N_TOKENS], some[N_TOKENS], n = 0, n_some = 0;
    for (int i = 0; i < N_TOKENS; i++) {
        if (!has(mask, i))
            continue;
        all[n++] = i;
        if (is_common(i))
            some[n_some++] = i;
    }
    if (n == 0)
        test_fail(__FILE__, __LINE__, "nothing can follow %s", f->text);
    int token = prefers_common && n_some ? some[hash_pair(seed, f->len) % (unsigned)n_some]
                                         : all[hash_pair(seed, f->len) % (unsigned)n];
    if (token == TOKEN_END)
        return false;
    take(f, token);
    return true;
}

/* No array of the value has two equal items, but below a member "free". */
static void check_unique(const struct json *value, const char *text)
{
    if (value->type != JSON_ARRAY && value->type != JSON_OBJECT)
        return;
    json_each (child, value) {
        if (child->key && strcmp(child->key, "free") == 0)
            continue;
        if (child->type != JSON_ARRAY && value->type == JSON_ARRAY)
            json_each (other, value)
                if (other != child && json_values_equal(child, other))
                    test_fail(__FILE__, __LINE__, "equal items in %s", text);
        check_unique(child, text);
    }
}

static void check_text(const struct fixture *f)
{
    struct arena arena = ARENA_INIT;
    struct error err;
    const struct json *value = json_parse(&arena, f->text, f->len, &err);
    if (!value)
        test_fail(__FILE__, __LINE__, "%s: %s", err.message, f->text);
    check_unique(value, f->text);
    arena_free(&arena);
}

#define SET(item) "{\"type\": \"array\", \"uniqueItems\": true, \"items\": " item "}"
#define MIN_SET(item, min)                                                                         \
    "{\"type\": \"array\", \"uniqueItems\": true, \"minItems\": " min ", \"items\": " item "}"

static const char *const schemas[] = {
    SET("{\"type\": \"string\"}"),
    SET("{\"type\": \"integer\"}"),
    SET("{\"type\": \"number\"}"),
    SET("{\"type\": \"string\", \"maxLength\": 1}"),
    SET("{\"type\": \"string\", \"pattern\": \"^(a|ab|b(b|a)?)$\"}"),
    SET("{\"type\": \"string\", \"pattern\": \"^(a|b.*)$\"}"),
    SET("{\"type\": \"integer\", \"minimum\": -2, \"maximum\": 12}"),
    MIN_SET("{\"type\": \"integer\", \"minimum\": 0, \"maximum\": 1000}", "4"),
    MIN_SET("{\"type\": \"string\"}", "3"),
    "{\"type\": \"array\", \"items\": " SET("{\"type\": \"string\"}") "}",
    "{\"type\": \"object\", \"properties\": {\"a\": " SET("{\"type\": \"string\"}") ", \"b\": " SET(
        "{\"type\": \"integer\"}") "}, \"required\": [\"a\"]}",
    "{\"type\": \"object\", \"properties\": {\"free\": {\"anyOf\": [" SET(
        "{\"type\": \"string\"}") ", {\"type\": \"array\", \"minItems\": 3, \"items\": {\"type\": "
                                  "\"string\"}}]}}, \"required\": [\"free\"]}",
};
enum { N_SCHEMAS = sizeof schemas / sizeof *schemas };

TEST(grammar_distinct, masks_have_what_the_matcher_takes)
{
    for (int i = 0; i < N_SCHEMAS; i++) {
        struct fixture f;
        begin(&f, schemas[i]);
        for (uint64_t seed = 0; seed < 6; seed++) {
            grammar_matcher_reset(f.m);
            f.len = 0;
            f.text[0] = '\0';
            for (int n = 0; n < 40 && step(&f, seed, UINT32_MAX, true); n++)
                check_mask(&f);
        }
        end(&f);
    }
}

TEST(grammar_distinct, answers_end_in_time_and_no_item_comes_twice)
{
    for (int i = 0; i < N_SCHEMAS; i++) {
        struct fixture f;
        begin(&f, schemas[i]);
        for (uint64_t seed = 0; seed < 300; seed++) {
            uint32_t n_left = 16 + (uint32_t)seed % 60;
            grammar_matcher_reset(f.m);
            f.len = 0;
            f.text[0] = '\0';
            while (n_left > 0 && step(&f, seed, n_left, seed % 4 > 0))
                n_left--;
            if (!grammar_matcher_may_end(f.m))
                test_fail(__FILE__, __LINE__, "schema %d, not complete: %s", i, f.text);
            check_text(&f);
        }
        end(&f);
    }
}

static bool takes(struct fixture *f, const char *text)
{
    grammar_matcher_reset(f->m);
    return grammar_matcher_accept_bytes(f->m, text, strlen(text));
}

TEST(grammar_distinct, what_would_leave_no_item_is_refused)
{
    struct fixture f;
    begin(&f, SET("{\"type\": \"string\", \"pattern\": \"^(a|ab|bb?)$\"}"));
    CHECK(takes(&f, "[\"a\", \"a"));
    CHECK(!takes(&f, "[\"a\", \"a\""));
    CHECK(takes(&f, "[\"a\", \"b"));
    CHECK(!takes(&f, "[\"a\", \"ab\", \"a"));
    CHECK(takes(&f, "[\"a\", \"ab\", \"bb\", \"b"));
    CHECK(!takes(&f, "[\"a\", \"ab\", \"bb\", \"bb"));
    CHECK(takes(&f, "[\"a\", \"ab\", \"bb\", \"b\"]"));
    CHECK(!takes(&f, "[\"a\", \"ab\", \"bb\", \"b\","));
    end(&f);
    begin(&f, SET("{\"type\": \"integer\", \"minimum\": 9, \"maximum\": 11}"));
    CHECK(takes(&f, "[10, 1"));
    CHECK(!takes(&f, "[10, 10"));
    CHECK(!takes(&f, "[10, 11, 1"));
    CHECK(takes(&f, "[10, 11, 9]"));
    CHECK(!takes(&f, "[10, 11, 9,"));
    end(&f);
}

/* The shortest next item is there already: the way goes into another one, not into white space. */
TEST(grammar_distinct, a_short_budget_goes_to_the_next_item)
{
    struct fixture f;
    begin(&f, schemas[8]);
    CHECK(takes(&f, "[\"\","));
    const uint64_t *mask = grammar_matcher_mask(f.m, 6);
    CHECK(has(mask, '"') && !has(mask, '\n'));
    CHECK(takes(&f, "[\"\",\""));
    mask = grammar_matcher_mask(f.m, 5);
    CHECK(!has(mask, '"') && grammar_matcher_unhurried(f.m));
    end(&f);
}

TEST(grammar_distinct, lists_are_forgotten_when_they_are_over)
{
    struct fixture f;
    begin(&f, schemas[9]);
    CHECK(takes(&f, "[[\"a\", \"b\"], [\"b\", \"a\"], []]"));
    CHECK(!takes(&f, "[[\"a\", \"b\"], [\"b\", \"a\", \"b\""));
    /* A refused text changes nothing. */
    CHECK(takes(&f, "[[\"a\", \"b\"], [\"b"));
    CHECK(!grammar_matcher_accept_bytes(f.m, "\", \"a\", \"b\"", 11));
    CHECK(grammar_matcher_accept_bytes(f.m, "\", \"a\", \"bb\"]]", 14));
    CHECK(grammar_matcher_may_end(f.m));
    end(&f);
}

TEST(grammar_distinct, no_more_than_1024_items_are_remembered)
{
    struct fixture f;
    char item[16];
    begin(&f, SET("{\"type\": \"integer\"}"));
    CHECK(grammar_matcher_accept(f.m, '['));
    for (int i = 0; i < 1024; i++) {
        int len = snprintf(item, sizeof item, i ? ",%d" : "%d", i);
        CHECK(grammar_matcher_accept_bytes(f.m, item, (size_t)len));
    }
    CHECK(!has(grammar_matcher_mask(f.m, UINT32_MAX), ','));
    CHECK(grammar_matcher_accept(f.m, ']'));
    end(&f);
}

/* Items that are alike for long leave only a deep search for another one. The list ends instead. */
TEST(grammar_distinct, a_search_for_another_item_is_bounded)
{
    enum { LONG = 40000 };
    struct fixture f;
    static char text[LONG + 2] = "[\"";
    memset(text + 2, 'a', LONG - 1);
    text[LONG + 1] = '"';
    begin(&f, SET("{\"type\": \"string\", \"pattern\": \"^a{30000,}$\"}"));
    CHECK(grammar_matcher_accept_bytes(f.m, text, sizeof text));
    CHECK(!has(grammar_matcher_mask(f.m, UINT32_MAX), ','));
    CHECK(grammar_matcher_accept(f.m, ']'));
    end(&f);
    begin(&f, SET("{\"type\": \"string\", \"pattern\": \"^a{200,}$\"}"));
    memcpy(text + 202, "\"", 2);
    CHECK(takes(&f, text));
    CHECK(has(grammar_matcher_mask(f.m, UINT32_MAX), ','));
    end(&f);
}

/* The mask, which took no more work than it may. */
static const uint64_t *mask_in_time(struct fixture *f)
{
    const uint64_t *mask = grammar_matcher_mask(f->m, UINT32_MAX);
    uint64_t work = f->m->distinct->n_work;
    if (work > DISTINCT_MASK_WORK + 2 * DISTINCT_TRY_WORK)
        test_fail(__FILE__, __LINE__, "a mask took %llu steps", (unsigned long long)work);
    return mask;
}

enum { N_FILL = 300 };

/* Fills a list with items of ten letters "a" and "b" and a tail, until one is refused, and looks at
 * some masks on the way. The answer can always be completed. Returns the number of items. */
static int fill(const char *schema, const char *tail)
{
    struct fixture f;
    char item[400];
    int n = 0;
    bool is_taken = true;
    begin(&f, schema);
    CHECK(grammar_matcher_accept(f.m, '['));
    for (; n < N_FILL && is_taken; n += is_taken) {
        int len = snprintf(item, sizeof item, "%s\"__________%s\"", n ? "," : "", tail);
        for (int k = 0; k < 10; k++)
            strchr(item, '_')[0] = n >> (9 - k) & 1 ? 'b' : 'a';
        for (int k = 0; k < len && is_taken; k++) {
            if (n % 64 == 63)
                mask_in_time(&f);
            is_taken = grammar_matcher_accept(f.m, (uint8_t)item[k]);
        }
    }
    uint32_t n_left = 400;
    while (n_left > 0 && step(&f, 1, n_left, true))
        n_left--;
    CHECK(grammar_matcher_may_end(f.m));
    end(&f);
    return n;
}

#define SET_OF(pattern) SET("{\"type\": \"string\", \"pattern\": \"" pattern "\"}")

/* A client's schema must not make masks slow, whatever its items are like. */
TEST(grammar_distinct, masks_take_bounded_work)
{
    char tail[101] = "";
    memset(tail, 'c', sizeof tail - 1);
    CHECK_INT(fill(SET("{\"type\": \"string\"}"), ""), N_FILL);
    CHECK_INT(fill(SET_OF("^[ab]{10}$"), ""), N_FILL);
    CHECK_INT(fill(SET_OF("^((a|b)(a|b)?)*$"), ""), N_FILL);
    /* Only its first bytes can differ: the search for another one takes too long. */
    int n = fill(SET_OF("^[ab]{10}c{100}$"), tail);
    CHECK(n > 20 && n < N_FILL);
}
