/* Drives the scheduler for one answer at a time and shows its text. The main thread sleeps on an
 * eventfd that the scheduler writes to; SIGINT also writes to it and cancels the request. */
#include "cli/generate.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/terminal/terminal.h"
#include "prompt/answer/answer_filter.h"
#include "prompt/token_table.h"
#include "prompt/unicode/token_text.h"

/* Sampling options; NaN and -1 mean not given. */
static struct {
    float temperature, top_p, min_p, repeat, presence, frequency;
    int32_t top_k;
} asked = {NAN, NAN, NAN, NAN, NAN, NAN, -1};
static struct seed seed;
static const char *const thinking_names[] = {"auto", "on", "off", NULL}; /* in enum order */
uint32_t generate_max_tokens;

const struct option generate_options[] = {
    COUNT(
        "max-tokens n n-predict predict default-max-tokens", &generate_max_tokens, "N", 1, NO_MAX,
        "longest answer in tokens if a request does not say (default -1: the rest of the context)"),
    FLOAT("temp temperature", &asked.temperature, "X", 0, 2,
          "randomness; 0 always takes the most likely token (default: the model's, or 0.8)"),
    COUNT("top-k", &asked.top_k, "N", 0, NO_MAX,
          "sample from the N most likely tokens; 0 or -1: all (default: the model's, or 40)"),
    FLOAT("top-p", &asked.top_p, "X", 0, 1,
          "sample from the most likely tokens that add up to X; 1: all (default: the model's, or "
          "0.95)"),
    FLOAT(
        "min-p", &asked.min_p, "X", 0, 1,
        "drop tokens below X times the best probability; 0: none (default: the model's, or 0.05)"),
    FLOAT("repeat-penalty repetition-penalty", &asked.repeat, "X", 0.01, 10,
          "above 1 makes recent tokens less likely (default: the model's, or 1)"),
    FLOAT("presence-penalty", &asked.presence, "X", -2, 2,
          "above 0 makes tokens that are already in the answer less likely (default 0)"),
    FLOAT("frequency-penalty", &asked.frequency, "X", -2, 2,
          "like --presence-penalty, but multiplied by how often the token occurred (default 0)"),
    SEED("seed s", &seed, "N",
         "random seed; the same seed repeats an answer (default -1: a new seed each time)"),
    CHOICE("thinking reasoning", &runtime_options.thinking, "MODE", thinking_names,
           "whether the model thinks before it answers: on, off, auto (default: on if it can)"),
    {0},
};

struct sampling_defaults generate_options_sampling(void)
{
    struct sampling_defaults d = {
        .values = {[SAMPLE_TEMPERATURE] = asked.temperature,
                   [SAMPLE_TOP_P] = asked.top_p,
                   [SAMPLE_TOP_K] = asked.top_k < 0 ? NAN : (float)asked.top_k,
                   [SAMPLE_MIN_P] = asked.min_p,
                   [SAMPLE_REPETITION_PENALTY] = asked.repeat,
                   [SAMPLE_PRESENCE_PENALTY] = asked.presence,
                   [SAMPLE_FREQUENCY_PENALTY] = asked.frequency},
    };
    for (size_t i = 0; i < SAMPLING_SETTINGS; i++)
        d.is_given[i] = !isnan(d.values[i]);
    return d;
}

bool generate_is_seeded(void)
{
    return seed.is_given;
}

struct sampling generate_sampling(const struct prompt_maker *prompt)
{
    struct sampling out = SAMPLING_USUAL;
    const struct sampling_defaults options = generate_options_sampling();
    uint32_t random;
    sampling_defaults_apply(&prompt->chat.sampling, &out);
    sampling_defaults_apply(&options, &out);
    if (seed.is_given)
        out.seed = seed.value;
    else
        out.seed = getrandom(&random, sizeof random, 0) == sizeof random ? random : clock_now_ns();
    return out;
}

int generate_check_template(const struct prompt_maker *prompt, const char *otherwise,
                            struct error *err)
{
    if (prompt->chat_template)
        return 0;
    return error_set(err, ERROR_INPUT, "%s: give one with --chat-template-file FILE%s",
                     prompt->template_problem, otherwise);
}

enum { PROGRESS_MS = 100 };

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t interrupt_fd; /* the generator's wake_fd */

static void wake(int fd)
{
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0)
        return; /* the counter is full, so the reader is already awake */
}

static void interrupt_note(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
    wake(interrupt_fd);
}

static void events_notify(void *context)
{
    const struct generator *g = context;
    wake(g->wake_fd);
}

int generator_open(struct generator *g, struct runtime *runtime, const struct answer_style *marks,
                   struct error *err)
{
    *g = (struct generator){.runtime = runtime, .wake_fd = eventfd(0, EFD_CLOEXEC)};
    if (g->wake_fd < 0)
        return error_set(err, ERROR_IO, "eventfd: %s", strerror(errno));
    if (token_table_make(&g->tokens, runtime->prompt.tokenizer, marks, err) ||
        (runtime->prompt.thinking == THINKING_OFF &&
         token_vocabulary_open(&g->vocabulary, runtime->prompt.tokenizer, err))) {
        generator_close(g);
        return -1;
    }
    struct scheduler_options options = {
        .engine = runtime->engine,
        .tokens = g->tokens,
        .max_seqs = 1,
        .max_waiting = 1,
        .max_length = runtime->context,
        .step_budget_ms = 100,
        .notify = events_notify,
        .notify_context = g,
    };
    if (scheduler_open(&g->scheduler, &options, err) || scheduler_start(g->scheduler, err)) {
        generator_close(g);
        return -1;
    }
    return 0;
}

void generator_close(struct generator *g)
{
    if (g->scheduler)
        scheduler_close(g->scheduler);
    token_table_free(&g->tokens);
    grammar_vocabulary_close(g->vocabulary);
    if (g->wake_fd >= 0)
        close(g->wake_fd);
}

/* Passes on complete text. */
static void text_give(struct token_text *text, const struct generation *generation)
{
    if (text->text.len)
        generation->on_text(generation->context, text->text.data, text->text.len);
    strbuf_clear(&text->text);
}

/* Whether the last tokens are one text several times over. Small models fall into such loops and do
 * not leave them. */
static bool ends_in_loop(const struct token_list *tokens)
{
    enum { LEAST_TOKENS = 384, LEAST_TIMES = 4, EVERY = 32 };
    if (tokens->len % EVERY)
        return false;
    for (size_t period = 1; period * LEAST_TIMES <= tokens->len; period++) {
        size_t span = period * LEAST_TIMES > LEAST_TOKENS ? period * LEAST_TIMES : LEAST_TOKENS;
        if (span > tokens->len)
            return false;
        const int32_t *tail = tokens->ids + tokens->len - span;
        if (memcmp(tail, tail + period, (span - period) * sizeof *tail) == 0)
            return true;
    }
    return false;
}

/* Handles pending events; true after the last one. */
static bool events_take(struct generator *g, struct request *r, struct generation *generation,
                        struct token_text *text)
{
    struct sched_event event;
    while (scheduler_next_event(g->scheduler, r, &event)) {
        if (event.type == EVENT_TOKEN && generation->sampled)
            token_list_add(generation->sampled, event.token);
        if (event.type == EVENT_TOKEN) {
            bool is_known = (uint32_t)event.token < g->tokens.n_tokens;
            token_text_add(text, is_known ? g->tokens.bytes[event.token] : "",
                           is_known ? g->tokens.lengths[event.token] : 0, event.text_end);
            text_give(text, generation);
            if (generation->ends_loops && ends_in_loop(generation->sampled)) {
                generation->is_loop = true;
                scheduler_cancel(g->scheduler, r);
            }
        }
        if (event.type == EVENT_DONE) {
            token_text_end(text, event.text_end);
            text_give(text, generation);
            generation->finish = event.finish;
            return true;
        }
    }
    return false;
}

/* Shows the progress of a long prompt, on a terminal only. The line is erased when the answer
 * starts. */
static void progress_show(const struct request *r, bool *shown)
{
    uint32_t done = atomic_load_explicit(&r->prompt_done, memory_order_relaxed);
    bool reading = done > 0 && done < r->n_tokens;
    if (!terminal_takes_escapes(STDERR_FILENO) || (!reading && !*shown))
        return;
    if (reading)
        fprintf(stderr, "\rreading the prompt: %u of %u tokens", done, r->n_tokens);
    else
        fprintf(stderr, "\r\033[K");
    *shown = reading;
}

static void request_wait(struct generator *g, struct request *r, struct generation *generation,
                         struct token_text *text)
{
    struct sigaction action = {.sa_handler = interrupt_note}, old;
    interrupted = 0;
    interrupt_fd = g->wake_fd;
    sigaction(SIGINT, &action, &old);
    struct pollfd polled[] = {
        {.fd = g->wake_fd, .events = POLLIN},
        {.fd = generation->on_input ? STDIN_FILENO : -1, .events = POLLIN},
    };
    bool shown = false;
    uint64_t count;
    for (;;) {
        int ready = poll(polled, 2, PROGRESS_MS);
        if (ready > 0 && polled[0].revents && read(g->wake_fd, &count, sizeof count) < 0)
            break;
        if (ready > 0 && polled[1].revents && generation->on_input(generation->context)) {
            interrupted = 1;
            if (polled[1].revents & POLLHUP) /* the input has ended */
                polled[1].fd = -1;
        }
        if (interrupted)
            scheduler_cancel(g->scheduler, r);
        progress_show(r, &shown);
        if (events_take(g, r, generation, text))
            break;
    }
    sigaction(SIGINT, &old, NULL);
}

/* True if the prompt ends with the mark that begins thinking. */
static bool ends_in_thinking(const struct prompt_maker *p, const int32_t *ids, uint32_t n)
{
    enum { TAIL = 16 };
    const char *mark = p->style.think_begin;
    struct strbuf text = STRBUF_INIT;
    for (uint32_t i = n > TAIL ? n - TAIL : 0; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(p->tokenizer, ids[i], &len);
        strbuf_add(&text, bytes, len);
    }
    size_t len = text.len, mark_len = mark ? strlen(mark) : 0;
    while (len && strchr(" \t\r\n", text.data[len - 1]))
        len--;
    bool ends = mark_len && len >= mark_len &&
                memcmp(text.data + len - mark_len, mark, mark_len) == 0;
    strbuf_free(&text);
    return ends;
}

/* With --thinking off, a model that starts to think anyway is stopped at once, as in the server. */
static int filter_open(const struct generator *g, struct answer_filter **out, struct error *err)
{
    const struct prompt_maker *p = &g->runtime->prompt;
    struct answer_filter_options options = {
        .style = &p->style,
        .tokenizer = p->tokenizer,
        .vocabulary = g->vocabulary,
        .thinking_tokens = 0,
    };
    *out = NULL;
    if (!g->vocabulary || !answer_filter_is_needed(&options))
        return 0;
    return answer_filter_open(out, &options, err);
}

/* The prompt's tokens for the scheduler. With --thinking off, a thought opened by the template is
 * closed in the prompt, so that the answer does not show its end mark. */
static uint64_t *prompt_tokens(const struct generator *g, const struct generation *generation,
                               uint32_t *n, struct error *err)
{
    const struct prompt_maker *p = &g->runtime->prompt;
    struct token_list end = {0};
    struct strbuf text = STRBUF_INIT;
    if (g->vocabulary && ends_in_thinking(p, generation->prompt, generation->n_prompt)) {
        strbuf_addf(&text, "\n%s\n\n", p->style.think_end);
        if (tokenizer_encode(p->tokenizer, strbuf_str(&text), text.len, TOKENIZE_PARSE_SPECIAL,
                             &end, err)) {
            strbuf_free(&text);
            return NULL;
        }
    }
    strbuf_free(&text);
    *n = generation->n_prompt + (uint32_t)end.len;
    uint64_t *tokens = malloc((size_t)*n * sizeof *tokens);
    if (tokens) {
        cache_tokens_text(generation->prompt, generation->n_prompt, tokens);
        cache_tokens_text(end.ids, (uint32_t)end.len, tokens + generation->n_prompt);
    } else {
        error_set(err, ERROR_MEMORY, "no memory for a request");
    }
    token_list_free(&end);
    return tokens;
}

int generator_run(struct generator *g, struct generation *generation, struct error *err)
{
    uint32_t context = g->runtime->context;
    struct request *r = calloc(1, sizeof *r);
    struct answer_filter *filter = NULL;
    if (!r)
        return error_set(err, ERROR_MEMORY, "no memory for a request");
    uint64_t *tokens = prompt_tokens(g, generation, &r->n_tokens, err);
    if (!tokens || filter_open(g, &filter, err)) {
        free(r);
        free(tokens);
        return -1;
    }
    r->tokens = tokens;
    r->max_tokens = generation->max_tokens ? generation->max_tokens : context;
    r->min_tokens = generation->min_tokens;
    for (; r->n_stops < generation->n_stops && r->n_stops < REQUEST_MAX_STOPS; r->n_stops++)
        r->stops[r->n_stops] = generation->stops[r->n_stops];
    r->ignore_end = generation->ignore_end;
    r->sampling = generation->sampling;
    r->filter = filter ? answer_filter_base(filter) : NULL;
    if (scheduler_submit(g->scheduler, r) != SUBMIT_OK) {
        *err = r->error;
        answer_filter_close(filter);
        free(r);
        free(tokens);
        return -1;
    }
    struct token_text text = {0};
    request_wait(g, r, generation, &text);
    generation->n_cached = r->prompt_cached;
    generation->n_generated = r->n_generated;
    if (r->first_token_ns)
        generation->first_token_ms = (double)(r->first_token_ns - r->submitted_ns) / 1e6;
    generation->total_ms = (double)(r->done_ns - r->submitted_ns) / 1e6;
    int failed = generation->finish == FINISH_ERROR;
    if (failed && err)
        *err = r->error;
    token_text_free(&text);
    answer_filter_close(filter);
    free(r);
    free(tokens);
    return failed ? -1 : 0;
}
