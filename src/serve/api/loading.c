/* Answers while the model is loaded: a separate thread runs an event loop with the server's HTTP
 * layer, so that a silent client does not block others. */
#include "serve/api/loading.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <event2/event.h>

#include "serve/api/access.h"
#include "serve/api/api.h"
#include "serve/api/api_error.h"
#include "serve/http/http_server.h"

enum { MAX_CONNECTIONS = 256, MAX_HEAD = 32 << 10, MAX_UNSENT = 1 << 20, READ_MS = 10000 };
enum { LAST_LOOK_US = 2000, LAST_LOOKS = 50 };

struct loading {
    int stop_fd;
    struct event_base *base;
    struct event *stop, *last;
    unsigned n_looks;
    struct http_listeners listeners; /* copies */
    struct http_server *http;
    pthread_t thread;
};

/* llama-server's clients look for this text, and its code is a number. Answers without waiting for
 * the body, and closes the connection, so that the next one reaches the server. */
static void on_head(void *context, struct http_exchange *x)
{
    (void)context;
    bool is_ollama = error_form_of(http_parser_target(http_request(x))) == ERRORS_OLLAMA;
    const char *body = is_ollama ? "{\"error\":\"Loading model\"}"
                                 : "{\"error\":{\"message\":\"Loading model\","
                                   "\"type\":\"unavailable_error\",\"param\":null,\"code\":503}}";
    access_identify(x);
    http_log_quietly(x);
    http_add_field(x, "Retry-After", "1");
    http_close_after(x);
    http_reply(x, 503, "application/json", body, strlen(body));
}

static void on_refused(void *context, struct http_exchange *x, int status, const char *message)
{
    (void)context;
    struct api_error e;
    api_error_set(&e, status, NULL, "%s", message);
    api_reply_error(x, &e);
}

static void on_over(void *context, struct http_exchange *x, const struct http_outcome *outcome)
{
    (void)context;
    access_log(NULL, x, outcome);
}

/* Who has been accepted gets an answer, if the request is there within a tenth of a second. */
static void last_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct loading *l = arg;
    struct timeval soon = {.tv_usec = LAST_LOOK_US};
    if (http_server_connections(l->http) == 0 || l->n_looks++ == LAST_LOOKS)
        event_base_loopbreak(l->base);
    else
        evtimer_add(l->last, &soon);
}

static void stop_cb(evutil_socket_t fd, short what, void *arg)
{
    struct loading *l = arg;
    http_server_stop_accepting(l->http);
    last_cb(fd, what, arg);
}

static void *loading_main(void *arg)
{
    event_base_dispatch(((struct loading *)arg)->base);
    return NULL;
}

static int loop_open(struct loading *l, const struct http_listeners *listeners,
                     struct tls_context *tls, struct error *err)
{
    struct http_options options = {.listeners = &l->listeners,
                                   .tls = tls,
                                   .max_connections = MAX_CONNECTIONS,
                                   .max_connections_per_address = MAX_CONNECTIONS / 4,
                                   .max_header_bytes = MAX_HEAD,
                                   .max_body_bytes = SIZE_MAX / 2, /* bodies are not read */
                                   .max_bodies_bytes = SIZE_MAX / 2,
                                   .max_unsent_bytes = MAX_UNSENT,
                                   .header_timeout_ms = READ_MS,
                                   .write_timeout_ms = READ_MS};
    /* Every head is answered at once, so no request ever runs and the other callbacks are not
     * needed. */
    struct http_handler handler = {.head = on_head, .refused = on_refused, .over = on_over};
    l->stop_fd = eventfd(0, EFD_CLOEXEC);
    l->base = event_base_new();
    if (l->stop_fd < 0 || !l->base)
        return error_set(err, ERROR_IO, "cannot create an event loop: %s", strerror(errno));
    l->stop = event_new(l->base, l->stop_fd, EV_READ, stop_cb, l);
    l->last = evtimer_new(l->base, last_cb, l);
    if (!l->stop || !l->last || event_add(l->stop, NULL))
        return error_set(err, ERROR_IO, "cannot create the event loop's events");
    if (http_listeners_copy(&l->listeners, listeners, err))
        return -1;
    return http_server_open(&l->http, l->base, &options, &handler, err);
}

static void loading_free(struct loading *l)
{
    http_server_close(l->http);
    http_listeners_close(&l->listeners);
    if (l->stop)
        event_free(l->stop);
    if (l->last)
        event_free(l->last);
    if (l->base)
        event_base_free(l->base);
    if (l->stop_fd >= 0)
        close(l->stop_fd);
    free(l);
}

int loading_begin(struct loading **out, const struct http_listeners *listeners,
                  struct tls_context *tls, struct error *err)
{
    struct loading *l = calloc(1, sizeof *l);
    sigset_t all, old;
    if (!l)
        return error_set(err, ERROR_MEMORY, "no memory for the server");
    if (loop_open(l, listeners, tls, err)) {
        loading_free(l);
        return -1;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* the main thread handles signals */
    int rc = pthread_create(&l->thread, NULL, loading_main, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        loading_free(l);
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
    loading_free(l);
}
