/* What a model's files say about conversations; see chat_defaults.h. Filled by the tokenizer
 * loaders (load.c, directory.c, bytes.c), owned by the prompt maker. */
#include "prompt/tokenizer/chat_defaults.h"

#include <stdlib.h>
#include <string.h>

void chat_defaults_free(struct chat_defaults *c)
{
    free(c->chat_template);
    free(c->tool_template);
    *c = (struct chat_defaults){0};
}

void chat_defaults_move(struct chat_defaults *to, struct chat_defaults *from)
{
    if (!to) {
        chat_defaults_free(from);
        return;
    }
    *to = *from;
    *from = (struct chat_defaults){0};
}

bool chat_defaults_keep(char **out, size_t *out_len, const char *text, size_t len)
{
    free(*out);
    *out = malloc(len + 1);
    if (!*out)
        return false;
    memcpy(*out, text, len);
    (*out)[len] = '\0';
    *out_len = len;
    return true;
}
