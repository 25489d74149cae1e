#ifndef RADISH_PROMPT_ANSWER_ANSWER_STYLE_H
#define RADISH_PROMPT_ANSWER_ANSWER_STYLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prompt/tokenizer/tokenizer.h"

/* prompt/answer/ knows how models write thinking and calls: it recognizes, parses, writes and
 * enforces them. */

/* How a model writes thinking and function calls. Detected once, at load, from its template and
 * vocabulary, or named by the user. */
enum tool_format {
    TOOLS_HERMES,      /* <tool_call>{"name": .., "arguments": {..}}</tool_call>: Qwen too */
    TOOLS_QWEN_CODER,  /* <tool_call><function=name><parameter=x>text</parameter></function> .. */
    TOOLS_LLAMA3,      /* {"name": .., "parameters": {..}}, perhaps after <|python_tag|> */
    TOOLS_MISTRAL,     /* [TOOL_CALLS][{..}, {..}], or [TOOL_CALLS]name[ARGS]{..} */
    TOOLS_GEMMA_CODE,  /* ```tool_code with a Python call */
    TOOLS_GEMMA,       /* its newer form: <start_function_call>call:name{..}<end_function_call> */
    TOOLS_DEEPSEEK,    /* <｜tool▁calls▁begin｜> .. */
    TOOLS_GLM,         /* <tool_call>name<arg_key>x</arg_key><arg_value>1</arg_value></tool_call> */
    TOOLS_KIMI,        /* <|tool_calls_section_begin|> .. */
    TOOLS_KIMI3,       /* <|open|>tools<|sep|><|open|>call tool="name" index="1"<|sep|> .. */
    TOOLS_MINIMAX,     /* <minimax:tool_call><invoke name="..">.. */
    TOOLS_HARMONY,     /* gpt-oss: <|channel|>commentary to=functions.name .. */
    TOOLS_FUNCTIONARY, /* name and {..} on lines of their own, the next after >>> */
    TOOLS_JSON,        /* {"name": .., "arguments": {..}} and nothing else */
    TOOL_FORMATS
};

/* "hermes", "qwen-coder", "llama3", ...; NULL past the last. */
const char *tool_format_name(enum tool_format format);
bool tool_format_find(const char *name, enum tool_format *out);

struct answer_style {
    enum tool_format tools;
    const char *think_begin, *think_end; /* markers; NULL: the model does not think */
};

/* `source` is the template's text (NULL: none). */
void answer_style_find(struct answer_style *out, const char *source, size_t len,
                       const struct tokenizer *t);

/* True for control tokens that are markers of the style. Unlike other control tokens they are part
 * of the answer's raw text, where the parser looks for them. */
bool answer_style_is_marker(const struct answer_style *s, const char *spelling, size_t len);

#endif
