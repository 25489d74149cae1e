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
 * call until the context is full. In a stream, the start of a call is held back as long as it may
 * turn out to be a repetition.
 *
 * Owned by the event loop's thread. */
struct answer {
    struct token_text raw;
    struct answer_parser *parser; /* NULL: all of it is text */
    struct answer_content content;
    uint32_t n_numbered;         /* of a stream: all calls that were sent */
    char call_id[CALL_ID_BYTES]; /* of the next call, if the model gave one */
    bool is_held;                /* the last call is not sent yet: it may repeat an earlier one */
    size_t n_compared;           /* bytes of its arguments at the last comparison */
    bool is_over;                /* ended by a repeated call, or by one too many */
    bool must_call;              /* the answer is only calls: nothing else is shown */
    bool is_ending;              /* no more text comes */
    bool is_cut;                 /* ... and it ended inside a call */
    uint32_t n_reasoning_tokens; /* see answer_reasoning_tokens */
    bool has_reasoning;
    uint64_t n_echoed; /* bytes of the prompt's tokens among those with log probabilities */
    bool keeps_tokens;
    bool failed; /* out of memory */

    /* For a stream. */
    const struct answer_writer *writer; /* NULL: collected */
    void *stream;                       /* the writer's state */
    struct strbuf *events;              /* the output, during a call of the functions below */
};

struct answer_options {
    const struct answer_style *style; /* NULL: the text is not parsed */
    const struct tool_set *tools;
    const struct tokenizer *tokenizer;
    bool starts_in_thinking;
    bool continues; /* the prompt ends in the middle of the content */
    bool must_call;
    bool has_logprobs;
    bool keeps_tokens; /* the ids are needed */
    uint32_t prompt_tokens;
    uint32_t index;
};

/* -1: out of memory. Free it in any case. */
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

/* About how long the answer is when it is written. A stream has less: what was sent is not kept. */
size_t answer_bytes(const struct answer *a);
bool answer_failed(const struct answer *a);
/* The answer has ended early: its generation can be stopped, and further tokens are not part of
 * it. */
bool answer_is_over(const struct answer *a);
uint32_t answer_reasoning_tokens(const struct answer *a);
enum answer_finish answer_finish_of(const struct answer *a, enum finish_reason finish);

#endif
