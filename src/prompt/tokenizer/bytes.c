/* A tokenizer without a model file, for the mock engine: one token per byte, and ChatML. */
#include <string.h>

#include "prompt/tokenizer/chat_defaults.h"
#include "prompt/tokenizer/tokenizer_internal.h"

static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\n' }}{% endif %}";

int tokenizer_open_bytes(struct tokenizer **out, struct chat_defaults *chat, struct error *err)
{
    static const char *const specials[] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"};
    enum { N_SPECIALS = sizeof specials / sizeof *specials };
    struct tokenizer *t = tokenizer_new(TOKENIZER_BYTES, 256 + N_SPECIALS, err);
    if (!t)
        return -1;
    bool failed = false;
    for (int i = 0; i < 256; i++) {
        t->tokens[i] = tokenizer_keep(t, (char[]){(char)i}, 1);
        t->types[i] = TOKEN_BYTE;
        t->byte_ids[i] = i;
    }
    for (int i = 0; i < N_SPECIALS; i++) {
        struct added_token token = {{specials[i], strlen(specials[i])}, 256 + i, ADDED_SPECIAL};
        t->tokens[256 + i] = token.text;
        t->types[256 + i] = TOKEN_CONTROL;
        failed = failed || special_list_add(&t->added, token, err) != 0;
    }
    special_list_ready(&t->added);
    special_list_ready(&t->normalized);
    t->eos = 257;
    struct chat_defaults own = {0};
    failed = failed || t->strings.failed ||
             !chat_defaults_keep(&own.chat_template, &own.chat_template_len, chatml,
                                 strlen(chatml));
    if (failed) {
        tokenizer_close(t);
        return error_set(err, ERROR_MEMORY, "no memory for a tokenizer");
    }
    tokenizer_mark_ends(t);
    tokenizer_find_fim(t, NULL);
    chat_defaults_move(chat, &own);
    *out = t;
    return 0;
}
