/* Encoders, and the words that each has encoded recently. Most words of a text were seen before,
 * and a word has the same ids in any context, so reading one cache line replaces its merges:
 *
 *   words  [key: up to 32 bytes | ids: up to 7 | len | n]  [...]  ...    by the word's hash
 *
 * There is no lock, because an encoder belongs to one call at a time. A tokenizer keeps idle
 * encoders, with their memory, for later calls. So there are as many as calls ever ran at once,
 * and in the steady state a call allocates nothing. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"

#define WORD_KEYS 4
enum {
    N_WORDS = 1 << 14, /* a megabyte: the frequent ones stay in a core's own cache */
    MAX_WORD_BYTES = 8 * WORD_KEYS,
    MAX_WORD_IDS = 7,
    MAX_IDLE_SYMBOLS = 1 << 14, /* memory for longer words is not kept */
    MAX_IDLE_BYTES = 1 << 20,
};

struct word_slot {
    alignas(64) uint64_t key[WORD_KEYS];
    int32_t ids[MAX_WORD_IDS];
    uint8_t len; /* 0: empty */
    uint8_t n;
};

/* ---- encoders ---- */

void encoder_close(struct encoder *e)
{
    free(e->symbols);
    free(e->heap);
    free(e->nodes);
    free(e->codes);
    free(e->words);
    regex_scratch_free(e->scratch);
    for (size_t i = 0; i < sizeof e->normal / sizeof *e->normal; i++)
        strbuf_free(&e->normal[i]);
    for (size_t i = 0; i < MAX_PRE_STEPS; i++)
        strbuf_free(&e->pieces[i]);
}

static void encoder_free(struct encoder *e)
{
    if (e)
        encoder_close(e);
    free(e);
}

static struct encoder *encoder_new(void)
{
    struct encoder *e = calloc(1, sizeof *e);
    struct word_slot *words = aligned_alloc(alignof(struct word_slot), N_WORDS * sizeof *words);
    if (e && words) {
        memset(words, 0, N_WORDS * sizeof *words);
        e->words = words;
        return e;
    }
    free(e);
    free(words);
    return NULL;
}

void encoders_free(struct idle_pool *idle)
{
    for (struct encoder *e; idle && (e = idle_pool_take(idle));)
        encoder_free(e);
    free(idle);
}

struct encoder *encoder_take(struct idle_pool *idle)
{
    struct encoder *e = idle_pool_take(idle);
    return e ? e : encoder_new();
}

static void strbuf_shrink(struct strbuf *text)
{
    if (text->capacity > MAX_IDLE_BYTES)
        strbuf_free(text);
}

void encoder_leave(struct idle_pool *idle, struct encoder *e)
{
    if (e->capacity > MAX_IDLE_SYMBOLS) {
        free(e->symbols);
        free(e->heap);
        e->symbols = NULL;
        e->heap = NULL;
        e->capacity = 0;
    }
    if (e->n_nodes > MAX_IDLE_SYMBOLS) {
        free(e->nodes);
        e->nodes = NULL;
        e->n_nodes = 0;
    }
    if (e->n_codes > MAX_IDLE_SYMBOLS) {
        free(e->codes);
        e->codes = NULL;
        e->n_codes = 0;
    }
    for (size_t i = 0; i < sizeof e->normal / sizeof *e->normal; i++)
        strbuf_shrink(&e->normal[i]);
    for (size_t i = 0; i < MAX_PRE_STEPS; i++)
        strbuf_shrink(&e->pieces[i]);
    if (!idle_pool_leave(idle, e))
        encoder_free(e);
}

/* ---- words ---- */

static inline uint64_t load_u64(const char *p)
{
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline uint64_t load_u32(const char *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

/* Packs the word into integers without reading outside of it: two words of the same length are
 * equal if their keys are. Loads overlap, so there is no loop. */
static inline void word_key(uint64_t key[WORD_KEYS], const char *word, size_t len)
{
    key[0] = key[1] = key[2] = key[3] = 0;
    if (len >= 8) {
        size_t half = len > 16 ? 16 : len;
        key[0] = load_u64(word);
        key[1] = load_u64(word + half - 8);
        if (len > 16) {
            key[2] = load_u64(word + len - 16);
            key[3] = load_u64(word + len - 8);
        }
    } else if (len >= 4) {
        key[0] = load_u32(word) | load_u32(word + len - 4) << 32;
    } else {
        const unsigned char *c = (const unsigned char *)word;
        key[0] = c[0] | (uint64_t)c[len / 2] << 8 | (uint64_t)c[len - 1] << 16;
    }
}

static inline uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The word's two slots. Words that share slots evict each other, which costs only time. */
static inline struct word_slot *word_slots(struct word_slot *words, const uint64_t key[WORD_KEYS],
                                           size_t len)
{
    uint64_t hash = fold(key[0] ^ 0x9e3779b97f4a7c15u, key[1] ^ 0xbf58476d1ce4e5b9u ^ len);
    if (len > 16)
        hash = fold(hash ^ key[2], key[3] ^ 0x94d049bb133111ebu);
    return &words[hash % (N_WORDS / 2) * 2];
}

static inline bool slot_has(const struct word_slot *slot, const uint64_t key[WORD_KEYS], size_t len)
{
    return slot->len == len && slot->key[0] == key[0] && slot->key[1] == key[1] &&
           (len <= 16 || (slot->key[2] == key[2] && slot->key[3] == key[3]));
}

int encode_word(struct encoder *e, const char *word, size_t len)
{
    if (!task_goes_on(len))
        return task_error(e->err);
    if (len > MAX_WORD_BYTES)
        return encode_new_word(e, word, len);
    uint64_t key[WORD_KEYS];
    word_key(key, word, len);
    struct word_slot *slot = word_slots(e->words, key, len);
    struct token_list *out = e->out;
    if (slot_has(slot, key, len) || slot_has(++slot, key, len)) {
        if (out->capacity - out->len < MAX_WORD_IDS && !token_list_reserve(out, MAX_WORD_IDS))
            return error_set(e->err, ERROR_MEMORY, "no memory for %zu tokens", out->len + slot->n);
        memcpy(out->ids + out->len, slot->ids, sizeof slot->ids);
        out->len += slot->n;
        return 0;
    }
    size_t before = out->len;
    if (encode_new_word(e, word, len) != 0)
        return -1;
    size_t n = out->len - before;
    if (n <= MAX_WORD_IDS) {
        *slot = slot[-1]; /* evicts the older of the two */
        slot--;
        memcpy(slot->key, key, sizeof slot->key);
        if (n > 0)
            memcpy(slot->ids, out->ids + before, n * sizeof *slot->ids);
        slot->len = (uint8_t)len;
        slot->n = (uint8_t)n;
    }
    return 0;
}
