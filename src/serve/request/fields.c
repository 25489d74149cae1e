/* The table of request fields: pure data, which read.c walks and docs/api.md is made from. To
 * support a new field, add a row; the checks and the docs follow from it. A field that would change
 * the answer and is not supported must be REFUSED, never INERT: clients must not get an answer
 * that silently ignores what they asked for. */
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
        "Any name selects the loaded model, unless the server runs with --strict-model."),
    SERVED(REQUEST, "messages", ARRAY, .read = read_messages, .text =
        "The whole conversation, rendered with the model's own chat template."),
    SERVED(REQUEST, "stream", BOOL, AT(stream), .text =
        "true: send the answer as server-sent events while it is generated."),
    SERVED(REQUEST, "stream_options", OBJECT, .read = read_stream_options, .text =
        "Options for streaming."),
    SERVED(REQUEST, "max_tokens", INT, .read = read_max_tokens, .text =
        "The most tokens to generate, limited to what fits in the context. Absent or -1: the "
        "server's default, which is the rest of the context."),
    SERVED(REQUEST, "max_completion_tokens", INT, .read = read_max_tokens, .text =
        "The newer name of max_tokens. It wins if both are given."),
    SERVED(REQUEST, "n_predict", INT, .read = read_max_tokens, .text =
        "Another name for max_tokens. 0 computes and caches the prompt and generates nothing."),
    SERVED(REQUEST, "n", INT, .min = 1, .max = REQUEST_MAX_CHOICES, AT(n), .text =
        "The number of answers. The prompt is computed once for all of them."),
    SERVED(REQUEST, "temperature", NUMBER, .min = 0, .max = 2, AT(sampling.temperature), .text =
        "0 always picks the most likely token. Default: the server's (`--temp`), else the model's "
        "own, else 0.8. `GET /v1/models` shows the values in effect."),
    SERVED(REQUEST, "top_p", NUMBER, .min = 0, .max = 1, AT(sampling.top_p), .text =
        "Sample from the smallest set of most likely tokens whose probabilities add up to this. "
        "Default: the server's (`--top-p`), else the model's own, else 0.95."),
    SERVED(REQUEST, "top_k", INT, .min = -1, .max = FIELD_NO_MAX, AT(top_k), .text =
        "Sample from this many of the most likely tokens. 0 or -1: from all. Default: the "
        "server's (`--top-k`), else the model's own, else 40."),
    SERVED(REQUEST, "min_p", NUMBER, .min = 0, .max = 1, AT(sampling.min_p), .text =
        "Drop tokens less likely than this fraction of the most likely token. Default: the "
        "server's (`--min-p`), else the model's own, else 0.05."),
    SERVED(REQUEST, "top_n_sigma", NUMBER, .min = -1, .max = 100, AT(sampling.top_n_sigma), .text =
        "Sample from tokens whose logits are within this many standard deviations of the highest. "
        "Default 0: off."),
    SERVED(REQUEST, "typical_p", NUMBER, .min = 0, .max = 1, AT(sampling.typical_p), .text =
        "Sample from the most typical tokens whose probabilities add up to this. Default 1: off."),
    SERVED(REQUEST, "xtc_probability", NUMBER, .min = 0, .max = 1, AT(sampling.xtc_probability),
        .text =
        "The probability that XTC applies to a token: of all tokens that reach xtc_threshold, it "
        "keeps only the least likely. Default 0: off."),
    SERVED(REQUEST, "xtc_threshold", NUMBER, .min = 0, .max = 1, AT(sampling.xtc_threshold), .text =
        "The probability from which XTC considers a token likely. Default 0.1."),
    SERVED(REQUEST, "dry_multiplier", NUMBER, .min = 0, .max = 100, AT(sampling.dry_multiplier),
        .text =
        "The strength of the DRY penalty, which discourages repeated sequences. Default 0: off."),
    SERVED(REQUEST, "dry_base", NUMBER, .min = 0, .max = 100, AT(sampling.dry_base), .text =
        "How fast the DRY penalty grows with the length of the repeated sequence. Default 1.75."),
    SERVED(REQUEST, "dry_allowed_length", INT, .min = 0, .max = FIELD_NO_MAX,
        AT(dry_allowed_length), .text =
        "The longest repeated sequence without a DRY penalty, in tokens. Default 2."),
    SERVED(REQUEST, "dry_penalty_last_n", INT, .min = -1, .max = FIELD_NO_MAX,
        AT(dry_penalty_last_n), .text =
        "How many of the last tokens DRY searches for repetitions. -1, the default: all of them. "
        "0: DRY is off."),
    SERVED(REQUEST, "dry_sequence_breakers", ARRAY, .read = read_dry_breakers, .text =
        "Strings that end a repeated sequence for DRY. Default: line feed, :, \", *."),
    SERVED(REQUEST, "repeat_last_n", INT, .min = -1, .max = FIELD_NO_MAX, AT(repeat_last_n), .text =
        "How many of the answer's last tokens the penalties consider. -1, the default: all of "
        "them. 0: no repetition penalty."),
    SERVED(REQUEST, "presence_penalty", NUMBER, .min = -2, .max = 2, AT(sampling.presence_penalty),
        .text =
        "Subtracted from the logit of each token that is already in the answer. Default 0."),
    SERVED(REQUEST, "frequency_penalty", NUMBER, .min = -2, .max = 2,
        AT(sampling.frequency_penalty), .text =
        "Subtracted from the logit of a token once for each time it is in the answer. Default 0."),
    SERVED(REQUEST, "repetition_penalty", NUMBER, .min = 0.01, .max = 10,
        AT(sampling.repetition_penalty), .text =
        "Divides the positive logits and multiplies the negative logits of tokens that are "
        "already in the answer. Default: the model's own, else 1."),
    SERVED(REQUEST, "repeat_penalty", NUMBER, .min = 0.01, .max = 10,
        AT(sampling.repetition_penalty), .text = "Another name for repetition_penalty."),
    SERVED(REQUEST, "seed", INT, .read = read_seed, .text =
        "The same request with the same seed gets the same answer. Absent or -1: a new seed each "
        "time."),
    SERVED(REQUEST, "stop", ANY, .read = read_stop, .text =
        "A string, or an array of up to 128. The answer ends before the first of them that "
        "appears."),
    SERVED(REQUEST, "stop_token_ids", ARRAY, .read = read_stop_tokens, .text =
        "Up to 128 token ids. The answer ends before the first of them that appears."),
    SERVED(REQUEST, "ignore_eos", BOOL, AT(ignore_end), .text =
        "true: continue past the model's end tokens, up to max_tokens."),
    SERVED(REQUEST, "cache_prompt", BOOL, AT(cache_prompt), .text =
        "false: neither read nor fill the prefix cache. Default true."),
    SERVED(REQUEST, "min_tokens", INT, .min = 0, .max = FIELD_NO_MAX, AT(min_tokens), .text =
        "The model cannot end the answer before it has this many tokens."),
    SERVED(REQUEST, "radish", OBJECT, .read = read_radish, .text = "radish's own options."),
    SERVED(REQUEST, "replay", BOOL, AT(replay), .text =
        "false: tokenize earlier answers in `messages` like any other text, instead of reusing "
        "the tokens that were sampled. Default true."),
    SERVED(REQUEST, "chat_template_kwargs", OBJECT, .read = read_template_kwargs, .text =
        "Variables for the chat template, such as enable_thinking. `date_string` and `datetime` "
        "are the current date and `functions` the tools as JSON, unless they are given."),
    SERVED(REQUEST, "enable_thinking", BOOL, .read = read_enable_thinking, .text =
        "false: the model does not think before it answers. This is passed to the chat template; "
        "if the template has no such switch, thinking is ended as soon as it begins. Default: the "
        "server's `--thinking`, else true if the template asks for it."),
    SERVED(REQUEST, "reasoning_effort", STRING, .read = read_reasoning_effort, .text =
        "Passed to the chat template. \"none\" is the same as enable_thinking: false."),
    SERVED(REQUEST, "thinking_budget_tokens", INT, .min = -1, .max = FIELD_NO_MAX,
        AT(thinking_tokens), .text =
        "The most tokens of thinking. At the limit, thinking is ended and the answer begins. -1: "
        "no limit."),
    SERVED(REQUEST, "thinking_budget", INT, .min = -1, .max = FIELD_NO_MAX, AT(thinking_tokens),
        .text = "Another name for thinking_budget_tokens."),
    SERVED(REQUEST, "thinking_token_budget", INT, .min = -1, .max = FIELD_NO_MAX,
        AT(thinking_tokens), .text = "Another name for thinking_budget_tokens."),
    SERVED(REQUEST, "thinking", OBJECT, .read = read_thinking, .text =
        "Turns thinking on or off and limits it, in the form that Anthropic's clients use."),
    SERVED(REQUEST, "reasoning", OBJECT, .read = read_reasoning_options, .text =
        "The same as reasoning_effort, as an object."),
    SERVED(REQUEST, "reasoning_budget", INT, .min = -1, .max = FIELD_NO_MAX, AT(thinking_tokens),
        .text = "Another name for thinking_budget_tokens."),
    SERVED(REQUEST, "continue_final_message", BOOL, .read = read_continue, .text =
        "true: the last message, which must be the assistant's, is the beginning of the answer. "
        "This is the default if the last message is the assistant's; false begins a new answer."),
    SERVED(REQUEST, "add_generation_prompt", BOOL, .read = read_generation_prompt, .text =
        "vLLM's clients send false together with continue_final_message. false without it and true "
        "with it are errors."),

    SERVED(REQUEST, "tools", ARRAY, .read = read_tools, .text =
        "Up to 512 functions that the model may call. The chat template puts them into the "
        "prompt; if it does not support tools, a system prompt explains how to call them."),
    SERVED(REQUEST, "functions", ARRAY, .read = read_functions, .text =
        "The older form of tools, without `type`. Calls are then returned in the older form too, "
        "as `function_call`, at most one per answer."),
    SERVED(REQUEST, "function_call", ANY, .read = read_function_call, .text =
        "The older form of tool_choice: none, auto or {\"name\": ...}."),
    SERVED(REQUEST, "tool_choice", ANY, .read = read_tool_choice, .text =
        "none, auto (the default), required, a function or allowed_tools. It is enforced: calls "
        "follow the model's call format, and their arguments follow the function's schema."),
    SERVED(REQUEST, "parallel_tool_calls", BOOL, AT(parallel_calls), .text =
        "false: at most one call per answer. Default true: up to 128. A call that repeats an "
        "earlier one of the same answer (same name, equal arguments) is dropped and ends the "
        "answer."),

    SERVED(REQUEST, "response_format", OBJECT, .read = read_response_format, .text =
        "The form of the answer: text, json_object or json_schema."),
    SERVED(REQUEST, "json_schema", ANY, .read = read_schema, .text =
        "The answer must match this JSON schema (llama-server's form)."),
    SERVED(REQUEST, "grammar", STRING, .read = read_grammar, .text =
        "The answer must match this grammar, in llama.cpp's GBNF."),
    SERVED(REQUEST, "regex", STRING, .read = read_regex, .text =
        "The whole answer must match this regular expression."),
    SERVED(REQUEST, "structured_outputs", OBJECT, .read = read_structured, .text =
        "The form of the answer, as vLLM's clients send it."),
    SERVED(REQUEST, "guided_json", ANY, .read = read_schema, .text =
        "Another name for json_schema."),
    SERVED(REQUEST, "guided_regex", STRING, .read = read_regex, .text = "Another name for regex."),
    SERVED(REQUEST, "guided_grammar", STRING, .read = read_grammar, .text =
        "Another name for grammar."),
    SERVED(REQUEST, "guided_choice", ARRAY, .read = read_choices, .text =
        "The answer must be one of these strings."),

    SERVED(REQUEST, "logprobs", BOOL, AT(logprobs), .text =
        "true: return the log probabilities of the answer's tokens. They are the model's own, "
        "before penalties, temperature and constraints."),
    SERVED(REQUEST, "top_logprobs", INT, .min = 0, .max = 20, AT(top_logprobs), .text =
        "Also return this many of the most likely tokens at each position. Needs logprobs."),
    SERVED(REQUEST, "n_probs", INT, .min = 0, .max = REQUEST_MAX_TOP_LOGPROBS, AT(n_probs), .text =
        "llama-server's name for logprobs and top_logprobs together. Default 0: off."),
    SERVED(REQUEST, "samplers", ANY, .read = read_samplers, .text =
        "The samplers to use, by llama-server's names or letters. They must be in this order: "
        "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, infill, with temperature "
        "before typ_p or last. Any other order is an error. Samplers that are not listed are off. "
        "infill ends the text where the model is not sure how to continue. Default and []: all "
        "but infill, with temperature before top_n_sigma."),
    SERVED(REQUEST, "t_max_predict_ms", INT, .min = -1, .max = FIELD_NO_MAX, AT(t_max_predict_ms),
        .text =
        "A time limit in milliseconds, counted from the first token. Once it has passed, the "
        "answer ends at the next line feed. Default 0: no limit."),
    SERVED(REQUEST, "n_indent", INT, .min = 0, .max = FIELD_NO_MAX, AT(n_indent), .text =
        "The answer ends at a line indented by fewer spaces and tabs than this. The first line is "
        "not checked. Default 0: off."),
    SERVED(REQUEST, "timings_per_token", BOOL, AT(timings_per_token), .text =
        "true: every chunk of a stream has `timings`, not just the last one."),
    SERVED(REQUEST, "return_progress", BOOL, AT(return_progress), .text =
        "true: a stream reports in `prompt_progress` how much of the prompt is computed."),
    SERVED(REQUEST, "verbose", BOOL, AT(verbose), .text =
        "true: an answer that is not streamed has a member `__verbose`, which is the first answer in "
        "the form of `/completion`, with the rendered prompt and the settings. Its `content` is "
        "without thinking and calls."),
    SERVED(REQUEST, "logit_bias", ANY, .read = read_logit_bias, .text =
        "Values from -100 (never) to 100 that are added to the logits of tokens: {\"id\": bias}. "
        "{\"text\": bias} biases each token of the text. A list of pairs works too: [[id, bias], "
        "[\"text\", bias]]. false instead of a bias means never. At most 4,096 tokens."),

    INERT(REQUEST, "user", "A name for the end user."),
    INERT(REQUEST, "safety_identifier", "A name for the end user."),
    INERT(REQUEST, "metadata", "Labels for a dashboard."),
    INERT(REQUEST, "store", "radish stores nothing but the cache."),
    INERT(REQUEST, "service_tier", "radish has one service tier."),
    INERT(REQUEST, "prompt_cache_key", "The cache finds every shared prefix without it."),
    INERT(REQUEST, "prompt_cache_retention", "The cache keeps what is used."),
    INERT(REQUEST, "prediction", "A hint for speed only."),
    INERT(REQUEST, "verbosity", "A hint for other models."),
    INERT(REQUEST, "priority", "Requests are served in the order they arrive."),
    INERT(REQUEST, "id_slot", "radish has no slots."),
    INERT(REQUEST, "backend_sampling", "The server chooses where tokens are sampled."),
    INERT(REQUEST, "t_max_prompt_ms", "Prompts are always computed completely."),
    INERT(REQUEST, "n_cache_reuse", "The cache finds every shared prefix without it."),
    INERT(REQUEST, "n_keep", "The context is never shifted."),
    INERT(REQUEST, "n_discard", "The context is never shifted."),
    INERT(REQUEST, "min_keep", "Samplers always leave at least one token."),
    INERT(REQUEST, "mirostat_tau", "Only mirostat uses it, which radish does not have."),
    INERT(REQUEST, "mirostat_eta", "Only mirostat uses it, which radish does not have."),
    INERT(REQUEST, "dynatemp_exponent", "Only dynatemp_range uses it, which radish does not have."),

    REFUSED(REQUEST, "prompt_logprobs", "0", "Use echo and logprobs of /v1/completions."),
    REFUSED(REQUEST, "modalities", "[] [\"text\"]", "Answers are always text."),
    REFUSED(REQUEST, "audio", NULL, "Answers are always text."),
    REFUSED(REQUEST, "web_search_options", NULL, "radish does not search the web."),
    REFUSED(REQUEST, "documents", "[]", "Put the documents into a message."),
    REFUSED(REQUEST, "chat_template", NULL, "The template is set when the server starts."),
    REFUSED(REQUEST, "best_of", "1", "Use it with /v1/completions."),
    REFUSED(REQUEST, "max_output_tokens", NULL, "Use `max_completion_tokens`."),
    REFUSED(REQUEST, "format", "\"\"", "Use `response_format`."),
    REFUSED(REQUEST, "ebnf", "\"\"", "Use `grammar`, in GBNF."),
    REFUSED(REQUEST, "structural_tag", NULL, "Use `grammar`, or `tools`."),
    REFUSED(REQUEST, "allowed_token_ids", "[]", "Use `grammar` or `guided_choice`."),
    REFUSED(REQUEST, "logits_processors", "[]", "Use `logit_bias` or `grammar`."),
    REFUSED(REQUEST, "truncate_prompt_tokens", "0 -1", "Prompts are never cut."),
    REFUSED(REQUEST, "cache_salt", "\"\"",
        "Tenants already have separate caches: give each its own API key."),
    REFUSED(REQUEST, "lora", "[]", "radish does not load adapters."),
    REFUSED(REQUEST, "dynatemp_range", "0", "radish does not have this sampler."),
    REFUSED(REQUEST, "length_penalty", "1", "radish does not do beam search."),
    REFUSED(REQUEST, "return_token_ids", "false", "Use `logprobs`."),
    REFUSED(REQUEST, "return_tokens_as_token_ids", "false", "Tokens are shown as text."),
    REFUSED(REQUEST, "include_reasoning", "true", "Use `enable_thinking`."),
    REFUSED(REQUEST, "echo", "false", "Use it with /v1/completions."),
    REFUSED(REQUEST, "use_beam_search", "false", "radish does not do beam search."),
    REFUSED(REQUEST, "include_stop_str_in_output", "false", "Answers end before the stop string."),
    REFUSED(REQUEST, "skip_special_tokens", "true",
        "Control tokens are hidden, except those that mark thinking and calls."),
    REFUSED(REQUEST, "bad_words", "[]", "Use `logit_bias` to ban tokens."),
    REFUSED(REQUEST, "mirostat", "0", "radish does not have this sampler."),
    REFUSED(REQUEST, "post_sampling_probs", "false",
        "Probabilities are the model's own, before sampling. Use it with /completion."),

    SERVED(WARM, "pin", NUMBER, .min = 0, .max = REQUEST_MAX_PIN_S, AT(pin_s), .text =
        "Pin the prompt for this many seconds: it is evicted only when nothing unpinned is left "
        "to evict. Default 0: not pinned."),
    SERVED(WARM, "add_generation_prompt", BOOL, .read = read_generation_prompt, .text =
        "true: also warm the tokens that begin an answer. Default false, so that the warmed "
        "prompt is a prefix of longer conversations."),
    REFUSED(WARM, "stream", "false", "The response is one object."),
    REFUSED(WARM, "cache_prompt", "true", "Warming always fills the cache."),
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
    INERT(WARM, "verbose", "Nothing is generated."),
    INERT(WARM, "reasoning_budget", "Nothing is generated."),

    SERVED(RENDER, "add_generation_prompt", BOOL, .read = read_generation_prompt, .text =
        "false: leave out the tokens that begin an answer. Default true."),

    SERVED(RADISH, "explain", BOOL, AT(explain), .text =
        "true: the response has a member `radish` that says how much of the prompt was cached, "
        "and why not more. The header `x-radish-explain: true` does the same."),
    SERVED(RADISH, "replay", BOOL, AT(replay), .text = "The same as `replay` in the request."),

    SERVED(STREAM_OPTIONS, "include_usage", BOOL, AT(include_usage), .text =
        "true: send a last chunk with the token counts."),
    INERT(STREAM_OPTIONS, "include_obfuscation", "Chunks are not padded."),

    SERVED(MESSAGE, "role", STRING, .read = read_role, .text =
        "system, developer (the same as system), user, assistant, tool or function (the same as "
        "tool)."),
    SERVED(MESSAGE, "content", ANY, .read = read_content, .text =
        "A string, or an array of text parts, which are joined with line feeds. Optional if there "
        "are `tool_calls`."),
    SERVED(MESSAGE, "tool_calls", ARRAY, .read = read_tool_calls, .text =
        "The calls made by an earlier answer."),
    SERVED(MESSAGE, "tool_call_id", STRING, .read = read_tool_call_id, .text =
        "For role tool: the id of the call that returned this content."),
    SERVED(MESSAGE, "reasoning_content", STRING, .read = read_reasoning, .text =
        "The thinking of an earlier answer. It is passed to the chat template, which shows or "
        "drops it."),
    SERVED(MESSAGE, "reasoning", STRING, .read = read_reasoning, .text =
        "Another name for reasoning_content."),
    SERVED(MESSAGE, "prefix", BOOL, .read = read_prefix, .text =
        "true, on a last message from the assistant: the message is the beginning of the answer."),
    INERT(MESSAGE, "name", "Chat templates use roles, not names."),
    INERT(MESSAGE, "annotations", "Notes on an earlier answer."),
    INERT(MESSAGE, "id", "A label of the client."),
    SERVED(MESSAGE, "function_call", OBJECT, .read = read_message_function_call, .text =
        "The older form of tool_calls: one call, with a name and arguments."),
    SERVED(MESSAGE, "refusal", STRING, .read = read_refusal, .text =
        "An earlier answer's refusal. It is used as the content if there is none."),
    REFUSED(MESSAGE, "audio", NULL, "This model reads text only."),

    SERVED(PART, "type", STRING, .read = read_part_type, .text = "text, or refusal."),
    SERVED(PART, "refusal", STRING, .read = read_part_text, .text = "The part's text."),
    SERVED(PART, "text", STRING, .read = read_part_text, .text = "The part's text."),
    INERT(PART, "cache_control", "The cache finds every shared prefix without it."),

    SERVED(CALL, "id", STRING, .read = read_call_id, .text =
        "The call's id, which its result refers to."),
    SERVED(CALL, "type", STRING, .read = read_call_type, .text = "function."),
    SERVED(CALL, "function", OBJECT, .read = read_call_function, .text =
        "The function that was called, and its arguments."),
    INERT(CALL, "index", "It matters only in streams."),

    SERVED(CALLED, "name", STRING, .read = read_called_name, .text = "The function's name."),
    SERVED(CALLED, "arguments", ANY, .read = read_called_arguments, .text =
        "A JSON object as a string, as the answer had it, or the object itself."),
    INERT(CALLED, "index", "Calls are in the order of the array."),

    SERVED(TOOL, "type", STRING, .read = read_tool_type, .text = "function."),
    SERVED(TOOL, "function", OBJECT, .read = read_tool_function, .text = "The function."),

    SERVED(FUNCTION, "name", STRING, .read = read_function_name, .text =
        "Up to 128 letters, digits or any of _ - . : /"),
    SERVED(FUNCTION, "description", STRING, .read = read_checked, .text =
        "What the function does. The model sees this."),
    SERVED(FUNCTION, "parameters", OBJECT, .read = read_checked, .text =
        "A JSON schema for the arguments. Absent: the function takes none."),
    SERVED(FUNCTION, "strict", BOOL, .read = read_checked, .text =
        "true: a schema that cannot be fully enforced is an error. Default false: the parts that "
        "cannot be enforced are ignored."),

    SERVED(RESPONSE_FORMAT, "type", STRING, .read = read_checked, .text =
        "text, json_object or json_schema."),
    SERVED(RESPONSE_FORMAT, "json_schema", OBJECT, .read = read_format_schema, .text =
        "The schema and its name."),
    SERVED(RESPONSE_FORMAT, "schema", OBJECT, .read = read_schema, .text =
        "The schema without a name (llama-server's form). Also allowed with json_object."),

    SERVED(JSON_SCHEMA, "schema", OBJECT, .read = read_schema, .text =
        "A JSON schema. Every answer that max_tokens does not cut off is valid against it."),
    INERT(JSON_SCHEMA, "name", "A label."),
    INERT(JSON_SCHEMA, "description", "To show it to the model, put it into a message."),
    INERT(JSON_SCHEMA, "strict", "Schemas are always enforced."),

    SERVED(STRUCTURED, "json", ANY, .read = read_schema, .text =
        "The same as json_schema in the request."),
    SERVED(STRUCTURED, "regex", STRING, .read = read_regex, .text =
        "The same as regex in the request."),
    SERVED(STRUCTURED, "choice", ARRAY, .read = read_choices, .text =
        "The same as guided_choice in the request."),
    SERVED(STRUCTURED, "grammar", STRING, .read = read_grammar, .text =
        "The same as grammar in the request."),
    SERVED(STRUCTURED, "json_object", BOOL, .read = read_json_object, .text =
        "true: any JSON object."),
    REFUSED(STRUCTURED, "structural_tag", NULL, "Use `grammar`, or `tools`."),

    SERVED(THINKING, "type", STRING, .read = read_thinking_type, .text = "enabled or disabled."),
    SERVED(THINKING, "budget_tokens", INT, .min = -1, .max = FIELD_NO_MAX, AT(thinking_tokens),
        .text = "The same as thinking_budget_tokens."),

    SERVED(REASONING, "effort", STRING, .read = read_reasoning_effort, .text =
        "The same as reasoning_effort."),
    INERT(REASONING, "summary", "Thinking is returned in full."),

    SERVED(TEXT, "prompt", ANY, .read = read_prompt, .text =
        "A string, an array of token ids, or an array of up to 128 such prompts."),
    SERVED(TEXT, "max_tokens", INT, .read = read_max_tokens, .text =
        "The most tokens to generate, limited to what fits in the context. 0 generates nothing. "
        "Default 16."),
    SERVED(TEXT, "echo", BOOL, AT(echo), .text =
        "true: return the prompt before the generated text."),
    SERVED(TEXT, "logprobs", INT, .read = read_text_logprobs, .text =
        "0 to 20: return the log probabilities of the generated tokens, and this many of the most "
        "likely tokens at each position; with echo, also those of the prompt. They are the "
        "model's own, before penalties, temperature and constraints."),
    SERVED(TEXT, "suffix", STRING, .read = read_suffix, .text =
        "The text after the gap: the model fills in what belongs between `prompt` and `suffix`. "
        "Needs a model with fill-in-the-middle tokens, such as Qwen2.5-Coder."),
    SERVED(TEXT, "best_of", INT, .min = 1, .max = REQUEST_MAX_CHOICES, AT(best_of), .text =
        "Generate this many texts and return the n with the highest mean log probability per "
        "token. Cannot be streamed. Default: n."),
    REFUSED(TEXT, "messages", "[]", "Use /v1/chat/completions for conversations."),
    REFUSED(TEXT, "tools", "[]", "Use /v1/chat/completions to call functions."),
    REFUSED(TEXT, "functions", "[]", "Use /v1/chat/completions to call functions."),
    REFUSED(TEXT, "tool_choice", "\"none\" \"auto\"",
        "Use /v1/chat/completions to call functions."),
    REFUSED(TEXT, "top_logprobs", "0", "Give the number in `logprobs`."),
    REFUSED(TEXT, "continue_final_message", "false", "This endpoint has no messages."),
    INERT(TEXT, "parallel_tool_calls", "This endpoint has no functions."),
    INERT(TEXT, "chat_template_kwargs", "This endpoint renders no template."),
    INERT(TEXT, "enable_thinking", "This endpoint renders no template."),
    INERT(TEXT, "reasoning_effort", "This endpoint renders no template."),
    INERT(TEXT, "thinking_budget_tokens", "This endpoint renders no template."),
    INERT(TEXT, "thinking_budget", "This endpoint renders no template."),
    INERT(TEXT, "reasoning_budget", "This endpoint renders no template."),

    SERVED(LLAMA, "prompt", ANY, .read = read_llama_prompt, .text =
        "A string, an array of token ids and strings, an object with a `prompt_string`, or an "
        "array of up to 128 such prompts."),
    SERVED(LLAMA, "n_predict", INT, .read = read_max_tokens, .text =
        "The most tokens to generate, limited to what fits in the context. 0 computes and caches "
        "the prompt and generates nothing. Absent or -1: the server's default, which is the rest "
        "of the context."),
    SERVED(LLAMA, "return_tokens", BOOL, AT(return_tokens), .text =
        "true: the response has the ids of the generated tokens in `tokens`. A stream always "
        "does."),
    SERVED(LLAMA, "response_fields", ARRAY, .read = read_response_fields, .text =
        "The members to return. \"timings/prompt_n\" selects a nested member, which is returned "
        "under that name. Unknown names are skipped. Absent or []: all members."),
    REFUSED(LLAMA, "messages", "[]", "Use /v1/chat/completions for conversations."),
    REFUSED(LLAMA, "tools", "[]", "Use /v1/chat/completions to call functions."),
    REFUSED(LLAMA, "tool_choice", "\"none\" \"auto\"",
        "Use /v1/chat/completions to call functions."),
    REFUSED(LLAMA, "functions", "[]", "Use /v1/chat/completions to call functions."),
    REFUSED(LLAMA, "top_logprobs", "0", "Give the number in `n_probs`."),
    REFUSED(LLAMA, "continue_final_message", "false", "This endpoint has no messages."),
    SERVED(LLAMA, "n_cmpl", INT, .min = 1, .max = REQUEST_MAX_CHOICES, AT(n), .text =
        "Another name for n."),
    INERT(LLAMA, "verbose", "Answers always have the prompt and the settings."),
    SERVED(LLAMA, "logprobs", INT, .read = read_text_logprobs, .text = "Another name for n_probs."),
    SERVED(LLAMA, "post_sampling_probs", BOOL, AT(post_sampling_probs), .text =
        "true: `completion_probabilities` has the probabilities that the tokens were drawn with, "
        "after all samplers, as `prob` and `top_probs`. Tokens that could not be drawn are left "
        "out. Default false: the model's own, as logarithms."),

    SERVED(INFILL, "input_prefix", STRING, .read = read_input_prefix, .text =
        "The text before the cursor's line. If it is too long, only its end is used."),
    SERVED(INFILL, "input_suffix", STRING, .read = read_input_suffix, .text =
        "The text after the cursor. If it is too long, only its beginning is used."),
    SERVED(INFILL, "prompt", STRING, .read = read_infill_prompt, .text =
        "The cursor's line, up to the cursor."),
    SERVED(INFILL, "input_extra", ARRAY, .read = read_input_extra, .text =
        "Text from other files, as context for the model. If not all of it fits, the last "
        "elements are used."),

    SERVED(EXTRA, "text", STRING, .read = read_checked, .text = "The text."),
    SERVED(EXTRA, "filename", STRING, .read = read_checked, .text =
        "The name of the file. Default `tmp`."),
    INERT(EXTRA, "time", "A label of the editor."),

    SERVED(TOKENIZE, "content", ANY, .read = read_tokenized, .text =
        "The text, or an array of strings and token ids, which are joined. At most 8 bytes for each "
        "token of the context, or 1 MiB if that is more; a longer text is an error (413)."),
    SERVED(TOKENIZE, "prompt", ANY, .read = read_tokenized, .text = "Another name for content."),
    SERVED(TOKENIZE, "add_special", BOOL, AT(adds_special), .text =
        "true: add the tokens that the model expects around a text. Default false."),
    SERVED(TOKENIZE, "add_special_tokens", BOOL, AT(adds_special), .text =
        "Another name for add_special."),
    SERVED(TOKENIZE, "parse_special", BOOL, AT(parses_special), .text =
        "false: treat the names of special tokens as plain text. Default true."),
    SERVED(TOKENIZE, "with_pieces", BOOL, AT(with_pieces), .text =
        "true: return each token as an object with its id and its text, or its bytes if they are "
        "not valid text."),
    INERT(TOKENIZE, "model", "The server has one model."),

    SERVED(DETOKENIZE, "tokens", ARRAY, .read = read_tokens, .text = "Token ids."),
    INERT(DETOKENIZE, "model", "The server has one model."),

    SERVED(OLLAMA, "model", STRING, .read = read_model, .text =
        "Any name selects the loaded model, unless the server runs with --strict-model. The tag "
        "`:latest` is optional. The response's `model` is this name if it has at most 256 bytes."),
    SERVED(OLLAMA, "stream", BOOL, AT(stream), .text =
        "false: one object instead of NDJSON. Default true."),
    SERVED(OLLAMA, "options", OBJECT, .read = read_ollama_options, .text =
        "Limits and sampling. Anything absent has the server's default."),
    SERVED(OLLAMA, "num_predict", INT, .read = read_num_predict, .text =
        "The same as in `options`, which wins if both are given. Open WebUI sends it here."),
    SERVED(OLLAMA, "format", ANY, .read = read_ollama_format, .text =
        "\"json\" for any JSON object, or a JSON schema. The answer always matches it."),
    SERVED(OLLAMA, "think", ANY, .read = read_think, .text =
        "true, false, or how much: low, medium, high or max. It is an error if the model cannot "
        "think."),
    SERVED(OLLAMA, "logprobs", BOOL, AT(logprobs), .text =
        "true: return the log probabilities of the answer's tokens. They are the model's own, "
        "before penalties, temperature and constraints."),
    SERVED(OLLAMA, "top_logprobs", INT, .min = 0, .max = 20, AT(top_logprobs), .text =
        "Also return this many of the most likely tokens at each position."),
    SERVED(OLLAMA, "radish", OBJECT, .read = read_radish, .text = "radish's own options."),
    SERVED(OLLAMA, "keep_alive", ANY, .read = read_keep_alive, .text =
        "The model stays loaded as long as the server runs. 0 without a prompt gets `done_reason: "
        "\"unload\"`, as from Ollama, but nothing is unloaded."),
    INERT(OLLAMA, "truncate", "Prompts are never cut: a prompt that does not fit is an error."),
    INERT(OLLAMA, "shift", "An answer ends when the context is full."),
    REFUSED(OLLAMA, "template", "\"\"", "The template is set when the server starts."),
    REFUSED(OLLAMA, "_debug_render_only", "false", "Use /apply-template."),

    SERVED(OLLAMA_CHAT, "messages", ARRAY, .read = read_ollama_messages, .text =
        "The whole conversation. Empty or absent: the response only says that the model is "
        "loaded."),
    SERVED(OLLAMA_CHAT, "tools", ARRAY, .read = read_tools, .text =
        "Functions that the model may call, as in a chat completion."),

    SERVED(OLLAMA_GENERATE, "prompt", STRING, .read = read_ollama_prompt, .text =
        "The user's message. Empty or absent: the response only says that the model is loaded."),
    SERVED(OLLAMA_GENERATE, "system", STRING, .read = read_system, .text = "A system message."),
    SERVED(OLLAMA_GENERATE, "raw", BOOL, .read = read_raw, .text =
        "true: continue the prompt as it is, without the chat template."),
    SERVED(OLLAMA_GENERATE, "suffix", STRING, .read = read_suffix, .text =
        "The text after the gap: the model fills in what belongs between `prompt` and `suffix`, "
        "without the chat template. Needs a model with fill-in-the-middle tokens."),
    REFUSED(OLLAMA_GENERATE, "images", "[]", "This model has no vision: it reads text only."),
    REFUSED(OLLAMA_GENERATE, "context", "[]", "Send the conversation to /api/chat instead."),

    SERVED(OLLAMA_OPTIONS, "num_predict", INT, .read = read_num_predict, .text =
        "The most tokens to generate. 0 or less: the server's default, which is the rest of the "
        "context."),
    SERVED(OLLAMA_OPTIONS, "temperature", NUMBER, .min = 0, .max = 2, AT(sampling.temperature),
        .text = "0 always picks the most likely token."),
    SERVED(OLLAMA_OPTIONS, "top_k", INT, .min = -1, .max = FIELD_NO_MAX, AT(top_k), .text =
        "Sample from this many of the most likely tokens. 0 or -1: from all."),
    SERVED(OLLAMA_OPTIONS, "top_p", NUMBER, .min = 0, .max = 1, AT(sampling.top_p), .text =
        "Sample from the smallest set of most likely tokens whose probabilities add up to this."),
    SERVED(OLLAMA_OPTIONS, "min_p", NUMBER, .min = 0, .max = 1, AT(sampling.min_p), .text =
        "Drop tokens less likely than this fraction of the most likely token."),
    SERVED(OLLAMA_OPTIONS, "typical_p", NUMBER, .min = 0, .max = 1, AT(sampling.typical_p), .text =
        "Sample from the most typical tokens whose probabilities add up to this. Default 1: off."),
    SERVED(OLLAMA_OPTIONS, "repeat_last_n", INT, .min = -1, .max = FIELD_NO_MAX,
        AT(repeat_last_n), .text =
        "How many of the answer's last tokens the penalties consider. -1: all of them. 0: no "
        "repetition penalty."),
    SERVED(OLLAMA_OPTIONS, "repeat_penalty", NUMBER, .min = 0.01, .max = 10,
        AT(sampling.repetition_penalty), .text =
        "Divides the positive logits and multiplies the negative logits of tokens that are "
        "already in the answer."),
    SERVED(OLLAMA_OPTIONS, "presence_penalty", NUMBER, .min = -2, .max = 2,
        AT(sampling.presence_penalty), .text =
        "Subtracted from the logit of each token that is already in the answer."),
    SERVED(OLLAMA_OPTIONS, "frequency_penalty", NUMBER, .min = -2, .max = 2,
        AT(sampling.frequency_penalty), .text =
        "Subtracted from the logit of a token once for each time it is in the answer."),
    SERVED(OLLAMA_OPTIONS, "seed", INT, .read = read_seed, .text =
        "The same request with the same seed gets the same answer. Absent or -1: a new seed each "
        "time."),
    SERVED(OLLAMA_OPTIONS, "stop", ANY, .read = read_stop, .text =
        "A string, or an array of up to 128. The answer ends before the first of them that "
        "appears."),
    INERT(OLLAMA_OPTIONS, "num_ctx",
        "The context size is set when the server starts (-c). A prompt that does not fit is an "
        "error."),
    INERT(OLLAMA_OPTIONS, "num_keep", "The context is never shifted."),
    INERT(OLLAMA_OPTIONS, "num_batch", "The server chooses the batch size."),
    INERT(OLLAMA_OPTIONS, "num_thread", "Set when the server starts (-t)."),
    INERT(OLLAMA_OPTIONS, "num_gpu", "The engine is chosen when the server starts."),
    INERT(OLLAMA_OPTIONS, "main_gpu", "The engine is chosen when the server starts."),
    INERT(OLLAMA_OPTIONS, "low_vram", "The engine is chosen when the server starts."),
    INERT(OLLAMA_OPTIONS, "numa", "The server manages memory itself."),
    INERT(OLLAMA_OPTIONS, "use_mmap", "The server manages memory itself."),
    INERT(OLLAMA_OPTIONS, "use_mlock", "The server manages memory itself."),
    INERT(OLLAMA_OPTIONS, "draft_num_predict", "A hint for speed only."),
    INERT(OLLAMA_OPTIONS, "penalize_newline", "Line feeds are penalized like other tokens."),
    INERT(OLLAMA_OPTIONS, "mirostat_eta", "Only mirostat uses it, which radish does not have."),
    INERT(OLLAMA_OPTIONS, "mirostat_tau", "Only mirostat uses it, which radish does not have."),
    REFUSED(OLLAMA_OPTIONS, "mirostat", "0", "radish does not have this sampler."),
    REFUSED(OLLAMA_OPTIONS, "tfs_z", "0 1", "radish does not have this sampler."),

    SERVED(OLLAMA_MESSAGE, "role", STRING, .read = read_role, .text =
        "system, user, assistant or tool."),
    SERVED(OLLAMA_MESSAGE, "content", ANY, .read = read_content, .text =
        "A string. Absent: an empty string."),
    SERVED(OLLAMA_MESSAGE, "thinking", STRING, .read = read_reasoning, .text =
        "The thinking of an earlier answer. It is passed to the chat template, which shows or "
        "drops it."),
    SERVED(OLLAMA_MESSAGE, "tool_calls", ARRAY, .read = read_tool_calls, .text =
        "The calls made by an earlier answer. Ids are optional."),
    SERVED(OLLAMA_MESSAGE, "tool_name", STRING, .read = read_tool_name, .text =
        "For role tool: the function that returned this content. Without it and tool_call_id, "
        "results belong to the calls in order."),
    SERVED(OLLAMA_MESSAGE, "tool_call_id", STRING, .read = read_tool_call_id, .text =
        "For role tool: the id of the call that returned this content."),
    REFUSED(OLLAMA_MESSAGE, "images", "[]", "This model has no vision: it reads text only."),

    SERVED(OLLAMA_SHOW, "model", STRING, .read = read_model, .text = "The same as in `/api/chat`."),
    SERVED(OLLAMA_SHOW, "name", STRING, .read = read_model, .text = "The older name of model."),
    INERT(OLLAMA_SHOW, "verbose", "Everything is always shown."),
    INERT(OLLAMA_SHOW, "system", "It changes nothing."),
    INERT(OLLAMA_SHOW, "template", "It changes nothing."),
    INERT(OLLAMA_SHOW, "options", "It changes nothing."),
};
/* clang-format on */

const size_t n_request_fields = sizeof request_fields / sizeof *request_fields;
