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

/* What the template is told of thinking where a conversation does not say it. */
enum thinking_mode {
    THINKING_AUTO, /* on, if the template asks for `enable_thinking` */
    THINKING_ON,
    THINKING_OFF,
};

/* From a conversation to token ids: the model's own template rendered once, its own tokenizer run
 * once. Workers share it: what changes is only the memory that its calls lend each other. */
struct prompt_maker {
    struct tokenizer *tokenizer;
    struct chat_defaults chat;           /* what the model's files say: templates, sampling */
    struct chat_template *chat_template; /* NULL: the model has none that can be used */
    char template_problem[320]; /* then why: "the model has no chat template", or what is wrong */
    struct template_traits traits; /* what it takes */
    struct answer_style style;     /* how the model writes thinking and calls */
    enum thinking_mode thinking;   /* set it with prompt_maker_set_thinking */
    bool adds_bos;                 /* the model wants its BOS before every text */
    struct idle_pool *drafts;
    /* The same with the model's template for tools, where it has one of its own; NULL: not. The
     * tokenizer is the one above. */
    struct prompt_maker *with_tools;
};

/* Owns the tokenizer and what is in `chat` from here on, also when it fails; `template_path`
 * replaces the model's own template, NULL keeps it. */
int prompt_maker_open(struct prompt_maker *p, struct tokenizer *tokenizer,
                      struct chat_defaults *chat, const char *template_path, struct error *err);
/* The same without a model file, for the mock engine. */
int prompt_maker_open_bytes(struct prompt_maker *p, const char *template_path, struct error *err);
void prompt_maker_close(struct prompt_maker *p);
void prompt_maker_set_thinking(struct prompt_maker *p, enum thinking_mode mode);

/* The one that a conversation is rendered with, and that knows how its answer is written. The calls
 * below find it themselves. */
const struct prompt_maker *prompt_maker_for(const struct prompt_maker *p,
                                            const struct tool_set *tools);

/* The names of variables that `extra` must not give, because the renderer trusts them: "messages"
 * and what ends in "_token". */
bool prompt_owns_name(const char *name, size_t len);

/* Adds a message in OpenAI's form to the array of a conversation. */
void message_append(struct arena *arena, struct json *messages, const char *role, const char *text,
                    size_t len);

/* A conversation to be rendered. Zero what is not wanted. */
struct prompt_input {
    const struct json *messages;  /* an array in OpenAI's form */
    const struct tool_set *tools; /* that may be called; NULL: none */
    /* An object whose members the template sees as variables, or NULL. Where it does not say so,
     * add_generation_prompt is true, and enable_thinking is as the maker's `thinking` has it. */
    const struct json *extra;
    bool continues; /* the last message, the assistant's, is the beginning of the answer */
    /* Where answers of earlier turns have their sampled ids; NULL: all text is encoded. */
    struct replay_store *replay;
    uint64_t ns;   /* whose answers: those of other namespaces are not seen */
    bool want_map; /* who wrote each token is asked for */
    /* A rendering of more bytes is not encoded, since that may take seconds: the prompt then has
     * no tokens. 0: no limit. */
    size_t most_bytes;
    int64_t now_unix; /* what strftime_now sees; 0: the local clock */
};

/* Why the sampled ids of an answer went into the prompt no further. */
enum replay_stop {
    REPLAY_COMPLETE,  /* they all did */
    REPLAY_ENDED,     /* all but its end token, which is not rendered, or as another */
    REPLAY_TRIMMED,   /* white space that was sampled is not rendered */
    REPLAY_STRIPPED,  /* text that was sampled here, such as thinking, is left out */
    REPLAY_SHORTENED, /* the message ends before the answer did */
    REPLAY_REWRITTEN, /* the message reads differently from there on */
};

const char *replay_stop_name(enum replay_stop stop); /* "complete", "trimmed", ... */

/* An answer that was found for an assistant's message. */
struct prompt_replay {
    int32_t message;            /* its index */
    enum replay_stop stop;      /* why it ended */
    size_t first_token;         /* in the prompt */
    size_t n_tokens, n_sampled; /* the answer's ids that are in the prompt, and all of them */
    size_t n_bytes; /* of the answer's text that these ids are, special tokens spelled */
};

/* Tokens up to `token_end` whose first byte has the same source, an enum render_source: the runs
 * cover the prompt. */
struct prompt_run {
    size_t token_end;
    int32_t source;
};

struct prompt {
    struct token_list tokens;
    size_t text_bytes;           /* of a conversation's rendering */
    struct prompt_digest digest; /* of the rendering, for replay_store_add; needs `replay` */
    size_t n_replayed;           /* tokens that came from the store */
    bool ends_in_thinking;       /* what comes next is thinking, not the answer proper */
    struct prompt_replay *replays;
    size_t n_replays;
    struct prompt_run *map; /* NULL unless it was asked for */
    size_t n_map;
};

/* Makes the prompt of a conversation. `out` is written whole; after an error there is nothing in
 * it to free.
 *
 * Only what the template itself wrote can become a special token: a message that spells one out
 * stays text. The model's BOS comes first once, whether the template writes it or not. With
 * `replay`, the assistant's messages become the ids that were sampled for them as far as the
 * bytes agree with what the template renders; the text of the prompt is the same without it, but
 * for the space that SentencePiece puts before a text.
 * In steady state it allocates the arrays of `out` and nothing else, and its time is that of a
 * rendering and of a look at each word.
 * ERROR_FORMAT: the model has no template; ERROR_INPUT and ERROR_LIMIT: the conversation or
 * `extra` is not what the template takes. */
int prompt_maker_chat(const struct prompt_maker *p, const struct prompt_input *in,
                      struct prompt *out, struct error *err);
void prompt_free(struct prompt *p);

/* The text of the same, appended to `out`. */
int prompt_maker_render(const struct prompt_maker *p, const struct prompt_input *in,
                        struct strbuf *out, struct error *err);
/* The tokens of a text to be continued, with what the model wants before one; text that spells a
 * special token becomes that token. */
int prompt_maker_text(const struct prompt_maker *p, const char *text, size_t len,
                      struct prompt *out, struct error *err);

#endif
