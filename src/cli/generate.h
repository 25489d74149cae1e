#ifndef RADISH_CLI_GENERATE_H
#define RADISH_CLI_GENERATE_H

#include "cli/runtime.h"
#include "prompt/grammar/grammar.h"
#include "sched/scheduler.h"

/* Answers in a terminal: the server's scheduler and cache, driven from this process. */
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
    uint32_t max_tokens; /* 0: what is left of the context */
    struct sampling sampling;
    /* Called with each piece of whole UTF-8 text. */
    void (*on_text)(void *context, const char *text, size_t len);
    void *context;
    struct token_list *sampled; /* the answer's ids are added to it; NULL: nobody asks */

    /* What came of it. */
    enum finish_reason finish;
    uint32_t n_cached, n_generated;
    double first_token_ms, total_ms;
};

int generator_open(struct generator *g, struct runtime *runtime, struct error *err);
void generator_close(struct generator *g);
/* Runs to the end, or until SIGINT, which ends this answer and not the program. */
int generator_run(struct generator *g, struct generation *generation, struct error *err);

/* What answers are sampled with: the options below, else what the model's files say, else the usual
 * values. The same for chat, run and, where a request names none, the server. Without --seed it has
 * a new random seed at each call. */
struct sampling generate_sampling(const struct prompt_maker *prompt);
/* The settings that the options name. */
struct sampling_defaults generate_options_sampling(void);
/* Whether --seed was given. */
bool generate_is_seeded(void);
/* An error that says what to do, if the model has no chat template that can be used. */
int generate_check_template(const struct prompt_maker *prompt, const char *otherwise,
                            struct error *err);
extern uint32_t generate_max_tokens; /* 0: what is left of the context */
extern const struct option generate_options[];

#endif
