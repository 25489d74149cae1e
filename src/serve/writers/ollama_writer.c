/* Ollama's chats and generations on the wire. A stream is NDJSON: each line is an object, and the
 * last one has the finish reason, the counts and the times.
 *
 *   {"model":..,"created_at":..,"message":{"role":"assistant","content":"Hi"},"done":false}
 *   {"model":..,"created_at":..,"response":"Hi","done":false}
 *   └──────────────────── head ───────────────────┘
 *
 * Clients parse every line, so a heartbeat is a space before the next one. A line without text
 * would be valid too, but Open WebUI takes it for the end of the answer. A call is also one line:
 * its arguments are an object, which is written when it is complete. Everything runs on the event
 * loop's thread. */
#include <stdlib.h>
#include <string.h>

#include "prompt/answer/json_scan.h"
#include "serve/writers/ollama_form.h"
#include "serve/writers/openai_form.h"

#define MEDIA_TYPE "application/x-ndjson"
#define NOT_DONE   ",\"done\":false}"

struct ollama_stream {
    bool is_chat;
    struct strbuf head; /* of every line, up to the text */
    struct strbuf call; /* the current call: its start, then its arguments */
    enum answer_finish finish;
};

/* ---- what streams and whole answers share ---- */

static void head_add(struct json_writer *w, const struct answer_head *answer)
{
    char created_at[OLLAMA_TIME_BYTES];
    ollama_time_write(created_at, answer->created);
    json_add_string(w, "model", answer->model);
    json_add_string(w, "created_at", created_at);
}

static void logprobs_add(struct strbuf *out, struct answer_content *a)
{
    strbuf_addc(out, ',');
    openai_add_token_logprobs(&(struct json_writer){.out = out}, "logprobs", &a->logprobs,
                              a->tokenizer);
}

static void call_begin(struct strbuf *out, const struct answer_call *call, uint32_t number)
{
    strbuf_addf(out, "{\"id\":\"%s\",\"function\":{\"index\":%u,\"name\":", call->id, number);
    json_write_string(out, strbuf_str(&call->name), call->name.len);
    strbuf_adds(out, ",\"arguments\":");
}

/* An answer that ends with calls has also stopped. */
static const char *reason_of(enum answer_finish finish)
{
    return finish == ANSWER_TOO_LONG ? "length" : "stop";
}

/* The model is loaded before the server is ready, so no request waits for that. */
static void usage_add(struct json_writer *w, const struct answer_usage *usage)
{
    json_add_int(w, "total_duration", (int64_t)usage->total_ns);
    json_add_int(w, "load_duration", 0);
    json_add_int(w, "prompt_eval_count", usage->prompt_tokens);
    json_add_int(w, "prompt_eval_duration", (int64_t)usage->timings->prompt_ns);
    json_add_int(w, "eval_count", usage->completion_tokens);
    json_add_int(w, "eval_duration", (int64_t)usage->timings->predicted_ns);
}

/* ---- streams ---- */

static void stream_close(void *stream)
{
    struct ollama_stream *s = stream;
    strbuf_free(&s->head);
    strbuf_free(&s->call);
    free(s);
}

static void *stream_open(const struct answer_head *answer, bool is_chat)
{
    struct ollama_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->is_chat = is_chat;
    struct json_writer w = {.out = &s->head};
    json_object_begin(&w, NULL);
    head_add(&w, answer);
    strbuf_adds(&s->head,
                is_chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
    if (!s->head.failed)
        return s;
    stream_close(s);
    return NULL;
}

static void *chat_open(const struct answer_head *answer)
{
    return stream_open(answer, true);
}

static void *generate_open(const struct answer_head *answer)
{
    return stream_open(answer, false);
}

/* Some clients also split lines at Unicode line ends. Outside strings these are only white space,
 * and inside strings an escape means the same. */
static const char *line_escape(const char *at, size_t len, size_t *n_bytes)
{
    static const struct {
        const char *bytes, *escape;
    } ends[] = {{"\n", " "},
                {"\r", " "},
                {"\xc2\x85", "\\u0085"},
                {"\xe2\x80\xa8", "\\u2028"},
                {"\xe2\x80\xa9", "\\u2029"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        *n_bytes = strlen(ends[i].bytes);
        if (*n_bytes <= len && memcmp(at, ends[i].bytes, *n_bytes) == 0)
            return ends[i].escape;
    }
    return NULL;
}

/* Ends the line that starts at `from`. */
static void line_end(struct strbuf *out, size_t from)
{
    size_t at = from, n_bytes;
    while (at < out->len && !line_escape(out->data + at, out->len - at, &n_bytes))
        at++;
    if (at < out->len) {
        struct strbuf line = STRBUF_INIT;
        strbuf_add(&line, out->data + from, out->len - from);
        out->len = from;
        for (size_t i = 0; i < line.len; i += n_bytes) {
            const char *escape = line_escape(line.data + i, line.len - i, &n_bytes);
            if (escape)
                strbuf_adds(out, escape);
            else
                strbuf_addc(out, line.data[i]);
            n_bytes = escape ? n_bytes : 1;
        }
        out->failed |= line.failed;
        strbuf_free(&line);
    }
    strbuf_addc(out, '\n');
}

/* A line with a text and one more member of the message, "name":value; NULL: none. */
static void line_write(const struct ollama_stream *s, struct strbuf *out, struct answer_content *a,
                       const char *text, size_t len, const struct strbuf *member)
{
    size_t from = out->len;
    strbuf_add(out, s->head.data, s->head.len);
    json_write_string(out, text, len);
    if (member) {
        strbuf_addc(out, ',');
        strbuf_add(out, strbuf_str(member), member->len);
        out->failed |= member->failed;
    }
    strbuf_adds(out, s->is_chat ? "}" : "");
    if (logprob_list_has_new(&a->logprobs))
        logprobs_add(out, a);
    strbuf_adds(out, NOT_DONE);
    line_end(out, from);
}

/* Nothing comes before the first text. */
static void stream_begin(void *stream, struct strbuf *out)
{
    (void)stream, (void)out;
}

static void write_heartbeat(void *stream, struct strbuf *out)
{
    (void)stream;
    strbuf_addc(out, ' ');
}

static void write_text(void *stream, struct strbuf *out, struct answer_content *a, const char *text,
                       size_t len)
{
    line_write(stream, out, a, text, len, NULL);
}

static void write_thinking(void *stream, struct strbuf *out, struct answer_content *a,
                           const char *text, size_t len)
{
    struct strbuf thinking = STRBUF_INIT;
    strbuf_adds(&thinking, "\"thinking\":");
    json_write_string(&thinking, text, len);
    line_write(stream, out, a, "", 0, &thinking);
    strbuf_free(&thinking);
}

static void write_call_begin(void *stream, struct strbuf *out, struct answer_content *a,
                             const struct answer_call *call, uint32_t number)
{
    struct ollama_stream *s = stream;
    (void)a;
    strbuf_clear(&s->call);
    strbuf_adds(&s->call, "\"tool_calls\":[");
    call_begin(&s->call, call, number);
    out->failed |= s->call.failed;
}

static void write_call_arguments(void *stream, struct strbuf *out, struct answer_content *a,
                                 uint32_t number, const char *text, size_t len)
{
    struct ollama_stream *s = stream;
    (void)a, (void)number;
    strbuf_add(&s->call, text, len);
    out->failed |= s->call.failed;
}

/* A broken or cut-off call never gets here, and is not sent. */
static void write_call_end(void *stream, struct strbuf *out, struct answer_content *a,
                           uint32_t number)
{
    struct ollama_stream *s = stream;
    (void)number;
    strbuf_adds(&s->call, "}}]");
    line_write(s, out, a, "", 0, &s->call);
}

/* The last line is written at the end, when the counts are known. */
static void write_finish(void *stream, struct strbuf *out, struct answer_content *a,
                         enum answer_finish finish)
{
    struct ollama_stream *s = stream;
    (void)out, (void)a;
    s->finish = finish;
}

static void write_end(void *stream, struct strbuf *out, const struct answer_usage *usage,
                      const struct strbuf *extra)
{
    const struct ollama_stream *s = stream;
    size_t from = out->len;
    strbuf_add(out, s->head.data, s->head.len);
    strbuf_adds(out, s->is_chat ? "\"\"}" : "\"\"");
    strbuf_addf(out, ",\"done\":true,\"done_reason\":\"%s\",", reason_of(s->finish));
    usage_add(&(struct json_writer){.out = out}, usage);
    if (extra) {
        strbuf_addc(out, ',');
        strbuf_add(out, strbuf_str(extra), extra->len);
    }
    strbuf_addc(out, '}');
    line_end(out, from);
}

static void write_error(void *stream, struct strbuf *out, const struct api_error *e)
{
    (void)stream;
    size_t from = out->len;
    api_error_write(out, e, ERRORS_OLLAMA);
    line_end(out, from);
}

/* ---- whole answers ---- */

static void bytes_add(struct json_writer *w, const char *key, const struct strbuf *text)
{
    json_add_bytes(w, key, strbuf_str(text), text->len);
}

/* The arguments of a cut-off call are not a valid object. */
static bool call_is_whole(const struct answer_call *call)
{
    return json_scan_is_object(strbuf_str(&call->arguments), call->arguments.len);
}

static void calls_add(struct json_writer *w, const struct answer_content *a)
{
    bool is_first = true;
    for (uint32_t i = 0; i < a->n_calls; i++) {
        const struct answer_call *call = &a->calls[i];
        if (!call_is_whole(call))
            continue;
        strbuf_adds(w->out, is_first ? ",\"tool_calls\":[" : ",");
        call_begin(w->out, call, i);
        strbuf_add(w->out, call->arguments.data, call->arguments.len);
        strbuf_adds(w->out, "}}");
        is_first = false;
    }
    strbuf_adds(w->out, is_first ? "" : "]");
}

static void whole_finish(struct json_writer *w, struct answer_content *a, enum answer_finish finish)
{
    if (a->has_logprobs)
        logprobs_add(w->out, a);
    json_add_bool(w, "done", true);
    json_add_string(w, "done_reason", reason_of(finish));
}

static void chat_choice(struct json_writer *w, const struct answer_head *answer,
                        struct answer_content *a, enum answer_finish finish)
{
    (void)answer;
    json_object_begin(w, "message");
    json_add_string(w, "role", "assistant");
    bytes_add(w, "content", &a->text);
    if (a->thinking.len)
        bytes_add(w, "thinking", &a->thinking);
    calls_add(w, a);
    json_object_end(w);
    whole_finish(w, a, finish);
}

static void generate_choice(struct json_writer *w, const struct answer_head *answer,
                            struct answer_content *a, enum answer_finish finish)
{
    (void)answer;
    bytes_add(w, "response", &a->text);
    if (a->thinking.len)
        bytes_add(w, "thinking", &a->thinking);
    whole_finish(w, a, finish);
}

const struct answer_writer ollama_chat_writer = {
    .media_type = MEDIA_TYPE,
    .open = chat_open,
    .close = stream_close,
    .begin = stream_begin,
    .heartbeat = write_heartbeat,
    .text = write_text,
    .thinking = write_thinking,
    .call_begin = write_call_begin,
    .call_arguments = write_call_arguments,
    .call_end = write_call_end,
    .finish = write_finish,
    .end = write_end,
    .error = write_error,
    .whole_begin = head_add,
    .whole_choice = chat_choice,
    .whole_end = usage_add,
};

/* The same without calls, which a prompt cannot have. */
const struct answer_writer ollama_generate_writer = {
    .media_type = MEDIA_TYPE,
    .open = generate_open,
    .close = stream_close,
    .begin = stream_begin,
    .heartbeat = write_heartbeat,
    .text = write_text,
    .thinking = write_thinking,
    .finish = write_finish,
    .end = write_end,
    .error = write_error,
    .whole_begin = head_add,
    .whole_choice = generate_choice,
    .whole_end = usage_add,
};
