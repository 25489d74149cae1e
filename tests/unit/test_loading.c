/* What clients get while the model is loaded. */
#include "serve/api/loading.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "serve/http/listener.h"

static struct http_listeners listeners;

static uint16_t port_of_listener(void)
{
    struct sockaddr_in bound;
    socklen_t len = sizeof bound;
    CHECK_INT(getsockname(listeners.items[0].fd, (struct sockaddr *)&bound, &len), 0);
    return ntohs(bound.sin_port);
}

static int client_open(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval patience = {.tv_sec = 20};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

/* What comes back until the other side closes. */
static const char *reply_of(int fd)
{
    static char text[2048];
    size_t len = 0;
    for (ssize_t n; len < sizeof text - 1; len += (size_t)n)
        if ((n = recv(fd, text + len, sizeof text - 1 - len, 0)) <= 0)
            break;
    text[len] = '\0';
    close(fd);
    return text;
}

static void send_text(int fd, const char *text)
{
    CHECK_INT(send(fd, text, strlen(text), MSG_NOSIGNAL), (long long)strlen(text));
}

/* Returns the port. */
static uint16_t begin(struct loading **loading)
{
    struct error err = {0};
    CHECK_INT(http_listen(&listeners, "127.0.0.1", 0, &err), 0);
    log_set_level(LOG_ERROR);
    CHECK_INT(loading_begin(loading, &listeners, NULL, &err), 0);
    return port_of_listener();
}

TEST(loading, every_request_gets_503)
{
    struct loading *loading = NULL;
    uint16_t port = begin(&loading);
#define OPENAI                                                                                     \
    "\r\n\r\n{\"error\":{\"message\":\"Loading model\",\"type\":\"unavailable_error\","            \
    "\"param\":null,\"code\":503}}"
#define OLLAMA "\r\n\r\n{\"error\":\"Loading model\"}"
    static const struct {
        const char *request, *body;
    } rows[] = {
        {"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", OPENAI},
        {"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
         OPENAI},
        {"POST /api/chat HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n{\"a\":1}", OLLAMA},
        {"GET /api/tags HTTP/1.0\r\n\r\n", OLLAMA},
        {"GET /apix HTTP/1.1\r\nHost: a\r\nX: /api/tags\r\n\r\n", OPENAI},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int client = client_open(port);
        send_text(client, rows[i].request);
        const char *reply = reply_of(client);
        CHECK(strncmp(reply, "HTTP/1.1 503 ", 13) == 0);
        CHECK(strstr(reply, "Retry-After: 1\r\n"));
        CHECK(strstr(reply, "Connection: close\r\n"));
        size_t len = strlen(reply), body_len = strlen(rows[i].body);
        CHECK(len > body_len);
        CHECK_STR(reply + len - body_len, rows[i].body);
    }
    /* One who hangs up, or is cut off while it says nothing, is not answered. */
    close(client_open(port));
    int silent = client_open(port);
    uint64_t began_ns = clock_now_ns();
    loading_end(loading);
    CHECK(clock_now_ns() - began_ns < UINT64_C(10000000000));
    /* Whoever comes now waits for the server. */
    int later = client_open(port), taken = -1;
    send_text(later, "x");
    for (int i = 0; i < 1000 && taken < 0; i++) {
        taken = accept(listeners.items[0].fd, NULL, NULL);
        usleep(1000);
    }
    CHECK(taken >= 0);
    close(taken);
    close(silent);
    close(later);
    http_listeners_close(&listeners);
    loading_end(NULL);
}

/* More than may be open at once: the oldest make room. */
TEST(loading, silent_connections_hold_nobody_up)
{
    struct loading *loading = NULL;
    uint16_t port = begin(&loading);
    int silent[300];
    for (int i = 0; i < 300; i++)
        silent[i] = client_open(port);
    int client = client_open(port);
    uint64_t began_ns = clock_now_ns();
    send_text(client, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(strncmp(reply_of(client), "HTTP/1.1 503 ", 13) == 0);
    CHECK(clock_now_ns() - began_ns < UINT64_C(10000000000)); /* their time is not over */
    for (int i = 0; i < 300; i++)
        close(silent[i]);
    loading_end(loading);
    http_listeners_close(&listeners);
}

/* A request that comes as loading ends is answered by this server or by the next one. */
TEST(loading, the_end_resets_nobody)
{
    for (int i = 0; i < 100; i++) {
        struct loading *loading = NULL, *next = NULL;
        struct error err = {0};
        uint16_t port = begin(&loading);
        int client = client_open(port);
        usleep((unsigned)i * 3);
        send_text(client, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        loading_end(loading);
        CHECK_INT(loading_begin(&next, &listeners, NULL, &err), 0);
        CHECK(strncmp(reply_of(client), "HTTP/1.1 503 ", 13) == 0);
        loading_end(next);
        http_listeners_close(&listeners);
    }
}

TEST(loading, what_is_not_http_is_told_so)
{
    struct loading *loading = NULL;
    uint16_t port = begin(&loading);
    int client = client_open(port);
    send_text(client, "\x16\x03\x01\x02"); /* as a TLS hello begins */
    const char *reply = reply_of(client);
    CHECK(strncmp(reply, "HTTP/1.1 400 ", 13) == 0);
    CHECK(strstr(reply, "this looks like HTTPS; use http://"));
    client = client_open(port);
    send_text(client, "GET\r\n\r\n");
    CHECK(strncmp(reply_of(client), "HTTP/1.1 400 ", 13) == 0);
    loading_end(loading);
    http_listeners_close(&listeners);
}
