/* What OpenAI's answers have in common; openai_form.h shows which parts are precomputed. Each
 * stream has its own memory, used on the event loop's thread. */
#include "serve/writers/openai_form.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DATA "data: "
#define END  "\n\n"

#define NO_FINISH ",\"finish_reason\":null}]" /* the end of a choice that continues */

/* ---- streams ---- */

/* Every chunk except the last has "usage":null if the last one has the counts. */
static const char *chunk_close(const struct openai_stream *s)
{
    return s->answer->include_usage ? ",\"usage\":null}" END : "}" END;
}

void *openai_open(const struct answer_head *answer, const char *object)
{
    struct openai_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->answer = answer;
    strbuf_adds(&s->head, DATA);
    struct json_writer w = {.out = &s->head};
    json_object_begin(&w, NULL);
    openai_whole_begin(&w, answer, object);
    s->common_len = s->head.len;
    strbuf_adds(&s->head, "{\"index\":");
    strbuf_adds(&s->tail, NO_FINISH);
    strbuf_adds(&s->tail, chunk_close(s));
    if (!s->head.failed && !s->tail.failed)
        return s;
    openai_close(s);
    return NULL;
}

void openai_close(void *stream)
{
    struct openai_stream *s = stream;
    strbuf_free(&s->head);
    strbuf_free(&s->tail);
    free(s);
}

/* A comment, which clients skip. */
void openai_heartbeat(void *stream, struct strbuf *out)
{
    (void)stream;
    strbuf_adds(out, ": waiting" END);
}

void openai_chunk_begin(const struct openai_stream *s, struct strbuf *out, uint32_t choice)
{
    strbuf_add(out, s->head.data, s->head.len);
    if (choice < 10)
        strbuf_addc(out, (char)('0' + choice));
    else
        strbuf_addf(out, "%u", choice);
}

/* The timings so far, if every chunk has them. */
static void timings_append(struct strbuf *out, const struct answer_timings *timings)
{
    if (!timings)
        return;
    strbuf_addc(out, ',');
    timings_add(&(struct json_writer){.out = out}, timings);
}

void openai_chunk_end(const struct openai_stream *s, struct strbuf *out,
                      const struct answer_content *a)
{
    if (!a->timings) {
        strbuf_add(out, s->tail.data, s->tail.len);
        return;
    }
    strbuf_adds(out, NO_FINISH);
    timings_append(out, a->timings);
    strbuf_adds(out, chunk_close(s));
}

void openai_chunk_finish(const struct openai_stream *s, struct strbuf *out,
                         const struct answer_content *a, enum answer_finish finish)
{
    strbuf_addf(out, ",\"logprobs\":null,\"finish_reason\":\"%s\"}]",
                openai_finish_name(s->answer, finish));
    if (!s->answer->include_usage) /* otherwise they are in the chunk with the counts */
        timings_append(out, a->timings);
    strbuf_adds(out, chunk_close(s));
}

static void usage_add(struct json_writer *w, const struct answer_usage *usage)
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

/* Starts a chunk without choices, before its own members. */
static void bare_chunk_begin(const struct openai_stream *s, struct strbuf *out)
{
    strbuf_add(out, s->head.data, s->common_len);
    strbuf_adds(out, "],");
}

/* The counts and `extra` have separate chunks. */
void openai_end(void *stream, struct strbuf *out, const struct answer_usage *usage,
                const struct strbuf *extra)
{
    const struct openai_stream *s = stream;
    if (s->answer->include_usage) {
        bare_chunk_begin(s, out);
        usage_add(&(struct json_writer){.out = out}, usage);
        timings_append(out, usage->timings);
        strbuf_adds(out, "}" END);
    }
    if (extra) {
        bare_chunk_begin(s, out);
        strbuf_adds(out, s->answer->include_usage ? "\"usage\":null," : "");
        strbuf_add(out, extra->data, extra->len);
        strbuf_adds(out, "}" END);
    }
    strbuf_adds(out, DATA "[DONE]" END);
}

/* A separate chunk, without a choice. */
void openai_progress(void *stream, struct strbuf *out, struct answer_content *a,
                     const struct answer_progress *progress)
{
    const struct openai_stream *s = stream;
    (void)a;
    bare_chunk_begin(s, out);
    strbuf_adds(out, s->answer->include_usage ? "\"usage\":null," : "");
    progress_add(&(struct json_writer){.out = out}, progress);
    strbuf_adds(out, "}" END);
}

void openai_error(void *stream, struct strbuf *out, const struct api_error *e)
{
    (void)stream;
    strbuf_adds(out, DATA);
    api_error_write(out, e, ERRORS_OPENAI);
    strbuf_adds(out, END);
}

/* ---- whole answers ---- */

void openai_whole_begin(struct json_writer *w, const struct answer_head *answer, const char *object)
{
    json_add_string(w, "id", answer->id);
    json_add_string(w, "object", object);
    json_add_int(w, "created", answer->created);
    json_add_string(w, "model", answer->model);
    json_add_string(w, "system_fingerprint", answer->fingerprint);
    json_array_begin(w, "choices");
}

void openai_whole_end(struct json_writer *w, const struct answer_usage *usage)
{
    json_array_end(w);
    usage_add(w, usage);
    if (usage->timings)
        timings_add(w, usage->timings);
}

const char *openai_finish_name(const struct answer_head *head, enum answer_finish finish)
{
    if (finish == ANSWER_CALLS && head->has_functions)
        return "function_call";
    static const char *const names[] = {
        [ANSWER_STOPPED] = "stop", [ANSWER_TOO_LONG] = "length", [ANSWER_CALLS] = "tool_calls"};
    return names[finish];
}

/* ---- log probabilities ---- */

void openai_add_new_logprobs(struct strbuf *out, struct answer_content *a, logprobs_write *write)
{
    if (!logprob_list_has_new(&a->logprobs)) {
        strbuf_adds(out, ",\"logprobs\":null");
        return;
    }
    strbuf_adds(out, ",\"logprobs\":");
    write(&a->logprobs, a->tokenizer, out);
}

void openai_add_logprobs(struct json_writer *w, struct answer_content *a, logprobs_write *write)
{
    if (!a->has_logprobs) {
        json_add_null(w, "logprobs");
        return;
    }
    strbuf_adds(w->out, ",\"logprobs\":");
    write(&a->logprobs, a->tokenizer, w->out);
}

void openai_add_logprob(struct json_writer *w, const char *key, float logprob)
{
    if (isnan(logprob))
        json_add_null(w, key);
    else
        json_add_double(w, key, isinf(logprob) ? -9999.0 : (double)logprob);
}
