/* Fuzzes the answer parser: three bytes choose the format, whether there are functions, whether the
 * answer starts inside its thinking, and where it is split; the rest is the answer. The output must
 * be the same as for the answer in one piece, calls must be in order with objects as arguments, and
 * an answer without calls and thinking must come out unchanged. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "prompt/answer/answer_parser.h"
#include "prompt/answer/json_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"a\": {\"type\": \"string\"}, \"b\": {\"type\": \"integer\"},"
    "\"c\": {\"type\": [\"array\", \"null\"]}}}}},"
    "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}]";

/* Pieces as text: a letter wherever the kind changes, then the bytes. */
struct record {
    struct strbuf text, content, arguments;
    int last;
    bool open, plain;
};

static const struct tool_set *tools(void)
{
    static struct tool_set *set;
    struct arena arena = ARENA_INIT;
    struct error err;
    if (!set)
        set = tool_set_new(json_parse(&arena, tools_text, sizeof tools_text - 1, &err));
    arena_free(&arena);
    return set;
}

static void add_piece(void *context, enum answer_piece piece, const char *text, size_t len)
{
    struct record *r = context;
    bool of_call = piece == PIECE_CALL_ARGUMENTS || piece == PIECE_CALL_END ||
                   piece == PIECE_CALL_BROKEN;
    if (of_call != r->open)
        abort();
    if ((int)piece != r->last || piece == PIECE_CALL_END)
        strbuf_addc(&r->text, "RCBAEXI"[piece]);
    strbuf_add(&r->text, text, len);
    if (piece == PIECE_CONTENT)
        strbuf_add(&r->content, text, len);
    else
        r->plain = false;
    if (piece == PIECE_CALL_BEGIN)
        strbuf_clear(&r->arguments);
    if (piece == PIECE_CALL_ARGUMENTS)
        strbuf_add(&r->arguments, text, len);
    if (piece == PIECE_CALL_END &&
        !json_scan_is_object(strbuf_str(&r->arguments), r->arguments.len))
        abort();
    r->last = (int)piece;
    r->open = piece == PIECE_CALL_BEGIN || piece == PIECE_CALL_ARGUMENTS;
}

/* `cut` 0: the answer comes in one piece. */
static void parse(struct record *r, struct answer_parser_options o, const char *text, size_t len,
                  unsigned cut)
{
    *r = (struct record){.last = -1, .plain = true};
    o.piece = add_piece;
    o.context = r;
    struct answer_parser *p = answer_parser_new(&o);
    if (!p)
        abort();
    unsigned random = cut;
    for (size_t at = 0; at < len;) {
        random = random * 1103515245 + 12345;
        size_t n = cut ? 1 + (random >> 16) % (cut % 17 + 1) : len;
        n = n < len - at ? n : len - at;
        answer_parser_add(p, text + at, n);
        at += n;
    }
    answer_parser_end(p);
    if (answer_parser_failed(p) || r->open)
        abort();
    answer_parser_free(p);
}

static bool same(const struct strbuf *a, const char *text, size_t len)
{
    return a->len == len && memcmp(strbuf_str(a), text, len) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len < 3)
        return 0;
    const struct answer_style style = {
        .tools = (enum tool_format)(bytes[0] % TOOL_FORMATS),
        .think_begin = bytes[1] & 1 ? "<think>" : NULL,
        .think_end = bytes[1] & 1 ? "</think>" : NULL,
    };
    const struct answer_parser_options o = {
        .style = &style,
        .tools = bytes[1] & 2 ? NULL : tools(),
        .starts_in_thinking = bytes[1] & 4,
    };
    const char *text = (const char *)bytes + 3;
    struct record whole, parts;
    parse(&whole, o, text, len - 3, 0);
    parse(&parts, o, text, len - 3, bytes[2] + 1u);
    if (!same(&whole.text, strbuf_str(&parts.text), parts.text.len))
        abort();
    if (whole.plain && !style.think_begin && style.tools != TOOLS_HARMONY &&
        style.tools != TOOLS_KIMI3 && style.tools != TOOLS_FUNCTIONARY &&
        !same(&whole.content, text, len - 3))
        abort();
    struct record *records[] = {&whole, &parts};
    for (int i = 0; i < 2; i++) {
        strbuf_free(&records[i]->text);
        strbuf_free(&records[i]->content);
        strbuf_free(&records[i]->arguments);
    }
    return 0;
}
