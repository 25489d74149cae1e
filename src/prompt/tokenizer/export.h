#ifndef RADISH_PROMPT_TOKENIZER_EXPORT_H
#define RADISH_PROMPT_TOKENIZER_EXPORT_H

#include <stdint.h>

#include "base/error.h"
#include "model/files/gguf_write.h"

/* The tokenizer of a directory as keys of a GGUF file, so that the file gives the same ids. */
enum tokenizer_written {
    TOKENIZER_NONE,  /* the directory has none */
    TOKENIZER_KNOWN, /* other programs read it, too */
    TOKENIZER_ODD,   /* it is whole for radish; others may cut text into other words */
};

/* `n_vocab` is how many rows the embedding has. What the keys of GGUF do not tell is in
 * tokenizer.huggingface.json, all of tokenizer.json, which tokenizer_open reads first; a directory
 * without tokenizer.json whose tokenizer needs it is refused. */
int tokenizer_export(const char *directory, uint32_t n_vocab, struct gguf_writer *out,
                     enum tokenizer_written *written, struct error *err);

#endif
