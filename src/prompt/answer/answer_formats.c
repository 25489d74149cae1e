/* The markers of each format: what starts a call, which reader takes over there, and what ends it.
 * A marker starts a call only if its reader finds one after it, so an extra marker does no harm.
 * Every format except harmony includes Hermes' marker, because models whose template does not
 * support tools are asked to use it. */
#include "prompt/answer/answer_internal.h"

#define BEGIN(text_, reader_)                                                                      \
    {                                                                                              \
        .text = text_, .place = MARKER_ANYWHERE, .reader = reader_                                 \
    }
#define AT_START(text_, reader_)                                                                   \
    {                                                                                              \
        .text = text_, .place = MARKER_AT_START, .reader = reader_                                 \
    }
#define FIRST(reader_)                                                                             \
    {                                                                                              \
        .text = "", .place = MARKER_FIRST, .reader = reader_                                       \
    }
#define XML(text_, form_)                                                                          \
    {                                                                                              \
        .text = text_, .place = MARKER_ANYWHERE, .reader = read_xml_call, .form = &form_           \
    }
#define XML_AT_NAME(text_, form_)                                                                  \
    {                                                                                              \
        .text = text_, .place = MARKER_ANYWHERE, .reader = read_xml_call, .state = XML_NAME,       \
        .form = &form_                                                                             \
    }
#define TAGGED(text_, form_)                                                                       \
    {                                                                                              \
        .text = text_, .place = MARKER_ANYWHERE, .reader = read_tagged_call, .form = &form_        \
    }
#define AFTER(text_)                                                                               \
    {                                                                                              \
        .text = text_, .place = MARKER_AFTER_CALL                                                  \
    }
#define INSIDE(text_)                                                                              \
    {                                                                                              \
        .text = text_, .place = MARKER_INSIDE                                                      \
    }
#define DROPPED(text_)                                                                             \
    {                                                                                              \
        .text = text_, .place = MARKER_DROPPED                                                     \
    }
#define BEGINS_MESSAGE(text_)                                                                      \
    {                                                                                              \
        .text = text_, .place = MARKER_BEGINS_MESSAGE                                              \
    }
#define ENDS_MESSAGE(text_)                                                                        \
    {                                                                                              \
        .text = text_, .place = MARKER_ENDS_MESSAGE                                                \
    }
#define HERMES TAGGED("<tool_call>", xml_qwen), AFTER("</tool_call>")
#define THE_END                                                                                    \
    {                                                                                              \
        .text = NULL                                                                               \
    }

/* Objects between tags, which families other than Hermes and Qwen spell differently: Granite,
 * Nemotron, Command, Phi and Firefunction, Hunyuan A13B and Apriel, GigaChat, InternLM, LongCat,
 * Apertus, Solar. */
static const struct call_marker hermes[] = {
    HERMES,
    AFTER("}"),
    BEGIN("<tool_calls>", read_json_calls),
    AFTER("</tool_calls>"),
    BEGIN("<|tool_call|>", read_json_calls),
    BEGIN("<TOOLCALL>", read_json_calls),
    AFTER("</TOOLCALL>"),
    BEGIN("<|START_ACTION|>", read_json_calls),
    AFTER("<|END_ACTION|>"),
    BEGIN("functools", read_json_calls),
    BEGIN("<function_call>", read_json_calls),
    AFTER("</function_call>"),
    BEGIN("<|function_call|>", read_json_calls),
    BEGIN("<longcat_tool_call>", read_json_calls),
    AFTER("</longcat_tool_call>"),
    BEGIN("function call<|role_sep|>", read_json_calls),
    BEGIN("<|message_sep|>\n\nfunction call<|role_sep|>", read_json_calls),
    AFTER("<|message_sep|>"),
    INSIDE("<|role_sep|>"),
    BEGIN("<|tools_prefix|>", read_keyed_calls),
    AFTER("<|tools_suffix|>"),
    BEGIN("<|tool_calls|><|tool_call:begin|>", read_solar_call),
    BEGIN("<|tool_call:begin|>", read_solar_call),
    INSIDE("<|tool_call:name|>"),
    INSIDE("<|tool_call:args|>"),
    AFTER("<|tool_call:end|>"),
    AFTER("<|calls|>"),
    BEGIN("<|action_start|><|plugin|>", read_json_calls),
    INSIDE("<|plugin|>"),
    AFTER("<|action_end|>"),
    THE_END,
};
static const struct call_marker qwen_coder[] = {
    HERMES,
    XML_AT_NAME("<function=", xml_qwen),
    AFTER("</function>"),
    XML("<seed:tool_call>", xml_qwen),
    AFTER("</seed:tool_call>"),
    INSIDE("<parameter="),
    INSIDE("</parameter>"),
    XML_AT_NAME("<function name=\"", xml_minicpm),
    XML_AT_NAME("<functionname=\"", xml_minicpm),
    INSIDE("<param"),
    INSIDE("</param>"),
    THE_END,
};
static const struct call_marker llama3[] = {
    AFTER(";"),
    AFTER(","),
    AT_START("{", read_json_calls),
    AT_START("[", read_list),
    BEGIN("<|python_tag|>", read_python_tag),
    BEGIN("<function=", read_function_json),
    AFTER("</function>"),
    BEGIN("<|python_start|>", read_python_tag),
    AFTER("<|python_end|>"),
    HERMES,
    THE_END,
};
static const struct call_marker mistral[] = {
    BEGIN("[TOOL_CALLS]", read_mistral_calls),
    INSIDE("[ARGS]"),
    INSIDE("[CALL_ID]"),
    HERMES,
    THE_END,
};
static const struct call_marker gemma_code[] = {
    BEGIN("```tool_code", read_python_calls),
    AFTER("```"),
    AT_START("[", read_list),
    BEGIN("<|tool_call_start|>", read_python_tag),
    AFTER("<|tool_call_end|>"),
    BEGIN("<function_calls>", read_python_calls),
    AFTER("</function_calls>"),
    HERMES,
    THE_END,
};
static const struct call_marker gemma[] = {
    BEGIN("<start_function_call>", read_gemma_call),
    AFTER("<end_function_call>"),
    AFTER("<start_function_response>"),
    BEGIN("<|tool_call>", read_gemma_call),
    AFTER("<tool_call|>"),
    AFTER("<|tool_response>"),
    INSIDE("<escape>"),
    INSIDE("<|\"|>"),
    HERMES,
    THE_END,
};
static const struct call_marker deepseek[] = {
    BEGIN("<｜tool▁calls▁begin｜>", read_deepseek_call),
    BEGIN("<｜tool▁call▁begin｜>", read_deepseek_call),
    AFTER("```"),
    AFTER("<｜tool▁call▁end｜>"),
    AFTER("<｜tool▁calls▁end｜>"),
    INSIDE("<｜tool▁sep｜>"),
    XML("<｜DSML｜function_calls>", xml_dsml),
    AFTER("</｜DSML｜function_calls>"),
    XML("<｜DSML｜tool_calls>", xml_dsml),
    AFTER("</｜DSML｜tool_calls>"),
    XML_AT_NAME("<｜DSML｜invoke name=\"", xml_dsml),
    AFTER("</｜DSML｜invoke>"),
    INSIDE("｜DSML｜"),
    XML("<｜tool_calls_begin｜>", xml_step),
    XML("<｜tool_call_begin｜>", xml_step),
    AFTER("<｜tool_call_end｜>"),
    AFTER("<｜tool_sep｜>"),
    AFTER("<｜tool_calls_end｜>"),
    HERMES,
    THE_END,
};
static const struct call_marker glm[] = {
    TAGGED("<tool_call>", xml_glm),
    AFTER("</tool_call>"),
    XML("<tool_calls>", xml_hunyuan),
    AFTER("</tool_calls>"),
    XML("<tool_calls:opensource>", xml_hunyuan_open),
    TAGGED("<tool_call:opensource>", xml_hunyuan_open),
    AFTER("</tool_call:opensource>"),
    AFTER("</tool_calls:opensource>"),
    INSIDE("<tool_sep"),
    INSIDE("<arg_key:opensource>"),
    INSIDE("</arg_key:opensource>"),
    INSIDE("<arg_value:opensource>"),
    INSIDE("</arg_value:opensource>"),
    INSIDE("<arg_key>"),
    INSIDE("</arg_key>"),
    INSIDE("<arg_value>"),
    INSIDE("</arg_value>"),
    THE_END,
};
static const struct call_marker kimi[] = {
    BEGIN("<|tool_calls_section_begin|>", read_kimi_call),
    BEGIN("<|tool_call_begin|>", read_kimi_call),
    INSIDE("<|tool_call_argument_begin|>"),
    AFTER("<|tool_call_end|>"),
    AFTER("<|tool_calls_section_end|>"),
    HERMES,
    THE_END,
};
static const struct call_marker kimi3[] = {
    XML("<|open|>tools<|sep|>", xml_kimi3),
    XML_AT_NAME("<|open|>call tool=\"", xml_kimi3),
    AFTER("<|close|>json<|sep|>"),
    AFTER("<|close|>call<|sep|>"),
    AFTER("<|close|>tools<|sep|>"),
    DROPPED("<|open|>response<|sep|>"),
    DROPPED("<|close|>response<|sep|>"),
    DROPPED("<|close|>message<|sep|>"),
    INSIDE("<|sep|>"),
    HERMES,
    THE_END,
};
static const struct call_marker minimax[] = {
    XML("<minimax:tool_call>", xml_minimax),
    AFTER("</minimax:tool_call>"),
    XML_AT_NAME("<invoke name=\"", xml_minimax),
    AFTER("</invoke>"),
    XML(M3_MARK "<tool_call>", xml_minimax3),
    AFTER(M3_MARK "</tool_call>"),
    XML_AT_NAME(M3_MARK "<invoke name=\"", xml_minimax3),
    AFTER(M3_MARK "</invoke>"),
    INSIDE(M3_MARK),
    TAGGED("<dots_function_call>", xml_minimax),
    AFTER("</dots_function_call>"),
    HERMES,
    THE_END,
};
static const struct call_marker harmony[] = {
    BEGINS_MESSAGE("<|channel|>"), INSIDE("<|message|>"),
    BEGINS_MESSAGE("<|start|>"),   ENDS_MESSAGE("<|end|>"),
    ENDS_MESSAGE("<|call|>"),      INSIDE("<|constrain|>"),
    ENDS_MESSAGE("<|return|>"),    THE_END,
};
static const struct call_marker functionary[] = {
    FIRST(read_functionary_part),
    BEGIN(FUNCTIONARY_MARK, read_functionary_part),
    HERMES,
    THE_END,
};
static const struct call_marker json[] = {
    AFTER("```"),
    AFTER(","),
    AT_START("{", read_json_calls),
    AT_START("[", read_json_calls),
    AT_START("```json", read_json_calls),
    AT_START("```", read_json_calls),
    BEGIN("[TOOL_CALLS]", read_mistral_calls), /* xLAM has models that began as Mistral's */
    HERMES,
    THE_END,
};

const struct call_marker *format_markers(enum tool_format format)
{
    static const struct call_marker *const formats[TOOL_FORMATS] = {
        [TOOLS_HERMES] = hermes,
        [TOOLS_QWEN_CODER] = qwen_coder,
        [TOOLS_LLAMA3] = llama3,
        [TOOLS_MISTRAL] = mistral,
        [TOOLS_GEMMA_CODE] = gemma_code,
        [TOOLS_GEMMA] = gemma,
        [TOOLS_DEEPSEEK] = deepseek,
        [TOOLS_GLM] = glm,
        [TOOLS_KIMI] = kimi,
        [TOOLS_KIMI3] = kimi3,
        [TOOLS_MINIMAX] = minimax,
        [TOOLS_HARMONY] = harmony,
        [TOOLS_FUNCTIONARY] = functionary,
        [TOOLS_JSON] = json,
    };
    return formats[format];
}
