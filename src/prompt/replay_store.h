#ifndef RADISH_PROMPT_REPLAY_STORE_H
#define RADISH_PROMPT_REPLAY_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The token ids of answers, as they were sampled, so that a conversation that comes back becomes
 * the very tokens that are in the cache. A text has many tokenisations, and a model does not
 * always write the tokenizer's own; text that is encoded anew leaves the cached prefix at the
 * first token that differs.
 *
 * An answer is found by its namespace and a digest of the whole rendering that it followed:
 *
 *   turn 1   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n           ──digest──► key
 *   turn 2   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello ...  the same beginning
 *
 * The digest only finds candidates: who puts the ids in a prompt compares their bytes first.
 * Every call is safe from any thread. */
struct replay_store;
struct replay_answer;

/* A rendering, or a beginning of one. Only the store that it was made with understands it. */
struct prompt_digest {
    uint64_t hash, len;
};

enum { REPLAY_MAX_ANSWERS = 4 }; /* that are kept for one rendering (n > 1, asked again) */

/* Holds at most `max_bytes`; the answers that were used or added longest ago go first. */
int replay_store_open(struct replay_store **out, size_t max_bytes, struct error *err);
void replay_store_close(struct replay_store *s); /* NULL does nothing */

/* Keeps the sampled ids of an answer, the end token among them. What does not fit, or for want of
 * memory, is not kept. The same ids again count as just added. */
void replay_store_add(struct replay_store *s, uint64_t ns, struct prompt_digest before,
                      const int32_t *ids, size_t n);

/* The answers to a rendering, the newest first; gives their number. Each is the caller's until
 * replay_answer_release, whatever becomes of it in the store. */
size_t replay_store_find(struct replay_store *s, uint64_t ns, struct prompt_digest before,
                         struct replay_answer *answers[REPLAY_MAX_ANSWERS]);
const int32_t *replay_answer_ids(const struct replay_answer *a, size_t *n);
void replay_answer_release(struct replay_answer *a); /* NULL does nothing */

void replay_store_clear(struct replay_store *s, uint64_t ns);
void replay_store_clear_all(struct replay_store *s);

struct replay_stats {
    size_t entries, bytes, max_bytes;
    uint64_t hits;    /* renderings that were looked for and had an answer */
    uint64_t evicted; /* answers that gave way to others */
};

void replay_store_read_stats(struct replay_store *s, struct replay_stats *out);

/* Digests of the beginnings of one text, each at least as long as the one before it. */
struct prefix_digest {
    uint64_t base, hash;
    size_t folded; /* bytes that are in `hash` */
};

void prefix_digest_open(struct prefix_digest *d, const struct replay_store *s);
struct prompt_digest prefix_digest_at(struct prefix_digest *d, const char *text, size_t len);

#endif
