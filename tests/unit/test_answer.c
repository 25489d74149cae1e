/* Answers assembled from tokens: whole and as events, with thinking, calls and log probabilities;
 * both must agree. */
#include "serve/completion/answer.h"

#include <stdlib.h>

#include "prompt/answer/call_repeat.h"
#include "test.h"

static const struct answer_style hermes = {TOOLS_HERMES, "<think>", "</think>"};
static const struct answer_head head = {.id = "chatcmpl-1", .model = "m", .fingerprint = "fp"};

static struct tool_set *tools_make(struct arena *arena)
{
    static const char text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";
    struct error err;
    struct tool_set *set = tool_set_new(json_parse(arena, text, sizeof text - 1, &err));
    CHECK(set != NULL);
    return set;
}

/* Feeds the text byte by byte. */
static void feed(struct answer *a, const char *text, struct strbuf *events)
{
    const struct token_logprobs logprobs = {.logprob = -1};
    uint64_t n = 0;
    for (const char *c = text; *c; c++)
        answer_token(a, (unsigned char)*c, c, 1, ++n, &logprobs, events);
    answer_end(a, n, events);
    CHECK(!answer_failed(a));
}

/* The choice's members as in a whole answer. */
static void whole(const struct answer_options *o, const char *text, enum finish_reason finish,
                  struct strbuf *out)
{
    struct answer a;
    struct strbuf events = STRBUF_INIT;
    struct json_writer w = {.out = out};
    CHECK_INT(answer_open(&a, o), 0);
    feed(&a, text, &events);
    CHECK_INT(events.len, 0);
    chat_writer.whole_choice(&w, &(struct answer_head){0}, &a.content,
                             answer_finish_of(&a, finish));
    answer_free(&a);
    strbuf_free(&events);
}

static void check_whole(const char *text, bool with_tools, enum finish_reason finish,
                        const char *want)
{
    struct arena arena = ARENA_INIT;
    struct tool_set *tools = with_tools ? tools_make(&arena) : NULL;
    struct answer_options o = {.style = &hermes, .tools = tools};
    struct strbuf out = STRBUF_INIT;
    whole(&o, text, finish, &out);
    char *call = strstr(strbuf_str(&out), "call_"); /* ids are random */
    if (call)
        memset(call + 5, 'x', 24);
    CHECK_STR(strbuf_str(&out), want);
    strbuf_free(&out);
    tool_set_free(tools);
    arena_free(&arena);
}

TEST(answer, whole_answers)
{
    check_whole(
        "Hi\n", true, FINISH_STOP,
        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hi\\n\",\"refusal\":null},"
        "\"logprobs\":null,\"finish_reason\":\"stop\"}");
    check_whole(
        "", true, FINISH_LENGTH,
        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},"
        "\"logprobs\":null,\"finish_reason\":\"length\"}");
    check_whole("<think>\nHm.\n</think>\n\nYes", false, FINISH_STOP,
                "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Yes\","
                "\"reasoning_content\":\"Hm.\",\"refusal\":null},"
                "\"logprobs\":null,\"finish_reason\":\"stop\"}");
    check_whole(
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", true,
        FINISH_STOP,
        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":null,\"refusal\":null,"
        "\"tool_calls\":[{\"id\":\"call_xxxxxxxxxxxxxxxxxxxxxxxx\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}]},"
        "\"logprobs\":null,\"finish_reason\":\"tool_calls\"}");
    check_whole("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", false,
                FINISH_STOP,
                "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"<tool_call>\\n{"
                "\\\"name\\\": "
                "\\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}\\n</tool_call>\","
                "\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}");
    /* Cut off in its arguments: the call is returned incomplete, and the reason says so. */
    check_whole(
        "Ok.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", true, FINISH_LENGTH,
        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Ok.\",\"refusal\":null,"
        "\"tool_calls\":[{\"id\":\"call_xxxxxxxxxxxxxxxxxxxxxxxx\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1\"}}]},"
        "\"logprobs\":null,\"finish_reason\":\"length\"}");
    /* ... before the function's name was known: then it is text. */
    check_whole(
        "Ok.<tool_call>\n{\"na", true, FINISH_LENGTH,
        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Ok.<tool_call>\\n{\\\"na\","
        "\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"length\"}");
}

/* Joins the deltas of a stream: content, reasoning, and each call's name and arguments. */
static void joined(const char *events, struct strbuf *out)
{
    struct strbuf content = STRBUF_INIT, reasoning = STRBUF_INIT, calls = STRBUF_INIT;
    for (const char *at = events; (at = strstr(at, "data: ")); at++) {
        struct arena arena = ARENA_INIT;
        struct error err;
        const char *end = strstr(at, "\n\n");
        const struct json *chunk = json_parse(&arena, at + 6, (size_t)(end - at - 6), &err);
        CHECK(chunk != NULL);
        const struct json *delta = json_get(json_get(chunk, "choices")->first, "delta");
        const struct json *text = json_get(delta, "content");
        const struct json *thought = json_get(delta, "reasoning_content");
        const struct json *call = json_get(delta, "tool_calls");
        if (text)
            strbuf_add(&content, text->text, text->text_len);
        if (thought)
            strbuf_add(&reasoning, thought->text, thought->text_len);
        if (call) {
            const struct json *function = json_get(call->first, "function");
            const struct json *name = json_get(function, "name");
            if (name)
                strbuf_addf(&calls, "|%s:", name->text);
            strbuf_adds(&calls, json_get(function, "arguments")->text);
        }
        arena_free(&arena);
    }
    strbuf_addf(out, "%s/%s/%s", strbuf_str(&content), strbuf_str(&reasoning), strbuf_str(&calls));
    strbuf_free(&content);
    strbuf_free(&reasoning);
    strbuf_free(&calls);
}

static void check_stream(const char *text, const char *want, enum answer_finish finish)
{
    struct arena arena = ARENA_INIT;
    struct tool_set *tools = tools_make(&arena);
    struct answer_options o = {.style = &hermes, .tools = tools};
    struct strbuf events = STRBUF_INIT, got = STRBUF_INIT;
    struct answer a;
    void *stream = chat_writer.open(&head);
    CHECK_INT(answer_open(&a, &o), 0);
    answer_stream(&a, &chat_writer, stream);
    feed(&a, text, &events);
    joined(strbuf_str(&events), &got);
    CHECK_STR(strbuf_str(&got), want);
    CHECK_INT(answer_finish_of(&a, FINISH_STOP), finish);
    answer_free(&a);
    chat_writer.close(stream);
    strbuf_free(&events);
    strbuf_free(&got);
    tool_set_free(tools);
    arena_free(&arena);
}

TEST(answer, streams)
{
    check_stream("Hi", "Hi//", ANSWER_STOPPED);
    check_stream("<think>Hm</think>\n\nYes", "Yes/Hm/", ANSWER_STOPPED);
    check_stream("On it.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, 2]}}\n"
                 "</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
                 "On it.//|f:{\"a\": [1, 2]}|f:{}", ANSWER_CALLS);
    check_stream("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", "//|f:{\"a\": 1",
                 ANSWER_STOPPED);
    /* A call that broke off: its beginning was sent, and then all of it as text. */
    check_stream("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": oops}}\n</tool_call>",
                 "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": oops}}\n</tool_call>"
                 "//|f:{\"a\": ",
                 ANSWER_STOPPED);
}

/* A writer that only records its calls. */
static void note_text(void *stream, struct strbuf *out, struct answer_content *a, const char *text,
                      size_t len)
{
    (void)stream, (void)a;
    strbuf_addf(out, "[%.*s]", (int)len, text);
}

static void note_thinking(void *stream, struct strbuf *out, struct answer_content *a,
                          const char *text, size_t len)
{
    (void)stream, (void)a;
    strbuf_addf(out, "(%.*s)", (int)len, text);
}

static void note_call_begin(void *stream, struct strbuf *out, struct answer_content *a,
                            const struct answer_call *call, uint32_t number)
{
    CHECK(call == &a->calls[a->n_calls - 1] && stream == a);
    strbuf_addf(out, "%u:%s", number, strbuf_str(&call->name));
}

static void note_call_arguments(void *stream, struct strbuf *out, struct answer_content *a,
                                uint32_t number, const char *text, size_t len)
{
    (void)stream, (void)a, (void)number;
    strbuf_add(out, text, len);
}

static void note_call_end(void *stream, struct strbuf *out, struct answer_content *a,
                          uint32_t number)
{
    (void)stream, (void)a;
    strbuf_addf(out, ";%u", number);
}

static const struct answer_writer notes = {.text = note_text,
                                           .thinking = note_thinking,
                                           .call_begin = note_call_begin,
                                           .call_arguments = note_call_arguments,
                                           .call_end = note_call_end};

static void check_notes(const char *text, const char *want)
{
    struct arena arena = ARENA_INIT;
    struct tool_set *tools = tools_make(&arena);
    struct answer_options o = {.style = &hermes, .tools = tools};
    struct strbuf events = STRBUF_INIT;
    struct answer a;
    CHECK_INT(answer_open(&a, &o), 0);
    answer_stream(&a, &notes, &a.content);
    feed(&a, text, &events);
    CHECK_STR(strbuf_str(&events), want);
    answer_free(&a);
    strbuf_free(&events);
    tool_set_free(tools);
    arena_free(&arena);
}

/* The end of a call is reported only if the call is complete. */
TEST(answer, what_writers_are_told)
{
    check_notes("<think>H</think>\n\nY", "(H)[Y]");
    check_notes("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
                "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
                "0:f{\"a\": 1};01:f{};1");
    check_notes("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", "0:f{\"a\": 1");
}

#define CALL_F(arguments)                                                                          \
    "<tool_call>\n{\"name\": \"f\", \"arguments\": " arguments "}\n</tool_call>\n"

/* The same name and equal arguments: neither the call nor anything after it is reported. */
TEST(answer, a_repeated_call_ends_the_answer)
{
    check_notes(CALL_F("{\"a\": 1}") CALL_F("{\"a\": 1}") CALL_F("{}") "and on", "0:f{\"a\": 1};0");
    check_notes(CALL_F("{\"a\": 1, \"b\": [\"x\"]}") CALL_F("{\"b\":[\"\\u0078\"],\"a\":1.0}"),
                "0:f{\"a\": 1, \"b\": [\"x\"]};0");
    check_notes(CALL_F("{}") CALL_F("{\"a\": 1}") CALL_F("{ }"), "0:f{};01:f{\"a\": 1};1");
    check_notes(CALL_F("{\"a\": 1}") "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1",
                "0:f{\"a\": 1};01:f{\"a\": 1"); /* cut off: who knows */
    check_whole(CALL_F("{\"a\": 1}") "Again:" CALL_F("{\"a\":1}") "more", true, FINISH_LENGTH,
                "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Again:\","
                "\"refusal\":null,\"tool_calls\":[{\"id\":\"call_xxxxxxxxxxxxxxxxxxxxxxxx\","
                "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
                "\"{\\\"a\\\": 1}\"}}]},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}");
}

/* A held call that turns out to be invalid was never sent, and becomes text. */
#define KIMI(id, arguments)                                                                        \
    "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"

/* Kimi K2's template writes ids: the client gets the model's own ids, but none twice. */
TEST(answer, keeps_ids_that_the_model_gave)
{
    static const struct answer_style kimi = {.tools = TOOLS_KIMI};
    struct arena arena = ARENA_INIT;
    struct tool_set *tools = tools_make(&arena);
    struct strbuf events = STRBUF_INIT;
    struct answer a;
    CHECK_INT(answer_open(&a, &(struct answer_options){.style = &kimi, .tools = tools}), 0);
    feed(&a,
         KIMI("functions.f:0", "{}") KIMI("functions.f:0", "{\"a\": 1}") KIMI("f:12", "{\"a\": 2}")
             KIMI("f", "{\"a\": 3}"),
         &events);
    CHECK_INT(a.content.n_calls, 4);
    CHECK_STR(a.content.calls[0].id, "functions.f:0");
    CHECK(strncmp(a.content.calls[1].id, "call_", 5) == 0);
    CHECK_STR(a.content.calls[2].id, "f:12");
    CHECK(strncmp(a.content.calls[3].id, "call_", 5) == 0);
    answer_free(&a);
    strbuf_free(&events);
    tool_set_free(tools);
    arena_free(&arena);
}

TEST(answer, a_held_call_that_breaks_is_text)
{
    check_notes(
        CALL_F("{\"a\": 1}") CALL_F("{\"a\": oops}"),
        "0:f{\"a\": 1};0[<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": ][o][o][p][s]"
        "[}][}][\n</][t][o][o][l][_][c][a][l][l][>]");
}

TEST(answer, calls_have_a_maximum)
{
    struct arena arena = ARENA_INIT;
    struct tool_set *tools = tools_make(&arena);
    struct answer_options o = {.style = &hermes, .tools = tools};
    struct strbuf events = STRBUF_INIT, text = STRBUF_INIT;
    struct answer a;
    for (int i = 0; i <= ANSWER_MAX_CALLS; i++)
        strbuf_addf(&text, CALL_F("{\"a\": %d}"), i);
    CHECK_INT(answer_open(&a, &o), 0);
    feed(&a, strbuf_str(&text), &events);
    CHECK_INT(a.content.n_calls, ANSWER_MAX_CALLS);
    CHECK(answer_is_over(&a));
    CHECK_INT(answer_finish_of(&a, FINISH_LENGTH), ANSWER_CALLS);
    answer_free(&a);
    strbuf_free(&events);
    strbuf_free(&text);
    tool_set_free(tools);
    arena_free(&arena);
}

/* How many bytes of the second call's arguments arrive before it is sent. */
static void check_released(const char *first, const char *second, const char *held)
{
    struct byte_view whole = byte_view_of(first), part = byte_view_of(second);
    size_t n = 0;
    while (n <= part.len && call_arguments_may_equal((struct byte_view){part.bytes, n}, whole))
        n++;
    CHECK_INT(n, strlen(held));
}

TEST(answer, calls_are_held_while_they_may_repeat)
{
    check_released("{\"a\": \"one two\"}", "{\"a\": \"one Two\"}", "{\"a\": \"one T");
    check_released("{\"a\": \"one two\"}", "{\"a\":\"one Two\"}", "{\"a\":\"one T");
    check_released("{\"a\": 1, \"b\": 2}", "{\"b\":2,\"a\":12}", "{\"b\":2,\"a\":12}");
    check_released("{\"a\": 1}", "{\"c\": 1}", "{\"c\"");
    check_released("{\"a\": \"\xc3\xa4\"}", "{\"a\": \"\xc3\xb6 and more text\"}",
                   "{\"a\": \"\xc3\xb6 and more te");
    check_released("{\"a\": \"x\\n\"}", "{\"a\": \"x\\\\ and more text\"}",
                   "{\"a\": \"x\\\\ and more te");
    check_released("{\"a\": [1, 2]}", "{\"a\": [1, 3], \"b\": 0}", "{\"a\": [1, 3]");
    CHECK(call_arguments_may_equal(byte_view_of("{\"a\": oops"), byte_view_of("{\"a\": 1}")));
    CHECK(call_arguments_may_equal(byte_view_of("{"), byte_view_of("no JSON")));
    CHECK(!call_arguments_equal(byte_view_of("{"), byte_view_of("{}")));
    CHECK(call_arguments_equal(byte_view_of("{oops"), byte_view_of("{oops")));
}

TEST(answer, counts_tokens_of_thinking_and_gives_log_probabilities)
{
    struct tokenizer *t;
    struct error err;
    struct strbuf events = STRBUF_INIT, out = STRBUF_INIT;
    struct json_writer w = {.out = &out};
    struct answer a;
    CHECK_INT(tokenizer_open_bytes(&t, NULL, &err), 0);
    struct answer_options o = {
        .style = &hermes, .starts_in_thinking = true, .has_logprobs = true, .tokenizer = t};
    CHECK_INT(answer_open(&a, &o), 0);
    feed(&a, "abc</think>de", &events);
    CHECK_INT(a.n_reasoning_tokens, strlen("abc</think>"));
    chat_writer.whole_choice(&w, &(struct answer_head){0}, &a.content, ANSWER_STOPPED);
    size_t n = 0;
    for (const char *at = strbuf_str(&out); (at = strstr(at, "\"bytes\"")); at++)
        n++;
    CHECK_INT(n, strlen("abc</think>de"));
    answer_free(&a);
    strbuf_free(&events);
    strbuf_free(&out);
    tokenizer_close(t);
}
