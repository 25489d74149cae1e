#ifndef RADISH_SERVE_WRITERS_OPENAI_FORM_H
#define RADISH_SERVE_WRITERS_OPENAI_FORM_H

#include "serve/writers/answer_writer.h"

#define OPENAI_MEDIA_TYPE "text/event-stream; charset=utf-8"

/* What OpenAI's chat and text completions have in common. The constant parts of a stream's chunks
 * are written once, when the stream opens; a chunk is then three copies and one escaped string. The
 * bytes are the same that a JSON writer would produce.
 *
 *   data: {"id":..,"object":..,"created":..,"model":..,"system_fingerprint":..,"choices":[{"index":
 *   └──────────────────────────────── head ────────────────────────────────────────────────────┘
 *   0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}],"usage":null}
 *                                             └──────────────── tail ───────────────┘
 */
struct openai_stream {
    const struct answer_head *answer;
    struct strbuf head;
    struct strbuf tail;
    size_t common_len; /* of the head, up to "choices":[ */
};

/* `object` is the "object" member of the chunks. NULL: out of memory. */
void *openai_open(const struct answer_head *answer, const char *object);
void openai_close(void *stream);
void openai_heartbeat(void *stream, struct strbuf *out);

/* A chunk up to its choice's index; and its end, from the log probabilities or the finish reason
 * on. */
void openai_chunk_begin(const struct openai_stream *s, struct strbuf *out, uint32_t choice);
void openai_chunk_end(const struct openai_stream *s, struct strbuf *out,
                      const struct answer_content *a);
void openai_chunk_finish(const struct openai_stream *s, struct strbuf *out,
                         const struct answer_content *a, enum answer_finish finish);
void openai_progress(void *stream, struct strbuf *out, struct answer_content *a,
                     const struct answer_progress *progress);
void openai_end(void *stream, struct strbuf *out, const struct answer_usage *usage,
                const struct strbuf *extra);
void openai_error(void *stream, struct strbuf *out, const struct api_error *e);

/* The start of every answer, whole or in chunks, up to the first choice. */
void openai_whole_begin(struct json_writer *w, const struct answer_head *answer,
                        const char *object);
void openai_whole_end(struct json_writer *w, const struct answer_usage *usage);
const char *openai_finish_name(const struct answer_head *head, enum answer_finish finish);

/* The value of "logprobs": those that are ready and not sent yet, in the form of chats or text
 * completions. */
typedef void logprobs_write(struct logprob_list *l, const struct tokenizer *t, struct strbuf *out);
logprobs_write chat_logprobs_write, text_logprobs_write;
/* An array of tokens in the form of chats, which Ollama also uses. */
void openai_add_token_logprobs(struct json_writer *w, const char *key, struct logprob_list *l,
                               const struct tokenizer *t);
/* The member "logprobs" of a chunk, and of a whole answer. */
void openai_add_new_logprobs(struct strbuf *out, struct answer_content *a, logprobs_write *write);
void openai_add_logprobs(struct json_writer *w, struct answer_content *a, logprobs_write *write);
/* JSON has no infinity: like OpenAI, writes -9999 for "almost impossible". */
void openai_add_logprob(struct json_writer *w, const char *key, float logprob);

#endif
