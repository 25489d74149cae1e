#ifndef RADISH_PROMPT_PROMPT_H
#define RADISH_PROMPT_PROMPT_H

#include "base/error.h"
#include "base/json.h"
#include "prompt/chat_template.h"
#include "prompt/tokenizer.h"

/* From a conversation to token ids: the model's own template rendered once, its own tokenizer run
 * once. Read-only once open, so that workers share it. */
struct prompt_maker {
    struct tokenizer *tokenizer;
    struct chat_template *chat_template; /* NULL: the model has none that can be used */
    bool adds_bos;                       /* the model wants its BOS before every text */
};

/* From a model file; `template_path` replaces the file's own template, NULL keeps it. */
int prompt_maker_open(struct prompt_maker *p, const struct gguf *gguf, const char *template_path,
                      struct error *err);
/* The same without a model file, for the mock engine. */
int prompt_maker_open_bytes(struct prompt_maker *p, const char *template_path, struct error *err);
void prompt_maker_close(struct prompt_maker *p);

/* The names of variables that `extra` must not give, because the renderer trusts them: "messages"
 * and what ends in "_token". */
bool prompt_owns_name(const char *name, size_t len);

/* Appends the ids of the rendered conversation to `out`. `messages` is an array in OpenAI's form
 * whose contents are strings; `extra` (may be NULL) is an object whose members the template sees
 * as variables (tools, enable_thinking, ...; add_generation_prompt is true unless it says so).
 * Only what the template itself wrote can become a special token: a message that spells one out
 * stays text. The model's BOS comes first once, whether the template writes it or not.
 * ERROR_FORMAT: the model has no template; ERROR_INPUT and ERROR_LIMIT: the conversation or
 * `extra` is not what the template takes. */
int prompt_maker_chat(const struct prompt_maker *p, const struct json *messages,
                      const struct json *extra, struct token_list *out, struct error *err);

#endif
