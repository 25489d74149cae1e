/* Terminal modes. Raw mode stays on while answers stream, not only while a line is typed; otherwise
 * input typed ahead would be echoed into the answer. */
#include "cli/terminal/terminal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define PASTE_MARKS_ON  "\033[?2004h"
#define PASTE_MARKS_OFF "\033[?2004l"

static const int ending_signals[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};
enum { N_SIGNALS = sizeof ending_signals / sizeof *ending_signals };
static struct termios saved_mode;
static struct sigaction saved_actions[N_SIGNALS], saved_resize;
static volatile sig_atomic_t resized;

static void resize_note(int signal_number)
{
    (void)signal_number;
    resized = 1;
}

/* The raised signal is delivered when the handler returns, with its default action. */
static void signal_give_back(int signal_number)
{
    static const char marks[] = PASTE_MARKS_OFF "\n";
    ssize_t written = write(STDOUT_FILENO, marks, sizeof marks - 1);
    (void)written; /* the terminal may be gone */
    tcsetattr(STDIN_FILENO, TCSANOW, &saved_mode);
    raise(signal_number);
}

static void mode_set(void)
{
    struct termios raw = saved_mode;
    cfmakeraw(&raw);
    raw.c_oflag |= OPOST;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    printf(PASTE_MARKS_ON);
    fflush(stdout);
}

static void mode_restore(void)
{
    printf(PASTE_MARKS_OFF);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_mode);
}

bool terminal_take(void)
{
    struct sigaction ending = {.sa_handler = signal_give_back, .sa_flags = (int)SA_RESETHAND};
    struct sigaction resize = {.sa_handler = resize_note}; /* no SA_RESTART: interrupts reads */
    if (!isatty(STDIN_FILENO) || !terminal_takes_escapes(STDOUT_FILENO) ||
        tcgetattr(STDIN_FILENO, &saved_mode))
        return false;
    for (int i = 0; i < N_SIGNALS; i++) {
        sigaction(ending_signals[i], NULL, &saved_actions[i]);
        if (saved_actions[i].sa_handler != SIG_IGN)
            sigaction(ending_signals[i], &ending, NULL);
    }
    sigaction(SIGWINCH, &resize, &saved_resize);
    mode_set();
    return true;
}

void terminal_release(void)
{
    mode_restore();
    for (int i = 0; i < N_SIGNALS; i++)
        sigaction(ending_signals[i], &saved_actions[i], NULL);
    sigaction(SIGWINCH, &saved_resize, NULL);
}

void terminal_suspend(void)
{
    mode_restore();
    kill(0, SIGTSTP); /* the whole process group, as the terminal would do */
    mode_set();
}

struct screen_size terminal_size(void)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col < 4 || size.ws_row < 1)
        return (struct screen_size){.columns = 80, .rows = 24};
    return (struct screen_size){.columns = size.ws_col, .rows = size.ws_row};
}

bool terminal_was_resized(void)
{
    bool was = resized;
    resized = 0;
    return was;
}

bool terminal_takes_escapes(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) && kind && *kind && strcmp(kind, "dumb") != 0;
}

bool terminal_has_colors(int fd)
{
    const char *none = getenv("NO_COLOR");
    return terminal_takes_escapes(fd) && !(none && *none);
}
