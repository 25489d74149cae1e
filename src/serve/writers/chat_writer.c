/* OpenAI's chat completions on the wire. The shape of chunks is defined only here and in
 * openai_form.c. */
#include "serve/writers/openai_form.h"

/* ---- log probabilities ---- */

static void token_add(struct json_writer *w, const struct tokenizer *t, int32_t id, float logprob)
{
    size_t len;
    const char *bytes = tokenizer_bytes(t, id, &len);
    json_add_bytes(w, "token", bytes, len);
    openai_add_logprob(w, "logprob", logprob);
    json_array_begin(w, "bytes");
    for (size_t i = 0; i < len; i++)
        json_add_int(w, NULL, (unsigned char)bytes[i]);
    json_array_end(w);
}

void openai_add_token_logprobs(struct json_writer *w, const char *key, struct logprob_list *l,
                               const struct tokenizer *t)
{
    json_array_begin(w, key);
    for (; l->n_given < l->n_ready; l->n_given++) {
        const struct logprob_item *item = &l->items[l->n_given];
        json_object_begin(w, NULL);
        token_add(w, t, item->token, item->logprobs.logprob);
        json_array_begin(w, "top_logprobs");
        for (uint32_t i = 0; i < item->logprobs.n_top; i++) {
            json_object_begin(w, NULL);
            token_add(w, t, item->logprobs.top[i].token, item->logprobs.top[i].logprob);
            json_object_end(w);
        }
        json_array_end(w);
        json_object_end(w);
    }
    json_array_end(w);
}

void chat_logprobs_write(struct logprob_list *l, const struct tokenizer *t, struct strbuf *out)
{
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    openai_add_token_logprobs(&w, "content", l, t);
    json_add_null(&w, "refusal");
    json_object_end(&w);
}

/* ---- streams ---- */

static void *stream_open(const struct answer_head *answer)
{
    return openai_open(answer, "chat.completion.chunk");
}

static void delta_begin(const struct openai_stream *s, struct strbuf *out, uint32_t choice)
{
    openai_chunk_begin(s, out, choice);
    strbuf_adds(out, ",\"delta\":{");
}

static void delta_end(const struct openai_stream *s, struct strbuf *out, struct answer_content *a)
{
    strbuf_addc(out, '}');
    openai_add_new_logprobs(out, a, chat_logprobs_write);
    openai_chunk_end(s, out, a);
}

/* Sends the role of each choice; the content is null if there may be calls instead. */
static void stream_begin(void *stream, struct strbuf *out)
{
    const struct openai_stream *s = stream;
    for (uint32_t i = 0; i < s->answer->n_choices; i++) {
        delta_begin(s, out, i);
        strbuf_adds(out, "\"role\":\"assistant\",\"content\":");
        strbuf_adds(out, s->answer->may_call ? "null" : "\"\"");
        strbuf_adds(out, "},\"logprobs\":null");
        openai_chunk_end(s, out, &(struct answer_content){0});
    }
}

static void write_text(void *stream, struct strbuf *out, struct answer_content *a, const char *text,
                       size_t len)
{
    delta_begin(stream, out, a->index);
    strbuf_adds(out, "\"content\":");
    json_write_string(out, text, len);
    delta_end(stream, out, a);
}

static void write_thinking(void *stream, struct strbuf *out, struct answer_content *a,
                           const char *text, size_t len)
{
    delta_begin(stream, out, a->index);
    strbuf_adds(out, "\"reasoning_content\":");
    json_write_string(out, text, len);
    delta_end(stream, out, a);
}

static void write_call_begin(void *stream, struct strbuf *out, struct answer_content *a,
                             const struct answer_call *call, uint32_t number)
{
    bool has_functions = ((const struct openai_stream *)stream)->answer->has_functions;
    delta_begin(stream, out, a->index);
    if (has_functions) {
        strbuf_adds(out, "\"function_call\":{\"name\":");
    } else {
        strbuf_addf(out, "\"tool_calls\":[{\"index\":%u,\"id\":\"%s\",", number, call->id);
        strbuf_adds(out, "\"type\":\"function\",\"function\":{\"name\":");
    }
    json_write_string(out, strbuf_str(&call->name), call->name.len);
    strbuf_adds(out, has_functions ? ",\"arguments\":\"\"}" : ",\"arguments\":\"\"}}]");
    delta_end(stream, out, a);
}

static void write_call_arguments(void *stream, struct strbuf *out, struct answer_content *a,
                                 uint32_t number, const char *text, size_t len)
{
    bool has_functions = ((const struct openai_stream *)stream)->answer->has_functions;
    delta_begin(stream, out, a->index);
    if (has_functions)
        strbuf_adds(out, "\"function_call\":{\"arguments\":");
    else
        strbuf_addf(out, "\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":", number);
    json_write_string(out, text, len);
    strbuf_adds(out, has_functions ? "}" : "}}]");
    delta_end(stream, out, a);
}

static void write_finish(void *stream, struct strbuf *out, struct answer_content *a,
                         enum answer_finish finish)
{
    delta_begin(stream, out, a->index);
    strbuf_addc(out, '}');
    openai_chunk_finish(stream, out, a, finish);
}

/* ---- whole answers ---- */

static void whole_begin(struct json_writer *w, const struct answer_head *answer)
{
    openai_whole_begin(w, answer, "chat.completion");
}

static void bytes_add(struct json_writer *w, const char *key, const struct strbuf *text)
{
    json_add_bytes(w, key, strbuf_str(text), text->len);
}

/* The older form, from when an answer had at most one call. */
static void function_call_add(struct json_writer *w, const struct answer_call *call)
{
    json_object_begin(w, "function_call");
    bytes_add(w, "name", &call->name);
    bytes_add(w, "arguments", &call->arguments);
    json_object_end(w);
}

static void calls_add(struct json_writer *w, const struct answer_content *a)
{
    json_array_begin(w, "tool_calls");
    for (uint32_t i = 0; i < a->n_calls; i++) {
        json_object_begin(w, NULL);
        json_add_string(w, "id", a->calls[i].id);
        json_add_string(w, "type", "function");
        json_object_begin(w, "function");
        bytes_add(w, "name", &a->calls[i].name);
        bytes_add(w, "arguments", &a->calls[i].arguments);
        json_object_end(w);
        json_object_end(w);
    }
    json_array_end(w);
}

static void whole_choice(struct json_writer *w, const struct answer_head *head,
                         struct answer_content *a, enum answer_finish finish)
{
    json_object_begin(w, NULL);
    json_add_int(w, "index", a->index);
    json_object_begin(w, "message");
    json_add_string(w, "role", "assistant");
    if (a->n_calls && a->text.len == 0)
        json_add_null(w, "content");
    else
        bytes_add(w, "content", &a->text);
    if (a->thinking.len)
        bytes_add(w, "reasoning_content", &a->thinking);
    json_add_null(w, "refusal");
    if (a->n_calls && head->has_functions)
        function_call_add(w, &a->calls[0]);
    else if (a->n_calls)
        calls_add(w, a);
    json_object_end(w);
    openai_add_logprobs(w, a, chat_logprobs_write);
    json_add_string(w, "finish_reason", openai_finish_name(head, finish));
    json_object_end(w);
}

const struct answer_writer chat_writer = {
    .media_type = OPENAI_MEDIA_TYPE,
    .heartbeat = openai_heartbeat,
    .open = stream_open,
    .close = openai_close,
    .begin = stream_begin,
    .text = write_text,
    .thinking = write_thinking,
    .call_begin = write_call_begin,
    .call_arguments = write_call_arguments,
    .finish = write_finish,
    .end = openai_end,
    .error = openai_error,
    .progress = openai_progress,
    .whole_begin = whole_begin,
    .whole_choice = whole_choice,
    .whole_end = openai_whole_end,
};
