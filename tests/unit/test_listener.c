/* The socket that exists before the server, and what it answers until then. */
#include "serve/http/listener.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/api/api_error.h"

static uint16_t port_of(int fd)
{
    char url[HTTP_URL_SIZE];
    http_listener_url(fd, url);
    CHECK(strncmp(url, "http://127.0.0.1:", 17) == 0);
    return (uint16_t)atoi(url + 17);
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

/* The reply, until the other side closes. */
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

TEST(listener, a_busy_port_fails_at_once)
{
    struct error err = {0};
    int fd = http_listen("127.0.0.1", 0, &err);
    CHECK(fd > STDERR_FILENO);
    uint16_t port = port_of(fd);
    CHECK_INT(http_listen("127.0.0.1", port, &err), -1);
    CHECK(strstr(err.message, "Address already in use; use another --port"));
    close(fd);
    CHECK_INT(http_listen("no such host", 0, &err), -1);
    CHECK(strstr(err.message, "cannot listen on no such host"));
    fd = http_listen("[::1]", 0, &err);
    if (fd >= 0) { /* where there is IPv6 */
        char url[HTTP_URL_SIZE];
        http_listener_url(fd, url);
        CHECK(strncmp(url, "http://[::1]:", 13) == 0);
        close(fd);
    }
}

TEST(listener, answers_503_while_a_model_is_loaded)
{
    struct error err = {0};
    struct loading *loading = NULL;
    int fd = http_listen("127.0.0.1", 0, &err);
    uint16_t port = port_of(fd);
    CHECK_INT(loading_begin(&loading, fd, api_loading_write, &err), 0);
#define OPENAI                                                                                     \
    "\r\n\r\n{\"error\":{\"message\":\"Loading model\",\"type\":\"unavailable_error\","            \
    "\"param\":null,\"code\":503}}"
#define OLLAMA "\r\n\r\n{\"error\":\"Loading model\"}"
    static const struct {
        const char *request, *body;
    } rows[] = {
        {"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", OPENAI},
        {"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 7\r\n\r\n{\"a\":1}", OPENAI},
        {"POST /api/chat HTTP/1.1\r\nContent-Length: 7\r\n\r\n{\"a\":1}", OLLAMA},
        {"GET /api/tags\r\n\r\n", OLLAMA},
        {"GET /apix HTTP/1.1\r\nX: /api/tags\r\n\r\n", OPENAI},
        {"GET\r\nX: /api/tags\r\n\r\n", OPENAI},
        {" \r\n\r\n", OPENAI},
        {"\r\n\r\n /api/tags", OPENAI},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int client = client_open(port);
        send_text(client, rows[i].request);
        const char *reply = reply_of(client);
        CHECK(strncmp(reply, "HTTP/1.1 503 ", 13) == 0);
        CHECK(strstr(reply, "Retry-After: 1\r\n"));
        size_t len = strlen(reply), body_len = strlen(rows[i].body);
        CHECK(len > body_len);
        CHECK_STR(reply + len - body_len, rows[i].body);
    }
    /* A client that hangs up, or is cut off while silent, is not answered. */
    close(client_open(port));
    int silent = client_open(port);
    uint64_t began_ns = clock_now_ns();
    loading_end(loading);
    CHECK(clock_now_ns() - began_ns < UINT64_C(10000000000));
    /* Whoever comes now waits for the server. */
    int later = client_open(port), taken = -1;
    send_text(later, "x");
    for (int i = 0; i < 1000 && taken < 0; i++) {
        taken = accept(fd, NULL, NULL);
        usleep(1000);
    }
    CHECK(taken >= 0);
    close(taken);
    close(silent);
    close(later);
    close(fd);
    loading_end(NULL);
}
