#ifndef RADISH_SERVE_COMPLETION_ANSWER_H
#define RADISH_SERVE_COMPLETION_ANSWER_H

#include "prompt/answer/answer_parser.h"
#include "sched/scheduler.h"
#include "prompt/unicode/token_text.h"
#include "serve/writers/answer_writer.h"

enum { ANSWER_MAX_CALLS = 128 }; /* one more ends the answer */

/* One choice's answer, from its tokens to what the client gets: text, thinking, calls and log
 * probabilities. In a stream, the pieces go to the API's writer as they are generated; for a whole
 * answer they are collected.
 *
 *   tokens ─► token_text ─► answer_parser ─► text, thinking, calls ─► writer, or kept
 *        └──► logprob_list ──────────────────────────────────────────────┘
 *
 * A call that repeats an earlier one of the answer, with the same name and equal arguments, is not
 * sent to the client, and the answer ends there: small models that must call a function repeat one
 * call until the context is full. In a stream, the beginning of a call is held back as long as it
 * may turn out to be a repetition.
 *
 * Owned by the event loop's thread. */
struct answer {
    struct token_text raw;
    struct answer_parser *parser; /* NULL: all of it is text */
    struct answer_content content;
    uint32_t n_numbered;         /* of a stream: all calls that were sent */
    char call_id[CALL_ID_BYTES]; /* the next call's, if the model gave it one */
    bool is_held;                /* the last call may repeat an earlier one: it is not sent yet */
    size_t n_compared;           /* bytes of its arguments when that was last looked at */
    bool is_over;                /* a repeated call, or one too many, has ended it */
    bool must_call;              /* all of it is calls: nothing else is shown */
    bool is_ending;              /* no more text comes */
    bool is_cut;                 /* ... and it ended inside a call */
    uint32_t n_reasoning_tokens; /* if it has any reasoning: answer_reasoning_tokens */
    bool has_reasoning;
    uint64_t n_echoed; /* bytes of the prompt's tokens among those with log probabilities */
    bool keeps_tokens;
    bool failed; /* there was no memory */

    /* Of a stream. */
    const struct answer_writer *writer; /* NULL: it is gathered */
    void *stream;                       /* the writer's */
    struct strbuf *events;              /* where they go, while the answer takes something */
};

struct answer_options {
    const struct answer_style *style; /* NULL: what is in the text is not looked at */
    const struct tool_set *tools;
    const struct tokenizer *tokenizer;
    bool starts_in_thinking;
    bool must_call;
    bool has_logprobs;
    bool keeps_tokens; /* the ids are wanted */
    uint32_t prompt_tokens;
    uint32_t index;
};

/* -1: no memory. Free it in any case. */
int answer_open(struct answer *a, const struct answer_options *o);
void answer_free(struct answer *a);
/* From now on, pieces are sent as events. */
void answer_stream(struct answer *a, const struct answer_writer *writer, void *stream);

/* Adds a token with these bytes. The first `text_end` of all bytes so far may be shown. */
void answer_token(struct answer *a, int32_t token, const char *bytes, size_t len, uint64_t text_end,
                  const struct token_logprobs *logprobs, struct strbuf *events);
/* Adds an echo: text that comes before the answer's own and is not parsed. */
void answer_echo(struct answer *a, const char *text, size_t len, struct strbuf *events);
/* No more tokens come. */
void answer_end(struct answer *a, uint64_t text_end, struct strbuf *events);

bool answer_failed(const struct answer *a);
/* The answer has ended early: its generation can be stopped, and further tokens are not part of
 * it. */
bool answer_is_over(const struct answer *a);
uint32_t answer_reasoning_tokens(const struct answer *a);
enum answer_finish answer_finish_of(const struct answer *a, enum finish_reason finish);

#endif
