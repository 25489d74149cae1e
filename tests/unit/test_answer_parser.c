/* When output is released: nothing is held longer than necessary, nothing is slow, and lack of
 * memory is an error. The formats themselves are in test_answer_calls.c. */
#include "prompt/answer/answer_parser.h"

#include <stdlib.h>
#include <time.h>

#include "answer_check.h"
#include "prompt/answer/answer_internal.h"
#include "test.h"
#include "test_memory.h"

static const struct answer_style hermes = {
    .tools = TOOLS_HERMES, .think_begin = "<think>", .think_end = "</think>"};
static const struct answer_style qwen_coder = {.tools = TOOLS_QWEN_CODER};
static const struct answer_style llama3 = {.tools = TOOLS_LLAMA3};
static const struct answer_style harmony = {.tools = TOOLS_HARMONY};

/* Feeds parts and checks the output after each of them. */
static void check_stream(const struct answer_style *style, const struct tool_set *tools,
                         const char *const (*steps)[2])
{
    struct transcript t = {.last = -1};
    struct answer_parser *p = answer_parser_new(&(struct answer_parser_options){
        .style = style, .tools = tools, .piece = transcript_add, .context = &t});
    for (size_t i = 0; steps[i][0]; i++) {
        answer_parser_add(p, steps[i][0], strlen(steps[i][0]));
        CHECK_STR(strbuf_str(&t.text), steps[i][1]);
    }
    answer_parser_end(p);
    answer_parser_end(p); /* once more does nothing */
    CHECK(!t.open && !t.out_of_order);
    answer_parser_free(p);
    transcript_free(&t);
}

TEST(answer_parser, text_comes_at_once)
{
    static const char *const steps[][2] = {
        {"Hel", "C[Hel]"},
        {"lo wor", "C[Hello wor]"},
        {"ld \n ", "C[Hello world ]"}, /* a line feed belongs to a call, if one follows */
        {"a <", "C[Hello world \n a ]"},
        {"b", "C[Hello world \n a <b]"},
        {" <tool_c", "C[Hello world \n a <b ]"},
        {"an", "C[Hello world \n a <b <tool_can]"},
        {NULL, NULL},
    };
    check_stream(&hermes, answer_tools(), steps);
    static const char *const plain[][2] = {
        {"a ", "C[a ]"}, {"<tool_", "C[a <tool_]"}, {"call>", "C[a <tool_call>]"}, {NULL, NULL}};
    check_stream(&hermes, NULL, plain);
}

TEST(answer_parser, thinking_comes_at_once)
{
    static const char *const steps[][2] = {
        {"<thi", ""},
        {"nk>\n", ""},
        {"Hm. ", "R[Hm.]"},
        {"So</", "R[Hm. So]"},
        {"b", "R[Hm. So</b]"},
        {"\n</think>", "R[Hm. So</b]"},
        {"\n\nYes", "R[Hm. So</b]C[Yes]"},
        {NULL, NULL},
    };
    check_stream(&hermes, answer_tools(), steps);
}

TEST(answer_parser, arguments_come_at_once)
{
    static const char *const steps[][2] = {
        {"<tool_call>{\"name\": \"search\", \"arguments\": ", ""},
        {"{", "B[search]A[{]"},
        {"\"query\": \"a", "B[search]A[{\"query\": \"a]"},
        {" b\"", "B[search]A[{\"query\": \"a b\"]"},
        {"}", "B[search]A[{\"query\": \"a b\"}]"},
        {"}", "B[search]A[{\"query\": \"a b\"}]E"},
        {"</tool_call>x", "B[search]A[{\"query\": \"a b\"}]EC[x]"},
        {NULL, NULL},
    };
    check_stream(&hermes, answer_tools(), steps);
    static const char *const xml[][2] = {
        {"<function=get_weather>\n<parameter=city", ""},
        {">", "B[get_weather]A[{\"city\": \"]"},
        {"\nPa", "B[get_weather]A[{\"city\": \"Pa]"},
        {"ris\n", "B[get_weather]A[{\"city\": \"Paris]"},
        {"x\n</para", "B[get_weather]A[{\"city\": \"Paris\\nx]"},
        {"meter>", "B[get_weather]A[{\"city\": \"Paris\\nx\"]"},
        {"<parameter=days>1", "B[get_weather]A[{\"city\": \"Paris\\nx\", \"days\": ]"},
        {"2</parameter>", "B[get_weather]A[{\"city\": \"Paris\\nx\", \"days\": 12]"},
        {"</function>", "B[get_weather]A[{\"city\": \"Paris\\nx\", \"days\": 12}]E"},
        {NULL, NULL},
    };
    check_stream(&qwen_coder, answer_tools(), xml);
}

TEST(answer_parser, an_object_that_is_no_call_is_held_no_longer_than_its_first_key)
{
    static const char *const steps[][2] = {
        {"{\"", ""}, {"ag", ""}, {"e\"", "C[{\"age\"]"}, {": 3", "C[{\"age\": 3]"}, {NULL, NULL}};
    check_stream(&llama3, answer_tools(), steps);
}

TEST(answer_parser, says_whether_it_is_thinking)
{
    struct transcript t = {.last = -1};
    struct answer_parser_options o = {.style = &hermes,
                                      .tools = answer_tools(),
                                      .starts_in_thinking = true,
                                      .piece = transcript_add,
                                      .context = &t};
    struct answer_parser *p = answer_parser_new(&o);
    CHECK(answer_parser_is_thinking(p));
    answer_parser_add(p, "a</think", 8);
    CHECK(answer_parser_is_thinking(p));
    answer_parser_add(p, ">", 1);
    CHECK(!answer_parser_is_thinking(p));
    answer_parser_free(p);
    o.starts_in_thinking = false;
    p = answer_parser_new(&o);
    CHECK(!answer_parser_is_thinking(p));
    answer_parser_add(p, "<think>", 7);
    CHECK(answer_parser_is_thinking(p));
    answer_parser_free(p);
    o.style = &harmony;
    p = answer_parser_new(&o);
    CHECK(!answer_parser_is_thinking(p));
    answer_parser_add(p, "<|channel|>analysis<|message|>a", 31);
    CHECK(answer_parser_is_thinking(p));
    answer_parser_add(p, "<|end|>", 7);
    CHECK(!answer_parser_is_thinking(p));
    answer_parser_free(p);
    transcript_free(&t);
}

/* Without functions, or markers of thinking, all text is content. */
TEST(answer_parser, looks_for_nothing_that_is_not_there)
{
    static const char *const texts[] = {
        "<tool_call>{\"name\": \"ping\", \"arguments\": {}}</tool_call>", " \n<think>a</think> ",
        "[TOOL_CALLS]ping[ARGS]{}", "{\"name\": \"ping\", \"parameters\": {}}\n"};
    uint64_t seed = 3;
    for (unsigned format = 0; format < TOOL_FORMATS; format++)
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
            const struct answer_style style = {.tools = (enum tool_format)format};
            struct answer_parser_options o = {.style = &style};
            struct transcript t = {.last = -1};
            transcript_make(&t, &o, texts[i], strlen(texts[i]), CUT_BYTES, &seed);
            CHECK_STR(strbuf_str(&t.content), texts[i]);
            transcript_free(&t);
        }
}

TEST(answer_parser, a_header_of_harmony_has_a_bound)
{
    static const char end[] = "<|message|>a";
    uint64_t seed = 5;
    struct answer_parser_options o = {.style = &harmony, .tools = answer_tools()};
    for (size_t len = 1000; len < 1050; len++) {
        struct transcript t = {.last = -1};
        struct strbuf text = STRBUF_INIT;
        strbuf_adds(&text, "<|channel|>analysis");
        while (text.len < len)
            strbuf_addc(&text, ' ');
        strbuf_adds(&text, end);
        transcript_make(&t, &o, text.data, text.len, CUT_NOT, &seed);
        if (len <= 1024)
            CHECK_STR(strbuf_str(&t.text), "R[a]");
        else
            CHECK_INT(t.content.len, text.len);
        answer_check_cuts(&o, text.data, text.len, 5, &seed);
        transcript_free(&t);
        strbuf_free(&text);
    }
}

static void ignore_piece(void *context, enum answer_piece piece, const char *text, size_t len)
{
    *(size_t *)context += len + (text == NULL) + (piece > PIECE_CALL_ID);
}

TEST(answer_parser, fails_once_when_memory_ends)
{
    static const char text[] =
        "<think>a</think>b <tool_call>{\"arguments\": {\"query\": \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "\"}, \"name\": \"search\"}</tool_call>";
    size_t n_bytes = 0;
    struct answer_parser_options o = {
        .style = &hermes, .tools = answer_tools(), .piece = ignore_piece, .context = &n_bytes};
    memory_ends_after(0);
    CHECK(answer_parser_new(&o) == NULL);
    memory_is_back();
    /* Tests cannot make realloc fail, so limits on the buffers take its place. */
    for (size_t limit = 1; limit < 1100; limit += limit < 92 ? 7 : 500)
        for (int scratch = 0; scratch < 2; scratch++) {
            struct answer_parser *p = answer_parser_new(&o);
            *(scratch ? &p->scratch.limit : &p->held.limit) = limit;
            for (size_t i = 0; i + 1 < sizeof text; i++)
                answer_parser_add(p, text + i, 1);
            answer_parser_end(p);
            bool failed = answer_parser_failed(p);
            answer_parser_free(p);
            CHECK_INT(failed, limit < 100);
        }
    /* The values of parameters are parsed in separate memory. */
    static const char value[] = "<function=get_weather><parameter=days>3</parameter></function>";
    o.style = &qwen_coder;
    struct answer_parser *p = answer_parser_new(&o);
    memory_ends_after(0);
    answer_parser_add(p, value, sizeof value - 1);
    memory_is_back();
    CHECK(answer_parser_failed(p));
    n_bytes = 0;
    answer_parser_add(p, "more", 4);
    answer_parser_end(p);
    CHECK_INT(n_bytes, 0);
    answer_parser_free(p);
    answer_parser_free(NULL);
}

/* The processor time of parsing `text` in parts of `part` bytes, best of three. */
static double seconds(const struct answer_parser_options *o, const char *text, size_t len,
                      size_t part)
{
    double best = 1e9;
    for (int round = 0; round < 3; round++) {
        clock_t begin = clock();
        struct answer_parser *p = answer_parser_new(o);
        for (size_t at = 0; at < len; at += part)
            answer_parser_add(p, text + at, part < len - at ? part : len - at);
        answer_parser_end(p);
        answer_parser_free(p);
        double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
        best = took < best ? took : best;
    }
    return best;
}

/* Texts that would take quadratic time if anything were scanned again and again. */
TEST(answer_parser, takes_time_in_proportion_to_the_text)
{
    static const struct {
        enum tool_format format;
        const char *begin, *part;
    } texts[] = {
        {TOOLS_HERMES, "", " "},
        {TOOLS_HERMES, "<think>", "\n"},
        {TOOLS_HERMES, "<think>", "<"},
        {TOOLS_HERMES, "", "word "},
        {TOOLS_HERMES, "", "<tool_call>"},
        {TOOLS_HERMES, "", "<tool_call>{\"name\": \"ping\"}</tool_call>"},
        {TOOLS_HERMES, "<tool_call>{\"arguments\": {\"a\": \"", "x"},
        {TOOLS_HERMES, "<tool_call>{\"name\": \"ping\", \"arguments\": {\"a\": [0", ", 1"},
        {TOOLS_QWEN_CODER, "<function=search><parameter=query>", "a<\n"},
        {TOOLS_QWEN_CODER, "<function=get_weather><parameter=days>", "\n<"},
        {TOOLS_LLAMA3, "", "{\"name\": \"ping\", \"parameters\": {}};"},
        {TOOLS_GEMMA_CODE, "```tool_code\nsearch(query=\"", "a"},
        {TOOLS_GEMMA_CODE, "```tool_code\nget_weather(tags=[", "[1],"},
        {TOOLS_GEMMA, "<|tool_call>call:search{query:<|\"|>", "<|,"},
        {TOOLS_HARMONY, "<|channel|>final<|message|>", "<|e"},
        {TOOLS_HARMONY, "<|channel|>", "final"},
        {TOOLS_MISTRAL, "", "[TOOL_CALLS]ping[ARGS]{}"},
        {TOOLS_JSON, "[", "{\"name\": \"ping\", \"arguments\": {}},"},
    };
    enum { LEN = 8000, TIMES = 8 };
    char *text = malloc(LEN * TIMES + 64);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        size_t n_bytes = 0, len = strlen(texts[i].begin), part = strlen(texts[i].part);
        struct answer_style style = hermes;
        style.tools = texts[i].format;
        struct answer_parser_options o = {
            .style = &style, .tools = answer_tools(), .piece = ignore_piece, .context = &n_bytes};
        memcpy(text, texts[i].begin, len);
        for (; len + part < LEN * TIMES; len += part)
            memcpy(text + len, texts[i].part, part);
        for (size_t cut = 1; cut < LEN * TIMES; cut *= LEN * TIMES - 1) {
            double shorter = seconds(&o, text, LEN, cut), longer = seconds(&o, text, len, cut);
            if (longer > shorter * TIMES * 4 + 0.02)
                test_fail(__FILE__, __LINE__, "%s%s.. by %zu: %.4f s, %d times as much %.4f s",
                          texts[i].begin, texts[i].part, cut, shorter, TIMES, longer);
        }
    }
    free(text);
}
