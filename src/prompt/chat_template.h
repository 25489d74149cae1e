#ifndef RADISH_PROMPT_CHAT_TEMPLATE_H
#define RADISH_PROMPT_CHAT_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "base/strbuf.h"

/* A chat template: Jinja as transformers sets it up (trim_blocks, lstrip_blocks, loop controls,
 * `tojson` without HTML escapes, raise_exception, strftime_now). Parsed once, then rendered by any
 * number of threads. Both are bounded: depth, steps and bytes of output, so that a hostile
 * template ends with an error. */
struct chat_template;

/* NULL and `err` (position: byte offset into the source) for a template that does not parse. */
struct chat_template *chat_template_parse(const char *source, size_t len, struct error *err);
void chat_template_free(struct chat_template *t);

struct render_options {
    int64_t now_unix; /* what strftime_now sees, as seconds of UTC */
};

/* Renders with the members of `context` (an object: messages, tools, add_generation_prompt, ...)
 * as global variables. raise_exception gives ERROR_INPUT with the template's own message. */
int chat_template_render(const struct chat_template *t, const struct json *context,
                         const struct render_options *options, struct strbuf *out,
                         struct error *err);

#endif
