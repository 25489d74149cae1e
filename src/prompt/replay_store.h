#ifndef RADISH_PROMPT_REPLAY_STORE_H
#define RADISH_PROMPT_REPLAY_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Keeps the sampled token ids of answers, so that a conversation sent back becomes exactly the
 * tokens in the cache. A text has many tokenizations, and a model does not always produce the
 * tokenizer's own. Encoded again, the text would leave the cached prefix at the first different
 * token.
 *
 * An answer is found by its namespace and a digest of the whole rendering that it followed:
 *
 *   turn 1   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n           ──digest──► key
 *   turn 2   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello ...  the same beginning
 *
 * The digest only finds candidates: the caller must compare their bytes before using the ids.
 * All functions are thread-safe. */
struct replay_store;
struct replay_answer;

/* The digest of a rendering or a prefix of one. Valid only for the store it was made with. */
struct prompt_digest {
    uint64_t hash, len;
};

enum { REPLAY_MAX_ANSWERS = 4 }; /* kept for one rendering (n > 1, or repeated requests) */

/* Holds at most `max_bytes`; the least recently used answers are evicted first. */
int replay_store_open(struct replay_store **out, size_t max_bytes, struct error *err);
void replay_store_close(struct replay_store *s); /* NULL does nothing */

/* Keeps the sampled ids of an answer, including the end token. An answer that does not fit, or for
 * which there is no memory, is not kept. Adding the same ids again renews their age. */
void replay_store_add(struct replay_store *s, uint64_t ns, struct prompt_digest before,
                      const int32_t *ids, size_t n);

/* Finds the answers to a rendering, newest first; returns their number. The caller holds each until
 * replay_answer_release, even if the store evicts it. */
size_t replay_store_find(struct replay_store *s, uint64_t ns, struct prompt_digest before,
                         struct replay_answer *answers[REPLAY_MAX_ANSWERS]);
const int32_t *replay_answer_ids(const struct replay_answer *a, size_t *n);
void replay_answer_release(struct replay_answer *a); /* NULL does nothing */

void replay_store_clear(struct replay_store *s, uint64_t ns);
void replay_store_clear_all(struct replay_store *s);

struct replay_stats {
    size_t entries, bytes, max_bytes;
    uint64_t hits;    /* lookups that found an answer */
    uint64_t evicted; /* answers removed to make room */
};

void replay_store_read_stats(struct replay_store *s, struct replay_stats *out);

/* Digests of increasingly long prefixes of one text. */
struct prefix_digest {
    uint64_t base, hash;
    size_t folded; /* bytes included in `hash` */
};

void prefix_digest_open(struct prefix_digest *d, const struct replay_store *s);
struct prompt_digest prefix_digest_at(struct prefix_digest *d, const char *text, size_t len);

#endif
