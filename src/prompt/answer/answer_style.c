/* Detects a model's format from its template, then from its vocabulary. Runs once, at load.
 *
 * The order of the checks matters. Templates mention several markers (Hermes' <tool_call> also
 * appears in Qwen-Coder's and GLM's), and the rarer one decides. */
#include "prompt/answer/answer_style.h"

#include <string.h>

#include "prompt/answer/answer_internal.h"

static const char *const names[TOOL_FORMATS] = {
    [TOOLS_HERMES] = "hermes",
    [TOOLS_QWEN_CODER] = "qwen-coder",
    [TOOLS_LLAMA3] = "llama3",
    [TOOLS_MISTRAL] = "mistral",
    [TOOLS_GEMMA_CODE] = "gemma-code",
    [TOOLS_GEMMA] = "gemma",
    [TOOLS_DEEPSEEK] = "deepseek",
    [TOOLS_GLM] = "glm",
    [TOOLS_KIMI] = "kimi",
    [TOOLS_KIMI3] = "kimi-k3",
    [TOOLS_MINIMAX] = "minimax",
    [TOOLS_HARMONY] = "harmony",
    [TOOLS_FUNCTIONARY] = "functionary",
    [TOOLS_JSON] = "json",
};

const char *tool_format_name(enum tool_format format)
{
    return (unsigned)format < TOOL_FORMATS ? names[format] : NULL;
}

bool tool_format_find(const char *name, enum tool_format *out)
{
    for (unsigned i = 0; i < TOOL_FORMATS; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (enum tool_format)i;
            return true;
        }
    return false;
}

/* The format of a template with these two words that matches no row above. */
static const struct {
    const char *word, *other; /* NULL: one word is enough */
    enum tool_format format;
} template_hints[] = {
    {"<|channel|>", "<|message|>", TOOLS_HARMONY},
    {"<|tool_calls_section_begin|>", NULL, TOOLS_KIMI},
    {"'<|open|>'", "'<|close|>'", TOOLS_KIMI3},
    {"<minimax:tool_call>", NULL, TOOLS_MINIMAX},
    {M3_MARK, NULL, TOOLS_MINIMAX},
    {"<arg_key>", NULL, TOOLS_GLM},
    {"'<arg_key{}>'", NULL, TOOLS_GLM}, /* Hunyuan 3 */
    {"<function name=", "<param name=", TOOLS_QWEN_CODER},
    {"<dots_function_call>", NULL, TOOLS_MINIMAX},
    {"<steptml:invoke", NULL, TOOLS_DEEPSEEK},
    {"<function=", "<parameter=", TOOLS_QWEN_CODER},
    {"｜DSML｜", NULL, TOOLS_DEEPSEEK},
    {"<｜tool▁calls▁begin｜>", NULL, TOOLS_DEEPSEEK},
    {"[TOOL_CALLS]", NULL, TOOLS_MISTRAL},
    {"<start_function_call>", NULL, TOOLS_GEMMA},
    {"<|tool_call>", NULL, TOOLS_GEMMA},
    {"<tool_call>", NULL, TOOLS_HERMES},
    {"<tool_calls>", NULL, TOOLS_HERMES},
    {"<|tool_call|>", NULL, TOOLS_HERMES},
    {"<TOOLCALL>", NULL, TOOLS_HERMES},
    {"<|START_ACTION|>", NULL, TOOLS_HERMES},
    {"functools", NULL, TOOLS_HERMES},
    {"<function_call>", NULL, TOOLS_HERMES},
    {"<|function_call|>", NULL, TOOLS_HERMES},
    {"<|action_start|>", NULL, TOOLS_HERMES},
    {"<longcat_tool_call>", NULL, TOOLS_HERMES},
    {"'function call'", "<|role_sep|>", TOOLS_HERMES},
    {"<|tools_prefix|>", NULL, TOOLS_HERMES},
    {"<|tool_call:begin|>", NULL, TOOLS_HERMES},
    {"<function_calls>", NULL, TOOLS_GEMMA_CODE},
    {">>>${recipient}", "'>>>all\\n'", TOOLS_FUNCTIONARY},
    {"<|python_tag|>", NULL, TOOLS_LLAMA3},
    {"<|python_start|>", NULL, TOOLS_LLAMA3},
    {"<function=", NULL, TOOLS_LLAMA3},
    {"\"parameters\": dictionary of argument name", NULL, TOOLS_LLAMA3},
    {"[func_name1(", "<|start_header_id|>", TOOLS_LLAMA3},
    {"[func_name1(", "<|header_start|>", TOOLS_LLAMA3},
    {"tool_code", NULL, TOOLS_GEMMA_CODE},
    {"[func_name1(", NULL, TOOLS_GEMMA_CODE},
    {"<|tool_call_start|>", NULL, TOOLS_GEMMA_CODE},
    {"{{- \"[\" }}", "tool_calls", TOOLS_JSON},
};

/* Tokens that only models of the format have. */
static const struct {
    const char *token;
    enum tool_format format;
} vocabulary_hints[] = {
    {"<|constrain|>", TOOLS_HARMONY},
    {"<|tool_calls_section_begin|>", TOOLS_KIMI},
    {"<minimax:tool_call>", TOOLS_MINIMAX},
    {M3_MARK, TOOLS_MINIMAX},
    {"<arg_key>", TOOLS_GLM},
    {"<｜tool▁calls▁begin｜>", TOOLS_DEEPSEEK},
    {"[TOOL_CALLS]", TOOLS_MISTRAL},
    {"<start_function_call>", TOOLS_GEMMA},
    {"<|tool_call>", TOOLS_GEMMA},
    {"<tool_call>", TOOLS_HERMES},
    {"<|python_tag|>", TOOLS_LLAMA3},
    {"<|tool_call_start|>", TOOLS_GEMMA_CODE},
    {"<tool_sep>", TOOLS_GLM},
    {"<tool_sep:opensource>", TOOLS_GLM},
    {"<dots_function_call>", TOOLS_MINIMAX},
};

static const struct {
    const char *begin, *end;
    bool token; /* in a vocabulary, both are tokens only of models that think */
} thoughts[] = {
    {"[THINK]", "[/THINK]", true},
    {"<|channel>thought", "<channel|>", false},
    {"<seed:think>", "</seed:think>", true},
    {"<mm:think>", "</mm:think>", true},
    {"<|START_THINKING|>", "<|END_THINKING|>", true},
    {"◁think▷", "◁/think▷", true},
    {"<|inner_prefix|>", "<|inner_suffix|>", false},
    {"<thinking>", "</thinking>", false},
    {"<think:opensource>", "</think:opensource>", true},
    {"<think>", "</think>", true},
    {"<thought>", "</thought>", false},
};

enum { N_THOUGHTS = sizeof thoughts / sizeof thoughts[0] };

static bool contains(const char *source, size_t len, const char *word)
{
    return !word || (source && memmem(source, len, word, strlen(word)));
}

static bool has_token(const struct tokenizer *t, const char *spelling)
{
    return t && tokenizer_find(t, spelling, strlen(spelling)) >= 0;
}

static enum tool_format find_tools(const char *source, size_t len, const struct tokenizer *t)
{
    for (size_t i = 0; i < sizeof template_hints / sizeof template_hints[0]; i++)
        if (contains(source, len, template_hints[i].word) &&
            contains(source, len, template_hints[i].other))
            return template_hints[i].format;
    for (size_t i = 0; i < sizeof vocabulary_hints / sizeof vocabulary_hints[0]; i++)
        if (has_token(t, vocabulary_hints[i].token))
            return vocabulary_hints[i].format;
    return TOOLS_HERMES;
}

/* The row of `thoughts` that the model uses, or N_THOUGHTS. Some templates contain only the end
 * marker, to remove the thinking from earlier answers. */
static size_t find_thoughts(const char *source, size_t len, const struct tokenizer *t)
{
    for (size_t i = 0; i < N_THOUGHTS; i++)
        if (source &&
            (contains(source, len, thoughts[i].begin) || contains(source, len, thoughts[i].end)))
            return i;
    for (size_t i = 0; i < N_THOUGHTS; i++)
        if (thoughts[i].token && has_token(t, thoughts[i].begin) && has_token(t, thoughts[i].end))
            return i;
    return N_THOUGHTS;
}

void answer_style_find(struct answer_style *out, const char *source, size_t len,
                       const struct tokenizer *t)
{
    size_t thought = find_thoughts(source, len, t);
    *out = (struct answer_style){.tools = find_tools(source, len, t)};
    if (out->tools == TOOLS_HARMONY) {
        out->think_begin = "<|channel|>analysis<|message|>";
        out->think_end = "<|end|>";
    } else if (out->tools == TOOLS_KIMI3) { /* its template assembles them */
        out->think_begin = "<|open|>think<|sep|>";
        out->think_end = "<|close|>think<|sep|>";
    } else if (thought < N_THOUGHTS) {
        out->think_begin = thoughts[thought].begin;
        out->think_end = thoughts[thought].end;
    }
}

/* A mark may consist of several tokens, the first of which is a control token. */
static bool begins_with(const char *mark, const char *spelling, size_t len)
{
    return mark && len && strncmp(mark, spelling, len) == 0;
}

bool answer_style_is_marker(const struct answer_style *s, const char *spelling, size_t len)
{
    if (begins_with(s->think_begin, spelling, len) || begins_with(s->think_end, spelling, len))
        return true;
    for (const struct call_marker *m = format_markers(s->tools); m->text; m++)
        if (begins_with(m->text, spelling, len))
            return true;
    return false;
}
