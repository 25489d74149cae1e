/* Answers put together from tokens: whole and as events, with thinking, calls and log
 * probabilities, and the two must agree. */
#include "serve/completion/answer.h"

#include <stdlib.h>

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

/* The choice's members as a whole answer has them. */
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
    /* Cut off in its arguments: it stays as far as it came, and the reason says so. */
    check_whole(
        "Ok.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", true, FINISH_LENGTH,
        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Ok.\",\"refusal\":null,"
        "\"tool_calls\":[{\"id\":\"call_xxxxxxxxxxxxxxxxxxxxxxxx\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1\"}}]},"
        "\"logprobs\":null,\"finish_reason\":\"length\"}");
    /* ... before anyone knew what it calls: then it is text. */
    check_whole(
        "Ok.<tool_call>\n{\"na", true, FINISH_LENGTH,
        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Ok.<tool_call>\\n{\\\"na\","
        "\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"length\"}");
}

/* Puts the deltas of a stream together: content, reasoning, and each call's name and arguments. */
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
    /* What began as a call and broke: its beginning was sent, and then all of it as text. */
    check_stream("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": oops}}\n</tool_call>",
                 "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": oops}}\n</tool_call>"
                 "//|f:{\"a\": ",
                 ANSWER_STOPPED);
}

/* A writer that only notes what it is called with. */
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

/* The end of a call is told only of one that is whole. */
TEST(answer, what_writers_are_told)
{
    check_notes("<think>H</think>\n\nY", "(H)[Y]");
    check_notes("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
                "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
                "0:f{\"a\": 1};01:f{};1");
    check_notes("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", "0:f{\"a\": 1");
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
