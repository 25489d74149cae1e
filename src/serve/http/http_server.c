/* The server: accepts connections, and stops. Everything belongs to the event loop's thread. */
#include "serve/http/http_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "serve/http/connection.h"
#include "serve/http/tls.h"

enum { ACCEPT_PAUSE_MS = 100, ACCEPTS_A_TURN = 64, SPARE_FILES = 64, TRIM_MS = 300 };

/* ---- accepting ---------------------------------------------------------------------------- */

/* Closes a connection to make room. One that has begun a request is told why. */
static void connection_evict(struct http_exchange *c)
{
    log_debug("closed the connection of %s to make room for another", c->peer_text);
    if (c->state == X_HEAD || c->state == X_BODY)
        connection_refuse(c, 503, "the server has too many connections, and this one was slow");
    if (c->transport)
        connection_lost(c);
}

/* TLS cannot be spoken without a handshake, so such a client is not told why. */
static void refuse_connection(const struct http_server *s, int fd,
                              const struct http_listener *listener, enum admission why)
{
    static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
                               "Retry-After: 1\r\nContent-Length: 0\r\n\r\n";
    if (why == ADDRESS_FULL)
        log_warn("rejected a connection: its address has %u already "
                 "(--max-connections-per-address)",
                 s->limits.max_per_address);
    else
        log_warn("rejected a connection: too many are open");
    if ((listener->is_unix || !s->options.tls) &&
        send(fd, busy, sizeof busy - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        shutdown(fd, SHUT_WR);
    close(fd);
}

static void admit(struct http_server *s, int fd, const struct http_listener *listener,
                  const struct sockaddr *address)
{
    struct peer peer = peer_of(address);
    struct http_exchange *victim;
    enum admission admission;
    while ((admission = limits_admit(&s->limits, &peer, &victim)) != ADMITTED && victim)
        connection_evict(victim);
    if (admission == ADMITTED)
        connection_open(s, fd, listener, address);
    else
        refuse_connection(s, fd, listener, admission);
}

static void accepting_set(struct http_server *s, bool on)
{
    for (size_t i = 0; i < s->listeners->n; i++) {
        if (on)
            event_add(s->accepting[i], NULL);
        else
            event_del(s->accepting[i]);
    }
}

static struct http_listener *listener_of(struct http_server *s, int fd)
{
    size_t i = 0;
    while (s->listeners->items[i].fd != fd)
        i++;
    return &s->listeners->items[i];
}

static bool is_passing(int error)
{
    return error == EAGAIN || error == EINTR || error == ECONNABORTED;
}

static void accept_cb(evutil_socket_t listen_fd, short what, void *arg)
{
    (void)what;
    struct http_server *s = arg;
    const struct http_listener *listener = listener_of(s, listen_fd);
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct sockaddr_storage address = {.ss_family = AF_UNIX};
        socklen_t len = sizeof address;
        int fd = accept4(listen_fd, (struct sockaddr *)&address, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            admit(s, fd, listener, (struct sockaddr *)&address);
            continue;
        }
        if (is_passing(errno))
            return;
        /* Out of file descriptors or memory: without a pause the loop would spin on the waiting
         * connection. */
        struct timeval pause = timeval_from_ms(ACCEPT_PAUSE_MS);
        log_warn("cannot accept a connection: %s", strerror(errno));
        accepting_set(s, false);
        evtimer_add(s->accept_again, &pause);
        return;
    }
}

static void accept_again_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    accepting_set(arg, true);
}

/* Raises the file limit to the number of connections. If the system does not allow it, there are
 * fewer. */
static void raise_file_limit(uint32_t *max_connections)
{
    struct rlimit limit;
    rlim_t want = (rlim_t)*max_connections + SPARE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= want)
        return;
    limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= want)
        return;
    uint32_t possible = limit.rlim_cur > SPARE_FILES ? (uint32_t)(limit.rlim_cur - SPARE_FILES) : 1;
    log_warn("this process may open %llu files, so only %u of %u connections are possible; raise "
             "the limit with `ulimit -n` or LimitNOFILE=, or lower --max-connections",
             (unsigned long long)limit.rlim_cur, possible, *max_connections);
    *max_connections = possible;
}

static void listeners_close(struct http_server *s)
{
    for (size_t i = 0; i < s->listeners->n; i++)
        if (s->accepting[i])
            event_free(s->accepting[i]);
    http_listeners_close(s->listeners);
    if (s->accept_again)
        evtimer_del(s->accept_again);
}

/* ---- stopping the server ------------------------------------------------------------------ */

static bool is_answering(const struct http_server *s)
{
    for (const struct http_exchange *c = s->connections; c; c = c->next)
        if (c->state == X_RUNNING || c->state == X_FLUSHING)
            return true;
    return false;
}

/* `spares_line`: those with bytes that wait for their turn may have sent a request. */
static void close_idle(struct http_server *s, bool spares_line)
{
    for (struct http_exchange *c = s->connections, *next; c; c = next) {
        next = c->next;
        if (c->state != X_IDLE || (spares_line && c->turn.in_line))
            continue;
        if (c->unsent_bytes == 0) {
            connection_close(c);
        } else { /* its last answer is still being sent */
            c->state = X_FLUSHING;
            connection_arm(c, 0);
        }
    }
}

/* The last answer of a draining server is sent: accept no more connections, and do not wait for
 * clients with incomplete requests. */
static void leave(struct http_server *s)
{
    listeners_close(s);
    close_idle(s, false);
    for (struct http_exchange *c = s->connections, *next; c; c = next) {
        next = c->next;
        if (c->state == X_HEAD || c->state == X_BODY)
            connection_refuse(c, 503, "the server is stopping");
    }
}

/* Runs from the loop after connections have closed. */
static void reap_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct http_server *s = arg;
    for (struct http_exchange *c; (c = s->dead);) {
        s->dead = c->next;
        free(c);
    }
    if (s->draining && s->listeners->n && !is_answering(s))
        leave(s);
    if (s->draining && s->limits.n == 0)
        s->handler.drained(s->handler.context);
}

/* Waits a little, because what was made of the body is freed after it, and a client that sends one
 * large request may send another. */
void memory_return(struct http_server *s)
{
    struct timeval later = timeval_from_ms(TRIM_MS);
    evtimer_add(s->trim, &later);
}

static void trim_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    machine_heap_trim();
}

static void unsent_check_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    unsent_check(arg);
}

static void shake_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    handshake_next(arg);
}

/* ---- open and close ----------------------------------------------------------------------- */

static int events_open(struct http_server *s)
{
    if (hangups_open(&s->hangups, s->base, transport_hung_up) ||
        receiving_open(&s->receiving, s->base))
        return -1;
    s->reap = event_new(s->base, -1, 0, reap_cb, s);
    s->unsent_check = event_new(s->base, -1, 0, unsent_check_cb, s);
    s->accept_again = evtimer_new(s->base, accept_again_cb, s);
    s->trim = evtimer_new(s->base, trim_cb, NULL);
    s->shake = evtimer_new(s->base, shake_cb, s);
    if (!s->reap || !s->unsent_check || !s->accept_again || !s->trim || !s->shake)
        return -1;
    for (size_t i = 0; i < s->listeners->n; i++) {
        s->accepting[i] = event_new(s->base, s->listeners->items[i].fd, EV_READ | EV_PERSIST,
                                    accept_cb, s);
        if (!s->accepting[i] || event_add(s->accepting[i], NULL))
            return -1;
    }
    return 0;
}

int http_server_open(struct http_server **out, struct event_base *base,
                     const struct http_options *options, const struct http_handler *handler,
                     struct error *err)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, ERROR_MEMORY, "no memory for the HTTP server");
    s->base = base;
    s->hangups.epoll_fd = -1;
    s->options = *options;
    s->handler = *handler;
    s->listeners = options->listeners;
    if (getrandom(&s->secret, sizeof s->secret, 0) < 0)
        s->secret = clock_now_ns();
    raise_file_limit(&s->options.max_connections);
    http_listeners_write(s->listeners, options->tls != NULL, &s->url);
    if (limits_open(&s->limits, s->options.max_connections, options->max_connections_per_address,
                    err) == 0 &&
        events_open(s) == 0 && !s->url.failed) {
        *out = s;
        return 0;
    }
    http_server_close(s);
    return error_set(err, ERROR_MEMORY, "no memory for the HTTP server");
}

static void event_release(struct event *event)
{
    if (event)
        event_free(event);
}

void http_server_close(struct http_server *s)
{
    if (!s)
        return;
    s->draining = false;
    while (s->connections)
        connection_close(s->connections);
    reap_cb(-1, 0, s);
    listeners_close(s);
    event_release(s->reap);
    event_release(s->unsent_check);
    event_release(s->accept_again);
    event_release(s->trim);
    event_release(s->shake);
    hangups_close(&s->hangups);
    receiving_close(&s->receiving);
    limits_close(&s->limits);
    strbuf_free(&s->url);
    free(s);
}

const char *http_server_url(const struct http_server *s)
{
    return strbuf_str(&s->url);
}

uint32_t http_server_connections(const struct http_server *s)
{
    return s->limits.n;
}

void http_server_drain(struct http_server *s)
{
    s->draining = true;
    close_idle(s, true);
    event_active(s->reap, 0, 0);
}

void http_server_stop_accepting(struct http_server *s)
{
    accepting_set(s, false);
    evtimer_del(s->accept_again);
}

void http_server_reload_tls(struct http_server *s)
{
    struct error err;
    if (s->options.tls && tls_context_reload(s->options.tls, &err))
        log_error("%s; the old certificate stays in use", err.message);
}

size_t http_memory_bound(const struct http_options *o)
{
    size_t each = sizeof(struct http_exchange) + 2 * o->max_header_bytes + HTTP_MAX_PIPELINED +
                  TRANSPORT_READ_BYTES + (o->tls ? TLS_CONNECTION_BYTES : 0);
    return o->max_connections * each + o->max_bodies_bytes + o->max_unsent_bytes;
}
