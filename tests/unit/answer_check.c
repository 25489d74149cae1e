/* Answers parsed whole, byte by byte and in random parts, and what must hold for any of them. */
#include "answer_check.h"

#include <stdlib.h>

#include "prompt/answer/json_scan.h"
#include "test.h"

const struct tool_set *answer_tools(void)
{
    static const char text[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\":"
        "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"},"
        "\"days\": {\"type\": \"integer\"}, \"metric\": {\"type\": \"boolean\"},"
        "\"tags\": {\"type\": \"array\"}, \"where\": {\"type\": \"object\"},"
        "\"note\": {\"type\": [\"string\", \"null\"]},"
        "\"level\": {\"anyOf\": [{\"type\": \"number\"}, {\"type\": \"string\"}]},"
        "\"kind\": {\"enum\": [\"1\", \"2\"]}}}}},"
        "{\"type\": \"function\", \"function\": {\"name\": \"search\", \"parameters\":"
        "{\"type\": \"object\", \"properties\": {\"query\": {\"type\": \"string\"}}}}},"
        "{\"type\": \"function\", \"function\": {\"name\": \"ping\"}}]";
    static struct tool_set *set;
    struct arena arena = ARENA_INIT;
    struct error err;
    if (!set)
        set = tool_set_new(json_parse(&arena, text, sizeof text - 1, &err));
    arena_free(&arena);
    return set;
}

void transcript_free(struct transcript *t)
{
    strbuf_free(&t->text);
    strbuf_free(&t->arguments);
    strbuf_free(&t->content);
    *t = (struct transcript){.last = -1};
}

void transcript_add(void *context, enum answer_piece piece, const char *text, size_t len)
{
    struct transcript *t = context;
    bool of_call = piece == PIECE_CALL_ARGUMENTS || piece == PIECE_CALL_END ||
                   piece == PIECE_CALL_BROKEN;
    t->n_pieces++;
    t->n_reasoning += piece == PIECE_REASONING;
    t->n_broken += piece == PIECE_CALL_BROKEN;
    t->out_of_order |= of_call != t->open;
    if (piece == PIECE_CALL_BEGIN)
        strbuf_clear(&t->arguments);
    if (piece == PIECE_CALL_ARGUMENTS)
        strbuf_add(&t->arguments, text, len);
    if (piece == PIECE_CONTENT)
        strbuf_add(&t->content, text, len);
    if (piece == PIECE_CALL_END) {
        t->n_calls++;
        t->not_json |= !json_scan_is_object(strbuf_str(&t->arguments), t->arguments.len);
        strbuf_adds(&t->text, "E");
    } else if ((int)piece == t->last) {
        t->text.data[--t->text.len] = '\0'; /* the bracket */
        strbuf_add(&t->text, text, len);
        strbuf_adds(&t->text, "]");
    } else {
        strbuf_addf(&t->text, "%c[", "RCBAEXI"[piece]);
        strbuf_add(&t->text, text, len);
        strbuf_adds(&t->text, "]");
    }
    t->last = (int)piece;
    t->open = piece == PIECE_CALL_BEGIN || piece == PIECE_CALL_ARGUMENTS;
}

uint32_t answer_random(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

void transcript_make(struct transcript *t, const struct answer_parser_options *o, const char *text,
                     size_t len, int cuts, uint64_t *seed)
{
    struct answer_parser_options options = *o;
    transcript_free(t);
    options.piece = transcript_add;
    options.context = t;
    struct answer_parser *p = answer_parser_new(&options);
    CHECK(p);
    for (size_t at = 0; at < len;) {
        size_t n = cuts == CUT_NOT     ? len
                   : cuts == CUT_BYTES ? 1
                                       : 1 + answer_random(seed, 1 + answer_random(seed, 24));
        if (n > len - at)
            n = len - at;
        char *part = malloc(n); /* so that reading past a part is seen */
        memcpy(part, text + at, n);
        answer_parser_add(p, part, n);
        free(part);
        at += n;
    }
    answer_parser_end(p);
    CHECK(!answer_parser_failed(p));
    answer_parser_free(p);
}

static void check_sound(const struct answer_parser_options *o, const struct transcript *t,
                        const char *text, size_t len)
{
    if (t->out_of_order || t->open || t->not_json)
        test_fail(__FILE__, __LINE__, "unsound: %.*s gives %s", (int)len, text,
                  strbuf_str(&t->text));
    enum tool_format format = o->style->tools;
    bool plain = !t->n_calls && !t->n_broken && !t->n_reasoning && !o->starts_in_thinking &&
                 format != TOOLS_HARMONY && format != TOOLS_KIMI3 && format != TOOLS_FUNCTIONARY;
    if (plain && !o->style->think_begin &&
        (t->content.len != len || memcmp(strbuf_str(&t->content), text, len) != 0))
        test_fail(__FILE__, __LINE__, "lost: %.*s gives %s", (int)len, text, strbuf_str(&t->text));
}

static void check_same(const struct transcript *a, const struct transcript *b, const char *text,
                       size_t len)
{
    if (a->text.len != b->text.len ||
        memcmp(strbuf_str(&a->text), strbuf_str(&b->text), a->text.len) != 0)
        test_fail(__FILE__, __LINE__, "cuts matter: %.*s gives\n  %s or\n  %s", (int)len, text,
                  strbuf_str(&a->text), strbuf_str(&b->text));
}

void answer_check_cuts(const struct answer_parser_options *o, const char *text, size_t len,
                       int n_random, uint64_t *seed)
{
    struct transcript whole = {.last = -1}, parts = {.last = -1};
    transcript_make(&whole, o, text, len, CUT_NOT, seed);
    check_sound(o, &whole, text, len);
    transcript_make(&parts, o, text, len, CUT_BYTES, seed);
    check_same(&whole, &parts, text, len);
    for (int i = 0; i < n_random; i++) {
        transcript_make(&parts, o, text, len, CUT_RANDOM, seed);
        check_same(&whole, &parts, text, len);
    }
    transcript_free(&whole);
    transcript_free(&parts);
}
