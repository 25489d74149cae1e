#ifndef RADISH_PROMPT_JINJA_TEMPLATE_TRAITS_H
#define RADISH_PROMPT_JINJA_TEMPLATE_TRAITS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"
#include "prompt/jinja/chat_template.h"

/* What a chat template accepts, detected once, at load, by rendering small conversations with it
 * and looking for their words in the result. If the template raises, it does not accept that
 * conversation. */
struct template_traits {
    bool renders;                /* it does not always raise */
    bool takes_system;           /* a leading system message is rendered */
    bool takes_several_systems;  /* ... and a second one right after it */
    bool takes_late_systems;     /* ... and system messages later in the conversation */
    bool wants_alternation;      /* user and assistant must take turns; two in a row are rejected */
    bool takes_tools;            /* `tools` is rendered */
    bool wants_whole_tools;      /* ... each with a description and parameters */
    bool takes_calls;            /* an assistant's tool_calls are rendered */
    bool takes_several_calls;    /* ... more than one in a message */
    bool takes_results;          /* messages of role "tool" are rendered */
    bool wants_answered_results; /* ... and an assistant's message before the next user's */
    bool wants_argument_object;  /* a call's arguments must be an object, not JSON text */
    bool wants_text_content;     /* with calls, an assistant's content must be a string, not null */
    bool wants_calls_alone;      /* calls are rendered only if the message has no content */
    bool wants_short_ids;        /* a call's id must have 9 characters (Mistral) */
    bool wants_named_ids;      /* ... must be "functions.NAME:INDEX": no name is rendered (Kimi) */
    bool wants_parts;          /* contents are arrays of parts, not strings */
    bool takes_reasoning;      /* the reasoning of earlier answers can be rendered ... */
    bool takes_reasoned_text;  /* ... also in a message with content and calls */
    const char *reasoning_key; /* ... under this name: "reasoning_content", ...; NULL: none */
    bool has_thinking_switch;  /* `enable_thinking` changes what is rendered */

    /* How it renders calls, if their arguments are JSON, so that a grammar can make answers look
     * the same:
     *
     *   first <name> middle <arguments> [ between <name> middle <arguments> ]* last end
     *
     * `first` comes after the generation prompt, `end` is the marker that ends any answer.
     * `between` is empty if it does not take several calls. Without a shape (arguments are not
     * JSON, or each call contains its id), `first` and `middle` may still be known: `middle` is the
     * text from the call's name to its arguments, or to the first argument's name. */
    bool has_call_shape;
    struct strbuf first, middle, last, between;
};

/* `context` is an object of the variables that templates get besides the conversation (bos_token,
 * ...), or NULL. Returns 0, or -1 if out of memory. A NULL template accepts nothing. */
int template_traits_find(struct template_traits *out, const struct chat_template *t,
                         const struct json *context, struct error *err);
void template_traits_free(struct template_traits *t);

/* [{"type": "text", "text": ...}]: content for templates that want parts. */
struct json *content_parts_new(struct arena *arena, const char *text, size_t len);

#endif
