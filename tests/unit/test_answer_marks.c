/* The filter and the parser of an answer read the same marks: over random answers in every style,
 * cut into random tokens, both must agree on where thinking begins and ends and where a call
 * begins. The filter is observed through its masks, as the scheduler sees it. */
#include "answer_check.h"
#include "prompt/answer/answer_filter.h"
#include "prompt/answer/answer_internal.h"
#include "prompt/answer/call_form.h"
#include "prompt/answer/tool_grammar.h"
#include "prompt/token_table.h"
#include "prompt/tokenizer/tokenizer_internal.h"
#include "prompt/unicode/utf8_stream.h"
#include "test.h"

enum { MAX_VOCABULARY = 6000, END_TOKEN = 256, HIDDEN_TOKEN, FIRST_MARK, N_STREAMS = 60 };

static const char *const thoughts[][2] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<|channel>thought", "<channel|>"},
    {"\xe2\x97\x81think\xe2\x96\xb7", "\xe2\x97\x81/think\xe2\x96\xb7"},
    {NULL, NULL},
};

/* A style with its own vocabulary, and answers written in it. */
struct world {
    uint64_t seed;
    struct answer_style style;
    const struct call_form *form;
    struct strbuf call; /* a whole one, as the grammar has it */
    struct tokenizer *tokenizer;
    uint32_t n_tokens;
    struct grammar *grammar;
    struct grammar_vocabulary *vocabulary;
    struct token_list streams[N_STREAMS];
};

/* ---- the vocabulary: bytes, control tokens, and the pieces that answers are cut into ---- */

static int32_t token_add(struct world *w, const char *bytes, size_t len)
{
    struct tokenizer *t = w->tokenizer;
    for (uint32_t i = 0; i < w->n_tokens; i++)
        if (t->types[i] != TOKEN_CONTROL && t->tokens[i].len == len &&
            memcmp(t->tokens[i].bytes, bytes, len) == 0)
            return (int32_t)i;
    if (w->n_tokens == MAX_VOCABULARY)
        return -1;
    t->tokens[w->n_tokens] = tokenizer_keep(t, bytes, len);
    t->types[w->n_tokens] = TOKEN_NORMAL;
    return (int32_t)w->n_tokens++;
}

static void control_add(struct world *w, const char *text)
{
    struct tokenizer *t = w->tokenizer;
    struct error err;
    struct added_token token = {{text, strlen(text)}, (int32_t)w->n_tokens, ADDED_SPECIAL};
    for (uint32_t i = END_TOKEN; i < w->n_tokens; i++)
        if (t->tokens[i].len == token.text.len &&
            memcmp(t->tokens[i].bytes, text, token.text.len) == 0)
            return;
    t->tokens[w->n_tokens] = token.text;
    t->types[w->n_tokens++] = TOKEN_CONTROL;
    CHECK_INT(special_list_add(&t->added, token, &err), 0);
}

/* Marks are control tokens or not, at random. */
static void vocabulary_begin(struct world *w)
{
    struct error err;
    w->tokenizer = tokenizer_new(TOKENIZER_BYTES, MAX_VOCABULARY, &err);
    for (int i = 0; i < 256; i++) {
        w->tokenizer->tokens[i] = tokenizer_keep(w->tokenizer, (char[]){(char)i}, 1);
        w->tokenizer->types[i] = TOKEN_BYTE;
        w->tokenizer->byte_ids[i] = i;
    }
    w->n_tokens = END_TOKEN;
    control_add(w, "<|end_of_text|>");
    control_add(w, "<|hidden|>");
    uint32_t share = answer_random(&w->seed, 3);
    const char *const own[] = {w->style.think_begin, w->style.think_end};
    for (size_t i = 0; i < 2; i++)
        if (own[i] && w->style.tools != TOOLS_HARMONY && answer_random(&w->seed, 2) < share)
            control_add(w, own[i]);
    for (const struct call_marker *m = format_markers(w->style.tools); m->text; m++)
        if (strlen(m->text) > 3 && answer_random(&w->seed, 2) < share)
            control_add(w, m->text);
    special_list_ready(&w->tokenizer->added);
    special_list_ready(&w->tokenizer->normalized);
    w->tokenizer->eos = END_TOKEN;
    w->tokenizer->ends[END_TOKEN] = 1;
}

/* ---- answers ---- */

static const char *any_mark(struct world *w)
{
    const struct call_marker *marks = format_markers(w->style.tools);
    size_t n = 0;
    while (marks[n].text)
        n++;
    switch (answer_random(&w->seed, 4)) {
    case 0: return w->style.think_begin ? w->style.think_begin : "<think>";
    case 1: return w->style.think_end ? w->style.think_end : "</think>";
    case 2: return w->form->trigger ? w->form->trigger : "<tool_call>";
    default: return marks[answer_random(&w->seed, (uint32_t)n)].text;
    }
}

/* Adds something that may matter; \x7f stands for the control token that is not shown. */
static void item_add(struct world *w, struct strbuf *text)
{
    static const char *const words[] = {"a", "Hm.", " b", "<", "</", "[", "\n", "\n\n", " ", "\t"};
    static const char *const headers[] = {"analysis",
                                          "final",
                                          "commentary",
                                          "assistant",
                                          " to=user",
                                          " to=functions.ping",
                                          "<|start|>",
                                          "<|end|>",
                                          "<|call|>",
                                          "<|channel|>analysis<|message|>",
                                          "<|message|>",
                                          "<|channel|>",
                                          "<|start|>assistant<|channel|>analysis<|message|>",
                                          "<|channel|>final<|message|>",
                                          "<|constrain|>json"};
    const char *mark = any_mark(w);
    size_t len = strlen(mark), cut = answer_random(&w->seed, (uint32_t)len);
    switch (answer_random(&w->seed, 11)) {
    case 0: strbuf_add(text, mark, cut); break;
    case 1: strbuf_adds(text, mark + cut); break;
    case 2: strbuf_addc(text, '\0'); break;
    case 3: strbuf_adds(text, "\xe2\x97"); break;
    case 4: strbuf_adds(text, "\x7f"); break;
    case 5: /* no token reaches past the call: a grammar cannot take what follows it */
        strbuf_add(text, w->call.data, w->call.len);
        strbuf_adds(text, "\x7f");
        break;
    case 6:
    case 7:
        strbuf_adds(text, words[answer_random(&w->seed, sizeof words / sizeof words[0])]);
        break;
    case 8:
        if (w->style.tools == TOOLS_HARMONY)
            strbuf_adds(text, headers[answer_random(&w->seed, sizeof headers / sizeof headers[0])]);
        break;
    default: strbuf_adds(text, mark);
    }
}

static void stream_make(struct world *w, struct token_list *out)
{
    struct strbuf text = STRBUF_INIT;
    uint32_t n = 1 + answer_random(&w->seed, 9);
    while (n--)
        item_add(w, &text);
    for (size_t at = 0; at < text.len;) {
        size_t left = text.len - at;
        int32_t id = tokenizer_special_at(w->tokenizer, text.data + at, left);
        size_t len = id >= 0 ? w->tokenizer->tokens[id].len : 1;
        if (id < 0 && text.data[at] == '\x7f') {
            id = HIDDEN_TOKEN;
        } else if (id < 0) {
            while (len < left && text.data[at + len] != '\x7f' && answer_random(&w->seed, 4) &&
                   tokenizer_special_at(w->tokenizer, text.data + at + len, left - len) < 0)
                len++;
            id = token_add(w, text.data + at, len);
        }
        if (id < 0)
            break;
        CHECK(token_list_add(out, id));
        at += len;
    }
    strbuf_free(&text);
}

/* ---- a world ---- */

static void world_open(struct world *w, enum tool_format format, const char *const *thought,
                       uint64_t seed)
{
    struct error err = {0};
    struct arena arena = ARENA_INIT;
    *w = (struct world){.seed = seed, .style = {format, thought[0], thought[1]}};
    if (format == TOOLS_HARMONY)
        answer_style_find(&w->style, "<|channel|><|message|>", 22, NULL);
    w->form = call_form_find(format, NULL);
    struct json *arguments = json_parse(&arena, "{}", 2, &err);
    call_form_write(&w->call, w->form, 0, "ping", 4, arguments);
    strbuf_adds(&w->call, w->form->last);
    arena_free(&arena);
    vocabulary_begin(w);
    for (size_t i = 0; i < N_STREAMS; i++)
        stream_make(w, &w->streams[i]);
    w->tokenizer->n_tokens = w->n_tokens;
    CHECK_INT(token_vocabulary_open(&w->vocabulary, w->tokenizer, &err), 0);
    struct grammar_builder *b = grammar_builder_new();
    struct tool_grammar_options o = {
        .style = &w->style, .tools = answer_tools(), .tokenizer = w->tokenizer};
    grammar_expr e = tool_grammar_add(b, &o, &err);
    w->grammar = grammar_compile(b, e, &err);
    CHECK(w->grammar);
    grammar_builder_free(b);
}

static void world_close(struct world *w)
{
    for (size_t i = 0; i < N_STREAMS; i++)
        token_list_free(&w->streams[i]);
    grammar_free(w->grammar);
    grammar_vocabulary_close(w->vocabulary);
    tokenizer_close(w->tokenizer);
    strbuf_free(&w->call);
}

/* ---- one answer, read by both ---- */

/* What the answers of a test have come to. */
struct tally {
    size_t n_calls, n_thoughts;
};

struct reading {
    struct world *w;
    struct token_filter *filter;
    struct answer_parser *parser;
    struct utf8_stream utf8;
    struct strbuf seen;     /* what the parser was given */
    struct strbuf raw;      /* ... before it was made whole characters */
    bool called;            /* it has begun a call */
    bool called_by_trigger; /* ... with the mark that the filter waits for */
};

static void take_piece(void *context, enum answer_piece piece, const char *text, size_t len)
{
    struct reading *r = context;
    (void)text, (void)len;
    if (piece != PIECE_CALL_BEGIN || r->called)
        return;
    const char *trigger = r->w->form->trigger;
    const struct open_call *call = &r->parser->call;
    r->called = true;
    r->called_by_trigger = memmem(call_at(r->parser, call->start), call->marker_end - call->start,
                                  trigger, strlen(trigger)) != NULL;
}

static void show(struct reading *r, int32_t token)
{
    size_t len, before = r->seen.len;
    const char *bytes = tokenizer_bytes(r->w->tokenizer, token, &len);
    if (tokenizer_is_special(r->w->tokenizer, token) &&
        !answer_style_is_marker(&r->w->style, bytes, len))
        return;
    strbuf_add(&r->raw, bytes, len);
    utf8_stream_add(&r->utf8, bytes, len, &r->seen);
    answer_parser_add(r->parser, strbuf_str(&r->seen) + before, r->seen.len - before);
}

static bool mask_has(const uint64_t *mask, int32_t token)
{
    return mask[token / 64] >> (token % 64) & 1;
}

enum place { IN_THINKING, IN_TEXT, IN_CALL };

/* The hidden token is in no grammar; while thinking, anything is allowed. */
static enum place filter_place(struct reading *r)
{
    const uint64_t *mask = r->filter->ops->mask(r->filter, 1000);
    if (!mask)
        return IN_THINKING;
    return mask_has(mask, HIDDEN_TOKEN) ? IN_TEXT : IN_CALL;
}

/* Writes the rest of a call as the filter wants it. */
static bool call_complete(struct reading *r)
{
    const char *trigger = r->w->form->trigger;
    size_t at = r->raw.len;
    while (at && strncmp(strbuf_str(&r->raw) + --at, trigger, strlen(trigger)) != 0)
        continue;
    size_t begun = r->raw.len - at;
    if (begun > r->w->call.len || memcmp(r->w->call.data, r->raw.data + at, begun) != 0)
        return true; /* another call than ours: as good */
    struct token_list rest = {0};
    struct error err;
    CHECK_INT(tokenizer_encode(r->w->tokenizer, r->w->call.data + begun, r->w->call.len - begun,
                               TOKENIZE_PARSE_SPECIAL | TOKENIZE_CONTINUES, &rest, &err),
              0);
    bool fits = true;
    for (size_t i = 0; i < rest.len && fits; i++) {
        fits = mask_has(r->filter->ops->mask(r->filter, 1000), rest.ids[i]);
        r->filter->ops->accept(r->filter, rest.ids[i]);
        show(r, rest.ids[i]);
    }
    token_list_free(&rest);
    answer_parser_end(r->parser);
    return fits && r->called_by_trigger;
}

/* What the two disagree on; NULL: nothing. */
static const char *disagreement(struct reading *r, const struct token_list *stream, size_t *n_read,
                                struct tally *tally)
{
    for (*n_read = 0; *n_read < stream->len;) {
        int32_t token = stream->ids[(*n_read)++];
        r->filter->ops->accept(r->filter, token);
        show(r, token);
        enum place place = filter_place(r);
        bool thinks = answer_parser_is_thinking(r->parser);
        tally->n_calls += place == IN_CALL;
        tally->n_thoughts += place == IN_THINKING;
        if (place == IN_CALL)
            return call_complete(r) ? NULL : "the filter alone sees a call";
        if (thinks && place == IN_TEXT)
            return "the parser alone sees thinking";
        if (!thinks && place == IN_THINKING)
            return "the filter alone sees thinking";
    }
    answer_parser_end(r->parser);
    return r->called_by_trigger ? "the parser alone sees a call" : NULL;
}

static void stream_fail(const struct world *w, const struct token_list *stream, size_t n_read,
                        bool starts_in_thinking, const char *what)
{
    struct strbuf text = STRBUF_INIT;
    for (size_t i = 0; i < n_read; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(w->tokenizer, stream->ids[i], &len);
        strbuf_adds(&text, i ? " | " : "");
        for (size_t k = 0; k < len; k++)
            strbuf_addf(&text, (unsigned char)bytes[k] < ' ' ? "\\x%02x" : "%c",
                        (unsigned char)bytes[k]);
    }
    test_fail(__FILE__, __LINE__, "%s, %s%s: %s: %s", tool_format_name(w->style.tools),
              w->style.think_begin ? w->style.think_begin : "-",
              starts_in_thinking ? " is open" : "", what, strbuf_str(&text));
    strbuf_free(&text);
}

static void stream_check(struct world *w, const struct token_list *stream, const char *begun,
                         struct tally *tally)
{
    struct reading r = {.w = w};
    struct answer_filter *filter;
    struct error err;
    size_t n_read = 0;
    bool starts_in_thinking = answer_random(&w->seed, 4) == 0;
    struct answer_filter_options filter_options = {
        .style = &w->style,
        .tokenizer = w->tokenizer,
        .vocabulary = w->vocabulary,
        .grammar = w->grammar,
        .trigger = w->form->trigger,
        .forbidden = "\x01\x02\x03", /* never occurs, but gives text a mask */
        .begun = begun,
        .starts_in_thinking = starts_in_thinking,
        .thinking_tokens = -1};
    struct answer_parser_options parser_options = {.style = &w->style,
                                                   .tools = answer_tools(),
                                                   .starts_in_thinking = starts_in_thinking,
                                                   .piece = take_piece,
                                                   .context = &r};
    CHECK_INT(answer_filter_open(&filter, &filter_options, &err), 0);
    r.filter = answer_filter_base(filter);
    r.parser = answer_parser_new(&parser_options);
    const char *what = disagreement(&r, stream, &n_read, tally);
    if (what)
        stream_fail(w, stream, n_read, starts_in_thinking, what);
    answer_parser_free(r.parser);
    answer_filter_close(filter);
    strbuf_free(&r.seen);
    strbuf_free(&r.raw);
}

TEST(answer_marks, filter_and_parser_agree_on_random_answers)
{
    struct tally tally = {0};
    for (uint64_t seed = 1; seed <= 12; seed++)
        for (unsigned format = 0; format < TOOL_FORMATS; format++) {
            struct world w;
            const char *const *thought = thoughts[seed % (sizeof thoughts / sizeof thoughts[0])];
            if (!call_form_find((enum tool_format)format, NULL)->trigger)
                continue;
            world_open(&w, (enum tool_format)format, thought, seed * 1000 + format);
            for (size_t i = 0; i < N_STREAMS; i++)
                stream_check(&w, &w.streams[i], seed % 4 ? NULL : "Begun", &tally);
            world_close(&w);
        }
    CHECK(tally.n_calls > 500 && tally.n_thoughts > 2000);
}
