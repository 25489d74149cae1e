/* Which tokens end a generation, by their spelling. Files name one or two, which their loaders
 * mark. Chat models end turns with others, and a model that continues into the next document, or
 * the next file of a repository, has also finished its answer. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <string.h>

static const char *const known_ends[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "</s>",
    "<eos>",
    "[EOS]",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[e~[",
    "<｜end▁of▁sentence｜>",
    /* Padding, and separators between files in code models. */
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
};

static int32_t find_end(const struct tokenizer *t, const char *spelling)
{
    int32_t id = tokenizer_find(t, spelling, strlen(spelling));
    return tokenizer_is_end(t, id) ? id : -1;
}

bool tokenizer_known_end(struct byte_view spelling)
{
    for (size_t i = 0; i < sizeof known_ends / sizeof *known_ends; i++)
        if (strlen(known_ends[i]) == spelling.len &&
            memcmp(known_ends[i], spelling.bytes, spelling.len) == 0)
            return true;
    return false;
}

void tokenizer_mark_ends(struct tokenizer *t)
{
    const struct special_list *lists[] = {&t->added, &t->normalized};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (uint32_t i = 0; i < lists[k]->n; i++)
            if (tokenizer_known_end(lists[k]->items[i].text))
                t->ends[lists[k]->items[i].id] = 1;
    /* In these two families the token ends a message or a text within one answer. */
    int32_t end = find_end(t, "<|end|>");
    bool calls = find_end(t, "<|call|>") >= 0 || find_end(t, "<|calls|>") >= 0;
    if (end >= 0 && calls && (find_end(t, "<|return|>") >= 0 || find_end(t, "<|flush|>") >= 0))
        t->ends[end] = 0;
    int32_t slash_s = find_end(t, "</s>");
    if (slash_s >= 0 && find_end(t, "<|tool_response>") >= 0)
        t->ends[slash_s] = 0;
}
