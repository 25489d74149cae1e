/* The line editor: a key changes the line or the cursor, and everything is redrawn when no further
 * key is waiting. We wrote our own because the usual libraries draw multi-line text badly, do not
 * support pasted text, and read the terminal themselves, so input typed while the model answers
 * could not be kept separate. */
#include "cli/terminal/line_editor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/terminal/glyph.h"

enum { MAX_LISTED = 100 };
static const char indent[] = "  ";

void completion_list_add(struct completion_list *c, const char *text, size_t len)
{
    char **items = realloc(c->items, (c->n + 1) * sizeof *items);
    if (!items)
        return;
    c->items = items;
    if ((items[c->n] = strndup(text, len)))
        c->n++;
}

void completion_list_free(struct completion_list *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->items[i]);
    free(c->items);
}

/* ---- drawing ------------------------------------------------------------------------------ */

static void text_draw(struct line_editor *e, const char *prompt, const struct strbuf *line,
                      size_t cursor)
{
    struct strbuf out = STRBUF_INIT;
    struct line_text text = {prompt, indent, line, cursor, e->has_colors};
    line_view_draw(&e->view, terminal_size(), &text, &out);
    fwrite(strbuf_str(&out), 1, out.len, stdout);
    fflush(stdout);
    strbuf_free(&out);
}

static void line_draw(struct line_editor *e, const char *prompt)
{
    text_draw(e, prompt, &e->line, e->cursor);
}

/* Leaves the text on the screen and moves the cursor after it. */
static void line_leave(struct line_editor *e, const char *prompt)
{
    e->cursor = e->line.len;
    line_draw(e, prompt);
    line_view_leave(&e->view);
    printf("\n");
    fflush(stdout);
}

/* ---- the line ----------------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static char at_cursor(const struct line_editor *e)
{
    return e->cursor < e->line.len ? e->line.data[e->cursor] : '\0';
}

static size_t position_before(const struct line_editor *e)
{
    return e->cursor ? glyph_before(e->line.data, e->cursor) : 0;
}

static size_t position_after(const struct line_editor *e)
{
    return glyph_after(strbuf_str(&e->line), e->line.len, e->cursor);
}

/* The start of the word before the cursor. Words are separated by blanks or, with `is_letters`, by
 * anything that is not a letter, digit or underscore. */
static size_t position_word(const struct line_editor *e, bool is_letters)
{
    size_t at = e->cursor;
    const char *line = strbuf_str(&e->line);
    while (at > 0 && (is_letters ? !is_word(line[at - 1]) : is_space(line[at - 1])))
        at--;
    while (at > 0 && (is_letters ? is_word(line[at - 1]) : !is_space(line[at - 1])))
        at--;
    return at;
}

static size_t position_word_end(const struct line_editor *e)
{
    size_t at = e->cursor;
    while (at < e->line.len && !is_word(e->line.data[at]))
        at++;
    while (at < e->line.len && is_word(e->line.data[at]))
        at++;
    return at;
}

/* The start of the line of the text that contains `at`. */
static size_t line_begin(const struct line_editor *e, size_t at)
{
    while (at > 0 && e->line.data[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_end(const struct line_editor *e, size_t at)
{
    while (at < e->line.len && e->line.data[at] != '\n')
        at++;
    return at;
}

static void bytes_remove(struct line_editor *e, size_t from, size_t to)
{
    if (from >= to)
        return;
    memmove(e->line.data + from, e->line.data + to, e->line.len - to + 1);
    e->line.len -= to - from;
    e->cursor = from;
}

/* Removes text that Ctrl-Y can bring back. */
static void bytes_kill(struct line_editor *e, size_t from, size_t to)
{
    if (from >= to)
        return;
    strbuf_clear(&e->killed);
    strbuf_add(&e->killed, e->line.data + from, to - from);
    bytes_remove(e, from, to);
}

static void bytes_insert(struct line_editor *e, const char *bytes, size_t len)
{
    size_t before = e->line.len;
    strbuf_add(&e->line, bytes, len);
    if (e->line.failed || !len)
        return;
    memmove(e->line.data + e->cursor + len, e->line.data + e->cursor, before - e->cursor);
    memcpy(e->line.data + e->cursor, bytes, len);
    e->cursor += len;
}

static void byte_insert(struct line_editor *e, char c)
{
    bytes_insert(e, &c, 1);
}

static void line_set(struct line_editor *e, const char *text)
{
    strbuf_clear(&e->line);
    strbuf_adds(&e->line, text);
    e->cursor = e->line.len;
}

/* Ctrl-K: deletes the rest of the line, or the line break at its end. */
static void rest_kill(struct line_editor *e)
{
    size_t end = line_end(e, e->cursor);
    bytes_kill(e, e->cursor, end > e->cursor || end == e->line.len ? end : end + 1);
}

/* Ctrl-T: swaps the glyphs around the cursor; at the end of a line, the two before it. */
static void glyphs_swap(struct line_editor *e)
{
    if (e->cursor == e->line.len || at_cursor(e) == '\n')
        e->cursor = position_before(e);
    size_t left = position_before(e), middle = e->cursor, right = position_after(e);
    if (left == middle || middle == right)
        return;
    struct strbuf moved = STRBUF_INIT;
    strbuf_add(&moved, e->line.data + left, middle - left);
    bytes_remove(e, left, middle);
    e->cursor = right - (middle - left);
    bytes_insert(e, strbuf_str(&moved), moved.len);
    strbuf_free(&moved);
}

/* ---- history ------------------------------------------------------------------------------ */

static void history_show(struct line_editor *e, size_t at)
{
    if (e->history_at == e->history.n) {
        strbuf_clear(&e->draft);
        strbuf_add(&e->draft, strbuf_str(&e->line), e->line.len);
    }
    e->history_at = at;
    line_set(e, at < e->history.n ? e->history.items[at] : strbuf_str(&e->draft));
}

/* Moves to the line above or below, in the same column; false if there is none. */
static bool row_move(struct line_editor *e, int step)
{
    size_t begin = line_begin(e, e->cursor), end = line_end(e, e->cursor);
    if (step < 0 ? begin == 0 : end == e->line.len)
        return false;
    size_t column = glyph_columns(e->line.data + begin, e->cursor - begin);
    size_t target = step < 0 ? line_begin(e, begin - 1) : end + 1;
    size_t target_end = line_end(e, target);
    e->cursor = target;
    while (e->cursor < target_end &&
           glyph_columns(e->line.data + target, e->cursor - target) < column)
        e->cursor = position_after(e);
    return true;
}

static void up_or_down(struct line_editor *e, int step)
{
    if (row_move(e, step))
        return;
    if (step < 0 && e->history_at > 0)
        history_show(e, e->history_at - 1);
    else if (step > 0 && e->history_at < e->history.n)
        history_show(e, e->history_at + 1);
}

struct search {
    struct strbuf text, prompt;
    size_t found; /* history.n: no match yet */
};

static void search_draw(struct line_editor *e, struct search *s)
{
    struct strbuf entry = STRBUF_INIT;
    bool is_found = s->found < e->history.n;
    const char *match = is_found ? e->history.items[s->found] : "";
    const char *at = s->text.len ? strcasestr(match, strbuf_str(&s->text)) : NULL;
    strbuf_clear(&s->prompt);
    strbuf_addf(&s->prompt, "(%s: %s) ", is_found || !s->text.len ? "search" : "not found",
                strbuf_str(&s->text));
    strbuf_adds(&entry, match);
    text_draw(e, strbuf_str(&s->prompt), &entry, at ? (size_t)(at - match) : 0);
    strbuf_free(&entry);
}

static void search_step(const struct line_editor *e, struct search *s, size_t from, int step)
{
    size_t found = history_find(&e->history, strbuf_str(&s->text), from, step);
    if (found < e->history.n)
        s->found = found;
}

static void search_edit(struct line_editor *e, struct search *s, int key)
{
    if (key == KEY_BACKSPACE || key == KEY_CTRL_H) {
        if (s->text.len)
            s->text.len = glyph_before(s->text.data, s->text.len);
        if (s->text.data)
            s->text.data[s->text.len] = '\0';
        s->found = s->text.len ? history_find(&e->history, s->text.data, e->history.n, -1)
                               : e->history.n;
    } else {
        strbuf_addc(&s->text, (char)key);
        size_t from = s->found < e->history.n ? s->found + 1 : e->history.n;
        s->found = history_find(&e->history, strbuf_str(&s->text), from, -1);
    }
}

/* Ctrl-R: searches the history for what is typed until another key ends the search. Returns that
 * key, which then has its usual meaning. */
static int history_search(struct line_editor *e)
{
    struct search s = {.found = e->history.n};
    int key;
    for (;;) {
        if (!key_is_pending(&e->input))
            search_draw(e, &s);
        key = key_read(&e->input);
        if (key == KEY_RESIZED)
            line_view_resize(&e->view, terminal_size().columns);
        else if (key == KEY_CTRL_R)
            search_step(e, &s, s.found, -1);
        else if (key == KEY_CTRL_S && s.found < e->history.n)
            search_step(e, &s, s.found + 1, 1);
        else if (key == KEY_BACKSPACE || key == KEY_CTRL_H || (key >= ' ' && key < 256))
            search_edit(e, &s, key);
        else if (key != KEY_CTRL_S)
            break;
    }
    bool is_given_up = key == KEY_CTRL_G || key == KEY_CTRL_C;
    if (!is_given_up && s.found < e->history.n)
        history_show(e, s.found);
    strbuf_free(&s.text);
    strbuf_free(&s.prompt);
    return is_given_up || key == KEY_ESCAPE ? 0 : key;
}

/* ---- completion --------------------------------------------------------------------------- */

static size_t common_length(const struct completion_list *c)
{
    size_t len = strlen(c->items[0]);
    for (size_t i = 1; i < c->n; i++)
        for (size_t k = 0; k < len; k++)
            if (c->items[i][k] != c->items[0][k])
                len = k;
    while (len > 0 && ((unsigned char)c->items[0][len] & 0xc0) == 0x80)
        len--; /* not inside a character */
    return len;
}

/* Lists completions in columns below the line, then redraws the line below them. */
static void completions_list(struct line_editor *e, const struct completion_list *c,
                             const char *prompt)
{
    size_t width = 0, columns = terminal_size().columns, cursor = e->cursor;
    for (size_t i = 0; i < c->n; i++) {
        size_t own = glyph_columns(c->items[i], strlen(c->items[i]));
        width = own > width ? own : width;
    }
    size_t in_row = columns / (width + 2) ? columns / (width + 2) : 1;
    line_leave(e, prompt);
    e->cursor = cursor;
    size_t n = c->n < MAX_LISTED ? c->n : MAX_LISTED;
    for (size_t i = 0; i < n; i++) {
        struct strbuf shown = STRBUF_INIT;
        size_t len = strlen(c->items[i]), own = 0;
        for (size_t at = 0; at < len;) { /* file names may contain anything */
            struct glyph glyph = glyph_first(c->items[i] + at, len - at);
            strbuf_add(&shown, glyph.shown, glyph.shown_len);
            own += glyph.width;
            at += glyph.len;
        }
        bool is_last = (i + 1) % in_row == 0 || i + 1 == n;
        printf("%s%*s", strbuf_str(&shown), is_last ? 0 : (int)(width + 2 - own), "");
        if (is_last)
            printf("\n");
        strbuf_free(&shown);
    }
    if (c->n > n)
        printf("... and %zu more\n", c->n - n);
}

static void tab_apply(struct line_editor *e, const char *prompt)
{
    struct completion_list c = {0};
    bool is_again = e->was_tab;
    if (e->complete)
        e->complete(e->context, strbuf_str(&e->line), e->cursor, &c);
    if (c.n) {
        size_t len = common_length(&c), typed = e->cursor - c.from;
        bool is_same = len == typed && memcmp(e->line.data + c.from, c.items[0], len) == 0;
        if (len >= typed && !is_same) {
            bytes_remove(e, c.from, e->cursor);
            bytes_insert(e, c.items[0], len);
        } else if (is_again && c.n > 1) {
            completions_list(e, &c, prompt);
        }
    }
    e->was_tab = true;
    completion_list_free(&c);
}

/* ---- keys --------------------------------------------------------------------------------- */

static void key_apply(struct line_editor *e, int key)
{
    switch (key) {
    case KEY_UP:
    case KEY_CTRL_P: up_or_down(e, -1); break;
    case KEY_DOWN:
    case KEY_CTRL_N: up_or_down(e, 1); break;
    case KEY_LEFT:
    case KEY_CTRL_B: e->cursor = position_before(e); break;
    case KEY_RIGHT:
    case KEY_CTRL_F: e->cursor = position_after(e); break;
    case KEY_WORD_LEFT: e->cursor = position_word(e, true); break;
    case KEY_WORD_RIGHT: e->cursor = position_word_end(e); break;
    case KEY_HOME:
    case KEY_CTRL_A: e->cursor = line_begin(e, e->cursor); break;
    case KEY_END:
    case KEY_CTRL_E: e->cursor = line_end(e, e->cursor); break;
    case KEY_CTRL_U: bytes_kill(e, line_begin(e, e->cursor), e->cursor); break;
    case KEY_CTRL_W: bytes_kill(e, position_word(e, false), e->cursor); break;
    case KEY_WORD_ERASE: bytes_kill(e, position_word(e, true), e->cursor); break;
    case KEY_WORD_DELETE: bytes_kill(e, e->cursor, position_word_end(e)); break;
    case KEY_CTRL_K: rest_kill(e); break;
    case KEY_CTRL_Y: bytes_insert(e, strbuf_str(&e->killed), e->killed.len); break;
    case KEY_CTRL_T: glyphs_swap(e); break;
    case KEY_CTRL_H:
    case KEY_BACKSPACE: bytes_remove(e, position_before(e), e->cursor); break;
    case KEY_CTRL_D:
    case KEY_DELETE: bytes_remove(e, e->cursor, position_after(e)); break;
    case KEY_ALT_ENTER: byte_insert(e, '\n'); break;
    default:
        if (key >= ' ' && key < 256)
            byte_insert(e, (char)key);
    }
}

/* Handles keys that affect the terminal; false for others. */
static bool screen_key_apply(struct line_editor *e, int key, const char *prompt)
{
    switch (key) {
    case KEY_RESIZED: line_view_resize(&e->view, terminal_size().columns); return true;
    case KEY_CTRL_L:
        printf("\033[H\033[2J");
        line_view_leave(&e->view);
        return true;
    case KEY_CTRL_Z:
        line_leave(e, prompt);
        terminal_suspend();
        return true;
    default: return false;
    }
}

/* Reads pasted text, in which no key has a special meaning; terminals send its newlines as Enter.
 * False if the input ended. */
static bool paste_read(struct line_editor *e)
{
    struct strbuf text = STRBUF_INIT;
    int key = 0;
    for (int last = 0; key != KEY_PASTE_END && key != KEY_END_OF_INPUT; last = key) {
        key = key_read(&e->input);
        bool is_break = key == KEY_ENTER || (key == KEY_NEWLINE && last != KEY_ENTER);
        if (is_break)
            strbuf_addc(&text, '\n');
        else if (key == KEY_TAB || (key >= ' ' && key < 256 && key != KEY_BACKSPACE))
            strbuf_addc(&text, (char)key);
    }
    bytes_insert(e, strbuf_str(&text), text.len);
    strbuf_free(&text);
    return key == KEY_PASTE_END;
}

/* True for keys that end the text; *result says how. */
static bool is_ended(struct line_editor *e, int key, enum line_result *result)
{
    if (key == KEY_END_OF_INPUT || (key == KEY_CTRL_D && e->line.len == 0)) {
        *result = LINE_END;
        return true;
    }
    if (key == KEY_CTRL_C && e->line.len == 0) {
        *result = LINE_INTERRUPTED;
        return true;
    }
    bool is_enter = key == KEY_ENTER || key == KEY_NEWLINE;
    *result = LINE_TEXT;
    return is_enter && !(e->is_open && e->is_open(e->context, strbuf_str(&e->line)));
}

enum line_result line_editor_read(struct line_editor *e, const char *prompt)
{
    enum line_result result = LINE_END;
    e->history_at = e->history.n;
    e->was_tab = false;
    line_set(e, "");
    for (;;) {
        if (!key_is_pending(&e->input))
            line_draw(e, prompt);
        int key = key_read(&e->input);
        if (key == KEY_CTRL_R && !(key = history_search(e)))
            continue;
        if (key == KEY_TAB) {
            tab_apply(e, prompt);
            continue;
        }
        e->was_tab = false;
        if (key == KEY_PASTE_BEGIN && paste_read(e))
            continue;
        if (key == KEY_PASTE_BEGIN || is_ended(e, key, &result))
            break;
        if (screen_key_apply(e, key, prompt))
            continue;
        if (key == KEY_CTRL_C) {
            line_leave(e, prompt);
            line_set(e, "");
            e->history_at = e->history.n;
        } else {
            key_apply(e, key == KEY_ENTER || key == KEY_NEWLINE ? KEY_ALT_ENTER : key);
        }
    }
    if (e->input.has_ended)
        result = LINE_END;
    line_leave(e, prompt);
    return result;
}

void line_editor_free(struct line_editor *e)
{
    history_close(&e->history);
    key_input_free(&e->input);
    line_view_free(&e->view);
    strbuf_free(&e->line);
    strbuf_free(&e->killed);
    strbuf_free(&e->draft);
}
