/* A small line editor: raw mode while a line is typed, the usual keys, history on the arrows. The
 * terminal is the user's again whatever ends the typing, a signal included. */
#include "cli/line_editor.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { MAX_HISTORY = 500 };
enum key {
    KEY_END_OF_INPUT = -1,
    KEY_CTRL_A = 1,
    KEY_CTRL_C = 3,
    KEY_CTRL_D = 4,
    KEY_CTRL_E = 5,
    KEY_CTRL_K = 11,
    KEY_ENTER = 13,
    KEY_CTRL_U = 21,
    KEY_CTRL_W = 23,
    KEY_ESCAPE = 27,
    KEY_BACKSPACE = 127,
    KEY_UP = 1000,
    KEY_DOWN,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_PASTE_BEGIN,
    KEY_PASTE_END,
};

#define PASTE_MARKS_ON  "\033[?2004h"
#define PASTE_MARKS_OFF "\033[?2004l"

static int byte_read(void)
{
    unsigned char byte;
    ssize_t n;
    do
        n = read(STDIN_FILENO, &byte, 1);
    while (n < 0 && errno == EINTR);
    return n == 1 ? byte : KEY_END_OF_INPUT;
}

/* After ESC: the sequences "[A" and "[3~" that terminals send. */
static int escape_read(void)
{
    static const struct {
        char final;
        int key;
    } keys[] = {{'A', KEY_UP},   {'B', KEY_DOWN}, {'C', KEY_RIGHT},
                {'D', KEY_LEFT}, {'H', KEY_HOME}, {'F', KEY_END}};
    static const struct {
        int parameter, key;
    } numbered[] = {{1, KEY_HOME},   {7, KEY_HOME},          {4, KEY_END},        {8, KEY_END},
                    {3, KEY_DELETE}, {200, KEY_PASTE_BEGIN}, {201, KEY_PASTE_END}};
    int c = byte_read();
    if (c != '[' && c != 'O')
        return KEY_ESCAPE;
    int parameter = 0;
    while ((c = byte_read()) >= '0' && c <= ';')
        parameter = c == ';' ? parameter : parameter * 10 + (c - '0');
    for (size_t i = 0; c == '~' && i < sizeof numbered / sizeof *numbered; i++)
        if (numbered[i].parameter == parameter)
            return numbered[i].key;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].final == c)
            return keys[i].key;
    return KEY_ESCAPE;
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static struct screen_size screen_size(void)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col < 4 || size.ws_row < 1)
        return (struct screen_size){.columns = 80, .rows = 24};
    return (struct screen_size){.columns = size.ws_col, .rows = size.ws_row};
}

static void line_draw(struct line_editor *e, const char *prompt)
{
    struct strbuf out = STRBUF_INIT;
    line_view_draw(&e->view, screen_size(), prompt, &e->line, e->cursor, &out);
    fwrite(strbuf_str(&out), 1, out.len, stdout);
    fflush(stdout);
    strbuf_free(&out);
}

/* More keys are there already: a pasted text, or the rest of a character. */
static bool input_is_pending(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

static size_t position_before(const struct line_editor *e)
{
    size_t at = e->cursor;
    while (at > 0 && is_continuation(e->line.data[--at]))
        ;
    return at;
}

static size_t position_after(const struct line_editor *e)
{
    size_t at = e->cursor;
    while (at < e->line.len && is_continuation(e->line.data[++at]))
        ;
    return at;
}

/* Where the word before the cursor begins. */
static size_t position_word(const struct line_editor *e)
{
    size_t at = e->cursor;
    while (at > 0 && is_space(e->line.data[at - 1]))
        at--;
    while (at > 0 && !is_space(e->line.data[at - 1]))
        at--;
    return at;
}

static void bytes_remove(struct line_editor *e, size_t from, size_t to)
{
    if (from == to)
        return;
    memmove(e->line.data + from, e->line.data + to, e->line.len - to + 1);
    e->line.len -= to - from;
    e->cursor = from;
}

static void byte_insert(struct line_editor *e, char c)
{
    strbuf_addc(&e->line, c);
    if (e->line.failed)
        return;
    memmove(e->line.data + e->cursor + 1, e->line.data + e->cursor, e->line.len - 1 - e->cursor);
    e->line.data[e->cursor++] = c;
}

static void line_set(struct line_editor *e, const char *text)
{
    strbuf_clear(&e->line);
    strbuf_adds(&e->line, text);
    e->cursor = e->line.len;
}

/* `at` walks the history; one past its end is the line being typed, which starts empty. */
static void history_move(struct line_editor *e, size_t *at, int step)
{
    if ((step < 0 && *at == 0) || (step > 0 && *at == e->n_history))
        return;
    *at += (size_t)step;
    line_set(e, *at < e->n_history ? e->history[*at] : "");
}

static void history_add(struct line_editor *e)
{
    if (!e->line.len || (e->n_history && strcmp(e->history[e->n_history - 1], e->line.data) == 0))
        return;
    if (e->n_history == MAX_HISTORY) {
        free(e->history[0]);
        memmove(e->history, e->history + 1, --e->n_history * sizeof *e->history);
    }
    char **history = realloc(e->history, (e->n_history + 1) * sizeof *history);
    if (!history)
        return;
    e->history = history;
    if ((history[e->n_history] = strdup(e->line.data)))
        e->n_history++;
}

/* Applies a key that edits or moves. */
static void key_apply(struct line_editor *e, int key, size_t *history_at)
{
    switch (key) {
    case KEY_UP: history_move(e, history_at, -1); break;
    case KEY_DOWN: history_move(e, history_at, 1); break;
    case KEY_LEFT: e->cursor = position_before(e); break;
    case KEY_RIGHT: e->cursor = position_after(e); break;
    case KEY_HOME:
    case KEY_CTRL_A: e->cursor = 0; break;
    case KEY_END:
    case KEY_CTRL_E: e->cursor = e->line.len; break;
    case KEY_CTRL_U: bytes_remove(e, 0, e->cursor); break;
    case KEY_CTRL_W: bytes_remove(e, position_word(e), e->cursor); break;
    case KEY_CTRL_K: bytes_remove(e, e->cursor, e->line.len); break;
    case 8:
    case KEY_BACKSPACE: bytes_remove(e, position_before(e), e->cursor); break;
    case KEY_CTRL_D:
    case KEY_DELETE: bytes_remove(e, e->cursor, position_after(e)); break;
    default:
        if (key >= 32 && key < 256)
            byte_insert(e, (char)key);
    }
}

/* A key within a pasted text, which is all text; terminals send its newlines as Enter. */
static void pasted_apply(struct line_editor *e, int key)
{
    if (key == KEY_ENTER)
        key = '\n';
    if (key == '\n' || key == '\t' || (key >= ' ' && key < 256 && key != KEY_BACKSPACE))
        byte_insert(e, (char)key);
}

/* True with a line; false at the end of input. */
static bool line_edit(struct line_editor *e, const char *prompt)
{
    size_t history_at = e->n_history;
    bool is_pasting = false;
    line_set(e, "");
    for (;;) {
        if (!input_is_pending())
            line_draw(e, prompt);
        int key = byte_read();
        if (key == KEY_ESCAPE)
            key = escape_read();
        if (key == KEY_PASTE_BEGIN || key == KEY_PASTE_END) {
            is_pasting = key == KEY_PASTE_BEGIN;
            continue;
        }
        if (is_pasting && key != KEY_END_OF_INPUT) {
            pasted_apply(e, key);
            continue;
        }
        if (key == KEY_END_OF_INPUT || (key == KEY_CTRL_D && e->line.len == 0))
            return false;
        if (key == KEY_ENTER || key == '\n')
            return true;
        if (key == KEY_CTRL_C) {
            line_set(e, "");
            history_at = e->n_history;
        }
        key_apply(e, key, &history_at);
    }
}

static const char *plain_read(struct line_editor *e)
{
    int c;
    line_set(e, "");
    while ((c = getchar()) != EOF && c != '\n')
        strbuf_addc(&e->line, (char)c);
    if (c == EOF && !e->line.len)
        return NULL;
    if (e->line.len && e->line.data[e->line.len - 1] == '\r')
        e->line.data[--e->line.len] = '\0';
    return strbuf_str(&e->line);
}

/* What a signal that ends the program must undo first. */
static const int ending_signals[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};
enum { N_SIGNALS = sizeof ending_signals / sizeof *ending_signals };
static struct termios saved_mode;
static struct sigaction saved_actions[N_SIGNALS];

/* The signal comes again when the handler returns, and then finds its default. */
static void terminal_give_back(int signal_number)
{
    static const char marks[] = PASTE_MARKS_OFF "\n";
    ssize_t written = write(STDOUT_FILENO, marks, sizeof marks - 1);
    (void)written; /* the terminal may be gone */
    tcsetattr(STDIN_FILENO, TCSANOW, &saved_mode);
    raise(signal_number);
}

static void terminal_take(void)
{
    struct sigaction action = {.sa_handler = terminal_give_back, .sa_flags = (int)SA_RESETHAND};
    for (int i = 0; i < N_SIGNALS; i++) {
        sigaction(ending_signals[i], NULL, &saved_actions[i]);
        if (saved_actions[i].sa_handler != SIG_IGN)
            sigaction(ending_signals[i], &action, NULL);
    }
    struct termios raw = saved_mode;
    cfmakeraw(&raw);
    raw.c_oflag |= OPOST;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    printf(PASTE_MARKS_ON);
}

static void terminal_release(void)
{
    printf(PASTE_MARKS_OFF "\n");
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_mode);
    for (int i = 0; i < N_SIGNALS; i++)
        sigaction(ending_signals[i], &saved_actions[i], NULL);
}

const char *line_editor_read(struct line_editor *e, const char *prompt)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &saved_mode))
        return plain_read(e);
    setlocale(LC_CTYPE, "C.UTF-8"); /* for the width of characters */
    terminal_take();
    e->view = (struct line_view){0};
    bool got = line_edit(e, prompt);
    e->cursor = e->line.len;
    line_draw(e, prompt); /* so that what follows comes below the last row */
    terminal_release();
    if (!got)
        return NULL;
    history_add(e);
    return strbuf_str(&e->line);
}

void line_editor_free(struct line_editor *e)
{
    for (size_t i = 0; i < e->n_history; i++)
        free(e->history[i]);
    free(e->history);
    strbuf_free(&e->line);
    *e = (struct line_editor){0};
}
