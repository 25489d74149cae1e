#ifndef RADISH_SERVE_WRITERS_OLLAMA_FORM_H
#define RADISH_SERVE_WRITERS_OLLAMA_FORM_H

#include <stdint.h>

#include "base/json.h"
#include "serve/api/server_options.h"

/* What Ollama's API says about models, and helpers for its answers. */

/* The version of Ollama whose API this is; clients choose features by it. */
#define OLLAMA_API_VERSION "0.12.11"

enum { OLLAMA_TIME_BYTES = 32 };
/* "2026-07-01T09:30:00Z" */
void ollama_time_write(char out[OLLAMA_TIME_BYTES], int64_t unix_seconds);

/* Each writes a whole object: of GET /api/tags, GET /api/ps and POST /api/show. `cache_bytes` is
 * what the cache holds now. */
void ollama_tags_write(struct json_writer *w, const struct server_options *o);
void ollama_ps_write(struct json_writer *w, const struct server_options *o, uint64_t cache_bytes);
void ollama_show_write(struct json_writer *w, const struct server_options *o);
/* The answer to a request without a prompt, which asks for the model to be loaded or unloaded:
 * `reason` is "load" or "unload". */
void ollama_load_write(struct json_writer *w, const char *model, int64_t created, bool is_chat,
                       const char *reason);

#endif
