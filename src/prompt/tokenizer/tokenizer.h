#ifndef RADISH_PROMPT_TOKENIZER_TOKENIZER_H
#define RADISH_PROMPT_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "model/files/gguf.h"

/* prompt/tokenizer/ turns text into ids and back, and reads and writes the files that define a
 * tokenizer. */

/* The model's own tokenizer. It comes from GGUF metadata - byte-level BPE ("gpt2") with the
 * pre-tokeniser that the file names, BPE of characters ("gemma4") or SentencePiece-like ("llama") -
 * or from the files of a Hugging Face directory. Read-only once open: any thread may use it. Text
 * is bytes; bytes that are not UTF-8 are tokenised too, and come back unchanged where the
 * vocabulary has every byte. */
struct tokenizer;
struct chat_defaults;

struct token_list {
    int32_t *ids;
    size_t len, capacity;
};

enum tokenize_flags {
    TOKENIZE_ADD_SPECIAL = 1,   /* the tokens that the model puts around a text (BOS, EOS) */
    TOKENIZE_PARSE_SPECIAL = 2, /* text that spells a special token becomes that token */
    TOKENIZE_CONTINUES = 4,     /* continues another text: SentencePiece adds no space */
};

/* The three open functions also return what the files say about conversations; `chat` may be
 * NULL. */
int tokenizer_open(struct tokenizer **out, struct chat_defaults *chat, const struct gguf *gguf,
                   struct error *err);
/* From the first of these that the directory has: tokenizer.json; tokenizer.model, SentencePiece's
 * or tiktoken's; tiktoken.model or a *.tiktoken file; tekken.json; vocab.json with merges.txt.
 * tokenizer_config.json, chat_template.jinja or .json, generation_config.json and config.json are
 * read as well. `n_vocab` is the number of rows of the model's embedding (0: unknown): ids without
 * a token are empty and unused; more tokens than rows are an error. */
int tokenizer_open_directory(struct tokenizer **out, struct chat_defaults *chat, const char *dir,
                             uint32_t n_vocab, struct error *err);
/* A tokenizer without a file, for the mock engine: ids 0..255 are the bytes, then <|im_start|>,
 * <|im_end|> (which ends an answer) and <|endoftext|>, with a ChatML template. */
int tokenizer_open_bytes(struct tokenizer **out, struct chat_defaults *chat, struct error *err);
void tokenizer_close(struct tokenizer *t);

/* Appends the ids of `text` to `out`. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, int flags,
                     struct token_list *out, struct error *err);
void token_list_free(struct token_list *list);
/* Both: false if out of memory; the list is unchanged. */
bool token_list_reserve(struct token_list *list, size_t extra);
bool token_list_add(struct token_list *list, int32_t id);

uint32_t tokenizer_size(const struct tokenizer *t);
const char *tokenizer_kind_name(const struct tokenizer *t); /* "BPE", "SentencePiece", ... */
/* The bytes of a token in running text; for special tokens, their spelling. */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id); /* control tokens: not shown */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);     /* any end-of-generation token */
int32_t tokenizer_bos(const struct tokenizer *t);                 /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);                 /* -1: none */
/* The tokens that mark the parts of a fill-in-the-middle prompt, and the files of a repository; -1:
 * the model has none. */
struct fim_tokens {
    int32_t prefix, suffix, middle, repository, file;
};
const struct fim_tokens *tokenizer_fim(const struct tokenizer *t);
/* Whether encoding adds a space before the text (SentencePiece), except for texts that continue
 * others. */
bool tokenizer_adds_space(const struct tokenizer *t);
int32_t tokenizer_find(const struct tokenizer *t, const char *bytes, size_t len); /* -1: none */
/* The longest special token, control or user-defined, that `text` begins with; -1: none. */
int32_t tokenizer_special_at(const struct tokenizer *t, const char *text, size_t len);

/* The text of a list of ids, as shown to users: SentencePiece's leading space is dropped. With
 * `special`, control tokens are spelled out; otherwise they are skipped. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special,
                      struct strbuf *out);

/* The same, one id at a time; zero-initialise the state. */
struct decode_state {
    bool is_inside;     /* a token was decoded */
    uint32_t n_dropped; /* characters at the beginning that are not shown */
};

void tokenizer_decode_next(const struct tokenizer *t, struct decode_state *state, int32_t id,
                           bool special, struct strbuf *out);

#endif
