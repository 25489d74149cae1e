/* `radish tokenize`: text to token ids and back. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/command.h"
#include "cli/input.h"
#include "cli/runtime.h"

static bool decode, no_special, parse_special;

static const struct option tokenize_options[] = {
    FLAG("decode", &decode, "from a JSON array of ids to text"),
    FLAG("no-special", &no_special, "do not add the tokens that the model puts around a text"),
    FLAG("parse-special", &parse_special, "text that spells a special token becomes that token"),
    {0},
};

static int text_encode(const struct tokenizer *t, const struct strbuf *in, struct strbuf *out,
                       struct error *err)
{
    if (input_check_utf8("the text", strbuf_str(in), in->len, err))
        return -1;
    struct token_list list = {0};
    int flags = (no_special ? 0 : TOKENIZE_ADD_SPECIAL) |
                (parse_special ? TOKENIZE_PARSE_SPECIAL : 0);
    int failed = tokenizer_encode(t, strbuf_str(in), in->len, flags, &list, err);
    struct json_writer w = {.out = out};
    json_array_begin(&w, NULL);
    for (size_t i = 0; i < list.len; i++)
        json_add_int(&w, NULL, list.ids[i]);
    json_array_end(&w);
    strbuf_addc(out, '\n');
    token_list_free(&list);
    return failed;
}

static int ids_decode(const struct tokenizer *t, const struct strbuf *in, struct strbuf *out,
                      struct error *err)
{
    struct arena arena = ARENA_INIT;
    struct token_list list = {0};
    const struct json *ids = json_parse(&arena, strbuf_str(in), in->len, err);
    int failed = ids ? 0 : -1;
    if (ids && ids->type != JSON_ARRAY)
        failed = error_set(err, ERROR_INPUT, "expected a JSON array of token ids");
    for (const struct json *id = ids ? ids->first : NULL; id && !failed; id = id->next) {
        int64_t value;
        if (!json_to_int64(id, &value) || value < 0 || value >= tokenizer_size(t))
            failed = error_set(err, ERROR_INPUT,
                               "expected token ids from 0 to %u; the value at byte %zu is not one",
                               tokenizer_size(t) - 1, id->position);
        else if (!token_list_add(&list, (int32_t)value))
            failed = error_set(err, ERROR_MEMORY, "no memory for the tokens");
    }
    if (!failed)
        tokenizer_decode(t, list.ids, list.len, !no_special, out);
    token_list_free(&list);
    arena_free(&arena);
    return failed;
}

static int tokenize_run(const struct command *command, int argc, char **argv)
{
    struct option_set set = {.tables = {runtime_model_options, tokenize_options}};
    struct strbuf in = STRBUF_INIT, out = STRBUF_INIT;
    struct model model = {0};
    struct tokenizer *tokenizer = NULL;
    struct error err;
    int status;
    if (!runtime_parse(command, &set, argc, argv, &status))
        return status;
    int failed = runtime_open_model(&model, &err) ||
                 tokenizer_open(&tokenizer, &model.gguf, &err) || input_read(&in, &err);
    if (!failed)
        failed = decode ? ids_decode(tokenizer, &in, &out, &err)
                        : text_encode(tokenizer, &in, &out, &err);
    if (!failed)
        fwrite(strbuf_str(&out), 1, out.len, stdout);
    tokenizer_close(tokenizer);
    model_close(&model);
    strbuf_free(&in);
    strbuf_free(&out);
    return failed ? command_fail(command, &err, EXIT_FAILED) : EXIT_OK;
}

const struct command command_tokenize = {
    .name = "tokenize",
    .summary = "turn text into token ids, or back",
    .usage = "-m FILE [OPTIONS] < TEXT",
    .example = "echo -n \"Hello\" | radish tokenize -m model.gguf",
    .run = tokenize_run,
};
