/* The forms in which models write calls, and which of them a template uses. Read-only tables: any
 * thread. If nothing is known about the template, a format's first form is used.
 *
 * The white space here must be that of the models' own templates: a call that is rendered again
 * must give the sampled bytes. */
#include "prompt/answer/call_form.h"

#include <string.h>

#include "prompt/answer/answer_internal.h"

#define THE_END                                                                                    \
    {                                                                                              \
        .first = NULL                                                                              \
    }

static const struct call_form hermes_forms[] = {
    {
        .trigger = "<tool_call>",
        .first = "<tool_call>\n{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .between = "}\n</tool_call>\n<tool_call>\n{\"name\": \"",
        .last = "}\n</tool_call>",
    },
    {
        /* Apriel */
        .trigger = "<tool_calls>",
        .first = "<tool_calls>[{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .between = "}, {\"name\": \"",
        .last = "}]</tool_calls>",
    },
    {
        /* MiniMax-M1 */
        .trigger = "<tool_calls>",
        .first = "<tool_calls>\n{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .between = "}\n{\"name\": \"",
        .last = "}\n</tool_calls>",
    },
    {
        /* LongCat */
        .token = "<longcat_tool_call>",
        .trigger = "<longcat_tool_call>",
        .first = "<longcat_tool_call>\n{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .between = "}\n</longcat_tool_call>\n<longcat_tool_call>\n{\"name\": \"",
        .last = "}\n</longcat_tool_call>",
    },
    {
        /* GigaChat 3 */
        .token = "<|message_sep|>",
        .trigger = "<|message_sep|>\n\nfunction call",
        .first = "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .last = "}",
    },
    {
        /* GigaChat 3.1 */
        .token = "<|function_call|>",
        .trigger = "<|function_call|>",
        .first = "<|function_call|>{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .last = "}",
    },
    {
        /* Apertus */
        .token = "<|tools_prefix|>",
        .trigger = "<|tools_prefix|>",
        .first = "<|tools_prefix|>[{\"",
        .middle = "\": ",
        .between = "}, {\"",
        .last = "}]<|tools_suffix|>",
    },
    {
        /* Solar: the id is any text */
        .token = "<|tool_call:begin|>",
        .trigger = "<|tool_calls|>",
        .first = "<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>",
        .middle = "<|tool_call:args|>",
        .between = "<|tool_call:end|><|tool_call:begin|>1<|tool_call:name|>",
        .last = "<|tool_call:end|><|calls|>",
    },
    {
        /* InternLM */
        .token = "<|action_start|>",
        .trigger = "<|action_start|><|plugin|>",
        .first = "<|action_start|><|plugin|>\n{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .between = "}<|action_end|><|action_start|><|plugin|>\n{\"name\": \"",
        .last = "}<|action_end|>",
    },
    {
        /* Granite 20B */
        .trigger = "<function_call>",
        .first = "<function_call> {\"name\": \"",
        .middle = "\", \"arguments\": ",
        .last = "}",
    },
    {
        /* Granite 3 */
        .token = "<|tool_call|>",
        .trigger = "<|tool_call|>",
        .first = "<|tool_call|>[{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .between = "}, {\"name\": \"",
        .last = "}]",
    },
    {
        /* Command R7B */
        .token = "<|START_ACTION|>",
        .trigger = "<|START_ACTION|>",
        .first = "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"",
        .middle = "\", \"parameters\": ",
        .last = "}\n]<|END_ACTION|>",
    },
    {
        /* Nemotron */
        .token = "<TOOLCALL>",
        .trigger = "<TOOLCALL>",
        .first = "<TOOLCALL>[{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .between = "}, {\"name\": \"",
        .last = "}]</TOOLCALL>",
    },
    THE_END,
};

static const struct call_form qwen_coder_forms[] = {
    {
        .trigger = "<tool_call>",
        .first = "<tool_call>\n<function=",
        .middle = ">\n",
        .between = "</function>\n</tool_call>\n<tool_call>\n<function=",
        .last = "</function>\n</tool_call>",
        .arguments = CALL_TAGGED,
        .key_begin = "<parameter=",
        .key_end = ">\n",
        .value_end = "\n</parameter>\n",
    },
    {
        /* Seed */
        .token = "<seed:tool_call>",
        .trigger = "<seed:tool_call>",
        .first = "<seed:tool_call>\n<function=",
        .middle = ">\n",
        .between = "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=",
        .last = "</function>\n</seed:tool_call>",
        .arguments = CALL_TAGGED,
        .key_begin = "<parameter=",
        .key_end = ">",
        .value_end = "</parameter>\n",
    },
    {
        /* MiniCPM 5 */
        .trigger = "<function name=",
        .first = "<function name=\"",
        .middle = "\">",
        .between = "</function><function name=\"",
        .last = "</function>",
        .arguments = CALL_TAGGED,
        .key_begin = "<param name=\"",
        .key_end = "\">",
        .value_end = "</param>",
    },
    THE_END,
};

static const struct call_form llama3_forms[] = {
    {
        .first = "{\"name\": \"",
        .middle = "\", \"parameters\": ",
        .between = "}; {\"name\": \"",
        .last = "}",
    },
    {
        /* Llama 3.2 and 4, ToolACE */
        .first = "[",
        .middle = "(",
        .between = "), ",
        .last = ")]",
        .arguments = CALL_PYTHON,
    },
    {
        /* Functionary */
        .trigger = "<function=",
        .first = "<function=",
        .middle = ">",
        .last = "</function>",
    },
    THE_END,
};

static const struct call_form mistral_forms[] = {
    {
        .trigger = "[TOOL_CALLS]",
        .first = "[TOOL_CALLS][{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .between = "}, {\"name\": \"",
        .last = "}]",
    },
    {
        .token = "[ARGS]",
        .trigger = "[TOOL_CALLS]",
        .first = "[TOOL_CALLS]",
        .middle = "[ARGS]",
        .between = "[TOOL_CALLS]",
        .last = "",
    },
    THE_END,
};

static const struct call_form gemma_code_forms[] = {
    {
        .trigger = "```tool_code",
        .first = "```tool_code\n",
        .middle = "(",
        .between = ")\n",
        .last = ")\n```",
        .arguments = CALL_PYTHON,
    },
    {
        .first = "[",
        .middle = "(",
        .between = "), ",
        .last = ")]",
        .arguments = CALL_PYTHON,
    },
    {
        /* LFM2 */
        .token = "<|tool_call_start|>",
        .trigger = "<|tool_call_start|>",
        .first = "<|tool_call_start|>[",
        .middle = "(",
        .between = "), ",
        .last = ")]<|tool_call_end|>",
        .arguments = CALL_PYTHON,
    },
    {
        /* OLMo 3 */
        .trigger = "<function_calls>",
        .first = "<function_calls>",
        .middle = "(",
        .between = ")\n",
        .last = ")</function_calls>",
        .arguments = CALL_PYTHON,
    },
    THE_END,
};

static const struct call_form gemma_forms[] = {
    {
        .trigger = "<start_function_call>",
        .first = "<start_function_call>call:",
        .middle = "{",
        .between = "}<end_function_call><start_function_call>call:",
        .last = "}<end_function_call>",
        .arguments = CALL_ESCAPED,
        .quote = "<escape>",
    },
    {
        .token = "<|tool_call>",
        .trigger = "<|tool_call>",
        .first = "<|tool_call>call:",
        .middle = "{",
        .between = "}<tool_call|><|tool_call>call:",
        .last = "}<tool_call|>",
        .arguments = CALL_ESCAPED,
        .quote = "<|\"|>",
    },
    THE_END,
};

#define STEP_BEGIN "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\""
#define STEP_END   "</steptml:invoke><｜tool_call_end｜>"

static const struct call_form deepseek_forms[] = {
    {
        .trigger = "<｜tool▁calls▁begin｜>",
        .first = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        .middle = "\n```json\n",
        .between = "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        .last = "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    },
    {
        .trigger = "<｜tool▁calls▁begin｜>",
        .first = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
        .middle = "<｜tool▁sep｜>",
        .between = "<｜tool▁call▁end｜><｜tool▁call▁begin｜>",
        .last = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    },
    {
        .trigger = "<｜DSML｜function_calls>",
        .first = "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"",
        .middle = "\">\n",
        .between = "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"",
        .last = "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        .arguments = CALL_TAGGED,
        .key_begin = "<｜DSML｜parameter name=\"",
        .key_end = "\" string=\"false\">",
        .string_key_end = "\" string=\"true\">",
        .value_end = "</｜DSML｜parameter>\n",
    },
    {
        .trigger = "<｜DSML｜tool_calls>",
        .first = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"",
        .middle = "\">\n",
        .between = "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"",
        .last = "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        .arguments = CALL_TAGGED,
        .key_begin = "<｜DSML｜parameter name=\"",
        .key_end = "\" string=\"false\">",
        .string_key_end = "\" string=\"true\">",
        .value_end = "</｜DSML｜parameter>\n",
    },
    {
        /* Step 3 */
        .trigger = "<｜tool_calls_begin｜>",
        .first = "<｜tool_calls_begin｜>" STEP_BEGIN,
        .middle = "\">",
        .between = STEP_END STEP_BEGIN,
        .last = STEP_END "<｜tool_calls_end｜>",
        .arguments = CALL_TAGGED,
        .key_begin = "<steptml:parameter name=\"",
        .key_end = "\">",
        .value_end = "</steptml:parameter>",
    },
    THE_END,
};

#define HUNYUAN(suffix)                                                                            \
    {                                                                                              \
        .token = "<tool_sep" suffix ">", .trigger = "<tool_calls" suffix ">",                      \
        .first = "<tool_calls" suffix ">\n<tool_call" suffix ">",                                  \
        .middle = "<tool_sep" suffix ">\n",                                                        \
        .between = "</tool_call" suffix ">\n<tool_call" suffix ">",                                \
        .last = "</tool_call" suffix ">\n</tool_calls" suffix ">", .arguments = CALL_TAGGED,       \
        .key_begin = "<arg_key" suffix ">",                                                        \
        .key_end = "</arg_key" suffix ">\n<arg_value" suffix ">",                                  \
        .value_end = "</arg_value" suffix ">\n",                                                   \
    }

static const struct call_form glm_forms[] = {
    {
        .trigger = "<tool_call>",
        .first = "<tool_call>",
        .middle = "\n",
        .between = "</tool_call>\n<tool_call>",
        .last = "</tool_call>",
        .arguments = CALL_TAGGED,
        .key_begin = "<arg_key>",
        .key_end = "</arg_key>\n<arg_value>",
        .value_end = "</arg_value>\n",
    },
    {
        .trigger = "<tool_call>",
        .first = "<tool_call>",
        .middle = "",
        .between = "</tool_call><tool_call>",
        .last = "</tool_call>",
        .arguments = CALL_TAGGED,
        .key_begin = "<arg_key>",
        .key_end = "</arg_key><arg_value>",
        .value_end = "</arg_value>",
    },
    HUNYUAN(""),
    HUNYUAN(":opensource"),
    THE_END,
};

static const struct call_form kimi_forms[] = {
    {
        .trigger = "<|tool_calls_section_begin|>",
        .first = "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
        .middle = "<|tool_call_argument_begin|>",
        .between = "<|tool_call_end|><|tool_call_begin|>functions.",
        .last = "<|tool_call_end|><|tool_calls_section_end|>",
        .is_numbered = true,
    },
    THE_END,
};

static const struct call_form kimi3_forms[] = {
    {
        .trigger = "<|open|>tools<|sep|>",
        .first = "<|open|>tools<|sep|><|open|>call tool=\"",
        .middle = "\" index=\"1\"<|sep|>",
        .between = "<|close|>call<|sep|><|open|>call tool=\"",
        .last = "<|close|>call<|sep|><|close|>tools<|sep|>",
        .arguments = CALL_TAGGED,
        .key_begin = "<|open|>argument key=\"",
        .key_end = "\" type=\"",
        .typed_key_end = "\"<|sep|>",
        .value_end = "<|close|>argument<|sep|>",
    },
    THE_END,
};

static const struct call_form minimax_forms[] = {
    {
        .trigger = "<minimax:tool_call>",
        .first = "<minimax:tool_call>\n<invoke name=\"",
        .middle = "\">\n",
        .between = "</invoke>\n<invoke name=\"",
        .last = "</invoke>\n</minimax:tool_call>",
        .arguments = CALL_TAGGED,
        .key_begin = "<parameter name=\"",
        .key_end = "\">",
        .value_end = "</parameter>\n",
    },
    {
        /* MiniMax-M3 */
        .token = M3_MARK,
        .trigger = M3_MARK "<tool_call>",
        .first = M3_MARK "<tool_call>\n" M3_MARK "<invoke name=\"",
        .middle = "\">",
        .between = M3_MARK "</invoke>" M3_MARK "<invoke name=\"",
        .last = M3_MARK "</invoke>\n" M3_MARK "</tool_call>",
        .arguments = CALL_TAGGED,
        .key_begin = M3_MARK "<",
        .key_end = ">",
        .value_end = M3_MARK "</",
        .value_close = ">",
        .raw_end = "<]minimax[>[",
    },
    {
        /* dots */
        .token = "<dots_function_call>",
        .trigger = "<dots_function_call>",
        .first = "<dots_function_call>\n<invoke name=\"",
        .middle = "\">\n",
        .between = "</invoke>\n<invoke name=\"",
        .last = "</invoke>\n</dots_function_call>",
        .arguments = CALL_TAGGED,
        .key_begin = "<parameter name=\"",
        .key_end = "\">",
        .value_end = "</parameter>\n",
    },
    THE_END,
};

static const struct call_form harmony_forms[] = {
    {
        .trigger = "<|channel|>commentary to=functions.",
        .first = "<|channel|>commentary to=functions.",
        .middle = " <|constrain|>json<|message|>",
        .last = "",
    },
    THE_END,
};

static const struct call_form functionary_forms[] = {
    {
        .first = "", /* the generation prompt ends in >>> */
        .middle = "\n",
        .between = FUNCTIONARY_MARK,
        .last = "",
    },
    THE_END,
};

static const struct call_form json_forms[] = {
    {
        .first = "{\"name\": \"",
        .middle = "\", \"arguments\": ",
        .last = "}",
    },
    THE_END,
};

static const struct call_form *const forms[TOOL_FORMATS] = {
    [TOOLS_HERMES] = hermes_forms,
    [TOOLS_QWEN_CODER] = qwen_coder_forms,
    [TOOLS_LLAMA3] = llama3_forms,
    [TOOLS_MISTRAL] = mistral_forms,
    [TOOLS_GEMMA_CODE] = gemma_code_forms,
    [TOOLS_GEMMA] = gemma_forms,
    [TOOLS_DEEPSEEK] = deepseek_forms,
    [TOOLS_GLM] = glm_forms,
    [TOOLS_KIMI] = kimi_forms,
    [TOOLS_KIMI3] = kimi3_forms,
    [TOOLS_MINIMAX] = minimax_forms,
    [TOOLS_HARMONY] = harmony_forms,
    [TOOLS_FUNCTIONARY] = functionary_forms,
    [TOOLS_JSON] = json_forms,
};

bool equal_but_space(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (answer_is_space(*a))
            a++;
        while (answer_is_space(*b))
            b++;
        if (*a != *b || !*a)
            return *a == *b;
    }
}

/* True if the template has the form's text between name and arguments. Some templates write ids
 * before it. */
static bool middle_fits(const struct call_form *f, const struct template_traits *t)
{
    struct strbuf own = STRBUF_INIT;
    strbuf_adds(&own, f->middle);
    if (f->arguments == CALL_TAGGED)
        strbuf_adds(&own, f->key_begin);
    bool fits = !own.failed && own.len <= t->middle.len &&
                memcmp(t->middle.data + t->middle.len - own.len, own.data, own.len) == 0;
    strbuf_free(&own);
    return fits;
}

/* The form that fits best; NULL: none does. One middle may end with another, so the longest wins.
 */
static const struct call_form *best_form(enum tool_format format, const struct template_traits *t,
                                         bool by_first)
{
    const struct call_form *best = NULL;
    for (const struct call_form *f = forms[format]; f->first; f++) {
        bool fits = middle_fits(f, t) &&
                    (!by_first || equal_but_space(strbuf_str(&t->first), f->first));
        if (fits && (!best || strlen(f->middle) > strlen(best->middle)))
            best = f;
    }
    return best;
}

const struct call_form *call_form_find(enum tool_format format,
                                       const struct template_traits *traits)
{
    const struct call_form *best = NULL;
    if (traits && traits->middle.len) {
        best = best_form(format, traits, true);
        if (!best)
            best = best_form(format, traits, false);
    }
    return best ? best : forms[format];
}

int template_traits_complete(struct template_traits *t, const struct answer_style *style,
                             const struct tokenizer *tokenizer, struct error *err)
{
    if (t->middle.len)
        return 0;
    const struct call_form *f = forms[style->tools];
    while (f->first && !(f->token && tokenizer_find(tokenizer, f->token, strlen(f->token)) >= 0))
        f++;
    if (!f->first)
        return 0;
    strbuf_clear(&t->first);
    strbuf_adds(&t->first, f->first);
    strbuf_adds(&t->middle, f->middle);
    if (f->arguments == CALL_TAGGED)
        strbuf_adds(&t->middle, f->key_begin);
    return t->first.failed || t->middle.failed
               ? error_set(err, ERROR_MEMORY, "no memory for a form of calls")
               : 0;
}
