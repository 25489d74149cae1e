#ifndef RADISH_SERVE_API_OLLAMA_H
#define RADISH_SERVE_API_OLLAMA_H

#include "serve/api/api.h"

/* Ollama's routes, for clients that speak only its API. */
void ollama_chat_begin(struct api *api, struct http_exchange *x, const struct requester *who);
void ollama_generate_begin(struct api *api, struct http_exchange *x, const struct requester *who);
void ollama_show_begin(struct api *api, struct http_exchange *x, const struct requester *who);
void ollama_get_tags(struct api *api, struct http_exchange *x, const struct requester *who);
void ollama_get_ps(struct api *api, struct http_exchange *x, const struct requester *who);
void ollama_get_version(struct api *api, struct http_exchange *x, const struct requester *who);
/* Answers the routes of Ollama that radish does not support, and says what to do instead. */
void ollama_refuse(struct api *api, struct http_exchange *x, const struct requester *who);

#endif
