#ifndef RADISH_CLI_CHAT_ANSWER_VIEW_H
#define RADISH_CLI_CHAT_ANSWER_VIEW_H

#include "cli/terminal/word_wrap.h"
#include "prompt/answer/answer_parser.h"

/* Writes an answer to standard output: wrapped between words on a terminal, unchanged elsewhere.
 * Thoughts are dimmed on a terminal; elsewhere they go to standard error, so that a program reads
 * only the answer. */
struct answer_view {
    bool is_terminal, has_colors;
    struct word_wrap wrap;
    struct answer_parser *parser; /* NULL: the model has no marks to look for */
    bool is_thinking;
    struct strbuf content, thoughts; /* of this answer, so far */
};

void answer_view_begin(struct answer_view *v, const struct answer_style *style,
                       bool starts_in_thinking);
void answer_view_add(struct answer_view *v, const char *text, size_t len);
/* Ends the answer; `note` says why it did not end by itself ("": it did). */
void answer_view_end(struct answer_view *v, const char *note);
/* On a terminal, the empty row between an answer and the next question. */
void answer_view_gap(struct answer_view *v);
void answer_view_free(struct answer_view *v);

#endif
