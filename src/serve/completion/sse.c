/* The encoder of streamed answers; see sse.h for the cut between what is precomputed and what is
 * not. It belongs to one stream, on the event loop's thread. A change of one chunk's shape is a
 * change here and in no other place. */
#include "serve/completion/sse.h"

#include <string.h>

#define DATA "data: "
#define END  "\n\n"

void sse_open(struct sse_encoder *e, const struct completion_id *id, bool with_usage)
{
    *e = (struct sse_encoder){.is_chat = id->is_chat, .with_usage = with_usage};
    strbuf_adds(&e->head, DATA);
    struct json_writer w = {.out = &e->head};
    json_object_begin(&w, NULL);
    json_add_string(&w, "id", id->id);
    json_add_string(&w, "object", id->is_chat ? "chat.completion.chunk" : "text_completion");
    json_add_int(&w, "created", id->created);
    json_add_string(&w, "model", id->model);
    json_add_string(&w, "system_fingerprint", id->fingerprint);
    json_array_begin(&w, "choices");
    e->common_len = e->head.len;
    strbuf_adds(&e->head, "{\"index\":");
    strbuf_adds(&e->tail, ",\"finish_reason\":null}]");
    strbuf_adds(&e->tail, with_usage ? ",\"usage\":null}" END : "}" END);
}

void sse_close(struct sse_encoder *e)
{
    strbuf_free(&e->head);
    strbuf_free(&e->tail);
}

/* Up to where the delta's members, or the text, are written. */
static void chunk_begin(const struct sse_encoder *e, struct strbuf *out, uint32_t choice)
{
    strbuf_add(out, e->head.data, e->head.len);
    if (choice < 10)
        strbuf_addc(out, (char)('0' + choice));
    else
        strbuf_addf(out, "%u", choice);
    strbuf_adds(out, e->is_chat ? ",\"delta\":{" : ",\"text\":");
}

static void chunk_end(const struct sse_encoder *e, struct strbuf *out,
                      const struct strbuf *logprobs)
{
    strbuf_adds(out, e->is_chat ? "},\"logprobs\":" : ",\"logprobs\":");
    if (logprobs)
        strbuf_add(out, logprobs->data, logprobs->len);
    else
        strbuf_adds(out, "null");
    strbuf_add(out, e->tail.data, e->tail.len);
}

void sse_role(const struct sse_encoder *e, struct strbuf *out, uint32_t choice, bool may_call)
{
    chunk_begin(e, out, choice);
    strbuf_adds(out, "\"role\":\"assistant\",\"content\":");
    strbuf_adds(out, may_call ? "null" : "\"\"");
    chunk_end(e, out, NULL);
}

void sse_content(const struct sse_encoder *e, struct strbuf *out, uint32_t choice, const char *text,
                 size_t len, const struct strbuf *logprobs)
{
    chunk_begin(e, out, choice);
    if (e->is_chat)
        strbuf_adds(out, "\"content\":");
    json_write_string(out, text, len);
    chunk_end(e, out, logprobs);
}

void sse_reasoning(const struct sse_encoder *e, struct strbuf *out, uint32_t choice,
                   const char *text, size_t len, const struct strbuf *logprobs)
{
    chunk_begin(e, out, choice);
    strbuf_adds(out, "\"reasoning_content\":");
    json_write_string(out, text, len);
    chunk_end(e, out, logprobs);
}

void sse_call_begin(const struct sse_encoder *e, struct strbuf *out, uint32_t choice, uint32_t call,
                    const char *id, const char *name, const struct strbuf *logprobs)
{
    chunk_begin(e, out, choice);
    strbuf_addf(out, "\"tool_calls\":[{\"index\":%u,\"id\":\"%s\",", call, id);
    strbuf_adds(out, "\"type\":\"function\",\"function\":{\"name\":");
    json_write_string(out, name, strlen(name));
    strbuf_adds(out, ",\"arguments\":\"\"}}]");
    chunk_end(e, out, logprobs);
}

void sse_call_arguments(const struct sse_encoder *e, struct strbuf *out, uint32_t choice,
                        uint32_t call, const char *text, size_t len, const struct strbuf *logprobs)
{
    chunk_begin(e, out, choice);
    strbuf_addf(out, "\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":", call);
    json_write_string(out, text, len);
    strbuf_adds(out, "}}]");
    chunk_end(e, out, logprobs);
}

void sse_finish(const struct sse_encoder *e, struct strbuf *out, uint32_t choice,
                const char *finish_reason)
{
    chunk_begin(e, out, choice);
    strbuf_adds(out, e->is_chat ? "}" : "\"\"");
    strbuf_addf(out, ",\"logprobs\":null,\"finish_reason\":\"%s\"}]", finish_reason);
    strbuf_adds(out, e->with_usage ? ",\"usage\":null}" END : "}" END);
}

void usage_add(struct json_writer *w, const struct completion_usage *usage)
{
    json_object_begin(w, "usage");
    json_add_int(w, "prompt_tokens", usage->prompt_tokens);
    json_add_int(w, "completion_tokens", usage->completion_tokens);
    json_add_int(w, "total_tokens", (int64_t)usage->prompt_tokens + usage->completion_tokens);
    json_object_begin(w, "prompt_tokens_details");
    json_add_int(w, "cached_tokens", usage->cached_tokens);
    json_object_end(w);
    json_object_begin(w, "completion_tokens_details");
    json_add_int(w, "reasoning_tokens", usage->reasoning_tokens);
    json_object_end(w);
    json_object_end(w);
}

void sse_usage(const struct sse_encoder *e, struct strbuf *out,
               const struct completion_usage *usage)
{
    strbuf_add(out, e->head.data, e->common_len);
    strbuf_adds(out, "],");
    usage_add(&(struct json_writer){.out = out}, usage);
    strbuf_adds(out, "}" END);
}

void sse_member(const struct sse_encoder *e, struct strbuf *out, const struct strbuf *member)
{
    strbuf_add(out, e->head.data, e->common_len);
    strbuf_adds(out, e->with_usage ? "],\"usage\":null," : "],");
    strbuf_add(out, member->data, member->len);
    strbuf_adds(out, "}" END);
    out->failed |= member->failed;
}

void sse_error(struct strbuf *out, const char *error_json)
{
    strbuf_adds(out, DATA);
    strbuf_adds(out, error_json);
    strbuf_adds(out, END);
}

void sse_done(struct strbuf *out)
{
    strbuf_adds(out, DATA "[DONE]" END);
}

void sse_heartbeat(struct strbuf *out)
{
    strbuf_adds(out, ": waiting" END);
}
