#ifndef RADISH_SERVE_COMPLETION_SSE_H
#define RADISH_SERVE_COMPLETION_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/strbuf.h"

/* The events of one streamed completion, of a conversation or of a text, in OpenAI's form. What is
 * the same in every chunk is written once, when the stream opens; a chunk is then three copies and
 * one escaped string. The bytes are those that a JSON writer would give for the same object.
 *
 *   data: {"id":..,"object":..,"created":..,"model":..,"system_fingerprint":..,"choices":[{"index":
 *   └──────────────────────────────── head ────────────────────────────────────────────────────┘
 *   0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}],"usage":null}
 *                                             └──────────────── tail ───────────────┘
 */
struct sse_encoder {
    struct strbuf head;
    struct strbuf tail;
    size_t common_len; /* of the head, up to "choices":[ */
    bool is_chat;
    bool with_usage; /* every chunk but the last has "usage":null */
};

struct completion_usage {
    uint32_t prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
};

struct completion_id {
    const char *id, *model, *fingerprint;
    int64_t created;
    bool is_chat;
};

void sse_open(struct sse_encoder *e, const struct completion_id *id, bool with_usage);
void sse_close(struct sse_encoder *e);

/* Each appends one whole event to `out`. `logprobs` is the JSON of that member; NULL: null. */
/* What an answer begins with; its content is null where calls may come instead of it. */
void sse_role(const struct sse_encoder *e, struct strbuf *out, uint32_t choice, bool may_call);
/* The text of an answer, or of its thinking. */
void sse_content(const struct sse_encoder *e, struct strbuf *out, uint32_t choice, const char *text,
                 size_t len, const struct strbuf *logprobs);
void sse_reasoning(const struct sse_encoder *e, struct strbuf *out, uint32_t choice,
                   const char *text, size_t len, const struct strbuf *logprobs);
/* The call of that number begins, or has more arguments. */
void sse_call_begin(const struct sse_encoder *e, struct strbuf *out, uint32_t choice, uint32_t call,
                    const char *id, const char *name, const struct strbuf *logprobs);
void sse_call_arguments(const struct sse_encoder *e, struct strbuf *out, uint32_t choice,
                        uint32_t call, const char *text, size_t len, const struct strbuf *logprobs);
void sse_finish(const struct sse_encoder *e, struct strbuf *out, uint32_t choice,
                const char *finish_reason);
void sse_usage(const struct sse_encoder *e, struct strbuf *out,
               const struct completion_usage *usage);
/* A chunk without choices that has one more member, given as "name":value. */
void sse_member(const struct sse_encoder *e, struct strbuf *out, const struct strbuf *member);
void sse_error(struct strbuf *out, const char *error_json); /* {"error":{...}} */
void sse_done(struct strbuf *out);
void sse_heartbeat(struct strbuf *out); /* a comment, which clients skip */

/* "usage":{"prompt_tokens":..,...}: the same member in streams and whole answers. */
void usage_add(struct json_writer *w, const struct completion_usage *usage);

#endif
