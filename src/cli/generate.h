#ifndef RADISH_CLI_GENERATE_H
#define RADISH_CLI_GENERATE_H

#include "cli/runtime.h"
#include "prompt/grammar/grammar.h"
#include "sched/scheduler.h"

/* Answers for `radish chat` and `radish run`: the server's scheduler and cache in this process. */
struct generator {
    struct runtime *runtime;
    struct scheduler *scheduler;
    struct token_table tokens;
    struct grammar_vocabulary *vocabulary; /* with --thinking off; else NULL */
    int wake_fd;                           /* the scheduler writes to it when there are events */
};

struct generation {
    const int32_t *prompt; /* [n_prompt] */
    uint32_t n_prompt;
    uint32_t max_tokens; /* 0: the rest of the context */
    uint32_t min_tokens; /* the answer does not end by itself before this many */
    bool ignore_end;     /* continue past end tokens */
    struct sampling sampling;
    const struct byte_view *stops; /* [n_stops] */
    uint32_t n_stops;
    /* Called with each piece of whole UTF-8 text. */
    void (*on_text)(void *context, const char *text, size_t len);
    /* Called when standard input is readable; true ends the answer. NULL: input is not watched. */
    bool (*on_input)(void *context);
    void *context;
    struct token_list *sampled; /* the answer's ids are added to it, unless NULL */
    bool ends_loops;            /* end an answer that repeats itself; needs `sampled` */

    /* The result. */
    enum finish_reason finish;
    bool is_loop; /* it was ended for that */
    uint32_t n_cached, n_generated;
    double first_token_ms, total_ms;
};

/* `marks`: the style whose thinking markers are part of the text; NULL: control tokens never are.
 */
int generator_open(struct generator *g, struct runtime *runtime, const struct answer_style *marks,
                   struct error *err);
void generator_close(struct generator *g);
/* Runs to the end, or until SIGINT, which ends this answer and not the program. */
int generator_run(struct generator *g, struct generation *generation, struct error *err);

/* The sampling settings: the options below, else those of the model's files, else the defaults.
 * Used by chat, run and, for requests that set none, the server. Without --seed each call returns a
 * new random seed. */
struct sampling generate_sampling(const struct prompt_maker *prompt);
/* The settings that the options name. */
struct sampling_defaults generate_options_sampling(void);
/* Whether --seed was given. */
bool generate_is_seeded(void);
/* Fails, with advice, if the model has no usable chat template. */
int generate_check_template(const struct prompt_maker *prompt, const char *otherwise,
                            struct error *err);
extern uint32_t generate_max_tokens; /* 0: the rest of the context */
extern const struct option generate_options[];

#endif
