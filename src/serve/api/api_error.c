/* Errors as clients see them, in the form of each API. */
#include "serve/api/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

int api_error_set(struct api_error *e, int status, const char *param, const char *format, ...)
{
    *e = (struct api_error){.status = status};
    if (param)
        snprintf(e->param, sizeof e->param, "%s", param);
    va_list args;
    va_start(args, format);
    vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
    return -1;
}

/* OpenAI's and llama-server's names are the same, but for these. */
static const char *llama_type_of(const struct api_error *e)
{
    return e->context         ? "exceed_context_size_error"
           : e->status == 401 ? "authentication_error"
           : e->status == 501 ? "not_supported_error"
                              : NULL;
}

static const char *type_of(const struct api_error *e, enum error_form form)
{
    const char *type = form == ERRORS_LLAMA ? llama_type_of(e) : NULL;
    if (type)
        return type;
    switch (e->status) {
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "unavailable_error";
    case 504: return "timeout_error";
    default: return e->status >= 500 ? "server_error" : "invalid_request_error";
    }
}

enum error_form error_form_of(const char *path)
{
    if (strncmp(path, "/api/", 5) == 0)
        return ERRORS_OLLAMA;
    return !*path || strncmp(path, "/v1/", 4) == 0 ? ERRORS_OPENAI : ERRORS_LLAMA;
}

void api_error_write(struct strbuf *out, const struct api_error *e, enum error_form form)
{
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    if (form == ERRORS_OLLAMA) {
        json_add_string(&w, "error", e->message);
        json_object_end(&w);
        return;
    }
    json_object_begin(&w, "error");
    json_add_string(&w, "message", e->message);
    json_add_string(&w, "type", type_of(e, form));
    if (e->param[0])
        json_add_string(&w, "param", e->param);
    else
        json_add_null(&w, "param");
    if (e->code)
        json_add_string(&w, "code", e->code);
    else
        json_add_null(&w, "code");
    if (e->context) {
        json_add_int(&w, "n_prompt_tokens", (int64_t)e->n_prompt_tokens);
        json_add_int(&w, "n_ctx", e->context);
    }
    json_object_end(&w);
    json_object_end(&w);
}
