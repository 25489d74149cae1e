/* The two protocols are a few lines each, so there is no library for them. */
#include "base/service_manager.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/* The number in an environment variable, or -1. */
static long number_in(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long n = text && *text ? strtol(text, &end, 10) : -1;
    return n >= 0 && *end == '\0' ? n : -1;
}

int service_take_sockets(void)
{
    enum { MAX_SOCKETS = 1024 };
    long pid = number_in("LISTEN_PID"), n = number_in("LISTEN_FDS");
    bool is_for_us = pid == (long)getpid() && n > 0 && n <= MAX_SOCKETS;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return is_for_us ? (int)n : 0;
}

void service_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof at.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(at.sun_path, path, len);
    if (path[0] == '@') /* a name that is not in the file system */
        at.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t at_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    if (fd < 0 ||
        sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&at, at_len) < 0)
        log_warn("cannot tell the service manager at %s: %s", path, state);
    if (fd >= 0)
        close(fd);
}

void service_notify_reloading(void)
{
    char state[80];
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now_ns() / 1000);
    service_notify(state);
}
