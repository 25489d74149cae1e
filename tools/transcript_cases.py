"""The requests that transcripts.py records, in the order in which they are sent.

An answer may depend on earlier requests of its group, but not on time or chance: requests that sample have a seed.
Each group has its own server, so `record --only GROUP` records the same answers as a whole run.
"""

import json
import os
import tempfile

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
WARM = "/v1/cache/warm"
HELLO = [{"role": "user", "content": "Hello! Who are you?"}]
SYSTEM = {"role": "system", "content": "You are a careful clerk who answers in few words. " * 4}
ASK = {"messages": HELLO, "max_tokens": 16, "seed": 1}
GREEDY = {"messages": HELLO, "max_tokens": 12, "temperature": 0}
PROMPT = {"prompt": "The capital of France is", "max_tokens": 10, "seed": 1}

PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}},
    "required": ["name", "age", "tags"], "additionalProperties": False}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": {
    "type": "object", "properties": {
        "value": {"type": "number", "minimum": 0, "maximum": 9.5},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
    "required": ["value", "children"], "additionalProperties": False}}}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 12}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"], "additionalProperties": False}}}
TIME = {"type": "function", "function": {
    "name": "get_time", "parameters": {"type": "object", "properties": {
        "zone": {"type": "integer", "minimum": -12, "maximum": 14}}, "required": ["zone"]}}}
TOOLS = [WEATHER, TIME]
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
CALLING = {"messages": QUESTION, "tools": TOOLS, "max_tokens": 120, "seed": 1, "temperature": 0.5}
TOOL_FORMATS = ("hermes", "qwen-coder", "llama3", "mistral", "gemma-code", "gemma", "deepseek", "glm", "kimi",
                "minimax", "harmony", "json")

# The prompt ends inside the thinking, or the model starts it and the template can switch it off.
THINK_BEGUN = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n"
               "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}")
THINK_SWITCH = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                "{% if add_generation_prompt %}<|im_start|>assistant\n"
                "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}")
# The format of gpt-oss, in which thinking, calls and the answer are channels.
HARMONY = ("{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
           "{% if add_generation_prompt %}<|start|>assistant{% endif %}{# <|channel|> #}")


def literal(text):
    """A regular expression that matches exactly this text, which forces the answer."""
    return "".join("\\" + c if c in r"\.[]{}()<>*+-=!?^$|/" else c for c in text)


def answered(messages, answer, *more):
    """A conversation that continues after an answer. Its calls get the same ids in every recording."""
    message = dict(answer["choices"][0]["message"])
    calls = [{**call, "id": f"call_{i}"} for i, call in enumerate(message.get("tool_calls") or [])]
    if calls:
        message["tool_calls"] = calls
    return messages + [message] + list(more)


# ---- what every engine answers -------------------------------------------------------------------------------

def plain_answers(s):
    s.both("greedy", CHAT, GREEDY)
    s.both("seeded", CHAT, ASK)
    s.chat("no-usage-stream", {**ASK, "stream": True})
    s.both("limit-1", CHAT, {**GREEDY, "max_tokens": 1})
    s.chat("max-completion-tokens", {"messages": HELLO, "max_completion_tokens": 3, "max_tokens": 9, "seed": 2})
    s.chat("n-predict", {"messages": HELLO, "n_predict": 4, "seed": 2})
    s.both("stop", CHAT, {**ASK, "max_tokens": 40, "stop": ["e", "zz"]})
    s.both("stop-pieces", CHAT, {**GREEDY, "max_tokens": 40, "stop": [" a", "I am", ". "]})
    s.chat("ignore-eos", {**ASK, "max_tokens": 60, "ignore_eos": True})
    s.chat("min-tokens", {**ASK, "max_tokens": 30, "min_tokens": 20})
    s.chat("system", {**GREEDY, "messages": [SYSTEM, *HELLO]})
    s.chat("developer", {**GREEDY, "messages": [{**SYSTEM, "role": "developer"}, *HELLO]})
    s.chat("parts", {**GREEDY, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "One"}, {"type": "text", "text": "Two", "cache_control": {"type": "ephemeral"}}]}]})
    s.chat("unicode", {**ASK, "messages": [{"role": "user", "content": "Zażółć 東京 🙂 \u0000 é\n\t\\ \"x\""}]})
    s.chat("empty", {**ASK, "messages": [{"role": "user", "content": ""}]})


def texts(s):
    s.both("text", TEXT, PROMPT)
    s.both("text-echo", TEXT, {**PROMPT, "echo": True})
    s.both("text-logprobs", TEXT, {**PROMPT, "logprobs": 3, "max_tokens": 5})
    s.both("text-echo-logprobs", TEXT, {**PROMPT, "echo": True, "logprobs": 2, "max_tokens": 3})
    s.post("text-scores", TEXT, {**PROMPT, "echo": True, "logprobs": 0, "max_tokens": 0})
    s.post("text-ids", TEXT, {**PROMPT, "prompt": [40, 41, 42, 43]})
    s.post("text-default-length", TEXT, {"prompt": "Once upon a time", "temperature": 0})
    s.post("text-choice", TEXT, {**PROMPT, "guided_choice": ["Paris", "Rome"]})
    s.post("text-explain", TEXT, {**PROMPT, "radish": {"explain": True}})
    s.post("text-short-path", "/completions", PROMPT)


def sampling(s):
    for name, options in {
            "cold": {"temperature": 0.1}, "hot": {"temperature": 2}, "top-p": {"top_p": 0.3}, "top-k": {"top_k": 5},
            "min-p": {"min_p": 0.2}, "sigma": {"top_n_sigma": 1.0}, "typical": {"typical_p": 0.4},
            "xtc": {"xtc_probability": 1, "xtc_threshold": 0.05}, "presence": {"presence_penalty": 1.5},
            "frequency": {"frequency_penalty": 2, "repeat_last_n": 8}, "repetition": {"repetition_penalty": 1.5},
            "repeat": {"repeat_penalty": 1.3, "repeat_last_n": 0},
            "all": {"temperature": 0.9, "top_p": 0.9, "top_k": 30, "min_p": 0.02, "presence_penalty": 0.2,
                    "frequency_penalty": 0.1, "dry_multiplier": 0.5}}.items():
        s.chat("sampling-" + name, {**ASK, **options})
    repeating = {**GREEDY, "max_tokens": 40, "messages": [{"role": "user", "content": "ab ab ab ab ab: ab ab ab ab"}]}
    s.chat("dry-off", repeating)
    s.chat("dry", {**repeating, "dry_multiplier": 2, "dry_base": 1.5, "dry_allowed_length": 1})
    s.chat("dry-breakers", {**repeating, "dry_multiplier": 2, "dry_allowed_length": 1,
                            "dry_sequence_breakers": [" ", "b"], "dry_penalty_last_n": 16})
    s.chat("logit-bias", {**GREEDY, "logit_bias": {"65": 100, "66": -100}})
    s.chat("logit-bias-pairs", {**GREEDY, "logit_bias": [[66, 50.5]]})
    s.both("logprobs", CHAT, {**ASK, "max_tokens": 6, "logprobs": True})
    s.both("top-logprobs", CHAT, {**ASK, "max_tokens": 5, "logprobs": True, "top_logprobs": 4})
    s.chat("logprobs-stop", {**ASK, "max_tokens": 30, "logprobs": True, "stop": ["e"]})
    for seed in (0, 2, 2 ** 40, -7):
        s.chat(f"seed-{seed}", {**ASK, "seed": seed})


def forms(s):
    wanted = {**ASK, "max_tokens": 120}
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    s.both("json-object", CHAT, {**wanted, "response_format": {"type": "json_object"}})
    s.both("json-schema", CHAT, {**wanted, "response_format": schema})
    s.chat("json-schema-hot", {**wanted, "response_format": schema, "temperature": 1.5})
    s.chat("json-schema-short", {**wanted, "response_format": schema, "max_tokens": 30})
    s.chat("json-schema-cut", {**wanted, "response_format": schema, "max_tokens": 5})
    s.chat("json-schema-field", {**wanted, "json_schema": TREE})
    s.chat("guided-json", {**wanted, "guided_json": PERSON})
    s.both("grammar", CHAT, {**wanted, "grammar": 'root ::= "<" item ("," item)* ">"\nitem ::= [a-z]{1,8}'})
    s.both("regex", CHAT, {**wanted, "regex": r"(yes|no), [0-9]{3}-[a-f]+\."})
    s.chat("choice", {**wanted, "guided_choice": ["positive", "negative"]})
    s.chat("structured-outputs", {**wanted, "structured_outputs": {"regex": "[xyz]{4}"}})
    s.chat("form-begun", {**wanted, "response_format": schema,
                          "messages": HELLO + [{"role": "assistant", "content": '{"name": "Al'}]})
    s.chat("form-begun-wrong", {**wanted, "response_format": schema,
                                "messages": HELLO + [{"role": "assistant", "content": "Sure!"}]})
    s.chat("form-logprobs", {**wanted, "guided_choice": ["yes", "no"], "logprobs": True, "top_logprobs": 2})
    s.chat("form-stop", {**wanted, "response_format": schema, "stop": ['"age"']})
    s.chat("form-penalties", {**wanted, "response_format": schema, "presence_penalty": 2, "dry_multiplier": 1})


def tools(s):
    s.both("tools-auto", CHAT, {**CALLING, "max_tokens": 40})
    s.chat("tools-none", {**CALLING, "max_tokens": 30, "tool_choice": "none"})
    answer = s.both("tools-required", CHAT, {**CALLING, "tool_choice": "required", "parallel_tool_calls": False})
    s.both("tools-named", CHAT, {**CALLING, "tool_choice": {"type": "function", "function": {"name": "get_time"}}})
    s.both("tools-parallel", CHAT, {**CALLING, "tool_choice": "required", "ignore_eos": True})
    s.chat("tools-allowed", {**CALLING, "tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [{"type": "function", "function": {"name": "get_time"}}]}}})
    s.both("tools-cut", CHAT, {**CALLING, "tool_choice": "required", "max_tokens": 20})
    s.chat("tools-form", {**CALLING, "guided_choice": ["fine", "wet"], "max_tokens": 60})
    results = [{"role": "tool", "tool_call_id": f"call_{i}", "content": '{"celsius": 17}'}
               for i in range(len(answer["choices"][0]["message"]["tool_calls"]))]
    turn = {**CALLING, "messages": answered(QUESTION, answer, *results), "max_tokens": 30, "radish": {"explain": True}}
    answer = s.both("tools-results", CHAT, {**turn, "tool_choice": "none"})
    s.chat("tools-again", {**turn, "messages": answered(turn["messages"], answer, *QUESTION), "tool_choice": "required",
                           "max_tokens": 100})
    s.post("tools-render", "/apply-template", {"messages": turn["messages"], "tools": TOOLS})


def conversation(s):
    """Later turns find the earlier ones in the cache, and answers sent back reuse their original tokens."""
    messages = [SYSTEM, *HELLO]
    for i in range(4):
        body = {"messages": messages, "max_tokens": 20, "seed": i, "temperature": 1.1, "radish": {"explain": True}}
        answer = s.chat(f"turn-{i}", body)
        messages = answered(messages, answer, {"role": "user", "content": f"And what about number {i}?"})
    s.chat("turn-stream", {**GREEDY, "messages": messages, "stream": True, "stream_options": {"include_usage": True},
                           "radish": {"explain": True}})
    s.chat("turn-no-replay", {**GREEDY, "messages": messages, "replay": False, "radish": {"explain": True}})
    s.chat("turn-no-cache", {**GREEDY, "messages": messages, "cache_prompt": False}, {"x-radish-explain": "true"})
    shortened = [*messages[:2], {**messages[2], "content": messages[2]["content"][:-3]}, *messages[3:]]
    s.chat("turn-shortened", {**GREEDY, "messages": shortened, "radish": {"explain": True}})
    s.chat("turn-other", {**GREEDY, "messages": [*messages[:3], {"role": "user", "content": "Something else?"}],
                          "radish": {"explain": True}})
    s.chat("same-again", {**GREEDY, "messages": messages, "radish": {"explain": True}})
    begun = HELLO + [{"role": "assistant", "content": "I am a"}]
    s.both("prefill", CHAT, {**GREEDY, "messages": begun})
    s.chat("prefill-flag", {**GREEDY, "messages": [*HELLO, {**begun[-1], "prefix": True}]})
    s.chat("prefill-continue", {**GREEDY, "messages": begun, "continue_final_message": True,
                                "add_generation_prompt": False})
    s.chat("prefill-not", {**GREEDY, "messages": begun, "continue_final_message": False})


def choices(s):
    """Several choices and prompts at once. How they share computation depends on timing, and so do the cache's
    counters; these requests have their own servers, whose cache is not recorded."""
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    s.both("chat", CHAT, {**ASK, "n": 3, "temperature": 1.2})
    s.both("greedy", CHAT, {**GREEDY, "n": 2})
    s.both("long", CHAT, {**ASK, "n": 4, "max_tokens": 60, "ignore_eos": True})
    s.both("text", TEXT, {**PROMPT, "n": 2, "logprobs": 2, "echo": True})
    s.both("prompts", TEXT, {**PROMPT, "prompt": ["One, two,", "Red, green,"], "n": 2, "max_tokens": 4})
    s.post("ids", TEXT, {**PROMPT, "prompt": [[40, 41], [50, 51, 52]], "max_tokens": 3})
    s.both("schema", CHAT, {**ASK, "n": 2, "max_tokens": 120, "temperature": 1.5, "response_format": schema})
    s.both("calls", CHAT, {**CALLING, "n": 2, "tool_choice": "required", "temperature": 1})
    s.both("no-cache", CHAT, {**ASK, "n": 2, "cache_prompt": False})
    s.both("stops", CHAT, {**ASK, "n": 3, "temperature": 1.5, "max_tokens": 40, "stop": ["e", " t"]})


def cache(s):
    s.post("warm", WARM, {"messages": [SYSTEM]})
    s.post("warm-again", WARM, {"messages": [SYSTEM], "radish": {"explain": True}})
    s.post("warm-answer", WARM, {"messages": [SYSTEM, *HELLO], "add_generation_prompt": True, "pin": 600})
    s.chat("warmed", {**GREEDY, "messages": [SYSTEM, *HELLO], "radish": {"explain": True}})
    s.get("cache", "/v1/cache")
    s.get("cache-page", "/v1/cache?limit=2")
    s.get("cache-tree", "/v1/cache/tree?depth=6&limit=40")
    s.get("cache-tree-shallow", "/v1/cache/tree?depth=0")
    for name, query in {"limit": "limit=0", "unknown": "x=1", "twice": "limit=1&limit=2", "text": "limit=a",
                        "escape": "after=%zz"}.items():
        s.get("cache-wrong-" + name, "/v1/cache?" + query)
    s.get("cache-tree-wrong", "/v1/cache/tree?depth=33")
    s.get("stats", "/stats")
    s.get("cache-clear", "/v1/cache", method="DELETE")
    s.get("cache-cleared", "/v1/cache")
    s.chat("after-clear", {**GREEDY, "messages": [SYSTEM, *HELLO], "radish": {"explain": True}})


def helpers(s):
    s.post("tokenize", "/tokenize", {"content": "Hello, 東京 <|im_end|>!", "with_pieces": True})
    s.post("tokenize-plain", "/tokenize", {"prompt": "Hello <|im_end|>", "parse_special": False, "add_special": True})
    s.post("detokenize", "/detokenize", {"tokens": [1, 72, 101, 108]})
    s.post("detokenize-wrong", "/detokenize", {"tokens": [1, -5]})
    s.post("render", "/apply-template", {"messages": [SYSTEM, *HELLO]})
    s.post("render-open", "/apply-template", {"messages": HELLO, "add_generation_prompt": False})
    for path in ("/v1/models", "/models", "/v1/models/mock", "/v1/models/other", "/health", "/v1/health", "/health?x=1",
                 "/", "/nowhere", "/v1/models/", "/openapi.json", "/props", "/metrics", "/%00"):
        s.get("get-" + (path.strip("/").replace("/", "-").replace("?", "-").replace("%", "") or "root"), path)


def errors(s):
    for name, change in {
            "no-messages": {"messages": None}, "messages-empty": {"messages": []}, "messages-text": {"messages": "Hi"},
            "role": {"messages": [{"role": "wizard", "content": "Hi"}]},
            "content": {"messages": [{"role": "user", "content": 5}]},
            "part": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
            "tool-without-call": {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]},
            "temperature": {"temperature": 3}, "temperature-text": {"temperature": "1"}, "top-p": {"top_p": -0.1},
            "n": {"n": 0}, "n-large": {"n": 129}, "max-tokens": {"max_tokens": 0}, "max-tokens-text": {"max_tokens": "5"},
            "stream": {"stream": "yes"}, "stream-options": {"stream_options": {"include_usage": True}},
            "stop": {"stop": [""]}, "stops": {"stop": ["x"] * 17}, "seed": {"seed": 1.5},
            "logit-bias": {"logit_bias": {"x": 1}}, "logit-bias-range": {"logit_bias": {"5": 101}},
            "logit-bias-id": {"logit_bias": {"999999999": 1}}, "top-logprobs": {"top_logprobs": 3},
            "best-of": {"best_of": 2}, "functions": {"functions": [{"name": "f"}]}, "echo": {"echo": True},
            "modalities": {"modalities": ["audio"]}, "mirostat": {"mirostat": 2}, "lora": {"lora": [{"id": 0}]},
            "dry-breakers": {"dry_sequence_breakers": [""]}, "template-kwargs": {"chat_template_kwargs": {"messages": 1}},
            "schema-not": {"json_schema": {"not": {}}}, "schema-type": {"json_schema": {"type": "wizard"}},
            "schema-ref": {"json_schema": {"$ref": "#/nowhere"}}, "schema-false": {"json_schema": False},
            "pattern": {"json_schema": {"type": "string", "pattern": "(?=a)"}},
            "grammar": {"grammar": "root ::= other"}, "grammar-left": {"grammar": 'root ::= root "a" | "b"'},
            "regex": {"regex": "(a"}, "two-forms": {"regex": "a", "grammar": 'root ::= "b"'},
            "format-type": {"response_format": {"type": "xml"}}, "choice-empty": {"guided_choice": []},
            "tools-none": {"tool_choice": "required"}, "tools-kind": {"tools": [{"type": "retrieval"}]},
            "tools-twice": {"tools": [TIME, TIME]}, "tools-name": {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools-choice": {"tools": TOOLS, "tool_choice": "sometimes"},
            "tools-named": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tools-strict": {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {
                "type": "object", "properties": {"a": {"not": {"type": "string"}}}}}}]},
            "thinking": {"thinking": {"type": "maybe"}}, "radish": {"radish": {"explain": 1}},
            "continue": {"continue_final_message": True}}.items():
        s.chat("error-" + name, {**ASK, **change})
    s.post("error-text-suffix", TEXT, {**PROMPT, "suffix": "x"})
    s.post("error-text-prompt", TEXT, {"max_tokens": 2})
    s.post("error-text-ids", TEXT, {**PROMPT, "prompt": [1, 99999999]})
    s.post("error-text-logprobs", TEXT, {**PROMPT, "logprobs": 21})
    s.post("error-warm-stream", WARM, {"messages": HELLO, "stream": True})
    s.post("error-warm-pin", WARM, {"messages": HELLO, "pin": -1})
    s.chat("ignored", {**ASK, "foo": 1, "bar\r\nX: 1": 2, "messages": [{"role": "user", "content": "Hi", "baz": []}]})
    s.chat("ignored-stream", {**ASK, "foo": 1, "stream": True})
    s.chat("inert", {**ASK, "user": "me", "metadata": {}, "store": False, "service_tier": "auto", "foo": None})
    for name, body in {"empty": b"", "array": b"[]", "text": b'"x"', "cut": b'{"messages": [', "twice": b"{} {}",
                       "comma": b'{"a": 1,}', "control": b'{"a": "\x01"}', "utf8": b'{"a": "\xff"}',
                       "surrogate": rb'{"messages": [{"role": "user", "content": "\ud800"}], "max_tokens": 2, "seed": 1}',
                       "number": b'{"max_tokens": 01}', "deep": b"[" * 2000, "same-name": b'{"n": 1, "n": 2}'}.items():
        s.chat("json-" + name, body)


def http(s):
    body = json.dumps(ASK).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", None, "Application/JSON; charset=utf-8"):
        s.chat("type-" + (kind or repr(kind)).replace("/", "-").replace("; ", "-"), body, {"Content-Type": kind})
    s.chat("encoding", body, {"Content-Encoding": "gzip"})
    s.chat("encoding-identity", body, {"Content-Encoding": "identity"})
    for host in ("localhost", "127.0.0.1:1", "evil.example", "10.0.0.1", ""):
        s.get(f"host-{host or 'empty'}", "/health", {"Host": host})
    for origin in ("http://localhost:3000", "http://evil.example", "null"):
        s.get("origin-" + origin.replace("/", ""), "/health", {"Origin": origin})
        s.chat("origin-chat-" + origin.replace("/", ""), ASK, {"Origin": origin})
    s.get("preflight", CHAT, {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST",
                              "Access-Control-Request-Headers": "content-type, x-y"}, "OPTIONS")
    s.get("options-nowhere", "/nowhere", method="OPTIONS")
    s.raw("options-all", b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    for method, path in (("HEAD", "/health"), ("HEAD", "/v1/models"), ("GET", CHAT), ("DELETE", "/health"),
                         ("PUT", CHAT), ("BREW", "/health"), ("TRACE", "/health"), ("POST", "/v1/models")):
        s.get(f"method-{method}{path.replace('/', '-')}", path, method=method)
    host = b"Host: localhost\r\n"
    post = b"POST /v1/chat/completions HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n" + host
    for name, data in {
            "no-host": b"GET / HTTP/1.1\r\n\r\n", "two-hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "bare-lf": b"GET / HTTP/1.1\n" + host + b"\r\n", "space": b"GET /a b HTTP/1.1\r\n" + host + b"\r\n",
            "field": b"GET /health HTTP/1.1\r\n" + host + b"A : b\r\n\r\n",
            "folded": b"GET /health HTTP/1.1\r\n" + host + b"A: b\r\n c\r\n\r\n",
            "version": b"GET /health HTTP/2.0\r\n" + host + b"\r\n",
            "long-target": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + host + b"\r\n",
            "many-fields": b"GET /health HTTP/1.1\r\n" + host + b"A: b\r\n" * 101 + b"\r\n",
            "expect": b"GET /health HTTP/1.1\r\n" + host + b"Expect: miracles\r\n\r\n",
            "too-large": post + b"Content-Length: 33554433\r\n\r\n", "length": post + b"Content-Length: -1\r\n\r\n",
            "coding": post + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
            "both-lengths": post + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "bad-chunk": post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            "chunked": post + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
            "old": b"GET /health HTTP/1.0\r\n\r\n",
            "old-stream": post.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Content-Length: %d\r\n\r\n%s" % (
                len(body) + 16, body[:-1] + b', "stream": true}'),
            "absolute": b"GET http://127.0.0.1/health HTTP/1.1\r\nConnection: close\r\n" + host + b"\r\n"}.items():
        s.raw("http-" + name, data)


# ---- groups: a server each -----------------------------------------------------------------------------------

def model_group(recorder):
    with recorder.serve("model", "-m", recorder.model, "-t", "2", "-c", "1024", "--cache-size", "20000t",
                        "--alias", "model") as s:
        if s:
            for part in (plain_answers, texts, sampling, forms, tools, conversation, cache, helpers):
                part(s)
    with recorder.serve("choices-model", "-m", recorder.model, "-t", "2", "-c", "1024", "--cache-size", "20000t",
                        "--alias", "model") as s:
        if s:
            choices(s)


def mock_groups(recorder):
    with recorder.serve("mock", "--engine", "mock") as s:
        if s:
            for part in (plain_answers, texts, sampling, forms, tools, conversation, cache, helpers, errors, http):
                part(s)
    with recorder.serve("window", "--engine", "mock", "--mock-window", "32", "--cache-size", "900t", "-c", "800",
                        "--max-seqs", "2") as s:
        if s:
            for part in (plain_answers, conversation, pressure, cache):
                part(s)
    for name, options in {"mock": (), "window": ("--mock-window", "32"),
                          "crowded": ("--cache-size", "900t", "-c", "800", "--max-seqs", "2")}.items():
        with recorder.serve("choices-" + name, "--engine", "mock", *options) as s:
            if s:
                choices(s)


def pressure(s):
    """More than a small cache holds: what is evicted, and what is reported about it."""
    for i in range(6):
        s.chat(f"fill-{i}", {**GREEDY, "messages": [{"role": "user", "content": f"{i} " + "pressure " * 20}]})
    s.post("pin", WARM, {"messages": [SYSTEM], "pin": 600})
    s.post("pin-too-much", WARM, {"messages": [{"role": "system", "content": "Keep this too. " * 20}], "pin": 600})
    for i in range(3):
        s.chat(f"evicted-{i}", {**GREEDY, "messages": [{"role": "user", "content": f"{i} " + "pressure " * 20}],
                                "radish": {"explain": True}})
    s.chat("too-long", {**GREEDY, "messages": [{"role": "user", "content": "long " * 300}]})
    s.chat("too-long-stream", {**GREEDY, "stream": True, "messages": [{"role": "user", "content": "long " * 300}]})
    s.post("too-long-text", TEXT, {**PROMPT, "prompt": "long " * 300})
    s.post("too-long-warm", WARM, {"messages": [{"role": "user", "content": "long " * 300}]})
    s.chat("clamped", {**GREEDY, "messages": [{"role": "user", "content": "long " * 120}], "max_tokens": 5000,
                       "ignore_eos": True})


def small_group(recorder):
    with recorder.serve("small", "--engine", "mock", "--cache-size", "800t", "-c", "700", "--max-seqs", "2") as s:
        if s:
            pressure(s)
            cache(s)


def template_groups(recorder, folder):
    for name, template in {"begun": THINK_BEGUN, "switch": THINK_SWITCH, "harmony": HARMONY}.items():
        path = os.path.join(folder, name + ".jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write(template)
        with recorder.serve("thinking-" + name, "--engine", "mock", "--chat-template-file", path) as s:
            if s:
                thinking(s)


def thinking(s):
    base = {**ASK, "max_tokens": 80, "temperature": 0.5, "ignore_eos": True}
    for name, options in {
            "plain": {}, "budget": {"thinking_budget_tokens": 20}, "budget-0": {"thinking_budget": 0},
            "off": {"enable_thinking": False}, "off-kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
            "effort": {"reasoning_effort": "none"}, "reasoning": {"reasoning": {"effort": "low"}},
            "anthropic": {"thinking": {"type": "enabled", "budget_tokens": 10}},
            "disabled": {"thinking": {"type": "disabled"}},
            "choice": {"thinking_budget": 10, "ignore_eos": False, "guided_choice": ["four", "five"]},
            "schema": {"thinking_budget": 5, "ignore_eos": False, "json_schema": PERSON, "max_tokens": 200},
            "tools": {"thinking_budget": 5, "tools": TOOLS, "tool_choice": "required", "max_tokens": 200},
            "tools-auto": {"thinking_budget": 5, "tools": TOOLS},
            "stop": {"thinking_budget": 8, "stop": ["e"]},
            "logprobs": {"thinking_budget": 4, "logprobs": True, "max_tokens": 30}}.items():
        s.both(name, CHAT, {**base, **options})
    answer = s.chat("first-turn", {**base, "thinking_budget": 8, "ignore_eos": False})
    s.chat("second-turn", {**base, "messages": answered(HELLO, answer, *QUESTION), "radish": {"explain": True}})
    for name, begun in {"thought": "<think>\nLet me see, ", "ended": "<think>\nTwo.\n</think>\n\nIt is", "mark": "<thi",
                        "channel": "<|channel|>analysis<|message|>Let me", "final": "<|channel|>final<|message|>It"}.items():
        s.both("begun-" + name, CHAT, {**base, "messages": HELLO + [{"role": "assistant", "content": begun}]})
    for name, text in {**LOOKALIKES, "think": "So: <think>no</think> yes"}.items():
        s.both("said-" + name, CHAT, {**base, "tools": TOOLS, "regex": literal(text), "max_tokens": 300,
                                      "ignore_eos": False, "thinking_budget": 4, "logit_bias": {str(ord(text[0])): 100}})
    thought = {"role": "assistant", "content": "Four.", "reasoning_content": "Two and two."}
    s.post("render-thought", "/apply-template", {"messages": HELLO + [thought] + QUESTION})


def format_groups(recorder):
    """Each form of calls: enforced, free, cut off, broken, and text that only looks like a call."""
    for form in TOOL_FORMATS:
        with recorder.serve("format-" + form, "--engine", "mock", "--tool-format", form) as s:
            if not s:
                continue
            answer = s.both("required", CHAT, {**CALLING, "tool_choice": "required", "parallel_tool_calls": False})
            s.both("parallel", CHAT, {**CALLING, "tool_choice": "required", "max_tokens": 300, "ignore_eos": True})
            s.both("auto", CHAT, {**CALLING, "max_tokens": 40})
            s.both("named", CHAT, {**CALLING, "tool_choice": {"type": "function", "function": {"name": "get_time"}}})
            s.both("cut", CHAT, {**CALLING, "tool_choice": "required", "max_tokens": 35})
            s.chat("logprobs", {**CALLING, "tool_choice": "required", "max_tokens": 30, "logprobs": True, "stream": True})
            message = answer["choices"][0]["message"]
            results = [{"role": "tool", "tool_call_id": f"call_{i}", "content": "17"}
                       for i in range(len(message.get("tool_calls") or []))]
            s.chat("results", {**CALLING, "messages": answered(QUESTION, answer, *results), "max_tokens": 20,
                               "radish": {"explain": True}})
            for name, text in LOOKALIKES.items():
                s.both("said-" + name, CHAT, {**CALLING, "regex": literal(text), "max_tokens": 300,
                                              "logit_bias": {str(ord(text[0])): 100}})


# Texts that the model is forced to write, so that the parser of each format meets the marks of all of them. Where a
# call is also allowed, a bias on the text's first byte decides; the mock's tokens are bytes.
ARGUMENTS = '{"city": "Paris", "unit": "celsius"}'
LOOKALIKES = {
    "hermes": 'So: <tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>' % ARGUMENTS,
    "hermes-broken": 'So: <tool_call>{"name": "get_weather", "arguments": {"city": } </tool_call> so',
    "unknown": 'So: <tool_call>{"name": "launch", "arguments": {}}</tool_call>',
    "coder": "So: <tool_call>\n<function=get_time>\n<parameter=zone>\n3\n</parameter>\n</function>\n</tool_call>",
    "llama3": '{"name": "get_weather", "parameters": %s}' % ARGUMENTS,
    "mistral": 'So: [TOOL_CALLS]get_weather[ARGS]%s' % ARGUMENTS,
    "python": "So: ```tool_code\nget_time(zone=3)\n```",
    "glm": "So: <tool_call>get_time\n<arg_key>zone</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
    "minimax": 'So: <minimax:tool_call>\n<invoke name="get_time">\n<parameter name="zone">3</parameter>\n</invoke>\n'
               "</minimax:tool_call>",
    "kimi": "So: <|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:0<|tool_call_argument_begin|>"
            '{"zone": 3}<|tool_call_end|><|tool_calls_section_end|>',
    "harmony": '<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{"zone": 3}<|call|>',
    "begun": "I would <tool_ca",
}


def key_groups(recorder, folder):
    policy = os.path.join(folder, "policy.txt")
    with open(policy, "w", encoding="utf-8") as file:
        file.write(SYSTEM["content"] + "\n")
    keys = ("--api-key", "alice:k-alice", "--api-key", "bob:k-bob", "--admin-key", "k-admin")
    who = {"alice": {"Authorization": "Bearer k-alice"}, "bob": {"x-api-key": "k-bob"},
           "admin": {"Authorization": "Bearer k-admin"}, "wrong": {"Authorization": "Bearer k"}, "nobody": {}}
    shared = {**GREEDY, "messages": [SYSTEM, *HELLO], "radish": {"explain": True}}
    own = {**GREEDY, "messages": QUESTION, "radish": {"explain": True}}
    for group, options in {"keys": ("--shared-prompt", policy), "keys-shared": ("--share-cache",),
                           "keys-capped": ("--tenant-cache-size", "300t")}.items():
        with recorder.serve(group, "--engine", "mock", *keys, *options, admin_key="k-admin") as s:
            if not s:
                continue
            for name in ("alice", "bob", "admin", "alice"):
                s.chat("prompt-" + name, shared, who[name])
                s.chat("own-" + name, own, who[name])
            for name, headers in who.items():
                s.chat("chat-" + name, ASK, headers)
                for path in ("/v1/models", "/stats", "/v1/cache", "/v1/cache/tree", "/health", "/nowhere"):
                    s.get(f"get-{name}{path.replace('/', '-')}", path, headers)
            s.get("clear-tenant", "/v1/cache?tenant=alice", who["admin"], "DELETE")
            s.get("clear-nobody", "/v1/cache?tenant=carol", who["admin"], "DELETE")
            s.get("cache-after", "/v1/cache", who["admin"])
            s.chat("prompt-after", shared, who["alice"])


def fault_groups(recorder):
    with recorder.serve("failing", "--engine", "mock", "--mock-fail-every", "7") as s:
        if s:
            for i in range(4):
                s.both(f"try-{i}", CHAT, {**ASK, "max_tokens": 20})
            s.post("text", TEXT, PROMPT)
            s.post("warm", WARM, {"messages": [SYSTEM]})
            s.get("stats", "/stats")
    with recorder.serve("nan", "--engine", "mock", "--mock-nan-every", "9") as s:
        if s:
            for i in range(3):
                s.both(f"try-{i}", CHAT, ASK)
            s.post("text", TEXT, {**PROMPT, "logprobs": 1})
    with recorder.serve("strict", "--engine", "mock", "--strict-fields", "--strict-model", "--alias", "radish-1",
                        "--max-body-mib", "1", "--default-max-tokens", "5", "--allowed-host", "box.example") as s:
        if s:
            s.chat("unknown", {**ASK, "foo": 1})
            s.chat("unknown-nested", {**ASK, "messages": [{"role": "user", "content": "Hi", "x": 1}]})
            s.chat("model", {**ASK, "model": "other"})
            s.chat("model-own", {**ASK, "model": "radish-1"})
            s.chat("default-length", {"messages": HELLO, "temperature": 0, "ignore_eos": True})
            s.get("host", "/health", {"Host": "box.example:99"})
            s.get("models", "/v1/models/radish-1")
            s.chat("large", b" " * (1 << 20) + b"{}")
    with recorder.serve("bare", "--engine", "mock", "--no-prefix-cache", "--no-token-replay") as s:
        if s:
            conversation(s)
            s.post("warm", WARM, {"messages": HELLO})
            s.get("cache", "/v1/cache")


def busy_groups(recorder):
    """Answers that need another request in progress."""
    forever = {"messages": HELLO, "max_tokens": 4000, "ignore_eos": True, "stream": True, "seed": 1}
    with recorder.serve("busy", "--engine", "mock", "--mock-batch-cost-us", "5000", "--max-seqs", "1",
                        "--max-waiting", "1") as s:
        if s:
            with s.holding(forever, {"running": 1}), s.holding(forever, {"running": 1, "waiting": 1}):
                s.ask("queue-full", "POST", CHAT, ASK, settle=False)
                s.ask("queue-full-stream", "POST", CHAT, {**ASK, "stream": True}, settle=False)
                s.ask("queue-full-choices", "POST", TEXT, {**PROMPT, "n": 2}, settle=False)
    with recorder.serve("timeout", "--engine", "mock", "--mock-batch-cost-us", "5000", "--timeout", "1") as s:
        if s:
            s.chat("too-slow", {**forever, "stream": False})
    with recorder.serve("stopping", "--engine", "mock", "--mock-batch-cost-us", "5000", "--shutdown-grace", "2") as s:
        if s:
            with s.holding(forever, {"running": 1}):
                s.process.terminate()
                s.wait_stopping()
                s.ask("health", "GET", "/health", settle=False)
                s.ask("chat", "POST", CHAT, ASK, settle=False)
                s.ask("models", "GET", "/v1/models", settle=False)


def commands(recorder, folder):
    context = os.path.join(folder, "context.json")
    trace = os.path.join(folder, "trace.jsonl")
    with open(context, "w", encoding="utf-8") as file:
        json.dump({"messages": [SYSTEM, *HELLO], "add_generation_prompt": True}, file)
    with open(trace, "w", encoding="utf-8") as file:
        for i in range(60):
            ids = [i % 3, 10 + i % 7, 100 + i]
            print(json.dumps({"timestamp": i, "input_length": 1030, "output_length": 5, "hash_ids": ids}), file=file)
    model = ("-m", recorder.model)
    recorder.command("help", "--help")
    for name in ("serve", "chat", "run", "bench", "info", "tokenize", "render", "logits", "replay", "quantize"):
        recorder.command("help-" + name, name, "--help")
    recorder.command("no-command")
    recorder.command("no-model", "serve")
    recorder.command("unknown-option", "serve", "--nonsense")
    recorder.command("info", "info", *model)
    recorder.command("info-json", "info", *model, "-c", "2048", "--streams", "4", "--json")
    recorder.command("tokenize", "tokenize", *model, text="Hello, 東京!\n  def f(x):\n\treturn 1234567\n")
    recorder.command("decode", "tokenize", *model, "--decode", text="[19556, 28, 905]")
    recorder.command("render", "render", *model, "--context", context, "--now", "2025-07-10T12:00:00")
    tokens = ",".join(str(17 * i % 40000 + 5) for i in range(70))
    recorder.command("logits", "logits", *model, "--tokens", tokens)
    recorder.command("logits-json", "logits", *model, "--tokens", tokens, "--json", "-c", "128")
    recorder.command("logits-f32", "logits", *model, "--tokens", tokens, "--json", "--kv-type", "f32", "-c", "128")
    recorder.command("logits-q16", "logits", *model, "--tokens", "1,2,3", "--json", "--activations", "q16", "-c", "128")
    recorder.command("logits-mock", "logits", "--engine", "mock", "--tokens", "1,2,3", "--json")
    recorder.command("run", "run", *model, "-n", "12", "--temperature", "0", "-c", "256", "Name three rivers.")
    recorder.command("run-mock", "run", "--engine", "mock", "-n", "30", "-s", "1", "Hello")
    recorder.command("replay", "replay", trace, "--json")
    recorder.command("replay-small", "replay", trace, "--pages", "20%", "--json")


def run(recorder):
    with tempfile.TemporaryDirectory(prefix="transcripts-") as folder:
        model_group(recorder)
        mock_groups(recorder)
        small_group(recorder)
        template_groups(recorder, folder)
        format_groups(recorder)
        key_groups(recorder, folder)
        fault_groups(recorder)
        busy_groups(recorder)
        commands(recorder, folder)
