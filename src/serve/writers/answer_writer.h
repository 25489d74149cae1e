#ifndef RADISH_SERVE_WRITERS_ANSWER_WRITER_H
#define RADISH_SERVE_WRITERS_ANSWER_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/byte_view.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "prompt/tokenizer/tokenizer.h"
#include "serve/api/api_error.h"
#include "serve/writers/logprob_list.h"

/* serve/writers/ has one writer for each API, which only knows the wire format of answers.
 * serve/completion generates, parses and sends them. It calls a writer in this order:
 *
 *   a stream   open ─► begin ─► text, thinking, call_begin ─► call_arguments... ─► call_end
 *                                  (of all choices, in any order)
 *                      ─► finish (of each choice) ─► end ─► close
 *                      └─ or at any time after begin: error ─► close
 *   a whole    whole_begin ─► whole_choice (of each choice) ─► whole_end
 *
 * Everything runs on the event loop's thread. */

/* What is known about an answer before it starts. */
struct answer_head {
    const char *id, *model, *fingerprint;
    int64_t created;
    uint32_t n_choices;
    bool may_call;      /* the answer may be calls instead of text */
    bool include_usage; /* of a stream: the client wants the counts */
    bool has_functions; /* a call is a `function_call`, the form before `tools` */
    /* For llama-server's API: the settings of the request as JSON text, the members that the answer
     * must have (none: all), and whether it has the ids of its tokens. */
    const char *settings;
    const struct byte_view *fields; /* [n_fields] */
    uint32_t n_fields;
    bool has_tokens;
    bool has_drawn_probs;       /* probabilities instead of their logarithms */
    const struct strbuf *extra; /* of a whole answer: one more member, "name":value; NULL: none */
};

/* How long an answer took, as llama-server reports it. */
struct answer_timings {
    uint32_t cached_tokens, computed_tokens; /* of the prompt */
    uint32_t predicted_tokens;
    uint64_t prompt_ns, predicted_ns;
};

/* How much of the prompt has been computed. */
struct answer_progress {
    uint32_t total, cached, processed;
    uint64_t elapsed_ns;
};

struct answer_usage {
    uint32_t prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
    const struct answer_timings *timings; /* NULL: not sent */
    uint64_t total_ns;                    /* since the request arrived */
};

enum { CALL_ID_BYTES = 96 };

struct answer_call {
    char id[CALL_ID_BYTES];
    struct strbuf name, arguments;
};

/* One choice. A whole answer has all of it here. In a stream, text and thinking are sent as they
 * are generated, and are empty here. */
struct answer_content {
    uint32_t index; /* of the choice */
    struct strbuf text, thinking;
    struct answer_call *calls;
    uint32_t n_calls; /* started, without broken ones */
    bool has_logprobs;
    struct logprob_list logprobs; /* writers send what is ready */
    const struct tokenizer *tokenizer;

    uint32_t prompt_tokens, n_tokens;     /* n_tokens: generated so far */
    struct token_list tokens;             /* the ids, if requested */
    size_t n_tokens_given;                /* of a stream */
    const struct answer_timings *timings; /* so far; NULL: not sent */
    struct strbuf prompt;                 /* its text, if requested, at the end */
    bool has_new_line;
    /* Once it is over: */
    bool is_truncated;              /* the context was full */
    struct byte_view stopping_word; /* the stop string that ended it; empty: none */
};

enum answer_finish { ANSWER_STOPPED, ANSWER_TOO_LONG, ANSWER_CALLS };

/* Functions of a stream append whole events to `out`; out->failed is set if one did not fit. */
struct answer_writer {
    const char *media_type; /* of a stream */

    /* Allocates the writer's state for a stream; NULL: out of memory. `head` must outlive it. */
    void *(*open)(const struct answer_head *head);
    void (*close)(void *stream);
    void (*begin)(void *stream, struct strbuf *out);
    void (*heartbeat)(void *stream, struct strbuf *out); /* sent while a stream is silent */
    /* `len` 0: only log probabilities remain. */
    void (*text)(void *stream, struct strbuf *out, struct answer_content *a, const char *text,
                 size_t len);
    /* NULL if answers are only text. A broken call is followed by its text, not its end. */
    void (*thinking)(void *stream, struct strbuf *out, struct answer_content *a, const char *text,
                     size_t len);
    void (*call_begin)(void *stream, struct strbuf *out, struct answer_content *a,
                       const struct answer_call *call, uint32_t number);
    void (*call_arguments)(void *stream, struct strbuf *out, struct answer_content *a,
                           uint32_t number, const char *text, size_t len);
    /* NULL: the end of a call is not written. */
    void (*call_end)(void *stream, struct strbuf *out, struct answer_content *a, uint32_t number);
    void (*finish)(void *stream, struct strbuf *out, struct answer_content *a,
                   enum answer_finish finish);
    /* `extra` is one more member, "name":value; NULL: none. */
    void (*end)(void *stream, struct strbuf *out, const struct answer_usage *usage,
                const struct strbuf *extra);
    void (*error)(void *stream, struct strbuf *out, const struct api_error *e);
    /* More of the prompt has been computed. NULL: not reported. */
    void (*progress)(void *stream, struct strbuf *out, struct answer_content *a,
                     const struct answer_progress *progress);

    /* A whole answer is one value per choice, in an array if there are several, without an object
     * around them: whole_choice writes everything, whole_begin and whole_end are NULL. */
    bool is_list;
    /* The members of the answer's object. */
    void (*whole_begin)(struct json_writer *w, const struct answer_head *head);
    void (*whole_choice)(struct json_writer *w, const struct answer_head *head,
                         struct answer_content *a, enum answer_finish finish);
    void (*whole_end)(struct json_writer *w, const struct answer_usage *usage);
};

extern const struct answer_writer chat_writer;  /* OpenAI's chat completions */
extern const struct answer_writer text_writer;  /* OpenAI's text completions */
extern const struct answer_writer llama_writer; /* llama-server's completions */
extern const struct answer_writer ollama_chat_writer, ollama_generate_writer;

/* "timings":{...} and "prompt_progress":{...}, as in llama-server. */
void timings_add(struct json_writer *w, const struct answer_timings *t);
void progress_add(struct json_writer *w, const struct answer_progress *p);

#endif
