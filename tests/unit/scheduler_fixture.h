#ifndef RADISH_TEST_SCHEDULER_FIXTURE_H
#define RADISH_TEST_SCHEDULER_FIXTURE_H

#include "engine/mock/mock_engine.h"
#include "sched/scheduler.h"

/* A scheduler on a mock engine, clients that collect what they get, and a plain run of the same
 * request, alone and without a cache, to compare with. */
enum { FIXTURE_VOCAB = 64, FIXTURE_END = 63, FIXTURE_MAX_TOKENS = 512 };

struct fixture {
    struct engine *engine;
    struct scheduler *scheduler;
    struct mock_options mock; /* of the engine */
    int n_notified;           /* atomically, where threads run */
};

struct fixture_options {
    uint32_t n_pages, max_rows, max_seqs, max_waiting, max_length, step_budget_ms;
    uint32_t n_window_pages; /* where the mock has a window */
    uint32_t n_state_pages;  /* where it has a state */
    uint32_t state_interval, max_image_rows, max_images;
    uint64_t cache_ttl_ns;
    uint32_t tenant_pages;
    struct mock_options mock; /* n_vocab and end_token are filled in */
};

/* The table of the fixture's vocabulary: token i is the letter 'a' + i % 26, every fifth twice. */
struct token_table fixture_table(void);
struct fixture_options fixture_defaults(void);
/* A window in group 1; 0: none. */
void mock_set_window(struct mock_options *mock, uint32_t w);
/* A state, in one more group. */
void mock_add_state(struct mock_options *mock, uint32_t grain);
void fixture_open(struct fixture *f, const struct fixture_options *options);
void fixture_close(struct fixture *f);

struct client {
    struct request request;
    uint64_t *prompt;
    int32_t got[FIXTURE_MAX_TOKENS];
    uint32_t n_got, n_started, n_done;
    enum finish_reason finish;
    uint64_t text_end;
    struct token_logprobs *logprobs; /* [FIXTURE_MAX_TOKENS] of `got`, if asked for */
};

/* The prompt is copied; greedy, ends at the end token. */
struct client *client_make(const int32_t *prompt, uint32_t n, uint32_t max_tokens);
struct client *client_make_text(const char *prompt, uint32_t max_tokens);
void client_ids(const struct client *c, int32_t *out, uint32_t n); /* how its prompt begins */
void client_free(struct client *c);
/* Asks for log probabilities of the answer, of the prompt, or both. */
void client_ask_logprobs(struct client *c, bool of_answer, bool of_prompt, uint32_t n_top);
void client_submit(struct fixture *f, struct client *c);
/* Reads at most `most` events; returns how many there were. Checks their order. */
uint32_t client_read(struct fixture *f, struct client *c, uint32_t most);

/* Steps and reads until there is nothing to do. */
void fixture_run(struct fixture *f, struct client **clients, uint32_t n);
struct scheduler_stats fixture_stats(struct fixture *f);

/* A filter with its own rule: what it allows depends on its seed and on how many tokens it has
 * accepted; sometimes it allows anything. A slow one pauses before its masks, as many times as the
 * same rule says. It records whether the scheduler follows the contract. */
struct script_filter {
    struct token_filter filter;
    uint64_t seed;
    uint32_t end_at;     /* the answer is complete after this many tokens; 0: never */
    uint32_t n_in_all;   /* tokens that the answer may have */
    bool has_ends;       /* the end token is allowed from the start */
    uint32_t most_tries; /* calls of make until a mask is there, at most; 0: one */
    uint32_t n_tries;    /* so far, for the next mask */
    uint32_t n_pauses, n_drops;
    uint32_t n_accepted; /* and what it was told: */
    uint32_t n_asked;
    int32_t accepted[FIXTURE_MAX_TOKENS];
    uint32_t n_wrong; /* times that a token was not in the mask, or n_left was wrong */
    bool is_asked;    /* since the last token */
    uint64_t mask;
};

/* `limit` bounds the length of the sequence, as in plain_run. */
void script_set(struct script_filter *f, uint64_t seed, struct client *c, uint32_t limit);
/* Forgets the answer. */
void script_reset(struct script_filter *f);
/* The filter that has paused; NULL: none. Only one can. */
const struct script_filter *script_paused(void);

/* The result of the request when it runs alone, on an engine with the window of the last opened
 * fixture; tokens go to `out` ([FIXTURE_MAX_TOKENS]). */
struct plain_run {
    uint32_t n_tokens;
    enum finish_reason finish;
    uint64_t text_end;
};
struct plain_run plain_run(const struct request *r, uint32_t limit, int32_t *out);
/* Fails the test unless the requested log probabilities are those of the client's tokens. Those of
 * a prompt are checked once the answer has begun or ended normally. */
void check_logprobs(const struct client *c, uint32_t limit);
/* Fails the test unless the client got exactly the result of the plain run. */
void check_answer(const struct client *c, uint32_t limit);
/* The same for an answer that was cut off: it must be a prefix of the plain one. */
void check_beginning(const struct client *c, uint32_t limit);

#endif
