/* Conversations made to fit templates: each change with traits made for it, then all of them at
 * once with every real template that is shared. */
#include "prompt/conversation.h"

#include <stdlib.h>

#include "prompt/answer/call_form.h"
#include "test.h"

static struct arena arena;
static struct fitted_conversation fitted;

static struct json *parse(const char *text)
{
    struct error err = {0};
    struct json *json = json_parse(&arena, text, strlen(text), &err);
    if (!json)
        test_fail(__FILE__, __LINE__, "%s in %s", err.message, text);
    return json;
}

static const struct answer_style hermes = {.tools = TOOLS_HERMES};

/* The fitted messages as compact JSON, followed by where each came from. The next call frees
 * everything. */
static const char *fit_tools(const struct template_traits *traits, const char *messages,
                             const char *tools)
{
    static char result[1 << 14];
    struct error err = {0};
    arena_free(&arena);
    arena = (struct arena)ARENA_INIT;
    struct tool_set *set = tools ? tool_set_new(parse(tools)) : NULL;
    struct conversation in = {.messages = parse(messages), .tools = set};
    if (conversation_fit(&fitted, &in, traits, &hermes, &arena, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    struct strbuf text = STRBUF_INIT;
    json_each (message, fitted.messages) {
        json_write(&text, message);
        strbuf_addc(&text, '\n');
    }
    for (size_t i = 0; i < fitted.messages->count; i++)
        strbuf_addf(&text, i ? ",%d" : "%d", fitted.origins[i]);
    if (fitted.tools) {
        strbuf_adds(&text, " tools ");
        json_write(&text, fitted.tools);
    }
    CHECK(text.len < sizeof result);
    strcpy(result, strbuf_str(&text));
    strbuf_free(&text);
    tool_set_free(set);
    return result;
}

static const char *fit(const struct template_traits *traits, const char *messages)
{
    return fit_tools(traits, messages, NULL);
}

#define SYSTEM(text)    "{\"role\":\"system\",\"content\":\"" text "\"}"
#define USER(text)      "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define CALL(id, name, arguments)                                                                  \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":" arguments "}}"
#define CALLING(content, calls)                                                                    \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[" calls "]}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define NAMED_RESULT(id, name, text)                                                               \
    "{\"role\":\"tool\",\"content\":\"" text "\",\"tool_call_id\":\"" id "\",\"name\":\"" name "\"}"

static const struct template_traits takes_all = {
    .takes_system = true,
    .takes_several_systems = true,
    .takes_late_systems = true,
    .takes_tools = true,
    .takes_calls = true,
    .takes_several_calls = true,
    .takes_results = true,
    .takes_reasoning = true,
    .takes_reasoned_text = true,
    .reasoning_key = "reasoning_content",
};
static const struct template_traits takes_nothing;

TEST(conversation, what_is_taken_stays)
{
    CHECK_STR(fit(&takes_all, "[]"), "");
    CHECK_STR(fit(&takes_all, "[" SYSTEM("a") "," SYSTEM("b") "," USER("c") "," ASSISTANT(
                                  "d") "," SYSTEM("e") "," USER("f") "," USER("g") "]"),
              SYSTEM("a") "\n" SYSTEM("b") "\n" USER("c") "\n" ASSISTANT("d") "\n" SYSTEM(
                  "e") "\n" USER("f") "\n" USER("g") "\n0,1,2,3,4,5,6");
    /* Members that are not ours come along. */
    CHECK_STR(fit(&takes_all, "[{\"role\":\"user\",\"name\":\"Ann\",\"content\":\"x\"}]"),
              "{\"role\":\"user\",\"content\":\"x\",\"name\":\"Ann\"}\n0");
    CHECK_STR(fit(&takes_all, "[{\"role\":\"critic\",\"content\":\"x\"}]"),
              "{\"role\":\"critic\",\"content\":\"x\"}\n0");
    CHECK_STR(fit(&takes_all, "[{\"role\":\"developer\",\"content\":\"x\"}]"),
              "{\"role\":\"system\",\"content\":\"x\"}\n0");
    CHECK_STR(fit(&takes_all, "[{\"role\":\"assistant\"},{\"role\":\"user\",\"content\":null}]"),
              ASSISTANT("") "\n" USER("") "\n0,1");
}

TEST(conversation, systems_are_merged_or_become_the_users)
{
    struct template_traits t = takes_all;
    t.takes_several_systems = t.takes_late_systems = false;
    CHECK_STR(fit(&t, "[" SYSTEM("a") "," SYSTEM("b") "," USER("c") "]"),
              SYSTEM("a\\n\\nb") "\n" USER("c") "\n0,2");
    CHECK_STR(fit(&t, "[" SYSTEM("") "," SYSTEM("b") "]"), SYSTEM("b") "\n0");
    CHECK_STR(fit(&t, "[" USER("a") "," SYSTEM("b") "]"), USER("a") "\n" USER("b") "\n0,1");
    t.takes_system = false;
    CHECK_STR(fit(&t, "[" SYSTEM("a") "," SYSTEM("b") "," USER("c") "," SYSTEM("d") "]"),
              USER("a\\n\\nb\\n\\nc") "\n" USER("d") "\n2,3");
    CHECK_STR(fit(&t, "[" SYSTEM("a") "," ASSISTANT("b") "]"),
              USER("a") "\n" ASSISTANT("b") "\n0,1");
    CHECK_STR(fit(&t, "[" SYSTEM("a") "]"), USER("a") "\n0");
    t.wants_alternation = true;
    CHECK_STR(fit(&t, "[" USER("a") "," SYSTEM("b") "," USER("c") "]"),
              USER("a\\n\\nb\\n\\nc") "\n0");
}

TEST(conversation, turns_alternate_where_they_must)
{
    struct template_traits t = takes_all;
    t.wants_alternation = true;
    t.takes_calls = false;
    CHECK_STR(fit(&t, "[" USER("a") "," USER("b") "," ASSISTANT("c") "," ASSISTANT("d") "]"),
              USER("a\\n\\nb") "\n" ASSISTANT("c\\n\\nd") "\n0,2");
    /* A message with calls is merged with the text before it; nothing is merged with calls before
     * it. */
    t.takes_calls = true;
    CHECK_STR(fit(&t, "[" ASSISTANT("a") "," CALLING(
                          "\"b\"", CALL("1", "f", "\"{}\"")) "," ASSISTANT("c") "]"),
              CALLING("\"a\\n\\nb\"", CALL("1", "f", "\"{}\"")) "\n" ASSISTANT("c") "\n0,2");
    t.wants_answered_results = true;
    CHECK_STR(fit(&t, "[" RESULT("1", "r") "," USER("x") "]"),
              "{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"1\"}\n" ASSISTANT(
                  " ") "\n" USER("x") "\n0,-1,1");
}

TEST(conversation, contents_as_parts)
{
    struct template_traits t = takes_all;
    t.wants_parts = true;
    CHECK_STR(fit(&t, "[" USER("a") "," CALLING("null", CALL("1", "f", "\"{}\"")) "]"),
              "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}\n" CALLING(
                  "null", CALL("1", "f", "\"{}\"")) "\n0,1");
    /* What has parts already keeps them. */
    CHECK_STR(fit(&takes_all, "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]"),
              "{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}\n0");
}

TEST(conversation, arguments_as_the_template_wants_them)
{
    struct template_traits t = takes_all;
#define ARGUMENTS(text) "[" CALLING("null", CALL("1", "f", text)) "]"
    CHECK_STR(fit(&t, ARGUMENTS("\"{\\\"b\\\":1e2 , \\\"a\\\":1.0}\"")),
              CALLING("null", CALL("1", "f", "\"{\\\"b\\\":1e2 , \\\"a\\\":1.0}\"")) "\n0");
    CHECK_STR(fit(&t, ARGUMENTS("\"{broken\"")),
              CALLING("null", CALL("1", "f", "\"{broken\"")) "\n0");
    CHECK_STR(fit(&t, ARGUMENTS("{\"a\": [1, true, null]}")),
              CALLING("null", CALL("1", "f", "\"{\\\"a\\\": [1, true, null]}\"")) "\n0");
    CHECK_STR(fit(&t, ARGUMENTS("\"\"")), CALLING("null", CALL("1", "f", "\"{}\"")) "\n0");
    t.wants_argument_object = true;
    CHECK_STR(fit(&t, ARGUMENTS("\"{\\\"b\\\":1e2 , \\\"a\\\":1.0}\"")),
              CALLING("null", CALL("1", "f", "{\"b\":1e2,\"a\":1.0}")) "\n0");
    CHECK_STR(fit(&t, ARGUMENTS("\"\"")), CALLING("null", CALL("1", "f", "{}")) "\n0");
    CHECK_STR(fit(&t, ARGUMENTS("null")), CALLING("null", CALL("1", "f", "{}")) "\n0");
    /* A model's own mistakes are shown to it again, not rejected. */
    CHECK_STR(fit(&t, ARGUMENTS("\"{broken\"")),
              CALLING("null", CALL("1", "f", "{\"arguments\":\"{broken\"}")) "\n0");
    CHECK_STR(fit(&t, ARGUMENTS("\"[1]\"")),
              CALLING("null", CALL("1", "f", "{\"arguments\":\"[1]\"}")) "\n0");
    CHECK_STR(
        fit(&t, ARGUMENTS("\"{\\\"a\\\":1,\\\"a\\\":2}\"")),
        CALLING("null", CALL("1", "f", "{\"arguments\":\"{\\\"a\\\":1,\\\"a\\\":2}\"}")) "\n0");
}

TEST(conversation, content_beside_calls)
{
    struct template_traits t = takes_all;
#define ONE CALL("1", "f", "\"{}\"")
    CHECK_STR(fit(&t, "[" CALLING("\"\"", ONE) "]"), CALLING("null", ONE) "\n0");
    CHECK_STR(fit(&t, "[{\"role\":\"assistant\",\"tool_calls\":[" ONE "]}]"),
              CALLING("null", ONE) "\n0");
    t.wants_text_content = true;
    CHECK_STR(fit(&t, "[" CALLING("null", ONE) "]"), CALLING("\"\"", ONE) "\n0");
    t = takes_all;
    t.wants_calls_alone = true;
    CHECK_STR(fit(&t, "[" CALLING("\"x\"", ONE) "]"),
              ASSISTANT("x") "\n" CALLING("null", ONE) "\n0,0");
    CHECK_STR(fit(&t, "[" CALLING("\"\"", ONE) "]"), CALLING("null", ONE) "\n0");
}

TEST(conversation, one_call_a_message)
{
    struct template_traits t = takes_all;
    t.takes_several_calls = false;
#define A CALL("a", "f", "\"{}\"")
#define B CALL("b", "g", "\"{}\"")
#define C CALL("c", "h", "\"{}\"")
    CHECK_STR(
        fit(&t, "[" CALLING("\"x\"", A "," B "," C) "," RESULT("c", "rc") "," RESULT(
                    "a", "ra") "," RESULT("z", "rz") "," RESULT("b", "rb") "," USER("u") "]"),
        CALLING("\"x\"", A) "\n" NAMED_RESULT("a", "f", "ra") "\n" CALLING(
            "null",
            B) "\n" NAMED_RESULT("b", "g",
                                 "rb") "\n" CALLING("null",
                                                    C) "\n" NAMED_RESULT("c", "h",
                                                                         "rc") "\n"
                                                                               "{\"role\":\"tool\","
                                                                               "\"content\":\"rz\","
                                                                               "\"tool_call_id\":"
                                                                               "\"z\"}\n" USER(
                                                                                   "u") "\n0,2,0,4,"
                                                                                        "0,1,3,5");
    /* Calls without results. */
    CHECK_STR(fit(&t, "[" CALLING("null", A "," B) "]"),
              CALLING("null", A) "\n" CALLING("null", B) "\n0,0");
}

TEST(conversation, results_have_names_and_ids)
{
    struct template_traits t = takes_all;
    CHECK_STR(fit(&t, "[" CALLING("null", A "," B) "," RESULT("b", "r") "," RESULT("a", "s") "]"),
              CALLING("null", A "," B) "\n" NAMED_RESULT("b", "g", "r") "\n" NAMED_RESULT(
                  "a", "f", "s") "\n0,1,2");
    /* An existing name is kept; an unknown one is not invented. */
    CHECK_STR(fit(&t, "[" CALLING("null", A) ",{\"role\":\"tool\",\"tool_call_id\":\"a\","
                                             "\"name\":\"other\",\"content\":\"r\"}]"),
              CALLING("null", A) "\n{\"role\":\"tool\",\"content\":\"r\",\"name\":\"other\","
                                 "\"tool_call_id\":\"a\"}\n0,1");
    t.wants_named_ids = true;
    CHECK_STR(
        fit(&t, "[" CALLING("null", A "," B) "," RESULT("b", "r") "," CALLING("null", C) "," RESULT(
                    "c", "s") "]"),
        CALLING(
            "null",
            CALL("functions.f:0", "f", "\"{}\"") "," CALL(
                "functions.g:1", "g",
                "\"{}\"")) "\n" NAMED_RESULT("functions.g:1", "g",
                                             "r") "\n" CALLING("null",
                                                               CALL(
                                                                   "functions.h:2", "h",
                                                                   "\"{}\"")) "\n" NAMED_RESULT("fu"
                                                                                                "nc"
                                                                                                "ti"
                                                                                                "on"
                                                                                                "s."
                                                                                                "h:"
                                                                                                "2",
                                                                                                "h",
                                                                                                "s") "\n0,1,2,3");
}

static const char *id_of(size_t message)
{
    const struct json *m = fitted.messages->first;
    while (message--)
        m = m->next;
    const struct json *calls = json_get(m, "tool_calls");
    return json_get(calls ? calls->first : m, calls ? "id" : "tool_call_id")->text;
}

TEST(conversation, short_ids)
{
    struct template_traits t = takes_all;
    t.wants_short_ids = true;
    fit(&t, "[" CALLING("null", CALL("call_123456789", "f", "\"{}\"")) "," RESULT(
                "call_123456789",
                "r") "," CALLING("null",
                                 CALL("abcDEF789", "f",
                                      "\"{}\"")) "," RESULT("abcDEF789",
                                                            "r") "," CALLING("null",
                                                                             CALL("abc-EF789", "f",
                                                                                  "\"{}\"")) "]");
    CHECK_INT(strlen(id_of(0)), 9);
    CHECK_INT(strspn(id_of(0), "0123456789abcdefghijklmnopqrstuvwxyz"), 9);
    CHECK_STR(id_of(0), id_of(1));
    CHECK_STR(id_of(2), "abcDEF789");
    CHECK_STR(id_of(3), "abcDEF789");
    CHECK(strcmp(id_of(4), "abc-EF789") != 0 && strcmp(id_of(4), id_of(0)) != 0);
}

TEST(conversation, reasoning_under_the_templates_name)
{
#define THOUGHT(key)                                                                               \
    "{\"role\":\"assistant\",\"content\":\"x\",\"" key "\":\"hm\",\"tool_calls\":[" ONE "]}"
    struct template_traits t = takes_all;
    CHECK_STR(fit(&t, "[" THOUGHT("reasoning") "]"), THOUGHT("reasoning_content") "\n0");
    t.reasoning_key = "thinking";
    CHECK_STR(fit(&t, "[" THOUGHT("reasoning_content") "]"), THOUGHT("thinking") "\n0");
    t.takes_reasoned_text = false;
    CHECK_STR(fit(&t, "[" THOUGHT("reasoning_content") "]"), CALLING("\"x\"", ONE) "\n0");
    t.takes_reasoning = false;
    t.reasoning_key = NULL;
    CHECK_STR(fit(&t, "[{\"role\":\"assistant\",\"content\":\"x\",\"reasoning_content\":\"y\"}]"),
              ASSISTANT("x") "\n0");
}

/* ---- functions that the template does not take ---- */

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","    \
    "\"maxProperties\":1e1}}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"
#define PROMPT                                                                                     \
    "# Tools\\n\\nYou can call the following functions. Each line describes one, with a JSON "     \
    "schema of its parameters:\\n{\\\"name\\\": \\\"f\\\", \\\"parameters\\\": {\\\"type\\\": "    \
    "\\\"object\\\", \\\"maxProperties\\\": 10.0}}\\n{\\\"name\\\": \\\"g\\\"}\\n\\nTo call a "    \
    "function, write its name and arguments exactly like this:\\n<tool_call>\\n{\\\"name\\\": "    \
    "\\\"function_name\\\", \\\"arguments\\\": {\\\"argument_name\\\": \\\"value\\\"}}\\n"         \
    "</tool_call>\\n\\nThen stop: the result is sent to you"
#define PROMPT_END ". If no function is needed, answer as usual."
#define BETWEEN    " between <tool_response> and </tool_response>"

TEST(conversation, functions_go_to_the_template_or_the_prompt)
{
    CHECK_STR(fit_tools(&takes_all, "[" USER("u") "]", TOOLS), USER("u") "\n0 tools " TOOLS);
    CHECK_STR(fit_tools(&takes_all, "[" USER("u") "]", "[]"), USER("u") "\n0");
    struct template_traits t = takes_all;
    t.takes_tools = false;
    CHECK_STR(fit_tools(&t, "[" USER("u") "]", TOOLS),
              SYSTEM(PROMPT PROMPT_END) "\n" USER("u") "\n-1,0");
    CHECK_STR(fit_tools(&t, "[" SYSTEM("a") "," SYSTEM("b") "," USER("u") "]", TOOLS),
              SYSTEM("a\\n\\nb\\n\\n" PROMPT PROMPT_END) "\n" USER("u") "\n0,2");
    CHECK_STR(fit_tools(&takes_nothing, "[" USER("u") "]", TOOLS),
              USER(PROMPT BETWEEN PROMPT_END "\\n\\nu") "\n0");
    CHECK_STR(fit_tools(&takes_nothing, "[" ASSISTANT("x") "]", TOOLS),
              USER(PROMPT BETWEEN PROMPT_END) "\n" ASSISTANT("x") "\n-1,0");
}

TEST(conversation, calls_and_results_as_text)
{
#define CALL_TEXT(name, arguments)                                                                 \
    "<tool_call>\\n{\\\"name\\\": \\\"" name "\\\", \\\"arguments\\\": " arguments                 \
    "}\\n</tool_call>"
    CHECK_STR(
        fit(&takes_nothing,
            "[" CALLING(
                "\"look\"",
                CALL("1", "f", "\"{\\\"a\\\":[1,2]}\"") "," CALL(
                    "2", "g", "\"{}\"")) "," RESULT("1", "r1") "," RESULT("2",
                                                                          "r2") "," USER("x") "]"),
        ASSISTANT("look\\n" CALL_TEXT("f", "{\\\"a\\\": [1, 2]}") "\\n" CALL_TEXT(
            "g",
            "{}")) "\n" USER("<tool_response>\\nr1\\n</tool_response>\\n"
                             "<tool_response>\\nr2\\n</tool_response>") "\n" USER("x") "\n0,1,3");
    CHECK_STR(fit(&takes_nothing, "[" CALLING("null", CALL("1", "f", "\"oops\"")) "]"),
              ASSISTANT(CALL_TEXT("f", "{\\\"arguments\\\": \\\"oops\\\"}")) "\n0");
    /* Consecutive results are one message; anything between them separates them. */
    CHECK_STR(fit(&takes_nothing, "[" RESULT("1", "a") "," ASSISTANT("x") "," RESULT("2", "b") "]"),
              USER("<tool_response>\\na\\n</tool_response>") "\n" ASSISTANT("x") "\n" USER(
                  "<tool_response>\\nb\\n</tool_response>") "\n0,1,2");
}

/* ---- calls written out ---- */

static const char *written(enum tool_format format, const char *name, const char *arguments)
{
    static char result[1024];
    struct strbuf text = STRBUF_INIT;
    arena_free(&arena);
    arena = (struct arena)ARENA_INIT;
    call_write(&text, format, name, strlen(name), parse(arguments));
    snprintf(result, sizeof result, "%s", strbuf_str(&text));
    strbuf_free(&text);
    return result;
}

TEST(conversation, calls_are_written_in_every_format)
{
    static const char arguments[] =
        "{\"s\":\"a\\\"\\u00e9\\n\",\"n\":1.50,\"l\":[true,null,-0],\"o\":{\"k\":\"v\"}}";
    static const char json[] =
        "{\"s\": \"a\\\"é\\n\", \"n\": 1.5, \"l\": [true, null, 0], \"o\": {\"k\": \"v\"}}";
    static const struct {
        enum tool_format format;
        const char *before, *after;
    } json_like[] = {
        {TOOLS_HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": ", "}\n</tool_call>"},
        {TOOLS_LLAMA3, "{\"name\": \"f\", \"parameters\": ", "}"},
        {TOOLS_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": ", "}]"},
        {TOOLS_DEEPSEEK,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n",
         "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
        {TOOLS_KIMI,
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
         "<|tool_call_end|><|tool_calls_section_end|>"},
        {TOOLS_HARMONY, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", ""},
        {TOOLS_FUNCTIONARY, "f\n", ""},
        {TOOLS_JSON, "{\"name\": \"f\", \"arguments\": ", "}"},
    };
    for (size_t i = 0; i < sizeof json_like / sizeof *json_like; i++) {
        char want[512];
        snprintf(want, sizeof want, "%s%s%s", json_like[i].before, json, json_like[i].after);
        CHECK_STR(written(json_like[i].format, "f", arguments), want);
    }
    CHECK_STR(written(TOOLS_QWEN_CODER, "f", arguments),
              "<tool_call>\n<function=f>\n<parameter=s>\na\"é\n\n</parameter>\n<parameter=n>\n1.5\n"
              "</parameter>\n<parameter=l>\n[true, null, 0]\n</parameter>\n<parameter=o>\n"
              "{\"k\": \"v\"}\n</parameter>\n</function>\n</tool_call>");
    CHECK_STR(written(TOOLS_GLM, "f", "{\"a\":\"x y\",\"b\":2}"),
              "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x y</arg_value>\n<arg_key>b</arg_key>"
              "\n<arg_value>2</arg_value>\n</tool_call>");
    CHECK_STR(written(TOOLS_MINIMAX, "f", "{\"a\":\"x\",\"b\":{}}"),
              "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">x</parameter>\n"
              "<parameter name=\"b\">{}</parameter>\n</invoke>\n</minimax:tool_call>");
    CHECK_STR(written(TOOLS_GEMMA_CODE, "f", arguments),
              "```tool_code\nf(s=\"a\\\"é\\n\", n=1.5, l=[True, None, 0], o={\"k\": \"v\"})\n```");
    CHECK_STR(written(TOOLS_GEMMA, "f", arguments),
              "<start_function_call>call:f{s:<escape>a\"é\n<escape>,n:1.5,l:[true,null,0],"
              "o:{k:<escape>v<escape>}}<end_function_call>");
    CHECK_STR(written(TOOLS_GLM, "f", "{}"), "<tool_call>f\n</tool_call>");
    CHECK_STR(written(TOOLS_GEMMA_CODE, "f", "{}"), "```tool_code\nf()\n```");
    CHECK_STR(written(TOOLS_JSON, "f", "{\"n\":[1e400,123456789012345678901234567890,1E2]}"),
              "{\"name\": \"f\", \"arguments\": {\"n\": [1e400, 123456789012345678901234567890, "
              "100.0]}}");
}

/* ---- real templates ---- */

/* Everything at once that templates differ in. */
static const char everything[] = "[" SYSTEM("wsysone") "," SYSTEM("wsystwo") "," USER(
    "wuserone") ","
                "{\"role\":\"assistant\",\"content\":\"wlook\",\"reasoning_content\":\"hm\",\"tool_"
                "calls\":[" CALL("call_abcdefghijk1", "wfone", "\"{\\\"city\\\": \\\"wcity\\\"}\"") "," CALL("call_abcdefghijk2", "wftwo", "\"{\\\"n\\\": 4711, \\\"zone\\\": \\\"wzone\\\"}\"") "]}," RESULT(
                    "call_abcdefghijk1",
                    "wresone") "," RESULT("call_abcdefghijk2",
                                          "wrestwo") "," ASSISTANT("wanswer") "," SYSTEM("wsyslate") "," USER("wusertwo") "," USER("wuserthree") "," CALLING("null",
                                                                                                                                                             CALL(
                                                                                                                                                                 "call_3",
                                                                                                                                                                 "wfthree",
                                                                                                                                                                 "\"wbroken {\"")) "," RESULT("call_3",
                                                                                                                                                                                              "wresthree") "," USER("wlast") "]";
static const char *const words[] = {
    "wsysone", "wsystwo", "wuserone",  "wfone",   "wcity",    "wftwo",    "wzone",
    "4711",    "wresone", "wrestwo",   "wanswer", "wsyslate", "wusertwo", "wuserthree",
    "wfthree", "wbroken", "wresthree", "wlast",   "wtool",
};

/* Each word is attributed to the message it came from. It may be merged with a result before it. */
static void check_origin(const struct rendering *r, const char *word, int32_t message)
{
    size_t at = (size_t)(strstr(strbuf_str(&r->text), word) - strbuf_str(&r->text)), i = 0;
    while (r->segments[i].end <= at)
        i++;
    int32_t source = r->segments[i].source;
    CHECK(source == RENDER_DATA || (source >= 0 && (size_t)source < fitted.messages->count));
    if (source >= 0)
        CHECK(fitted.origins[source] == message || fitted.origins[source] == message - 1);
}

/* True when the template renders all that was said. */
static bool says_everything(const struct json *source)
{
    struct error err = {0};
    struct template_traits traits;
    struct rendering out = RENDERING_INIT;
    const struct render_options options = {0};
    arena_free(&arena);
    arena = (struct arena)ARENA_INIT;
    struct json *context = parse("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", "
                                 "\"add_generation_prompt\": true}");
    struct chat_template *t = chat_template_parse(source->text, source->text_len, &err);
    CHECK(t && template_traits_find(&traits, t, context, &err) == 0);
    struct tool_set *set = tool_set_new(
        parse("[{\"type\":\"function\",\"function\":{\"name\":\"wtool\",\"description\":\"d\","
              "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","
              "\"description\":\"d\"}},\"required\":[\"city\"]}}}]"));
    struct conversation in = {.messages = parse(everything), .tools = set};
    CHECK(conversation_fit(&fitted, &in, &traits, &hermes, &arena, &err) == 0);
    json_append(&arena, context, "messages", fitted.messages);
    if (fitted.tools) {
        struct json *tools = json_new(&arena, JSON_ARRAY);
        *tools = *fitted.tools;
        json_append(&arena, context, "tools", tools);
    }
    bool all = chat_template_render(t, context, &options, &out, &err) == 0;
    for (size_t i = 0; i < sizeof words / sizeof *words && all; i++)
        all = strstr(strbuf_str(&out.text), words[i]);
    if (all)
        check_origin(&out, "wlast", 12);
    tool_set_free(set);
    rendering_free(&out);
    template_traits_free(&traits);
    chat_template_free(t);
    return all;
}

TEST(conversation, every_real_template_says_everything)
{
    const char *path = test_shared_path("data/templates/generated_templates.jsonl");
    if (!path)
        SKIP("no shared templates");
    FILE *f = fopen(path, "r");
    CHECK(f);
    /* Not for chats: rankers, embedders, guards, and one that expects functions in its own
     * variable. */
    static const char *const others[] = {"rerank",      "embed",        "guardian",
                                         "shieldgemma", "firefunction", "kimi_audio"};
    char *line = NULL;
    size_t capacity = 0;
    int n = 0;
    for (ssize_t len; (len = getline(&line, &capacity, f)) > 0;) {
        struct arena item_arena = ARENA_INIT;
        struct error err = {0};
        struct json *item = json_parse(&item_arena, line, (size_t)len, &err);
        CHECK(item);
        const char *name = json_get(item, "name")->text;
        bool is_chat = true;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            is_chat &= strstr(name, others[i]) == NULL;
        bool says = says_everything(json_get(item, "template"));
        if (is_chat && !says)
            test_fail(__FILE__, __LINE__, "%s does not say everything", name);
        n += says;
        arena_free(&item_arena);
    }
    free(line);
    fclose(f);
    CHECK_INT(n, 212);
    printf("conversations: fitted to %d real templates\n", n);
}

/* ---- hostile ---- */

TEST(conversation, hostile_messages)
{
    static const char *const bad[] = {
        "[{}]",
        "[1, null, \"x\", [], [1]]",
        "[{\"role\":7,\"content\":8}]",
        "[{\"role\":\"assistant\",\"tool_calls\":[{}, 1, {\"function\":7}]}]",
        "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":1,\"function\":{\"name\":2}}]}]",
        "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":3}}]},{}]",
        "[{\"role\":\"tool\",\"tool_call_id\":3}]",
        "[{\"role\":\"tool\"},{\"role\":\"tool\",\"content\":[1]}]",
        "[{\"role\":\"assistant\",\"content\":\"a\\u0000b\",\"tool_calls\":{}}]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (unsigned bits = 0; bits < 512; bits++) {
            struct template_traits t = {
                .takes_system = bits & 1,
                .takes_calls = bits & 2,
                .takes_several_calls = bits & 4,
                .takes_results = bits & 8,
                .wants_argument_object = bits & 16,
                .wants_alternation = bits & 32,
                .wants_parts = bits & 64,
                .wants_short_ids = bits & 128,
                .wants_named_ids = bits & 256,
                .wants_calls_alone = bits & 4,
            };
            fit_tools(&t, bad[i], bits & 1 ? TOOLS : NULL);
        }
}

/* As many calls and results as a request can carry, none of which belong together. */
TEST(conversation, many_calls_and_results)
{
    enum { N = 20000 };
    struct strbuf text = STRBUF_INIT;
    strbuf_adds(&text, "[{\"role\":\"assistant\",\"tool_calls\":[");
    for (int i = 0; i < N; i++)
        strbuf_addf(&text, "%s{\"id\":\"a%d\",\"function\":{\"name\":\"f\"}}", i ? "," : "", i);
    strbuf_adds(&text, "]}");
    for (int i = 0; i < N; i++)
        strbuf_addf(&text, ",{\"role\":\"tool\",\"tool_call_id\":\"b%d\"}", i);
    strbuf_adds(&text, "]");
    struct template_traits t = takes_all;
    t.takes_several_calls = false;
    struct error err = {0};
    arena_free(&arena);
    arena = (struct arena)ARENA_INIT;
    struct conversation in = {.messages = parse(strbuf_str(&text))};
    strbuf_free(&text);
    CHECK(conversation_fit(&fitted, &in, &t, &hermes, &arena, &err) == 0);
    CHECK_INT(fitted.messages->count, 2 * N);
    t.takes_several_calls = true;
    CHECK(conversation_fit(&fitted, &in, &t, &hermes, &arena, &err) == 0);
    CHECK_INT(fitted.messages->count, N + 1);
}

TEST(conversation, memory_runs_out)
{
    int n_failed = 0;
    arena_free(&arena);
    arena = (struct arena)ARENA_INIT;
    struct json *messages = parse(everything), *tools = parse(TOOLS);
    struct tool_set *set = tool_set_new(tools);
    for (size_t n = 0; n < 200; n++) {
        struct arena own = {.limit_bytes = n * 100 + 1};
        struct error err = {0};
        struct conversation in = {.messages = messages, .tools = set};
        int failed = conversation_fit(&fitted, &in, n % 2 ? &takes_nothing : &takes_all, &hermes,
                                      &own, &err);
        n_failed += failed != 0;
        if (failed)
            CHECK_INT(err.code, ERROR_MEMORY);
        arena_free(&own);
    }
    CHECK(n_failed > 50 && n_failed < 200);
    tool_set_free(set);
    arena_free(&arena);
    arena = (struct arena)ARENA_INIT;
}
