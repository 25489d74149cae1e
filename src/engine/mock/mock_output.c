/* Logits and other outputs, from a row's digest. Pure. With the byte vocabulary, answers look like
 * words. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "engine/mock/mock_internal.h"
#include "engine/row_best.h"

enum {
    BYTE_VOCAB = 259, /* 256 bytes and three controls */
    END_ONE_IN = 48,  /* how often an answer moves towards its end */
    WORD_ONE_IN = 5,  /* how often a letter ends its word */
    STOP_ONE_IN = 8,  /* how often the end of a word ends its sentence */
};

#define SALT_END    0x656e64u
#define SALT_WORD   0x776f7264u
#define SALT_HIDDEN 0x68696464u
#define SALT_NORMED 0x6e6f726du
#define SALT_HEAD   0x68656164u

/* The classes of bytes, which decide what is likely to follow. */
enum byte_class { CLASS_VOWEL, CLASS_CONSONANT, CLASS_SPACE, CLASS_OTHER, CLASS_CONTROL };

const struct engine_head mock_heads[2] = {{"score", 1}, {"embedding", 8}};

static enum byte_class byte_class(int32_t token)
{
    if (token == ' ')
        return CLASS_SPACE;
    if (token >= 'a' && token <= 'z')
        return strchr("aeiou", token) ? CLASS_VOWEL : CLASS_CONSONANT;
    return token == '.' || token == ',' ? CLASS_OTHER : CLASS_CONTROL;
}

/* How likely `next` is after `last` in the byte vocabulary: vowels and consonants alternate, words
 * end at a space, sentences at a full stop. */
static float byte_bias(uint64_t digest, int32_t last, int32_t next)
{
    static const char common[] = "etaoinshrdlu";
    enum byte_class from = byte_class(last), to = byte_class(next);
    uint64_t choice = hash_pair(digest, SALT_WORD);
    bool in_word = from == CLASS_VOWEL || from == CLASS_CONSONANT;
    bool ends_word = in_word && choice % WORD_ONE_IN == 0;
    bool ends_sentence = ends_word && choice / WORD_ONE_IN % STOP_ONE_IN == 0;
    if (to == CLASS_CONTROL)
        return -16.0f;
    if (to == CLASS_SPACE)
        return from == CLASS_OTHER || (ends_word && !ends_sentence) ? 16.0f : -16.0f;
    if (to == CLASS_OTHER)
        return next == '.' && ends_sentence ? 16.0f : -16.0f;
    float bias = strchr(common, next) ? 2.0f : 0.0f;
    if (in_word && from != to)
        bias += 3.0f;
    return bias;
}

/* From 0 to 4, with 24 bits, which a float holds exactly. */
static float value_of(uint64_t digest)
{
    return (float)(hash_mix(digest) >> 40) * (4.0f / (1 << 24));
}

static void make_logits(const struct mock_options *o, uint64_t digest, int32_t last, float *logits)
{
    bool is_bytes = o->n_vocab == BYTE_VOCAB;
    for (uint32_t i = 0; i < o->n_vocab; i++) {
        logits[i] = value_of(digest + i);
        if (is_bytes)
            logits[i] += byte_bias(digest, last, (int32_t)i);
    }
    if (o->end_token >= 0) {
        bool ends = hash_pair(digest, SALT_END) % END_ONE_IN == 0;
        logits[o->end_token] = ends ? 40.0f : -40.0f;
    }
}

static void make_values(uint64_t digest, uint64_t salt, uint32_t n, float *values)
{
    for (uint32_t i = 0; i < n; i++)
        values[i] = value_of(hash_pair(digest, salt) + i) - 2.0f;
}

void mock_give_output(const struct mock_options *o, uint64_t digest, int32_t last, float *scratch,
                      const struct row_output *out)
{
    float *logits = out->wants & OUTPUT_LOGITS ? out->logits : scratch;
    if (out->wants & (OUTPUT_LOGITS | OUTPUT_BEST))
        make_logits(o, digest, last, logits);
    if (out->wants & OUTPUT_BEST)
        row_best_pick(logits, o->n_vocab, out);
    if (out->wants & OUTPUT_HIDDEN)
        make_values(digest, SALT_HIDDEN, MOCK_EMBD, out->hidden);
    if (out->wants & OUTPUT_NORMED)
        make_values(digest, SALT_NORMED, MOCK_EMBD, out->normed);
    if (out->wants & OUTPUT_HEAD)
        make_values(digest, SALT_HEAD + out->head, mock_heads[out->head].n_values,
                    out->head_values);
}

void mock_give_nan(const struct mock_options *o, float *scratch, const struct row_output *out)
{
    float *logits = out->wants & OUTPUT_LOGITS ? out->logits : scratch;
    for (uint32_t i = 0; i < o->n_vocab; i++)
        logits[i] = NAN;
    if (out->wants & OUTPUT_BEST)
        row_best_pick(logits, o->n_vocab, out);
}
