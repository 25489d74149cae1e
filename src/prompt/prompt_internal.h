#ifndef RADISH_PROMPT_PROMPT_INTERNAL_H
#define RADISH_PROMPT_PROMPT_INTERNAL_H

#include "prompt/prompt.h"

/* A rendering that is being turned into tokens, shared by the prompt's own files:
 *
 *   text      <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n ...
 *   specials  [1          ]       [2        ]  [1          ]              [2        ]
 *   spans                                                            [the sampled ids]
 *
 * Special tokens and spans become their ids; each piece of text between them is encoded in one
 * call. A special token is either completely inside a span or outside. */
struct prompt_special {
    size_t begin, end;
    int32_t id;
};

/* The part of the rendering that matches an answer of the store. */
struct prompt_span {
    size_t begin, end;            /* bytes of the text; equal if nothing matches */
    struct replay_answer *answer; /* NULL: none was found */
    size_t n_ids;                 /* of the answer */
    bool leads_with_space; /* the first id has a space that is not in the text (SentencePiece) */
    int32_t message;
    enum replay_stop stop;
    size_t first_token; /* set when it is encoded */
};

/* All memory for making a prompt. It is emptied and kept for the next one. */
struct prompt_draft {
    const struct tokenizer *tokenizer;
    struct arena arena; /* for the template */
    struct rendering rendering;
    struct prompt_special *specials; /* in order; only those from the template */
    size_t n_specials, specials_capacity;
    struct prompt_span *spans; /* in order, without overlaps */
    size_t n_spans, spans_capacity;
    struct strbuf assistants; /* a byte for each message: 1 if it is the assistant's */
    struct strbuf rest;       /* the part of an answer that is not in the rendering */
};

/* Finds the special tokens that the template wrote. */
int prompt_find_specials(struct prompt_draft *d, struct error *err);
/* Finds the stored answers of the assistant's messages, and the text's digest. */
int prompt_find_spans(struct prompt_draft *d, const struct prompt_input *in,
                      struct prompt_digest *digest, struct error *err);
/* Appends the tokens, and the map if requested. */
int prompt_encode(struct prompt_draft *d, bool want_map, struct prompt *out, struct error *err);

/* The array with room for one more item. NULL: out of memory, and the array is unchanged. */
void *prompt_grow(void *items, size_t item_size, size_t n, size_t *capacity);

#endif
