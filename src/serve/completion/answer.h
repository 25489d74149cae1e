#ifndef RADISH_SERVE_COMPLETION_ANSWER_H
#define RADISH_SERVE_COMPLETION_ANSWER_H

#include "prompt/answer/answer_parser.h"
#include "sched/scheduler.h"
#include "serve/completion/logprob_list.h"
#include "serve/completion/sse.h"
#include "serve/completion/token_text.h"

/* One choice's answer, from its tokens to what the client is given: text, thinking, calls and log
 * probabilities. Of a stream the pieces go out as they come, of a whole answer they are gathered.
 *
 *   tokens ─► token_text ─► answer_parser ─► content, reasoning, calls ─► events, or kept
 *        └──► logprob_list ────────────────────────────────────────────────┘
 *
 * It belongs to the event loop's thread. */
enum { CALL_ID_BYTES = 40 };

struct answer_call {
    char id[CALL_ID_BYTES];
    struct strbuf name, arguments;
};

struct answer {
    struct token_text text;
    struct answer_parser *parser; /* NULL: all of the text is content */
    struct strbuf content, reasoning;
    struct answer_call *calls;
    uint32_t n_calls;            /* begun, but for broken ones */
    uint32_t n_numbered;         /* of a stream: all that were begun */
    bool must_call;              /* all of it is calls: nothing else is shown */
    bool is_ending;              /* no more text comes */
    bool is_cut;                 /* ... and it ended inside a call */
    uint32_t n_reasoning_tokens; /* if it has any reasoning: answer_reasoning_tokens */
    bool has_reasoning;
    bool has_logprobs;
    struct logprob_list logprobs;
    uint64_t n_echoed; /* bytes of the prompt's tokens among them */
    bool failed;       /* there was no memory */

    /* Of a stream. */
    const struct sse_encoder *sse; /* NULL: it is gathered */
    struct strbuf *events;         /* where they go, while the answer takes something */
    uint32_t index;                /* of the choice */
    struct strbuf scratch;
    const struct tokenizer *tokenizer;
};

struct answer_options {
    const struct answer_style *style; /* NULL: what is in the text is not looked at */
    const struct tool_set *tools;
    const struct tokenizer *tokenizer;
    bool starts_in_thinking;
    bool must_call;
    bool has_logprobs;
    uint32_t index;
};

/* -1: no memory. Free it in any case. */
int answer_open(struct answer *a, const struct answer_options *o);
void answer_free(struct answer *a);
/* From now on pieces go out as events. */
void answer_stream(struct answer *a, const struct sse_encoder *sse);

/* A token that adds these bytes; of all bytes so far the first `text_end` may be shown. */
void answer_token(struct answer *a, int32_t token, const char *bytes, size_t len, uint64_t text_end,
                  const struct token_logprobs *logprobs, struct strbuf *events);
/* A text that comes before the answer's own, unparsed: an echo. */
void answer_echo(struct answer *a, const char *text, size_t len, struct strbuf *events);
/* No more tokens come. */
void answer_end(struct answer *a, uint64_t text_end, struct strbuf *events);

bool answer_failed(const struct answer *a);
uint32_t answer_reasoning_tokens(const struct answer *a);
const char *answer_finish_name(const struct answer *a, enum finish_reason finish);
/* The members of a whole answer's choice: "message" or "text", and "logprobs". */
void answer_add_message(struct json_writer *w, struct answer *a);
void answer_add_text(struct json_writer *w, struct answer *a);

#endif
