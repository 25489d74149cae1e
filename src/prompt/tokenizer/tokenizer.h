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

/* The model's own tokenizer: from GGUF metadata, where it is byte-level BPE ("gpt2") with the
 * pre-tokeniser that the file names, BPE of characters ("gemma4") or SentencePiece-like ("llama"),
 * or from the files that a Hugging Face directory has. Read-only once open: any thread may use it.
 * Text is bytes; bytes that are not UTF-8 are tokenised too, and come back unchanged where the
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
    TOKENIZE_CONTINUES = 4,     /* text stands before it: SentencePiece puts no space there */
};

/* The three that open one also give what the files say of conversations; `chat` NULL: it is not
 * wanted. */
int tokenizer_open(struct tokenizer **out, struct chat_defaults *chat, const struct gguf *gguf,
                   struct error *err);
/* From the first of these that the directory has: tokenizer.json; tokenizer.model, SentencePiece's
 * or tiktoken's; tiktoken.model or a *.tiktoken file; tekken.json; vocab.json with merges.txt.
 * tokenizer_config.json, chat_template.jinja or .json, generation_config.json and config.json are
 * read beside it. `n_vocab` is how many rows the
 * model's embedding has (0: not known): ids without a token are empty and unused; more tokens than
 * rows are an error. */
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
/* Both: false when there is no memory, and the list is as it was. */
bool token_list_reserve(struct token_list *list, size_t extra);
bool token_list_add(struct token_list *list, int32_t id);

uint32_t tokenizer_size(const struct tokenizer *t);
const char *tokenizer_kind_name(const struct tokenizer *t); /* "BPE", "SentencePiece", ... */
/* The bytes that a token stands for in running text; special tokens give their own spelling. */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id); /* control tokens: not shown */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);     /* any end-of-generation token */
int32_t tokenizer_bos(const struct tokenizer *t);                 /* -1: none */
int32_t tokenizer_eos(const struct tokenizer *t);                 /* -1: none */
/* The tokens between the parts of a text whose middle is to be filled in, and before the files of a
 * repository; -1: the model has none. */
struct fim_tokens {
    int32_t prefix, suffix, middle, repository, file;
};
const struct fim_tokens *tokenizer_fim(const struct tokenizer *t);
/* A space that is not in the text is encoded before it (SentencePiece), but for texts that
 * continue others. */
bool tokenizer_adds_space(const struct tokenizer *t);
int32_t tokenizer_find(const struct tokenizer *t, const char *bytes, size_t len); /* -1: none */
/* The longest special token, control or user-defined, that `text` begins with; -1: none. */
int32_t tokenizer_special_at(const struct tokenizer *t, const char *text, size_t len);

/* Text for a list of ids, as a text would be shown: SentencePiece's first space is dropped.
 * With `special`, control tokens are spelled out, else they give nothing. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special,
                      struct strbuf *out);

/* The same for ids that come one by one; zero-initialise the state. */
struct decode_state {
    bool is_inside;     /* a token was decoded */
    uint32_t n_dropped; /* characters at the beginning that are not shown */
};

void tokenizer_decode_next(const struct tokenizer *t, struct decode_state *state, int32_t id,
                           bool special, struct strbuf *out);

#endif
