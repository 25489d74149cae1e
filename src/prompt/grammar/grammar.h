#ifndef RADISH_PROMPT_GRAMMAR_GRAMMAR_H
#define RADISH_PROMPT_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "prompt/unicode/code_set.h"

/* prompt/grammar/ holds grammars over bytes: it reads GBNF and regular expressions, compiles
 * grammars, matches tokens against them, and keeps them. Nothing here knows schemas or models. */

/* Grammars that constrain answers. A front end (json_schema.h, text_grammar.h) builds expressions.
 * They are compiled once, on a worker, into a pushdown automaton over bytes. Each answer then has a
 * matcher, which says before each token which tokens of the vocabulary are allowed.
 *
 *   front end ─► builder ──compile──► grammar (shared, immutable) ─► matcher (one for each answer)
 *                                        ▲                             │ mask, accept
 *                            vocabulary (a trie of all tokens' bytes, masks of states)
 *
 * Only tokens that can lead to a valid end are allowed. Special tokens are allowed only where the
 * grammar names them, and end tokens exactly where the text may end. */

/* ---- building ----------------------------------------------------------------------------- */

/* Expressions live in the builder. A failure (memory, a limit) is remembered: from then on every
 * function accepts and returns GRAMMAR_NONE, and grammar_compile reports the failure. */
typedef uint32_t grammar_expr;
enum { GRAMMAR_NONE = 0 };
#define GRAMMAR_NO_MAX UINT32_MAX

struct grammar_builder;

struct grammar_builder *grammar_builder_new(void); /* NULL: out of memory */
void grammar_builder_free(struct grammar_builder *b);

grammar_expr grammar_empty(struct grammar_builder *b); /* matches only the empty text */
grammar_expr grammar_never(struct grammar_builder *b); /* matches no text at all */
grammar_expr grammar_literal(struct grammar_builder *b, const char *bytes, size_t len);
/* One code point, as UTF-8: one of the ranges, or with `negated` any other (never a surrogate). */
grammar_expr grammar_class(struct grammar_builder *b, const struct code_range *ranges, size_t n,
                           bool negated);
grammar_expr grammar_token(struct grammar_builder *b, int32_t id); /* this token, of any kind */
grammar_expr grammar_sequence(struct grammar_builder *b, const grammar_expr *parts, size_t n);
grammar_expr grammar_choice(struct grammar_builder *b, const grammar_expr *parts, size_t n);
/* From `min` to `max` times. GRAMMAR_NO_MAX: no limit. */
grammar_expr grammar_repeat(struct grammar_builder *b, grammar_expr e, uint32_t min, uint32_t max);
/* A rule may be used before it is defined, also by itself. It must be defined exactly once. */
grammar_expr grammar_rule(struct grammar_builder *b);
void grammar_define(struct grammar_builder *b, grammar_expr rule, grammar_expr body);

/* Lists whose items all differ as texts. A list has items of one kind, directly or after the
 * separator in a "more". Both appear only in lists, and an item contains no such list:
 *
 *   LIST('[' ITEM(item) MORE(',' ITEM(item))* ']')
 *
 * The matcher remembers the items of a list. It rejects text that repeats an item, text after which
 * no new item is possible, and "more" if every possible item is in the list. A list must not
 * require more items than exist. */
enum grammar_distinct { DISTINCT_NONE, DISTINCT_LIST, DISTINCT_ITEM, DISTINCT_MORE };
grammar_expr grammar_distinct(struct grammar_builder *b, enum grammar_distinct part,
                              grammar_expr body);

/* How much has been built, for front ends with their own limits. */
size_t grammar_builder_size(const struct grammar_builder *b);

/* ---- compiled ----------------------------------------------------------------------------- */

struct grammar;

/* ERROR_INPUT: it matches no text, a rule is left-recursive or was not defined. ERROR_LIMIT: it is
 * too large, or compiling takes too long. Any thread. */
struct grammar *grammar_compile(struct grammar_builder *b, grammar_expr root, struct error *err);
void grammar_free(struct grammar *g);
size_t grammar_bytes(const struct grammar *g); /* of memory, for caches of grammars */

/* ---- matching ----------------------------------------------------------------------------- */

/* The tokens of a model, made once. Its masks of states change during use, so all matchers of a
 * vocabulary must be used on one thread (the scheduler's); they may be opened and closed on any. */
struct grammar_vocabulary;

struct grammar_token_info {
    const char *bytes;
    uint32_t len;
    bool is_special; /* a control token: allowed only where the grammar names it */
    bool is_end;     /* ends the answer */
};

int grammar_vocabulary_open(struct grammar_vocabulary **out,
                            const struct grammar_token_info *tokens, uint32_t n_tokens,
                            struct error *err);
void grammar_vocabulary_close(struct grammar_vocabulary *v);
/* The most bytes of its memory that are touched only when answers are constrained. */
size_t grammar_vocabulary_reserved(const struct grammar_vocabulary *v);
const uint64_t *grammar_vocabulary_ends(const struct grammar_vocabulary *v); /* end tokens */
uint32_t grammar_vocabulary_words(const struct grammar_vocabulary *v); /* 64-bit words in a mask */

/* Measures the grammar's shortest ways in the tokens of a vocabulary, before others see the
 * grammar. Matchers with this vocabulary then share the result, which may be larger than the rest
 * of them; otherwise each has its own. Once at most. */
void grammar_measure_for(struct grammar *g, struct grammar_vocabulary *v);

/* One answer's position in a grammar. Created on any thread; later it allocates nothing except the
 * text of lists whose items must differ. */
struct grammar_matcher;

int grammar_matcher_open(struct grammar_matcher **out, const struct grammar *g,
                         struct grammar_vocabulary *v, struct error *err);
void grammar_matcher_close(struct grammar_matcher *m);
/* The most bytes of a matcher that shares its grammar's measures, without the text of lists. */
size_t grammar_matcher_bound(const struct grammar_vocabulary *v);
void grammar_matcher_reset(struct grammar_matcher *m); /* to the start */

/* The tokens that may come next, including end tokens where the text may end; valid until the next
 * call. `n_left` is the number of tokens that may still come. If it is only just enough for the
 * shortest way to the end, the mask has only that way's next token, so the answer is completed. */
const uint64_t *grammar_matcher_mask(struct grammar_matcher *m, uint32_t n_left);
/* Works on that mask until `until_ns` (clock_now_ns), or a little longer; once it is ready, the
 * function above only returns it. A very ambiguous grammar's mask takes tens of milliseconds. The
 * result does not depend on where it paused. Of the matchers of a vocabulary, one at a time can be
 * paused: meanwhile, another whose time is over gets BUSY, and begins again with the next call. */
enum grammar_progress { GRAMMAR_READY, GRAMMAR_PAUSED, GRAMMAR_BUSY };
enum grammar_progress grammar_matcher_make(struct grammar_matcher *m, uint32_t n_left,
                                           uint64_t until_ns);
/* Forgets an unfinished mask. Needed before a paused matcher is closed. */
void grammar_matcher_drop(struct grammar_matcher *m);
/* What that mask would have been with any number of tokens left; NULL: the same. */
const uint64_t *grammar_matcher_unhurried(const struct grammar_matcher *m);
/* Both return false and change nothing if the input does not fit. An end token fits where the text
 * may end, and changes nothing. */
bool grammar_matcher_accept(struct grammar_matcher *m, int32_t token);
bool grammar_matcher_accept_bytes(struct grammar_matcher *m, const char *bytes, size_t len);
bool grammar_matcher_may_end(const struct grammar_matcher *m);
bool grammar_matcher_must_end(const struct grammar_matcher *m); /* ... and nothing may follow */

#endif
