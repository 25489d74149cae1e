#ifndef RADISH_SERVE_API_API_ERROR_H
#define RADISH_SERVE_API_API_ERROR_H

#include <stdint.h>

#include "base/strbuf.h"

/* An error that a request is answered with. */
struct api_error {
    int status;
    const char *code; /* NULL: null */
    /* Of a prompt that does not fit: its tokens, or fewer if not all were counted. */
    uint64_t n_prompt_tokens;
    uint32_t context; /* 0: this is not the error */
    char param[120];  /* "": null */
    char message[600];
};

/* Fills it in and returns -1. `param` may be NULL. */
__attribute__((format(printf, 4, 5))) int api_error_set(struct api_error *e, int status,
                                                        const char *param, const char *format, ...);

/* How an error looks depends on the API that the request speaks. */
enum error_form {
    /* {"error":{"message":"...","type":"invalid_request_error","param":"top_p","code":null}} */
    ERRORS_OPENAI,
    ERRORS_LLAMA,  /* the same, with llama-server's types */
    ERRORS_OLLAMA, /* {"error":"..."} */
};
/* Paths under /v1/ are OpenAI's, those under /api/ Ollama's, all others llama-server's. "" is
 * OpenAI's. */
enum error_form error_form_of(const char *path);
void api_error_write(struct strbuf *out, const struct api_error *e, enum error_form form);

#endif
