"""The requests that Continue sends, and what it reads of the answers.

Continue's extension does not run here. The shapes are those of its sources (continuedev/continue,
June 2026); each check names the file and the function.
"""
import json
import re

from checks import ASK_WEATHER, CAPITAL, LONG, MODEL, WEATHER_TOOL, check, each, http, main, messages

# Node's fetch. core/llm/llms/OpenAI.ts and LlamaCpp.ts send the key even if there is none.
HEADERS = {"Content-Type": "application/json", "Accept": "*/*", "Accept-Language": "*", "Sec-Fetch-Mode": "cors",
           "User-Agent": "node"}
BEARER = {**HEADERS, "Authorization": "Bearer undefined"}
# core/llm/llms/Ollama.ts, _getModelFileParams; JSON.stringify leaves out what is undefined
OPTIONS = {"temperature": 0, "top_p": 0.9, "top_k": 40, "num_predict": 40, "stop": ["<never>"], "num_ctx": 8192,
           "mirostat": 0, "num_thread": 2, "use_mmap": True, "min_p": 0.05, "num_gpu": 0}
FIRST = {"options": OPTIONS, "keep_alive": 1800}


def ndjson(path, body):
    """The objects of a stream, read as _streamChat reads it: an error is a member `error`."""
    status, _, text = http(path, body, "POST", HEADERS)
    assert status == 200, text[:300]
    parts = text.decode().split("\n")
    assert parts.pop() == ""  # what follows the last line feed would be lost
    values = [json.loads(part) for part in parts if part.strip()]
    assert values[-1]["done"] is True and not any("error" in value for value in values)
    return values


def chat(body):
    body = {"model": MODEL, "stream": True, **FIRST, **body}
    lines = ndjson("/api/chat", body)
    whole = json.loads(http("/api/chat", {**body, "stream": False}, "POST", HEADERS)[2])
    for message in [line["message"] for line in lines] + [whole["message"]]:
        assert message["role"] == "assistant" and isinstance(message["content"], str), message
        assert "type" not in message  # convertChatMessage would take it for n8n's
    text = "".join(line["message"]["content"] for line in lines)
    assert text == whole["message"]["content"]
    return text, [call for line in lines for call in line["message"].get("tool_calls", [])], whole


def sse(path, body, headers=None):
    """The objects of an event stream, read as streamSse of @continuedev/fetch does."""
    status, _, text = http(path, body, "POST", headers or BEARER)
    assert status == 200, text[:300]
    events = [line[6:] for line in text.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(event) for event in events if event != "[DONE]"]


@check
def show():
    """Ollama.ts, ensureModelInfo: `name` alone; parameters are lines that its regular expression takes apart"""
    status, _, text = http("/api/show", {"name": MODEL}, "POST", HEADERS)
    answer = json.loads(text)
    assert status == 200 and isinstance(answer["template"], str)
    found = dict(re.fullmatch(r"(\S+)\s+((?:\".*\")|\S+)", line).groups() for line in answer["parameters"].split("\n"))
    assert int(found["num_ctx"]) == 8192 and not found.get("stop") or json.loads(found["stop"])


@check
def models():
    """Ollama.ts, listModels: names; the model is then used with its tag"""
    name = json.loads(http("/api/tags", headers=HEADERS)[2])["models"][0]["name"]
    assert name == MODEL + ":latest"
    assert chat({"model": name, "messages": messages(CAPITAL)})[0]


@check
def chats():
    """Ollama.ts, _streamChat"""
    text, calls, whole = chat({"messages": messages(CAPITAL, "Answer briefly.")})
    assert "Paris" in text and not calls and whole["done_reason"] == "stop"
    assert chat({"messages": messages(LONG)})[2]["done_reason"] == "length"
    assert chat({"messages": messages(CAPITAL), "think": False})[0]


@check
def thinking_is_refused_in_words():
    """Ollama.ts, convertChatMessage; core/llm/index.ts, parseError: the text of `error`"""
    body = {"model": MODEL, "messages": messages(CAPITAL), "think": True, "stream": True, **FIRST}
    status, _, text = http("/api/chat", body, "POST", HEADERS)
    assert status == 400 and "think" in json.loads(text)["error"]


@check
def tools():
    """Ollama.ts, _streamChat: whole calls, arguments as an object, no ids when they come back"""
    function = WEATHER_TOOL["function"]
    tool = {"type": "function", "function": {key: function[key] for key in ("name", "description", "parameters")}}
    options = {**OPTIONS, "num_predict": 300}
    _, calls, whole = chat({"messages": messages(ASK_WEATHER), "tools": [tool], "options": options})
    for call in calls + whole["message"].get("tool_calls", []):
        assert call["function"]["name"] == "get_weather" and isinstance(call["function"]["arguments"], dict)
    call = {"function": {"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}}
    talk = [*messages(ASK_WEATHER, "Be brief."), {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "Sunny, 21 degrees."}]
    assert chat({"messages": talk})[0]


@each(None, True)
def generate(raw):
    """Ollama.ts, _streamComplete: autocomplete sends its own template as a raw prompt"""
    body = {"model": MODEL, "prompt": "def add(a, b):\n    return", "stream": True, **FIRST}
    if raw:
        body["raw"] = raw
    lines = ndjson("/api/generate", body)
    assert "".join(line["response"] for line in lines)
    assert all(isinstance(line["response"], str) for line in lines)


@check
def a_suffix_needs_a_model_for_it():
    """Ollama.ts, _streamFim: only if the template of /api/show contains `.Suffix`, which no Jinja template does"""
    body = {"model": MODEL, "prompt": "def add(a, b):", "suffix": "\n", "stream": True, **FIRST}
    status, _, text = http("/api/generate", body, "POST", HEADERS)
    assert status == 400 and isinstance(json.loads(text)["error"], str)


@check
def llama_cpp():
    """LlamaCpp.ts, _streamComplete: `content` of each event"""
    body = {"model": MODEL, "prompt": "The capital of France is", "stream": True, "n_predict": 12, "top_k": 40,
            "frequency_penalty": 0, "presence_penalty": 0, "min_p": 0.05, "mirostat": 0, "stop": ["<never>"],
            "top_p": 0.9, "temperature": 0}
    assert "".join(event["content"] for event in sse("/completion", body)).startswith(" Paris")


@check
def openai_chat():
    """openaiTypeConverters.ts, toChatBody and fromChatCompletionChunk; openai-adapters OpenAI.ts, modifyChatBody:
    usage is asked for, and only in a chunk of its own may it be set"""
    body = {"messages": messages(LONG), "model": MODEL, "max_tokens": 30, "temperature": 0, "top_p": 0.9,
            "frequency_penalty": 0, "presence_penalty": 0, "stream": True, "stop": ["<never>"],
            "stream_options": {"include_usage": True}}
    chunks = sse("/v1/chat/completions", body)
    with_usage = [chunk for chunk in chunks if chunk.get("usage")]
    assert with_usage == chunks[-1:] and with_usage[0]["usage"]["completion_tokens"] == 30
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1])


@check
def openai_tools():
    """fromChatCompletionChunk: name in the first piece of a call, then pieces of the arguments"""
    body = {"messages": messages(ASK_WEATHER), "model": MODEL, "max_tokens": 300, "temperature": 0, "stream": True,
            "tools": [WEATHER_TOOL], "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    pieces = [call for chunk in sse("/v1/chat/completions", body) if chunk["choices"]
              for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert pieces[0]["type"] == "function" and pieces[0]["id"] and pieces[0]["function"]["name"] == "get_weather"
    first = "".join(piece["function"].get("arguments", "") for piece in pieces if piece["index"] == 0)
    assert set(json.loads(first)) == {"city", "unit"}


@check
def openai_completion_and_models():
    """OpenAI.ts, _legacystreamComplete and listModels; toCompleteBody"""
    body = {"prompt": "The capital of France is", "model": MODEL, "max_tokens": 8, "temperature": 0, "stream": True}
    text = "".join(event["choices"][0]["text"] for event in sse("/v1/completions", body) if event["choices"])
    assert text.startswith(" Paris")
    assert json.loads(http("/v1/models", headers=BEARER)[2])["data"][0]["id"] == MODEL


@check
def embeddings_are_refused_in_words():
    """Ollama.ts, _embed: the body is shown"""
    status, _, text = http("/api/embed", {"model": MODEL, "input": ["a"]}, "POST", HEADERS)
    assert status == 501 and "embeddings" in json.loads(text)["error"]


if __name__ == "__main__":
    main()
