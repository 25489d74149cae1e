/* Drives a scheduler through a trace on this thread; see replay.h. Answers use tokens that no
 * prompt contains, so the cache finds only what prompts share. */
#include "cli/replay.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "engine/mock/mock_engine.h"

enum {
    VOCABULARY = 16,      /* for answers; prompts use the ids above it */
    MAX_ROWS = 1 << 15,   /* per batch, so that a long prompt takes few steps */
    DECODE_PAGES = 128,   /* that a running sequence may hold beyond its tokens */
    STEP_BUDGET_MS = 500, /* the engine costs nothing: rows limit a step, not time */
    PROGRESS_EVERY_NS = 100 * 1000 * 1000,
};

struct client {
    struct request request;
    uint64_t *tokens; /* [longest prompt] */
    bool is_busy;
};

struct replay {
    const struct trace *trace;
    const struct replay_options *options;
    struct replay_result *result;
    struct engine *engine;
    struct scheduler *scheduler;
    struct client *clients; /* [n_clients] */
    size_t n_sent, n_done;
    uint64_t n_decoded; /* answer rows computed: all their tokens but the last */
    uint64_t progress_at_ns;
};

static uint32_t longest_prompt(const struct trace *t)
{
    uint32_t longest = 0;
    for (size_t i = 0; i < t->n_requests; i++)
        if (t->requests[i].n_input > longest)
            longest = t->requests[i].n_input;
    return longest;
}

int replay_pages(const struct trace *t, const struct trace_ideal *ideal,
                 const struct replay_options *options, uint32_t *n_pages, struct error *err)
{
    uint64_t n = ideal->distinct + (uint64_t)options->n_clients * DECODE_PAGES;
    for (size_t i = 0; i < t->n_requests; i++)
        n += min_u32(t->requests[i].n_output, options->max_output);
    if (n > SCHEDULER_MAX_PAGES)
        return error_set(err, ERROR_LIMIT,
                         "the whole trace takes %" PRIu64
                         " tokens of cache, but the limit is %d: set a "
                         "smaller cache with --pages",
                         n, SCHEDULER_MAX_PAGES);
    *n_pages = (uint32_t)n;
    return 0;
}

static int replay_open(struct replay *r, struct error *err)
{
    const struct replay_options *options = r->options;
    uint32_t longest = longest_prompt(r->trace);
    struct engine_limits limits = {
        .n_pages = {options->n_pages},
        .max_rows = MAX_ROWS,
        .max_seqs = options->n_clients,
        .max_length = longest + options->max_output + 1,
    };
    struct mock_options mock = {
        .n_vocab = VOCABULARY, .n_tokens = INT32_MAX, .fail_token = -1, .end_token = -1};
    r->clients = calloc(options->n_clients, sizeof *r->clients);
    for (uint32_t i = 0; r->clients && i < options->n_clients; i++) {
        r->clients[i].tokens = malloc(longest * sizeof *r->clients[i].tokens);
        if (!r->clients[i].tokens)
            return error_set(err, ERROR_MEMORY, "no memory for prompts of %u tokens", longest);
    }
    if (!r->clients)
        return error_set(err, ERROR_MEMORY, "no memory for %u clients", options->n_clients);
    if (mock_engine_open(&r->engine, &mock, &limits, err))
        return -1;
    struct scheduler_options scheduler = {
        .engine = r->engine,
        .max_seqs = options->n_clients,
        .max_length = limits.max_length,
        .step_budget_ms = STEP_BUDGET_MS,
        .op_times = &r->result->times,
    };
    return scheduler_open(&r->scheduler, &scheduler, err);
}

static void replay_close(struct replay *r)
{
    scheduler_close(r->scheduler);
    engine_close(r->engine);
    for (uint32_t i = 0; r->clients && i < r->options->n_clients; i++)
        free(r->clients[i].tokens);
    free(r->clients);
}

/* Sends the client's next request; skips those that can never fit. */
static int client_send(struct replay *r, struct client *c, struct error *err)
{
    const struct trace *t = r->trace;
    while (!c->is_busy && r->n_sent < t->n_requests) {
        const struct trace_request *next = &t->requests[r->n_sent++];
        trace_tokens(t, next, VOCABULARY, c->tokens);
        c->request = (struct request){
            .tokens = c->tokens,
            .n_tokens = next->n_input,
            .max_tokens = min_u32(next->n_output, r->options->max_output),
            .sampling = SAMPLING_DEFAULT,
        };
        c->request.sampling.temperature = 0;
        enum submit_result submitted = scheduler_submit(r->scheduler, &c->request);
        c->is_busy = submitted == SUBMIT_OK;
        if (submitted == SUBMIT_FULL) { /* out of memory: each client has a slot in the queue */
            *err = c->request.error;
            return -1;
        }
        if (submitted == SUBMIT_TOO_LONG) {
            r->result->n_refused++;
            r->result->asked += next->n_input;
            r->n_done++;
        }
    }
    return 0;
}

/* Reads the client's pending events. */
static int client_read(struct replay *r, struct client *c, struct error *err)
{
    struct sched_event event;
    while (c->is_busy && scheduler_next_event(r->scheduler, &c->request, &event)) {
        if (event.type != EVENT_DONE)
            continue;
        if (event.finish == FINISH_ERROR) {
            *err = c->request.error;
            return -1;
        }
        r->result->asked += c->request.n_tokens;
        r->result->hit += c->request.prompt_cached;
        r->result->generated += c->request.n_generated;
        r->n_decoded += c->request.n_generated ? c->request.n_generated - 1 : 0;
        r->n_done++;
        c->is_busy = false;
    }
    return 0;
}

static void progress_tell(struct replay *r)
{
    if (!r->options->progress || clock_now_ns() < r->progress_at_ns)
        return;
    r->progress_at_ns = clock_now_ns() + PROGRESS_EVERY_NS;
    r->options->progress(r->trace, r->n_done, r->result->asked, r->result->hit);
}

static int replay_drive(struct replay *r, struct error *err)
{
    uint32_t n_clients = r->options->n_clients;
    for (;;) {
        for (uint32_t i = 0; i < n_clients; i++)
            if (client_send(r, &r->clients[i], err))
                return -1;
        if (r->n_done == r->trace->n_requests)
            return 0;
        bool worked = scheduler_step(r->scheduler);
        assert(worked);
        (void)worked;
        r->result->steps++;
        for (uint32_t i = 0; i < n_clients; i++)
            if (client_read(r, &r->clients[i], err))
                return -1;
        progress_tell(r);
    }
}

int replay_run(const struct trace *t, const struct replay_options *options,
               struct replay_result *out, struct error *err)
{
    *out = (struct replay_result){.n_pages = options->n_pages};
    struct replay r = {.trace = t, .options = options, .result = out};
    int failed = replay_open(&r, err);
    if (!failed) {
        uint64_t start_ns = clock_now_ns();
        failed = replay_drive(&r, err);
        out->seconds = (double)(clock_now_ns() - start_ns) / 1e9;
        scheduler_read_stats(r.scheduler, &out->stats);
        out->computed = out->stats.rows - r.n_decoded;
    }
    replay_close(&r);
    return failed;
}
