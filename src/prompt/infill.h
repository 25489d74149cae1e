#ifndef RADISH_PROMPT_INFILL_H
#define RADISH_PROMPT_INFILL_H

#include "base/byte_view.h"
#include "prompt/prompt.h"

/* Prompts for filling a gap in a text, of a model with tokens for that (tokenizer_fim). The order
 * is that of llama-server, which editors' plug-ins count on:
 *
 *   [repository] myproject      only with files
 *   [file] name, text           of each file
 *   [file] filename
 *   [prefix] text before the gap [suffix] text behind it [middle]
 *
 * Texts are never read as special tokens, but for the cursor's line. */
struct infill_file {
    struct byte_view name, text;
};

struct infill_input {
    struct byte_view prefix, suffix;
    struct byte_view line; /* the cursor's line up to the cursor: the end of the prefix */
    const struct infill_file *files;
    size_t n_files;
    bool has_files; /* write the heads of repository and file, even where there is no file */
    /* Most tokens of prefix, line and suffix, three quarters of them for the prefix, and most of
     * the files: the end of the prefix, the beginning of the suffix and the last files stay. 0 for
     * the first: nothing is cut. */
    size_t most_tokens, most_file_tokens;
    /* The bytes of the longest token. Parts that are cut are first cut to what can become twice
     * the tokens that stay, because megabytes would take a tokenizer seconds. 0: they are not. */
    size_t token_bytes;
};

/* Whether the model can; if not, `why` says which tokens it lacks: "no prefix token". */
bool infill_is_possible(const struct tokenizer *t, const char **why);
/* Makes the prompt. `out` is written whole; after an error there is nothing in it to free. */
int prompt_maker_infill(const struct prompt_maker *p, const struct infill_input *in,
                        struct prompt *out, struct error *err);

#endif
