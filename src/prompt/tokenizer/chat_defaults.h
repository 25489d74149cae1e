#ifndef RADISH_PROMPT_TOKENIZER_CHAT_DEFAULTS_H
#define RADISH_PROMPT_TOKENIZER_CHAT_DEFAULTS_H

#include <stddef.h>

#include "prompt/tokenizer/sampling_defaults.h"

/* What a model's files say besides its tokens: how conversations are written, and how answers are
 * sampled. Read together with the tokenizer, because both are in the same files. */
struct chat_defaults {
    char *chat_template; /* NULL: none */
    size_t chat_template_len;
    char *tool_template; /* for conversations with tools; NULL: the same */
    size_t tool_template_len;
    struct sampling_defaults sampling;
};

void chat_defaults_free(struct chat_defaults *c);
/* Moves `from` into `to`, or frees it if `to` is NULL. */
void chat_defaults_move(struct chat_defaults *to, struct chat_defaults *from);
/* Replaces `*out` with a copy of a template's text; false: out of memory. */
bool chat_defaults_keep(char **out, size_t *out_len, const char *text, size_t len);

#endif
