/* llama-server's own completions on the wire, for /completion and /infill: an object for each text,
 * with its settings and timings. A stream of such objects has no end mark. */
#include <math.h>
#include <stdlib.h>

#include "serve/writers/openai_form.h"

#define DATA "data: "
#define END  "\n\n"

/* ---- parts that OpenAI's answers have too ---- */

static double per_second(uint32_t n, uint64_t ns)
{
    return ns ? (double)n * 1e9 / (double)ns : 0;
}

static double milliseconds(uint64_t ns)
{
    return (double)(ns / 1000) * 1e-3;
}

static double per_token_ms(uint32_t n, uint64_t ns)
{
    return n ? milliseconds(ns) / n : 0;
}

void timings_add(struct json_writer *w, const struct answer_timings *t)
{
    json_object_begin(w, "timings");
    json_add_int(w, "cache_n", t->cached_tokens);
    json_add_int(w, "prompt_n", t->computed_tokens);
    json_add_double(w, "prompt_ms", milliseconds(t->prompt_ns));
    json_add_double(w, "prompt_per_token_ms", per_token_ms(t->computed_tokens, t->prompt_ns));
    json_add_double(w, "prompt_per_second", per_second(t->computed_tokens, t->prompt_ns));
    json_add_int(w, "predicted_n", t->predicted_tokens);
    json_add_double(w, "predicted_ms", milliseconds(t->predicted_ns));
    json_add_double(w, "predicted_per_token_ms",
                    per_token_ms(t->predicted_tokens, t->predicted_ns));
    json_add_double(w, "predicted_per_second", per_second(t->predicted_tokens, t->predicted_ns));
    json_object_end(w);
}

void progress_add(struct json_writer *w, const struct answer_progress *p)
{
    json_object_begin(w, "prompt_progress");
    json_add_int(w, "total", p->total);
    json_add_int(w, "cache", p->cached);
    json_add_int(w, "processed", p->processed);
    json_add_int(w, "time_ms", (int64_t)(p->elapsed_ns / 1000000));
    json_object_end(w);
}

/* ---- members ---- */

static void token_add(struct json_writer *w, const struct tokenizer *t, int32_t id, float logprob,
                      bool is_drawn)
{
    size_t len;
    const char *bytes = tokenizer_bytes(t, id, &len);
    json_add_int(w, "id", id);
    json_add_bytes(w, "token", bytes, len);
    json_array_begin(w, "bytes");
    for (size_t i = 0; i < len; i++)
        json_add_int(w, NULL, (unsigned char)bytes[i]);
    json_array_end(w);
    if (is_drawn)
        json_add_double(w, "prob", exp((double)logprob));
    else
        openai_add_logprob(w, "logprob", logprob);
}

/* Adds those that are ready and not sent yet. */
static void probabilities_add(struct json_writer *w, const struct answer_head *head,
                              struct answer_content *a)
{
    const bool is_drawn = head->has_drawn_probs;
    struct logprob_list *l = &a->logprobs;
    json_array_begin(w, "completion_probabilities");
    for (; l->n_given < l->n_ready; l->n_given++) {
        const struct logprob_item *item = &l->items[l->n_given];
        json_object_begin(w, NULL);
        token_add(w, a->tokenizer, item->token, item->logprobs.logprob, is_drawn);
        json_array_begin(w, is_drawn ? "top_probs" : "top_logprobs");
        for (uint32_t i = 0; i < item->logprobs.n_top; i++) {
            json_object_begin(w, NULL);
            token_add(w, a->tokenizer, item->logprobs.top[i].token, item->logprobs.top[i].logprob,
                      is_drawn);
            json_object_end(w);
        }
        json_array_end(w);
        json_object_end(w);
    }
    json_array_end(w);
}

static void tokens_add(struct json_writer *w, struct answer_content *a)
{
    json_array_begin(w, "tokens");
    for (; a->n_tokens_given < a->tokens.len; a->n_tokens_given++)
        json_add_int(w, NULL, a->tokens.ids[a->n_tokens_given]);
    json_array_end(w);
}

static const char *stop_type(const struct answer_content *a, enum answer_finish finish)
{
    return finish == ANSWER_TOO_LONG ? "limit" : a->stopping_word.len ? "word" : "eos";
}

/* Everything about a finished text. */
static void final_write(struct strbuf *out, const struct answer_head *head,
                        struct answer_content *a, enum answer_finish finish, const char *text,
                        size_t len, bool is_whole)
{
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_add_int(&w, "index", a->index);
    json_add_bytes(&w, "content", text, len);
    if (is_whole && !head->has_tokens)
        a->n_tokens_given = a->tokens.len;
    tokens_add(&w, a);
    json_add_int(&w, "id_slot", -1);
    json_add_bool(&w, "stop", true);
    json_add_string(&w, "model", head->model);
    json_add_int(&w, "tokens_predicted", a->n_tokens);
    json_add_int(&w, "tokens_evaluated", a->prompt_tokens);
    strbuf_adds(out, ",\"generation_settings\":");
    strbuf_adds(out, head->settings);
    json_add_bytes(&w, "prompt", strbuf_str(&a->prompt), a->prompt.len);
    json_add_bool(&w, "has_new_line", a->has_new_line);
    json_add_bool(&w, "truncated", a->is_truncated);
    json_add_string(&w, "stop_type", stop_type(a, finish));
    json_add_bytes(&w, "stopping_word", a->stopping_word.len ? a->stopping_word.bytes : "",
                   a->stopping_word.len);
    json_add_int(&w, "tokens_cached",
                 (int64_t)a->prompt_tokens + (a->n_tokens ? a->n_tokens - 1 : 0));
    if (a->timings)
        timings_add(&w, a->timings);
    if (is_whole && a->has_logprobs)
        probabilities_add(&w, head, a);
    if (head->extra) {
        strbuf_addc(out, ',');
        strbuf_add(out, head->extra->data, head->extra->len);
    }
    json_object_end(&w);
}

/* ---- selecting members ---- */

/* The value at "a/b" of an object; NULL: none. */
static const struct json *value_at(const struct json *object, struct byte_view path)
{
    size_t at = 0;
    while (object) {
        size_t end = at;
        while (end < path.len && path.bytes[end] != '/')
            end++;
        const struct json *found = NULL;
        for (const struct json *m = object->type == JSON_OBJECT ? object->first : NULL; m && !found;
             m = m->next)
            if (byte_view_equal((struct byte_view){m->key, m->key_len},
                                (struct byte_view){path.bytes + at, end - at}))
                found = m;
        if (end >= path.len)
            return found;
        object = found;
        at = end + 1;
    }
    return NULL;
}

/* Appends the members of the object `text` that the head names, each under its full path. */
static void fields_pick(struct strbuf *out, const struct strbuf *text,
                        const struct answer_head *head)
{
    struct arena arena = {0};
    struct error err;
    const struct json *object = text->failed ? NULL
                                             : json_parse(&arena, text->data, text->len, &err);
    bool comma = false;
    out->failed |= !object;
    strbuf_addc(out, '{');
    for (uint32_t i = 0; object && i < head->n_fields; i++) {
        const struct json *value = value_at(object, head->fields[i]);
        bool is_new = value;
        for (uint32_t k = 0; k < i && is_new; k++)
            is_new = !byte_view_equal(head->fields[k], head->fields[i]);
        if (!is_new)
            continue;
        strbuf_adds(out, comma ? "," : "");
        json_write_string(out, head->fields[i].bytes, head->fields[i].len);
        strbuf_addc(out, ':');
        json_write(out, value);
        comma = true;
    }
    strbuf_addc(out, '}');
    arena_free(&arena);
}

static void final_add(struct strbuf *out, const struct answer_head *head, struct answer_content *a,
                      enum answer_finish finish, const char *text, size_t len, bool is_whole)
{
    struct strbuf all = STRBUF_INIT;
    if (head->n_fields == 0) {
        final_write(out, head, a, finish, text, len, is_whole);
        return;
    }
    final_write(&all, head, a, finish, text, len, is_whole);
    fields_pick(out, &all, head);
    strbuf_free(&all);
}

/* ---- streams ---- */

struct llama_stream {
    const struct answer_head *head;
};

static void *stream_open(const struct answer_head *head)
{
    struct llama_stream *s = calloc(1, sizeof *s);
    if (s)
        s->head = head;
    return s;
}

static void stream_close(void *stream)
{
    free(stream);
}

static void stream_begin(void *stream, struct strbuf *out)
{
    (void)stream, (void)out;
}

/* Starts an event with the members that all events share. */
static struct json_writer event_begin(struct strbuf *out, struct answer_content *a,
                                      const char *text, size_t len)
{
    strbuf_adds(out, DATA);
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_add_int(&w, "index", a->index);
    json_add_bytes(&w, "content", text, len);
    tokens_add(&w, a);
    json_add_bool(&w, "stop", false);
    json_add_int(&w, "id_slot", -1);
    json_add_int(&w, "tokens_predicted", a->n_tokens);
    json_add_int(&w, "tokens_evaluated", a->prompt_tokens);
    return w;
}

static void event_end(struct json_writer *w)
{
    json_object_end(w);
    strbuf_adds(w->out, END);
}

static void write_text(void *stream, struct strbuf *out, struct answer_content *a, const char *text,
                       size_t len)
{
    const struct llama_stream *s = stream;
    struct json_writer w = event_begin(out, a, text, len);
    if (a->timings)
        timings_add(&w, a->timings);
    if (logprob_list_has_new(&a->logprobs))
        probabilities_add(&w, s->head, a);
    event_end(&w);
}

static void write_progress(void *stream, struct strbuf *out, struct answer_content *a,
                           const struct answer_progress *progress)
{
    (void)stream;
    struct json_writer w = event_begin(out, a, "", 0);
    progress_add(&w, progress);
    event_end(&w);
}

static void write_finish(void *stream, struct strbuf *out, struct answer_content *a,
                         enum answer_finish finish)
{
    const struct llama_stream *s = stream;
    strbuf_adds(out, DATA);
    final_add(out, s->head, a, finish, "", 0, false);
    strbuf_adds(out, END);
}

/* The last text's event ends the stream; an explanation follows as a separate event. */
static void stream_end(void *stream, struct strbuf *out, const struct answer_usage *usage,
                       const struct strbuf *extra)
{
    (void)stream, (void)usage;
    if (!extra)
        return;
    strbuf_adds(out, DATA "{\"content\":\"\",\"stop\":false,");
    strbuf_add(out, extra->data, extra->len);
    strbuf_adds(out, "}" END);
}

/* ---- whole answers ---- */

static void whole_choice(struct json_writer *w, const struct answer_head *head,
                         struct answer_content *a, enum answer_finish finish)
{
    if (w->comma)
        strbuf_addc(w->out, ',');
    w->comma = true;
    final_add(w->out, head, a, finish, strbuf_str(&a->text), a->text.len, true);
}

const struct answer_writer llama_writer = {
    .media_type = OPENAI_MEDIA_TYPE,
    .heartbeat = openai_heartbeat,
    .open = stream_open,
    .close = stream_close,
    .begin = stream_begin,
    .text = write_text,
    .finish = write_finish,
    .end = stream_end,
    .error = openai_error,
    .progress = write_progress,
    .is_list = true,
    .whole_choice = whole_choice,
};
