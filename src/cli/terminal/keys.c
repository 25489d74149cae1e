/* Decodes what terminals send. A lone Escape and the start of an escape sequence are the same byte:
 * only the time until the next byte tells them apart. */
#include "cli/terminal/keys.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal/terminal.h"

enum { SEQUENCE_MS = 50, MAX_AHEAD_BYTES = 1 << 20 };
enum { BYTE_NONE = -2, BYTE_RESIZED = -3 };

static bool fd_is_ready(int fd, int timeout_ms)
{
    struct pollfd input = {.fd = fd, .events = POLLIN};
    return poll(&input, 1, timeout_ms) > 0;
}

/* The next byte, KEY_END_OF_INPUT, BYTE_RESIZED, or BYTE_NONE on timeout (-1 waits forever). */
static int byte_read(struct key_input *in, int timeout_ms)
{
    unsigned char byte;
    if (in->n_taken < in->ahead.len)
        return (unsigned char)in->ahead.data[in->n_taken++];
    if (in->fd < 0 || in->has_ended)
        return KEY_END_OF_INPUT;
    if (timeout_ms >= 0 && !fd_is_ready(in->fd, timeout_ms))
        return BYTE_NONE;
    for (;;) {
        ssize_t n = read(in->fd, &byte, 1);
        if (n == 1)
            return byte;
        if (n == 0 || errno != EINTR) {
            in->has_ended = true;
            return KEY_END_OF_INPUT;
        }
        if (terminal_was_resized())
            return BYTE_RESIZED;
    }
}

/* ESC [ 1 ; 5 C: the final byte and up to two parameters. The second is 1 plus a bit for each of
 * Shift, Alt and Ctrl. */
struct sequence {
    int final, parameters[3];
};

static int sequence_key(const struct sequence *s)
{
    static const struct {
        char final;
        int key, with_alt_or_ctrl;
    } letters[] = {
        {'A', KEY_UP, KEY_UP},          {'B', KEY_DOWN, KEY_DOWN}, {'C', KEY_RIGHT, KEY_WORD_RIGHT},
        {'D', KEY_LEFT, KEY_WORD_LEFT}, {'H', KEY_HOME, KEY_HOME}, {'F', KEY_END, KEY_END}};
    static const struct {
        int number, key;
    } numbered[] = {{1, KEY_HOME},   {7, KEY_HOME},          {4, KEY_END},        {8, KEY_END},
                    {3, KEY_DELETE}, {200, KEY_PASTE_BEGIN}, {201, KEY_PASTE_END}};
    bool has_modifier = s->parameters[1] > 1;
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].final == s->final)
            return s->parameters[1] > 2 ? letters[i].with_alt_or_ctrl : letters[i].key;
    if (s->final == '~' && s->parameters[0] == 3 && s->parameters[1] > 2)
        return KEY_WORD_DELETE;
    for (size_t i = 0; s->final == '~' && i < sizeof numbered / sizeof *numbered; i++)
        if (numbered[i].number == s->parameters[0])
            return numbered[i].key;
    /* Enter with Shift, Alt or Ctrl, in the two encodings that terminals use. */
    bool is_enter = (s->final == 'u' && s->parameters[0] == KEY_ENTER) ||
                    (s->final == '~' && s->parameters[0] == 27 && s->parameters[2] == KEY_ENTER);
    return is_enter && has_modifier ? KEY_ALT_ENTER : KEY_ESCAPE;
}

static int sequence_read(struct key_input *in)
{
    struct sequence s = {0};
    size_t n = 0;
    while ((s.final = byte_read(in, SEQUENCE_MS)) >= ' ' && s.final <= '?') {
        if (s.final == ';')
            n++;
        else if (s.final >= '0' && s.final <= '9' && n < 3 && s.parameters[n] < 10000)
            s.parameters[n] = s.parameters[n] * 10 + (s.final - '0');
    }
    return sequence_key(&s);
}

/* Reads the rest of a sequence after ESC. */
static int escape_read(struct key_input *in)
{
    int c = byte_read(in, SEQUENCE_MS);
    switch (c) {
    case '[':
    case 'O': return sequence_read(in);
    case KEY_ENTER:
    case KEY_NEWLINE: return KEY_ALT_ENTER;
    case 'b': return KEY_WORD_LEFT;
    case 'f': return KEY_WORD_RIGHT;
    case 'd': return KEY_WORD_DELETE;
    case KEY_CTRL_H:
    case KEY_BACKSPACE: return KEY_WORD_ERASE;
    default: return KEY_ESCAPE;
    }
}

int key_read(struct key_input *in)
{
    int c = byte_read(in, -1);
    if (c == BYTE_RESIZED)
        return KEY_RESIZED;
    return c == KEY_ESCAPE ? escape_read(in) : c;
}

bool key_is_pending(const struct key_input *in)
{
    return in->n_taken < in->ahead.len || (in->fd >= 0 && !in->has_ended && fd_is_ready(in->fd, 0));
}

int key_input_fill(struct key_input *in)
{
    char bytes[4096];
    int n_interrupts = 0;
    strbuf_remove_front(&in->ahead, in->n_taken);
    in->n_taken = 0;
    while (!in->has_ended && fd_is_ready(in->fd, 0)) {
        ssize_t n = read(in->fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            in->has_ended = true;
            return n_interrupts + 1;
        }
        for (ssize_t i = 0; i < n; i++) {
            if (bytes[i] == KEY_CTRL_C)
                n_interrupts++;
            else if (bytes[i] == KEY_CTRL_Z)
                terminal_suspend();
            else if (in->ahead.len < MAX_AHEAD_BYTES)
                strbuf_addc(&in->ahead, bytes[i]);
        }
    }
    return n_interrupts;
}

void key_input_free(struct key_input *in)
{
    strbuf_free(&in->ahead);
}
