/* A small line editor: raw mode while a line is typed, the usual keys, history on the arrows.
 * Columns are counted as code points, so that wide characters may sit one column off. */
#include "cli/line_editor.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    KEY_ESCAPE = 27,
    KEY_BACKSPACE = 127,
    KEY_UP = 1000,
    KEY_DOWN,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
};

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
    int c = byte_read();
    if (c != '[' && c != 'O')
        return KEY_ESCAPE;
    int parameter = 0;
    while ((c = byte_read()) >= '0' && c <= ';')
        parameter = c == ';' ? parameter : parameter * 10 + (c - '0');
    if (c == '~')
        return parameter == 3                     ? KEY_DELETE
               : parameter == 1 || parameter == 7 ? KEY_HOME
               : parameter == 4 || parameter == 8 ? KEY_END
                                                  : KEY_ESCAPE;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].final == c)
            return keys[i].key;
    return KEY_ESCAPE;
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static size_t columns(const char *bytes, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += !is_continuation(bytes[i]);
    return n;
}

static void line_draw(const struct line_editor *e, const char *prompt)
{
    printf("\r%s%s\033[K", prompt, strbuf_str(&e->line));
    size_t back = columns(strbuf_str(&e->line) + e->cursor, e->line.len - e->cursor);
    if (back)
        printf("\033[%zuD", back);
    fflush(stdout);
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

/* True with a line; false at the end of input. */
static bool line_edit(struct line_editor *e, const char *prompt)
{
    size_t history_at = e->n_history;
    line_set(e, "");
    for (;;) {
        line_draw(e, prompt);
        int key = byte_read();
        if (key == KEY_ESCAPE)
            key = escape_read();
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
    return c == EOF && !e->line.len ? NULL : strbuf_str(&e->line);
}

const char *line_editor_read(struct line_editor *e, const char *prompt)
{
    struct termios saved, raw;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &saved))
        return plain_read(e);
    raw = saved;
    cfmakeraw(&raw);
    raw.c_oflag |= OPOST;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    bool got = line_edit(e, prompt);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
    printf("\n");
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
