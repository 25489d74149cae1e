/* The list of mapped files, and the handler that looks into it. The list is changed under a lock by
 * any thread. The handler may run on any thread at any moment, so it takes no lock, and entries are
 * reused but never freed. */
#include "base/map_guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 600, STATUS_FAILED = 1 };

struct guarded {
    struct guarded *next;
    _Atomic uintptr_t begin; /* 0: unused */
    size_t len;
    size_t message_bytes;
    char message[MESSAGE_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct guarded *_Atomic list;

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    for (const struct guarded *g = atomic_load(&list); g; g = g->next) {
        const uintptr_t begin = atomic_load(&g->begin);
        if (begin == 0 || at < begin || at - begin >= g->len)
            continue;
        (void)!write(STDERR_FILENO, g->message, g->message_bytes);
        _exit(STATUS_FAILED);
    }
    signal(number, SIG_DFL); /* returning repeats what failed, which then crashes */
}

void map_guard_install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

/* An unused entry, or a new one; NULL without memory. */
static struct guarded *entry_take(void)
{
    struct guarded *g = atomic_load(&list);
    while (g && atomic_load(&g->begin))
        g = g->next;
    if (g)
        return g;
    g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->next = atomic_load(&list);
    atomic_store(&list, g);
    return g;
}

void map_guard_add(const void *begin, size_t len, const char *path)
{
    pthread_mutex_lock(&lock);
    struct guarded *g = entry_take();
    if (g) {
        int n = snprintf(g->message, sizeof g->message,
                         "radish: %.450s: it cannot be read any more: it was cut short while in "
                         "use, or its disk fails\n",
                         path);
        g->message_bytes = (size_t)n;
        g->len = len;
        atomic_store(&g->begin, (uintptr_t)begin);
    }
    pthread_mutex_unlock(&lock);
}

void map_guard_remove(const void *begin)
{
    pthread_mutex_lock(&lock);
    for (struct guarded *g = atomic_load(&list); g; g = g->next)
        if (atomic_load(&g->begin) == (uintptr_t)begin)
            atomic_store(&g->begin, 0);
    pthread_mutex_unlock(&lock);
}
