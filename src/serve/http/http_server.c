/* Connections. Everything belongs to the event loop's thread.
 *
 * Calling the handler, or anything that writes an answer, may close the connection. So closing
 * frees the socket at once but the memory only later (`reap`), and code that continues after such a
 * call must first check that the connection is still open (`c->bev`). */
#include "serve/http/http_server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>

#include "base/clock.h"
#include "base/log.h"
#include "serve/http/listener.h"

enum { LINGER_MS = 2000, ACCEPT_PAUSE_MS = 100, SPARE_FILES = 64 };
enum { STREAM_PIECE = 64 * 1024 }; /* stream bytes sent without waiting for more */
enum { CLIENT_CLOSED = 499 };      /* for the log */

enum exchange_state {
    X_IDLE,     /* no part of a request yet */
    X_HEAD,     /* reading the header */
    X_BODY,     /* reading the body */
    X_RUNNING,  /* the handler owns it */
    X_FLUSHING, /* answered; closes once the answer is sent */
    X_LINGERING /* sent; waits for the client to close first, so that no reset eats the answer */
};

/* A connection and its current exchange. */
struct http_exchange {
    struct http_server *server;
    struct http_exchange *prev, *next; /* in the server's list; next also in the list of the dead */
    struct bufferevent *bev;           /* NULL: closed */
    struct event *timer;               /* deadline of the current state */
    struct event *closed;              /* detects a hang-up while reading is paused; may be NULL */
    struct http_parser parser;
    enum exchange_state state;
    bool eof;       /* the client sends no more */
    bool close;     /* close after this answer */
    bool streaming; /* the answer has started and has not ended */
    bool chunked;
    bool full; /* the stream had no room */
    bool quiet;
    int status;
    uint64_t began_ns;
    size_t body_bytes; /* counted in the server's body_bytes */
    struct strbuf fields, note;
    struct strbuf out; /* of the stream: written but not flushed */
    void *user;
    alignas(max_align_t) unsigned char memory[HTTP_MEMORY_BYTES];
    char peer[INET6_ADDRSTRLEN], local[INET6_ADDRSTRLEN];
};

struct http_server {
    struct event_base *base;
    struct evconnlistener *listener;
    struct event *reap, *accept_again;
    struct http_options options;
    struct http_handler handler;
    struct http_exchange *connections, *dead;
    uint32_t n_connections;
    size_t body_bytes;
    bool draining;
    char url[HTTP_URL_SIZE];
};

static const char *status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {{200, "OK"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {417, "Expectation Failed"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].status == status)
            return texts[i].text;
    return "Unknown";
}

static void arm(struct http_exchange *c, unsigned timeout_ms)
{
    struct timeval tv = timeval_from_ms(timeout_ms);
    if (timeout_ms)
        evtimer_add(c->timer, &tv);
    else
        evtimer_del(c->timer);
}

/* ---- ending exchanges and connections ----------------------------------------------------- */

static void tell_over(struct http_exchange *c, bool hung_up)
{
    const struct http_handler *handler = &c->server->handler;
    const struct http_outcome outcome = {.status = c->status ? c->status : CLIENT_CLOSED,
                                         .duration_ns = clock_now_ns() - c->began_ns,
                                         .hung_up = hung_up,
                                         .is_quiet = c->quiet,
                                         .note = strbuf_str(&c->note)};
    if (handler->over)
        handler->over(handler->context, c, &outcome);
}

static void drop_body(struct http_exchange *c)
{
    strbuf_free(&c->parser.body);
    http_body_freed(c->server, c->body_bytes);
    c->body_bytes = 0;
}

static void forget_exchange(struct http_exchange *c)
{
    drop_body(c);
    c->user = NULL;
    memset(c->memory, 0, sizeof c->memory);
    c->streaming = c->full = c->quiet = false;
    c->status = 0;
    strbuf_free(&c->out); /* idle connections are many */
    strbuf_clear(&c->fields);
    strbuf_clear(&c->note);
    http_parser_reset(&c->parser);
}

static void connection_close(struct http_exchange *c)
{
    struct http_server *s = c->server;
    assert(c->bev);
    bufferevent_free(c->bev);
    c->bev = NULL;
    event_free(c->timer);
    if (c->closed)
        event_free(c->closed);
    forget_exchange(c);
    http_parser_close(&c->parser);
    strbuf_free(&c->fields);
    strbuf_free(&c->note);
    *(c->prev ? &c->prev->next : &s->connections) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->next = s->dead;
    s->dead = c;
    s->n_connections--;
    event_active(s->reap, 0, 0);
}

/* The client is gone, or we are done with it. */
static void connection_lost(struct http_exchange *c)
{
    if (c->state == X_RUNNING)
        c->server->handler.hangup(c->server->handler.context, c);
    if (c->state == X_RUNNING || c->state == X_BODY)
        tell_over(c, true);
    connection_close(c);
}

/* The answer is sent and the connection is to be closed. Closing with unread input would make the
 * kernel send a reset, which can overtake the answer; in that case wait for the client to close
 * first. */
static void close_gently(struct http_exchange *c)
{
    bool all_read = (c->parser.state == HTTP_DONE || http_parser_is_idle(&c->parser)) &&
                    evbuffer_get_length(bufferevent_get_input(c->bev)) == 0;
    if (c->eof || all_read) {
        connection_close(c);
        return;
    }
    c->state = X_LINGERING;
    event_active(c->server->reap, 0, 0); /* a draining server does not wait for it */
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    arm(c, LINGER_MS);
    bufferevent_trigger(c->bev, EV_READ, BEV_TRIG_DEFER_CALLBACKS | BEV_TRIG_IGNORE_WATERMARKS);
}

static void exchange_done(struct http_exchange *c)
{
    if (c->closed)
        event_del(c->closed);
    if (c->close || c->server->draining) { /* a stream may have begun before the drain */
        c->state = X_FLUSHING;
        c->streaming = false;
        arm(c, 0);
        if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0)
            close_gently(c);
        return;
    }
    forget_exchange(c);
    c->state = X_IDLE;
    arm(c, c->server->options.idle_timeout_ms);
    /* Pipelined bytes are handled from the loop, not within the handler's call. */
    bufferevent_trigger(c->bev, EV_READ, BEV_TRIG_DEFER_CALLBACKS | BEV_TRIG_IGNORE_WATERMARKS);
}

/* ---- answering ---------------------------------------------------------------------------- */

const struct http_parser *http_request(const struct http_exchange *x)
{
    return &x->parser;
}

struct strbuf http_take_body(struct http_exchange *x)
{
    struct strbuf body = x->parser.body;
    x->parser.body = (struct strbuf)STRBUF_INIT;
    x->body_bytes = 0;
    return body;
}

void http_body_freed(struct http_server *s, size_t n_bytes)
{
    assert(n_bytes <= s->body_bytes);
    s->body_bytes -= n_bytes;
}

const char *http_peer_address(const struct http_exchange *x)
{
    return x->peer;
}

const char *http_local_address(const struct http_exchange *x)
{
    return x->local;
}

void *http_memory(struct http_exchange *x)
{
    return x->memory;
}

void http_set_user(struct http_exchange *x, void *user)
{
    x->user = user;
}

void *http_user(const struct http_exchange *x)
{
    return x->user;
}

void http_add_field(struct http_exchange *x, const char *name, const char *value)
{
    strbuf_addf(&x->fields, "%s: %s\r\n", name, value);
}

void http_note(struct http_exchange *x, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?'; /* client bytes must not start a line of their own */
    strbuf_addf(&x->note, "%s%s", x->note.len ? ", " : "", text);
}

void http_log_quietly(struct http_exchange *x)
{
    x->quiet = true;
}

void http_close_after(struct http_exchange *x)
{
    x->parser.keep_alive = false;
}

/* Status line and fields, up to where Content-Length or Transfer-Encoding goes. */
static void head_begin(struct http_exchange *c, struct strbuf *out, int status,
                       const char *content_type)
{
    char date[64];
    time_t now = (time_t)clock_unix_seconds();
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    c->status = status;
    /* An unread body would be parsed as the next request. */
    c->close = c->server->draining || !c->parser.keep_alive || c->parser.state != HTTP_DONE;
    strbuf_addf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: radish/%s\r\n", status,
                status_text(status), date, RADISH_VERSION);
    strbuf_addf(out, "Content-Type: %s\r\n", content_type);
    strbuf_add(out, c->fields.data, c->fields.len);
    if (c->close)
        strbuf_adds(out, "Connection: close\r\n");
}

/* Out of memory for data that must be sent: hangs up, so that nothing follows the gap. */
static void cut_off(struct http_exchange *c)
{
    shutdown(bufferevent_getfd(c->bev), SHUT_RDWR);
}

/* Writes to the socket directly if no output is queued, and queues the rest. Most bytes go out
 * directly: waiting for a socket that is ready anyway costs three more system calls. An error
 * recurs when the loop sends the rest. */
static void send_bytes(struct http_exchange *c, const char *bytes, size_t len)
{
    struct evbuffer *unsent = bufferevent_get_output(c->bev);
    if (evbuffer_get_length(unsent) == 0) {
        ssize_t sent = send(bufferevent_getfd(c->bev), bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        size_t n = sent > 0 ? (size_t)sent : 0;
        bytes += n;
        len -= n;
    }
    if (len && evbuffer_add(unsent, bytes, len))
        cut_off(c);
}

void http_reply(struct http_exchange *x, int status, const char *content_type, const char *body,
                size_t len)
{
    assert(x->bev && !x->streaming);
    struct strbuf out = STRBUF_INIT;
    head_begin(x, &out, status, content_type);
    strbuf_addf(&out, "Content-Length: %zu\r\n\r\n", len);
    if (x->parser.method != HTTP_HEAD)
        strbuf_add(&out, body, len);
    tell_over(x, false);
    if (out.failed)
        x->close = true;
    else
        send_bytes(x, out.data, out.len);
    strbuf_free(&out);
    exchange_done(x);
}

void http_stream_begin(struct http_exchange *x, const char *content_type)
{
    assert(x->bev && !x->streaming);
    x->chunked = x->parser.minor_version > 0;
    head_begin(x, &x->out, 200, content_type);
    strbuf_adds(&x->out, x->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    x->streaming = true;
}

/* "1f\r\n", as a chunk begins. */
static void chunk_size_add(struct strbuf *out, size_t len)
{
    char text[2 * sizeof len + 2];
    size_t at = sizeof text;
    text[--at] = '\n';
    text[--at] = '\r';
    do
        text[--at] = "0123456789abcdef"[len % 16];
    while (len /= 16);
    strbuf_add(out, text + at, sizeof text - at);
}

void http_stream_write(struct http_exchange *x, const char *bytes, size_t len)
{
    assert(x->bev && x->streaming);
    if (len == 0)
        return; /* an empty chunk would be the last */
    if (x->chunked)
        chunk_size_add(&x->out, len);
    strbuf_add(&x->out, bytes, len);
    if (x->chunked)
        strbuf_add(&x->out, "\r\n", 2);
    if (x->out.len >= STREAM_PIECE)
        http_stream_flush(x);
}

void http_stream_flush(struct http_exchange *x)
{
    assert(x->bev && x->streaming);
    if (x->out.failed)
        cut_off(x);
    else if (x->out.len)
        send_bytes(x, x->out.data, x->out.len);
    strbuf_clear(&x->out);
    if (evbuffer_get_length(bufferevent_get_output(x->bev)) > HTTP_OUTPUT_HIGH)
        x->full = true;
}

bool http_stream_has_room(const struct http_exchange *x)
{
    return !x->full;
}

void http_stream_end(struct http_exchange *x)
{
    assert(x->bev && x->streaming);
    if (x->chunked)
        strbuf_adds(&x->out, "0\r\n\r\n");
    tell_over(x, false);
    http_stream_flush(x);
    exchange_done(x);
}

/* ---- reading ------------------------------------------------------------------------------ */

static void refuse(struct http_exchange *c, int status, const char *message)
{
    struct http_server *s = c->server;
    drop_body(c);
    http_close_after(c);
    c->state = X_RUNNING;
    s->handler.refused(s->handler.context, c, status, message);
    assert(!c->bev || c->state != X_RUNNING);
}

/* The header is complete: calls the handler, then the body may follow. */
static void head_done(struct http_exchange *c)
{
    struct http_server *s = c->server;
    c->state = X_RUNNING;
    s->handler.head(s->handler.context, c);
    if (!c->bev || c->state != X_RUNNING || c->parser.state == HTTP_DONE)
        return;
    c->state = X_BODY;
    arm(c, s->options.body_timeout_ms);
    if (c->parser.expect_continue && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0)
        bufferevent_write(c->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

/* Feeds the parser the first piece of the input buffer. Returns by how much the body has grown. */
static size_t parse(struct http_exchange *c, struct evbuffer *input)
{
    size_t len = evbuffer_get_contiguous_space(input);
    len = len ? len : 1;
    const char *bytes = (const char *)evbuffer_pullup(input, (ev_ssize_t)len);
    size_t used = http_parser_feed(&c->parser, bytes, len);
    evbuffer_drain(input, used);
    size_t grown = c->parser.body.len - c->body_bytes;
    c->body_bytes += grown;
    c->server->body_bytes += grown;
    return grown;
}

static void feed(struct http_exchange *c, struct evbuffer *input)
{
    struct http_server *s = c->server;
    size_t grown = parse(c, input);
    if (c->state == X_IDLE && !http_parser_is_idle(&c->parser)) {
        c->state = X_HEAD;
        c->began_ns = clock_now_ns();
        arm(c, s->options.header_timeout_ms);
    }
    if (c->parser.state == HTTP_REFUSED)
        refuse(c, c->parser.status, c->parser.message);
    else if (grown && s->body_bytes > s->options.max_bodies_bytes)
        refuse(c, 503, "too many large requests are being read at once; try again soon");
    else if (c->state == X_HEAD && http_parser_head_done(&c->parser))
        head_done(c);
    if (c->bev && c->parser.state == HTTP_DONE && (c->state == X_BODY || c->state == X_RUNNING)) {
        c->state = X_RUNNING;
        arm(c, 0);
        s->handler.request(s->handler.context, c);
    }
}

static void read_cb(struct bufferevent *bev, void *arg)
{
    struct http_exchange *c = arg;
    struct evbuffer *input = bufferevent_get_input(bev);
    while (c->bev && c->state <= X_BODY && evbuffer_get_length(input) > 0) {
        /* A client that sends requests without reading answers blocks only itself. */
        if (c->state == X_IDLE &&
            evbuffer_get_length(bufferevent_get_output(bev)) > HTTP_OUTPUT_LOW)
            return;
        feed(c, input);
    }
    if (!c->bev)
        return;
    if (c->state >= X_FLUSHING)
        evbuffer_drain(input, evbuffer_get_length(input));
    /* The high watermark has paused reading: detect a hang-up another way. */
    else if (c->closed && evbuffer_get_length(input) >= HTTP_MAX_PIPELINED)
        event_add(c->closed, NULL);
}

static void write_cb(struct bufferevent *bev, void *arg)
{
    struct http_exchange *c = arg;
    struct http_server *s = c->server;
    bool empty = evbuffer_get_length(bufferevent_get_output(bev)) == 0;
    if (c->state == X_FLUSHING && empty) {
        close_gently(c);
    } else if (c->eof && empty) {
        connection_lost(c);
    } else if (c->state == X_RUNNING && c->full) {
        c->full = false;
        s->handler.room(s->handler.context, c);
    } else if (c->state == X_IDLE) {
        read_cb(bev, arg);
    }
}

static void event_cb(struct bufferevent *bev, short what, void *arg)
{
    struct http_exchange *c = arg;
    bool unsent = evbuffer_get_length(bufferevent_get_output(bev)) > 0;
    c->eof |= (what & BEV_EVENT_EOF) != 0;
    /* The client sends no more, but a complete answer is being sent: let it arrive. */
    if ((what & BEV_EVENT_EOF) && c->state != X_RUNNING && c->state != X_LINGERING && unsent) {
        evtimer_del(c->timer);
        return;
    }
    connection_lost(c);
}

static void closed_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    connection_lost(arg);
}

static void timer_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct http_exchange *c = arg;
    if (c->state == X_HEAD)
        refuse(c, 408, "the request header did not arrive in time");
    else if (c->state == X_BODY)
        refuse(c, 408, "the request body did not arrive in time");
    else if (c->state == X_IDLE && evbuffer_get_length(bufferevent_get_output(c->bev)) > 0)
        arm(c, c->server->options.idle_timeout_ms); /* its answer is still being sent */
    else
        connection_lost(c);
}

/* ---- accepting ---------------------------------------------------------------------------- */

/* Without an IPv6 zone: it is not part of the address. */
static void address_text(const struct sockaddr *address, char out[INET6_ADDRSTRLEN])
{
    bool v6 = address->sa_family == AF_INET6;
    const void *ip = v6 ? (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr
                        : (const void *)&((const struct sockaddr_in *)address)->sin_addr;
    inet_ntop(v6 ? AF_INET6 : AF_INET, ip, out, INET6_ADDRSTRLEN);
}

/* Makes room for one more connection by closing an idle one, if any. */
static bool make_room(struct http_server *s)
{
    if (s->n_connections < s->options.max_connections)
        return true;
    struct http_exchange *oldest = NULL;
    for (struct http_exchange *c = s->connections; c; c = c->next)
        if (c->state == X_IDLE && evbuffer_get_length(bufferevent_get_output(c->bev)) == 0)
            oldest = c;
    if (oldest)
        connection_close(oldest);
    return oldest != NULL;
}

static void refuse_connection(evutil_socket_t fd)
{
    static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
                               "Retry-After: 1\r\nContent-Length: 0\r\n\r\n";
    log_warn("rejected a connection: too many are open");
    if (send(fd, busy, sizeof busy - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        shutdown(fd, SHUT_WR);
    evutil_closesocket(fd);
}

static struct http_exchange *connection_make(struct http_server *s, evutil_socket_t fd)
{
    struct http_exchange *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->server = s;
    c->timer = evtimer_new(s->base, timer_cb, c);
    if (c->timer)
        c->bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (c->bev)
        return c;
    if (c->timer)
        event_free(c->timer);
    free(c);
    return NULL;
}

static void accept_cb(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
                      int len, void *arg)
{
    (void)listener, (void)len;
    struct http_server *s = arg;
    struct http_exchange *c = make_room(s) ? connection_make(s, fd) : NULL;
    if (!c) {
        refuse_connection(fd);
        return;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* for peers that vanish silently */
    if (event_base_get_features(s->base) & EV_FEATURE_EARLY_CLOSE)
        c->closed = event_new(s->base, fd, EV_CLOSED, closed_cb, c);
    http_parser_open(&c->parser, s->options.max_header_bytes, s->options.max_body_bytes);
    struct sockaddr_storage local;
    socklen_t local_len = sizeof local;
    address_text(address, c->peer);
    if (getsockname(fd, (struct sockaddr *)&local, &local_len) == 0)
        address_text((struct sockaddr *)&local, c->local);
    c->next = s->connections;
    if (c->next)
        c->next->prev = c;
    s->connections = c;
    s->n_connections++;
    struct timeval write_timeout = timeval_from_ms(s->options.write_timeout_ms);
    bufferevent_setcb(c->bev, read_cb, write_cb, event_cb, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, HTTP_MAX_PIPELINED);
    bufferevent_setwatermark(c->bev, EV_WRITE, HTTP_OUTPUT_LOW, 0);
    bufferevent_set_timeouts(c->bev, NULL, s->options.write_timeout_ms ? &write_timeout : NULL);
    arm(c, s->options.header_timeout_ms);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

/* Out of file descriptors or memory: without a pause the loop would spin on the waiting
 * connection. */
static void accept_error_cb(struct evconnlistener *listener, void *arg)
{
    struct http_server *s = arg;
    struct timeval pause = timeval_from_ms(ACCEPT_PAUSE_MS);
    log_warn("cannot accept a connection: %s", strerror(errno));
    evconnlistener_disable(listener);
    evtimer_add(s->accept_again, &pause);
}

static void accept_again_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct http_server *s = arg;
    if (s->listener)
        evconnlistener_enable(s->listener);
}

/* Raises the file limit to the number of connections, if the system allows it. */
static void raise_file_limit(uint32_t max_connections)
{
    struct rlimit limit;
    rlim_t want = (rlim_t)max_connections + SPARE_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= want)
        return;
    limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int server_listen(struct http_server *s, struct error *err)
{
    int fd = s->options.listen_fd > 0 ? s->options.listen_fd
                                      : http_listen(s->options.host, s->options.port, err);
    if (fd < 0)
        return -1;
    s->listener = evconnlistener_new(s->base, accept_cb, s,
                                     LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!s->listener) {
        evutil_closesocket(fd);
        return error_set(err, ERROR_MEMORY, "no memory for the HTTP server");
    }
    evconnlistener_set_error_cb(s->listener, accept_error_cb);
    http_listener_url(fd, s->url);
    return 0;
}

/* ---- stopping the server ------------------------------------------------------------------ */

static bool is_answering(const struct http_server *s)
{
    for (const struct http_exchange *c = s->connections; c; c = c->next)
        if (c->state == X_RUNNING || c->state == X_FLUSHING)
            return true;
    return false;
}

static void close_idle(struct http_server *s)
{
    for (struct http_exchange *c = s->connections, *next; c; c = next) {
        next = c->next;
        if (c->state != X_IDLE)
            continue;
        if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0) {
            connection_close(c);
        } else { /* its last answer is still being sent */
            c->state = X_FLUSHING;
            arm(c, 0);
        }
    }
}

/* The last answer of a draining server is sent: accept no more connections, and do not wait for
 * clients with incomplete requests. */
static void leave(struct http_server *s)
{
    evconnlistener_free(s->listener);
    s->listener = NULL;
    close_idle(s);
    for (struct http_exchange *c = s->connections, *next; c; c = next) {
        next = c->next;
        if (c->state == X_HEAD || c->state == X_BODY)
            refuse(c, 503, "the server is stopping");
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
    if (s->draining && s->listener && !is_answering(s))
        leave(s);
    if (s->draining && s->n_connections == 0)
        s->handler.drained(s->handler.context);
}

/* ---- open and close ----------------------------------------------------------------------- */

int http_server_open(struct http_server **out, struct event_base *base,
                     const struct http_options *options, const struct http_handler *handler,
                     struct error *err)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, ERROR_MEMORY, "no memory for the HTTP server");
    s->base = base;
    s->options = *options;
    s->handler = *handler;
    s->reap = event_new(base, -1, 0, reap_cb, s);
    s->accept_again = evtimer_new(base, accept_again_cb, s);
    raise_file_limit(options->max_connections);
    if (!s->reap || !s->accept_again) {
        error_set(err, ERROR_MEMORY, "no memory for the HTTP server");
        goto fail;
    }
    if (server_listen(s, err))
        goto fail;
    *out = s;
    return 0;
fail:
    http_server_close(s);
    return -1;
}

void http_server_close(struct http_server *s)
{
    if (!s)
        return;
    s->draining = false;
    while (s->connections)
        connection_close(s->connections);
    reap_cb(-1, 0, s);
    if (s->listener)
        evconnlistener_free(s->listener);
    if (s->reap)
        event_free(s->reap);
    if (s->accept_again)
        event_free(s->accept_again);
    free(s);
}

const char *http_server_url(const struct http_server *s)
{
    return s->url;
}

uint32_t http_server_connections(const struct http_server *s)
{
    return s->n_connections;
}

void http_server_drain(struct http_server *s)
{
    s->draining = true;
    close_idle(s);
    event_active(s->reap, 0, 0);
}
