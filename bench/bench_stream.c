/* The cost per token of everything around the engine.
 *
 *   bench_stream                                        parts, in this process
 *   bench_stream PORT [STREAMS [TOKENS [ROUNDS [FIELDS]]]]   a server on 127.0.0.1 (default 8 64 5)
 *
 * The parts are timed as the best of many short rounds, so that other work on the machine disturbs
 * little. The client reads raw sockets and only counts events, because it shares the cores with the
 * server. FIELDS are extra members of the request: '"temperature":1,"top_p":0.9'. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/mock/mock_engine.h"
#include "sched/scheduler.h"
#include "sched/stop_matcher.h"
#include "prompt/unicode/token_text.h"
#include "serve/http/http_server.h"
#include "serve/writers/answer_writer.h"

enum {
    VOCAB = 49152,
    ROWS = 8, /* of logits: more than an L1 cache holds, as in a step of 8 streams */
    TOKENS = 2000,
    ROUNDS = 50,
    WAKES = 400,
    MAX_STREAMS = 256,
    BUFFER = 1 << 16,
};

static void die(const char *what)
{
    fprintf(stderr, "bench_stream: %s%s%s\n", what, errno ? ": " : "",
            errno ? strerror(errno) : "");
    exit(1);
}

/* ---- the sampler ---------------------------------------------------------------------------- */

/* Like a model's: a bell curve whose best blocks are 10 below the maximum, and a few values near
 * it. */
static float *logits_make(void)
{
    float *logits = malloc(sizeof *logits * ROWS * VOCAB);
    uint64_t state = 1;
    if (!logits)
        die("no memory");
    for (uint32_t i = 0; i < ROWS * VOCAB; i++) {
        double sum = 0;
        for (int k = 0; k < 6; k++)
            sum += (double)((state = hash_mix(state + 1)) >> 40) / (1 << 24) - 0.5;
        logits[i] = (float)(sum * 5);
    }
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t i = 0; i < 4 + 8 * row; i++)
            logits[row * VOCAB + hash_pair(row, i) % VOCAB] = 21.0f - 0.3f * (float)i;
    return logits;
}

struct sampler_case {
    const char *name;
    struct sampling sampling;
    bool is_masked; /* every second token is allowed */
    uint32_t n_context;
};

enum { CONTEXT = 4096 };

static const struct sampler_case sampler_cases[] = {
    {"greedy", {.top_p = 1}, false, 0},
    {"greedy, half of the tokens masked", {.top_p = 1}, true, 0},
    {"temperature 1", {.temperature = 1, .top_p = 1}, false, 0},
    {"... and top_p 0.9", {.temperature = 1, .top_p = 0.9f}, false, 0},
    {"... and top_k 40", {.temperature = 1, .top_p = 1, .top_k = 40}, false, 0},
    {"... and min_p 0.05", {.temperature = 1, .top_p = 1, .min_p = 0.05f}, false, 0},
    {"... and top_n_sigma 1", {.temperature = 1, .top_p = 1, .top_n_sigma = 1}, false, 0},
    {"... and typical_p 0.9", {.temperature = 1, .top_p = 1, .typical_p = 0.9f}, false, 0},
    {"... and top_k 40, DRY over 4096 tokens",
     {.temperature = 1, .top_p = 1, .top_k = 40, .dry_multiplier = 0.8f, .dry_base = 1.75f},
     false,
     CONTEXT},
};

static uint64_t time_picks(struct sampler *sampler, const float *logits,
                           const struct sampler_input *input)
{
    uint64_t start_ns = clock_now_ns();
    for (uint32_t row = 0; row < ROWS; row++)
        if (sampler_pick(sampler, logits + row * VOCAB, input) < 0)
            die("nothing to pick");
    return clock_now_ns() - start_ns;
}

static uint64_t time_logprobs(struct sampler *sampler, const float *logits)
{
    struct token_logprobs out;
    uint64_t start_ns = clock_now_ns();
    for (uint32_t row = 0; row < ROWS; row++)
        sampler_logprobs(sampler, logits + row * VOCAB, 1, REQUEST_MAX_TOP_LOGPROBS, &out);
    return clock_now_ns() - start_ns;
}

static void bench_sampler(void)
{
    static uint64_t mask[VOCAB / 64 + 1], context[CONTEXT];
    float *logits = logits_make();
    struct sampler *sampler;
    struct error err;
    if (sampler_open(&sampler, VOCAB, CONTEXT, &err))
        die(err.message);
    for (uint32_t i = 0; i < CONTEXT; i++)
        context[i] = hash_mix(i) % 1000;
    memset(mask, 0x55, sizeof mask);
    printf("sampling from %d logits, us a token\n", VOCAB);
    for (size_t c = 0; c < sizeof sampler_cases / sizeof *sampler_cases; c++) {
        struct sampling sampling = sampler_cases[c].sampling;
        struct sampler_input input = {.sampling = &sampling,
                                      .mask = sampler_cases[c].is_masked ? mask : NULL,
                                      .n_tokens = VOCAB,
                                      .context = context,
                                      .n_context = sampler_cases[c].n_context};
        uint64_t best_ns = UINT64_MAX;
        sampling.repetition_penalty = 1;
        for (sampling.seed = 0; sampling.seed < ROUNDS; sampling.seed++) {
            uint64_t took_ns = time_picks(sampler, logits, &input);
            best_ns = took_ns < best_ns ? took_ns : best_ns;
        }
        printf("  %-38s %8.1f\n", sampler_cases[c].name, (double)best_ns / ROWS / 1e3);
    }
    uint64_t best_ns = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t took_ns = time_logprobs(sampler, logits);
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    printf("  %-38s %8.1f\n", "log probabilities of the 20 best", (double)best_ns / ROWS / 1e3);
    sampler_close(sampler);
    free(logits);
}

/* ---- from a token to its socket ------------------------------------------------------------- */

static const char *const words[] = {" the", " river", " ran", "\n",   " \"old\"", " mill",
                                    ",",    " Gr",    "\xc3", "\xbc", "ne",       "."};
enum { N_WORDS = sizeof words / sizeof *words };

/* Adds the text of a token and searches it for two stop strings. */
static void text_next(struct token_text *text, struct stop_matcher *stops, uint32_t token)
{
    const char *word = words[token % N_WORDS];
    uint32_t len = (uint32_t)strlen(word);
    strbuf_clear(&text->text);
    stop_matcher_feed(stops, word, len);
    token_text_add(text, word, len, stops->text_end);
}

static void drain(int fd)
{
    static char buffer[BUFFER];
    while (recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0)
        continue;
}

struct piece {
    const char *name;
    uint64_t best_ns; /* for a round of TOKENS */
};

static void piece_note(struct piece *p, uint64_t took_ns)
{
    if (p->best_ns == 0 || took_ns < p->best_ns)
        p->best_ns = took_ns;
}

static void bench_pieces(void)
{
    struct piece pieces[] = {{"text, with 2 stop strings", 0}, {"SSE event", 0}, {"write", 0}};
    struct byte_view strings[] = {{"\n\nUser:", 7}, {"</answer>", 9}};
    struct answer_head head = {.id = "chatcmpl-0123456789abcdef01234567",
                               .model = "a-model-of-some-size",
                               .fingerprint = "fp_0123456789abcdef",
                               .created = 1700000000};
    struct answer_content content = {0};
    struct stop_matcher stops;
    struct token_text text = {0};
    struct strbuf events = STRBUF_INIT;
    struct error err;
    int fds[2];
    if (stop_matcher_open(&stops, strings, 2, &err))
        die(err.message);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
        die("socketpair");
    void *stream = chat_writer.open(&head);
    if (!stream)
        die("no memory");
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t start_ns = clock_now_ns();
        for (uint32_t i = 0; i < TOKENS; i++)
            text_next(&text, &stops, i);
        uint64_t text_ns = clock_now_ns();
        for (uint32_t i = 0; i < TOKENS; i++) {
            strbuf_clear(&events);
            chat_writer.text(stream, &events, &content, words[i % N_WORDS],
                             strlen(words[i % N_WORDS]));
        }
        uint64_t sse_ns = clock_now_ns(), write_ns = 0;
        for (uint32_t i = 0; i < TOKENS; i++) {
            uint64_t before_ns = clock_now_ns();
            if (send(fds[0], events.data, events.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                die("send");
            write_ns += clock_now_ns() - before_ns;
            drain(fds[1]);
        }
        piece_note(&pieces[0], text_ns - start_ns);
        piece_note(&pieces[1], sse_ns - text_ns);
        piece_note(&pieces[2], write_ns);
    }
    uint64_t sum_ns = 0;
    printf("from a token to its socket (a socketpair), ns a token\n");
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        printf("  %-34s %8.0f\n", pieces[i].name, (double)pieces[i].best_ns / TOKENS);
        sum_ns += pieces[i].best_ns;
    }
    printf("  %-34s %8.0f\n", "together", (double)sum_ns / TOKENS);
    chat_writer.close(stream);
    stop_matcher_close(&stops);
    token_text_free(&text);
    strbuf_free(&events);
    close(fds[0]);
    close(fds[1]);
}

/* ---- the same over HTTP --------------------------------------------------------------------- */

static void ignore(void *context, struct http_exchange *x)
{
    (void)context, (void)x;
}

static void on_request(void *context, struct http_exchange *x)
{
    *(struct http_exchange **)context = x;
    http_stream_begin(x, "text/event-stream");
}

static void on_refused(void *context, struct http_exchange *x, int status, const char *message)
{
    (void)context;
    http_reply(x, status, "text/plain", message, strlen(message));
}

static void on_drained(void *context)
{
    (void)context;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        die("connect");
    return fd;
}

static void bench_http(void)
{
    static const char get[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    struct http_exchange *x = NULL;
    struct http_server *server;
    struct error err;
    struct http_options options = {.host = "127.0.0.1",
                                   .max_connections = 8,
                                   .max_header_bytes = 4096,
                                   .max_body_bytes = 4096,
                                   .max_bodies_bytes = 4096};
    struct http_handler handler = {&x, ignore, on_request, on_refused, ignore, ignore, on_drained};
    struct event_base *base = event_base_new();
    if (!base || http_server_open(&server, base, &options, &handler, &err))
        die("http_server_open");
    int fd = connect_to((uint16_t)atoi(strrchr(http_server_url(server), ':') + 1));
    if (send(fd, get, sizeof get - 1, 0) < 0)
        die("send");
    while (!x)
        event_base_loop(base, EVLOOP_ONCE);
    char event[220];
    memset(event, 'x', sizeof event);
    uint64_t best_ns = UINT64_MAX;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t write_ns = 0;
        for (uint32_t i = 0; i < TOKENS; i++) {
            uint64_t before_ns = clock_now_ns();
            http_stream_write(x, event, sizeof event);
            http_stream_flush(x);
            write_ns += clock_now_ns() - before_ns;
            drain(fd);
        }
        best_ns = write_ns < best_ns ? write_ns : best_ns;
    }
    printf("  %-34s %8.0f\n", "write as HTTP over TCP, loopback", (double)best_ns / TOKENS);
    close(fd);
    http_server_close(server);
    event_base_free(base);
}

/* ---- waking the scheduler ------------------------------------------------------------------- */

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_spread(const char *name, uint64_t *ns, uint32_t n)
{
    qsort(ns, n, sizeof *ns, compare_u64);
    printf("  %-34s %8.1f  p99 %8.1f\n", name, (double)ns[n / 2] / 1e3,
           (double)ns[n - 1 - n / 100] / 1e3);
}

struct bell {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    uint32_t count;
};

static void bell_ring(void *context)
{
    struct bell *bell = context;
    pthread_mutex_lock(&bell->mutex);
    bell->count++;
    pthread_cond_signal(&bell->condition);
    pthread_mutex_unlock(&bell->mutex);
}

static void bell_wait(struct bell *bell)
{
    pthread_mutex_lock(&bell->mutex);
    while (bell->count == 0)
        pthread_cond_wait(&bell->condition, &bell->mutex);
    bell->count = 0;
    pthread_mutex_unlock(&bell->mutex);
}

/* A one-token request to a sleeping scheduler, with an engine that takes no time. */
static void bench_wake(void)
{
    enum { WORDS_OF_MOCK = 64 };
    static uint32_t lengths[WORDS_OF_MOCK];
    static const char *bytes[WORDS_OF_MOCK];
    static bool is_end[WORDS_OF_MOCK];
    static uint64_t work_ns[WAKES], back_ns[WAKES];
    struct bell bell = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct mock_options mock = {.n_vocab = WORDS_OF_MOCK, .fail_token = -1, .end_token = -1};
    struct engine_limits limits = {
        .n_pages = {1024}, .max_rows = 64, .max_seqs = 4, .max_length = 256};
    struct scheduler_options options = {.tokens = {WORDS_OF_MOCK, bytes, lengths, is_end},
                                        .max_seqs = 4,
                                        .max_waiting = 4,
                                        .max_length = 256,
                                        .step_budget_ms = 50,
                                        .notify = bell_ring,
                                        .notify_context = &bell};
    struct scheduler *scheduler;
    struct error err;
    for (uint32_t i = 0; i < WORDS_OF_MOCK; i++)
        bytes[i] = "a";
    if (mock_engine_open(&options.engine, &mock, &limits, &err) ||
        scheduler_open(&scheduler, &options, &err) || scheduler_start(scheduler, &err))
        die(err.message);
    static struct request request;
    for (uint32_t i = 0; i < WAKES; i++) {
        uint64_t prompt[] = {cache_token_text(1), cache_token_text(2),
                             cache_token_text((int32_t)(i % WORDS_OF_MOCK))};
        request = (struct request){.tokens = prompt, .n_tokens = 3, .max_tokens = 1};
        request.sampling = (struct sampling)SAMPLING_DEFAULT;
        usleep(1000); /* lets it fall asleep */
        if (scheduler_submit(scheduler, &request) != SUBMIT_OK)
            die("submit");
        for (struct sched_event event = {0}; event.type != EVENT_DONE;)
            if (!scheduler_next_event(scheduler, &request, &event))
                bell_wait(&bell);
        back_ns[i] = clock_now_ns() - request.submitted_ns;
        work_ns[i] = request.first_token_ns - request.submitted_ns;
    }
    printf("an idle scheduler is given a request, us: p50\n");
    print_spread("until its first token", work_ns, WAKES);
    print_spread("until its events are read", back_ns, WAKES);
    scheduler_close(scheduler);
    engine_close(options.engine);
}

/* ---- a client of a server ------------------------------------------------------------------- */

struct stream {
    int fd; /* -1: ended */
    uint32_t n_events;
    uint64_t first_ns, last_ns; /* times of its tokens */
};

static void stream_ask(struct stream *s, uint16_t port, uint32_t salt, uint32_t n_tokens,
                       const char *fields)
{
    char body[4096], head[256];
    int body_len = snprintf(
        body, sizeof body,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell story %u of %d.\"}],"
        "\"max_tokens\":%u,\"stream\":true,\"ignore_eos\":true%s%s}",
        salt, (int)getpid(), n_tokens, *fields ? "," : "", fields);
    int head_len = snprintf(head, sizeof head,
                            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                            "Content-Type: application/json\r\nConnection: close\r\n"
                            "Content-Length: %d\r\n\r\n",
                            body_len);
    *s = (struct stream){.fd = connect_to(port)};
    if (body_len >= (int)sizeof body || send(s->fd, head, (size_t)head_len, MSG_MORE) < 0 ||
        send(s->fd, body, (size_t)body_len, 0) < 0)
        die("send");
}

/* False at the end. The first event has the role, the last one the finish reason. */
static bool stream_read(struct stream *s)
{
    static char buffer[BUFFER];
    static const char mark[] = "\"finish_reason\":null";
    ssize_t n = recv(s->fd, buffer, sizeof buffer - 1, 0);
    if (n <= 0)
        return false;
    buffer[n] = '\0';
    for (const char *at = buffer; (at = strstr(at, mark)); at++) {
        s->last_ns = clock_now_ns();
        if (s->n_events++ == 1)
            s->first_ns = s->last_ns;
    }
    return true;
}

struct rates {
    double all, steady, first_ms;
};

static struct rates load_round(uint16_t port, uint32_t n, uint32_t n_tokens, uint32_t round,
                               const char *fields)
{
    static struct stream streams[MAX_STREAMS];
    static struct pollfd polled[MAX_STREAMS];
    uint64_t start_ns = clock_now_ns(), first_ns = 0, last_ns = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        stream_ask(&streams[i], port, round * n + i, n_tokens, fields);
        polled[i] = (struct pollfd){streams[i].fd, POLLIN, 0};
    }
    for (uint32_t n_open = n; n_open > 0;) {
        if (poll(polled, n, -1) < 0)
            die("poll");
        for (uint32_t i = 0; i < n; i++) {
            if (!polled[i].revents || stream_read(&streams[i]))
                continue;
            close(polled[i].fd);
            polled[i].fd = -1;
            n_open--;
        }
    }
    uint64_t end_ns = clock_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        errno = 0;
        if (streams[i].n_events < 3)
            die("an answer is too short: is the server well?");
        first_ns = streams[i].first_ns > first_ns ? streams[i].first_ns : first_ns;
        last_ns = streams[i].last_ns < last_ns ? streams[i].last_ns : last_ns;
    }
    double steady_s = last_ns > first_ns ? (double)(last_ns - first_ns) / 1e9 : 0;
    return (struct rates){.all = (double)n * n_tokens / ((double)(end_ns - start_ns) / 1e9),
                          .steady = steady_s > 0 ? (double)n * (n_tokens - 1) / steady_s : 0,
                          .first_ms = (double)(first_ns - start_ns) / 1e6};
}

static void bench_server(uint16_t port, uint32_t n, uint32_t n_tokens, uint32_t rounds,
                         const char *fields)
{
    struct rates best = {0};
    load_round(port, 1, 8, UINT16_MAX, fields);
    for (uint32_t round = 0; round < rounds; round++) {
        struct rates r = load_round(port, n, n_tokens, round, fields);
        best.all = r.all > best.all ? r.all : best.all;
        best.steady = r.steady > best.steady ? r.steady : best.steady;
        if (round == 0 || r.first_ms < best.first_ms)
            best.first_ms = r.first_ms;
    }
    printf("%u streams of %u tokens, best of %u\n", n, n_tokens, rounds);
    printf("  %-34s %8.1f\n", "tokens/s, from request to end", best.all);
    printf("  %-34s %8.1f\n", "tokens/s, while all are decoding", best.steady);
    printf("  %-34s %8.1f\n", "ms until all have a first token", best.first_ms);
}

static uint32_t number(int argc, char **argv, int at, uint32_t otherwise, uint32_t most)
{
    long value = argc > at ? strtol(argv[at], NULL, 10) : (long)otherwise;
    if (value < 1 || value > (long)most) {
        fprintf(stderr, "bench_stream: %s is not in 1..%u\n", argv[at], most);
        exit(2);
    }
    return (uint32_t)value;
}

int main(int argc, char **argv)
{
    log_set_level(LOG_ERROR);
    if (argc > 1) {
        bench_server((uint16_t)number(argc, argv, 1, 8080, 65535),
                     number(argc, argv, 2, 8, MAX_STREAMS), number(argc, argv, 3, 64, 100000),
                     number(argc, argv, 4, 5, 100000), argc > 5 ? argv[5] : "\"temperature\":0");
        return 0;
    }
    bench_sampler();
    bench_pieces();
    bench_http();
    bench_wake();
    return 0;
}
