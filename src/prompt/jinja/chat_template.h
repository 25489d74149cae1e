#ifndef RADISH_PROMPT_JINJA_CHAT_TEMPLATE_H
#define RADISH_PROMPT_JINJA_CHAT_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "base/strbuf.h"

/* prompt/jinja/ runs chat templates: the language, its values and builtins. It also detects what a
 * template accepts. */

/* A chat template: Jinja as transformers sets it up (trim_blocks, lstrip_blocks, loop controls,
 * `tojson` without HTML escapes, raise_exception, strftime_now, nothing that changes a list or a
 * dict). Parsed once, then rendered by any number of threads. Depth, steps and bytes of output are
 * bounded, so a hostile template ends with an error. */
struct chat_template;

/* NULL and `err` (position: byte offset into the source) if the template does not parse. */
struct chat_template *chat_template_parse(const char *source, size_t len, struct error *err);
void chat_template_free(struct chat_template *t);

struct render_options {
    int64_t now_unix;    /* the time for strftime_now, in seconds UTC */
    struct arena *arena; /* for temporary values; NULL: one that is freed at the end */
};

/* The source of each byte of a rendering. Text from the template may spell special tokens; text
 * from the conversation may not, even if it looks like one.
 *
 *   text      <|im_start|>user\nHi <|im_end|> there<|im_end|>\n
 *   segments  [ template -----][ message 0 -------][ template ]
 *
 * Strings keep their sources through +, ~, slices, strip, split, join, replace, format and macros.
 * The result of other filters (tojson, upper, ...) counts as the template's only if all of its
 * input does. The context belongs to the conversation, except for top-level strings whose names end
 * in "_token" (the caller vouches for them) and the usual roles ("user", "assistant", ...), because
 * templates build markers such as <|user|> from them. */
enum render_source {
    RENDER_TEMPLATE = -1, /* the template itself */
    RENDER_DATA = -2,     /* the context, outside the messages, or several messages at once */
                          /* 0 and above: the message with that index */
};

struct render_segment {
    size_t end; /* it starts where the previous one ends */
    int32_t source;
};

struct rendering {
    struct strbuf text;
    struct render_segment *segments; /* cover the text; neighbours differ in source */
    size_t n_segments, segments_capacity;
};

#define RENDERING_INIT                                                                             \
    {                                                                                              \
        0                                                                                          \
    }

/* Renders with the members of `context` (an object: messages, tools, add_generation_prompt, ...)
 * as global variables. Replaces the contents of `out` and reuses its memory; after an error it
 * holds no text, but must still be freed. raise_exception gives ERROR_INPUT with the template's
 * own message; other errors of the template say "line N: ...". */
int chat_template_render(const struct chat_template *t, const struct json *context,
                         const struct render_options *options, struct rendering *out,
                         struct error *err);
void rendering_free(struct rendering *r);

#endif
