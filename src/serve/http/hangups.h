#ifndef RADISH_SERVE_HTTP_HANGUPS_H
#define RADISH_SERVE_HTTP_HANGUPS_H

#include <stdbool.h>

/* Sees clients hang up while nothing is read from them.
 *
 *   sockets that nobody reads ──► one epoll for hang-ups only ──► the event loop
 *
 * libevent's EV_CLOSED does not see resets, and its loop spins on them. One epoll for all
 * connections costs one file descriptor, whatever their number. */
struct event;
struct event_base;

struct hangups {
    int epoll_fd;
    struct event *ready;
    /* Called from the event loop, once for each watch. May end any watch. */
    void (*seen)(void *subject, bool is_reset);
};

int hangups_open(struct hangups *h, struct event_base *base,
                 void (*seen)(void *subject, bool is_reset));
void hangups_close(struct hangups *h); /* also after hangups_open has failed */

/* Without memory for it, a hang-up is seen when reading goes on. */
void hangups_watch(struct hangups *h, int fd, void *subject);
/* After this, `seen` is not called. Call it before the socket is closed. */
void hangups_unwatch(struct hangups *h, int fd);

#endif
