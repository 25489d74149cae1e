/* Listening sockets, which are opened before the model is loaded. */
#include "serve/http/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/http/host_rules.h"

enum { BACKLOG = 511 };

static int bind_failed(const char *host, uint16_t port, struct error *err)
{
    const char *advice =
        errno == EADDRINUSE ? "; use another --port, or stop the program that uses this one"
        : errno == EACCES
            ? "; only root may use a port below 1024, or systemd, which can pass the socket on"
            : "";
    return error_set(err, ERROR_IO, "cannot listen on %s port %u: %s%s", host, port,
                     strerror(errno), advice);
}

/* The standard streams' descriptors stay free, even if they are closed. */
static int above_streams(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(fd);
    return above;
}

static int socket_make(int family)
{
    return above_streams(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

static struct http_listener *listener_add(struct http_listeners *ls, struct error *err)
{
    if (ls->n == HTTP_MAX_LISTENERS) {
        error_set(err, ERROR_LIMIT, "cannot listen on more than %d sockets", HTTP_MAX_LISTENERS);
        return NULL;
    }
    struct http_listener *l = &ls->items[ls->n];
    *l = (struct http_listener){.fd = -1};
    return l;
}

/* ---- TCP ---------------------------------------------------------------------------------- */

/* True for "127.0.0.1:8080", but not for an IPv6 address. */
static bool has_port(const char *host)
{
    const char *colon = strchr(host, ':');
    return colon && colon[1] && colon[1 + strspn(colon + 1, "0123456789")] == '\0';
}

int http_listen(struct http_listeners *ls, const char *host, uint16_t port, struct error *err)
{
    char name[256], service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    size_t bracket = host[0] == '[';
    int on = 1;
    struct http_listener *l = listener_add(ls, err);
    if (!l)
        return -1;
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
    l->fd = socket_make(best->ai_family);
    bool failed = l->fd < 0 || setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
                  bind(l->fd, best->ai_addr, best->ai_addrlen) || listen(l->fd, BACKLOG);
    if (failed)
        bind_failed(name, port, err);
    freeaddrinfo(found);
    if (failed)
        http_listener_close(l);
    else
        ls->n++;
    return failed ? -1 : 0;
}

/* ---- Unix sockets ------------------------------------------------------------------------- */

const char *unix_path_of(const char *host)
{
    static const char scheme[] = "unix:", end[] = ".sock";
    size_t len = strlen(host);
    if (strncmp(host, scheme, sizeof scheme - 1) == 0)
        return host + sizeof scheme - 1;
    return len >= sizeof end && strcmp(host + len - (sizeof end - 1), end) == 0 ? host : NULL;
}

/* Removes the socket of a server that is gone. Fails if somebody still listens there, or if it is
 * another kind of file, which nobody wants to lose. */
static int stale_remove(const struct sockaddr_un *at, struct error *err)
{
    struct stat file;
    if (lstat(at->sun_path, &file))
        return errno == ENOENT ? 0
                               : error_set(err, ERROR_IO, "cannot listen on unix:%s: %s",
                                           at->sun_path, strerror(errno));
    if (!S_ISSOCK(file.st_mode))
        return error_set(err, ERROR_IO,
                         "cannot listen on unix:%s: this file exists and is not a socket",
                         at->sun_path);
    int fd = socket_make(AF_UNIX);
    int failure = connect(fd, (const struct sockaddr *)at, sizeof *at) ? errno : 0;
    close(fd);
    if (failure == ECONNREFUSED)
        failure = unlink(at->sun_path) ? errno : ECONNREFUSED;
    if (failure == ECONNREFUSED)
        return 0;
    return error_set(err, ERROR_IO, "cannot listen on unix:%s: %s", at->sun_path,
                     failure ? strerror(failure) : "another program listens there");
}

int http_listen_unix(struct http_listeners *ls, const char *path, mode_t mode, struct error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat file;
    struct http_listener *l = listener_add(ls, err);
    if (!l)
        return -1;
    if (!*path || strlen(path) >= sizeof at.sun_path)
        return error_set(err, ERROR_INPUT, "a Unix socket's path has 1 to %zu bytes, not '%s'",
                         sizeof at.sun_path - 1, path);
    memcpy(at.sun_path, path, strlen(path) + 1);
    if (stale_remove(&at, err))
        return -1;
    *l = (struct http_listener){.fd = socket_make(AF_UNIX), .is_unix = true};
    memcpy(l->path, at.sun_path, sizeof at.sun_path);
    /* Changing the mode later would let others in for a moment. */
    mode_t before = umask(0777 & ~mode);
    bool failed = l->fd < 0 || bind(l->fd, (const struct sockaddr *)&at, sizeof at);
    umask(before);
    l->owns_path = !failed && lstat(path, &file) == 0;
    if (l->owns_path) {
        l->device = file.st_dev;
        l->inode = file.st_ino;
    }
    if (failed || listen(l->fd, BACKLOG)) {
        error_set(err, ERROR_IO, "cannot listen on unix:%s: %s", path, strerror(errno));
        http_listener_close(l);
        return -1;
    }
    ls->n++;
    return 0;
}

/* ---- sockets of others -------------------------------------------------------------------- */

int http_listen_inherited(struct http_listeners *ls, int fd, struct error *err)
{
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound, int_len = sizeof(int);
    int type = 0, listens = 0;
    struct http_listener *l = listener_add(ls, err);
    if (!l) {
        close(fd);
        return -1;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &int_len) || type != SOCK_STREAM ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_len) || !listens ||
        getsockname(fd, (struct sockaddr *)&bound, &len) ||
        (bound.ss_family != AF_INET && bound.ss_family != AF_INET6 && bound.ss_family != AF_UNIX)) {
        close(fd);
        return error_set(err, ERROR_IO,
                         "descriptor %d, passed by the service manager, is not a listening stream "
                         "socket (TCP or Unix)",
                         fd);
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    *l = (struct http_listener){.fd = fd, .is_unix = bound.ss_family == AF_UNIX};
    if (l->is_unix && len > offsetof(struct sockaddr_un, sun_path))
        memcpy(l->path, ((struct sockaddr_un *)&bound)->sun_path, sizeof l->path - 1);
    ls->n++;
    return 0;
}

int http_listeners_copy(struct http_listeners *out, const struct http_listeners *from,
                        struct error *err)
{
    *out = (struct http_listeners){0};
    for (size_t i = 0; i < from->n; i++) {
        struct http_listener copy = from->items[i];
        copy.owns_path = false;
        copy.fd = fcntl(copy.fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (copy.fd < 0) {
            error_set(err, ERROR_IO, "cannot listen: %s", strerror(errno));
            http_listeners_close(out);
            return -1;
        }
        out->items[out->n++] = copy;
    }
    return 0;
}

void http_listener_close(struct http_listener *l)
{
    struct stat file;
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    if (l->owns_path && lstat(l->path, &file) == 0 && file.st_dev == l->device &&
        file.st_ino == l->inode)
        unlink(l->path);
    l->owns_path = false;
}

void http_listeners_close(struct http_listeners *ls)
{
    while (ls->n)
        http_listener_close(&ls->items[--ls->n]);
}

/* ---- what they are ------------------------------------------------------------------------ */

/* The address and the port of a TCP socket. */
static uint16_t bound_at(int fd, char text[INET6_ADDRSTRLEN], bool *is_v6)
{
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound;
    getsockname(fd, (struct sockaddr *)&bound, &len);
    const struct sockaddr_in *v4 = (struct sockaddr_in *)&bound;
    const struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&bound;
    *is_v6 = bound.ss_family == AF_INET6;
    text[0] = '\0';
    inet_ntop(bound.ss_family, *is_v6 ? (const void *)&v6->sin6_addr : &v4->sin_addr, text,
              INET6_ADDRSTRLEN);
    return ntohs(*is_v6 ? v6->sin6_port : v4->sin_port);
}

bool http_listeners_are_local(const struct http_listeners *ls)
{
    for (size_t i = 0; i < ls->n; i++) {
        char text[INET6_ADDRSTRLEN];
        bool is_v6;
        if (ls->items[i].is_unix)
            continue;
        bound_at(ls->items[i].fd, text, &is_v6);
        if (!address_is_loopback(text))
            return false;
    }
    return true;
}

void http_listeners_write(const struct http_listeners *ls, bool has_tls, struct strbuf *out)
{
    for (size_t i = 0; i < ls->n; i++) {
        const struct http_listener *l = &ls->items[i];
        char text[INET6_ADDRSTRLEN];
        bool is_v6;
        strbuf_adds(out, i ? ", " : "");
        if (l->is_unix) {
            strbuf_addf(out, "unix:%s", l->path);
            continue;
        }
        uint16_t port = bound_at(l->fd, text, &is_v6);
        strbuf_addf(out, is_v6 ? "%s://[%s]:%u" : "%s://%s:%u", has_tls ? "https" : "http", text,
                    port);
    }
}
