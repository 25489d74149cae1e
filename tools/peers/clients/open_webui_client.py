"""The requests that Open WebUI sends, and what it reads of the answers.

Open WebUI itself does not run here. The shapes are those of its sources (open-webui/open-webui,
backend/open_webui, July 2026); each check names the function. Prompts are our own.
"""
import json
from datetime import datetime

from checks import (ASK_WEATHER, CAPITAL, CITY, KEY, KEYED_URL, LONG, MODEL, UNICODE, WEATHER_TOOL, check,
                    check_city, each, http, main, messages)

NAME = MODEL + ":latest"  # /api/tags gives names with a tag, and Open WebUI sends them back
# routers/ollama.py, send_request and send_get_request: aiohttp's headers
HEADERS = {"Content-Type": "application/json", "Accept": "*/*", "User-Agent": "Python/3.12 aiohttp/3.14"}
GREEDY = {"temperature": 0}
# utils/payload.py, apply_model_params_to_body_ollama: every option that it maps
OPTIONS = {"temperature": 0.0, "top_p": 0.9, "seed": 42, "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5.0,
           "num_ctx": 2048, "num_batch": 512, "num_keep": 24, "num_predict": 24, "repeat_last_n": 64, "top_k": 40,
           "min_p": 0.0, "repeat_penalty": 1.1, "presence_penalty": 0.0, "frequency_penalty": 0.0,
           "stop": ["<never>"], "num_gpu": 0, "use_mmap": True, "use_mlock": False, "num_thread": 2}
# routers/tasks.py: prompts of generate_title, generate_follow_ups, generate_chat_tags, generate_queries, ...
TASKS = {
    "title": ('Write a short title with an emoji for the chat. JSON format: { "title": "..." }', {"num_predict": 1000}),
    "follow_ups": ('Suggest three questions to ask next. JSON format: { "follow_ups": ["..."] }', {}),
    "tags": ('Name one to three broad topics of the chat. JSON format: { "tags": ["..."] }', {}),
    "queries": ('Which web searches would help? JSON format: { "queries": ["..."] }', {}),
    "autocomplete": ('Continue this text. JSON format: { "text": "..." }', {}),
    "emoji": ("Answer with one emoji that fits this message.", {"num_predict": 4}),
}


def post(path, body, status=200):
    """The answer's object. send_request reads the member `error` of a failed one."""
    got, headers, text = http(path, body, "POST", HEADERS)
    assert got == status, (got, text[:300])
    answer = json.loads(text)
    assert "application/json" in headers["Content-Type"], headers["Content-Type"]
    if status != 200:
        assert isinstance(answer["error"], str) and answer["error"], answer
    return answer


def check_final(line):
    """utils/response.py, convert_ollama_usage_to_openai: what it computes from the last line."""
    assert line["done"] is True and line["done_reason"] in ("stop", "length", "load", "unload"), line
    for field in ("prompt_eval_count", "eval_count", "total_duration", "load_duration", "prompt_eval_duration",
                  "eval_duration"):
        assert type(line[field]) is int and line[field] >= 0, (field, line)
    assert line["eval_duration"] > 0 and line["total_duration"] >= line["eval_duration"], line


def lines_of(path, body):
    """The lines of a stream, checked. aiohttp splits it at line feeds."""
    got, headers, text = http(path, {**body, "stream": True}, "POST", HEADERS)
    assert got == 200 and headers["Content-Type"].startswith("application/x-ndjson"), (got, headers, text[:300])
    assert text.endswith(b"\n")
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert line["model"] == body["model"] and datetime.fromisoformat(line["created_at"]), line
    assert all(line["done"] is False for line in lines[:-1])
    check_final(lines[-1])
    return lines


def chat(text=CAPITAL, **options):
    """What convert_payload_openai_to_ollama makes of a chat: max_tokens is num_predict beside the messages."""
    body = {"model": NAME, "messages": messages(text), "stream": False, "num_predict": 40, "options": GREEDY,
            **options}
    answer = post("/api/chat", body)
    assert answer["model"] == NAME and answer["message"]["role"] == "assistant", answer
    assert isinstance(answer["message"]["content"], str)
    check_final(answer)
    return answer


def streamed(text=CAPITAL, **options):
    """The text of a streamed chat. utils/misc.py, openai_chat_chunk_message_template: a line before the last one
    without content, thinking and calls would end the answer there."""
    body = {"model": NAME, "messages": messages(text), "num_predict": 40, "options": GREEDY, **options}
    lines = lines_of("/api/chat", body)
    for line in lines[:-1]:
        message = line["message"]
        assert message["role"] == "assistant" and isinstance(message["content"], str), line
        assert message["content"] or message.get("thinking") or message.get("tool_calls"), line
    return "".join(line["message"]["content"] for line in lines), lines


@check
def tags():
    """routers/ollama.py, get_all_models; utils/models.py, fetch_ollama_models"""
    status, _, text = http("/api/tags", headers=HEADERS)
    model, = json.loads(text)["models"]
    assert status == 200 and model["model"] == model["name"] == NAME
    assert model["size"] > 0 and len(model["digest"]) == 64 and datetime.fromisoformat(model["modified_at"])
    details = model["details"]
    assert details["family"] and details["parameter_size"] and details["quantization_level"]


@check
def loaded_models():
    """routers/ollama.py, get_all_models: expires_at as an integer, by name"""
    model, = json.loads(http("/api/ps", headers=HEADERS)[2])["models"]
    assert model["model"] == NAME and int(datetime.fromisoformat(model["expires_at"]).timestamp()) > 0


@check
def version():
    """routers/ollama.py, get_ollama_versions: numbers between dots, compared"""
    text = json.loads(http("/api/version", headers=HEADERS)[2])["version"]
    assert all(part.isdigit() for part in text.lstrip("v").split("-")[0].split("."))


@check
def show():
    """routers/ollama.py, show_model_info: `model`, and `name` if that was given"""
    for body in ({"model": NAME}, {"name": NAME, "model": NAME}):
        answer = post("/api/show", body)
        assert answer["template"] and answer["details"]["format"] and answer["model_info"]
        assert "completion" in answer["capabilities"]


@check
def unload():
    """routers/ollama.py, unload_model; main.py, unload_model"""
    answer = post("/api/generate", {"model": NAME, "keep_alive": 0, "prompt": "", "stream": False})
    assert answer["done"] is True and answer["done_reason"] == "unload"
    lines = http("/api/generate", {"model": NAME, "keep_alive": 0, "prompt": ""}, "POST", HEADERS)[2].splitlines()
    assert json.loads(lines[-1])["done"] is True


@check
def whole_and_streamed():
    for text in (CAPITAL, LONG, UNICODE):
        assert streamed(text)[0] == chat(text)["message"]["content"]
    assert chat(LONG)["done_reason"] == "length" and chat(LONG)["eval_count"] == 40


@check
def stream_is_the_default():
    """GenerateChatCompletionForm: stream is absent if a client of Open WebUI's own API leaves it out"""
    body = {"model": NAME, "messages": messages(CAPITAL), "options": {"num_predict": 8}}
    assert len(http("/api/chat", body, "POST", HEADERS)[2].splitlines()) > 2


@check
def all_options():
    assert chat(options=OPTIONS)["eval_count"] <= 24
    for extra in ({"reasoning_effort": "low"}, {"max_tokens": 9}, {"unknown": {"a": [1]}}):  # custom parameters
        chat(options={**GREEDY, **extra})
    whole = chat(LONG)["message"]["content"]
    word = whole.split()[5]
    assert chat(LONG, options={**GREEDY, "stop": [word]})["message"]["content"] == whole[:whole.index(word)]


@each("5m", "24h", 3600, -1, "0", 0)
def keep_alive(value):
    assert "Paris" in chat(keep_alive=value)["message"]["content"]


@each(*TASKS)
def task(name):
    """routers/tasks.py: one user message, not streamed; the text is searched for a JSON object"""
    prompt, options = TASKS[name]
    talk = "<chat_history>\nUSER: Why is the sky blue?\nASSISTANT: Because of scattering.\n</chat_history>"
    body = {"model": NAME, "messages": messages(f"### Task:\n{prompt}\n{talk}"), "stream": False,
            **({"num_predict": 60} | options)}
    answer = post("/api/chat", body)
    assert answer["message"]["content"] and answer["eval_count"] <= body["num_predict"]
    # The same through an OpenAI connection, where max_completion_tokens becomes max_tokens.
    body["max_tokens"] = body.pop("num_predict")
    assert post("/v1/chat/completions", body)["choices"][0]["message"]["content"]


@check
def schema():
    """convert_payload_openai_to_ollama: response_format's schema becomes `format`"""
    for stream in (False, True):
        text = (streamed("Describe Rome.", format=CITY, num_predict=400)[0] if stream else
                chat("Describe Rome.", format=CITY, num_predict=400)["message"]["content"])
        check_city(json.loads(text))
    json.loads(chat("Describe Rome as JSON.", format="json", num_predict=400)["message"]["content"])


def check_calls(calls):
    """utils/response.py, convert_ollama_tool_call_to_openai: arguments are an object"""
    for index, call in enumerate(calls):
        assert call["function"]["name"] == "get_weather" and isinstance(call["function"]["arguments"], dict), call
        assert call.get("index", call["function"].get("index", 0)) == index, call
        assert isinstance(call.get("id", ""), str), call


@check
def tools():
    whole = chat(ASK_WEATHER, tools=[WEATHER_TOOL], num_predict=300)["message"]
    check_calls(whole.get("tool_calls", []))
    text, lines = streamed(ASK_WEATHER, tools=[WEATHER_TOOL], num_predict=300)
    calls = [call for line in lines for call in line["message"].get("tool_calls", [])]
    check_calls(calls)
    plain = [call["function"] for call in whole.get("tool_calls", [])]
    assert text == whole["content"] and [call["function"]["arguments"] for call in calls] == \
        [function["arguments"] for function in plain]


@each("call_1", None)
def tool_results(call_id):
    """convert_messages_openai_to_ollama: index and id in calls, tool_call_id beside results"""
    call = {"index": 0, "id": call_id,
            "function": {"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}}
    result = {"role": "tool", "content": "Sunny, 21 degrees."}
    if call_id:
        result["tool_call_id"] = call_id
    talk = [*messages(ASK_WEATHER, "Be brief."), {"role": "assistant", "tool_calls": [call], "content": ""}, result]
    assert chat(messages=talk, tools=[WEATHER_TOOL])["message"]["content"]


@check
def thinking_of_earlier_answers():
    talk = [*messages(CAPITAL), {"role": "assistant", "thinking": "Easy.", "content": "Yes."},
            *messages("Are you sure?")]
    assert chat(messages=talk)["message"]["content"]


@each(False, True, "low")
def think(value):
    """utils/payload.py: `think` beside the messages. The default model cannot think."""
    body = {"model": NAME, "messages": messages(CAPITAL), "think": value, "stream": False, "num_predict": 20}
    answer = post("/api/chat", body, 400 if value else 200)
    assert not value or "think" in answer["error"]


@check
def refusals_are_texts():
    image = {"role": "user", "content": "What is this?", "images": ["aGk="]}
    post("/api/chat", {"model": NAME, "messages": [image]}, 400)
    post("/api/chat", {"model": NAME, "messages": messages("Hi"), "options": {"mirostat": 2}}, 400)
    post("/api/chat", {"model": NAME, "messages": messages("word " * 20000)}, 400)
    post("/api/embed", {"model": NAME, "input": ["a", "b"]}, 501)
    post("/api/pull", {"name": "llama3"}, 501)
    status, _, text = http("/api/tags", headers={**HEADERS, "Authorization": "Bearer wrong"}, url=KEYED_URL)
    assert status == 401 and isinstance(json.loads(text)["error"], str)
    assert http("/api/tags", headers={**HEADERS, "Authorization": "Bearer " + KEY}, url=KEYED_URL)[0] == 200


@check
def generate():
    """routers/ollama.py, generate_completion: streamed, without absent members"""
    body = {"model": NAME, "prompt": LONG, "system": "Be brief.", "options": {**GREEDY, "num_predict": 20}}
    lines = lines_of("/api/generate", body)
    whole = post("/api/generate", {**body, "stream": False})
    check_final(whole)
    assert "".join(line["response"] for line in lines) == whole["response"]
    raw = post("/api/generate", {"model": NAME, "prompt": "The capital of France is", "raw": True, "stream": False,
                                 "options": body["options"]})
    assert raw["response"].startswith(" Paris")


@check
def openai_models():
    """routers/openai.py, get_all_models: data[].id"""
    answer = json.loads(http("/v1/models", headers=HEADERS)[2])
    assert answer["object"] == "list" and [model["id"] for model in answer["data"]] == [MODEL]


@each(True, False)
def openai_stream(usage):
    """utils/middleware.py, stream_body_handler: lines `data: {...}`, usage and llama.cpp's timings, `[DONE]`"""
    body = {"model": MODEL, "messages": messages(LONG), "stream": True, "max_tokens": 30, "temperature": 0.0,
            "top_p": 0.9, "min_p": 0.05, "frequency_penalty": 0.0, "presence_penalty": 0.0, "seed": 1,
            "stop": ["<never>"], "logit_bias": {"100": -100}, "top_k": 40, "repeat_penalty": 1.1}
    if usage:
        body["stream_options"] = {"include_usage": True}
    status, headers, text = http("/v1/chat/completions", body, "POST", HEADERS)
    assert status == 200 and "text/event-stream" in headers["Content-Type"], text[:300]
    events = [line[6:] for line in text.decode().splitlines() if line]
    assert all(line.startswith("data: ") for line in text.decode().splitlines() if line) and events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    said = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    whole = post("/v1/chat/completions", {**{k: v for k, v in body.items() if k != "stream_options"},
                                          "stream": False})
    assert said == whole["choices"][0]["message"]["content"]
    assert [c for c in chunks if c["choices"]][-1]["choices"][0]["finish_reason"] == "length"
    assert not usage or chunks[-1]["usage"]["completion_tokens"] == 30
    assert whole["usage"]["completion_tokens"] == 30 and whole["timings"]["predicted_n"] == 30


if __name__ == "__main__":
    main()
