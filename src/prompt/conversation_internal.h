#ifndef RADISH_PROMPT_CONVERSATION_INTERNAL_H
#define RADISH_PROMPT_CONVERSATION_INTERNAL_H

#include "prompt/conversation.h"

/* A conversation being fitted: a list of turns. Each pass makes a new list from it.
 *
 *   messages ─► turns ─► calls, results ─► systems ─► neighbours ─► messages */
enum turn_role { TURN_SYSTEM, TURN_USER, TURN_ASSISTANT, TURN_TOOL, TURN_OTHER };

struct turn {
    enum turn_role role;
    int32_t origin;             /* the index of its message, -1: made here */
    const struct json *source;  /* the message with its other members; NULL: none */
    const struct json *content; /* NULL: none */
    const struct json *calls;   /* the first of its calls; the others are its siblings */
    size_t n_calls;
    size_t first_call; /* the index of the first call in the conversation */
};

struct fitting {
    const struct conversation *in;
    const struct template_traits *traits;
    const struct answer_style *style;
    struct arena *arena;
    struct turn *turns, *made; /* [capacity]: the list, and the one being made */
    size_t n, n_made, capacity;
};

/* Adds a turn to the list being made. */
void turn_push(struct fitting *f, struct turn turn);
/* The list just made becomes the list. */
void turns_swap(struct fitting *f);
/* Joins two texts with `between`, as a string in the arena. NULL and values that are not strings
 * count as empty; `between` is omitted beside an empty text. */
const struct json *content_join(struct arena *arena, const struct json *a, const char *between,
                                const struct json *b);
const struct json *content_take(struct arena *arena, struct strbuf *text); /* frees the text */
bool content_is_empty(const struct json *content);

/* The functions as text for the system prompt. NULL: there are none, or the template takes them. */
const struct json *tool_prompt(const struct fitting *f);
/* The functions for the template. NULL: there are none, or it does not take them. */
const struct json *tools_fit(const struct fitting *f);
/* Fits calls and results to the template, or turns them into text. */
void fit_calls(struct fitting *f);
void fit_results(struct fitting *f);
/* Adds the members of a fitted message about calls: its calls, or the call that it answers. */
void calls_append(const struct fitting *f, const struct turn *turn, struct json *message);
void result_append(const struct fitting *f, const struct turn *turns, size_t i,
                   struct json *message);

#endif
