/* The precomputed stream encoder against the JSON writer: the same bytes for the same object. */
#include "serve/completion/sse.h"
#include "base/json.h"
#include "test.h"

static const struct completion_id id = {"chatcmpl-\"1\"", "mo\\del \xf0\x9f\x8c\xb1", "fp_1",
                                        1752150000, true};

/* The whole chunk, as the writer puts it; `delta` and `usage` are JSON texts. */
static void write_chunk(struct strbuf *out, const char *delta, const char *finish,
                        const char *usage, uint32_t choice)
{
    struct json_writer w = {.out = out};
    struct arena arena = ARENA_INIT;
    struct error err;
    strbuf_adds(out, "data: ");
    json_object_begin(&w, NULL);
    json_add_string(&w, "id", id.id);
    json_add_string(&w, "object", "chat.completion.chunk");
    json_add_int(&w, "created", id.created);
    json_add_string(&w, "model", id.model);
    json_add_string(&w, "system_fingerprint", id.fingerprint);
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

static void check_stream(bool with_usage)
{
    static const char text[] = "a\"\\\n\x01\x7f</script>\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80";
    const char *null_usage = with_usage ? "null" : NULL;
    struct strbuf got = STRBUF_INIT, want = STRBUF_INIT, delta = STRBUF_INIT;
    struct sse_encoder e;
    sse_open(&e, &id, with_usage);
    sse_role(&e, &got, 0, false);
    write_chunk(&want, "{\"role\":\"assistant\",\"content\":\"\"}", NULL, null_usage, 0);
    CHECK_STR(strbuf_str(&got), strbuf_str(&want));
    sse_role(&e, &got, 3, true);
    write_chunk(&want, "{\"role\":\"assistant\",\"content\":null}", NULL, null_usage, 3);
    CHECK_STR(strbuf_str(&got), strbuf_str(&want));
    sse_content(&e, &got, 12, text, sizeof text - 1, NULL);
    strbuf_adds(&delta, "{\"content\":");
    json_write_string(&delta, text, sizeof text - 1);
    strbuf_addc(&delta, '}');
    write_chunk(&want, strbuf_str(&delta), NULL, null_usage, 12);
    CHECK_STR(strbuf_str(&got), strbuf_str(&want));
    sse_reasoning(&e, &got, 0, "hm", 2, NULL);
    write_chunk(&want, "{\"reasoning_content\":\"hm\"}", NULL, null_usage, 0);
    CHECK_STR(strbuf_str(&got), strbuf_str(&want));
    sse_call_begin(&e, &got, 1, 2, "call_1", "f\"", NULL);
    write_chunk(&want,
                "{\"tool_calls\":[{\"index\":2,\"id\":\"call_1\",\"type\":\"function\","
                "\"function\":{\"name\":\"f\\\"\",\"arguments\":\"\"}}]}",
                NULL, null_usage, 1);
    CHECK_STR(strbuf_str(&got), strbuf_str(&want));
    sse_call_arguments(&e, &got, 1, 2, "{\"", 2, NULL);
    write_chunk(&want, "{\"tool_calls\":[{\"index\":2,\"function\":{\"arguments\":\"{\\\"\"}}]}",
                NULL, null_usage, 1);
    CHECK_STR(strbuf_str(&got), strbuf_str(&want));
    sse_finish(&e, &got, 7, "length");
    write_chunk(&want, "{}", "length", null_usage, 7);
    CHECK_STR(strbuf_str(&got), strbuf_str(&want));
    sse_usage(&e, &got, &(struct completion_usage){30, 20, 4, 3});
    write_chunk(&want, NULL, NULL,
                "{\"prompt_tokens\":30,\"completion_tokens\":4,\"total_tokens\":34,"
                "\"prompt_tokens_details\":{\"cached_tokens\":20},"
                "\"completion_tokens_details\":{\"reasoning_tokens\":3}}",
                0);
    CHECK_STR(strbuf_str(&got), strbuf_str(&want));
    static const char member[] = "\"radish\":{\"a\":[1]}";
    struct strbuf more = STRBUF_INIT;
    strbuf_adds(&more, member);
    sse_member(&e, &got, &more);
    strbuf_free(&more);
    CHECK(strstr(strbuf_str(&got) + want.len, "\"choices\":[],") != NULL);
    CHECK_INT(strstr(strbuf_str(&got) + want.len, "\"usage\":null,\"radish\"") != NULL, with_usage);
    CHECK(strstr(strbuf_str(&got) + want.len, "\"radish\":{\"a\":[1]}}\n\n") != NULL);
    want.len = got.len;
    sse_done(&got);
    CHECK_STR(strbuf_str(&got) + want.len, "data: [DONE]\n\n");
    sse_close(&e);
    strbuf_free(&got);
    strbuf_free(&want);
    strbuf_free(&delta);
}

TEST(sse, bytes_equal_those_of_a_json_writer)
{
    check_stream(false);
    check_stream(true);
}

TEST(sse, every_event_is_one_line_of_data)
{
    struct strbuf out = STRBUF_INIT;
    struct sse_encoder e;
    sse_open(&e, &id, false);
    sse_content(&e, &out, 0, "\n\n\r\ndata: x\n\n", 14, NULL);
    CHECK(strstr(out.data, "\n\n") == out.data + out.len - 2);
    CHECK(strchr(out.data, '\r') == NULL);
    strbuf_clear(&out);
    sse_error(&out, "{\"error\":{}}");
    CHECK_STR(strbuf_str(&out), "data: {\"error\":{}}\n\n");
    strbuf_clear(&out);
    sse_heartbeat(&out);
    CHECK_INT(out.data[0], ':');
    CHECK(strstr(out.data, "\n\n") == out.data + out.len - 2);
    sse_close(&e);
    strbuf_free(&out);
}

TEST(sse, chunks_of_texts)
{
    struct completion_id text_id = id;
    struct strbuf out = STRBUF_INIT, logprobs = STRBUF_INIT;
    struct sse_encoder e;
    text_id.is_chat = false;
    sse_open(&e, &text_id, false);
    strbuf_adds(&logprobs, "{\"tokens\":[]}");
    sse_content(&e, &out, 3, "a", 1, &logprobs);
    CHECK(strstr(out.data, "\"object\":\"text_completion\"") != NULL);
    CHECK(strstr(out.data, "[{\"index\":3,\"text\":\"a\",\"logprobs\":{\"tokens\":[]},"
                           "\"finish_reason\":null}]}\n\n") != NULL);
    strbuf_clear(&out);
    sse_finish(&e, &out, 0, "stop");
    CHECK(strstr(out.data, "[{\"index\":0,\"text\":\"\",\"logprobs\":null,"
                           "\"finish_reason\":\"stop\"}]}\n\n") != NULL);
    sse_close(&e);
    strbuf_free(&out);
    strbuf_free(&logprobs);
}
