/* The table of request fields. Pure data, for the walk of read.c and for docs/api.md. To
 * serve a new field, add its row: docs and checks follow from it. What a newcomer gets wrong: a
 * field that changes the answer and cannot be honoured is refused, never ignored. */
#include "serve/request/request_internal.h"

#define AT(member) .offset = offsetof(struct request_params, member)

/* clang-format off */
#define SERVED(scope_, name_, kind_, ...)                                                          \
    {.scope = SCOPE_##scope_, .class = FIELD_SERVED, .name = name_, .kind = KIND_##kind_, __VA_ARGS__}
#define INERT(scope_, name_, text_)                                                                \
    {.scope = SCOPE_##scope_, .class = FIELD_INERT, .name = name_, .text = text_}
#define REFUSED(scope_, name_, neutral_, text_)                                                    \
    {.scope = SCOPE_##scope_, .class = FIELD_REFUSED, .name = name_, .neutral = neutral_, .text = text_}

const struct request_field request_fields[] = {
    SERVED(REQUEST, "model", STRING, .read = read_model, .text =
        "Any name is served by the model that is loaded, unless --strict-model."),
    SERVED(REQUEST, "messages", ARRAY, .read = read_messages, .text =
        "The whole conversation; rendered with the model's own chat template."),
    SERVED(REQUEST, "stream", BOOL, AT(stream), .text =
        "Send the answer as server-sent events while it is made."),
    SERVED(REQUEST, "stream_options", OBJECT, .read = read_stream_options, .text =
        "Options of a stream."),
    SERVED(REQUEST, "max_tokens", INT, .read = read_max_tokens, .text =
        "Most tokens to generate; clamped to what the context leaves. Absent or -1: the server's "
        "default, which is the rest of the context."),
    SERVED(REQUEST, "max_completion_tokens", INT, .read = read_max_tokens, .text =
        "The newer name of max_tokens; wins when both are given."),
    SERVED(REQUEST, "n_predict", INT, .read = read_max_tokens, .text =
        "Another name of max_tokens. 0 computes the prompt, so that it is cached, and generates "
        "nothing."),
    SERVED(REQUEST, "n", INT, .min = 1, .max = REQUEST_MAX_CHOICES, AT(n), .text =
        "How many answers; they share the prompt's computation."),
    SERVED(REQUEST, "temperature", NUMBER, .min = 0, .max = 2, AT(sampling.temperature), .text =
        "0 always takes the likeliest token. Default: the server's (`--temp`), else the model's "
        "own, else 0.8. `GET /v1/models` shows the values in effect."),
    SERVED(REQUEST, "top_p", NUMBER, .min = 0, .max = 1, AT(sampling.top_p), .text =
        "Draw from the fewest most likely tokens that reach this share. Default: the server's "
        "(`--top-p`), else the model's own, else 0.95."),
    SERVED(REQUEST, "top_k", INT, .min = -1, .max = FIELD_NO_MAX, AT(top_k), .text =
        "Draw from this many most likely tokens; 0 or -1: all. Default: the server's (`--top-k`), "
        "else the model's own, else 40."),
    SERVED(REQUEST, "min_p", NUMBER, .min = 0, .max = 1, AT(sampling.min_p), .text =
        "Leave out tokens below this share of the most likely one. Default: the server's "
        "(`--min-p`), else the model's own, else 0.05."),
    SERVED(REQUEST, "top_n_sigma", NUMBER, .min = -1, .max = 100, AT(sampling.top_n_sigma), .text =
        "Draw from logits down to so many standard deviations below the best. Default 0: off."),
    SERVED(REQUEST, "typical_p", NUMBER, .min = 0, .max = 1, AT(sampling.typical_p), .text =
        "Draw from the most typical tokens that reach this share. Default 1: off."),
    SERVED(REQUEST, "xtc_probability", NUMBER, .min = 0, .max = 1, AT(sampling.xtc_probability),
        .text = "How often all likely tokens but the least likely of them are left out. Default 0."),
    SERVED(REQUEST, "xtc_threshold", NUMBER, .min = 0, .max = 1, AT(sampling.xtc_threshold), .text =
        "... and the share from which on a token is likely. Default 0.1."),
    SERVED(REQUEST, "dry_multiplier", NUMBER, .min = 0, .max = 100, AT(sampling.dry_multiplier),
        .text = "The strength of the penalty on repeated sequences (DRY). Default 0: off."),
    SERVED(REQUEST, "dry_base", NUMBER, .min = 0, .max = 100, AT(sampling.dry_base), .text =
        "... and how it grows with their length. Default 1.75."),
    SERVED(REQUEST, "dry_allowed_length", INT, .min = 0, .max = FIELD_NO_MAX,
        AT(dry_allowed_length), .text = "... which may be so long without one. Default 2."),
    SERVED(REQUEST, "dry_penalty_last_n", INT, .min = -1, .max = FIELD_NO_MAX,
        AT(dry_penalty_last_n), .text =
        "... how far back it looks: -1, the default, at all, 0 not."),
    SERVED(REQUEST, "dry_sequence_breakers", ARRAY, .read = read_dry_breakers, .text =
        "... and what a repeated sequence does not go across. Default: line feed, :, \", *."),
    SERVED(REQUEST, "repeat_last_n", INT, .min = -1, .max = FIELD_NO_MAX, AT(repeat_last_n),
        .text = "How many of the answer's last tokens penalties look at; -1, the default: all of "
        "them; 0: no repetition penalty."),
    SERVED(REQUEST, "presence_penalty", NUMBER, .min = -2, .max = 2, AT(sampling.presence_penalty),
        .text = "Taken off the logit of each token that the answer already has. Default 0."),
    SERVED(REQUEST, "frequency_penalty", NUMBER, .min = -2, .max = 2,
        AT(sampling.frequency_penalty), .text = "The same, times how often. Default 0."),
    SERVED(REQUEST, "repetition_penalty", NUMBER, .min = 0.01, .max = 10,
        AT(sampling.repetition_penalty), .text =
        "Divides positive and multiplies negative logits of such tokens. Default 1, or the model's "
        "own."),
    SERVED(REQUEST, "repeat_penalty", NUMBER, .min = 0.01, .max = 10,
        AT(sampling.repetition_penalty), .text = "Another name of repetition_penalty."),
    SERVED(REQUEST, "seed", INT, .read = read_seed, .text =
        "Equal requests with equal seeds get equal answers. Absent or -1: a new one each time."),
    SERVED(REQUEST, "stop", ANY, .read = read_stop, .text =
        "A string, or up to 128, before which the answer ends."),
    SERVED(REQUEST, "stop_token_ids", ARRAY, .read = read_stop_tokens, .text =
        "Up to 128 token ids. The answer ends before the first of them that comes."),
    SERVED(REQUEST, "ignore_eos", BOOL, AT(ignore_end), .text =
        "Go on past the model's end tokens, up to max_tokens."),
    SERVED(REQUEST, "cache_prompt", BOOL, AT(cache_prompt), .text =
        "false: neither read the prefix cache nor add to it. Default true."),
    SERVED(REQUEST, "min_tokens", INT, .min = 0, .max = FIELD_NO_MAX, AT(min_tokens), .text =
        "The answer does not end by itself before it has so many tokens."),
    SERVED(REQUEST, "radish", OBJECT, .read = read_radish, .text =
        "Options of radish's own."),
    SERVED(REQUEST, "replay", BOOL, AT(replay), .text =
        "false: earlier answers in `messages` are tokenised like any text, not given the very "
        "tokens that were sampled. Default true."),
    SERVED(REQUEST, "chat_template_kwargs", OBJECT, .read = read_template_kwargs, .text =
        "Variables for the chat template, such as enable_thinking."),
    SERVED(REQUEST, "enable_thinking", BOOL, .read = read_enable_thinking, .text =
        "false: the model does not think before it answers. Handed to the chat template; where "
        "that has no such switch, thinking is ended as soon as it begins. Default: the server's "
        "`--thinking`, else true where the template asks for it."),
    SERVED(REQUEST, "reasoning_effort", STRING, .read = read_reasoning_effort, .text =
        "Handed to the chat template; \"none\" is the same as enable_thinking: false."),
    SERVED(REQUEST, "thinking_budget_tokens", INT, .min = -1, .max = FIELD_NO_MAX,
        AT(thinking_tokens), .text =
        "Most tokens of thinking: then it is ended and the answer begins. -1: no limit."),
    SERVED(REQUEST, "thinking_budget", INT, .min = -1, .max = FIELD_NO_MAX, AT(thinking_tokens),
        .text = "Another name of thinking_budget_tokens."),
    SERVED(REQUEST, "thinking_token_budget", INT, .min = -1, .max = FIELD_NO_MAX,
        AT(thinking_tokens), .text = "Another name of thinking_budget_tokens."),
    SERVED(REQUEST, "thinking", OBJECT, .read = read_thinking, .text =
        "Switches and bounds thinking, as Anthropic's clients write it."),
    SERVED(REQUEST, "reasoning", OBJECT, .read = read_reasoning_options, .text =
        "As reasoning_effort."),
    SERVED(REQUEST, "reasoning_budget", INT, .min = -1, .max = FIELD_NO_MAX, AT(thinking_tokens),
        .text = "Another name of thinking_budget_tokens."),
    SERVED(REQUEST, "continue_final_message", BOOL, .read = read_continue, .text =
        "true: the last message, the assistant's, is the beginning of the answer. So it is by "
        "default when the last message is the assistant's; false begins a new one."),
    SERVED(REQUEST, "add_generation_prompt", BOOL, .read = read_generation_prompt, .text =
        "false goes with continue_final_message, as vLLM's clients write it. true with it is an "
        "error."),

    SERVED(REQUEST, "tools", ARRAY, .read = read_tools, .text =
        "Functions that the answer may call, up to 512. They go into the prompt as the model's "
        "template has it, or else as a system prompt that says how to call them."),
    SERVED(REQUEST, "functions", ARRAY, .read = read_functions, .text =
        "The older form of tools, without `type`. Calls are then answered in the older form too, "
        "as `function_call`, at most one in an answer."),
    SERVED(REQUEST, "function_call", ANY, .read = read_function_call, .text =
        "The older form of tool_choice: none, auto or {\"name\": ...}."),
    SERVED(REQUEST, "tool_choice", ANY, .read = read_tool_choice, .text =
        "none, auto (the default), required, a function or allowed_tools. Enforced: the answer "
        "is held to the form of a call, and arguments to the function's schema."),
    SERVED(REQUEST, "parallel_tool_calls", BOOL, AT(parallel_calls), .text =
        "false: at most one call in an answer. Default true: up to 128. A call that repeats an "
        "earlier one of the answer, with the same name and equal arguments, is left out and ends "
        "the answer."),

    SERVED(REQUEST, "response_format", OBJECT, .read = read_response_format, .text =
        "What the answer's text must be: text, json_object or json_schema."),
    SERVED(REQUEST, "json_schema", ANY, .read = read_schema, .text =
        "The same: a JSON schema, as llama-server takes it."),
    SERVED(REQUEST, "grammar", STRING, .read = read_grammar, .text =
        "The same: a grammar in llama.cpp's GBNF."),
    SERVED(REQUEST, "regex", STRING, .read = read_regex, .text =
        "The same: a regular expression that the whole text matches."),
    SERVED(REQUEST, "structured_outputs", OBJECT, .read = read_structured, .text =
        "The same in vLLM's form."),
    SERVED(REQUEST, "guided_json", ANY, .read = read_schema, .text = "As json_schema."),
    SERVED(REQUEST, "guided_regex", STRING, .read = read_regex, .text = "As regex."),
    SERVED(REQUEST, "guided_grammar", STRING, .read = read_grammar, .text = "As grammar."),
    SERVED(REQUEST, "guided_choice", ARRAY, .read = read_choices, .text =
        "The same: one of these texts."),

    SERVED(REQUEST, "logprobs", BOOL, AT(logprobs), .text =
        "Log probabilities of the answer's tokens: the model's own, before penalties, temperature "
        "and constraints."),
    SERVED(REQUEST, "top_logprobs", INT, .min = 0, .max = 20, AT(top_logprobs), .text =
        "... and of so many most likely tokens at each place. Needs logprobs."),
    SERVED(REQUEST, "n_probs", INT, .min = 0, .max = REQUEST_MAX_TOP_LOGPROBS, AT(n_probs), .text =
        "llama-server's name of logprobs and top_logprobs in one. Default 0: off."),
    SERVED(REQUEST, "samplers", ANY, .read = read_samplers, .text =
        "The samplers to use, by llama-server's names or letters, in their order here: penalties, "
        "dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, infill; temperature comes before typ_p "
        "or last. Those left out are off. Another order is refused. infill ends the text where the "
        "model is not sure how to go on. Default and []: all but infill, with temperature before "
        "top_n_sigma."),
    SERVED(REQUEST, "t_max_predict_ms", INT, .min = -1, .max = FIELD_NO_MAX, AT(t_max_predict_ms),
        .text = "The answer ends at the first line feed that comes later than this after its first "
        "token. Default 0: no limit."),
    SERVED(REQUEST, "n_indent", INT, .min = 0, .max = FIELD_NO_MAX, AT(n_indent), .text =
        "The answer ends at a line that is indented by fewer spaces and tabs; the first line is "
        "not checked. Default 0: off."),
    SERVED(REQUEST, "timings_per_token", BOOL, AT(timings_per_token), .text =
        "true: every chunk of a stream has `timings`. The last one has them in any case."),
    SERVED(REQUEST, "return_progress", BOOL, AT(return_progress), .text =
        "true: a stream reports how much of the prompt is computed, in `prompt_progress`."),
    SERVED(REQUEST, "logit_bias", ANY, .read = read_logit_bias, .text =
        "Added to the logits of tokens: {\"id\": bias}, from -100 (never) to 100. Also "
        "{\"text\": bias} for each token of a text, and a list of pairs, [[id, bias], [\"text\", "
        "bias]]; false as a bias: never. Up to 4,096 tokens."),

    INERT(REQUEST, "user", "A name for the end user."),
    INERT(REQUEST, "safety_identifier", "A name for the end user."),
    INERT(REQUEST, "metadata", "Labels for a dashboard."),
    INERT(REQUEST, "store", "Nothing is stored but the cache."),
    INERT(REQUEST, "service_tier", "There is one tier."),
    INERT(REQUEST, "prompt_cache_key", "The cache finds every shared prefix by itself."),
    INERT(REQUEST, "prompt_cache_retention", "The cache keeps what is used."),
    INERT(REQUEST, "prediction", "A hint for speed that needs none here."),
    INERT(REQUEST, "verbosity", "A hint for other models."),
    INERT(REQUEST, "priority", "First come, first served."),
    INERT(REQUEST, "id_slot", "There are no slots."),
    INERT(REQUEST, "t_max_prompt_ms", "Prompts are always computed to their end."),
    INERT(REQUEST, "n_cache_reuse", "The cache finds every shared prefix by itself."),
    INERT(REQUEST, "n_keep", "Contexts are not shifted."),
    INERT(REQUEST, "n_discard", "Contexts are not shifted."),
    INERT(REQUEST, "min_keep", "No sampler leaves nothing."),
    INERT(REQUEST, "mirostat_tau", "For mirostat, which is not served."),
    INERT(REQUEST, "mirostat_eta", "For mirostat, which is not served."),
    INERT(REQUEST, "dynatemp_exponent", "For dynatemp_range, which is not served."),

    REFUSED(REQUEST, "prompt_logprobs", "0", "Use echo and logprobs of /v1/completions."),
    REFUSED(REQUEST, "modalities", "[] [\"text\"]", "Only text answers are served."),
    REFUSED(REQUEST, "audio", NULL, "Only text answers are served."),
    REFUSED(REQUEST, "web_search_options", NULL, "There is no web search."),
    REFUSED(REQUEST, "documents", "[]", "Documents are not served; put them into a message."),
    REFUSED(REQUEST, "chat_template", NULL, "The template is chosen when the server starts."),
    REFUSED(REQUEST, "best_of", "1", "Only text completions are ranked."),
    REFUSED(REQUEST, "max_output_tokens", NULL, "Use `max_completion_tokens`."),
    REFUSED(REQUEST, "format", "\"\"", "Use `response_format`."),
    REFUSED(REQUEST, "ebnf", "\"\"", "Use `grammar`, in GBNF."),
    REFUSED(REQUEST, "structural_tag", NULL, "Use `grammar`, or `tools`."),
    REFUSED(REQUEST, "allowed_token_ids", "[]", "Use `grammar` or `guided_choice`."),
    REFUSED(REQUEST, "logits_processors", "[]", "Processors are not served."),
    REFUSED(REQUEST, "truncate_prompt_tokens", "0 -1", "Prompts are not cut."),
    REFUSED(REQUEST, "cache_salt", "\"\"", "Tenants with keys have caches of their own."),
    REFUSED(REQUEST, "lora", "[]", "Adapters are not served."),
    REFUSED(REQUEST, "dynatemp_range", "0", "This sampler is not served."),
    REFUSED(REQUEST, "length_penalty", "1", "Beam search is not served."),
    REFUSED(REQUEST, "return_token_ids", "false", "Use `logprobs`."),
    REFUSED(REQUEST, "return_tokens_as_token_ids", "false", "Tokens are shown as text."),
    REFUSED(REQUEST, "include_reasoning", "true", "Use `enable_thinking`."),
    REFUSED(REQUEST, "echo", "false", "Only text completions give the prompt back."),
    REFUSED(REQUEST, "use_beam_search", "false", "Beam search is not served."),
    REFUSED(REQUEST, "include_stop_str_in_output", "false", "Answers end before the stop string."),
    REFUSED(REQUEST, "skip_special_tokens", "true", "Control tokens are not shown, but for those that mark thinking and calls."),
    REFUSED(REQUEST, "bad_words", "[]", "Banned words are not served."),
    REFUSED(REQUEST, "mirostat", "0", "This sampler is not served."),
    REFUSED(REQUEST, "post_sampling_probs", "false",
        "Probabilities are the model's own, before the samplers."),

    SERVED(WARM, "pin", NUMBER, .min = 0, .max = REQUEST_MAX_PIN_S, AT(pin_s), .text =
        "Keep the prompt for so many seconds: it goes only when nothing unpinned is left to go. "
        "Default 0: it is kept like any other."),
    SERVED(WARM, "add_generation_prompt", BOOL, .read = read_generation_prompt, .text =
        "true: warm the beginning of the answer too. Default false, so that what is warmed is a "
        "prefix of longer conversations."),
    REFUSED(WARM, "stream", "false", "The answer is one object."),
    REFUSED(WARM, "cache_prompt", "true", "Filling the cache is what a warming is for."),
    INERT(WARM, "stream_options", "Nothing is generated."),
    INERT(WARM, "max_tokens", "Nothing is generated."),
    INERT(WARM, "max_completion_tokens", "Nothing is generated."),
    INERT(WARM, "n", "Nothing is generated."),
    INERT(WARM, "n_predict", "Nothing is generated."),
    INERT(WARM, "thinking_token_budget", "Nothing is generated."),
    INERT(WARM, "temperature", "Nothing is generated."),
    INERT(WARM, "top_p", "Nothing is generated."),
    INERT(WARM, "top_k", "Nothing is generated."),
    INERT(WARM, "min_p", "Nothing is generated."),
    INERT(WARM, "presence_penalty", "Nothing is generated."),
    INERT(WARM, "frequency_penalty", "Nothing is generated."),
    INERT(WARM, "repetition_penalty", "Nothing is generated."),
    INERT(WARM, "repeat_penalty", "Nothing is generated."),
    INERT(WARM, "seed", "Nothing is generated."),
    INERT(WARM, "stop", "Nothing is generated."),
    INERT(WARM, "ignore_eos", "Nothing is generated."),
    INERT(WARM, "top_n_sigma", "Nothing is generated."),
    INERT(WARM, "repeat_last_n", "Nothing is generated."),
    INERT(WARM, "typical_p", "Nothing is generated."),
    INERT(WARM, "xtc_probability", "Nothing is generated."),
    INERT(WARM, "xtc_threshold", "Nothing is generated."),
    INERT(WARM, "dry_multiplier", "Nothing is generated."),
    INERT(WARM, "dry_base", "Nothing is generated."),
    INERT(WARM, "dry_allowed_length", "Nothing is generated."),
    INERT(WARM, "dry_penalty_last_n", "Nothing is generated."),
    INERT(WARM, "dry_sequence_breakers", "Nothing is generated."),
    INERT(WARM, "logprobs", "Nothing is generated."),
    INERT(WARM, "top_logprobs", "Nothing is generated."),
    INERT(WARM, "logit_bias", "Nothing is generated."),
    INERT(WARM, "min_tokens", "Nothing is generated."),
    INERT(WARM, "response_format", "Nothing is generated."),
    INERT(WARM, "json_schema", "Nothing is generated."),
    INERT(WARM, "grammar", "Nothing is generated."),
    INERT(WARM, "regex", "Nothing is generated."),
    INERT(WARM, "structured_outputs", "Nothing is generated."),
    INERT(WARM, "guided_json", "Nothing is generated."),
    INERT(WARM, "guided_regex", "Nothing is generated."),
    INERT(WARM, "guided_grammar", "Nothing is generated."),
    INERT(WARM, "guided_choice", "Nothing is generated."),
    INERT(WARM, "thinking_budget_tokens", "Nothing is generated."),
    INERT(WARM, "thinking_budget", "Nothing is generated."),
    INERT(WARM, "reasoning_budget", "Nothing is generated."),

    SERVED(RENDER, "add_generation_prompt", BOOL, .read = read_generation_prompt, .text =
        "false: without the beginning of the answer. Default true."),

    SERVED(RADISH, "explain", BOOL, AT(explain), .text =
        "Say in a member `radish` of the answer how much of the prompt was cached, and why not "
        "more. The same as the header `x-radish-explain: true`."),
    SERVED(RADISH, "replay", BOOL, AT(replay), .text = "The same as `replay` of the request."),

    SERVED(STREAM_OPTIONS, "include_usage", BOOL, AT(include_usage), .text =
        "Send a last chunk with the token counts."),
    INERT(STREAM_OPTIONS, "include_obfuscation", "Chunks are not padded."),

    SERVED(MESSAGE, "role", STRING, .read = read_role, .text =
        "system, developer (the same as system), user, assistant, tool or function (the same as "
        "tool)."),
    SERVED(MESSAGE, "content", ANY, .read = read_content, .text =
        "A string, or an array of text parts, which are joined with line feeds. May be left out "
        "beside `tool_calls`."),
    SERVED(MESSAGE, "tool_calls", ARRAY, .read = read_tool_calls, .text =
        "The functions that an earlier answer called."),
    SERVED(MESSAGE, "tool_call_id", STRING, .read = read_tool_call_id, .text =
        "Of role tool: the call that the content is the result of."),
    SERVED(MESSAGE, "reasoning_content", STRING, .read = read_reasoning, .text =
        "An earlier answer's thinking; handed to the chat template, which shows or drops it."),
    SERVED(MESSAGE, "reasoning", STRING, .read = read_reasoning, .text =
        "Another name of reasoning_content."),
    SERVED(MESSAGE, "prefix", BOOL, .read = read_prefix, .text =
        "true, on a last message of the assistant: it is the beginning of the answer."),
    INERT(MESSAGE, "name", "Templates know roles, not names."),
    INERT(MESSAGE, "annotations", "Notes on an earlier answer."),
    INERT(MESSAGE, "id", "A client's own mark."),
    SERVED(MESSAGE, "function_call", OBJECT, .read = read_message_function_call, .text =
        "The older form of tool_calls: one call, with a name and arguments."),
    SERVED(MESSAGE, "refusal", STRING, .read = read_refusal, .text =
        "The words with which an earlier answer refused: its text, if it has no content."),
    REFUSED(MESSAGE, "audio", NULL, "This model does not hear."),

    SERVED(PART, "type", STRING, .read = read_part_type, .text = "text, or refusal."),
    SERVED(PART, "refusal", STRING, .read = read_part_text, .text = "The part's text."),
    SERVED(PART, "text", STRING, .read = read_part_text, .text = "The part's text."),
    INERT(PART, "cache_control", "The cache finds every shared prefix by itself."),

    SERVED(CALL, "id", STRING, .read = read_call_id, .text = "The call's name, for its result."),
    SERVED(CALL, "type", STRING, .read = read_call_type, .text = "function."),
    SERVED(CALL, "function", OBJECT, .read = read_call_function, .text = "What was called."),
    INERT(CALL, "index", "A stream's own mark."),

    SERVED(CALLED, "name", STRING, .read = read_called_name, .text = "The function's name."),
    SERVED(CALLED, "arguments", ANY, .read = read_called_arguments, .text =
        "The text of a JSON object, as the answer had it, or the object itself."),
    INERT(CALLED, "index", "The order of calls is that of the array."),

    SERVED(TOOL, "type", STRING, .read = read_tool_type, .text = "function."),
    SERVED(TOOL, "function", OBJECT, .read = read_tool_function, .text = "The function."),

    SERVED(FUNCTION, "name", STRING, .read = read_function_name, .text =
        "Letters, digits and any of _ - . : /, up to 128."),
    SERVED(FUNCTION, "description", STRING, .read = read_checked, .text =
        "What it does, for the model."),
    SERVED(FUNCTION, "parameters", OBJECT, .read = read_checked, .text =
        "A JSON schema of its arguments. Absent: it takes none."),
    SERVED(FUNCTION, "strict", BOOL, .read = read_checked, .text =
        "true: a schema that cannot be enforced is an error. Without it, what cannot be is passed "
        "over."),

    SERVED(RESPONSE_FORMAT, "type", STRING, .read = read_checked, .text =
        "text, json_object or json_schema."),
    SERVED(RESPONSE_FORMAT, "json_schema", OBJECT, .read = read_format_schema, .text =
        "The schema, with its name."),
    SERVED(RESPONSE_FORMAT, "schema", OBJECT, .read = read_schema, .text =
        "The same without a name, as llama-server takes it; with json_object too."),

    SERVED(JSON_SCHEMA, "schema", OBJECT, .read = read_schema, .text =
        "A JSON schema. Every answer that is not cut off by max_tokens validates against it."),
    INERT(JSON_SCHEMA, "name", "A label."),
    INERT(JSON_SCHEMA, "description", "Put it into a message, if the model should see it."),
    INERT(JSON_SCHEMA, "strict", "Schemas are always enforced."),

    SERVED(STRUCTURED, "json", ANY, .read = read_schema, .text = "As json_schema of the request."),
    SERVED(STRUCTURED, "regex", STRING, .read = read_regex, .text = "As regex of the request."),
    SERVED(STRUCTURED, "choice", ARRAY, .read = read_choices, .text = "As guided_choice."),
    SERVED(STRUCTURED, "grammar", STRING, .read = read_grammar, .text =
        "As grammar of the request."),
    SERVED(STRUCTURED, "json_object", BOOL, .read = read_json_object, .text =
        "true: any JSON object."),
    REFUSED(STRUCTURED, "structural_tag", NULL, "Use `grammar`, or `tools`."),

    SERVED(THINKING, "type", STRING, .read = read_thinking_type, .text = "enabled or disabled."),
    SERVED(THINKING, "budget_tokens", INT, .min = -1, .max = FIELD_NO_MAX, AT(thinking_tokens),
        .text = "As thinking_budget_tokens."),

    SERVED(REASONING, "effort", STRING, .read = read_reasoning_effort, .text =
        "As reasoning_effort."),
    INERT(REASONING, "summary", "Thinking is given as it is."),

    SERVED(TEXT, "prompt", ANY, .read = read_prompt, .text =
        "A text, an array of token ids, or an array of up to 128 such prompts."),
    SERVED(TEXT, "max_tokens", INT, .read = read_max_tokens, .text =
        "Most tokens to generate, 0 for none; clamped to what the context leaves. Default 16."),
    SERVED(TEXT, "echo", BOOL, AT(echo), .text = "Give the prompt's text before the answer's."),
    SERVED(TEXT, "logprobs", INT, .read = read_text_logprobs, .text =
        "0 to 20: log probabilities of the tokens, and of so many most likely ones beside each; "
        "with echo, of the prompt's tokens too. They are the model's own, before penalties, "
        "temperature and constraints."),
    SERVED(TEXT, "suffix", STRING, .read = read_suffix, .text =
        "What stands behind the text: the answer is what belongs between. For models with "
        "fill-in-the-middle tokens, such as Qwen-Coder's."),
    SERVED(TEXT, "best_of", INT, .min = 1, .max = REQUEST_MAX_CHOICES, AT(best_of), .text =
        "Make so many texts and give the n with the highest mean log probability of their tokens. "
        "Not for streams. Default: n."),
    REFUSED(TEXT, "messages", "[]", "Conversations are for /v1/chat/completions."),
    REFUSED(TEXT, "tools", "[]", "Functions are for /v1/chat/completions."),
    REFUSED(TEXT, "functions", "[]", "Functions are for /v1/chat/completions."),
    REFUSED(TEXT, "tool_choice", "\"none\" \"auto\"", "Functions are for /v1/chat/completions."),
    REFUSED(TEXT, "top_logprobs", "0", "Give the number in logprobs."),
    REFUSED(TEXT, "continue_final_message", "false", "There are no messages."),
    INERT(TEXT, "parallel_tool_calls", "There are no functions."),
    INERT(TEXT, "chat_template_kwargs", "No template is rendered."),
    INERT(TEXT, "enable_thinking", "No template is rendered."),
    INERT(TEXT, "reasoning_effort", "No template is rendered."),
    INERT(TEXT, "thinking_budget_tokens", "No template is rendered."),
    INERT(TEXT, "thinking_budget", "No template is rendered."),
    INERT(TEXT, "reasoning_budget", "No template is rendered."),

    SERVED(LLAMA, "prompt", ANY, .read = read_llama_prompt, .text =
        "A text, an array of token ids and texts, an object with a `prompt_string`, or an array of "
        "up to 128 such prompts."),
    SERVED(LLAMA, "n_predict", INT, .read = read_max_tokens, .text =
        "Most tokens to generate; clamped to what the context leaves. 0 computes the prompt, so "
        "that it is cached, and generates nothing. Absent or -1: the rest of the context, or the "
        "server's default."),
    SERVED(LLAMA, "return_tokens", BOOL, AT(return_tokens), .text =
        "true: the answer has the ids of its tokens in `tokens`. A stream always has."),
    SERVED(LLAMA, "response_fields", ARRAY, .read = read_response_fields, .text =
        "The members that the answer is to have; \"timings/prompt_n\" is a member of a member, and "
        "keeps that name. Those that there are not are left out. Absent or []: all."),
    REFUSED(LLAMA, "messages", "[]", "Conversations are for /v1/chat/completions."),
    REFUSED(LLAMA, "tools", "[]", "Functions are for /v1/chat/completions."),
    REFUSED(LLAMA, "tool_choice", "\"none\" \"auto\"", "Functions are for /v1/chat/completions."),
    REFUSED(LLAMA, "functions", "[]", "Functions are for /v1/chat/completions."),
    REFUSED(LLAMA, "top_logprobs", "0", "Give the number in n_probs."),
    REFUSED(LLAMA, "continue_final_message", "false", "There are no messages."),
    SERVED(LLAMA, "n_cmpl", INT, .min = 1, .max = REQUEST_MAX_CHOICES, AT(n), .text =
        "Another name of n."),
    SERVED(LLAMA, "logprobs", INT, .read = read_text_logprobs, .text = "Another name of n_probs."),

    SERVED(INFILL, "input_prefix", STRING, .read = read_input_prefix, .text =
        "The text before the cursor's line. Of a long one the end is used."),
    SERVED(INFILL, "input_suffix", STRING, .read = read_input_suffix, .text =
        "The text behind the cursor. Of a long one the beginning is used."),
    SERVED(INFILL, "prompt", STRING, .read = read_infill_prompt, .text =
        "The cursor's line, up to the cursor."),
    SERVED(INFILL, "input_extra", ARRAY, .read = read_input_extra, .text =
        "Texts of other files, for the model to look at. The last ones are used if not all fit."),

    SERVED(EXTRA, "text", STRING, .read = read_checked, .text = "The text."),
    SERVED(EXTRA, "filename", STRING, .read = read_checked, .text =
        "The name of its file. Default `tmp`."),
    INERT(EXTRA, "time", "An editor's own mark."),

    SERVED(TOKENIZE, "content", ANY, .read = read_tokenized, .text =
        "The text, or an array of texts and token ids that are put together. Up to 8 bytes for "
        "each token of the context, and at least 1 MiB; a longer text is refused (413)."),
    SERVED(TOKENIZE, "prompt", ANY, .read = read_tokenized, .text = "Another name of content."),
    SERVED(TOKENIZE, "add_special", BOOL, AT(adds_special), .text =
        "true: with the tokens that the model puts around a text. Default false."),
    SERVED(TOKENIZE, "add_special_tokens", BOOL, AT(adds_special), .text =
        "Another name of add_special."),
    SERVED(TOKENIZE, "parse_special", BOOL, AT(parses_special), .text =
        "false: text that spells a special token stays text. Default true."),
    SERVED(TOKENIZE, "with_pieces", BOOL, AT(with_pieces), .text =
        "true: each token is an object with its id and its piece of text, or its bytes."),
    INERT(TOKENIZE, "model", "There is one model."),

    SERVED(DETOKENIZE, "tokens", ARRAY, .read = read_tokens, .text = "Token ids."),
    INERT(DETOKENIZE, "model", "There is one model."),

    SERVED(OLLAMA, "model", STRING, .read = read_model, .text =
        "Any name is served by the model that is loaded, unless --strict-model; its own name may "
        "have `:latest` behind it. The answer's `model` is this name, if it has at most 256 "
        "bytes."),
    SERVED(OLLAMA, "stream", BOOL, AT(stream), .text =
        "false: one object instead of NDJSON. Default true."),
    SERVED(OLLAMA, "options", OBJECT, .read = read_ollama_options, .text =
        "Limits and sampling. What is not given is the server's default."),
    SERVED(OLLAMA, "num_predict", INT, .read = read_num_predict, .text =
        "The same as in `options`, which wins: Open WebUI writes it here."),
    SERVED(OLLAMA, "format", ANY, .read = read_ollama_format, .text =
        "\"json\" for any JSON object, or a JSON schema: the answer is held to it."),
    SERVED(OLLAMA, "think", ANY, .read = read_think, .text =
        "true or false, or how much: low, medium, high, max. An error if the model cannot think."),
    SERVED(OLLAMA, "logprobs", BOOL, AT(logprobs), .text =
        "Log probabilities of the answer's tokens: the model's own, before penalties, temperature "
        "and constraints."),
    SERVED(OLLAMA, "top_logprobs", INT, .min = 0, .max = 20, AT(top_logprobs), .text =
        "Also of this many most likely tokens at each place."),
    SERVED(OLLAMA, "radish", OBJECT, .read = read_radish, .text = "Options of radish's own."),
    SERVED(OLLAMA, "keep_alive", ANY, .read = read_keep_alive, .text =
        "The model stays loaded as long as the server runs. A request for no answer with 0 gets "
        "`done_reason: \"unload\"`, as from Ollama, but nothing is unloaded."),
    INERT(OLLAMA, "truncate", "Prompts are never cut: one that does not fit is an error."),
    INERT(OLLAMA, "shift", "An answer ends where the context does."),
    REFUSED(OLLAMA, "template", "\"\"", "The template is chosen when the server starts."),
    REFUSED(OLLAMA, "_debug_render_only", "false", "Use /apply-template."),

    SERVED(OLLAMA_CHAT, "messages", ARRAY, .read = read_ollama_messages, .text =
        "The whole conversation. Empty or absent: the answer only says that the model is loaded."),
    SERVED(OLLAMA_CHAT, "tools", ARRAY, .read = read_tools, .text =
        "Functions that the answer may call, as in a chat completion."),

    SERVED(OLLAMA_GENERATE, "prompt", STRING, .read = read_ollama_prompt, .text =
        "The user's message. Empty or absent: the answer only says that the model is loaded."),
    SERVED(OLLAMA_GENERATE, "system", STRING, .read = read_system, .text = "A system message."),
    SERVED(OLLAMA_GENERATE, "raw", BOOL, .read = read_raw, .text =
        "true: continue the prompt as it is, without the chat template."),
    SERVED(OLLAMA_GENERATE, "suffix", STRING, .read = read_suffix, .text =
        "What stands behind the prompt: the answer is what belongs between, without the chat "
        "template. For models with fill-in-the-middle tokens."),
    REFUSED(OLLAMA_GENERATE, "images", "[]", "This model has no vision: it reads text only."),
    REFUSED(OLLAMA_GENERATE, "context", "[]", "Send the conversation to /api/chat instead."),

    SERVED(OLLAMA_OPTIONS, "num_predict", INT, .read = read_num_predict, .text =
        "Most tokens to generate. 0 or less: the server's default, which is the rest of the "
        "context."),
    SERVED(OLLAMA_OPTIONS, "temperature", NUMBER, .min = 0, .max = 2, AT(sampling.temperature),
        .text = "0 is greedy."),
    SERVED(OLLAMA_OPTIONS, "top_k", INT, .min = -1, .max = FIELD_NO_MAX, AT(top_k), .text =
        "Draw from this many most likely tokens; 0 or -1: all."),
    SERVED(OLLAMA_OPTIONS, "top_p", NUMBER, .min = 0, .max = 1, AT(sampling.top_p), .text =
        "Draw from the fewest most likely tokens that reach this share."),
    SERVED(OLLAMA_OPTIONS, "min_p", NUMBER, .min = 0, .max = 1, AT(sampling.min_p), .text =
        "Leave out tokens below this share of the most likely one."),
    SERVED(OLLAMA_OPTIONS, "typical_p", NUMBER, .min = 0, .max = 1, AT(sampling.typical_p),
        .text = "Draw from the most typical tokens that reach this share. Default 1: off."),
    SERVED(OLLAMA_OPTIONS, "repeat_last_n", INT, .min = -1, .max = FIELD_NO_MAX,
        AT(repeat_last_n), .text =
        "How many of the answer's last tokens penalties look at; -1: all; 0: no repetition "
        "penalty."),
    SERVED(OLLAMA_OPTIONS, "repeat_penalty", NUMBER, .min = 0.01, .max = 10,
        AT(sampling.repetition_penalty), .text =
        "Divides positive and multiplies negative logits of tokens that the answer already has."),
    SERVED(OLLAMA_OPTIONS, "presence_penalty", NUMBER, .min = -2, .max = 2,
        AT(sampling.presence_penalty), .text = "Taken off the logits of such tokens."),
    SERVED(OLLAMA_OPTIONS, "frequency_penalty", NUMBER, .min = -2, .max = 2,
        AT(sampling.frequency_penalty), .text = "The same, times how often."),
    SERVED(OLLAMA_OPTIONS, "seed", INT, .read = read_seed, .text =
        "Equal requests with equal seeds get equal answers. Absent or -1: a new one each time."),
    SERVED(OLLAMA_OPTIONS, "stop", ANY, .read = read_stop, .text =
        "A string or several, before which the answer ends."),
    INERT(OLLAMA_OPTIONS, "num_ctx", "The context is chosen when the server starts (-c): a prompt that does not fit is an error."),
    INERT(OLLAMA_OPTIONS, "num_keep", "The context is never shifted."),
    INERT(OLLAMA_OPTIONS, "num_batch", "Batches are the server's business."),
    INERT(OLLAMA_OPTIONS, "num_thread", "Chosen when the server starts (-t)."),
    INERT(OLLAMA_OPTIONS, "num_gpu", "The engine is chosen when the server starts."),
    INERT(OLLAMA_OPTIONS, "main_gpu", "The engine is chosen when the server starts."),
    INERT(OLLAMA_OPTIONS, "low_vram", "The engine is chosen when the server starts."),
    INERT(OLLAMA_OPTIONS, "numa", "Memory is the server's business."),
    INERT(OLLAMA_OPTIONS, "use_mmap", "Memory is the server's business."),
    INERT(OLLAMA_OPTIONS, "use_mlock", "Memory is the server's business."),
    INERT(OLLAMA_OPTIONS, "draft_num_predict", "A hint for speed that needs none here."),
    INERT(OLLAMA_OPTIONS, "penalize_newline", "Line feeds are tokens like others."),
    INERT(OLLAMA_OPTIONS, "mirostat_eta", "Means nothing without mirostat."),
    INERT(OLLAMA_OPTIONS, "mirostat_tau", "Means nothing without mirostat."),
    REFUSED(OLLAMA_OPTIONS, "mirostat", "0", "This sampler is not served."),
    REFUSED(OLLAMA_OPTIONS, "tfs_z", "0 1", "This sampler is not served."),

    SERVED(OLLAMA_MESSAGE, "role", STRING, .read = read_role, .text =
        "system, user, assistant or tool."),
    SERVED(OLLAMA_MESSAGE, "content", ANY, .read = read_content, .text =
        "A string. Absent: an empty one."),
    SERVED(OLLAMA_MESSAGE, "thinking", STRING, .read = read_reasoning, .text =
        "An earlier answer's thinking; handed to the chat template, which shows or drops it."),
    SERVED(OLLAMA_MESSAGE, "tool_calls", ARRAY, .read = read_tool_calls, .text =
        "The functions that an earlier answer called; they need no ids."),
    SERVED(OLLAMA_MESSAGE, "tool_name", STRING, .read = read_tool_name, .text =
        "Of role tool: the function that the content is the result of. Without it and "
        "tool_call_id, results belong to calls in order."),
    SERVED(OLLAMA_MESSAGE, "tool_call_id", STRING, .read = read_tool_call_id, .text =
        "Of role tool: the call that the content is the result of."),
    REFUSED(OLLAMA_MESSAGE, "images", "[]", "This model has no vision: it reads text only."),

    SERVED(OLLAMA_SHOW, "model", STRING, .read = read_model, .text = "As in a request."),
    SERVED(OLLAMA_SHOW, "name", STRING, .read = read_model, .text = "The older name of model."),
    INERT(OLLAMA_SHOW, "verbose", "All that is known is always shown."),
    INERT(OLLAMA_SHOW, "system", "Nothing is changed by it."),
    INERT(OLLAMA_SHOW, "template", "Nothing is changed by it."),
    INERT(OLLAMA_SHOW, "options", "Nothing is changed by it."),
};
/* clang-format on */

const size_t n_request_fields = sizeof request_fields / sizeof *request_fields;
