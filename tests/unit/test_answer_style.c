/* Formats detected from templates, real ones if available, and from vocabularies. */
#include "prompt/answer/answer_style.h"

#include "base/json.h"
#include "test.h"
#include "test_tokenizer_model.h"

TEST(answer_style, names)
{
    enum tool_format format = TOOL_FORMATS;
    for (unsigned i = 0; i < TOOL_FORMATS; i++) {
        CHECK(tool_format_name((enum tool_format)i));
        CHECK(tool_format_find(tool_format_name((enum tool_format)i), &format));
        CHECK_INT(format, i);
    }
    CHECK(tool_format_name(TOOL_FORMATS) == NULL);
    CHECK(!tool_format_find("Hermes", &format));
    CHECK(!tool_format_find("", &format));
    CHECK_STR(tool_format_name(TOOLS_GEMMA_CODE), "gemma-code");
}

/* Templates of the shared data whose name contains a word, and their expected formats. */
static const struct {
    const char *name;
    enum tool_format format;
    const char *think_begin;
} families[] = {
    {"Qwen-Qwen2.5", TOOLS_HERMES, NULL},
    {"Qwen-Qwen3-0.6B", TOOLS_HERMES, "<think>"},
    {"Qwen-QwQ", TOOLS_HERMES, "<think>"},
    {"library/qwen2.5:0.5b", TOOLS_HERMES, NULL},
    {"Hermes-2-Pro", TOOLS_HERMES, NULL},
    {"mistral.rs/chat_templates/smollm3", TOOLS_HERMES, "<think>"},
    {"granite-4.0", TOOLS_HERMES, NULL},
    {"Nemotron-Nano-v2", TOOLS_HERMES, "<think>"},
    {"tool_chat_template_phi4_mini", TOOLS_HERMES, NULL},
    {"Apertus-8B", TOOLS_HERMES, "<|inner_prefix|>"},
    {"GigaChat3", TOOLS_HERMES, NULL},
    {"Solar-Open", TOOLS_HERMES, NULL},
    {"MiniMax-M1", TOOLS_HERMES, NULL},
    {"MiniCPM5", TOOLS_QWEN_CODER, "<think>"},
    {"Apriel-1.6", TOOLS_HERMES, "<thinking>"},
    {"command-r7b", TOOLS_HERMES, "<|START_THINKING|>"},
    {"exaone-deep", TOOLS_HERMES, "<thought>"},
    {"library/gemma3", TOOLS_HERMES, NULL},
    {"smollm-135m", TOOLS_HERMES, NULL},
    {"Qwen3-Coder", TOOLS_QWEN_CODER, NULL},
    {"qwen3coder", TOOLS_QWEN_CODER, NULL},
    {"library/qwen3-coder", TOOLS_QWEN_CODER, NULL},
    {"Qwen3.5", TOOLS_QWEN_CODER, "<think>"},
    {"Nemotron-3", TOOLS_QWEN_CODER, "<think>"},
    {"Seed-OSS", TOOLS_QWEN_CODER, "<seed:think>"},
    {"Llama-3.1-8B-Instruct", TOOLS_LLAMA3, NULL},
    {"Llama-3.2-3B-Instruct", TOOLS_LLAMA3, NULL},
    {"llama3.1_json", TOOLS_LLAMA3, NULL},
    {"llama3.2_pythonic", TOOLS_LLAMA3, NULL},
    {"llama4", TOOLS_LLAMA3, NULL},
    {"functionary-medium-v3.1", TOOLS_LLAMA3, NULL},
    {"functionary-medium-v3.2", TOOLS_FUNCTIONARY, NULL},
    {"Mistral-Nemo", TOOLS_MISTRAL, NULL},
    {"Mistral-Small-3.2", TOOLS_MISTRAL, NULL},
    {"Devstral", TOOLS_MISTRAL, NULL},
    {"Ministral-3", TOOLS_MISTRAL, "[THINK]"},
    {"gemma3_pythonic", TOOLS_GEMMA_CODE, NULL},
    {"LFM2.5-8B", TOOLS_GEMMA_CODE, "<think>"},
    {"functiongemma", TOOLS_GEMMA, NULL},
    {"gemma-4", TOOLS_GEMMA, "<|channel>thought"},
    {"gemma4", TOOLS_GEMMA, "<|channel>thought"},
    {"DeepSeek-R1", TOOLS_DEEPSEEK, "<think>"},
    {"DeepSeek-V3.1", TOOLS_DEEPSEEK, "<think>"},
    {"DeepSeek-V3.2", TOOLS_DEEPSEEK, "<think>"},
    {"DeepSeek-V4", TOOLS_DEEPSEEK, "<think>"},
    {"deepseekv3.jinja", TOOLS_DEEPSEEK, NULL},
    {"deepseek-r1", TOOLS_DEEPSEEK, "<think>"},
    {"GLM-4", TOOLS_GLM, "<think>"},
    {"Laguna", TOOLS_GLM, "<think>"},
    {"tencent-Hy3", TOOLS_GLM, NULL},
    {"tool_chat_template_glm4", TOOLS_GLM, NULL},
    {"Kimi-K3", TOOLS_KIMI3, "<|open|>think<|sep|>"},
    {"Kimi-K2-Instruct", TOOLS_KIMI, NULL},
    {"Kimi-K2-Thinking", TOOLS_KIMI, "<think>"},
    {"MiniMax-M2", TOOLS_MINIMAX, "<think>"},
    {"MiniMax-M3", TOOLS_MINIMAX, "<mm:think>"},
    {"gpt-oss", TOOLS_HARMONY, "<|channel|>analysis<|message|>"},
    {"xlam", TOOLS_JSON, NULL},
};

enum { N_FAMILIES = sizeof families / sizeof families[0] };

static void check_template(const struct json *row, size_t *n_formats, bool *seen)
{
    const struct json *name = json_get(row, "name"), *text = json_get(row, "template");
    struct answer_style style;
    answer_style_find(&style, text->text, text->text_len, NULL);
    n_formats[style.tools]++;
    CHECK(!style.think_begin == !style.think_end);
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (!strstr(name->text, families[i].name))
            continue;
        seen[i] = true;
        if (style.tools != families[i].format)
            test_fail(__FILE__, __LINE__, "%s: %s", name->text, tool_format_name(style.tools));
        CHECK_STR(style.think_begin ? style.think_begin : "none",
                  families[i].think_begin ? families[i].think_begin : "none");
    }
}

TEST(answer_style, of_real_templates)
{
    static const size_t want[TOOL_FORMATS] = {
        [TOOLS_HERMES] = 144,    [TOOLS_QWEN_CODER] = 11, [TOOLS_LLAMA3] = 15,
        [TOOLS_MISTRAL] = 9,     [TOOLS_GEMMA_CODE] = 2,  [TOOLS_GEMMA] = 6,
        [TOOLS_DEEPSEEK] = 22,   [TOOLS_GLM] = 8,         [TOOLS_KIMI] = 3,
        [TOOLS_KIMI3] = 1,       [TOOLS_MINIMAX] = 2,     [TOOLS_HARMONY] = 1,
        [TOOLS_FUNCTIONARY] = 1, [TOOLS_JSON] = 3,
    };
    size_t n_formats[TOOL_FORMATS] = {0};
    bool seen[N_FAMILIES] = {false};
    const char *path = test_shared_path("data/templates/generated_templates.jsonl");
    if (!path)
        SKIP("no shared templates");
    FILE *file = fopen(path, "rb");
    CHECK(file);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t len;
    while ((len = getline(&line, &capacity, file)) > 0) {
        struct arena arena = ARENA_INIT;
        struct error err;
        const struct json *row = json_parse(&arena, line, (size_t)len, &err);
        CHECK(row);
        check_template(row, n_formats, seen);
        arena_free(&arena);
    }
    free(line);
    fclose(file);
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (!seen[i])
            test_fail(__FILE__, __LINE__, "no template of %s", families[i].name);
    for (unsigned i = 0; i < TOOL_FORMATS; i++)
        if (n_formats[i] != want[i])
            test_fail(__FILE__, __LINE__, "%zu templates of %s, expected %zu", n_formats[i],
                      tool_format_name((enum tool_format)i), want[i]);
}

static struct answer_style style_of_tokens(const char *source, const char *const *tokens)
{
    char path[512];
    struct vocab v = {.model = "gpt2", .pre = "gpt-2"};
    struct tokenizer *t = NULL;
    struct error err;
    struct answer_style style;
    vocab_bytes(&v);
    for (size_t i = 0; tokens[i]; i++)
        vocab_token(&v, tokens[i], 3);
    snprintf(path, sizeof path, "%s/style.gguf", test_scratch_dir());
    if (vocab_open(&v, path, &t, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    answer_style_find(&style, source, source ? strlen(source) : 0, t);
    tokenizer_close(t);
    return style;
}

TEST(answer_style, of_vocabularies)
{
    static const struct {
        const char *token;
        enum tool_format format;
    } tokens[] = {{"<tool_call>", TOOLS_HERMES},
                  {"[TOOL_CALLS]", TOOLS_MISTRAL},
                  {"<|python_tag|>", TOOLS_LLAMA3},
                  {"<｜tool▁calls▁begin｜>", TOOLS_DEEPSEEK},
                  {"<|tool_calls_section_begin|>", TOOLS_KIMI},
                  {"<start_function_call>", TOOLS_GEMMA},
                  {"<|constrain|>", TOOLS_HARMONY},
                  {"<|im_start|>", TOOLS_HERMES}};
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        const char *const list[] = {tokens[i].token, NULL};
        CHECK_INT(style_of_tokens(NULL, list).tools, tokens[i].format);
        CHECK_INT(style_of_tokens("{{ messages }}", list).tools, tokens[i].format);
        CHECK_INT(style_of_tokens("<arg_key>", list).tools, TOOLS_GLM);
    }
    struct answer_style style = style_of_tokens(NULL,
                                                (const char *const[]){"<think>", "</think>", NULL});
    CHECK_STR(style.think_begin, "<think>");
    CHECK_STR(style.think_end, "</think>");
    CHECK(style_of_tokens(NULL, (const char *const[]){"<think>", NULL}).think_begin == NULL);
    style = style_of_tokens(NULL, (const char *const[]){"◁think▷", "◁/think▷", NULL});
    CHECK_STR(style.think_begin, "◁think▷");
}

TEST(answer_style, of_nothing)
{
    struct answer_style style;
    answer_style_find(&style, NULL, 0, NULL);
    CHECK_INT(style.tools, TOOLS_HERMES);
    CHECK(!style.think_begin && !style.think_end);
    /* Some templates have only the end of the thinking. */
    answer_style_find(&style, "content.split('</think>')[-1]", 29, NULL);
    CHECK_STR(style.think_begin, "<think>");
    answer_style_find(&style, "<tool_call>", 5, NULL); /* not all of it is the template */
    CHECK_INT(style.tools, TOOLS_HERMES);
}

static bool is_marker(enum tool_format format, const char *spelling)
{
    const struct answer_style style = {
        .tools = format, .think_begin = "<|channel>thought", .think_end = "<channel|>"};
    return answer_style_is_marker(&style, spelling, strlen(spelling));
}

TEST(answer_style, markers)
{
    CHECK(is_marker(TOOLS_HERMES, "<tool_call>") && is_marker(TOOLS_HERMES, "</tool_call>"));
    CHECK(is_marker(TOOLS_HERMES, "<|channel>") && is_marker(TOOLS_HERMES, "<channel|>"));
    CHECK(is_marker(TOOLS_HERMES, "<|START_ACTION|>") && is_marker(TOOLS_HERMES, "<|plugin|>"));
    CHECK(is_marker(TOOLS_DEEPSEEK, "<｜tool▁sep｜>") && is_marker(TOOLS_DEEPSEEK, "｜DSML｜"));
    CHECK(is_marker(TOOLS_MISTRAL, "[TOOL_CALLS]") && is_marker(TOOLS_MISTRAL, "[ARGS]"));
    CHECK(is_marker(TOOLS_KIMI, "<|tool_call_argument_begin|>"));
    CHECK(is_marker(TOOLS_LLAMA3, "<|python_tag|>"));
    CHECK(is_marker(TOOLS_GEMMA, "<|\"|>") && is_marker(TOOLS_GEMMA, "<escape>"));
    CHECK(is_marker(TOOLS_HARMONY, "<|message|>") && is_marker(TOOLS_HARMONY, "<|call|>"));
    CHECK(!is_marker(TOOLS_HERMES, "<|im_end|>") && !is_marker(TOOLS_HERMES, "[ARGS]"));
    CHECK(!is_marker(TOOLS_HERMES, "<tool_call>x") && !is_marker(TOOLS_HERMES, ""));
    CHECK(!is_marker(TOOLS_LLAMA3, "<|eom_id|>"));
}
