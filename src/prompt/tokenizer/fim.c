/* Fill-in-the-middle tokens, found by their spelling: models trained to fill a gap have three or
 * more, and each family spells them differently. If a GGUF file names them, the file wins. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <string.h>

enum { MAX_SPELLINGS = 8 };

static const char *const prefixes[MAX_SPELLINGS] = {
    "<|fim_prefix|>",                  /* Qwen */
    "<fim-prefix>",    "<fim_prefix>", /* StarCoder, Granite */
    "<｜fim▁begin｜>",                 /* DeepSeek */
    "<PRE>",           "▁<PRE>",       /* CodeLlama */
    "<|code_prefix|>",                 /* GLM */
    "<|prefix|>"};                     /* Falcon */
static const char *const suffixes[MAX_SPELLINGS] = {
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",    "<｜fim▁hole｜>",
    "<SUF>",          "▁<SUF>",       "<|code_suffix|>", "<|suffix|>"};
static const char *const middles[MAX_SPELLINGS] = {
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>",    "<｜fim▁end｜>",
    "<MID>",          "▁<MID>",       "<|code_middle|>", "<|middle|>"};
static const char *const repositories[MAX_SPELLINGS] = {"<|fim_repo|>", "<|repo_name|>",
                                                        "<fim-repo>", "<REPO>", "<reponame>"};
static const char *const files[MAX_SPELLINGS] = {"<|file_sep|>"};

static void find_one(const struct tokenizer *t, const char *const *spellings, int32_t *id)
{
    for (size_t i = 0; *id < 0 && i < MAX_SPELLINGS && spellings[i]; i++)
        *id = tokenizer_find(t, spellings[i], strlen(spellings[i]));
}

void tokenizer_find_fim(struct tokenizer *t, const struct fim_tokens *given)
{
    t->fim = given ? *given : (struct fim_tokens){-1, -1, -1, -1, -1};
    find_one(t, prefixes, &t->fim.prefix);
    find_one(t, suffixes, &t->fim.suffix);
    find_one(t, middles, &t->fim.middle);
    find_one(t, repositories, &t->fim.repository);
    find_one(t, files, &t->fim.file);
}

const struct fim_tokens *tokenizer_fim(const struct tokenizer *t)
{
    return &t->fim;
}
