/* The handler and what it shares with the event loop's thread: a count, the signals' numbers and an
 * eventfd. A handler may only do what POSIX calls async-signal-safe. */
#include "serve/stop_signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { DEADLY = 3 };

static atomic_bool is_serving;
static atomic_int n_caught;
static atomic_int numbers[DEADLY - 1];
static int n_given;
static int fd = -1;

/* The signal blocks itself while it is handled. The first process of a container survives signals
 * that it does not handle, so it exits. */
static void die_of(int number)
{
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    raise(number);
    _exit(128 + number);
}

static void on_signal(int number)
{
    static const char message[] = "radish: stopped before the model was loaded\n";
    const int saved = errno;
    const uint64_t one = 1;
    if (!atomic_load(&is_serving)) {
        (void)!write(STDERR_FILENO, message, sizeof message - 1);
        die_of(number);
    }
    const int n = atomic_fetch_add(&n_caught, 1);
    if (n < DEADLY - 1)
        atomic_store(&numbers[n], number);
    if (n >= DEADLY - 1 || write(fd, &one, sizeof one) < 0)
        die_of(number);
    errno = saved;
}

int stop_signals_catch(struct error *err)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0 || sigaction(SIGINT, &action, NULL) || sigaction(SIGTERM, &action, NULL))
        return error_set(err, ERROR_IO, "cannot handle signals: %s", strerror(errno));
    return 0;
}

int stop_signals_serve(void)
{
    atomic_store(&is_serving, true);
    return fd;
}

int stop_signals_next(void)
{
    const int number = n_given < DEADLY - 1 ? atomic_load(&numbers[n_given]) : 0;
    n_given += number != 0;
    return number;
}

void stop_signals_end(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (fd >= 0)
        close(fd);
    fd = -1;
}
