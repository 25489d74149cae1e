/* The grammar of calls: it accepts calls in each format, everything it allows is read back as a
 * call, and nothing else is accepted. */
#include "prompt/answer/tool_grammar.h"

#include <stdlib.h>

#include "answer_check.h"
#include "prompt/answer/call_form.h"
#include "prompt/conversation.h"
#include "test.h"
#include "test_memory.h"
#include "test_tokenizer_model.h"

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": "
    "{\"type\": \"object\", \"properties\": {"
    "\"city\": {\"type\": \"string\", \"description\": \"where\"}, "
    "\"days\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 14}, "
    "\"unit\": {\"type\": \"string\", \"enum\": [\"celsius\", \"kelvin\"]}, "
    "\"metric\": {\"type\": \"boolean\"}, "
    "\"tags\": {\"type\": \"array\", \"items\": {\"type\": \"string\"}}, "
    "\"where\": {\"type\": \"object\", \"properties\": {\"lat\": {\"type\": \"number\"}, "
    "\"sea\": {\"type\": \"boolean\"}}, \"required\": [\"lat\"], \"additionalProperties\": false}, "
    "\"note\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}}, "
    "\"required\": [\"city\"], \"additionalProperties\": false}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"ping\"}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"ping_all\", \"parameters\": "
    "{\"type\": \"object\", \"properties\": {}, \"additionalProperties\": false}}}]";

static struct tool_set *tool_set_of(const char *text)
{
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    struct json *json = json_parse(&arena, text, strlen(text), &err);
    if (!json)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    struct tool_set *set = tool_set_new(json);
    arena_free(&arena);
    return set;
}

/* A grammar of calls with everything needed to use it. Token ids are the bytes, then an end token,
 * then the special ones of `tokenizer`. */
struct world {
    struct tool_set *tools;
    struct grammar *grammar;
    struct grammar_vocabulary *vocabulary;
    struct grammar_matcher *matcher;
    struct grammar_token_info *tokens;
    struct error err;
};

enum { END_TOKEN = 256 };

static bool world_open(struct world *w, struct tool_grammar_options o, const char *tools)
{
    static char bytes[256];
    *w = (struct world){.tools = tool_set_of(tools)};
    o.tools = w->tools;
    uint32_t n = o.tokenizer ? tokenizer_size(o.tokenizer) : END_TOKEN + 1;
    w->tokens = calloc(n, sizeof *w->tokens);
    for (uint32_t i = 0; i < n; i++) {
        size_t len = 1;
        bytes[i & 255] = (char)i;
        w->tokens[i].bytes = i < 256       ? &bytes[i]
                             : o.tokenizer ? tokenizer_bytes(o.tokenizer, (int32_t)i, &len)
                                           : "<end>";
        w->tokens[i].len = i == END_TOKEN && !o.tokenizer ? 5 : (uint32_t)len;
        w->tokens[i].is_special = i >= 256;
        w->tokens[i].is_end = i == END_TOKEN;
    }
    bytes[0] = '\0';
    struct grammar_builder *b = grammar_builder_new();
    grammar_expr e = tool_grammar_add(b, &o, &w->err);
    if (e != GRAMMAR_NONE)
        w->grammar = grammar_compile(b, e, &w->err);
    grammar_builder_free(b);
    if (!w->grammar)
        return false;
    CHECK(grammar_vocabulary_open(&w->vocabulary, w->tokens, n, &w->err) == 0);
    CHECK(grammar_matcher_open(&w->matcher, w->grammar, w->vocabulary, &w->err) == 0);
    return true;
}

static void world_close(struct world *w)
{
    grammar_matcher_close(w->matcher);
    grammar_vocabulary_close(w->vocabulary);
    grammar_free(w->grammar);
    tool_set_free(w->tools);
    free(w->tokens);
}

static bool accepts(struct world *w, const char *text)
{
    grammar_matcher_reset(w->matcher);
    return grammar_matcher_accept_bytes(w->matcher, text, strlen(text)) &&
           grammar_matcher_may_end(w->matcher);
}

static struct answer_style style_of(enum tool_format format)
{
    return (struct answer_style){.tools = format};
}

/* The calls that the answer parser finds, as "name{arguments} name{arguments}"; "!..." is what it
 * makes of a text that is not all calls. */
static const char *parsed(const struct world *w, enum tool_format format, const char *text)
{
    static char result[1 << 13];
    struct answer_style style = style_of(format);
    struct transcript t = {.last = -1};
    uint64_t seed = 1;
    const struct answer_parser_options o = {.style = &style, .tools = w->tools};
    transcript_make(&t, &o, text, strlen(text), CUT_NOT, &seed);
    bool sound = t.n_calls && !t.n_broken && !t.content.len && !t.not_json && !t.n_reasoning;
    snprintf(result, sizeof result, "%s%s", sound ? "" : "!", strbuf_str(&t.text));
    for (char *id; (id = strstr(result, "I[functions."));) /* ids are not the grammar's matter */
        memmove(id, strchr(id, ']') + 1, strlen(strchr(id, ']')));
    transcript_free(&t);
    return result;
}

static const char *call_text(enum tool_format format, const char *name, const char *arguments)
{
    static char result[4096];
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    struct strbuf text = STRBUF_INIT;
    call_write(&text, format, name, strlen(name),
               json_parse(&arena, arguments, strlen(arguments), &err));
    snprintf(result, sizeof result, "%s", strbuf_str(&text));
    strbuf_free(&text);
    arena_free(&arena);
    return result;
}

/* ---- each format ---- */

TEST(tool_grammar, takes_what_is_written_and_it_reads_back)
{
    static const struct {
        const char *name, *arguments;
    } calls[] = {
        {"get_weather", "{\"city\": \"Hà Nội\"}"},
        {"get_weather", "{\"city\": \"a < b </p> \\\"q\\\"\", \"days\": 14}"},
        {"get_weather", "{\"city\": \"x\", \"days\": 3, \"unit\": \"kelvin\", \"metric\": false, "
                        "\"tags\": [], \"where\": {\"lat\": -1.5}, \"note\": null}"},
        {"get_weather", "{\"city\": \"\", \"tags\": [\"a\", \"b\"], \"where\": {\"lat\": 2.0, "
                        "\"sea\": true}}"},
        {"get_weather", "{\"city\": \"two\\nlines\", \"metric\": true}"},
        {"ping", "{}"},
        {"ping_all", "{}"},
    };
    for (int format = 0; format < TOOL_FORMATS; format++) {
        struct answer_style style = style_of(format);
        struct world w;
        struct tool_grammar_options o = {.style = &style};
        if (!world_open(&w, o, tools_text))
            test_fail(__FILE__, __LINE__, "%s: %s", tool_format_name(format), w.err.message);
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            const char *text = call_text(format, calls[i].name, calls[i].arguments);
            if (!accepts(&w, text))
                test_fail(__FILE__, __LINE__, "%s: not accepted: %s", tool_format_name(format),
                          text);
            char want[512];
            snprintf(want, sizeof want, "B[%s]A[%s]E", calls[i].name, calls[i].arguments);
            const char *got = parsed(&w, format, text);
            if (strcmp(got, want) != 0)
                test_fail(__FILE__, __LINE__, "%s: %s reads back as %s", tool_format_name(format),
                          text, got);
        }
        world_close(&w);
    }
}

TEST(tool_grammar, refuses_what_is_no_call)
{
    static const struct {
        const char *name, *arguments;
    } calls[] = {
        {"get_weathe", "{\"city\": \"x\"}"},                /* no such function */
        {"ping_al", "{}"},                                  /* between two names */
        {"get_weather", "{}"},                              /* a required one is missing */
        {"get_weather", "{\"days\": 3}"},                   /* the same */
        {"get_weather", "{\"city\": \"x\", \"days\": 15}"}, /* out of range */
        {"get_weather", "{\"city\": \"x\", \"days\": \"three\"}"},
        {"get_weather", "{\"city\": \"x\", \"unit\": \"rankine\"}"},
        {"get_weather", "{\"city\": \"x\", \"where\": {\"sea\": true}}"},
        {"get_weather", "{\"city\": \"x\", \"more\": 1}"}, /* a parameter it does not have */
        {"get_weather", "{\"days\": 3, \"city\": \"x\"}"}, /* out of order */
        {"ping", "{\"a\": 1}"},
    };
    for (int format = 0; format < TOOL_FORMATS; format++) {
        struct answer_style style = style_of(format);
        struct world w;
        struct tool_grammar_options o = {.style = &style, .parallel = true};
        CHECK(world_open(&w, o, tools_text));
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            const char *text = call_text(format, calls[i].name, calls[i].arguments);
            if (accepts(&w, text))
                test_fail(__FILE__, __LINE__, "%s accepts %s", tool_format_name(format), text);
        }
        CHECK(!accepts(&w, "") && !accepts(&w, "Hello") && !accepts(&w, "{}"));
        char text[512];
        snprintf(text, sizeof text, "%s ", call_text(format, "ping", "{}"));
        CHECK(!accepts(&w, text));
        world_close(&w);
    }
}

TEST(tool_grammar, trigger_begins_every_call)
{
    for (int format = 0; format < TOOL_FORMATS; format++) {
        struct answer_style style = style_of(format);
        const char *trigger = tool_grammar_trigger(&style, NULL);
        bool has_none = format == TOOLS_JSON || format == TOOLS_LLAMA3 ||
                        format == TOOLS_FUNCTIONARY;
        CHECK_INT(trigger == NULL, has_none);
        if (trigger)
            CHECK(strncmp(call_text(format, "ping", "{}"), trigger, strlen(trigger)) == 0);
    }
}

TEST(tool_grammar, one_function_only)
{
    struct answer_style style = style_of(TOOLS_HERMES);
    struct tool_set *tools = tool_set_of(tools_text);
    struct world w;
    struct tool_grammar_options o = {.style = &style, .only = tool_set_find(tools, "ping", 4)};
    CHECK(world_open(&w, o, tools_text));
    CHECK(accepts(&w, call_text(TOOLS_HERMES, "ping", "{}")));
    CHECK(!accepts(&w, call_text(TOOLS_HERMES, "ping_all", "{}")));
    CHECK(!accepts(&w, call_text(TOOLS_HERMES, "get_weather", "{\"city\": \"x\"}")));
    world_close(&w);
    tool_set_free(tools);
}

/* Two calls as the form writes them one after the other. */
static const char *two_calls(enum tool_format format)
{
    static char result[2048];
    const struct call_form *f = call_form_find(format, NULL);
    struct json none = {.type = JSON_OBJECT};
    struct strbuf text = STRBUF_INIT;
    call_form_write(&text, f, 0, "ping", 4, &none);
    call_form_write(&text, f, 1, "ping_all", 8, &none);
    strbuf_adds(&text, f->last);
    snprintf(result, sizeof result, "%s", strbuf_str(&text));
    strbuf_free(&text);
    return result;
}

TEST(tool_grammar, several_calls)
{
    for (int format = 0; format < TOOL_FORMATS; format++) {
        struct answer_style style = style_of(format);
        const bool can = call_form_find(format, NULL)->between;
        struct world w;
        struct tool_grammar_options o = {.style = &style, .parallel = true};
        CHECK(world_open(&w, o, tools_text));
        const char *text = two_calls(format);
        if (accepts(&w, text) != can)
            test_fail(__FILE__, __LINE__, "%s: %s", tool_format_name(format), text);
        if (can)
            CHECK_STR(parsed(&w, format, text), "B[ping]A[{}]EB[ping_all]A[{}]E");
        world_close(&w);
        o.parallel = false;
        CHECK(world_open(&w, o, tools_text));
        CHECK(!accepts(&w, text));
        world_close(&w);
    }
}

/* ---- the template's own form ---- */

static void strbuf_put(struct strbuf *s, const char *text)
{
    strbuf_clear(s);
    strbuf_adds(s, text);
}

TEST(tool_grammar, is_written_as_the_template_renders_it)
{
    struct answer_style style = style_of(TOOLS_HERMES);
    struct template_traits t = {
        .has_call_shape = true, .takes_calls = true, .takes_several_calls = true};
    struct tool_grammar_options o = {.style = &style, .traits = &t, .parallel = true};
    struct world w;
    strbuf_put(&t.first, "<tool_call>{\"name\":\"");
    strbuf_put(&t.middle, "\", \"arguments\": ");
    strbuf_put(&t.between, "}</tool_call><tool_call>{\"name\":\"");
    strbuf_put(&t.last, "}</tool_call>");
    CHECK(world_open(&w, o, tools_text));
    CHECK(accepts(&w, "<tool_call>{\"name\":\"ping\", \"arguments\": {}}</tool_call>"));
    CHECK(accepts(&w, "<tool_call>{\"name\":\"ping\", \"arguments\": {}}</tool_call><tool_call>"
                      "{\"name\":\"ping\", \"arguments\": {}}</tool_call>"));
    CHECK(!accepts(&w, call_text(TOOLS_HERMES, "ping", "{}")));
    world_close(&w);
    /* A template whose messages have one call each gets one. */
    t.takes_several_calls = false;
    CHECK(world_open(&w, o, tools_text));
    CHECK(accepts(&w, "<tool_call>{\"name\":\"ping\", \"arguments\": {}}</tool_call>"));
    CHECK(!accepts(&w, "<tool_call>{\"name\":\"ping\", \"arguments\": {}}</tool_call><tool_call>"
                       "{\"name\":\"ping\", \"arguments\": {}}</tool_call>"));
    world_close(&w);
    /* What the parser would not accept is not written. */
    strbuf_put(&t.last, ", \"id\": 7}</tool_call>");
    CHECK(world_open(&w, o, tools_text));
    CHECK(accepts(&w, call_text(TOOLS_HERMES, "ping", "{}")));
    world_close(&w);
    template_traits_free(&t);
}

/* Formats that are written in more than one way: what the template has before the name, and between
 * it and the arguments, decides. */
static const struct {
    enum tool_format format;
    const char *first, *middle, *text;
} forms[] = {
    {TOOLS_MISTRAL, "", "",
     "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": "
     "{\"city\": \"x\"}}]"},
    {TOOLS_MISTRAL, "[TOOL_CALLS]", "[ARGS]", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"x\"}"},
    {TOOLS_MISTRAL, "[TOOL_CALLS]", "[CALL_ID]zqid00001[ARGS]",
     "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"x\"}"},
    {TOOLS_DEEPSEEK, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"x\"}"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {TOOLS_DEEPSEEK, "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"",
     "\">\n<｜DSML｜parameter name=\"",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
     "name=\"city\" string=\"true\">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
     "</｜DSML｜function_calls>"},
    {TOOLS_DEEPSEEK, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"",
     "\">\n<｜DSML｜parameter name=\"",
     "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
     "name=\"city\" string=\"true\">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
     "</｜DSML｜tool_calls>"},
    {TOOLS_GLM, "<tool_call>", "<arg_key>",
     "<tool_call>get_weather<arg_key>city</arg_key><arg_value>x</arg_value></tool_call>"},
    {TOOLS_GLM, "<tool_call>", "\n<arg_key>",
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"},
    {TOOLS_HERMES, "<tool_calls>[{\"name\": \"", "\", \"arguments\": ",
     "<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"x\"}}]</tool_calls>"},
    {TOOLS_HERMES, "<tool_calls>\n{\"name\": \"", "\", \"arguments\": ",
     "<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"x\"}}\n</tool_calls>"},
    {TOOLS_HERMES, "<|action_start|><|plugin|>\n{\"name\": \"", "\", \"arguments\": ",
     "<|action_start|><|plugin|>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}"
     "<|action_end|>"},
    {TOOLS_HERMES, "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"",
     "\", \"parameters\": ",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", "
     "\"parameters\": {\"city\": \"x\"}}\n]<|END_ACTION|>"},
    {TOOLS_HERMES, "<TOOLCALL>[{\"name\": \"", "\", \"arguments\": ",
     "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}]</TOOLCALL>"},
    {TOOLS_HERMES, "<function_call> {\"name\": \"", "\", \"arguments\": ",
     "<function_call> {\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}"},
    {TOOLS_QWEN_CODER, "<seed:tool_call>\n<function=", ">\n<parameter=",
     "<seed:tool_call>\n<function=get_weather>\n<parameter=city>x</parameter>\n</function>\n"
     "</seed:tool_call>"},
    {TOOLS_LLAMA3, "[", "(", "[get_weather(city=\"x\")]"},
    {TOOLS_LLAMA3, "<function=", ">", "<function=get_weather>{\"city\": \"x\"}</function>"},
    {TOOLS_GEMMA_CODE, "[", "(", "[get_weather(city=\"x\")]"},
    {TOOLS_GEMMA_CODE, "<|tool_call_start|>[", "(",
     "<|tool_call_start|>[get_weather(city=\"x\")]<|tool_call_end|>"},
    {TOOLS_GEMMA, "<|tool_call>call:", "{",
     "<|tool_call>call:get_weather{city:<|\"|>x<|\"|>}<tool_call|>"},
};

static struct template_traits traits_of_form(size_t i)
{
    struct template_traits t = {.takes_calls = true, .takes_several_calls = true};
    strbuf_put(&t.first, forms[i].first);
    strbuf_put(&t.middle, forms[i].middle);
    return t;
}

TEST(tool_grammar, forms_of_a_format)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct answer_style style = style_of(forms[i].format);
        struct template_traits t = traits_of_form(i);
        struct tool_grammar_options o = {.style = &style, .traits = &t};
        struct world w;
        CHECK(world_open(&w, o, tools_text));
        if (!accepts(&w, forms[i].text))
            test_fail(__FILE__, __LINE__, "not accepted: %s", forms[i].text);
        CHECK_STR(parsed(&w, forms[i].format, forms[i].text),
                  "B[get_weather]A[{\"city\": \"x\"}]E");
        const char *trigger = tool_grammar_trigger(&style, &t);
        CHECK(!trigger || strncmp(forms[i].text, trigger, strlen(trigger)) == 0);
        world_close(&w);
        template_traits_free(&t);
    }
}

/* ---- control tokens ---- */

TEST(tool_grammar, control_tokens_are_matched_as_tokens)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tool_grammar.gguf", test_scratch_dir());
    struct vocab v = {.model = "gpt2", .pre = "gpt-2"};
    struct error err = {0};
    struct tokenizer *tokenizer;
    enum { EOS = 256, CHANNEL, CONSTRAIN, MESSAGE };
    vocab_bytes(&v);
    vocab_token(&v, "<eos>", 3);
    vocab_token(&v, "<|channel|>", 3);
    vocab_token(&v, "<|constrain|>", 3);
    vocab_token(&v, "<|message|>", 3);
    vocab_token(&v, "to=", 4); /* user-defined: text like any other */
    CHECK(vocab_open(&v, path, &tokenizer, &err) == 0);
    struct answer_style style = style_of(TOOLS_HARMONY);
    struct tool_grammar_options o = {.style = &style, .tokenizer = tokenizer};
    struct world w;
    CHECK(world_open(&w, o, tools_text));
    CHECK(!accepts(&w, call_text(TOOLS_HARMONY, "ping", "{}")));
    CHECK(!grammar_matcher_accept(w.matcher, '<'));
    CHECK(grammar_matcher_accept(w.matcher, CHANNEL));
    CHECK(grammar_matcher_accept_bytes(w.matcher, "commentary to=functions.ping ", 29));
    CHECK(!grammar_matcher_accept_bytes(w.matcher, "<|constrain|>", 13));
    CHECK(grammar_matcher_accept(w.matcher, CONSTRAIN));
    CHECK(grammar_matcher_accept_bytes(w.matcher, "json", 4));
    CHECK(!grammar_matcher_may_end(w.matcher));
    CHECK(grammar_matcher_accept(w.matcher, MESSAGE));
    CHECK(grammar_matcher_accept_bytes(w.matcher, "{}", 2));
    CHECK(grammar_matcher_must_end(w.matcher));
    world_close(&w);
    tokenizer_close(tokenizer);
}

/* A template that renders no calls: the vocabulary says which form the model knows. */
TEST(tool_grammar, the_vocabulary_completes_the_traits)
{
    static const struct {
        const char *token;
        enum tool_format format;
        const char *trigger, *text;
    } models[] = {
        {"<|tool_call_start|>", TOOLS_GEMMA_CODE, "<|tool_call_start|>",
         "<|tool_call_start|>[ping()]<|tool_call_end|>"},
        {"<|tool_call|>", TOOLS_HERMES, "<|tool_call|>",
         "<|tool_call|>[{\"name\": \"ping\", \"arguments\": {}}]"},
        {"[ARGS]", TOOLS_MISTRAL, "[TOOL_CALLS]", "[TOOL_CALLS]ping[ARGS]{}"},
        {"<|tool_call>", TOOLS_GEMMA, "<|tool_call>", "<|tool_call>call:ping{}<tool_call|>"},
        {"<seed:tool_call>", TOOLS_QWEN_CODER, "<seed:tool_call>",
         "<seed:tool_call>\n<function=ping>\n</function>\n</seed:tool_call>"},
        {"<other>", TOOLS_GEMMA_CODE, "```tool_code", "```tool_code\nping()\n```"},
    };
    char path[512];
    snprintf(path, sizeof path, "%s/tool_grammar.gguf", test_scratch_dir());
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct vocab v = {.model = "gpt2", .pre = "gpt-2"};
        struct error err = {0};
        struct tokenizer *tokenizer;
        vocab_bytes(&v);
        vocab_token(&v, models[i].token, 4);
        CHECK(vocab_open(&v, path, &tokenizer, &err) == 0);
        struct answer_style style = style_of(models[i].format);
        struct template_traits t = {0};
        CHECK(template_traits_complete(&t, &style, tokenizer, &err) == 0);
        CHECK_STR(tool_grammar_trigger(&style, &t), models[i].trigger);
        struct tool_grammar_options o = {.style = &style, .traits = &t};
        struct world w;
        CHECK(world_open(&w, o, tools_text));
        CHECK(accepts(&w, models[i].text));
        CHECK_STR(parsed(&w, models[i].format, models[i].text), "B[ping]A[{}]E");
        world_close(&w);
        template_traits_free(&t);
        tokenizer_close(tokenizer);
    }
}

/* ---- schemas ---- */

static const char *strictness(enum tool_format format, bool strict, const char *parameters,
                              const char *text)
{
    static char result[512];
    char tools[1024];
    struct answer_style style = style_of(format);
    struct tool_grammar_options o = {.style = &style};
    struct world w;
    snprintf(tools, sizeof tools,
             "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"strict\": %s, "
             "\"parameters\": %s}}]",
             strict ? "true" : "false", parameters);
    bool open = world_open(&w, o, tools);
    snprintf(result, sizeof result, "%s",
             open ? accepts(&w, text) ? "accepted" : "refused" : w.err.message);
    if (!open)
        CHECK_INT(w.err.code, ERROR_INPUT);
    world_close(&w);
    return result;
}

TEST(tool_grammar, schemas_that_cannot_be_held_to)
{
    static const char odd[] = "{\"type\": \"object\", \"not\": {\"format\": \"date\"}}";
    static const char call[] = "{\"name\": \"f\", \"arguments\": {\"any\": [1, null]}}";
    CHECK_STR(strictness(TOOLS_JSON, false, odd, call), "accepted");
    CHECK(strstr(strictness(TOOLS_JSON, true, odd, call), "not"));
    /* Without a type, arguments are still an object. */
    CHECK_STR(strictness(TOOLS_JSON, false, "{}", call), "accepted");
    CHECK_STR(strictness(TOOLS_JSON, true, "{}", "{\"name\": \"f\", \"arguments\": 5}"), "refused");
    CHECK_STR(strictness(TOOLS_JSON, false, "{\"type\": \"array\"}", call), "accepted");
    CHECK(strstr(strictness(TOOLS_JSON, true, "{\"type\": \"array\"}", call), "'type'"));

    static const char pattern[] = "{\"type\": \"object\", \"properties\": {\"a\": "
                                  "{\"type\": \"string\", \"pattern\": \"^[0-9]+$\"}}}";
    static const char tagged[] = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n"
                                 "</function>\n</tool_call>";
    CHECK_STR(strictness(TOOLS_QWEN_CODER, false, pattern, tagged), "accepted");
    CHECK(strstr(strictness(TOOLS_QWEN_CODER, true, pattern, tagged), "'pattern'"));
    CHECK(strstr(strictness(TOOLS_GEMMA, true, pattern, tagged), "'pattern'"));
    CHECK_STR(strictness(TOOLS_GEMMA_CODE, true, pattern, "```tool_code\nf(a=\"12\")\n```"),
              "accepted");
    CHECK_STR(strictness(TOOLS_GEMMA_CODE, true, pattern, "```tool_code\nf(a=\"x\")\n```"),
              "refused");
}

TEST(tool_grammar, nested_values_outside_json)
{
    static const char schema[] =
        "{\"type\": \"object\", \"properties\": {\"p\": {\"$ref\": \"#/$defs/point\"}, "
        "\"l\": {\"type\": \"array\", \"items\": {\"anyOf\": [{\"type\": \"integer\"}, "
        "{\"type\": \"null\"}]}, \"minItems\": 1, \"maxItems\": 2}, \"c\": {\"const\": true}}, "
        "\"$defs\": {\"point\": {\"type\": \"object\", \"properties\": {\"x\": {\"type\": "
        "\"number\"}, \"y\": {\"type\": \"number\"}, \"next\": {\"$ref\": \"#/$defs/point\"}}, "
        "\"required\": [\"y\"]}}}";
#define PYTHON(arguments) "```tool_code\nf(" arguments ")\n```"
#define GEMMA(arguments)  "<start_function_call>call:f{" arguments "}<end_function_call>"
    static const struct {
        const char *python, *gemma, *want;
    } cases[] = {
        {PYTHON(""), GEMMA(""), "accepted"},
        {PYTHON("p={\"x\": 1, \"y\": 2.5}"), GEMMA("p:{x:1,y:2.5}"), "accepted"},
        {PYTHON("p={\"y\": 2}, c=True"), GEMMA("p:{y:2},c:true"), "accepted"},
        {PYTHON("p={\"y\": 2, \"next\": {\"y\": 3}}"), GEMMA("p:{y:2,next:{y:3}}"), "accepted"},
        {PYTHON("l=[1, None], c=True"), GEMMA("l:[1,null],c:true"), "accepted"},
        {PYTHON("p={\"x\": 1}"), GEMMA("p:{x:1}"), "refused"},
        {PYTHON("l=[]"), GEMMA("l:[]"), "refused"},
        {PYTHON("l=[1, 2, 3]"), GEMMA("l:[1,2,3]"), "refused"},
        {PYTHON("c=False"), GEMMA("c:false"), "refused"},
        {PYTHON("c=True, l=[1]"), GEMMA("c:true,l:[1]"), "refused"},
        {PYTHON(", c=True"), GEMMA(",c:true"), "refused"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STR(strictness(TOOLS_GEMMA_CODE, true, schema, cases[i].python), cases[i].want);
        CHECK_STR(strictness(TOOLS_GEMMA, true, schema, cases[i].gemma), cases[i].want);
    }
}

/* Schemas that are nonsense, or refer to themselves in many places, end quickly, one way or the
 * other. */
TEST(tool_grammar, hostile_schemas)
{
    static const char *const schemas[] = {
        "{\"properties\": 5, \"required\": {}}",
        "{\"type\": \"object\", \"properties\": {\"a\": true, \"b\": false, \"c\": [1], \"d\": "
        "null}, \"required\": [1, null, \"zz\"]}",
        "{\"type\": [\"object\", 7], \"properties\": {\"a\": {\"enum\": []}}}",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"enum\": [1, \"x\", null, [2], {\"k\": "
        "1}]}}}",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#/nowhere\"}, \"b\": "
        "{\"$ref\": 5}, \"c\": {\"type\": \"array\", \"items\": 5, \"minItems\": -1, "
        "\"maxItems\": 0}}}",
        "{\"type\": \"object\", \"properties\": {\"\": {\"type\": \"string\"}, \"<a>\": "
        "{\"anyOf\": "
        "[]}, \"b\": {\"anyOf\": 5}, \"c\": {\"type\": \"what\"}}}",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#\"}, \"b\": {\"$ref\": "
        "\"#\"}, \"c\": {\"$ref\": \"#\"}, \"d\": {\"$ref\": \"#\"}, \"e\": {\"type\": "
        "\"array\", \"items\": {\"$ref\": \"#\"}}}}",
        "{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#/properties/a\"}}}",
    };
    for (int format = 0; format < TOOL_FORMATS; format++)
        for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
            for (int strict = 0; strict < 2; strict++) {
                char tools[1024];
                struct answer_style style = style_of(format);
                struct tool_grammar_options o = {.style = &style, .parallel = true};
                struct world w;
                snprintf(tools, sizeof tools,
                         "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"strict\": "
                         "%s, \"parameters\": %s}}]",
                         strict ? "true" : "false", schemas[i]);
                if (!world_open(&w, o, tools))
                    CHECK(w.err.code == ERROR_INPUT && *w.err.message);
                world_close(&w);
            }
}

TEST(tool_grammar, memory_runs_out)
{
    struct tool_set *tools = tool_set_of(tools_text);
    int n_failed = 0;
    for (int format = 0; format < TOOL_FORMATS; format++)
        for (uint32_t n = 0; n < 60; n++) {
            struct answer_style style = style_of(format);
            struct tool_grammar_options o = {.style = &style, .tools = tools, .parallel = true};
            struct error err = {0};
            memory_ends_after(n);
            struct grammar_builder *b = grammar_builder_new();
            grammar_expr e = b ? tool_grammar_add(b, &o, &err) : GRAMMAR_NONE;
            memory_is_back();
            if (b && e == GRAMMAR_NONE) {
                /* A builder that failed does not say why before it is compiled. */
                CHECK(err.code == ERROR_MEMORY || err.code == ERROR_LIMIT);
                n_failed++;
            }
            if (b)
                grammar_builder_free(b);
        }
    CHECK(n_failed > 0);
    tool_set_free(tools);
}

/* ---- raw text ---- */

static const char one_string[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"a\": {\"type\": \"string\"}}, \"required\": [\"a\"]}}}]";

/* Random texts out of pieces of the tags: the grammar takes one exactly if nothing in it would end
 * the string. */
TEST(tool_grammar, raw_text_has_no_end_in_it)
{
    static const struct {
        enum tool_format format;
        const char *before, *after;
        const char *ends[4];
    } cases[] = {
        {TOOLS_QWEN_CODER,
         "<tool_call>\n<function=f>\n<parameter=a>\n",
         "\n</parameter>\n</function>\n</tool_call>",
         {"</parameter>", "<parameter=", "</function>"}},
        {TOOLS_GEMMA,
         "<start_function_call>call:f{a:<escape>",
         "<escape>}<end_function_call>",
         {"<escape>"}},
    };
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer_style style = style_of(cases[i].format);
        struct tool_grammar_options o = {.style = &style};
        struct world w;
        int n_ends = 0;
        CHECK(world_open(&w, o, one_string));
        for (int round = 0; round < 3000; round++) {
            char text[256] = "", whole[512];
            for (uint32_t n = answer_random(&seed, 6); n > 0; n--) {
                const char *end = cases[i].ends[answer_random(&seed, 3)];
                end = end ? end : cases[i].ends[0];
                size_t from = answer_random(&seed, 3) ? 0 : answer_random(&seed, 8);
                strncat(text, end + from, answer_random(&seed, 13));
            }
            bool has_end = false;
            for (size_t e = 0; e < 3 && cases[i].ends[e]; e++)
                has_end |= strstr(text, cases[i].ends[e]) != NULL;
            n_ends += has_end;
            snprintf(whole, sizeof whole, "%s%s%s", cases[i].before, text, cases[i].after);
            if (accepts(&w, whole) == has_end)
                test_fail(__FILE__, __LINE__, "%s%s", has_end ? "accepted: " : "refused: ", whole);
        }
        CHECK(n_ends > 100 && n_ends < 2900);
        world_close(&w);
    }
}

/* Marks that are not ASCII: no part of a character gets in. */
TEST(tool_grammar, raw_text_is_utf8)
{
    struct answer_style style = style_of(TOOLS_DEEPSEEK);
    struct template_traits t = {.takes_calls = true, .takes_several_calls = true};
    struct tool_grammar_options o = {.style = &style, .traits = &t};
    struct world w;
    char text[512];
    static const struct {
        const char *value;
        bool taken;
    } values[] = {{"x", true},
                  {"", true},
                  {"a</｜DSML｜paramete", true},
                  {"</｜DSML<｜</</｜DS", true},
                  {"</ï<｜é</｜é", true},
                  {"</\xef", false},
                  {"</\xef\xbd", false},
                  {"</\xef"
                   "a",
                   false},
                  {"\xff", false},
                  {"</｜DSML｜parameter>", false},
                  {"<｜DSML｜parameter name=\"", false}};
    strbuf_put(&t.first, "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"");
    strbuf_put(&t.middle, "\">\n<｜DSML｜parameter name=\"");
    CHECK(world_open(&w, o, one_string));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(text, sizeof text,
                 "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
                 "name=\"a\" string=\"true\">%s</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
                 "</｜DSML｜function_calls>",
                 values[i].value);
        if (accepts(&w, text) != values[i].taken)
            test_fail(__FILE__, __LINE__, "%s", text);
    }
    world_close(&w);
    template_traits_free(&t);
}

/* ---- what it lets through ---- */

static bool is_allowed(const uint64_t *mask, int32_t token)
{
    return mask[token / 64] >> (token % 64) & 1;
}

/* A random text that the masks allow; as tokens run out, the shortest way is taken. */
static void walk(struct world *w, uint64_t *seed, uint32_t n_tokens, struct strbuf *out)
{
    grammar_matcher_reset(w->matcher);
    strbuf_clear(out);
    for (; n_tokens > 0; n_tokens--) {
        const uint64_t *mask = grammar_matcher_mask(w->matcher, n_tokens);
        int32_t allowed[END_TOKEN + 1], n = 0;
        for (int32_t t = 0; t <= END_TOKEN; t++)
            if (is_allowed(mask, t))
                allowed[n++] = t;
        CHECK(n > 0);
        /* There are many plain letters: give other bytes a chance. */
        int32_t token = allowed[answer_random(seed, (uint32_t)n)];
        for (int tries = 0; tries < 3 && n > 90 && token > ' ' && token < 127; tries++)
            token = answer_random(seed, 2) ? (int32_t) "\"<\\}\n/,"[answer_random(seed, 7)]
                                           : allowed[answer_random(seed, (uint32_t)n)];
        if (!is_allowed(mask, token))
            token = allowed[answer_random(seed, (uint32_t)n)];
        if (token == END_TOKEN)
            return;
        CHECK(grammar_matcher_accept(w->matcher, token));
        strbuf_addc(out, (char)token);
    }
    CHECK(grammar_matcher_may_end(w->matcher));
}

/* Every call of get_weather has a city, which comes first. */
static bool has_cities(const char *transcript)
{
    static const char name[] = "B[get_weather]A[", city[] = "{\"city\": \"";
    for (const char *at = transcript; (at = strstr(at, name));) {
        at += strlen(name);
        if (strncmp(at, city, strlen(city)) != 0)
            return false;
    }
    return true;
}

static void check_walks(const struct answer_style *style, const struct template_traits *traits,
                        uint64_t *seed)
{
    struct tool_grammar_options o = {.style = style, .traits = traits, .parallel = true};
    struct strbuf text = STRBUF_INIT;
    struct world w;
    CHECK(world_open(&w, o, tools_text));
    for (int i = 0; i < 40; i++) {
        struct transcript t = {.last = -1};
        const struct answer_parser_options parser = {.style = style, .tools = w.tools};
        walk(&w, seed, 250 + answer_random(seed, 250), &text);
        transcript_make(&t, &parser, strbuf_str(&text), text.len, CUT_NOT, seed);
        if (!t.n_calls || t.n_broken || t.not_json || t.content.len ||
            !has_cities(strbuf_str(&t.text)))
            test_fail(__FILE__, __LINE__, "%s: %s\nis read as %s", tool_format_name(style->tools),
                      strbuf_str(&text), strbuf_str(&t.text));
        transcript_free(&t);
    }
    world_close(&w);
    strbuf_free(&text);
}

TEST(tool_grammar, random_answers_are_calls)
{
    uint64_t seed = 20250710;
    for (int format = 0; format < TOOL_FORMATS; format++) {
        struct answer_style style = style_of(format);
        check_walks(&style, NULL, &seed);
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct answer_style style = style_of(forms[i].format);
        struct template_traits t = traits_of_form(i);
        check_walks(&style, &t, &seed);
        template_traits_free(&t);
    }
}

/* ---- real templates ---- */

/* Whether the matcher accepts a part of the text that begins here. */
static bool takes_from(struct grammar_matcher *m, const char *text)
{
    grammar_matcher_reset(m);
    for (; *text && grammar_matcher_accept_bytes(m, text, 1); text++)
        if (grammar_matcher_may_end(m))
            return true;
    return false;
}

/* A call comes back from the client and is rendered: are these the bytes that the grammar had the
 * model write? */
static bool comes_back(const struct json *source)
{
    static const char messages[] =
        "[{\"role\": \"user\", \"content\": \"zquser\"}, {\"role\": \"assistant\", \"content\": "
        "null, \"tool_calls\": [{\"id\": \"abcdefghi\", \"type\": \"function\", \"function\": "
        "{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Hà \\\\\\\"N\\\\\\\"\\\", "
        "\\\"days\\\": 3}\"}}]}]";
    static const char variables[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    struct answer_style style;
    struct template_traits traits;
    struct fitted_conversation fitted;
    struct rendering out = RENDERING_INIT;
    const struct render_options options = {0};
    struct world w;
    struct json *context = json_parse(&arena, variables, strlen(variables), &err);
    struct chat_template *t = chat_template_parse(source->text, source->text_len, &err);
    answer_style_find(&style, source->text, source->text_len, NULL);
    CHECK(context && t && template_traits_find(&traits, t, context, &err) == 0);
    struct tool_grammar_options o = {.style = &style, .traits = &traits};
    CHECK(world_open(&w, o, tools_text));
    struct conversation in = {json_parse(&arena, messages, strlen(messages), &err), NULL};
    CHECK(in.messages && conversation_fit(&fitted, &in, &traits, &style, &arena, &err) == 0);
    json_append(&arena, context, "messages", fitted.messages);
    bool same = false;
    if (chat_template_render(t, context, &options, &out, &err) == 0) {
        const char *at = strstr(strbuf_str(&out.text), "zquser");
        for (; at && *at && !same; at++)
            same = takes_from(w.matcher, at);
    }
    world_close(&w);
    rendering_free(&out);
    template_traits_free(&traits);
    chat_template_free(t);
    arena_free(&arena);
    return same;
}

TEST(tool_grammar, calls_come_back_as_they_were_written)
{
    const char *path = test_shared_path("data/templates/generated_templates.jsonl");
    if (!path)
        SKIP("no shared templates");
    static const char *const must[] = {
        "Qwen-Qwen2.5-7B",  "Qwen-Qwen3-0.6B", "Qwen3-Coder",       "Llama-3.1-8B",
        "Llama-3.2-3B",     "Ministral-3-14B", "Hermes-2-Pro",      "DeepSeek-V3.1",
        "DeepSeek-V3.2",    "GLM-4.6",         "GLM-4.7",           "MiniMax-M2",
        "moonshotai-Kimi",  "gemma-4-31B",     "granite-granite-4", "command-r7b-12-2024",
        "Nemotron-Nano-v2", "Apriel-1.6",      "smollm2",           "functionary-medium-v3.2",
    };
    FILE *f = fopen(path, "r");
    CHECK(f);
    char *line = NULL;
    size_t capacity = 0;
    int n_same = 0, n_must = 0;
    for (ssize_t len; (len = getline(&line, &capacity, f)) > 0;) {
        struct arena arena = ARENA_INIT;
        struct error err = {0};
        struct json *item = json_parse(&arena, line, (size_t)len, &err);
        CHECK(item);
        const char *name = json_get(item, "name")->text;
        bool same = comes_back(json_get(item, "template"));
        n_same += same;
        for (size_t i = 0; i < sizeof must / sizeof *must; i++)
            if (strstr(name, must[i])) {
                n_must++;
                if (!same)
                    test_fail(__FILE__, __LINE__, "%s renders another call", name);
            }
        arena_free(&arena);
    }
    free(line);
    fclose(f);
    printf("tool_grammar: calls come back as they were written in %d of 228 templates\n", n_same);
    CHECK(n_must >= (int)(sizeof must / sizeof *must));
    CHECK(n_same >= 170);
}
