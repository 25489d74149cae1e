#ifndef RADISH_PROMPT_TOKENIZER_INTERNAL_H
#define RADISH_PROMPT_TOKENIZER_INTERNAL_H

#include "base/idle_pool.h"
#include "prompt/tokenizer.h"

/* What the tokenizer's own files share. How a text becomes ids:
 *
 *   text ──► runs between special tokens ──► words ──────────► seen lately? ─────► ids
 *            tokenizer_special.c             tokenizer_pre.c   tokenizer_words.c    ▲
 *                                                                    └──► merged ───┘
 *                                                                 tokenizer_merge.c
 * tokenizer.c drives it; tokenizer_load.c fills the struct from GGUF metadata. */

enum tokenizer_kind { TOKENIZER_BYTES, TOKENIZER_BPE, TOKENIZER_SPM };

/* tokenizer.ggml.token_type, as GGUF numbers them. */
enum token_type {
    TOKEN_UNDEFINED,
    TOKEN_NORMAL,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE,
    TOKEN_TYPE_COUNT,
};

/* From bytes to a token id: open addressing over ids, whose bytes stand in `texts`.
 *
 *   slots   [hash|id] [    |-1] [hash|id] ...      a power of two, at most half of them in use
 */
struct vocab_table {
    struct vocab_slot *slots;
    const struct gguf_string *texts; /* by id; the caller's */
    uint32_t mask;
};

int vocab_table_open(struct vocab_table *table, const struct gguf_string *texts, uint32_t n,
                     struct error *err);
void vocab_table_close(struct vocab_table *table);
int32_t vocab_table_find(const struct vocab_table *table, const char *bytes, size_t len);
/* Adds texts[id] and gives -1, or adds nothing and gives the id that has these bytes already. */
int32_t vocab_table_add(struct vocab_table *table, int32_t id);

/* Byte-level BPE: which two tokens merge into which, the lowest rank first. Open addressing. */
struct merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank;
    int32_t id; /* -1: an empty slot */
};

struct merge_table {
    struct merge *slots;
    uint32_t mask;
};

int merge_table_open(struct merge_table *m, uint32_t n, struct error *err);
void merge_table_close(struct merge_table *m);
/* The slot that holds the pair, or an empty one (id -1). */
struct merge *merge_table_slot(const struct merge_table *m, int32_t left, int32_t right);
/* A pair that is there already takes the new rank, as the `tokenizers` library has it. */
void merge_table_add(struct merge_table *m, int32_t left, int32_t right, uint32_t rank, int32_t id);

/* Special tokens, ordered by their bytes, so that those with a common beginning are neighbours. */
struct special_list {
    int32_t *ids;
    uint32_t n;
    uint32_t first[257]; /* ids[first[b] .. first[b + 1]) begin with byte b */
    int only_byte;       /* they all begin with it; -1: they do not */
};

/* Takes the tokens whose type is among `types`, a set of bits 1 << type. */
int special_list_open(struct special_list *list, const struct tokenizer *t, unsigned types,
                      struct error *err);
void special_list_close(struct special_list *list);
/* How many bytes to skip to the first with which a token of the list begins; `len`: none does. */
size_t special_list_skip(const struct special_list *list, const char *text, size_t len);
/* The longest token of the list that `text` begins with, or -1. */
int32_t special_list_match(const struct special_list *list, const struct tokenizer *t,
                           const char *text, size_t len);

struct tokenizer {
    enum tokenizer_kind kind;
    uint32_t n_tokens;
    struct gguf_string *tokens; /* [n_tokens] the bytes that each stands for, in `blob` */
    char *blob;
    uint8_t *types; /* [n_tokens] enum token_type */
    uint8_t *ends;  /* [n_tokens] 1: it ends a generation */
    uint8_t *whole; /* [n_tokens] 1: its bytes, as a word, become just this token */

    struct vocab_table ordinary; /* the tokens that text can merge into */
    size_t longest;              /* the bytes of the longest of them */
    struct special_list control; /* cut out of texts with TOKENIZE_PARSE_SPECIAL; has `user` too */
    struct special_list user;    /* cut out of every text */
    int32_t byte_ids[256];       /* the token for a byte on its own, -1: none */
    int32_t bos, eos, unknown;   /* -1: none */
    bool add_bos, add_eos;

    /* Byte-level BPE. */
    struct merge_table merges;
    struct pre_tokenizer *pre;

    /* SentencePiece. A pair merges if its text is a token; the best score goes first. */
    uint32_t *ranks; /* [n_tokens] 0 for the best score; equal for equal scores */
    bool add_space_prefix;
    bool splits_at_spaces; /* no token has a space after another character */

    char *chat_template; /* NULL: none */
    size_t chat_template_len;

    struct idle_pool *encoders; /* the only part that changes, and safe from any thread */
};

/* One call of tokenizer_encode: all that it changes, so that a tokenizer is shared freely. What it
 * allocates is kept for the next call. */
struct encoder {
    const struct tokenizer *t;
    struct token_list *out;
    struct error *err;
    struct symbol *symbols;  /* the word at hand */
    uint64_t *heap;          /* its pairs, see tokenizer_merge.c */
    size_t capacity;         /* of `symbols`; `heap` has twice as many */
    struct strbuf spaced;    /* the text as SentencePiece sees it */
    struct word_slot *words; /* see tokenizer_words.c */
};

/* NULL: no memory. t, out and err are for the caller to set. */
struct encoder *encoder_take(struct idle_pool *idle);
void encoder_leave(struct idle_pool *idle, struct encoder *e);
void encoders_free(struct idle_pool *idle); /* the pool, too; NULL does nothing */
void encoder_close(struct encoder *e);
int encoder_add(struct encoder *e, int32_t id);
/* Each appends the ids of its text and gives 0, or -1 and the encoder's error. */
int encode_bpe(struct encoder *e, const char *text, size_t len);
int encode_spm(struct encoder *e, const char *text, size_t len, bool space_prefix);
int encode_word(struct encoder *e, const char *word, size_t len);     /* len > 0 */
int encode_new_word(struct encoder *e, const char *word, size_t len); /* without the words seen */
/* Finds out `whole`, which lets encode_new_word skip the merges of most words. */
int tokenizer_mark_whole(struct tokenizer *t, struct error *err);

/* The pre-tokeniser that tokenizer.ggml.pre names: it cuts text into words. */
struct pre_options {
    bool ignore_merges; /* a word that is a token is taken as it is */
    bool add_bos;       /* unless the file says otherwise */
};

int pre_tokenizer_open(struct pre_tokenizer **out, struct gguf_string name, const char *path,
                       struct pre_options *options, struct error *err);
void pre_tokenizer_close(struct pre_tokenizer *pre);
/* Where the word ends that begins at `at` < len in `text`, which is valid UTF-8. */
size_t pre_tokenizer_word(const struct pre_tokenizer *pre, const char *text, size_t len, size_t at);

/* An empty tokenizer with room for `n` tokens of `n_bytes` together. */
struct tokenizer *tokenizer_new(enum tokenizer_kind kind, uint32_t n, size_t n_bytes,
                                struct error *err);
/* Fills `control` and `user`, once tokens and types stand. */
int tokenizer_list_specials(struct tokenizer *t, struct error *err);
/* Marks the special tokens whose spelling says that they end a generation. */
void tokenizer_mark_ends(struct tokenizer *t);
bool tokenizer_known_end(struct gguf_string spelling);

#endif
