/* Feeds the input to the reader of chat requests: the result is either a valid request or an error
 * that a client can be shown. */
#include "serve/request/fields.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_messages(const struct json *messages)
{
    size_t n = 0;
    json_each (message, messages) {
        const struct json *content = json_get(message, "content");
        assert(json_is(json_get(message, "role"), JSON_STRING));
        assert(json_is(content, JSON_STRING) ||
               (json_is(content, JSON_NULL) && json_get(message, "tool_calls")));
        n++;
    }
    assert(n && n == messages->count);
}

static void check_params(const struct request_params *p)
{
    assert(p->messages || p->prompt || p->text || p->tokens || p->is_load ||
           p->kind == REQUEST_OLLAMA_SHOW);
    assert(p->kind != REQUEST_CHAT || p->is_load || p->messages);
    if (p->messages)
        check_messages(p->messages);
    assert(!p->constraint.kind || (p->constraint.field && p->constraint.value));
    assert(p->tools || p->tool_choice != TOOL_CHOICE_REQUIRED);
    assert(p->top_logprobs >= 0 && p->top_logprobs <= REQUEST_MAX_TOP_LOGPROBS);
    assert(p->thinking_tokens >= -1);
    assert(p->n >= 1 && p->n <= REQUEST_MAX_CHOICES && p->max_tokens >= 0);
    assert(p->pin_s >= 0 && p->pin_s <= REQUEST_MAX_PIN_S);
    assert(p->n_stops <= REQUEST_MAX_STOPS);
    for (uint32_t i = 0; i < p->n_stops; i++)
        assert(p->stops[i].len >= 1 && p->stops[i].len <= REQUEST_MAX_STOP_BYTES);
    const struct sampling *s = &p->sampling;
    assert(s->temperature >= 0 && s->temperature <= 2 && s->top_p >= 0 && s->top_p <= 1);
    assert(s->min_p >= 0 && s->min_p <= 1 && s->top_k >= 0 && s->repetition_penalty > 0);
    for (const char *c = strbuf_str(&p->ignored); *c; c++)
        assert(*c >= ' ' && *c < 0x7f); /* it goes into a header */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct request_params p;
    struct api_error e = {0};
    const struct sampling sampling = SAMPLING_DEFAULT;
    enum request_kind kind = (enum request_kind)(data[0] / 2 % REQUEST_KINDS);
    if (request_params_read(&p, kind, (const char *)data + 1, size - 1, data[0] & 1, &sampling,
                            &e) == 0) {
        check_params(&p);
    } else {
        struct strbuf json = STRBUF_INIT;
        assert((e.status == 400 || e.status == 413) && e.message[0]);
        api_error_write(&json, &e, ERRORS_OPENAI);
        assert(!json.failed);
        strbuf_free(&json);
    }
    request_params_free(&p);
    return 0;
}
