#ifndef RADISH_PROMPT_GRAMMAR_STORE_H
#define RADISH_PROMPT_GRAMMAR_STORE_H

#include <stddef.h>

#include "prompt/grammar/grammar.h"

/* Compiled grammars, kept for the next request that asks for the same: agents send one schema with
 * every turn. Bounded in bytes; the least recently used that nobody holds goes first. Any thread
 * may use it; compiling happens outside of its lock. */
struct grammar_store;

/* Builds the grammar that a key stands for: GRAMMAR_NONE and `err` when it cannot be built. */
typedef grammar_expr grammar_build_fn(struct grammar_builder *b, void *context, struct error *err);

struct grammar_store *grammar_store_open(size_t max_bytes); /* NULL: no memory */
void grammar_store_close(struct grammar_store *s);          /* nobody holds a grammar any more */

/* The grammar of the key, built if it is not there: it is the caller's to hold until it is let go.
 * Keys are compared whole. NULL and `err` when it cannot be built or compiled. */
const struct grammar *grammar_store_take(struct grammar_store *s, const char *key, size_t key_len,
                                         grammar_build_fn *build, void *context, struct error *err);
void grammar_store_leave(struct grammar_store *s, const struct grammar *g); /* NULL: nothing */

#endif
