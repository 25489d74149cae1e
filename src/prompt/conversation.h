#ifndef RADISH_PROMPT_CONVERSATION_H
#define RADISH_PROMPT_CONVERSATION_H

#include "prompt/answer/answer_style.h"
#include "prompt/answer/tool_set.h"
#include "prompt/jinja/template_traits.h"

/* A conversation in OpenAI's form, made into one that the model's template takes, with the same
 * meaning. What the template takes stays as it is.
 *
 * - Leading system messages are merged into one where the template takes one; where it takes none,
 *   they go before the first user's text. Later ones become the user's where it refuses them.
 * - Where user and assistant must take turns, neighbours of the same role are merged.
 * - Functions go to the template (`tools`) if it takes them, else into the system prompt, written
 *   out with how to call them (in the style's format); never both.
 * - A call's arguments are an object or its JSON text, as the template wants them; text that is no
 *   JSON object becomes {"arguments": text} where it wants an object. Calls and results that the
 *   template does not take become text in the style's own form. Where a message can have one call,
 *   it becomes several, each with its result.
 * - Results have the name of their function; ids are as the template wants them. */
struct conversation {
    const struct json *messages;  /* OpenAI's form; contents are strings or null */
    const struct tool_set *tools; /* NULL: none */
};

struct fitted_conversation {
    struct json *messages;
    const struct json *tools; /* for the template; NULL: none, or they are in the system prompt */
    /* For each of the fitted messages, the index of the original one that it came from (of several,
     * the one whose role it has), -1 for none: [messages->count]. */
    int32_t *origins;
};

/* Everything is made in the arena; parts of the original are shared. ERROR_MEMORY only. */
int conversation_fit(struct fitted_conversation *out, const struct conversation *in,
                     const struct template_traits *traits, const struct answer_style *style,
                     struct arena *arena, struct error *err);

#endif
