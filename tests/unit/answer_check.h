#ifndef RADISH_ANSWER_CHECK_H
#define RADISH_ANSWER_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "prompt/answer/answer_parser.h"

/* What a parser returned, as text: R[..] reasoning, C[..] content, B[..] a call's name, A[..] its
 * arguments, E its end, X[..] a broken call. Neighbours of the same kind are joined. */
struct transcript {
    struct strbuf text;
    struct strbuf arguments; /* of the open call */
    struct strbuf content;
    bool open;         /* between B and E or X */
    bool out_of_order; /* pieces came that cannot */
    bool not_json;     /* a call ended whose arguments are not an object */
    int last;          /* the piece before, -1: none */
    size_t n_pieces, n_calls, n_broken, n_reasoning;
};

enum { CUT_NOT, CUT_BYTES, CUT_RANDOM };

/* The functions that the tests' answers may call. */
const struct tool_set *answer_tools(void);
void transcript_free(struct transcript *t);
/* Feeds `text` in parts, as `cuts` says. */
void transcript_make(struct transcript *t, const struct answer_parser_options *o, const char *text,
                     size_t len, int cuts, uint64_t *seed);
answer_piece_fn transcript_add;
/* Fails unless the output is valid, and the same however the text is cut. */
void answer_check_cuts(const struct answer_parser_options *o, const char *text, size_t len,
                       int n_random, uint64_t *seed);
uint32_t answer_random(uint64_t *seed, uint32_t n);

#endif
