/* An answer being put together; see answer.h. What a newcomer gets wrong: text that is a call's
 * beginning is held by the parser, and may still turn out to be text, so that nothing about an
 * answer is known before answer_end. */
#include "serve/completion/answer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static void take_piece(void *context, enum answer_piece piece, const char *text, size_t len);

int answer_open(struct answer *a, const struct answer_options *o)
{
    *a = (struct answer){.index = o->index,
                         .must_call = o->must_call,
                         .has_logprobs = o->has_logprobs,
                         .tokenizer = o->tokenizer};
    if (!o->style || (!o->style->think_begin && !o->tools && o->style->tools != TOOLS_HARMONY))
        return 0;
    struct answer_parser_options options = {.style = o->style,
                                            .tools = o->tools,
                                            .starts_in_thinking = o->starts_in_thinking,
                                            .piece = take_piece,
                                            .context = a};
    a->parser = answer_parser_new(&options);
    return a->parser ? 0 : -1;
}

void answer_free(struct answer *a)
{
    answer_parser_free(a->parser);
    token_text_free(&a->text);
    strbuf_free(&a->content);
    strbuf_free(&a->reasoning);
    strbuf_free(&a->scratch);
    for (uint32_t i = 0; i < a->n_calls; i++) {
        strbuf_free(&a->calls[i].name);
        strbuf_free(&a->calls[i].arguments);
    }
    free(a->calls);
    logprob_list_free(&a->logprobs);
    *a = (struct answer){0};
}

void answer_stream(struct answer *a, const struct sse_encoder *sse)
{
    a->sse = sse;
}

/* ---- pieces ---- */

/* The "logprobs" of the next event: what has become ready since the last. */
static const struct strbuf *logprobs_next(struct answer *a)
{
    if (!logprob_list_has_new(&a->logprobs))
        return NULL;
    strbuf_clear(&a->scratch);
    if (a->sse->is_chat)
        logprob_list_give_chat(&a->logprobs, a->tokenizer, &a->scratch);
    else
        logprob_list_give_text(&a->logprobs, a->tokenizer, &a->scratch);
    a->failed |= a->scratch.failed;
    return &a->scratch;
}

static void id_make(char *out)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char random[24] = {0};
    if (getrandom(random, sizeof random, 0) < 0)
        memcpy(random, &out, sizeof out);
    memcpy(out, "call_", 5);
    for (size_t i = 0; i < sizeof random; i++)
        out[5 + i] = digits[random[i] % 62];
    out[5 + sizeof random] = '\0';
}

static struct answer_call *call_last(struct answer *a)
{
    return &a->calls[a->n_calls - 1];
}

static void call_begin(struct answer *a, const char *name, size_t len)
{
    struct answer_call *calls = realloc(a->calls, (a->n_calls + 1) * sizeof *calls);
    if (!calls) {
        a->failed = true;
        return;
    }
    a->calls = calls;
    a->calls[a->n_calls++] = (struct answer_call){0};
    id_make(call_last(a)->id);
    strbuf_add(&call_last(a)->name, name, len);
    if (a->sse)
        sse_call_begin(a->sse, a->events, a->index, a->n_numbered++, call_last(a)->id,
                       strbuf_str(&call_last(a)->name), logprobs_next(a));
}

static void call_arguments(struct answer *a, const char *text, size_t len)
{
    if (a->sse)
        sse_call_arguments(a->sse, a->events, a->index, a->n_numbered - 1, text, len,
                           logprobs_next(a));
    else
        strbuf_add(&call_last(a)->arguments, text, len);
}

static void content_add(struct answer *a, const char *text, size_t len)
{
    if (len && (a->must_call || (a->is_ending && a->n_calls)))
        return; /* the beginning of a marker */
    if (a->sse)
        sse_content(a->sse, a->events, a->index, text, len, logprobs_next(a));
    else
        strbuf_add(&a->content, text, len);
}

static void reasoning_add(struct answer *a, const char *text, size_t len)
{
    a->has_reasoning = true;
    if (a->sse)
        sse_reasoning(a->sse, a->events, a->index, text, len, logprobs_next(a));
    else
        strbuf_add(&a->reasoning, text, len);
}

/* One that the answer's end cut off stays as far as it came, as OpenAI's do; the reason of the end
 * says so. Else it was no call after all: what was written is text, though a stream has shown its
 * beginning already. */
static void call_break(struct answer *a, const char *text, size_t len)
{
    if (a->is_ending) {
        a->is_cut = true;
        return;
    }
    strbuf_free(&call_last(a)->name);
    strbuf_free(&call_last(a)->arguments);
    a->n_calls--;
    content_add(a, text, len);
}

static void take_piece(void *context, enum answer_piece piece, const char *text, size_t len)
{
    struct answer *a = context;
    if (a->failed)
        return;
    switch (piece) {
    case PIECE_REASONING: reasoning_add(a, text, len); break;
    case PIECE_CONTENT: content_add(a, text, len); break;
    case PIECE_CALL_BEGIN: call_begin(a, text, len); break;
    case PIECE_CALL_ARGUMENTS: call_arguments(a, text, len); break;
    case PIECE_CALL_END: break;
    case PIECE_CALL_BROKEN: call_break(a, text, len); break;
    }
}

/* ---- what comes ---- */

/* Gives on what has become text. */
static void text_take(struct answer *a)
{
    struct strbuf *text = &a->text.text;
    logprob_list_show(&a->logprobs, a->n_echoed + a->text.shown);
    if (text->len == 0 || text->failed)
        return;
    if (a->parser)
        answer_parser_add(a->parser, text->data, text->len);
    else
        content_add(a, text->data, text->len);
    strbuf_clear(text);
}

void answer_token(struct answer *a, int32_t token, const char *bytes, size_t len, uint64_t text_end,
                  const struct token_logprobs *logprobs, struct strbuf *events)
{
    a->events = events;
    if (a->parser && answer_parser_is_thinking(a->parser))
        a->n_reasoning_tokens++;
    if (a->has_logprobs)
        logprob_list_add(&a->logprobs, token, bytes, len, logprobs);
    token_text_add(&a->text, bytes, len, text_end);
    text_take(a);
}

void answer_echo(struct answer *a, const char *text, size_t len, struct strbuf *events)
{
    a->events = events;
    a->n_echoed = a->logprobs.n_bytes;
    logprob_list_show(&a->logprobs, a->n_echoed);
    content_add(a, text, len);
}

void answer_end(struct answer *a, uint64_t text_end, struct strbuf *events)
{
    a->events = events;
    token_text_end(&a->text, text_end);
    text_take(a);
    a->is_ending = true;
    if (a->parser)
        answer_parser_end(a->parser);
    if (a->sse && logprob_list_has_new(&a->logprobs))
        content_add(a, "", 0);
}

/* ---- what is said ---- */

uint32_t answer_reasoning_tokens(const struct answer *a)
{
    return a->has_reasoning ? a->n_reasoning_tokens : 0; /* a marker alone is no thinking */
}

bool answer_failed(const struct answer *a)
{
    for (uint32_t i = 0; i < a->n_calls; i++)
        if (a->calls[i].name.failed || a->calls[i].arguments.failed)
            return true;
    return a->failed || token_text_failed(&a->text) || a->logprobs.failed || a->content.failed ||
           a->reasoning.failed || (a->parser && answer_parser_failed(a->parser));
}

const char *answer_finish_name(const struct answer *a, enum finish_reason finish)
{
    if (finish == FINISH_LENGTH)
        return "length";
    return a->n_calls && !a->is_cut ? "tool_calls" : "stop";
}

static void bytes_add(struct json_writer *w, const char *key, const struct strbuf *text)
{
    json_add_bytes(w, key, strbuf_str(text), text->len);
}

static void calls_add(struct json_writer *w, const struct answer *a)
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

static void logprobs_add(struct json_writer *w, struct answer *a, bool is_chat)
{
    if (!a->has_logprobs) {
        json_add_null(w, "logprobs");
        return;
    }
    strbuf_adds(w->out, ",\"logprobs\":");
    if (is_chat)
        logprob_list_give_chat(&a->logprobs, a->tokenizer, w->out);
    else
        logprob_list_give_text(&a->logprobs, a->tokenizer, w->out);
}

void answer_add_message(struct json_writer *w, struct answer *a)
{
    assert(!a->sse);
    json_object_begin(w, "message");
    json_add_string(w, "role", "assistant");
    if (a->n_calls && a->content.len == 0)
        json_add_null(w, "content");
    else
        bytes_add(w, "content", &a->content);
    if (a->reasoning.len)
        bytes_add(w, "reasoning_content", &a->reasoning);
    json_add_null(w, "refusal");
    if (a->n_calls)
        calls_add(w, a);
    json_object_end(w);
    logprobs_add(w, a, true);
}

void answer_add_text(struct json_writer *w, struct answer *a)
{
    assert(!a->sse);
    bytes_add(w, "text", &a->content);
    logprobs_add(w, a, false);
}
