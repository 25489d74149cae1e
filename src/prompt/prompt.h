#ifndef RADISH_PROMPT_PROMPT_H
#define RADISH_PROMPT_PROMPT_H

#include "base/error.h"
#include "base/idle_pool.h"
#include "base/json.h"
#include "prompt/answer/answer_style.h"
#include "prompt/answer/tool_set.h"
#include "prompt/jinja/chat_template.h"
#include "prompt/jinja/template_traits.h"
#include "prompt/replay_store.h"
#include "prompt/tokenizer/chat_defaults.h"
#include "prompt/tokenizer/tokenizer.h"

/* prompt/ turns conversations into token ids and reuses the ids of earlier answers. Its rooms,
 * from the bottom: unicode; tokenizer, jinja and grammar; schema; answer. */

/* What the template is told about thinking if the request does not set it. */
enum thinking_mode {
    THINKING_AUTO, /* on, if the template reads `enable_thinking` */
    THINKING_ON,
    THINKING_OFF,
};

/* From a conversation to token ids: renders the model's template once and runs its tokenizer once.
 * Workers share it; only its pool of scratch memory changes. */
struct prompt_maker {
    struct tokenizer *tokenizer;
    struct chat_defaults chat;           /* what the model's files say: templates, sampling */
    struct chat_template *chat_template; /* NULL: the model has no usable one */
    char template_problem[320];    /* then why: "the model has no chat template", or its error */
    struct template_traits traits; /* what it takes */
    struct answer_style style;     /* how the model writes thinking and calls */
    enum thinking_mode thinking;   /* set by prompt_maker_set_thinking */
    bool needs_functions;          /* the template fails without a variable `functions` */
    bool adds_bos;                 /* the model wants its BOS before every text */
    struct idle_pool *drafts;
    /* The maker for conversations with tools, if the model has a separate template for them, or
     * NULL. It uses the same tokenizer. */
    struct prompt_maker *with_tools;
};

/* Takes ownership of the tokenizer and the contents of `chat`, even if it fails. `template_path`
 * replaces the model's own template; NULL keeps it. */
int prompt_maker_open(struct prompt_maker *p, struct tokenizer *tokenizer,
                      struct chat_defaults *chat, const char *template_path, struct error *err);
/* The same without a model file, for the mock engine. */
int prompt_maker_open_bytes(struct prompt_maker *p, const char *template_path, struct error *err);
void prompt_maker_close(struct prompt_maker *p);
void prompt_maker_set_thinking(struct prompt_maker *p, enum thinking_mode mode);

/* The maker that renders a conversation with these tools and knows the format of its answer. The
 * functions below choose it themselves. */
const struct prompt_maker *prompt_maker_for(const struct prompt_maker *p,
                                            const struct tool_set *tools);

/* Variable names that `extra` must not set, because the renderer trusts them: "messages" and names
 * that end in "_token". */
bool prompt_owns_name(const char *name, size_t len);

/* Adds a message in OpenAI's form to the array of a conversation. */
void message_append(struct arena *arena, struct json *messages, const char *role, const char *text,
                    size_t len);

/* A conversation to render. Leave unused members zero. */
struct prompt_input {
    const struct json *messages;  /* an array in OpenAI's form */
    const struct tool_set *tools; /* that may be called; NULL: none */
    /* An object whose members the template sees as variables, or NULL. By default
     * add_generation_prompt is true, and enable_thinking follows the maker's `thinking`. */
    const struct json *extra;
    bool continues; /* the last message, the assistant's, is the start of the answer */
    /* The sampled ids of earlier answers; NULL: all text is encoded. */
    struct replay_store *replay;
    uint64_t ns;   /* namespace: answers of others are not seen */
    bool want_map; /* also return who wrote each token */
    /* A longer rendering is not encoded, because that may take seconds; the prompt then has no
     * tokens. 0: no limit. */
    size_t most_bytes;
    int64_t now_unix; /* what strftime_now and the date variables see; 0: the local clock */
};

/* Why the replay of an answer's sampled ids stopped. */
enum replay_stop {
    REPLAY_COMPLETE,  /* all ids are in the prompt */
    REPLAY_ENDED,     /* all but the end token, which is not rendered, or rendered as another one */
    REPLAY_TRIMMED,   /* sampled white space is not rendered */
    REPLAY_STRIPPED,  /* sampled text, such as thinking, is not rendered */
    REPLAY_SHORTENED, /* the message ends before the answer did */
    REPLAY_REWRITTEN, /* the message differs from there on */
};

const char *replay_stop_name(enum replay_stop stop); /* "complete", "trimmed", ... */

/* An answer that was found for an assistant's message. */
struct prompt_replay {
    int32_t message;            /* its index */
    enum replay_stop stop;      /* why it ended */
    size_t first_token;         /* in the prompt */
    size_t n_tokens, n_sampled; /* the answer's ids that are in the prompt, and all of them */
    size_t n_bytes; /* of the answer's text in these ids, with special tokens spelled out */
};

/* Tokens up to `token_end` whose first byte has the same source, an enum render_source. The runs
 * cover the whole prompt. */
struct prompt_run {
    size_t token_end;
    int32_t source;
};

struct prompt {
    struct token_list tokens;
    size_t text_bytes;           /* of a conversation's rendering */
    struct prompt_digest digest; /* of the rendering, for replay_store_add; needs `replay` */
    size_t n_replayed;           /* tokens that came from the store */
    bool ends_in_thinking;       /* thinking comes next, not the answer itself */
    struct prompt_replay *replays;
    size_t n_replays;
    struct prompt_run *map; /* NULL unless requested */
    size_t n_map;
};

/* Makes the prompt of a conversation and overwrites `out`; after an error it holds nothing to free.
 *
 * Only text from the template can become special tokens: a message that spells one stays text. The
 * model's BOS comes first, exactly once, whether or not the template writes it. With `replay`, the
 * assistant's messages become the ids that were sampled for them, as far as their bytes match the
 * rendering. The text of the prompt is the same with and without `replay`, except for the space
 * that SentencePiece puts before a text. In steady state it allocates only the arrays of `out`.
 * ERROR_FORMAT: the model has no template; ERROR_INPUT and ERROR_LIMIT: the template rejects the
 * conversation or `extra`. */
int prompt_maker_chat(const struct prompt_maker *p, const struct prompt_input *in,
                      struct prompt *out, struct error *err);
void prompt_free(struct prompt *p);

/* Appends the text of that prompt to `out`. */
int prompt_maker_render(const struct prompt_maker *p, const struct prompt_input *in,
                        struct strbuf *out, struct error *err);
/* The tokens of a text to continue, with the model's BOS if it needs one. Text that spells a
 * special token becomes that token. */
int prompt_maker_text(const struct prompt_maker *p, const char *text, size_t len,
                      struct prompt *out, struct error *err);

#endif
