/* See http_fixture.h. */
#include "http_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/log.h"

static char big_body[BIG_BODY_BYTES];

/* What a head leaves in the exchange's memory exists during the request, and then no longer. */
static void on_head(void *context, struct http_exchange *x)
{
    struct site *site = context;
    site->n_heads++;
    struct http_exchange **memory = http_memory(x);
    CHECK(!*memory);
    *memory = x;
    const char *client = http_parser_field(http_request(x), "x-client");
    http_set_client(x, client ? (uint64_t)atoi(client) : 0);
}

static void stream_more(struct site *site, struct http_exchange *x)
{
    static char piece[32 * 1024];
    while (http_stream_has_room(x)) {
        http_stream_write(x, piece, sizeof piece);
        site->streamed += sizeof piece;
    }
}

static void on_request(void *context, struct http_exchange *x)
{
    struct site *site = context;
    site->n_requests++;
    CHECK(*(struct http_exchange **)http_memory(x) == x);
    const char *target = http_parser_target(http_request(x));
    if (strcmp(target, "/wait") == 0) {
        strbuf_free(&site->taken);
        site->waiting = x;
        site->taken = http_take_body(x);
    } else if (strcmp(target, "/stream") == 0) {
        http_stream_begin(x, "text/plain");
        stream_more(site, x);
    } else if (strcmp(target, "/big") == 0) {
        http_reply(x, 200, "text/plain", big_body, sizeof big_body);
    } else if (strcmp(target, "/compute") == 0) {
        uint64_t until_ns = clock_thread_ns() + COMPUTE_NS;
        while (clock_thread_ns() < until_ns)
            ;
        http_reply(x, 200, "text/plain", "ok", 2);
    } else if (strncmp(target, "/status/", 8) == 0) {
        http_reply(x, atoi(target + 8), "text/plain", "", 0);
    } else {
        http_reply(x, 200, "text/plain", "ok", 2);
    }
}

static void on_refused(void *context, struct http_exchange *x, int status, const char *message)
{
    (void)context;
    http_reply(x, status, "text/plain", message, strlen(message));
}

static void on_room(void *context, struct http_exchange *x)
{
    struct site *site = context;
    site->n_rooms++;
    stream_more(site, x);
}

static void on_hangup(void *context, struct http_exchange *x)
{
    (void)x;
    struct site *site = context;
    site->n_hangups++;
    site->waiting = NULL;
}

static bool on_withdraw(void *context, struct http_exchange *x)
{
    struct site *site = context;
    if (x != site->waiting || !site->taken.len)
        return false;
    http_body_freed(site->server, x, site->taken.len);
    strbuf_free(&site->taken);
    site->waiting = NULL;
    return true;
}

static void on_drained(void *context)
{
    struct site *site = context;
    site->n_drained++;
}

void site_open_as(struct site *site, struct http_options options)
{
    struct error err;
    log_set_level(LOG_ERROR); /* a line for each request would hide what matters */
    *site = (struct site){.base = event_base_new()};
    struct http_handler handler = {site,    on_head,   on_request,  on_refused,
                                   on_room, on_hangup, on_withdraw, on_drained};
    options.listeners = &site->listeners;
    CHECK_INT(http_listen(&site->listeners, "127.0.0.1", 0, &err), 0);
    CHECK_INT(http_server_open(&site->server, site->base, &options, &handler, &err), 0);
}

const struct http_options ordinary_options = {.max_connections = MAX_CONNECTIONS,
                                              .max_header_bytes = 4096,
                                              .max_body_bytes = 100000,
                                              .max_bodies_bytes = 150000,
                                              .max_unsent_bytes = 64 << 20};

void site_open_with(struct site *site, struct deadlines deadlines)
{
    struct http_options options = ordinary_options;
    options.header_timeout_ms = deadlines.header_ms;
    options.body_timeout_ms = deadlines.body_ms;
    options.idle_timeout_ms = deadlines.idle_ms;
    options.write_timeout_ms = deadlines.write_ms;
    site_open_as(site, options);
}

void site_open(struct site *site)
{
    site_open_with(site, (struct deadlines){0});
}

void site_close(struct site *site)
{
    http_server_close(site->server);
    event_base_free(site->base);
    strbuf_free(&site->taken);
}

int client_open_from(const struct site *site, const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET}, from = {.sin_family = AF_INET};
    at.sin_port = htons((uint16_t)atoi(strrchr(http_server_url(site->server), ':') + 1));
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    inet_pton(AF_INET, address, &from.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0), buffer_bytes = 64 * 1024;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

int client_open(const struct site *site)
{
    return client_open_from(site, "127.0.0.1");
}

void client_send(int fd, const char *text)
{
    CHECK_INT(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

void turn(struct site *site)
{
    struct timeval pause = {0, 2000};
    event_base_loopexit(site->base, &pause);
    event_base_loop(site->base, EVLOOP_ONCE);
}

void turn_for(struct site *site, unsigned ms)
{
    for (uint64_t end = clock_now_ns() + ms * 1000000u; clock_now_ns() < end;)
        turn(site);
}

unsigned read_to_end(struct site *site, int fd, char *out, size_t size)
{
    uint64_t begin = clock_now_ns();
    size_t len = 0;
    for (;;) {
        turn(site);
        ssize_t n = recv(fd, out + len, size - 1 - len, 0);
        if (n > 0)
            len += (size_t)n;
        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        CHECK(clock_now_ns() - begin < PATIENCE_NS);
    }
    out[len] = '\0';
    close(fd);
    return (unsigned)((clock_now_ns() - begin) / 1000000u);
}

void read_some(struct site *site, int fd, char *out, size_t size)
{
    uint64_t begin = clock_now_ns();
    ssize_t n;
    while ((n = recv(fd, out, size - 1, 0)) < 0 && errno == EAGAIN) {
        turn(site);
        CHECK(clock_now_ns() - begin < PATIENCE_NS);
    }
    out[n > 0 ? n : 0] = '\0';
}

bool has_bytes(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK) > 0;
}

void await_bytes(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    CHECK_INT(poll(&one, 1, (int)(PATIENCE_NS / 1000000)), 1);
}

bool is_ended(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK) == 0;
}

size_t take(int fd, size_t size)
{
    static char sink[1 << 20];
    ssize_t n = recv(fd, sink, size < sizeof sink ? size : sizeof sink, 0);
    return n > 0 ? (size_t)n : 0;
}

size_t take_all(struct site *site, int fd)
{
    size_t n_bytes = 0;
    TURN_UNTIL(site, (n_bytes += take(fd, SIZE_MAX), is_ended(fd)));
    close(fd);
    return n_bytes;
}
