#ifndef RADISH_PROMPT_UNICODE_TOKEN_TEXT_H
#define RADISH_PROMPT_UNICODE_TOKEN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "prompt/unicode/utf8_stream.h"

/* The text of an answer whose tokens arrive one by one: takes their bytes, outputs whole
 * characters.
 *
 *   bytes of the tokens   ............│.....│
 *                       shown ────────┘     └──── held: may be the beginning of a stop string
 *
 * Zero-initialise it. Once the buffers have grown, adding a token allocates nothing. */
struct token_text {
    struct strbuf held;
    uint64_t shown;
    struct utf8_stream utf8; /* the start of a character, held until it is complete */
    struct strbuf text;      /* for the reader, which may clear it at any time */
};

/* The first `text_end` bytes of all tokens so far may be shown. */
void token_text_add(struct token_text *t, const char *bytes, size_t len, uint64_t text_end);
/* No more tokens will come; an incomplete character is replaced. */
void token_text_end(struct token_text *t, uint64_t text_end);
bool token_text_failed(const struct token_text *t); /* out of memory */
void token_text_free(struct token_text *t);

#endif
