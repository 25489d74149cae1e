/* See answer_view.h. Every write is flushed at once, because people read the answer as it
 * arrives. */
#include "cli/chat/answer_view.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal/terminal.h"

static void text_write(struct answer_view *v, FILE *to, const char *text, size_t len)
{
    struct strbuf out = STRBUF_INIT;
    if (v->is_terminal) {
        word_wrap_add(&v->wrap, terminal_size().columns, text, len, &out);
        text = strbuf_str(&out);
        len = out.len;
    } else if (isatty(fileno(to))) {
        controls_replace(text, len, &out);
        text = strbuf_str(&out);
        len = out.len;
    }
    fwrite(text, 1, len, to);
    fflush(to);
    strbuf_free(&out);
}

static void color_set(const struct answer_view *v, const char *color)
{
    if (v->has_colors)
        fputs(color, stdout);
}

static void thinking_begin(struct answer_view *v)
{
    static const char title[] = "Thinking...\n";
    v->is_thinking = true;
    color_set(v, "\033[2m");
    if (v->is_terminal)
        text_write(v, stdout, title, sizeof title - 1);
}

static void thinking_end(struct answer_view *v)
{
    v->is_thinking = false;
    text_write(v, v->is_terminal ? stdout : stderr, "\n\n", v->wrap.column ? 2 : 1);
    color_set(v, "\033[0m");
}

static void piece_show(void *context, enum answer_piece piece, const char *text, size_t len)
{
    struct answer_view *v = context;
    bool is_thought = piece == PIECE_REASONING;
    if (!len)
        return;
    if (is_thought && !v->is_thinking)
        thinking_begin(v);
    else if (!is_thought && v->is_thinking)
        thinking_end(v);
    strbuf_add(is_thought ? &v->thoughts : &v->content, text, len);
    text_write(v, is_thought && !v->is_terminal ? stderr : stdout, text, len);
}

void answer_view_begin(struct answer_view *v, const struct answer_style *style,
                       bool starts_in_thinking)
{
    struct answer_parser_options options = {.style = style,
                                            .starts_in_thinking = starts_in_thinking,
                                            .piece = piece_show,
                                            .context = v};
    strbuf_clear(&v->content);
    strbuf_clear(&v->thoughts);
    v->wrap.column = 0;
    v->is_thinking = false;
    /* If there is no memory for a parser, the text is shown unparsed. */
    v->parser = answer_parser_is_needed(style, NULL) ? answer_parser_new(&options) : NULL;
}

void answer_view_add(struct answer_view *v, const char *text, size_t len)
{
    if (v->parser)
        answer_parser_add(v->parser, text, len);
    else
        piece_show(v, PIECE_CONTENT, text, len);
}

void answer_view_end(struct answer_view *v, const char *note)
{
    if (v->parser)
        answer_parser_end(v->parser);
    answer_parser_free(v->parser);
    v->parser = NULL;
    if (v->is_thinking)
        color_set(v, "\033[0m");
    if (*note && v->is_terminal) {
        color_set(v, "\033[2m");
        bool fits = v->wrap.column + 1 + strlen(note) < terminal_size().columns;
        if (v->wrap.column)
            text_write(v, stdout, fits ? " " : "\n", 1);
        text_write(v, stdout, note, strlen(note));
        color_set(v, "\033[0m");
    }
    if (!v->is_terminal || v->wrap.column)
        text_write(v, stdout, "\n", 1);
    if (*note && !v->is_terminal)
        fprintf(stderr, "%s\n", note);
}

void answer_view_gap(struct answer_view *v)
{
    if (v->is_terminal)
        text_write(v, stdout, "\n", 1);
}

void answer_view_free(struct answer_view *v)
{
    word_wrap_free(&v->wrap);
    strbuf_free(&v->content);
    strbuf_free(&v->thoughts);
}
