#ifndef RADISH_PROMPT_PROMPT_INTERNAL_H
#define RADISH_PROMPT_PROMPT_INTERNAL_H

#include "prompt/prompt.h"

/* A rendering on its way to tokens, shared by the prompt's own files:
 *
 *   text      <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n ...
 *   specials  [1          ]       [2        ]  [1          ]              [2        ]
 *   spans                                                            [the sampled ids]
 *
 * Special tokens and spans become their ids; each piece of text between them is encoded in one
 * go. A special token lies in a span whole, or outside of it. */
struct prompt_special {
    size_t begin, end;
    int32_t id;
};

/* What an answer of the store has in common with the rendering. */
struct prompt_span {
    size_t begin, end;            /* bytes of the text; equal when nothing agrees */
    struct replay_answer *answer; /* NULL: none was found */
    size_t n_ids;                 /* of the answer's */
    bool leads_with_space; /* the first id has a space that the text has not: SentencePiece's own */
    int32_t message;
    enum replay_stop stop;
    size_t first_token; /* set when it is encoded */
};

/* All memory that making a prompt takes. It is kept, emptied, for the next one. */
struct prompt_draft {
    const struct tokenizer *tokenizer;
    struct arena arena; /* what the template computes with */
    struct rendering rendering;
    struct prompt_special *specials; /* in order; those of the template's own words only */
    size_t n_specials, specials_capacity;
    struct prompt_span *spans; /* in order, none overlaps another */
    size_t n_spans, spans_capacity;
    struct strbuf assistants; /* a byte for each message: 1 if it is the assistant's */
    struct strbuf rest;       /* what of an answer is not in the rendering */
};

/* Finds the special tokens that the template wrote. */
int prompt_find_specials(struct prompt_draft *d, struct error *err);
/* Finds the answers in the store that the assistant's messages are, and the text's digest. */
int prompt_find_spans(struct prompt_draft *d, const struct prompt_input *in,
                      struct prompt_digest *digest, struct error *err);
/* Appends the tokens, with the map if that is asked for. */
int prompt_encode(struct prompt_draft *d, bool want_map, struct prompt *out, struct error *err);

/* The array with room for one more item, or NULL: there is no memory, and it is as it was. */
void *prompt_grow(void *items, size_t item_size, size_t n, size_t *capacity);

#endif
