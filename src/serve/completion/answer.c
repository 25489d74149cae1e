/* Assembles an answer; see answer.h. The parser holds back text that may start a call, and it may
 * still turn out to be text. So nothing about an answer is final before answer_end. */
#include "serve/completion/answer.h"

#include <stdlib.h>
#include <string.h>

#include "prompt/answer/call_repeat.h"
#include "serve/api/random_id.h"

static void take_piece(void *context, enum answer_piece piece, const char *text, size_t len);

int answer_open(struct answer *a, const struct answer_options *o)
{
    *a = (struct answer){.must_call = o->must_call,
                         .keeps_tokens = o->keeps_tokens,
                         .content = {.index = o->index,
                                     .prompt_tokens = o->prompt_tokens,
                                     .has_logprobs = o->has_logprobs,
                                     .tokenizer = o->tokenizer}};
    if (!o->style || !answer_parser_is_needed(o->style, o->tools))
        return 0;
    struct answer_parser_options options = {.style = o->style,
                                            .tools = o->tools,
                                            .starts_in_thinking = o->starts_in_thinking,
                                            .continues = o->continues,
                                            .piece = take_piece,
                                            .context = a};
    a->parser = answer_parser_new(&options);
    return a->parser ? 0 : -1;
}

static void content_free(struct answer_content *content)
{
    strbuf_free(&content->text);
    strbuf_free(&content->thinking);
    for (uint32_t i = 0; i < content->n_calls; i++) {
        strbuf_free(&content->calls[i].name);
        strbuf_free(&content->calls[i].arguments);
    }
    free(content->calls);
    logprob_list_free(&content->logprobs);
    token_list_free(&content->tokens);
    strbuf_free(&content->prompt);
}

void answer_free(struct answer *a)
{
    answer_parser_free(a->parser);
    token_text_free(&a->raw);
    content_free(&a->content);
    *a = (struct answer){0};
}

void answer_stream(struct answer *a, const struct answer_writer *writer, void *stream)
{
    a->writer = writer;
    a->stream = stream;
}

/* ---- pieces ---- */

static struct answer_call *call_last(struct answer *a)
{
    return &a->content.calls[a->content.n_calls - 1];
}

static struct byte_view view_of(const struct strbuf *text)
{
    return (struct byte_view){strbuf_str(text), text->len};
}

/* True if `compare` holds for the last call and an earlier one of the same function. */
static bool any_earlier(struct answer *a, bool (*compare)(struct byte_view, struct byte_view))
{
    const struct answer_call *last = call_last(a);
    for (const struct answer_call *c = a->content.calls; c < last; c++)
        if (byte_view_equal(view_of(&c->name), view_of(&last->name)) &&
            (!compare || compare(view_of(&last->arguments), view_of(&c->arguments))))
            return true;
    return false;
}

/* Sends the part of the last call that was held back. */
static void call_release(struct answer *a)
{
    const struct answer_call *call = call_last(a);
    a->is_held = false;
    if (!a->writer)
        return;
    a->writer->call_begin(a->stream, a->events, &a->content, call, a->n_numbered++);
    if (call->arguments.len)
        a->writer->call_arguments(a->stream, a->events, &a->content, a->n_numbered - 1,
                                  strbuf_str(&call->arguments), call->arguments.len);
}

static void call_drop(struct answer *a)
{
    strbuf_free(&call_last(a)->name);
    strbuf_free(&call_last(a)->arguments);
    a->content.n_calls--;
    a->is_held = false;
}

/* The model's id for the next call: kept if it is short, plain and new in this answer. */
static void call_id(struct answer *a, const char *id, size_t len)
{
    bool fits = len < sizeof a->call_id;
    for (size_t i = 0; i < len && fits; i++)
        fits = id[i] > ' ' && id[i] <= '~' && id[i] != '"' && id[i] != '\\';
    for (uint32_t i = 0; i < a->content.n_calls && fits; i++)
        fits = strncmp(a->content.calls[i].id, id, len) != 0 || a->content.calls[i].id[len];
    len = fits ? len : 0;
    memcpy(a->call_id, id, len);
    a->call_id[len] = '\0';
}

static void call_identify(struct answer *a)
{
    if (a->call_id[0])
        memcpy(call_last(a)->id, a->call_id, sizeof a->call_id);
    else
        random_id(call_last(a)->id, "call_", 62);
    a->call_id[0] = '\0';
}

static void call_begin(struct answer *a, const char *name, size_t len)
{
    struct answer_content *content = &a->content;
    if (content->n_calls == ANSWER_MAX_CALLS) {
        a->is_over = true;
        return;
    }
    struct answer_call *calls = realloc(content->calls, (content->n_calls + 1) * sizeof *calls);
    if (!calls) {
        a->failed = true;
        return;
    }
    content->calls = calls;
    calls[content->n_calls++] = (struct answer_call){0};
    call_identify(a);
    strbuf_add(&call_last(a)->name, name, len);
    a->n_compared = 0;
    a->is_held = any_earlier(a, NULL);
    if (!a->is_held)
        call_release(a);
}

static void call_arguments(struct answer *a, const char *text, size_t len)
{
    struct strbuf *arguments = &call_last(a)->arguments;
    strbuf_add(arguments, text, len);
    if (!a->is_held) {
        if (a->writer)
            a->writer->call_arguments(a->stream, a->events, &a->content, a->n_numbered - 1, text,
                                      len);
        return;
    }
    /* A stream wants to know early. Compare only when the arguments have grown by a quarter, so
     * that long arguments cost no more than a few times their length. */
    if (!a->writer || arguments->len < a->n_compared + a->n_compared / 4)
        return;
    a->n_compared = arguments->len;
    if (!any_earlier(a, call_arguments_may_equal))
        call_release(a);
}

static void call_end(struct answer *a)
{
    if (a->is_held && any_earlier(a, call_arguments_equal)) {
        call_drop(a);
        a->is_over = true;
        return;
    }
    if (a->is_held)
        call_release(a);
    if (a->writer && a->writer->call_end)
        a->writer->call_end(a->stream, a->events, &a->content, a->n_numbered - 1);
}

static void text_add(struct answer *a, const char *text, size_t len)
{
    if (len && (a->must_call || (a->is_ending && a->content.n_calls)))
        return; /* the start of a marker */
    if (a->writer)
        a->writer->text(a->stream, a->events, &a->content, text, len);
    else
        strbuf_add(&a->content.text, text, len);
}

static void thinking_add(struct answer *a, const char *text, size_t len)
{
    a->has_reasoning = true;
    if (a->writer)
        a->writer->thinking(a->stream, a->events, &a->content, text, len);
    else
        strbuf_add(&a->content.thinking, text, len);
}

/* A call cut off by the answer's end is returned incomplete, as OpenAI does; the finish reason says
 * so. Otherwise it was not a call: it becomes text, though a stream may already have sent its
 * beginning. */
static void call_break(struct answer *a, const char *text, size_t len)
{
    if (a->is_ending) {
        a->is_cut = true;
        if (a->is_held)
            call_release(a);
        return;
    }
    call_drop(a);
    text_add(a, text, len);
}

static void take_piece(void *context, enum answer_piece piece, const char *text, size_t len)
{
    struct answer *a = context;
    if (a->failed || a->is_over)
        return;
    switch (piece) {
    case PIECE_REASONING: thinking_add(a, text, len); break;
    case PIECE_CONTENT: text_add(a, text, len); break;
    case PIECE_CALL_BEGIN: call_begin(a, text, len); break;
    case PIECE_CALL_ARGUMENTS: call_arguments(a, text, len); break;
    case PIECE_CALL_END: call_end(a); break;
    case PIECE_CALL_BROKEN: call_break(a, text, len); break;
    case PIECE_CALL_ID: call_id(a, text, len); break;
    }
}

/* ---- tokens ---- */

/* Passes on complete text. */
static void text_take(struct answer *a)
{
    struct strbuf *text = &a->raw.text;
    logprob_list_show(&a->content.logprobs, a->n_echoed + a->raw.shown);
    if (text->len == 0 || text->failed)
        return;
    a->content.has_new_line |= memchr(text->data, '\n', text->len) != NULL;
    if (a->parser)
        answer_parser_add(a->parser, text->data, text->len);
    else
        text_add(a, text->data, text->len);
    strbuf_clear(text);
}

void answer_token(struct answer *a, int32_t token, const char *bytes, size_t len, uint64_t text_end,
                  const struct token_logprobs *logprobs, struct strbuf *events)
{
    a->events = events;
    a->content.n_tokens++;
    if (a->keeps_tokens && !token_list_add(&a->content.tokens, token))
        a->failed = true;
    if (a->parser && answer_parser_is_thinking(a->parser))
        a->n_reasoning_tokens++;
    if (a->content.has_logprobs)
        logprob_list_add(&a->content.logprobs, token, bytes, len, logprobs);
    token_text_add(&a->raw, bytes, len, text_end);
    text_take(a);
}

void answer_echo(struct answer *a, const char *text, size_t len, struct strbuf *events)
{
    a->events = events;
    a->n_echoed = a->content.logprobs.n_bytes;
    logprob_list_show(&a->content.logprobs, a->n_echoed);
    text_add(a, text, len);
}

void answer_end(struct answer *a, uint64_t text_end, struct strbuf *events)
{
    a->events = events;
    if (!a->is_over) {
        token_text_end(&a->raw, text_end);
        text_take(a);
    }
    /* Includes those of a stop string, although it is not shown; an end token has no text at
     * all. */
    logprob_list_show(&a->content.logprobs, a->content.logprobs.n_bytes);
    a->is_ending = true;
    if (a->parser)
        answer_parser_end(a->parser);
    if (a->writer && logprob_list_has_new(&a->content.logprobs))
        text_add(a, "", 0);
}

/* ---- results ---- */

uint32_t answer_reasoning_tokens(const struct answer *a)
{
    return a->has_reasoning ? a->n_reasoning_tokens : 0; /* a marker alone is not thinking */
}

bool answer_is_over(const struct answer *a)
{
    return a->is_over;
}

size_t answer_bytes(const struct answer *a)
{
    enum { TOKEN_BYTES = 8, LOGPROB_BYTES = 96 }; /* in JSON */
    const struct answer_content *content = &a->content;
    const struct logprob_list *l = &content->logprobs;
    size_t n = content->text.len + content->thinking.len + content->tokens.len * TOKEN_BYTES;
    for (uint32_t i = 0; i < content->n_calls; i++)
        n += content->calls[i].arguments.len;
    return n + (l->n ? l->n * (1 + l->items[l->n - 1].logprobs.n_top) * LOGPROB_BYTES : 0);
}

bool answer_failed(const struct answer *a)
{
    const struct answer_content *content = &a->content;
    for (uint32_t i = 0; i < content->n_calls; i++)
        if (content->calls[i].name.failed || content->calls[i].arguments.failed)
            return true;
    return a->failed || token_text_failed(&a->raw) || content->logprobs.failed ||
           content->text.failed || content->thinking.failed || content->prompt.failed ||
           (a->parser && answer_parser_failed(a->parser));
}

enum answer_finish answer_finish_of(const struct answer *a, enum finish_reason finish)
{
    if (finish == FINISH_LENGTH && !a->is_over)
        return ANSWER_TOO_LONG;
    return a->content.n_calls && !a->is_cut ? ANSWER_CALLS : ANSWER_STOPPED;
}
