/* `radish tokenize`: text to token ids and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/input.h"
#include "cli/runtime.h"
#include "prompt/unicode/utf8_stream.h"

static bool decode, no_special, parse_special, lines;

static const struct option tokenize_options[] = {
    FLAG("decode", &decode, "turn a JSON array of token ids into text"),
    FLAG("no-special", &no_special,
         "encode: do not add the model's start and end tokens; decode: hide special tokens"),
    FLAG("parse-special", &parse_special,
         "encode text such as <|im_end|> as the special token it spells"),
    FLAG("lines", &lines,
         "read JSON lines, each a string to encode or ids to decode; write one JSON line for each"),
    {0},
};

static int text_encode(const struct tokenizer *t, const char *text, size_t len, struct strbuf *out,
                       struct error *err)
{
    if (input_check_utf8("the text", text, len, err))
        return -1;
    struct token_list list = {0};
    int flags = (no_special ? 0 : TOKENIZE_ADD_SPECIAL) |
                (parse_special ? TOKENIZE_PARSE_SPECIAL : 0);
    int failed = tokenizer_encode(t, text, len, flags, &list, err);
    struct json_writer w = {.out = out};
    json_array_begin(&w, NULL);
    for (size_t i = 0; i < list.len; i++)
        json_add_int(&w, NULL, list.ids[i]);
    json_array_end(&w);
    strbuf_addc(out, '\n');
    token_list_free(&list);
    return failed;
}

/* Decodes the ids one by one, as a streamed answer does. */
static int ids_decode(const struct tokenizer *t, const struct json *ids, struct strbuf *out,
                      struct error *err)
{
    struct decode_state state = {0};
    if (ids->type != JSON_ARRAY)
        return error_set(err, ERROR_INPUT, "expected a JSON array of token ids");
    json_each (id, ids) {
        int64_t value;
        if (!json_to_int64(id, &value) || value < 0 || value >= tokenizer_size(t))
            return error_set(err, ERROR_INPUT,
                             "expected token ids from 0 to %u; the value at byte %zu is not one",
                             tokenizer_size(t) - 1, id->position);
        tokenizer_decode_next(t, &state, (int32_t)value, !no_special, out);
    }
    return 0;
}

/* A line of text is a JSON string of whole UTF-8 sequences, as a client sees it. */
static int line_decode(const struct tokenizer *t, const struct json *ids, struct strbuf *out,
                       struct error *err)
{
    struct strbuf bytes = STRBUF_INIT, text = STRBUF_INIT;
    struct utf8_stream stream = {0};
    int failed = ids_decode(t, ids, &bytes, err);
    for (size_t i = 0; i < bytes.len; i++)
        utf8_stream_add(&stream, bytes.data + i, 1, &text);
    utf8_stream_end(&stream, &text);
    json_write_string(out, strbuf_str(&text), text.len);
    strbuf_addc(out, '\n');
    strbuf_free(&bytes);
    strbuf_free(&text);
    return failed;
}

static int lines_run(const struct tokenizer *t, const struct strbuf *in, struct strbuf *out,
                     struct error *err)
{
    const char *at = strbuf_str(in), *end = at + in->len;
    int failed = 0;
    for (size_t n = 1; at < end && !failed; n++) {
        struct arena arena = ARENA_INIT;
        struct error cause;
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((newline ? newline : end) - at);
        const struct json *value = json_parse(&arena, at, len, &cause);
        failed = !value ? -1
                 : value->type == JSON_STRING
                     ? text_encode(t, value->text, value->text_len, out, &cause)
                     : line_decode(t, value, out, &cause);
        if (failed)
            error_set(err, cause.code, "line %zu: %s", n, cause.message);
        at += len + (newline != NULL);
        arena_free(&arena);
    }
    return failed;
}

static int input_run(const struct tokenizer *t, const struct strbuf *in, struct strbuf *out,
                     struct error *err)
{
    if (lines)
        return lines_run(t, in, out, err);
    if (!decode)
        return text_encode(t, strbuf_str(in), in->len, out, err);
    struct arena arena = ARENA_INIT;
    const struct json *ids = json_parse(&arena, strbuf_str(in), in->len, err);
    int failed = ids ? ids_decode(t, ids, out, err) : -1;
    arena_free(&arena);
    return failed;
}

static int tokenize_run(const struct command *command, int argc, char **argv)
{
    struct option_set set;
    struct strbuf in = STRBUF_INIT, out = STRBUF_INIT;
    struct tokenizer *tokenizer = NULL;
    struct error err;
    int status;
    if (!runtime_parse(command, &set, argc, argv, &status))
        return status;
    int failed = runtime_open_tokenizer(&tokenizer, NULL, &err) || input_read(&in, &err) ||
                 input_run(tokenizer, &in, &out, &err);
    if (!failed)
        fwrite(strbuf_str(&out), 1, out.len, stdout);
    tokenizer_close(tokenizer);
    strbuf_free(&in);
    strbuf_free(&out);
    return failed ? command_fail(command, &err, EXIT_FAILED) : EXIT_OK;
}

const struct command command_tokenize = {
    .name = "tokenize",
    .summary = "turn text into token ids, or ids into text",
    .usage = "-m PATH [OPTIONS] < TEXT",
    .example = "echo -n \"Hello\" | radish tokenize -m model.gguf",
    .operand_hint =
        "the text is read from standard input: echo -n \"TEXT\" | radish tokenize -m PATH",
    .tables = {runtime_model_options, tokenize_options},
    .run = tokenize_run,
};
