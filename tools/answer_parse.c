/* Parses answers as the server does, for comparison with other parsers of tool calls.
 *
 *   build/answer_parse < ANSWERS.jsonl
 *
 * A line of input is {"style": "hermes", "tools": [...], "deltas": ["...", ...]}. "tools" is in
 * OpenAI's form; "template", the text of a chat template, may stand in the place of "style";
 * "think": ["<think>", "</think>"] adds marks of thinking, and "thinks": true says that the prompt
 * ended with the first of them.
 *
 * A line of output is {"steps": [[["content", "..."], ...], ...]}: the pieces that each delta gave,
 * then those that the answer's end gave. Pieces are "reasoning", "content", "id", "call" (its
 * name), "arguments", "end" and "broken". */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/strbuf.h"
#include "prompt/answer/answer_parser.h"

static void fail(const char *what)
{
    fprintf(stderr, "answer_parse: %s\n", what);
    exit(1);
}

static void piece_write(void *context, enum answer_piece piece, const char *text, size_t len)
{
    static const char *const names[] = {
        [PIECE_REASONING] = "reasoning", [PIECE_CONTENT] = "content",
        [PIECE_CALL_BEGIN] = "call",     [PIECE_CALL_ARGUMENTS] = "arguments",
        [PIECE_CALL_END] = "end",        [PIECE_CALL_BROKEN] = "broken",
        [PIECE_CALL_ID] = "id",
    };
    struct strbuf *out = context;
    strbuf_addf(out, "%s[\"%s\", ", out->data[out->len - 1] == '[' ? "" : ", ", names[piece]);
    json_write_string(out, text, len);
    strbuf_addc(out, ']');
}

static void style_find(struct answer_style *style, const struct json *line)
{
    const struct json *name = json_get(line, "style"), *source = json_get(line, "template");
    const struct json *think = json_get(line, "think");
    *style = (struct answer_style){0};
    if (json_is(source, JSON_STRING))
        answer_style_find(style, source->text, source->text_len, NULL);
    else if (!json_is(name, JSON_STRING) || !tool_format_find(name->text, &style->tools))
        fail("a line has no known style and no template");
    if (json_is(think, JSON_ARRAY) && think->count == 2) {
        style->think_begin = think->first->text;
        style->think_end = think->first->next->text;
    }
}

static void line_run(const struct json *line, struct strbuf *out)
{
    const struct json *tools = json_get(line, "tools"), *deltas = json_get(line, "deltas");
    const struct json *thinks = json_get(line, "thinks");
    struct answer_style style;
    if (!json_is(deltas, JSON_ARRAY))
        fail("a line has no deltas");
    style_find(&style, line);
    struct tool_set *set = json_is(tools, JSON_ARRAY) ? tool_set_new(tools) : NULL;
    struct answer_parser *p = answer_parser_new(&(struct answer_parser_options){
        .style = &style,
        .tools = set,
        .starts_in_thinking = json_is(thinks, JSON_BOOL) && thinks->boolean,
        .piece = piece_write,
        .context = out,
    });
    if (!p)
        fail("no memory");
    strbuf_adds(out, "{\"steps\": [[");
    json_each (delta, deltas) {
        if (delta->type != JSON_STRING)
            fail("a delta is not a string");
        answer_parser_add(p, delta->text, delta->text_len);
        strbuf_adds(out, "], [");
    }
    answer_parser_end(p);
    strbuf_adds(out, "]]}\n");
    if (answer_parser_failed(p) || out->failed)
        fail("no memory");
    answer_parser_free(p);
    tool_set_free(set);
}

int main(void)
{
    char *text = NULL;
    size_t capacity = 0;
    ssize_t len;
    while ((len = getline(&text, &capacity, stdin)) > 0) {
        struct arena arena = ARENA_INIT;
        struct strbuf out = STRBUF_INIT;
        struct error err;
        const struct json *line = json_parse(&arena, text, (size_t)len, &err);
        if (!line)
            fail(err.message);
        line_run(line, &out);
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
        strbuf_free(&out);
        arena_free(&arena);
    }
    free(text);
    return 0;
}
