#ifndef RADISH_PROMPT_TOKENIZER_EXPORT_H
#define RADISH_PROMPT_TOKENIZER_EXPORT_H

#include <stdint.h>

#include "base/error.h"
#include "model/files/gguf_write.h"

/* Writes the tokenizer of a directory as keys of a GGUF file that gives the same ids. */
enum tokenizer_written {
    TOKENIZER_NONE,  /* the directory has none */
    TOKENIZER_KNOWN, /* other programs can read it, too */
    TOKENIZER_ODD,   /* complete for radish; other programs may split text differently */
};

/* `n_vocab` is the number of rows of the embedding. What GGUF's keys cannot express goes into
 * tokenizer.huggingface.json, a copy of tokenizer.json that tokenizer_open reads first; a directory
 * whose tokenizer needs it but has no tokenizer.json is rejected. */
int tokenizer_export(const char *directory, uint32_t n_vocab, struct gguf_writer *out,
                     enum tokenizer_written *written, struct error *err);

#endif
