#ifndef RADISH_SERVE_API_LLAMA_H
#define RADISH_SERVE_API_LLAMA_H

#include "serve/api/api.h"

/* GET /props and GET /slots, for llama-server's clients. */
void llama_props(struct api *api, struct http_exchange *x, const struct requester *who);
void llama_slots(struct api *api, struct http_exchange *x, const struct requester *who);

#endif
