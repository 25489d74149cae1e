/* The listening socket, which is opened before the model is loaded. */
#include "serve/http/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 511 };

static int bind_failed(const char *host, uint16_t port, struct error *err)
{
    return error_set(
        err, ERROR_IO, "cannot listen on %s port %u: %s%s", host, port, strerror(errno),
        errno == EADDRINUSE ? "; use another --port, or stop the program that uses this one" : "");
}

/* The descriptor must not be 0, which means "no socket", even if the standard streams are
 * closed. */
static int socket_make(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return above;
}

/* True for "127.0.0.1:8080", but not for an IPv6 address. */
static bool has_port(const char *host)
{
    const char *colon = strchr(host, ':');
    return colon && colon[1] && colon[1 + strspn(colon + 1, "0123456789")] == '\0';
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
        return error_set(err, ERROR_IO, "cannot listen on %s: %s%s", name, gai_strerror(rc),
                         has_port(name) ? "; for host and port in one use --addr" : "");
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
