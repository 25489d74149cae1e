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
    const struct json *source;  /* the message whose other members it has; NULL: none */
    const struct json *content; /* NULL: none */
    const struct json *calls;   /* the first of its calls, the others are its siblings */
    size_t n_calls;
    size_t first_call; /* the index in the conversation of the first */
};

struct fitting {
    const struct conversation *in;
    const struct template_traits *traits;
    const struct answer_style *style;
    struct arena *arena;
    struct turn *turns, *made; /* [capacity]: the list, and the one that a pass is making */
    size_t n, n_made, capacity;
};

/* Adds to the list that is being made. */
void turn_push(struct fitting *f, struct turn turn);
/* The list that was made becomes the list. */
void turns_swap(struct fitting *f);
/* A string in the arena, of two texts and what stands between them; either may be NULL or no
 * string, and counts as empty. Nothing stands beside an empty one. */
const struct json *content_join(struct arena *arena, const struct json *a, const char *between,
                                const struct json *b);
const struct json *content_take(struct arena *arena, struct strbuf *text); /* frees the text */
bool content_is_empty(const struct json *content);

/* The functions written out for the system prompt, or NULL: there are none, or the template takes
 * them. */
const struct json *tool_prompt(const struct fitting *f);
/* The functions for the template, or NULL: there are none, or it does not take them. */
const struct json *tools_fit(const struct fitting *f);
/* Calls and results as the template takes them, or as text. */
void fit_calls(struct fitting *f);
void fit_results(struct fitting *f);
/* The members of a fitted message that have to do with calls: its calls, or whose result it is. */
void calls_append(const struct fitting *f, const struct turn *turn, struct json *message);
void result_append(const struct fitting *f, const struct turn *turns, size_t i,
                   struct json *message);

#endif
