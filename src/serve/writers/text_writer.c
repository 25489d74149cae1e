/* OpenAI's text completions on the wire: chunks have the same form as whole answers, and a choice
 * is a text without a message around it. */
#include <math.h>

#include "base/utf8.h"
#include "serve/writers/openai_form.h"

#define OBJECT "text_completion"

/* ---- log probabilities ---- */

/* A token's text as a key: part of a character is spelled out as bytes, so that no two keys are
 * equal. If out of memory, the whole output fails. */
static void token_spell(const struct json_writer *w, const struct tokenizer *t, int32_t id,
                        struct strbuf *name)
{
    size_t len;
    const char *bytes = tokenizer_bytes(t, id, &len);
    bool is_text = utf8_is_valid(bytes, len);
    strbuf_clear(name);
    if (is_text)
        strbuf_add(name, bytes, len);
    else
        strbuf_adds(name, "bytes:");
    for (size_t i = 0; i < len && !is_text; i++)
        strbuf_addf(name, "\\x%02x", (unsigned char)bytes[i]);
    w->out->failed |= name->failed;
}

static void top_add(struct json_writer *w, const struct tokenizer *t,
                    const struct logprob_item *item, struct strbuf *name)
{
    if (isnan(item->logprobs.logprob)) {
        json_add_null(w, NULL);
        return;
    }
    bool has_own = false;
    json_object_begin(w, NULL);
    for (uint32_t i = 0; i < item->logprobs.n_top; i++) {
        token_spell(w, t, item->logprobs.top[i].token, name);
        openai_add_logprob(w, strbuf_str(name), item->logprobs.top[i].logprob);
        has_own |= item->logprobs.top[i].token == item->token;
    }
    if (!has_own) { /* the token itself is always included, as in OpenAI's API */
        token_spell(w, t, item->token, name);
        openai_add_logprob(w, strbuf_str(name), item->logprobs.logprob);
    }
    json_object_end(w);
}

void text_logprobs_write(struct logprob_list *l, const struct tokenizer *t, struct strbuf *out)
{
    struct json_writer w = {.out = out};
    struct strbuf name = STRBUF_INIT;
    const struct logprob_item *first = l->items + l->n_given, *end = l->items + l->n_ready;
    json_object_begin(&w, NULL);
    json_array_begin(&w, "tokens");
    for (const struct logprob_item *item = first; item < end; item++) {
        token_spell(&w, t, item->token, &name);
        json_add_bytes(&w, NULL, strbuf_str(&name), name.len);
    }
    json_array_end(&w);
    json_array_begin(&w, "token_logprobs");
    for (const struct logprob_item *item = first; item < end; item++)
        openai_add_logprob(&w, NULL, item->logprobs.logprob);
    json_array_end(&w);
    json_array_begin(&w, "top_logprobs");
    for (const struct logprob_item *item = first; item < end; item++)
        top_add(&w, t, item, &name);
    json_array_end(&w);
    json_array_begin(&w, "text_offset");
    for (const struct logprob_item *item = first; item < end; item++)
        json_add_int(&w, NULL, (int64_t)item->character);
    json_array_end(&w);
    json_object_end(&w);
    l->n_given = l->n_ready;
    strbuf_free(&name);
}

/* ---- streams ---- */

static void *stream_open(const struct answer_head *answer)
{
    return openai_open(answer, OBJECT);
}

/* Texts have no role. */
static void stream_begin(void *stream, struct strbuf *out)
{
    (void)stream, (void)out;
}

static void write_text(void *stream, struct strbuf *out, struct answer_content *a, const char *text,
                       size_t len)
{
    openai_chunk_begin(stream, out, a->index);
    strbuf_adds(out, ",\"text\":");
    json_write_string(out, text, len);
    openai_add_new_logprobs(out, a, text_logprobs_write);
    openai_chunk_end(stream, out, a);
}

static void write_finish(void *stream, struct strbuf *out, struct answer_content *a,
                         enum answer_finish finish)
{
    openai_chunk_begin(stream, out, a->index);
    strbuf_adds(out, ",\"text\":\"\"");
    openai_chunk_finish(stream, out, a, finish);
}

/* ---- whole answers ---- */

static void whole_begin(struct json_writer *w, const struct answer_head *answer)
{
    openai_whole_begin(w, answer, OBJECT);
}

static void whole_choice(struct json_writer *w, const struct answer_head *head,
                         struct answer_content *a, enum answer_finish finish)
{
    json_object_begin(w, NULL);
    json_add_int(w, "index", a->index);
    json_add_bytes(w, "text", strbuf_str(&a->text), a->text.len);
    openai_add_logprobs(w, a, text_logprobs_write);
    json_add_string(w, "finish_reason", openai_finish_name(head, finish));
    json_object_end(w);
}

const struct answer_writer text_writer = {
    .media_type = OPENAI_MEDIA_TYPE,
    .heartbeat = openai_heartbeat,
    .open = stream_open,
    .close = openai_close,
    .begin = stream_begin,
    .text = write_text,
    .finish = write_finish,
    .end = openai_end,
    .error = openai_error,
    .progress = openai_progress,
    .whole_begin = whole_begin,
    .whole_choice = whole_choice,
    .whole_end = openai_whole_end,
};
