#ifndef RADISH_SERVE_COMPLETION_COMPLETION_H
#define RADISH_SERVE_COMPLETION_COMPLETION_H

#include "serve/api/api.h"
#include "serve/request/fields.h"

/* serve/completion/ runs completions, from the request to the last byte of the answer: it prepares
 * and runs them, and passes text, thinking and calls to the API's writer. */

/* The life of a chat completion:
 *
 *   begin ─► preparing ─────► running ──────────────────► answered
 *            (a worker reads  (the scheduler generates;   │
 *             and tokenizes)   the loop formats)          ▼
 *                  │               │                     freed, when the scheduler has given
 *                  └── hang-up, error, time-out ────────► every choice's request back
 *
 * All of it runs on the event loop's thread, except the worker's part. */

/* `kind`: an answer, or only a warmed cache. */
void completion_begin(struct api *api, struct http_exchange *x, const struct requester *who,
                      enum request_kind kind);
/* The exchange's client has hung up: stops its work. */
void completion_hangup(struct api *api, struct http_exchange *x);
/* Gives up a request that waits for a worker. False: it is past that. */
bool completion_withdraw(struct api *api, struct http_exchange *x);
/* The exchange's stream has room again. */
void completion_room(struct http_exchange *x);

/* The most bytes of text that /tokenize takes. */
size_t completion_text_limit(const struct api *api);

/* Handles the results that workers and the scheduler have ready. */
void completions_pump(struct api *api);
/* Once a second: heartbeats. */
void completions_tick(struct api *api);
/* Ends every answer with this error. */
void completions_fail(struct api *api, const struct api_error *e);
/* Writes the settings of a request as llama-server does. */
void settings_write(struct json_writer *w, const char *key, const struct request_params *p,
                    const struct token_table *tokens);
/* Writes an array with an element for each answer that can run at once, like llama-server's slots.
 * They contain no text. */
void completions_write_slots(const struct api *api, struct strbuf *out);
/* Call this after the workers and the scheduler are closed. */
void completions_free(struct api *api);

#endif
