#ifndef RADISH_PROMPT_CONVERSATION_H
#define RADISH_PROMPT_CONVERSATION_H

#include "prompt/answer/answer_style.h"
#include "prompt/answer/tool_set.h"
#include "prompt/jinja/template_traits.h"

/* Turns a conversation in OpenAI's form into an equivalent one that the model's template accepts.
 * What the template accepts stays unchanged.
 *
 * - Leading system messages are merged into one. If the template takes no system message, they go
 *   before the first user message. Later ones become user messages if the template rejects them.
 * - If user and assistant must alternate, adjacent messages of the same role are merged.
 * - Functions are passed to the template (`tools`) if it takes them. Otherwise they are written
 *   into the system prompt, with instructions on how to call them in the style's format.
 * - A call's arguments are an object or its JSON text, as the template needs. If it needs an
 *   object, text that is not one becomes {"arguments": text}. Calls and results that the template
 *   does not support become text in the style's own form. If a message may have only one call, a
 *   message with several is split, each part with its result.
 * - Results carry the name of their function; ids have the form that the template needs. */
struct conversation {
    const struct json *messages;  /* OpenAI's form; contents are strings or null */
    const struct tool_set *tools; /* NULL: none */
};

struct fitted_conversation {
    struct json *messages;
    const struct json *tools; /* for the template; NULL: none, or they are in the system prompt */
    /* [messages->count]: the index of the original of each fitted message (if merged, the one whose
     * role it has), or -1. */
    int32_t *origins;
};

/* Allocates in the arena and shares parts of the original. Only ERROR_MEMORY is possible. */
int conversation_fit(struct fitted_conversation *out, const struct conversation *in,
                     const struct template_traits *traits, const struct answer_style *style,
                     struct arena *arena, struct error *err);

#endif
