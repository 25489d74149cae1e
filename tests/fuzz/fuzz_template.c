/* Fuzzes chat templates: the input is a template's source, rendered with a conversation that
 * contains every type. Rendered segments must cover the text, and a failure must have a reason. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "prompt/jinja/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static const char context_text[] =
    "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": true,"
    "\"messages\": [{\"role\": \"system\", \"content\": \"Be nice.\"},"
    "{\"role\": \"user\", \"content\": \"\\u00e9\\ud83d\\ude42 <b> {{ x }}\"},"
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c\", \"function\":"
    "{\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true, null, 12345678901234567890]}}}]}],"
    "\"s\": \"Hello, World\", \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": 2}, \"n\": null}";

static const struct json *context(void)
{
    static struct arena arena;
    static const struct json *parsed;
    struct error err;
    if (!parsed)
        parsed = json_parse(&arena, context_text, sizeof context_text - 1, &err);
    return parsed;
}

static void check_segments(const struct rendering *r)
{
    size_t end = 0;
    for (size_t i = 0; i < r->n_segments; i++) {
        if (r->segments[i].end <= end || (i && r->segments[i].source == r->segments[i - 1].source))
            abort();
        end = r->segments[i].end;
    }
    if (end != r->text.len)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const struct render_options options = {.now_unix = 1752148800};
    struct error err = {0};
    struct rendering out = RENDERING_INIT;
    struct chat_template *t = chat_template_parse((const char *)bytes, len, &err);
    if (!t && (err.message[0] == '\0' || (err.position != ERROR_NO_POSITION && err.position > len)))
        abort();
    if (t && chat_template_render(t, context(), &options, &out, &err) == 0)
        check_segments(&out);
    else if (err.code == ERROR_NONE)
        abort();
    rendering_free(&out);
    chat_template_free(t);
    return 0;
}
