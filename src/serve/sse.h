#ifndef RADISH_SERVE_SSE_H
#define RADISH_SERVE_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/strbuf.h"

/* The events of one streamed chat completion, in OpenAI's form. What is the same in every chunk is
 * written once, when the stream opens; a chunk is then three copies and one escaped string. The
 * bytes are those that a JSON writer would give for the same object.
 *
 *   data: {"id":..,"object":..,"created":..,"model":..,"system_fingerprint":..,"choices":[{"index":
 *   └──────────────────────────────── head ────────────────────────────────────────────────────┘
 *   0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}],"usage":null}
 *                             └───────────────────── tail ──────────────────────────┘
 */
struct sse_encoder {
    struct strbuf head;
    struct strbuf tail;
    size_t common_len; /* of the head, up to "choices":[ */
    bool with_usage;   /* every chunk but the last has "usage":null */
};

struct completion_usage {
    uint32_t prompt_tokens, cached_tokens, completion_tokens;
};

struct completion_id {
    const char *id, *model, *fingerprint;
    int64_t created;
};

void sse_open(struct sse_encoder *e, const struct completion_id *id, bool with_usage);
void sse_close(struct sse_encoder *e);

/* Each appends one whole event to `out`. */
void sse_role(const struct sse_encoder *e, struct strbuf *out, uint32_t choice);
void sse_content(const struct sse_encoder *e, struct strbuf *out, uint32_t choice, const char *text,
                 size_t len);
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
