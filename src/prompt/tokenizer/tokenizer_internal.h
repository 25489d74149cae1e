#ifndef RADISH_PROMPT_TOKENIZER_TOKENIZER_INTERNAL_H
#define RADISH_PROMPT_TOKENIZER_TOKENIZER_INTERNAL_H

#include "base/arena.h"
#include "base/idle_pool.h"
#include "prompt/tokenizer/tokenizer.h"

/* Shared by the tokenizer's own files. How a text becomes ids:
 *
 *   text ──► runs between    ──► normalised ──► pieces ──────► words ──► seen lately? ──► ids
 *            added tokens        normalize.c    split.c,                 words.c           ▲
 *            special.c                          pattern.c,                   └──► merged ──┤
 *                                               pre_tokenizer.c           merge.c          │
 *                                                                         unigram.c ───────┘
 * tokenizer.c drives it, decode.c does the reverse. The struct is filled from GGUF metadata
 * (load.c) or from the files of a directory (directory.c and the files it calls); both set up the
 * same steps. */

enum tokenizer_kind {
    TOKENIZER_BYTES,    /* one token for each byte */
    TOKENIZER_BPE,      /* bytes merge by rank */
    TOKENIZER_CHAR_BPE, /* characters merge by rank */
    TOKENIZER_SPM,      /* characters merge by the score of the result */
    TOKENIZER_UNIGRAM,  /* the pieces with the best sum of scores */
};

/* tokenizer.ggml.token_type, with the numbers that GGUF and SentencePiece use. */
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

/* Symbols and heap entries count a run's bytes in 32 bits. A text that a step makes longer than
 * this is rejected, too. */
enum { MAX_TEXT_BYTES = 1 << 30, MAX_TOKENS = 1 << 24 };

#define SPACE_MARK     "\xe2\x96\x81" /* U+2581, SentencePiece's space */
#define SPACE_MARK_LEN 3

/* An untrusted string, for "%.*s". */
#define SHOWN(string) (int)((string).len < 64 ? (string).len : 64), (string).bytes

/* Maps bytes to a token id: open addressing over ids, whose bytes are in `texts`.
 *
 *   slots   [hash|id] [    |-1] [hash|id] ...      a power of two, at most half of them in use
 */
struct vocab_table {
    struct vocab_slot *slots;
    const struct byte_view *texts; /* by id; owned by the caller */
    uint32_t mask;
};

int vocab_table_open(struct vocab_table *table, const struct byte_view *texts, uint32_t n,
                     struct error *err);
void vocab_table_close(struct vocab_table *table);
int32_t vocab_table_find(const struct vocab_table *table, const char *bytes, size_t len);
/* Adds texts[id] and returns -1; if an id has these bytes already, adds nothing and returns that
 * id. */
int32_t vocab_table_add(struct vocab_table *table, int32_t id);
/* Adds all ids below `n` that have a text, the last one first. Returns -1, or an id whose text was
 * there already, as that of `*other`; the table keeps `*other`. */
int32_t vocab_table_add_all(struct vocab_table *table, uint32_t n, int32_t *other);
/* Looks up many texts at once, which is faster than one by one. */
void vocab_table_find_all(const struct vocab_table *table, const struct byte_view *texts, size_t n,
                          int32_t *ids);

/* BPE: which two tokens merge into which, the lowest rank first. Open addressing. */
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
void merge_table_prefetch(const struct merge_table *m, int32_t left, int32_t right);
/* A pair that is there already takes the new rank, as in the `tokenizers` library. */
void merge_table_add(struct merge_table *m, int32_t left, int32_t right, uint32_t rank, int32_t id);

/* ---- added tokens ---- */

enum added_flags {
    ADDED_SPECIAL = 1,     /* matched only with TOKENIZE_PARSE_SPECIAL, and not shown */
    ADDED_LSTRIP = 2,      /* includes the white space before it */
    ADDED_RSTRIP = 4,      /* and after it */
    ADDED_SINGLE_WORD = 8, /* not matched inside a word */
    ADDED_NORMALIZED = 16, /* matched in the normalised text */
};

struct added_token {
    struct byte_view text; /* the text to match */
    int32_t id;
    unsigned flags;
};

/* Added tokens, sorted by their bytes, so that tokens with a common prefix are neighbours. */
struct special_list {
    struct added_token *items;
    uint32_t n, capacity;
    uint32_t first[257]; /* items[first[b] .. first[b + 1]) begin with byte b */
    int only_byte;       /* the first byte of all tokens; -1: they differ */
};

/* The caller still owns the text. Of two tokens with the same text, the later one wins. */
int special_list_add(struct special_list *list, struct added_token token, struct error *err);
void special_list_ready(struct special_list *list); /* after the last one */
void special_list_close(struct special_list *list);
/* Number of bytes before the first one that can begin a token of the list; `len`: none. */
size_t special_list_skip(const struct special_list *list, const char *text, size_t len);
/* The longest token of the list that `text` begins with, or NULL. */
const struct added_token *special_list_match(const struct special_list *list, const char *text,
                                             size_t len);

/* Where a piece of text is. */
enum text_place {
    PLACE_FIRST,     /* it begins the text */
    PLACE_LATER,     /* something comes before it in the text */
    PLACE_CONTINUES, /* it begins a text that continues another one */
};

struct encoder;
typedef int run_encoder(struct encoder *e, const char *text, size_t len, enum text_place place);
/* Adds the tokens of the list that are in the text, and encodes the text between them. */
int encode_between(struct encoder *e, const struct special_list *list, const char *text, size_t len,
                   enum text_place place, run_encoder *between);

/* ---- regular expressions ---- */

/* A regular expression as tokenizer.json files write them (Oniguruma's), run by PCRE2. */
struct text_regex;
int text_regex_open(struct text_regex **out, const char *pattern, size_t len, struct error *err);
void text_regex_close(struct text_regex *regex);
/* 1: found at or after `at`, at *begin .. *end; 0: none; -1: takes too long, with the encoder's
 * error set. The text is valid UTF-8, which is not checked again, and `at` is the start of a
 * character. */
int text_regex_find(struct encoder *e, const struct text_regex *regex, const char *text, size_t len,
                    size_t at, size_t *begin, size_t *end);
/* Appends the text with each match replaced by `to`. 1: there was a match; 0: none; -1: as
 * above. */
int text_regex_replace(struct encoder *e, const struct text_regex *regex, const char *text,
                       size_t len, struct byte_view to, struct strbuf *out);

/* ---- normalisation ---- */

enum normal_kind {
    NORMAL_NFC,
    NORMAL_NFD,
    NORMAL_NFKC,
    NORMAL_NFKD,
    NORMAL_PREPEND,
    NORMAL_REPLACE, /* of a string */
    NORMAL_REPLACE_REGEX,
    NORMAL_LOWERCASE,
    NORMAL_STRIP,
    NORMAL_CHARSMAP,      /* SentencePiece's rules, by grapheme, as in `tokenizers` */
    NORMAL_CHARSMAP_LONG, /* the same rules, longest match first, as in SentencePiece */
    NORMAL_EXTRA_SPACES,  /* strips spaces at both ends, and collapses runs of spaces */
};

struct normal_step {
    enum normal_kind kind;
    struct byte_view from, to; /* prepend uses only `to` */
    struct text_regex *regex;
    struct charsmap *charsmap;
    bool left, right; /* of strip */
};

/* SentencePiece's precompiled rules: a trie of what to replace. Copies what it needs. Valid UTF-8
 * stays valid, whatever the file contains. */
struct charsmap;
int charsmap_open(struct charsmap **out, const char *bytes, size_t len, struct error *err);
void charsmap_close(struct charsmap *map);
void charsmap_apply(const struct charsmap *map, bool longest, const char *text, size_t len,
                    struct strbuf *out);

/* Runs the tokenizer's steps over *text, which is valid UTF-8 and stays so after each step; the
 * result is valid until the next call. If a step removed the beginning, *place becomes
 * PLACE_LATER. */
int normalize(struct encoder *e, const char **text, size_t *len, enum text_place *place);
void normal_step_close(struct normal_step *step);

/* ---- pre-tokenisation ---- */

enum pre_kind {
    PRE_SCAN,  /* a known pattern, by a scanner */
    PRE_REGEX, /* this and the following kinds split at their matches */
    PRE_STRING,
    PRE_DIGITS,
    PRE_PUNCTUATION,
    PRE_WHITESPACE, /* \w+|[^\w\s]+ */
    PRE_WHITESPACE_SPLIT,
    PRE_PREFIX_SPACE, /* ByteLevel's add_prefix_space */
    PRE_METASPACE,
};

enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_CONTIGUOUS,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT,
};

enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct pre_step {
    enum pre_kind kind;
    enum split_behavior behavior;
    bool invert;
    struct byte_view text; /* what PRE_STRING looks for; PRE_METASPACE's mark */
    struct text_regex *regex;
    struct pre_tokenizer *scanner;
    enum prepend_scheme prepend;
    bool splits; /* PRE_METASPACE */
};

/* Runs the steps from `step` on over a piece, and encodes the resulting words. */
int encode_pieces(struct encoder *e, size_t step, const char *text, size_t len,
                  enum text_place place);
void pre_step_close(struct pre_step *step);

/* Adds a step to the tokenizer; NULL: too many steps. */
struct pre_step *pre_add_step(struct tokenizer *t, enum pre_kind kind, enum split_behavior behavior,
                              struct error *err);
/* Adds a split at a regular expression, with a scanner if there is one for it. */
int pre_add_split(struct tokenizer *t, const char *pattern, size_t len,
                  enum split_behavior behavior, bool invert, struct error *err);

/* A tokenizer family's options besides its cuts; see families.h. */
struct pre_options {
    bool ignore_merges; /* a word that is a token is taken as it is */
    bool add_bos;       /* unless the file says otherwise */
    bool nfc;           /* models with this pre-tokeniser normalise texts first */
    bool characters;    /* characters merge, not bytes, and spaces are U+2581 */
    bool is_guess;      /* the file does not say how the model cuts text */
};

/* Scanners cut text into words as common regular expressions do, but faster. */
enum pre_scanner { SCAN_GPT2, SCAN_DIGITS_GPT2, SCAN_QWEN2, SCAN_LLAMA3, SCAN_NONE };

int pre_tokenizer_open(struct pre_tokenizer **out, enum pre_scanner scanner, struct error *err);
/* The scanner for a regular expression. */
enum pre_scanner pre_tokenizer_known(const char *pattern, size_t len);
void pre_tokenizer_close(struct pre_tokenizer *pre);
/* The end of the word that begins at `at` < len in `text`, which is valid UTF-8. */
size_t pre_tokenizer_word(const struct pre_tokenizer *pre, const char *text, size_t len, size_t at);

/* Character classes, as in the `tokenizers` library. */
bool char_is_space(uint32_t code);
bool char_is_word(uint32_t code);
bool char_is_numeric(uint32_t code);
bool char_is_punctuation(uint32_t code);
/* True if the character may change, or change the one before it, in NFC or in the other forms. */
bool char_nfc_may_change(uint32_t code);
bool char_forms_may_change(uint32_t code);

/* ---- the tokenizer ---- */

enum { MAX_NORMAL_STEPS = 16, MAX_PRE_STEPS = 16 };

/* What decoding drops at the start of a text. */
struct decode_lead {
    char text[4]; /* one character, */
    uint32_t len;
    uint32_t count;      /* dropped up to this many times */
    bool behind_control; /* also after control tokens that are shown, as in GGUF models */
};

struct tokenizer {
    enum tokenizer_kind kind;
    uint32_t n_tokens;
    struct arena strings;
    struct byte_view *texts;   /* [n_tokens] the text that becomes the token */
    struct byte_view *tokens;  /* [n_tokens] the bytes of each in running text */
    struct byte_view *decoded; /* [n_tokens] the same, except for odd control tokens; or `tokens` */
    struct byte_view *firsts;  /* [n_tokens] the bytes at the start of a text; NULL: the same */
    uint8_t *types;            /* [n_tokens] enum token_type */
    uint8_t *ends;             /* [n_tokens] 1: ends a generation */
    _Atomic(uint8_t) *whole;   /* [n_tokens] enum whole: see encode_new_word */

    struct vocab_table ordinary;    /* the tokens that text can become, by `texts` */
    size_t longest;                 /* length in bytes of the longest of them */
    struct special_list added;      /* cut out of texts */
    struct special_list normalized; /* cut out of normalised texts */
    int32_t byte_ids[256];          /* the token for a single byte, -1: none */
    int32_t bos, eos, unknown;      /* -1: none */
    struct fim_tokens fim;
    int32_t unknown_byte;            /* for bytes that are not a token; -1: they are dropped */
    struct token_list before, after; /* what TOKENIZE_ADD_SPECIAL puts around a text */

    struct normal_step normal[MAX_NORMAL_STEPS];
    size_t n_normal;
    struct pre_step pre[MAX_PRE_STEPS];
    size_t n_pre;
    bool ignore_merges;    /* a word that is a token is taken as it is */
    bool fuse_unknown;     /* one unknown token for a run of characters */
    bool splits_at_marks;  /* no token has SPACE_MARK after another character */
    bool add_space_prefix; /* see tokenizer_adds_space */
    bool single_scores;    /* scores are summed as floats, as in SentencePiece */
    struct decode_lead lead;

    struct merge_table merges; /* if pairs have ranks */
    uint32_t *ranks;           /* [n_tokens] if merged tokens have ranks; 0 merges first */
    struct unigram *unigram;   /* TOKENIZER_UNIGRAM */

    struct idle_pool *encoders; /* only these and `whole` change; safe from any thread */
};

enum whole { WHOLE_NOT_KNOWN, WHOLE_YES, WHOLE_NO };

/* The state of one tokenizer_encode call: all that it changes, so that threads can share a
 * tokenizer. Its memory is kept for the next call. */
struct encoder {
    const struct tokenizer *t;
    struct token_list *out;
    struct error *err;
    bool parse_special;
    struct symbol *symbols; /* the current word */
    uint64_t *heap;         /* its pairs, see merge.c */
    size_t capacity;        /* of `symbols`; `heap` has twice as many */
    struct viterbi_node *nodes;
    size_t n_nodes;
    struct strbuf normal[2];             /* the text before and after a step */
    struct strbuf pieces[MAX_PRE_STEPS]; /* pieces that a step changed */
    int32_t *codes;                      /* characters being normalised */
    size_t n_codes;
    struct regex_scratch *scratch; /* see pattern.c */
    struct word_slot *words;       /* see words.c */
};

/* NULL: out of memory. The caller sets t, out and err. */
struct encoder *encoder_take(struct idle_pool *idle);
void encoder_leave(struct idle_pool *idle, struct encoder *e);
void encoders_free(struct idle_pool *idle); /* and the pool; NULL does nothing */
void encoder_close(struct encoder *e);
int encoder_add(struct encoder *e, int32_t id);
void regex_scratch_free(struct regex_scratch *scratch);
/* Each appends the ids of its text and returns 0, or -1 with the encoder's error set. */
int encode_run(struct encoder *e, const char *text, size_t len, enum text_place place);
int encode_word(struct encoder *e, const char *word, size_t len);     /* len > 0 */
int encode_new_word(struct encoder *e, const char *word, size_t len); /* bypasses the cache */
int encode_unigram(struct encoder *e, const char *word, size_t len);
/* A character that is not a token: adds its bytes if they are tokens, else the unknown token. */
int encode_unknown(struct encoder *e, const char *bytes, size_t len, bool *after_unknown);

/* An empty tokenizer with room for `n` tokens. */
struct tokenizer *tokenizer_new(enum tokenizer_kind kind, uint32_t n, struct error *err);
/* Marks the special tokens that end a generation, judging by their spelling. */
void tokenizer_mark_ends(struct tokenizer *t);
/* `given`: the tokens that the file names; NULL: none. */
void tokenizer_find_fim(struct tokenizer *t, const struct fim_tokens *given);
bool tokenizer_known_end(struct byte_view spelling);
/* Copies bytes into memory that lives as long as the tokenizer; NULL bytes: out of memory. */
struct byte_view tokenizer_keep(struct tokenizer *t, const char *bytes, size_t len);
/* Ranks all ids by their scores, so that both kinds of BPE use the same merge code. */
int tokenizer_rank_scores(struct tokenizer *t, const double *scores, struct error *err);
/* `scores`: for all tokens; those that text can become are in `ordinary`. */
int unigram_open(struct tokenizer *t, const double *scores, struct error *err);
void unigram_close(struct unigram *u);
/* Adds the steps of SentencePiece's own models: an optional leading space, and space marks. */
void tokenizer_add_marks(struct tokenizer *t, bool space_prefix);
/* Computes byte_ids or splits_at_marks, once `ordinary` is filled. */
void tokenizer_ready(struct tokenizer *t);

/* GPT-2's alphabet writes each byte as a printable character. Returns the number of bytes written
 * to `to`, or 0 if a character is not in the alphabet: no text becomes such a token. */
size_t bytes_from_alphabet(char *to, const char *from, size_t len);
/* The same, with SPACE_MARK replaced by a space. */
size_t bytes_from_marks(char *to, const char *from, size_t len);
/* The byte of a token spelled <0xNN>; -1: not spelled so. */
int fallback_byte(struct byte_view spelling);

#endif
