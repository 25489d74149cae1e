#ifndef RADISH_PROMPT_INFILL_H
#define RADISH_PROMPT_INFILL_H

#include "base/byte_view.h"
#include "prompt/prompt.h"

/* Prompts that fill a gap in a text, for models with tokens for that (tokenizer_fim). The order is
 * llama-server's, which editor plug-ins rely on:
 *
 *   [repository] myproject      only with files
 *   [file] name, text           of each file
 *   [file] filename
 *   [prefix] text before the gap [suffix] text after it [middle]
 *
 * Special tokens are recognized only in the cursor's line. */
struct infill_file {
    struct byte_view name, text;
};

struct infill_input {
    struct byte_view prefix, suffix;
    struct byte_view line; /* the cursor's line up to the cursor: the end of the prefix */
    const struct infill_file *files;
    size_t n_files;
    bool has_files; /* write the heads of repository and file, even without files */
    /* Token limits for prefix, line and suffix together (three quarters of it for the prefix) and
     * for the files. The end of the prefix, the beginning of the suffix and the last files are
     * kept. most_tokens 0: nothing is cut. */
    size_t most_tokens, most_file_tokens;
    /* The bytes of the longest token. Long parts are first cut to the size of twice the tokens that
     * are kept, because tokenizing megabytes takes seconds. 0: not cut first. */
    size_t token_bytes;
};

/* Whether the model supports infill; if not, `why` names the missing token: "no prefix token". */
bool infill_is_possible(const struct tokenizer *t, const char **why);
/* Makes the prompt and overwrites `out`; after an error it holds nothing to free. */
int prompt_maker_infill(const struct prompt_maker *p, const struct infill_input *in,
                        struct prompt *out, struct error *err);

#endif
