/* The writers of answers against the JSON writer: the same bytes for the same object. */
#include "base/json.h"
#include "serve/writers/answer_writer.h"
#include "test.h"

static const struct answer_head head = {.id = "chatcmpl-\"1\"",
                                        .model = "mo\\del \xf0\x9f\x8c\xb1",
                                        .fingerprint = "fp_1",
                                        .created = 1752150000,
                                        .n_choices = 1};

/* The whole chunk, as the writer writes it; `delta` and `usage` are JSON texts. */
static void write_chunk(struct strbuf *out, const char *delta, const char *finish,
                        const char *usage, uint32_t choice)
{
    struct json_writer w = {.out = out};
    struct arena arena = ARENA_INIT;
    struct error err;
    strbuf_adds(out, "data: ");
    json_object_begin(&w, NULL);
    json_add_string(&w, "id", head.id);
    json_add_string(&w, "object", "chat.completion.chunk");
    json_add_int(&w, "created", head.created);
    json_add_string(&w, "model", head.model);
    json_add_string(&w, "system_fingerprint", head.fingerprint);
    json_array_begin(&w, "choices");
    if (delta) {
        struct json *value = json_parse(&arena, delta, strlen(delta), &err);
        CHECK(value != NULL);
        json_object_begin(&w, NULL);
        json_add_int(&w, "index", choice);
        json_add_value(&w, "delta", value);
        json_add_null(&w, "logprobs");
        if (finish)
            json_add_string(&w, "finish_reason", finish);
        else
            json_add_null(&w, "finish_reason");
        json_object_end(&w);
    }
    json_array_end(&w);
    if (usage)
        json_add_value(&w, "usage", json_parse(&arena, usage, strlen(usage), &err));
    json_object_end(&w);
    strbuf_adds(out, "\n\n");
    arena_free(&arena);
}

static void check_same(const struct strbuf *got, const struct strbuf *want)
{
    CHECK_STR(strbuf_str(got), strbuf_str(want));
}

static void check_begin(bool may_call, const char *delta)
{
    struct answer_head two = head;
    struct strbuf got = STRBUF_INIT, want = STRBUF_INIT;
    two.n_choices = 2;
    two.may_call = may_call;
    void *stream = chat_writer.open(&two);
    chat_writer.begin(stream, &got);
    write_chunk(&want, delta, NULL, NULL, 0);
    write_chunk(&want, delta, NULL, NULL, 1);
    check_same(&got, &want);
    chat_writer.close(stream);
    strbuf_free(&got);
    strbuf_free(&want);
}

TEST(answer_writers, chats_begin_with_the_role_of_each_choice)
{
    check_begin(false, "{\"role\":\"assistant\",\"content\":\"\"}");
    check_begin(true, "{\"role\":\"assistant\",\"content\":null}");
}

static void check_deltas(void *stream, const char *null_usage, struct strbuf *got,
                         struct strbuf *want)
{
    static const char text[] = "a\"\\\n\x01\x7f</script>\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80";
    struct answer_content first = {0}, second = {.index = 1}, many = {.index = 12};
    struct answer_call call = {.id = "call_1"};
    struct strbuf delta = STRBUF_INIT;
    chat_writer.text(stream, got, &many, text, sizeof text - 1);
    strbuf_adds(&delta, "{\"content\":");
    json_write_string(&delta, text, sizeof text - 1);
    strbuf_addc(&delta, '}');
    write_chunk(want, strbuf_str(&delta), NULL, null_usage, 12);
    check_same(got, want);
    chat_writer.thinking(stream, got, &first, "hm", 2);
    write_chunk(want, "{\"reasoning_content\":\"hm\"}", NULL, null_usage, 0);
    check_same(got, want);
    strbuf_adds(&call.name, "f\"");
    chat_writer.call_begin(stream, got, &second, &call, 2);
    write_chunk(want,
                "{\"tool_calls\":[{\"index\":2,\"id\":\"call_1\",\"type\":\"function\","
                "\"function\":{\"name\":\"f\\\"\",\"arguments\":\"\"}}]}",
                NULL, null_usage, 1);
    check_same(got, want);
    chat_writer.call_arguments(stream, got, &second, 2, "{\"", 2);
    write_chunk(want, "{\"tool_calls\":[{\"index\":2,\"function\":{\"arguments\":\"{\\\"\"}}]}",
                NULL, null_usage, 1);
    check_same(got, want);
    strbuf_free(&call.name);
    strbuf_free(&delta);
}

static void check_stream(bool include_usage)
{
    static const struct {
        enum answer_finish finish;
        const char *name;
    } finishes[] = {
        {ANSWER_STOPPED, "stop"}, {ANSWER_TOO_LONG, "length"}, {ANSWER_CALLS, "tool_calls"}};
    const char *null_usage = include_usage ? "null" : NULL;
    struct answer_head with = head;
    struct answer_content seventh = {.index = 7};
    struct strbuf got = STRBUF_INIT, want = STRBUF_INIT, more = STRBUF_INIT;
    with.include_usage = include_usage;
    void *stream = chat_writer.open(&with);
    check_deltas(stream, null_usage, &got, &want);
    for (int i = 0; i < 3; i++) {
        chat_writer.finish(stream, &got, &seventh, finishes[i].finish);
        write_chunk(&want, "{}", finishes[i].name, null_usage, 7);
        check_same(&got, &want);
    }
    strbuf_adds(&more, "\"radish\":{\"a\":[1]}");
    chat_writer.end(stream, &got, &(struct answer_usage){30, 20, 4, 3, NULL}, &more);
    if (include_usage)
        write_chunk(&want, NULL, NULL,
                    "{\"prompt_tokens\":30,\"completion_tokens\":4,\"total_tokens\":34,"
                    "\"prompt_tokens_details\":{\"cached_tokens\":20},"
                    "\"completion_tokens_details\":{\"reasoning_tokens\":3}}",
                    0);
    write_chunk(&want, NULL, NULL, null_usage, 0);
    want.len -= strlen("}\n\n"); /* the last member */
    strbuf_adds(&want, ",\"radish\":{\"a\":[1]}}\n\ndata: [DONE]\n\n");
    check_same(&got, &want);
    chat_writer.close(stream);
    strbuf_free(&got);
    strbuf_free(&want);
    strbuf_free(&more);
}

TEST(answer_writers, bytes_equal_those_of_a_json_writer)
{
    check_stream(false);
    check_stream(true);
}

TEST(answer_writers, every_event_is_one_line_of_data)
{
    struct strbuf out = STRBUF_INIT;
    struct answer_content a = {0};
    struct api_error e;
    void *stream = chat_writer.open(&head);
    chat_writer.text(stream, &out, &a, "\n\n\r\ndata: x\n\n", 14);
    CHECK(strstr(out.data, "\n\n") == out.data + out.len - 2);
    CHECK(strchr(out.data, '\r') == NULL);
    strbuf_clear(&out);
    api_error_set(&e, 503, NULL, "a\n\nb");
    chat_writer.error(stream, &out, &e);
    CHECK_STR(strbuf_str(&out), "data: {\"error\":{\"message\":\"a\\n\\nb\",\"type\":"
                                "\"unavailable_error\",\"param\":null,\"code\":null}}\n\n");
    strbuf_clear(&out);
    chat_writer.end(stream, &out, &(struct answer_usage){0}, NULL);
    CHECK_STR(strbuf_str(&out), "data: [DONE]\n\n");
    strbuf_clear(&out);
    chat_writer.heartbeat(stream, &out);
    CHECK_STR(strbuf_str(&out), ": waiting\n\n");
    chat_writer.close(stream);
    strbuf_free(&out);
}

TEST(answer_writers, chunks_of_texts)
{
    struct strbuf out = STRBUF_INIT;
    struct tokenizer *t;
    struct error err;
    CHECK_INT(tokenizer_open_bytes(&t, NULL, &err), 0);
    struct answer_content a = {.index = 3, .has_logprobs = true, .tokenizer = t};
    void *stream = text_writer.open(&head);
    text_writer.begin(stream, &out);
    CHECK_INT(out.len, 0);
    logprob_list_add(&a.logprobs, 'a', "a", 1, &(struct token_logprobs){.logprob = -1});
    logprob_list_show(&a.logprobs, 1);
    text_writer.text(stream, &out, &a, "a", 1);
    CHECK(strstr(out.data, "\"object\":\"text_completion\"") != NULL);
    CHECK(strstr(out.data, "[{\"index\":3,\"text\":\"a\",\"logprobs\":{\"tokens\":[\"a\"],"
                           "\"token_logprobs\":[-1.0],\"top_logprobs\":[{\"a\":-1.0}],"
                           "\"text_offset\":[0]},\"finish_reason\":null}]}\n\n") != NULL);
    strbuf_clear(&out);
    text_writer.text(stream, &out, &a, "", 0); /* they are given once */
    CHECK(strstr(out.data, "\"text\":\"\",\"logprobs\":null,\"finish_reason\":null}]}") != NULL);
    strbuf_clear(&out);
    a.index = 0;
    text_writer.finish(stream, &out, &a, ANSWER_STOPPED);
    CHECK(strstr(out.data, "[{\"index\":0,\"text\":\"\",\"logprobs\":null,"
                           "\"finish_reason\":\"stop\"}]}\n\n") != NULL);
    text_writer.close(stream);
    logprob_list_free(&a.logprobs);
    strbuf_free(&out);
    tokenizer_close(t);
}

TEST(answer_writers, whole_texts)
{
    struct strbuf out = STRBUF_INIT;
    struct json_writer w = {.out = &out};
    struct answer_content a = {.index = 1};
    strbuf_adds(&a.text, "b\n");
    json_object_begin(&w, NULL);
    text_writer.whole_begin(&w, &head);
    text_writer.whole_choice(&w, &head, &a, ANSWER_TOO_LONG);
    text_writer.whole_end(&w, &(struct answer_usage){1, 0, 2, 0, NULL});
    json_object_end(&w);
    CHECK_STR(
        strbuf_str(&out),
        "{\"id\":\"chatcmpl-\\\"1\\\"\",\"object\":\"text_completion\",\"created\":1752150000,"
        "\"model\":\"mo\\\\del \xf0\x9f\x8c\xb1\",\"system_fingerprint\":\"fp_1\","
        "\"choices\":[{\"index\":1,\"text\":\"b\\n\",\"logprobs\":null,"
        "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":1,"
        "\"completion_tokens\":2,\"total_tokens\":3,\"prompt_tokens_details\":{"
        "\"cached_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0}}}");
    strbuf_free(&a.text);
    strbuf_free(&out);
}
