/* The listening socket, which is opened before the model is loaded, and the thread that answers
 * until then. The thread takes one connection at a time and gives each a second, which is enough to
 * say that the server is not ready. */
#include "serve/http/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum { BACKLOG = 511, READ_MS = 1000, DRAIN_MS = 200, MAX_HEAD = 32 << 10 };

/* ---- the socket --------------------------------------------------------------------------- */

static int bind_failed(const char *host, uint16_t port, struct error *err)
{
    return error_set(
        err, ERROR_IO, "cannot listen on %s port %u: %s%s", host, port, strerror(errno),
        errno == EADDRINUSE ? "; use another --port, or stop the program that uses this one" : "");
}

/* Above the standard streams, which may have been closed: 0 means that there is no socket. */
static int socket_make(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return above;
}

int http_listen(const char *host, uint16_t port, struct error *err)
{
    char name[256], service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    size_t bracket = host[0] == '[';
    int on = 1;
    snprintf(name, sizeof name, "%s", host + bracket);
    if (bracket)
        name[strcspn(name, "]")] = '\0';
    snprintf(service, sizeof service, "%u", port);
    int rc = getaddrinfo(name, service, &hints, &found);
    if (rc)
        return error_set(err, ERROR_IO, "cannot listen on %s: %s", name, gai_strerror(rc));
    const struct addrinfo *best = found;
    for (const struct addrinfo *a = found; a; a = a->ai_next)
        if (a->ai_family == AF_INET && best->ai_family != AF_INET)
            best = a;
    int fd = socket_make(best->ai_family);
    bool failed = fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
                  bind(fd, best->ai_addr, best->ai_addrlen) || listen(fd, BACKLOG);
    if (failed)
        bind_failed(name, port, err);
    freeaddrinfo(found);
    if (failed && fd >= 0)
        close(fd);
    return failed ? -1 : fd;
}

void http_listener_url(int fd, char url[HTTP_URL_SIZE])
{
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound;
    char text[INET6_ADDRSTRLEN] = "";
    getsockname(fd, (struct sockaddr *)&bound, &len);
    const struct sockaddr_in *v4 = (struct sockaddr_in *)&bound;
    const struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&bound;
    bool is_v6 = bound.ss_family == AF_INET6;
    inet_ntop(bound.ss_family, is_v6 ? (const void *)&v6->sin6_addr : &v4->sin_addr, text,
              sizeof text);
    snprintf(url, HTTP_URL_SIZE, is_v6 ? "http://[%s]:%u" : "http://%s:%u", text,
             ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
}

/* ---- while the model is loaded ------------------------------------------------------------ */

struct loading {
    int listen_fd, stop_fd;
    loading_body_write *write_body;
    pthread_t thread;
};

/* True when there is something to read; false when the time is over or loading ends. */
static bool wait_readable(const struct loading *l, int fd, uint64_t until_ns)
{
    struct pollfd polls[] = {{.fd = fd, .events = POLLIN}, {.fd = l->stop_fd, .events = POLLIN}};
    uint64_t now = clock_now_ns();
    int left_ms = now < until_ns ? (int)((until_ns - now) / 1000000u) : 0;
    return poll(polls, 2, left_ms) > 0 && polls[0].revents && !polls[1].revents;
}

/* Reads to the end of the head, which becomes a string. */
static bool head_read(const struct loading *l, int fd, char head[MAX_HEAD + 1])
{
    uint64_t until_ns = clock_now_ns() + READ_MS * UINT64_C(1000000);
    size_t len = 0;
    while (len < MAX_HEAD && wait_readable(l, fd, until_ns)) {
        ssize_t n = recv(fd, head + len, MAX_HEAD - len, MSG_DONTWAIT);
        if (n <= 0)
            return false;
        len += (size_t)n;
        head[len] = '\0';
        if (strstr(head, "\r\n\r\n"))
            return true;
    }
    return false;
}

/* What is not read when a socket is closed makes the client lose the answer. */
static void drain(const struct loading *l, int fd)
{
    uint64_t until_ns = clock_now_ns() + DRAIN_MS * UINT64_C(1000000);
    char rest[4096];
    shutdown(fd, SHUT_WR);
    while (wait_readable(l, fd, until_ns) && recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
        continue;
}

/* Cuts the target out of the request line; "" if there is none. */
static const char *target_of(char *head)
{
    char *target = head + strcspn(head, " \r\n");
    if (*target != ' ')
        return "";
    target[1 + strcspn(target + 1, " \r\n")] = '\0';
    return target + 1;
}

static void connection_answer(const struct loading *l, int fd)
{
    char head[MAX_HEAD + 1];
    if (!head_read(l, fd, head))
        return;
    struct strbuf body = STRBUF_INIT, reply = STRBUF_INIT;
    l->write_body(&body, target_of(head));
    strbuf_addf(&reply,
                "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
                "Retry-After: 1\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                body.len, strbuf_str(&body));
    if (!reply.failed && !body.failed &&
        send(fd, reply.data, reply.len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)reply.len)
        drain(l, fd);
    strbuf_free(&body);
    strbuf_free(&reply);
}

static void *loading_main(void *arg)
{
    const struct loading *l = arg;
    for (;;) {
        struct pollfd polls[] = {{.fd = l->listen_fd, .events = POLLIN},
                                 {.fd = l->stop_fd, .events = POLLIN}};
        if (poll(polls, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (polls[1].revents)
            return NULL;
        int fd = accept4(l->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            connection_answer(l, fd);
            close(fd);
        }
    }
}

int loading_begin(struct loading **out, int listen_fd, loading_body_write *write_body,
                  struct error *err)
{
    struct loading *l = calloc(1, sizeof *l);
    sigset_t all, old;
    if (!l)
        return error_set(err, ERROR_MEMORY, "no memory for the server");
    *l = (struct loading){
        .listen_fd = listen_fd, .stop_fd = eventfd(0, EFD_CLOEXEC), .write_body = write_body};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the main thread's */
    int rc = l->stop_fd < 0 ? errno : pthread_create(&l->thread, NULL, loading_main, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        if (l->stop_fd >= 0)
            close(l->stop_fd);
        free(l);
        return error_set(err, ERROR_IO, "cannot start a thread: %s", strerror(rc));
    }
    *out = l;
    return 0;
}

void loading_end(struct loading *l)
{
    uint64_t one = 1;
    if (!l)
        return;
    if (write(l->stop_fd, &one, sizeof one) == sizeof one)
        pthread_join(l->thread, NULL);
    close(l->stop_fd);
    free(l);
}
