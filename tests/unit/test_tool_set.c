/* The functions of a request: found by name, with their schemas, after the request is gone. */
#include "prompt/answer/tool_set.h"

#include <stdlib.h>

#include "test.h"
#include "test_memory.h"

static struct tool_set *set_from(const char *text)
{
    struct arena arena = ARENA_INIT;
    struct error err;
    char *copy = malloc(strlen(text)); /* freed, as a request is */
    memcpy(copy, text, strlen(text));
    struct json *json = json_parse(&arena, copy, strlen(text), &err);
    CHECK(json);
    struct tool_set *set = tool_set_new(json);
    arena_free(&arena);
    free(copy);
    return set;
}

static const char two[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"Does \\u00e9.\","
    "\"strict\": true, \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
    "\"string\"}, \"b\\u0000c\": {}, \"d\": true}}}},"
    "{\"type\": \"function\", \"function\": {\"name\": \"fg\"}}]";

TEST(tool_set, has_what_the_request_described)
{
    struct tool_set *set = set_from(two);
    CHECK(set);
    CHECK_INT(tool_set_size(set), 2);
    const struct tool *f = tool_set_find(set, "f", 1);
    CHECK(f && f == tool_set_at(set, 0));
    CHECK_STR(f->name, "f");
    CHECK(json_equals(f->description, "Does \xc3\xa9."));
    CHECK(f->strict);
    CHECK(json_equals(json_get(f->parameters, "type"), "object"));
    const struct tool *g = tool_set_find(set, "fgh", 2);
    CHECK(g && g == tool_set_at(set, 1));
    CHECK(!g->description && !g->parameters && !g->strict);
    CHECK(!tool_set_find(set, "", 0) && !tool_set_find(set, "fgh", 3) &&
          !tool_set_find(set, "g", 1));
    tool_set_free(set);
}

TEST(tool_set, gives_the_schemas_of_parameters)
{
    struct tool_set *set = set_from(two);
    const struct tool *f = tool_set_find(set, "f", 1);
    CHECK(json_equals(json_get(tool_parameter(f, "a", 1), "type"), "string"));
    CHECK(json_is(tool_parameter(f, "b\0c", 3), JSON_OBJECT));
    CHECK(json_is(tool_parameter(f, "d", 1), JSON_BOOL));
    CHECK(!tool_parameter(f, "b", 1) && !tool_parameter(f, "", 0) && !tool_parameter(f, "ab", 2));
    CHECK(!tool_parameter(tool_set_find(set, "fg", 2), "a", 1));
    tool_set_free(set);
}

TEST(tool_set, keeps_the_array_as_it_was_given)
{
    struct tool_set *set = set_from(two);
    struct strbuf out = STRBUF_INIT;
    json_write(&out, tool_set_json(set));
    CHECK_STR(strbuf_str(&out),
              "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"Does "
              "\xc3\xa9.\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":{"
              "\"a\":{\"type\":\"string\"},\"b\\u0000c\":{},\"d\":true}}}},{\"type\":\"function\","
              "\"function\":{\"name\":\"fg\"}}]");
    strbuf_free(&out);
    tool_set_free(set);
}

TEST(tool_set, of_nothing_and_of_nonsense)
{
    CHECK_INT(tool_set_size(NULL), 0);
    CHECK(tool_set_find(NULL, "f", 1) == NULL);
    tool_set_free(NULL);
    struct tool_set *set = set_from("[]");
    CHECK(set);
    CHECK_INT(tool_set_size(set), 0);
    tool_set_free(set);
    set = set_from("[{}, 5, {\"function\": {\"name\": 3, \"parameters\": [], \"strict\": 1}},"
                   "{\"function\": {\"name\": \"h\", \"parameters\": {\"properties\": []}}}]");
    CHECK_INT(tool_set_size(set), 4);
    CHECK(!tool_set_at(set, 2)->parameters && !tool_set_at(set, 2)->strict);
    CHECK_INT(tool_set_at(set, 2)->name_len, 0);
    CHECK(!tool_parameter(tool_set_find(set, "h", 1), "a", 1));
    tool_set_free(set);
}

TEST(tool_set, without_memory_there_is_none)
{
    struct arena arena = ARENA_INIT;
    struct error err;
    struct json *json = json_parse(&arena, two, sizeof two - 1, &err);
    struct tool_set *set = NULL;
    uint32_t n = 0;
    for (; !set && n < 100; n++) {
        memory_ends_after(n);
        set = tool_set_new(json);
        memory_is_back();
    }
    CHECK(n > 2);
    CHECK_INT(tool_set_size(set), 2);
    tool_set_free(set);
    arena_free(&arena);
}
