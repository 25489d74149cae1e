#ifndef RADISH_PROMPT_TOKENIZER_DRAFT_H
#define RADISH_PROMPT_TOKENIZER_DRAFT_H

#include "base/json.h"
#include "prompt/tokenizer/chat_defaults.h"
#include "prompt/tokenizer/tokenizer_internal.h"

/* A tokenizer while the files of a directory are read:
 *
 *   tokenizer.json   ─┐
 *   tokenizer.model  ─┤
 *   *.tiktoken       ─┼─► draft: spellings, added tokens, steps ──draft_finish──► struct tokenizer
 *   tekken.json      ─┤          ▲
 *   vocab.json       ─┘          │
 *   tokenizer_config.json ───────┘
 */

/* Decoding steps. They run over every token once, when the tokenizer is made. */
enum decode_kind {
    DECODE_BYTE_LEVEL,
    DECODE_BYTE_FALLBACK,
    DECODE_REPLACE,
    DECODE_METASPACE,
    DECODE_STRIP,
    DECODE_FUSE,
};

struct decode_step {
    enum decode_kind kind;
    struct byte_view from, to; /* replace; `from`: also metaspace's mark, and what strip drops */
    struct text_regex *regex;  /* replace: NULL for a string */
    bool drops_first;          /* metaspace: drops the marks of the first token */
    uint32_t start, stop;      /* strip */
};

enum { MAX_DECODE_STEPS = 16, MAX_DIRECTORY_TOKENS = 1 << 21 };

enum { DRAFT_IN_MODEL = 0x80 }; /* not only an added token */

/* A line of `words` for a step that is not a cut of families.h. */
#define DRAFT_OTHER "<other>\n"

struct draft_added {
    struct byte_view content;
    int32_t id;
    unsigned flags;
};

struct token_draft {
    const char *path; /* the current file, for errors */
    struct error *err;
    struct arena arena;            /* what was read */
    struct strbuf file;            /* the file with the vocabulary: spellings may point into it */
    bool is_json;                  /* it is tokenizer.json */
    size_t added_begin, added_end; /* where its list of added tokens is */
    size_t n_own_added;            /* and how many it has */
    struct strbuf words;           /* how text is cut into words, one line for each cut */
    uint32_t n_vocab;              /* rows of the embedding, 0: unknown */
    struct tokenizer *t;           /* made when all ids are known */
    struct chat_defaults chat;     /* what a directory says about conversations */
    enum tokenizer_kind kind;

    struct byte_view *spellings; /* [capacity] by id; NULL bytes: none */
    double *scores;              /* [capacity]; NULL: none */
    uint8_t *types;              /* [capacity] enum token_type, and DRAFT_IN_MODEL */
    uint32_t n, capacity;        /* n: the largest id is n - 1 */
    struct vocab_table by_spelling;
    struct byte_view *merges; /* [2 * n_merges] the two sides of each merge in turn */
    size_t n_merges, merges_capacity;
    struct draft_added *added;
    size_t n_added, added_capacity;
    struct decode_step decode[MAX_DECODE_STEPS];
    size_t n_decode;
    bool has_template; /* the file says which tokens go around a text */
    bool byte_fallback;
    bool spells_bytes;        /* TOKENIZER_BPE: spellings are the bytes themselves */
    bool added_replace;       /* added tokens replace reserved unused ones */
    bool no_prefix_for_added; /* added tokens are normalised without a leading space */
    struct byte_view unknown; /* its spelling; NULL bytes: none */
};

/* Sets an error about the current file. */
__attribute__((format(printf, 2, 3))) int draft_bad(const struct token_draft *d, const char *format,
                                                    ...);
int draft_no_memory(const struct token_draft *d);
/* Both check that the id is in range and not taken. The text must outlive the draft. */
int draft_token(struct token_draft *d, uint64_t id, struct byte_view spelling, enum token_type type,
                double score);
int draft_added(struct token_draft *d, struct byte_view content, uint64_t id, unsigned flags);
bool draft_is_added(const struct token_draft *d, struct byte_view content);
int draft_merge(struct token_draft *d, struct byte_view left, struct byte_view right);
int draft_decode_step(struct token_draft *d, struct decode_step step);
/* Makes the table of spellings, and an empty tokenizer with room for all tokens. */
int draft_make(struct token_draft *d, enum tokenizer_kind kind);
/* Fills it with what was read. */
int draft_finish(struct token_draft *d);
void draft_close(struct token_draft *d);
int32_t draft_find(const struct token_draft *d, struct byte_view spelling); /* -1: none */

/* Read the steps in tokenizer.json; NULL and null mean no steps. */
int draft_read_normalizer(struct token_draft *d, const struct json *value);
int draft_read_pre_tokenizer(struct token_draft *d, const struct json *value);
int draft_read_decoder(struct token_draft *d, const struct json *value);
int draft_read_post_processor(struct token_draft *d, const struct json *value);
bool draft_is_byte_level(const struct json *pre_tokenizer);
int draft_read_added(struct token_draft *d, const struct json *token, uint64_t id);
/* Adds a Split at a regular expression, with a scanner if there is one for it. */
int draft_split_step(struct token_draft *d, const char *pattern, size_t len,
                     enum split_behavior behavior, bool invert);

/* Cuts text as the named family does; the family must exist. */
int draft_apply_family(struct token_draft *d, const char *name);

/* Reads a directory into an empty draft, and finishes it; see tokenizer_open_directory. */
int draft_read_directory(struct token_draft *d, const char *path);
bool draft_has_directory(const char *path); /* it contains a tokenizer */

/* Each reads a file into an empty draft, up to draft_make and the steps. `config` is
 * tokenizer_config.json or NULL; its added tokens must be in the draft before draft_make. */
int draft_read_json(struct token_draft *d, const struct json *config);
int draft_read_sentencepiece(struct token_draft *d, const struct json *config);
int draft_read_tiktoken(struct token_draft *d, const struct json *config);
bool draft_is_tiktoken(const struct strbuf *file);
int draft_read_tekken(struct token_draft *d, const struct json *config);

/* The files beside vocab.json. */
struct vocab_files {
    const char *merges; /* merges.txt; must outlive the draft */
    size_t merges_len;
    const struct json *added, *special; /* added_tokens.json, special_tokens_map.json; or NULL */
};

int draft_read_vocab_json(struct token_draft *d, const struct json *config,
                          const struct vocab_files *files);
/* The tokens of {"token": id, ...}. */
int draft_read_vocab(struct token_draft *d, struct json_cursor *c);
/* Decodes into the draft's arena; no bytes: not base64. */
int draft_base64(struct token_draft *d, const char *text, size_t len, struct byte_view *out);
/* Reads tokenizer_config.json's added_tokens_decoder, except for tokens that are there already. */
int draft_read_config_added(struct token_draft *d, const struct json *config);

#endif
