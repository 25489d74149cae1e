/* Answers of every format with the expected results. Each is also split in every way, cut off at
 * every byte, and damaged at random. */
#include "answer_check.h"
#include "test.h"

struct sample {
    const char *text, *want;
};

#define STYLE(...)         ((const struct answer_style){__VA_ARGS__})
#define THINKS(begin, end) .think_begin = begin, .think_end = end

static void check_samples(const struct answer_style *style, bool in_thinking,
                          const struct sample *samples, size_t n)
{
    uint64_t seed = 1;
    for (size_t s = 0; s < n; s++) {
        struct transcript t = {.last = -1};
        struct answer_parser_options o = {
            .style = style, .tools = answer_tools(), .starts_in_thinking = in_thinking};
        const char *text = samples[s].text;
        size_t len = strlen(text);
        transcript_make(&t, &o, text, len, CUT_NOT, &seed);
        if (strcmp(strbuf_str(&t.text), samples[s].want) != 0)
            test_fail(__FILE__, __LINE__, "%s\n  gives  %s\n  wanted %s", text, strbuf_str(&t.text),
                      samples[s].want);
        answer_check_cuts(&o, text, len, 200, &seed);
        for (size_t cut = 0; cut < len; cut++)
            answer_check_cuts(&o, text, cut, 1, &seed);
        for (int i = 0; i < 60; i++) {
            char damaged[2048];
            size_t damaged_len = len;
            CHECK(len < sizeof damaged);
            memcpy(damaged, text, len);
            for (uint32_t k = 0; k <= answer_random(&seed, 3) && damaged_len; k++) {
                size_t at = answer_random(&seed, (uint32_t)damaged_len);
                switch (answer_random(&seed, 3)) {
                case 0:
                    damaged[at] = "\"{}[]<>\\,:`'\n ()\0\xff|="[answer_random(&seed, 20)];
                    break;
                case 1: /* a byte goes */
                    memmove(damaged + at, damaged + at + 1, --damaged_len - at);
                    break;
                default: /* a part is copied over another */
                    memmove(damaged + at, damaged + answer_random(&seed, (uint32_t)at + 1),
                            (damaged_len - at) / 2);
                }
            }
            answer_check_cuts(&o, damaged, damaged_len, 1, &seed);
        }
        transcript_free(&t);
    }
}

#define CHECK_SAMPLES(style, in_thinking_, samples)                                                \
    check_samples(&(style), in_thinking_, samples, sizeof(samples) / sizeof(samples)[0])

TEST(answer_calls, hermes)
{
    static const struct sample samples[] = {
        {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"
         "</tool_call>",
         "B[get_weather]A[{\"city\": \"Paris\"}]E"},
        {"I look.\n\n<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"a \\\"b\\\" "
         "}{\\u00e9\"}}\n</tool_call>\n<tool_call>\n{\"arguments\": {}, \"name\": \"ping\"}\n"
         "</tool_call>\n",
         "C[I look.]B[search]A[{\"query\": \"a \\\"b\\\" }{\\u00e9\"}]EB[ping]A[{}]E"},
        {"<tool_call>{\"name\": \"ping\"}</tool_call> And so on. ", "B[ping]A[{}]EC[And so on. ]"},
        /* White space is kept if there is text on both sides of calls. */
        {"Here goes: <tool_call>{\"name\": \"ping\"}</tool_call>Now:",
         "C[Here goes: ]B[ping]A[{}]EC[Now:]"},
        {"One. \n<tool_call>{\"name\": \"ping\"}</tool_call>\n<tool_call>{\"name\": \"ping\"}"
         "</tool_call>\n Two.\n",
         "C[One. ]B[ping]A[{}]EB[ping]A[{}]EC[\n\n Two.\n]"},
        {"One.\n\n<tool_call>{\"name\": \"ping\"}</tool_call>\n\n", "C[One.]B[ping]A[{}]E"},
        /* Several objects with only white space between them. */
        {"<tool_calls>\n{\"name\": \"ping\", \"arguments\": {}}\n{\"name\": \"search\", "
         "\"arguments\": {\"query\": \"x\"}}\n</tool_calls>",
         "B[ping]A[{}]EB[search]A[{\"query\": \"x\"}]E"},
        {"<tool_call>{\"name\": \"ping\"} {\"a\": 1}</tool_call>",
         "B[ping]A[{}]EC[ {\"a\": 1}</tool_call>]"},
        /* LongCat, GigaChat 3, Apertus */
        {"<longcat_tool_call>{\"name\": \"ping\", \"arguments\": {}}</longcat_tool_call>\n"
         "<longcat_tool_call>{\"name\": \"ping\"}</longcat_tool_call>",
         "B[ping]A[{}]EB[ping]A[{}]E"},
        {"Hm.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"ping\", \"arguments\": "
         "{\"a\": 1}}<|message_sep|>\n\n",
         "C[Hm.]B[ping]A[{\"a\": 1}]E"},
        {"function call<|role_sep|>\n{\"name\": \"ping\", \"arguments\": {}}", "B[ping]A[{}]E"},
        {"A function call is", "C[A function call is]"},
        {"<|tools_prefix|>[{\"search\": {\"query\": \"x\"}}, {\"ping\": {}}]<|tools_suffix|>",
         "B[search]A[{\"query\": \"x\"}]EB[ping]A[{}]E"},
        {"<|tools_prefix|>[{\"ping\": {}, \"search\": {}}]<|tools_suffix|>",
         "B[ping]A[{}]EB[search]A[{}]E"},
        {"<|tools_prefix|>[{\"nobody\": {}}]<|tools_suffix|>",
         "C[<|tools_prefix|>[{\"nobody\": {}}]<|tools_suffix|>]"},
        {"<|tools_prefix|>[]<|tools_suffix|>", "C[<|tools_prefix|>[]<|tools_suffix|>]"},
        {"<tool_call>{\"parameters\":{ \"city\" : [1,2.5e3,null,true] } ,\"name\":\"get_weather\"}",
         "B[get_weather]A[{ \"city\" : [1,2.5e3,null,true] }]E"},
        {"<tool_call>{\"name\": \"ping\", \"arguments\": \"{\\\"a\\\": \\\"\\\\n\\\"}\"}"
         "</tool_call>",
         "B[ping]A[{\"a\": \"\\n\"}]E"},
        {"<tool_call>{\"name\": \"ping\", \"arguments\": \"\"}</tool_call>", "B[ping]A[{}]E"},
        {"<tool_call>{\"name\": \"ping\", \"arguments\": null}</tool_call>", "B[ping]A[{}]E"},
        {"<tool_call>[{\"name\": \"ping\", \"arguments\": {}}, {\"name\": \"ping\", \"id\": 3}]"
         "</tool_call>",
         "B[ping]A[{}]EB[ping]A[{}]E"},
        {"<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"search\", \"arguments\": "
         "{\"query\": \"x\"}}}</tool_call>",
         "B[search]A[{\"query\": \"x\"}]E"},
        /* Strings with raw line feeds are repaired; so is a missing or doubled last brace. */
        {"<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"a\n\tb\"}}</tool_call>",
         "B[search]A[{\"query\": \"a\\n\\tb\"}]E"},
        {"<tool_call>{\"arguments\": {\"query\": \"a\nb\"}, \"name\": \"search\"}</tool_call>",
         "B[search]A[{\"query\": \"a\\nb\"}]E"},
        {"<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"a\"}\n</tool_call>Done",
         "B[search]A[{\"query\": \"a\"}]EC[Done]"},
        {"<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"a\"}}}\n</tool_call>",
         "B[search]A[{\"query\": \"a\"}]E"},
        {"<tool_call>{\"name\": \"search\", \"arguments\": {\"query\": \"a\"}",
         "B[search]A[{\"query\": \"a\"}]E"},
        /* No calls. */
        {"<tool_call>{\"name\": \"nobody\", \"arguments\": {}}</tool_call>",
         "C[<tool_call>{\"name\": \"nobody\", \"arguments\": {}}</tool_call>]"},
        {"Write `<tool_call>` and then\n <tool_call>\n{\"name\": \"ping\"}</tool_call>",
         "C[Write `<tool_call>` and then]B[ping]A[{}]E"},
        {"Use <tool_call> {\"name\"", "C[Use <tool_call> {\"name\"]"},
        {" <tool_ca", "C[ <tool_ca]"},
        {"a < b <tool", "C[a < b <tool]"},
        {"<tool_call>{\"name\": \"ping\", \"arguments\": 3}</tool_call>",
         "C[<tool_call>{\"name\": \"ping\", \"arguments\": 3}</tool_call>]"},
        {"<tool_call>{\"name\": \"ping\", \"arguments\": \"no object\"}</tool_call>",
         "C[<tool_call>{\"name\": \"ping\", \"arguments\": \"no object\"}</tool_call>]"},
        {"<tool_call>{\"arguments\": {}}</tool_call>",
         "C[<tool_call>{\"arguments\": {}}</tool_call>]"},
        {"</tool_call>", "C[</tool_call>]"},
        /* Too late to take back. */
        {"So: <tool_call>{\"name\": \"ping\", \"arguments\": {\"a\": tru}}</tool_call>",
         "C[So: ]B[ping]A[{\"a\": tru]X[<tool_call>{\"name\": \"ping\", \"arguments\": {\"a\": tru]"
         "C[}}</tool_call>]"},
        {"<tool_call>{\"name\": \"ping\", \"arguments\": {\"a\": ",
         "B[ping]A[{\"a\": ]X[<tool_call>{\"name\": \"ping\", \"arguments\": {\"a\": ]"},
        /* Other families' tags. */
        {"<TOOLCALL>[{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}}]</TOOLCALL>",
         "B[search]A[{\"query\": \"x\"}]E"},
        {"<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"search\", "
         "\"parameters\": {\"query\": \"x\"}}\n]<|END_ACTION|>",
         "B[search]A[{\"query\": \"x\"}]E"},
        {"<|tool_call|>[{\"name\": \"ping\", \"arguments\": {}}]", "B[ping]A[{}]E"},
        {"functools[{\"name\": \"ping\", \"arguments\": {}}]", "B[ping]A[{}]E"},
        {"<|function_call|>{\"name\": \"ping\", \"arguments\": {}}", "B[ping]A[{}]E"},
        {"functools is a module", "C[functools is a module]"},
        {"I look.\nfunctools[{\"name\": \"ping\", \"arguments\": {}}]\nWell?",
         "C[I look.]B[ping]A[{}]EC[\n\nWell?]"},
        {"<tool_calls>[{\"name\": \"ping\", \"arguments\": {}}, 5]</tool_calls>",
         "B[ping]A[{}]EC[, 5]</tool_calls>]"},
        /* Qwen-Coder's form under Hermes' tag. */
        {"<tool_call>\n<function=ping>\n</function>\n</tool_call>", "B[ping]A[{}]E"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_HERMES), false, samples);
}

TEST(answer_calls, hermes_thinking)
{
    static const struct sample samples[] = {
        {"<think>\nHm, <b>.\n</think>\n\nHello\n", "R[Hm, <b>.]C[Hello\n]"},
        {" \n<think>a</think><tool_call>{\"name\": \"ping\"}</tool_call>", "R[a]B[ping]A[{}]E"},
        {"<think>\n\n</think>\n\nYes", "C[Yes]"},
        {"<think>never <tool_call>{\"name\": \"ping\"}</tool_call>\n",
         "R[never <tool_call>{\"name\": \"ping\"}</tool_call>]"},
        {"So <think>no</think>", "C[So <think>no</think>]"},
        {"\n x", "C[\n x]"},
        {"<thi", "C[<thi]"},
    };
    static const struct sample in_thinking[] = {
        {"\nHm </thin </think>\n\n  Well. ", "R[Hm </thin]C[Well. ]"},
        {"<think>\nHm", "R[Hm]"},
        {"x</think>", "R[x]"},
        {" \n ", ""},
        {"</think>A <think>b</think>", "C[A <think>b</think>]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_HERMES, THINKS("<think>", "</think>")), false, samples);
    CHECK_SAMPLES(STYLE(.tools = TOOLS_HERMES, THINKS("<think>", "</think>")), true, in_thinking);
}

TEST(answer_calls, qwen_coder)
{
    static const struct sample samples[] = {
        {"I'll look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis \"x\"\n"
         "</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=metric>\ntrue\n</parameter>\n"
         "<parameter=tags>\n[\"a\",1.0]\n</parameter>\n<parameter=where>\n{\"x\":{}}\n</"
         "parameter>\n"
         "</function>\n</tool_call>",
         "C[I'll look.]B[get_weather]A[{\"city\": \"Paris \\\"x\\\"\", \"days\": 3, \"metric\": "
         "true, \"tags\": [\"a\", 1.0], \"where\": {\"x\": {}}}]E"},
        /* Types: strings stay strings, unions take what fits, others become strings. */
        {"<function=get_weather><parameter=city>12</parameter><parameter=days>soon</parameter>"
         "<parameter=metric>True</parameter><parameter=note>null</parameter><parameter=level>1.5"
         "</parameter><parameter=kind>1</parameter></function>",
         "B[get_weather]A[{\"city\": \"12\", \"days\": \"soon\", \"metric\": true, \"note\": null, "
         "\"level\": 1.5, \"kind\": \"1\"}]E"},
        {"<function=get_weather>\n<parameter=note>\n12\n</parameter>\n<parameter=level>\nhigh\n"
         "</parameter>\n<parameter=other>\n7\n</parameter>\n<parameter=more>\n[1\n</parameter>\n"
         "</function>",
         "B[get_weather]A[{\"note\": \"12\", \"level\": \"high\", \"other\": 7, \"more\": "
         "\"[1\"}]E"},
        /* Lines and tags in a string. */
        {"<tool_call><function=search><parameter=query>\n\n a\n<b>\n</parameter\n\n</parameter>\n"
         "</function></tool_call>\n<tool_call>\n<function=ping>\n</function>\n</tool_call>",
         "B[search]A[{\"query\": \"\\n a\\n<b>\\n</parameter\\n\"}]EB[ping]A[{}]E"},
        {"<function=search>\n<parameter=query>\n</parameter>\n</function>",
         "B[search]A[{\"query\": \"\"}]E"},
        {"<function=get_weather>\n<parameter=city>\nRome\n<parameter=days>\n1\n</function>",
         "B[get_weather]A[{\"city\": \"Rome\", \"days\": 1}]E"},
        {"<function=get_weather>\n<parameter=city>\nR\xc3\xa9\x01\n</parameter></tool_call>",
         "B[get_weather]A[{\"city\": \"R\xc3\xa9\\u0001\"}]E"},
        {"<tool_call>{\"name\": \"ping\", \"arguments\": {}}</tool_call>", "B[ping]A[{}]E"},
        {"<function=nobody>\n</function>", "C[<function=nobody>\n</function>]"},
        /* Found once the answer has ended and the text it was held for is not a call. */
        {"<tool_call>{\"arguments\": {\"x\": \"<function=search><parameter=query>v</parameter>"
         "</function>",
         "C[<tool_call>{\"arguments\": {\"x\": \"]B[search]A[{\"query\": \"v\"}]E"},
        {"Say <function=ping> to call", "C[Say <function=ping> to call]"},
        {"<tool_call>\n<function=search>\n<parameter=query>\ncut",
         "B[search]A[{\"query\": \"cut]X[<tool_call>\n<function=search>\n<parameter=query>\ncut]"},
        {"<function=search><parameter=query>a</parameter>then",
         "B[search]A[{\"query\": \"a\"]X[<function=search><parameter=query>a</parameter>]C[then]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_QWEN_CODER), false, samples);
}

TEST(answer_calls, llama3)
{
    static const struct sample samples[] = {
        {"{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}",
         "B[get_weather]A[{\"city\": \"Paris\"}]E"},
        {"{\"type\": \"function\", \"name\": \"search\", \"parameters\": {\"query\": \"x\"}}",
         "B[search]A[{\"query\": \"x\"}]E"},
        {"<|python_tag|>{\"name\": \"ping\", \"parameters\": {}}; {\"name\": \"search\", "
         "\"parameters\": {\"query\": \";\"}}",
         "B[ping]A[{}]EB[search]A[{\"query\": \";\"}]E"},
        {"{\"name\": \"ping\", \"parameters\": {}}\n{\"name\": \"ping\", \"parameters\": {}}",
         "B[ping]A[{}]EB[ping]A[{}]E"},
        {"<|python_tag|>search.call(query=\"a, b)\")", "B[search]A[{\"query\": \"a, b)\"}]E"},
        {"<function=get_weather>{\"city\": \"Rome\"}</function>",
         "B[get_weather]A[{\"city\": \"Rome\"}]E"},
        {"Look: <function=ping></function>.", "C[Look: ]B[ping]A[{}]EC[.]"},
        {"[get_weather(city='Rome', days=2), ping()]",
         "B[get_weather]A[{\"city\": \"Rome\", \"days\": 2}]EB[ping]A[{}]E"},
        {"[{\"name\": \"ping\", \"parameters\": {}}]", "B[ping]A[{}]E"},
        {"<|python_start|>[ping(), ping()]<|python_end|>", "B[ping]A[{}]EB[ping]A[{}]E"},
        {"<|python_start|>{\"name\": \"ping\", \"parameters\": {}}<|python_end|> ",
         "B[ping]A[{}]E"},
        {"{\"name\": \"Bob\", \"age\": 3}", "C[{\"name\": \"Bob\", \"age\": 3}]"},
        {"{\"name\": \"ping\"}", "C[{\"name\": \"ping\"}]"},
        {"{\"name\": \"ping\", \"age\": 3}", "C[{\"name\": \"ping\", \"age\": 3}]"},
        {"{\"a\": 1} ", "C[{\"a\": 1} ]"},
        {"[1, 2]", "C[[1, 2]]"},
        {"Sure: {\"name\": \"ping\", \"parameters\": {}}",
         "C[Sure: {\"name\": \"ping\", \"parameters\": {}}]"},
        {"<|python_tag|>import os\nprint(1)", "C[<|python_tag|>import os\nprint(1)]"},
        {"{\"name\": \"ping\", \"parameters\": {\"a\"}}",
         "B[ping]A[{\"a\"]X[{\"name\": \"ping\", \"parameters\": {\"a\"]C[}}]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_LLAMA3), false, samples);
}

TEST(answer_calls, mistral)
{
    static const struct sample samples[] = {
        {"[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}, \"id\": "
         "\"abc123456\"}, {\"name\": \"ping\", \"arguments\": {}}]",
         "B[get_weather]A[{\"city\": \"Paris\"}]EB[ping]A[{}]E"},
        {"Wait. [TOOL_CALLS]search[ARGS]{\"query\": \"[ARGS]\"}[TOOL_CALLS]ping[ARGS]{}",
         "C[Wait. ]B[search]A[{\"query\": \"[ARGS]\"}]EB[ping]A[{}]E"},
        {"[TOOL_CALLS]search[CALL_ID]a1b2c3d4e[ARGS]{\"query\": \"x\"}",
         "B[search]A[{\"query\": \"x\"}]E"},
        {"[TOOL_CALLS]search{\"query\": \"x\"}", "B[search]A[{\"query\": \"x\"}]E"},
        {"[THINK]Hm [x].[/THINK]So", "R[Hm [x].]C[So]"},
        {"[TOOL_CALLS]nobody[ARGS]{}", "C[[TOOL_CALLS]nobody[ARGS]{}]"},
        {"The [TOOL_CALLS] mark", "C[The [TOOL_CALLS] mark]"},
        {"[1] is a note [TOOL", "C[[1] is a note [TOOL]"},
        {"[TOOL_CALLS]search[ARGS]{\"query\": ",
         "B[search]A[{\"query\": ]X[[TOOL_CALLS]search[ARGS]{\"query\": ]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_MISTRAL, THINKS("[THINK]", "[/THINK]")), false, samples);
}

TEST(answer_calls, gemma_code)
{
    static const struct sample samples[] = {
        {"Let me see.\n```tool_code\nget_weather(city=\"Pa, \\\"r)is\", days=3)\n```",
         "C[Let me see.]B[get_weather]A[{\"city\": \"Pa, \\\"r)is\", \"days\": 3}]E"},
        {"```tool_code\nprint(default_api.get_weather(city='Rome', metric=True, note=None, "
         "tags=[1, 'a', (2.5,)], where={'k': {\"z\": -1}}))\n```\nDone",
         "B[get_weather]A[{\"city\": \"Rome\", \"metric\": true, \"note\": null, \"tags\": [1, "
         "\"a\", [2.5]], \"where\": {\"k\": {\"z\": -1}}}]EC[Done]"},
        {"```tool_code\nping()\nsearch(query='''a\n'b''c''')\n```",
         "B[ping]A[{}]EB[search]A[{\"query\": \"a\\n'b''c\"}]E"},
        {"```tool_code\nsearch(\"x\" 'y' r'\\n', )\n```", "B[search]A[{\"query\": \"xy\\\\n\"}]E"},
        {"```tool_code\nsearch(query=\"\\u00e9\\x41\\101\\ud83d\\ude00\\q\\U0001F600\")\n```",
         "B[search]A[{\"query\": \"\xc3\xa9"
         "AA\xf0\x9f\x98\x80\\\\q\xf0\x9f\x98\x80\"}]E"},
        {"```tool_code\nget_weather(days=1_000, level=.5)\n```",
         "B[get_weather]A[{\"days\": 1000, \"level\": 0.5}]E"},
        {"[ping(), search(query=\"a\")]", "B[ping]A[{}]EB[search]A[{\"query\": \"a\"}]E"},
        {"<|tool_call_start|>[search(query=\"a\")]<|tool_call_end|>Ok",
         "B[search]A[{\"query\": \"a\"}]EC[Ok]"},
        /* Quotes without a backslash in a string, as LFM2 writes shell commands; sets. */
        {"<|tool_call_start|>[search(query='sed -n '1,9p' x')]<|tool_call_end|>",
         "B[search]A[{\"query\": \"sed -n '1,9p' x\"}]E"},
        {"[search(query=\"say \"hi\" (\", ), search(query='c \"print(f(x, s='\\,'))\"')]",
         "B[search]A[{\"query\": \"say \\\"hi\\\" (\"}]EB[search]A[{\"query\": \"c "
         "\\\"print(f(x, s='\\\\,'))\\\"\"}]E"},
        {"[search(query='a'+'b')]", "C[[search(query='a'+'b')]]"},
        {"[get_weather(tags={'a', 'b',}, where={'k': {1, 2}})]",
         "B[get_weather]A[{\"tags\": [\"a\", \"b\"], \"where\": {\"k\": [1, 2]}}]E"},
        {"[get_weather(tags={'a': 1, 'b'})]", "C[[get_weather(tags={'a': 1, 'b'})]]"},
        {"[get_weather(tags={{1}, {2}})]", "C[[get_weather(tags={{1}, {2}})]]"},
        {"```tool_code\nx = 3\n```", "C[```tool_code\nx = 3\n```]"},
        {"```tool_code\nnobody(x=1)\n```", "C[```tool_code\nnobody(x=1)\n```]"},
        {"```tool_code\nsearch(query=a)\n```", "C[```tool_code\nsearch(query=a)\n```]"},
        {"```tool_code\nping()\nx = 3\n```", "B[ping]A[{}]EC[\nx = 3\n```]"},
        {"```python\nprint(1)\n```", "C[```python\nprint(1)\n```]"},
        {"```tool_code\nping()\n```\n```python\n1\n```", "B[ping]A[{}]EC[```python\n1\n```]"},
        {"[1] see", "C[[1] see]"},
        {"```tool_code\nget_weather(city=\"a\", days=?)\n```",
         "B[get_weather]A[{\"city\": \"a\"]X[```tool_code\nget_weather(city=\"a\", ]C[days=?)\n"
         "```]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_GEMMA_CODE), false, samples);
}

TEST(answer_calls, gemma)
{
    static const struct sample samples[] = {
        {"<start_function_call>call:get_weather{city:<escape>Pa, {r}is<escape>,days:3}"
         "<end_function_call>",
         "B[get_weather]A[{\"city\": \"Pa, {r}is\", \"days\": 3}]E"},
        {"<start_function_call>call:get_weather{days:<escape>3<escape>,city:<escape>3<escape>}"
         "<end_function_call>",
         "B[get_weather]A[{\"days\": 3, \"city\": \"3\"}]E"},
        {"<|channel>thought\nHm.\n<channel|>I look.<|tool_call>call:get_weather{city:<|\"|>\"Q\" "
         "<b>\n<|\"|>,metric:true,tags:[<|\"|>a<|\"|>,2],where:{<|\"|>k<|\"|>:<|\"|>5<|\"|>,n:null}"
         "}"
         "<tool_call|><|tool_call>call:ping{}<tool_call|><|tool_response>",
         "R[Hm.]C[I look.]B[get_weather]A[{\"city\": \"\\\"Q\\\" <b>\\n\", \"metric\": true, "
         "\"tags\": [\"a\", 2], \"where\": {\"k\": \"5\", \"n\": null}}]EB[ping]A[{}]E"},
        {"<|channel>thought\n<channel|>Hi", "C[Hi]"},
        {"<|tool_call>call:get_weather{\"city\": \"a\\\"b}\", note: bare words}<tool_call|>",
         "B[get_weather]A[{\"city\": \"a\\\"b}\", \"note\": \"bare words\"}]E"},
        {"<|tool_call>call:nobody{}<tool_call|>", "C[<|tool_call>call:nobody{}<tool_call|>]"},
        {"<|tool_call>call:search{query:<|\"|>a", "C[<|tool_call>call:search{query:<|\"|>a]"},
        {"<|tool_call>call:get_weather{days:1,nonsense}",
         "B[get_weather]A[{\"days\": 1]X[<|tool_call>call:get_weather{days:1,]C[nonsense}]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_GEMMA, THINKS("<|channel>thought", "<channel|>")), false,
                  samples);
}

TEST(answer_calls, deepseek)
{
    static const struct sample samples[] = {
        {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
         "{\"city\": "
         "\"Paris\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
         "ping\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         "B[get_weather]A[{\"city\": \"Paris\"}]EB[ping]A[{}]E"},
        {"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
         "name=\"city\" string=\"true\">5\n</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
         "string=\"false\">5</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
         "name=\"ping\">\n"
         "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
         "B[get_weather]A[{\"city\": \"5\\n\", \"days\": 5}]EB[ping]A[{}]E"},
        {"<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"search\">\n<｜DSML｜parameter "
         "name=\"query\">"
         "x</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
         "B[search]A[{\"query\": \"x\"}]E"},
        {"<｜tool▁calls▁begin｜>no", "C[<｜tool▁calls▁begin｜>no]"},
        {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>nobody\n```json\n{}\n```",
         "C[<｜tool▁call▁begin｜>function<｜tool▁sep｜>nobody\n```json\n{}\n```]"},
        {"<｜tool▁call▁begin｜>ping<｜tool▁sep｜><｜tool▁call▁end｜>", "B[ping]A[{}]E"},
        {"<｜tool▁call▁begin｜>ping<｜tool▁sep｜>{\"a\"",
         "B[ping]A[{\"a\"]X[<｜tool▁call▁begin｜>ping<｜tool▁sep｜>{\"a\"]"},
    };
    static const struct sample in_thinking[] = {
        {"Hm.</think>See<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{\"query\": "
         "\"｜\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
         "<｜tool▁calls▁end｜>",
         "R[Hm.]C[See]B[search]A[{\"query\": \"｜\"}]EB[ping]A[{}]E"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_DEEPSEEK, THINKS("<think>", "</think>")), false, samples);
    CHECK_SAMPLES(STYLE(.tools = TOOLS_DEEPSEEK, THINKS("<think>", "</think>")), true, in_thinking);
}

TEST(answer_calls, glm)
{
    static const struct sample samples[] = {
        {"<think>Hm</think>\nLook\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Pa\n"
         "ris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n"
         "<tool_call>ping\n</tool_call>",
         "R[Hm]C[Look]B[get_weather]A[{\"city\": \"Pa\\nris\", \"days\": 3}]EB[ping]A[{}]E"},
        {"<tool_call>get_weather<arg_key>tags</arg_key><arg_value>[\"a\"]</arg_value></tool_call>"
         "<tool_call>ping</tool_call>",
         "B[get_weather]A[{\"tags\": [\"a\"]}]EB[ping]A[{}]E"},
        {"<tool_call>{\"name\": \"ping\", \"arguments\": {}}</tool_call>", "B[ping]A[{}]E"},
        /* Line feeds and quotes that are escaped as in a string. */
        {"<tool_call>get_weather\\n<arg_key>tags</arg_key>\\n<arg_value>[\\\"a\\\"]</arg_value>\\n"
         "<arg_key>city</arg_key>\\n\n<arg_value>a\\n</arg_value>\\n</tool_call>",
         "B[get_weather]A[{\"tags\": [\"a\"], \"city\": \"a\\\\n\"}]E"},
        /* Keys without a value are dropped. */
        {"<tool_call>get_weather\n<arg_key>city</arg_key>\n</tool_call>", "B[get_weather]A[{}]E"},
        {"<tool_call>get_weather\n<arg_key>city</arg_key><arg_key>days</arg_key><arg_value>3"
         "</arg_value></tool_call>",
         "B[get_weather]A[{\"days\": 3}]E"},
        {"<tool_call>get_weather\n<arg_key>tags</arg_key><arg_value>{'a', 1}</arg_value><arg_key>"
         "where</arg_key><arg_value>{'a', 1}</arg_value></tool_call>",
         "B[get_weather]A[{\"tags\": [\"a\", 1], \"where\": \"{'a', 1}\"}]E"},
        {"<tool_call>nobody\n</tool_call>", "C[<tool_call>nobody\n</tool_call>]"},
        {"A <tool_call> is", "C[A <tool_call> is]"},
        {"<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a",
         "B[search]A[{\"query\": \"a]X[<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_GLM, THINKS("<think>", "</think>")), false, samples);
}

TEST(answer_calls, kimi)
{
    static const struct sample samples[] = {
        {"I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
         "<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>"
         "functions.ping:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
         "<|tool_calls_section_end|>",
         "C[I look.]I[functions.get_weather:0]B[get_weather]A[{\"city\": \"Paris\"}]E"
         "I[functions.ping:1]B[ping]A[{}]E"},
        {"<|tool_call_begin|> search:0 <|tool_call_argument_begin|> {\"query\": \"<|\"} "
         "<|tool_call_end|>",
         "I[search:0]B[search]A[{\"query\": \"<|\"}]E"},
        {"<|tool_call_begin|>ping<|tool_call_argument_begin|><|tool_call_end|>", "B[ping]A[{}]E"},
        {"<|tool_calls_section_begin|> none <|tool_calls_section_end|>",
         "C[<|tool_calls_section_begin|> none <|tool_calls_section_end|>]"},
        {"<|tool_call_begin|>functions.nobody:0<|tool_call_argument_begin|>{}",
         "C[<|tool_call_begin|>functions.nobody:0<|tool_call_argument_begin|>{}]"},
        /* The last brace is missing. */
        {"<|tool_call_begin|>search:0<|tool_call_argument_begin|>{\"a\": {\"b\": 1} "
         "<|tool_call_end|>"
         "<|tool_call_begin|>ping:1<|tool_call_argument_begin|>{\"a\": 1<|tool_call_end|>Well",
         "I[search:0]B[search]A[{\"a\": {\"b\": 1} }]EI[ping:1]B[ping]A[{\"a\": 1}]EC[Well]"},
        {"<|tool_call_begin|>search:0<|tool_call_argument_begin|>{\"a\": 1<|tool_call",
         "I[search:0]B[search]A[{\"a\": 1]X[<|tool_call_begin|>search:0<|tool_call_argument_begin|>"
         "{\"a\": 1]C[<|tool_call]"},
        /* A count in place of the name, and one function that fits the arguments. */
        {"<|tool_call_begin|>0<|tool_call_argument_begin|> {\"days\": 1, \"city\": \"x\ny\"}"
         "<|tool_call_end|><|tool_call_begin|>1<|tool_call_argument_begin|>{\"query\": \"\"}",
         "B[get_weather]A[{\"days\": 1, \"city\": \"x\\ny\"}]EB[search]A[{\"query\": \"\"}]E"},
        {"<|tool_call_begin|>0<|tool_call_argument_begin|>{\"query\": 1, \"city\": 2}",
         "C[<|tool_call_begin|>0<|tool_call_argument_begin|>{\"query\": 1, \"city\": 2}]"},
        {"<|tool_call_begin|>0<|tool_call_argument_begin|>{}",
         "C[<|tool_call_begin|>0<|tool_call_argument_begin|>{}]"},
        {"<|tool_call_begin|>ping:0<|tool_call_argument_begin|>{]",
         "I[ping:0]B[ping]A[{]X[<|tool_call_begin|>ping:0<|tool_call_argument_begin|>{]C[]]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_KIMI), false, samples);
}

#define M3                         "]<]minimax[>["
#define M3_VALUE(key, text)        M3 "<" key ">" text M3 "</" key ">"
#define M3_INVOKE(name, arguments) M3 "<invoke name=\"" name "\">" arguments M3 "</invoke>"

/* MiniMax-M3: tags nest, and close with their name. */
TEST(answer_calls, minimax_m3)
{
    static const struct sample samples[] = {
        {"I look." M3 "<tool_call>\n" M3_INVOKE(
             "get_weather", M3_VALUE("city", "Paris ]< x") M3_VALUE("days", "018")
                                M3_VALUE("metric", "true")) "\n" M3 "</tool_call>",
         "C[I look.]B[get_weather]A[{\"city\": \"Paris ]< x\", \"days\": 18, \"metric\": true}]E"},
        {M3 "<tool_call>" M3 "<invoke name=\"get_weather\">" M3_VALUE("city", "x") M3
         "</tool_call>",
         "B[get_weather]A[{\"city\": \"x\"}]E"},
        {M3 "<tool_call>" M3_INVOKE(
             "get_weather",
             M3_VALUE("tags", M3_VALUE("item", "a") M3_VALUE("item", M3_VALUE("n", "1")))
                 M3_VALUE("where", M3_VALUE("where", "x") M3_VALUE("t", "1") M3_VALUE("u", "")
                                       M3_VALUE("t", "2"))) M3_INVOKE("ping", "") M3 "</tool_call>",
         "B[get_weather]A[{\"tags\": [\"a\", {\"n\": 1}], \"where\": {\"where\": \"x\", \"t\": "
         "[1, 2], \"u\": \"\"}}]EB[ping]A[{}]E"},
        /* Tags that do not close, or close wrongly, are text of the value. */
        {M3_INVOKE("get_weather", M3_VALUE("where", M3 "<a>1" M3 "</b>")),
         "B[get_weather]A[{\"where\": \"]<]minimax[>[<a>1]<]minimax[>[</b>\"}]E"},
        {M3_INVOKE("search", M3_VALUE("query", M3 "</quer>")),
         "B[search]A[{\"query\": \"]<]minimax[>[</quer>\"}]E"},
        /* A member may be named like the mark around the calls. */
        {M3 "<tool_call>" M3_INVOKE(
             "get_weather", M3_VALUE("where", M3_VALUE("tool_call", M3_VALUE("tool_call", "x"))
                                                  M3_VALUE("a", M3_VALUE("tool_call", "")))) M3
         "</tool_call>",
         "B[get_weather]A[{\"where\": {\"tool_call\": {\"tool_call\": \"x\"}, \"a\": "
         "{\"tool_call\": \"\"}}}]E"},
        /* A value that is open where the calls end is no value. */
        {M3 "<tool_call>" M3 "<invoke name=\"search\">" M3 "<query>a" M3 "</x>" M3 "</tool_call> b",
         "B[search]A[{\"query\": \"a]<]minimax[>[</x>]X[]<]minimax[>[<tool_call>]<]minimax[>["
         "<invoke name=\"search\">]<]minimax[>[<query>a]<]minimax[>[</x>]C[]<]minimax[>["
         "</tool_call> b]"},
        {M3_INVOKE("nobody", ""), "C[]<]minimax[>[<invoke name=\"nobody\">]<]minimax[>[</invoke>]"},
        {"a ]<]minimax b", "C[a ]<]minimax b]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_MINIMAX), false, samples);
}

TEST(answer_calls, minimax)
{
    static const struct sample samples[] = {
        {"<minimax:tool_call>\n<invoke name=\"nobody\">\n</invoke>\n</minimax:tool_call>",
         "C[<minimax:tool_call>\n<invoke name=\"nobody\">\n</invoke>\n</minimax:tool_call>]"},
        {"<invoke name=\"search\"><parameter name=\"query\">a</parameter>",
         "B[search]A[{\"query\": \"a\"]X[<invoke name=\"search\"><parameter name=\"query\">a"
         "</parameter>]"},
    };
    static const struct sample in_thinking[] = {
        {"Hm\n</think>\n\nI look.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
         "name=\"city\">Paris</parameter>\n<parameter name=\"days\">3</parameter>\n</invoke>\n"
         "<invoke name=\"ping\">\n</invoke>\n</minimax:tool_call>",
         "R[Hm]C[I look.]B[get_weather]A[{\"city\": \"Paris\", \"days\": 3}]EB[ping]A[{}]E"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_MINIMAX, THINKS("<think>", "</think>")), false, samples);
    CHECK_SAMPLES(STYLE(.tools = TOOLS_MINIMAX, THINKS("<think>", "</think>")), true, in_thinking);
}

TEST(answer_calls, harmony)
{
    static const struct sample samples[] = {
        {"<|channel|>analysis<|message|>Hm <x>.<|end|><|start|>assistant<|channel|>final<|message|>"
         "Hello \n",
         "R[Hm <x>.]C[Hello \n]"},
        {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>",
         "R[Hm.]B[get_weather]A[{\"city\": \"Paris\"}]E"},
        {" to=functions.ping<|channel|>commentary json<|message|>{ }<|call|>", "B[ping]A[{ }]E"},
        {"<|channel|>commentary<|message|>First this.<|end|><|start|>assistant to=functions.search"
         "<|channel|>analysis <|constrain|>json<|message|>{\"query\": \"<|call|>\"}",
         "C[First this.]B[search]A[{\"query\": \"<|call|>\"}]E"},
        {"<|channel|>commentary to=functions.ping<|message|><|call|><|start|>assistant<|channel|>"
         "final<|message|>x<|return|>",
         "B[ping]A[{}]EC[x]"},
        {"<|channel|>commentary to=assistant<|channel|>analysis<|message|>a<|end|>\n<|start|>"
         "assistant<|channel|>final <|constrain|>json<|message|>{}",
         "R[a]C[{}]"},
        {"<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "R[a]C[b]"},
        {"Plain <b> text", "C[Plain <b> text]"},
        {"<|channel|>commentary to=functions.nobody<|message|>{}<|call|>",
         "C[<|channel|>commentary to=functions.nobody<|message|>{}]"},
        {"<|channel|>commentary to=functions.ping<|message|>no<|call|>",
         "C[<|channel|>commentary to=functions.ping<|message|>no]"},
        {"<|channel|>commentary to=functions.ping<|message|>{\"a\": x}<|call|>",
         "B[ping]A[{\"a\": ]X[<|channel|>commentary to=functions.ping<|message|>{\"a\": ]C[x}]"},
        {"<|channel|>anal", "C[<|channel|>anal]"},
    };
    static const struct sample in_thinking[] = {
        {"more thoughts<|end|><|start|>assistant<|channel|>final<|message|>b",
         "R[more thoughts]C[b]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_HARMONY), false, samples);
    CHECK_SAMPLES(STYLE(.tools = TOOLS_HARMONY), true, in_thinking);
}

TEST(answer_calls, functionary)
{
    static const struct sample samples[] = {
        {"all\nHello >> >>> all.\n", "C[Hello >> >>> all.\n]"},
        {"get_weather\n{\"city\": \"a >>>all\\n\"}",
         "B[get_weather]A[{\"city\": \"a >>>all\\n\"}]E"},
        {"all\nI look.\n>>>get_weather\n{\"city\": \"Paris\"}>>>ping\n{}\n>>>all\nDone.",
         "C[I look.]B[get_weather]A[{\"city\": \"Paris\"}]EB[ping]A[{}]EC[\nDone.]"},
        {"all\nOne \n>>>all\nTwo", "C[One \nTwo]"},
        {"ping\n>>>search\n {\"query\": \"x\"}", "B[ping]A[{}]EB[search]A[{\"query\": \"x\"}]E"},
        {"all\nHm.>>>ping\n ", "C[Hm.]B[ping]A[{}]E"},
        /* Who is addressed must be known, and be called. */
        {"nobody\n{}", "C[nobody\n{}]"},
        {"all\nx>>>nobody\n{}", "C[x>>>nobody\n{}]"},
        {"ping", "C[ping]"},
        {"ping\npong", "C[ping\npong]"},
        {"ping {}", "C[ping {}]"},
        {" \nall in all", "C[ \nall in all]"},
        {"x all\n", "C[x all\n]"},
        {"ping\n{\"a\": x}>>>all\nHm.", "B[ping]A[{\"a\": ]X[ping\n{\"a\": ]C[x}Hm.]"},
        {"<tool_call>{\"name\": \"ping\"}</tool_call>", "B[ping]A[{}]E"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_FUNCTIONARY), false, samples);
}

/* What functions are offered decides what functionary's lines mean, and nothing else is held. */
static const char *functionary_reads(const struct tool_set *tools, bool continues,
                                     const char *const *parts)
{
    static const struct answer_style style = {.tools = TOOLS_FUNCTIONARY};
    static struct transcript t;
    static char result[512];
    transcript_free(&t);
    const struct answer_parser_options o = {.style = &style,
                                            .tools = tools,
                                            .continues = continues,
                                            .piece = transcript_add,
                                            .context = &t};
    struct answer_parser *p = answer_parser_new(&o);
    struct strbuf out = STRBUF_INIT;
    CHECK(p);
    for (; *parts; parts++) {
        answer_parser_add(p, *parts, strlen(*parts));
        strbuf_addf(&out, "%s|", strbuf_str(&t.text));
        transcript_free(&t);
    }
    answer_parser_end(p);
    answer_parser_free(p);
    snprintf(result, sizeof result, "%s%s", strbuf_str(&out), strbuf_str(&t.text));
    strbuf_free(&out);
    return result;
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* What an answer to a request with these tools has. */
static const char *answer_of(enum tool_format format, const char *tools, const char *answer,
                             size_t len)
{
    static char result[400];
    struct arena arena = ARENA_INIT;
    struct error err;
    struct transcript t = {0};
    struct tool_set *set = tool_set_new(json_parse(&arena, tools, strlen(tools), &err));
    const struct answer_style style = {.tools = format};
    struct answer_parser *p = answer_parser_new(&(struct answer_parser_options){
        .style = &style, .tools = set, .piece = transcript_add, .context = &t});
    CHECK(p && set);
    answer_parser_add(p, answer, len);
    answer_parser_end(p);
    snprintf(result, sizeof result, "%.*s", (int)sizeof result - 1, strbuf_str(&t.text));
    answer_parser_free(p);
    transcript_free(&t);
    tool_set_free(set);
    arena_free(&arena);
    return result;
}

/* Another function that may take any parameter could be meant, too. */
TEST(answer_calls, kimi_counter_and_functions_that_take_any_parameter)
{
#define DELETE                                                                                     \
    "{\"type\": \"function\", \"function\": {\"name\": \"delete\", \"parameters\": {\"type\": "    \
    "\"object\", \"properties\": {\"id\": {}}}}}"
#define OTHER(parameters)                                                                          \
    "[{\"type\": \"function\", \"function\": {\"name\": \"query\"" parameters "}}, " DELETE "]"
    static const char answer[] =
        "<|tool_call_begin|>0<|tool_call_argument_begin|>{\"id\": 1}<|tool_call_end|>";
    static const struct {
        const char *tools;
        bool is_known;
    } cases[] = {
        {OTHER(""), true},
        {OTHER(", \"parameters\": {\"type\": \"object\", \"properties\": {}}"), true},
        {OTHER(", \"parameters\": {\"type\": \"object\", \"properties\": {\"x\": {}}, "
               "\"additionalProperties\": false}"),
         true},
        {OTHER(", \"parameters\": {\"type\": \"object\"}"), false},
        {OTHER(", \"parameters\": {\"properties\": {}, \"additionalProperties\": {}}"), false},
        {OTHER(", \"parameters\": {\"properties\": {}, \"$ref\": \"#/x\"}"), false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_STR(answer_of(TOOLS_KIMI, cases[i].tools, answer, sizeof answer - 1),
                  cases[i].is_known ? "B[delete]A[{\"id\": 1}]E"
                                    : "C[<|tool_call_begin|>0<|tool_call_argument_begin|>"
                                      "{\"id\": 1}<|tool_call_end|>]");
}

/* A cut-off call is not one without arguments, if the function requires some. */
TEST(answer_calls, functionary_cut_off_before_the_arguments)
{
#define FUNCTION(parameters)                                                                       \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": " parameters "}}]"
    static const char answer[] = "f\n";
    CHECK_STR(answer_of(TOOLS_FUNCTIONARY, FUNCTION("{\"required\": []}"), answer, 2),
              "B[f]A[{}]E");
    CHECK_STR(answer_of(TOOLS_FUNCTIONARY, FUNCTION("{\"required\": [\"a\"]}"), answer, 2),
              "C[f\n]");
}

static void pieces_count(void *context, enum answer_piece piece, const char *text, size_t len)
{
    (void)piece, (void)text, (void)len;
    ++*(int *)context;
}

/* Each would be searched up to the answer's end, which takes minutes. */
TEST(answer_calls, many_calls_without_an_end_are_one_text)
{
    enum { N = 20000 };
    static const char part[] = "<function=f><parameter=arguments>";
    struct strbuf text = STRBUF_INIT;
    for (int i = 0; i < N; i++)
        strbuf_adds(&text, part);
    struct arena arena = ARENA_INIT;
    static const char tools[] = FUNCTION("{\"properties\": {\"a\": {}}}");
    struct tool_set *set = tool_set_new(json_parse(&arena, tools, sizeof tools - 1, NULL));
    const struct answer_style style = {.tools = TOOLS_QWEN_CODER};
    int n_pieces = 0;
    struct answer_parser *p = answer_parser_new(&(struct answer_parser_options){
        .style = &style, .tools = set, .piece = pieces_count, .context = &n_pieces});
    CHECK(p && set);
    answer_parser_add(p, text.data, text.len);
    answer_parser_end(p);
    CHECK(n_pieces > 1 && n_pieces < 200);
    answer_parser_free(p);
    tool_set_free(set);
    arena_free(&arena);
    strbuf_free(&text);
}

TEST(answer_calls, functionary_without_functions_and_with_python)
{
    static const char text[] = "[{\"type\": \"function\", \"function\": {\"name\": \"python\"}}]";
    struct arena arena = ARENA_INIT;
    struct error err;
    struct tool_set *set = tool_set_new(json_parse(&arena, text, sizeof text - 1, &err));
    CHECK_STR(functionary_reads(NULL, false, PARTS("a", "ll\nHi", ">>>", " x")),
              "|C[Hi]||C[>>> x]|");
    CHECK_STR(functionary_reads(NULL, false, PARTS("H", "i")), "C[H]|C[i]|");
    CHECK_STR(functionary_reads(set, false, PARTS("p", "e", "ar")), "|C[pe]|C[ar]|");
    /* A continued text does not begin with a line for anybody. */
    CHECK_STR(functionary_reads(set, true, PARTS("all\n", "python\n{}")),
              "C[all]|C[\npython\n{}]|");
    CHECK_STR(functionary_reads(set, true, PARTS(" x>>>", "python\n{}")), "C[ x]|B[python]A[{}]E|");
    CHECK_STR(functionary_reads(set, false, PARTS("python\n{\"code\": \"1\"}")),
              "B[python]A[{\"code\": \"1\"}]E|");
    /* Code as it is, up to the next part. */
    CHECK_STR(
        functionary_reads(set, false, PARTS("python\n  ", "x = \"1\">", ">2\n", ">>>", "all\nOk")),
        "|B[python]A[{\"code\": \"  x = \\\"1\\\"]|A[>>2\\n]||A[\"}]EC[Ok]|");
    CHECK_STR(functionary_reads(set, false, PARTS("python\nf(1)>>>", "p")),
              "B[python]A[{\"code\": \"f(1)]||A[>>>p\"}]E");
    CHECK_STR(functionary_reads(set, false, PARTS("python\n{ ", "1:2}[1]")),
              "|B[python]A[{\"code\": \"{ 1:2}[1]]|A[\"}]E");
    CHECK_STR(functionary_reads(set, false, PARTS("python\n{ ", "}>>>all\nx")),
              "|B[python]A[{ }]EC[x]|");
    CHECK_STR(functionary_reads(set, false, PARTS("python\n")), "|B[python]A[{}]E");
    CHECK_STR(functionary_reads(set, false, PARTS("python\n>>", "> 1+1")),
              "|B[python]A[{\"code\": \">>> 1+1]|A[\"}]E");
    CHECK_STR(functionary_reads(set, false, PARTS("python\n>>>", "all\nx")),
              "|B[python]A[{}]EC[x]|");
    static const char answer[] =
        "all\nHm.>>>python\n\tx >>= 1 >>>>>all\ny\n>>>python\n\\\"é>>>python\n{ 1}>>>python\n{ }";
    const struct answer_style style = {.tools = TOOLS_FUNCTIONARY};
    const struct answer_parser_options o = {.style = &style, .tools = set};
    uint64_t seed = 1;
    for (size_t len = 0; len < sizeof answer; len++)
        answer_check_cuts(&o, answer, len, 50, &seed);
    tool_set_free(set);
    arena_free(&arena);
}

TEST(answer_calls, json)
{
    static const struct sample samples[] = {
        {"{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}}",
         "B[search]A[{\"query\": \"x\"}]E"},
        {" [{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}}, {\"name\": \"ping\", "
         "\"arguments\": {}}]\n",
         "B[search]A[{\"query\": \"x\"}]EB[ping]A[{}]E"},
        {"```json\n{\"name\": \"ping\", \"arguments\": {}}\n```", "B[ping]A[{}]E"},
        {"```\n{\"name\": \"ping\", \"arguments\": {}}\n```\n```json\n{\"arguments\": {}, "
         "\"name\": \"ping\"}\n```\nok",
         "B[ping]A[{}]EB[ping]A[{}]EC[ok]"},
        {"Ok.[TOOL_CALLS][{\"name\": \"ping\", \"arguments\": {}}]", "C[Ok.]B[ping]A[{}]E"},
        {"```json\n{\"a\": 1}\n```", "C[```json\n{\"a\": 1}\n```]"},
        {"{\"name\": \"Bob\", \"arguments\": {}}", "C[{\"name\": \"Bob\", \"arguments\": {}}]"},
        {"{}", "C[{}]"},
        {"x {\"name\": \"ping\", \"arguments\": {}}",
         "C[x {\"name\": \"ping\", \"arguments\": {}}]"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_JSON), false, samples);
}

/* Families that write parameters between their own tags. */
TEST(answer_calls, other_tags)
{
    static const struct sample minicpm[] = {
        {"I look.\n<function name=\"get_weather\"><param name=\"city\">Paris</param></function>",
         "C[I look.]B[get_weather]A[{\"city\": \"Paris\"}]E"},
        {"<function name=\"search\"><param name=\"query\"><![CDATA[a </param> & ]] b]]></param>"
         "</function><function name=\"ping\"></function>",
         "B[search]A[{\"query\": \"a </param> & ]] b\"}]EB[ping]A[{}]E"},
        {"<function name=\"ping\"/>", "B[ping]A[{}]E"},
        {"<functionname=\"search\"><paramname=\"query\">x</param></function>",
         "B[search]A[{\"query\": \"x\"}]E"},
        {"<function name=\"nobody\"></function>", "C[<function name=\"nobody\"></function>]"},
    };
    static const struct sample step[] = {
        {"<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
         "<steptml:invoke name=\"get_weather\"><steptml:parameter name=\"city\">Oslo"
         "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_call_begin｜>function"
         "<｜tool_sep｜><steptml:invoke name=\"ping\"></steptml:invoke><｜tool_call_end｜>"
         "<｜tool_calls_end｜>",
         "B[get_weather]A[{\"city\": \"Oslo\"}]EB[ping]A[{}]E"},
    };
    static const struct sample dsml[] = {
        {"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"ping\"/>\n<｜DSML｜invoke "
         "name=\"search\">{\"query\": \"x\"}</｜DSML｜invoke>\n</｜DSML｜function_calls>",
         "B[ping]A[{}]EB[search]A[{\"query\": \"x\"}]E"},
        /* All arguments in one parameter; a mark that contradicts the schema. */
        {"<｜DSML｜invoke name=\"search\"><｜DSML｜parameter name=\"arguments\" string=\"false\">"
         "{\"query\": \"x\"}</｜DSML｜parameter></｜DSML｜invoke>",
         "B[search]A[{\"query\": \"x\"}]E"},
        {"<｜DSML｜invoke name=\"search\"><｜DSML｜parameter name=\"input\" string=\"true\">x y"
         "</｜DSML｜parameter></｜DSML｜invoke>",
         "B[search]A[{\"input\": \"x y\"}]E"},
        {"<｜DSML｜invoke name=\"get_weather\"><｜DSML｜parameter name=\"days\" string=\"true\">5"
         "</｜DSML｜parameter><｜DSML｜parameter name=\"city\" string=\"false\">null"
         "</｜DSML｜parameter></｜DSML｜invoke>",
         "B[get_weather]A[{\"days\": 5, \"city\": \"null\"}]E"},
    };
    static const struct sample hunyuan[] = {
        {"<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Bonn"
         "</arg_value>\n</tool_call>\n<tool_call>ping<tool_sep>\n</tool_call>\n</tool_calls>",
         "B[get_weather]A[{\"city\": \"Bonn\"}]EB[ping]A[{}]E"},
        {"<tool_calls:opensource>\n<tool_call:opensource>ping<tool_sep:opensource>\n"
         "</tool_call:opensource>\n</tool_calls:opensource>",
         "B[ping]A[{}]E"},
    };
    static const struct sample dots[] = {
        {"<dots_function_call><invoke name=\"search\"><parameter name=\"query\">x</parameter>"
         "</invoke><invoke name=\"ping\"></invoke></dots_function_call>",
         "B[search]A[{\"query\": \"x\"}]EB[ping]A[{}]E"},
        {"<dots_function_call>{\"name\": \"ping\", \"arguments\": {}}</dots_function_call>",
         "B[ping]A[{}]E"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_QWEN_CODER), false, minicpm);
    CHECK_SAMPLES(STYLE(.tools = TOOLS_DEEPSEEK), false, step);
    CHECK_SAMPLES(STYLE(.tools = TOOLS_DEEPSEEK), false, dsml);
    CHECK_SAMPLES(STYLE(.tools = TOOLS_GLM), false, hunyuan);
    CHECK_SAMPLES(STYLE(.tools = TOOLS_MINIMAX), false, dots);
}

TEST(answer_calls, olmo_and_solar)
{
    static const struct sample olmo[] = {
        {"<function_calls>get_weather(city=\"Rome\")\nping()</function_calls>",
         "B[get_weather]A[{\"city\": \"Rome\"}]EB[ping]A[{}]E"},
        {"<function_calls></function_calls>", "C[<function_calls></function_calls>]"},
    };
    static const struct sample solar[] = {
        {"<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>search<|tool_call:args|>{\"query\": "
         "\"x\"}<|tool_call:end|><|tool_call:begin|>b2<|tool_call:name|>ping<|tool_call:args|>{}"
         "<|tool_call:end|><|calls|>",
         "B[search]A[{\"query\": \"x\"}]EB[ping]A[{}]E"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_GEMMA_CODE), false, olmo);
    CHECK_SAMPLES(STYLE(.tools = TOOLS_HERMES), false, solar);
}

#define K3_CALL(name) "<|open|>call tool=\"" name "\" index=\"1\"<|sep|>"
#define K3_END        "<|close|>call<|sep|>"

TEST(answer_calls, kimi_k3)
{
    static const struct sample samples[] = {
        {"<|open|>response<|sep|>Hi <b>.<|close|>response<|sep|><|close|>message<|sep|>",
         "C[Hi <b>.]"},
        {"<|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|>" K3_CALL(
             "get_weather") "<|open|>argument key=\"city\" type=\"string\"<|sep|>Paris"
                            "<|close|>argument<|sep|><|open|>argument key=\"days\" "
                            "type=\"number\"<|sep|>5<|close|>argument<|sep|>" K3_END K3_CALL("ping")
                                K3_END "<|close|>tools<|sep|>",
         "C[I look.]B[get_weather]A[{\"city\": \"Paris\", \"days\": 5}]EB[ping]A[{}]E"},
        {K3_CALL("ping") "<|open|>argument key=\"a&amp;&quot;b&\" type=\"number\"<|sep|>1"
                         "<|close|>argument<|sep|>" K3_END,
         "B[ping]A[{\"a&\\\"b&\": 1}]E"},
        {"<|open|>tools<|sep|>" K3_CALL("search") "<|open|>json type=\"object\"<|sep|>{\"query\": "
                                                  "\"x\"}<|close|>json<|sep|>" K3_END,
         "B[search]A[{\"query\": \"x\"}]E"},
    };
    CHECK_SAMPLES(STYLE(.tools = TOOLS_KIMI3), false, samples);
}
