#ifndef RADISH_PROMPT_GRAMMAR_STORE_H
#define RADISH_PROMPT_GRAMMAR_STORE_H

#include <stddef.h>

#include "prompt/grammar/grammar.h"

/* Keeps compiled grammars for later requests with the same one: agents send one schema with every
 * turn. Bounded in bytes and in number; the least recently used grammar that nobody holds is
 * evicted first. If those that are held take more than all bytes, each of the clients that made
 * them may still add to its own until they take an equal part of the bytes. A grammar that takes
 * too long to compile is kept as its error, so that it costs that time once. Any thread may use it;
 * compiling happens outside its lock. */
struct grammar_store;

/* What a grammar is built from, when the store has none for its key. */
struct grammar_source {
    /* GRAMMAR_NONE and `err` if it cannot be built. */
    grammar_expr (*build)(struct grammar_source *source, struct grammar_builder *b,
                          struct error *err);
    struct grammar_vocabulary *vocabulary; /* of the answers that will follow it; NULL: any */
    uint64_t client;                       /* who asks */
    int wrong_part; /* set by `build` or from memory: its own number of what cannot be built */
};

struct grammar_store *grammar_store_open(size_t max_bytes); /* NULL: out of memory */
/* The most bytes that `n` grammars in use at a time can take, and all others. */
size_t grammar_store_bound(size_t max_bytes, uint32_t n);
void grammar_store_close(struct grammar_store *s); /* no grammar may be in use */

/* Returns the grammar of the key and builds it if needed. The caller holds it until
 * grammar_store_leave. Keys are compared in full. NULL and `err` if it cannot be built or compiled;
 * ERROR_MEMORY also if the client's other grammars take all its room. */
const struct grammar *grammar_store_take(struct grammar_store *s, const char *key, size_t key_len,
                                         struct grammar_source *source, struct error *err);
void grammar_store_leave(struct grammar_store *s, const struct grammar *g); /* NULL does nothing */

#endif
