/* One epoll for the hang-ups of all connections. Everything belongs to the event loop's thread. */
#include "serve/http/hangups.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <event2/event.h>

enum { A_TURN = 64 }; /* hang-ups that a turn of the loop handles */

/* Fetches one at a time: what one hang-up leads to may close another connection of a batch.
 * EPOLLHUP is no reset: both sides may have ended their sending, with bytes still to be read. */
static void ready_cb(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct hangups *h = arg;
    struct epoll_event event;
    for (int i = 0; i < A_TURN && epoll_wait(fd, &event, 1, 0) == 1; i++)
        h->seen(event.data.ptr, event.events & EPOLLERR);
}

int hangups_open(struct hangups *h, struct event_base *base,
                 void (*seen)(void *subject, bool is_reset))
{
    *h = (struct hangups){.epoll_fd = epoll_create1(EPOLL_CLOEXEC), .seen = seen};
    if (h->epoll_fd < 0)
        return -1;
    h->ready = event_new(base, h->epoll_fd, EV_READ | EV_PERSIST, ready_cb, h);
    return h->ready ? event_add(h->ready, NULL) : -1;
}

void hangups_close(struct hangups *h)
{
    if (h->ready)
        event_free(h->ready);
    if (h->epoll_fd >= 0)
        close(h->epoll_fd);
    *h = (struct hangups){.epoll_fd = -1};
}

void hangups_watch(struct hangups *h, int fd, void *subject)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = subject};
    epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

void hangups_unwatch(struct hangups *h, int fd)
{
    epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}
