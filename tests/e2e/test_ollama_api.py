"""Ollama's API: streams of lines, errors in its shape, and the requests that its clients send."""
import datetime
import http.client
import json
import re
import signal

import pytest

HELLO = [{"role": "user", "content": "Say hello."}]
GREEDY = {"temperature": 0, "num_predict": 12}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
                   "required": ["city"]}}}
TIMES = ["total_duration", "load_duration", "prompt_eval_duration", "eval_duration"]


def post(server, path, body, **headers):
    """(status, headers, text) of a request with a JSON body."""
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    status, fields, body = server.get(
        path, {"Content-Type": "application/json", **headers}, "POST", text)
    return status, fields, body.decode()


def whole(server, path, **members):
    status, fields, text = post(server, path, {"model": "any", "stream": False, **members})
    assert status == 200, text
    assert fields["content-type"] == "application/json"
    answer = json.loads(text)
    assert answer["done"] is True
    return answer


def stream(server, path, **members):
    status, fields, text = post(server, path, {"model": "any", **members})
    assert status == 200, text
    assert fields["content-type"] == "application/x-ndjson"
    assert text.endswith("\n")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(set(line) <= {"model", "created_at", "message", "response", "thinking", "logprobs",
                             "done"} for line in lines[:-1])
    return lines


def error_of(answer):
    status, fields, text = answer
    assert fields["content-type"] == "application/json"
    error = json.loads(text)
    assert list(error) == ["error"] and isinstance(error["error"], str), text
    return status, error["error"]


def check_end(last, options):
    assert last["done_reason"] in ("stop", "length")
    assert 0 < last["eval_count"] <= options["num_predict"]
    assert last["prompt_eval_count"] > 0 and last["load_duration"] == 0
    assert last["prompt_eval_duration"] > 0 and last["eval_duration"] >= 0
    assert last["prompt_eval_duration"] + last["eval_duration"] <= last["total_duration"] < 60e9
    datetime.datetime.strptime(last["created_at"], "%Y-%m-%dT%H:%M:%SZ")


def test_a_chat(server):
    one = whole(server, "/api/chat", messages=HELLO, options=GREEDY)
    check_end(one, GREEDY)
    lines = stream(server, "/api/chat", messages=HELLO, options=GREEDY)
    check_end(lines[-1], GREEDY)
    assert all(line["message"]["role"] == "assistant" for line in lines)
    assert "".join(line["message"]["content"] for line in lines) == one["message"]["content"]
    assert one["message"]["content"]
    other = server.client().chat.completions.create(
        model="any", messages=HELLO, temperature=0, max_tokens=12)
    assert other.choices[0].message.content == one["message"]["content"]
    assert other.usage.prompt_tokens == one["prompt_eval_count"]
    assert other.usage.completion_tokens == one["eval_count"]


def test_a_generation_is_a_chat_of_one_message(server):
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    chat = whole(server, "/api/chat", messages=messages, options=GREEDY)
    one = whole(server, "/api/generate", prompt="Say hello.", system="Be brief.", options=GREEDY)
    check_end(one, GREEDY)
    assert one["response"] == chat["message"]["content"] and "message" not in one
    lines = stream(server, "/api/generate", prompt="Say hello.", system="Be brief.", options=GREEDY)
    assert "".join(line["response"] for line in lines) == one["response"]


def test_a_raw_prompt_is_continued(server):
    one = whole(server, "/api/generate", prompt="One, two,", raw=True, options=GREEDY)
    text = server.client().completions.create(
        model="any", prompt="One, two,", temperature=0, max_tokens=12)
    assert one["response"] == text.choices[0].text
    assert one["prompt_eval_count"] == text.usage.prompt_tokens
    longer = whole(server, "/api/generate", prompt="One, two,", raw=True, num_predict=20,
                   options={"temperature": 0})
    assert longer["eval_count"] > 16 or longer["done_reason"] == "stop"


def test_nothing_to_answer_is_a_load(mock):
    for body, reason in (({}, "load"), ({"prompt": ""}, "load"), ({"keep_alive": "5m"}, "load"),
                         ({"prompt": "", "keep_alive": 0}, "unload"),
                         ({"keep_alive": "0s"}, "unload")):
        answer = whole(mock, "/api/generate", **body)
        assert answer["done_reason"] == reason and answer["response"] == "", body
        assert whole(mock, "/api/chat", messages=[], **body)["done_reason"] == reason
    assert whole(mock, "/api/generate", prompt="a", keep_alive=0)["eval_count"] > 0
    assert whole(mock, "/api/chat", messages=[])["message"] == {"role": "assistant", "content": ""}
    status, fields, text = post(mock, "/api/chat", {"model": "any"})  # also a single object
    assert status == 200 and json.loads(text)["done_reason"] == "load"


def test_the_model(server):
    model = server.client().models.list().data[0]
    tags = json.loads(server.get("/api/tags")[2])["models"]
    loaded = json.loads(server.get("/api/ps")[2])["models"]
    assert len(tags) == len(loaded) == 1
    for entry in tags + loaded:
        assert entry["name"] == entry["model"] == model.id + ":latest"
        assert re.fullmatch("[0-9a-f]{64}", entry["digest"]) and entry["size"] >= 0
    assert tags[0]["digest"] == loaded[0]["digest"]
    assert loaded[0]["context_length"] == model.context_window and loaded[0]["size_vram"] == 0
    assert datetime.datetime.fromisoformat(loaded[0]["expires_at"].replace("Z", "+00:00"))
    status, _, text = post(server, "/api/show", {"name": model.id})
    show = json.loads(text)
    assert status == 200 and show["details"] == tags[0]["details"]
    family = show["model_info"]["general.architecture"]
    assert show["model_info"][family + ".context_length"] == model.context_window
    assert show["capabilities"][:2] == ["completion", "tools"]
    assert f"num_ctx {model.context_window}" in re.sub(" +", " ", show["parameters"])


def test_the_size_grows_with_the_cache(start):
    """The mock has no weights, and 8 bytes for each token."""
    server = start()
    for n in (0, 1):
        stats = server.wait_idle()
        used = stats["pages"] - stats["pages_free"]
        assert used > 0 or n == 0
        assert json.loads(server.get("/api/ps")[2])["models"][0]["size"] == 8 * used
        whole(server, "/api/chat", messages=HELLO)


def test_the_version_and_the_root(mock):
    status, _, text = mock.get("/api/version")
    version = json.loads(text)
    assert status == 200 and all(part.isdigit() for part in version["version"].split("."))
    assert version["radish_version"] in mock.get("/")[1]["server"]
    assert mock.get("/")[0] == 200 and mock.get("/")[2] == b"radish is running\n"
    for path in ("/", "/api/tags", "/api/version"):
        assert mock.get(path, method="HEAD")[::2] == (200, b"")


def test_names_of_the_model(start):
    server = start("--strict-model", "--alias", "smol")
    for name in ("smol", "smol:latest"):
        assert post(server, "/api/chat", {"model": name})[0] == 200
        assert post(server, "/api/show", {"model": name})[0] == 200
        assert server.get("/v1/models/" + name)[0] == 200
    for name in ("smol:7b", "smol2", "smo"):
        for path in ("/api/chat", "/api/generate", "/api/show"):
            status, message = error_of(post(server, path, {"model": name}))
            assert status == 404 and f"model '{name}' not found" in message
            assert "'smol'" in message


def test_an_answer_has_the_name_that_was_asked_for(mock):
    options = {"num_predict": 2}
    for name in ("mock:latest", "mock", "library/\"ü\":7b", "x" * 256):
        assert whole(mock, "/api/chat", model=name, messages=HELLO, options=options)["model"] == name
        assert whole(mock, "/api/generate", model=name)["model"] == name
        lines = stream(mock, "/api/generate", model=name, prompt="a", options=options)
        assert len(lines) > 1 and {line["model"] for line in lines} == {name}
    for name in ("", "x" * 257, None):
        assert whole(mock, "/api/generate", model=name, prompt="a", options=options)["model"] == "mock"


def test_errors_have_ollamas_shape(mock):
    ask = {"messages": HELLO}
    for path, body, status, part in [
            ("/api/chat", "{bad", 400, "JSON"),
            ("/api/chat", "[]", 400, "object"),
            ("/api/chat", {**ask, "options": {"temperature": 9}}, 400, "options.temperature"),
            ("/api/chat", {**ask, "options": {"mirostat": 2}}, 400, "mirostat"),
            ("/api/chat", {**ask, "format": {"type": "wat"}}, 400, "format"),
            ("/api/chat", {**ask, "think": True}, 400, "does not support thinking"),
            ("/api/chat", {"messages": [{"role": "user", "images": ["aGk="]}]}, 400, "images"),
            ("/api/chat", {"messages": [{"role": "user", "content": "x" * 100000}]}, 400, "context"),
            ("/api/generate", {"prompt": "a", "suffix": "b"}, 400, "fill-in-the-middle"),
            ("/api/generate", {"prompt": "a", "template": "{{ .Prompt }}"}, 400, "template"),
            ("/api/generate", {"prompt": "a", "context": [1, 2]}, 400, "/api/chat"),
            ("/api/show", {"model": 1}, 400, "model"),
            ("/api/embed", {"input": "x"}, 501, "embeddings"),
            ("/api/embeddings", {"prompt": "x"}, 501, "embeddings"),
            ("/api/pull", {"model": "x"}, 501, "-m FILE"),
            ("/api/push", {"model": "x"}, 501, "-m FILE"),
            ("/api/create", {"model": "x"}, 501, "-m FILE"),
            ("/api/copy", {"source": "x"}, 501, "-m FILE"),
            ("/api/blobs/sha256:0", "", 404, "blobs"),
            ("/api/nothing", {}, 404, "/api/nothing; chat is at /api/chat")]:
        got, message = error_of(post(mock, path, body))
        assert got == status and part in message, (path, body, got, message)
    assert error_of(mock.get("/api/chat"))[0] == 405
    assert error_of(mock.get("/api/delete", {}, "DELETE", '{"model":"x"}'))[0] == 501
    assert mock.get("/api/blobs/sha256:0", method="HEAD")[0] == 404
    assert error_of(mock.get("/api/tags", {"Host": "evil.example"}))[0] == 403
    assert error_of(mock.get("/api/tags", {"Origin": "http://evil.example"}))[0] == 403
    # Before the head is complete, and for a body that is too large.
    assert error_of(mock.get("/api/chat", {"Content-Type": "application/json",
                                           "Content-Length": str(1 << 40)}, "POST"))[0] == 413
    # Elsewhere errors are OpenAI's.
    assert "message" in json.loads(mock.get("/apix")[2])["error"]


def test_any_content_type_if_no_page_can_have_sent_it(mock):
    body = json.dumps({"prompt": "hi", "stream": False, "options": {"num_predict": 2}})
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # as `curl -d` sends it
    types = [form, {}, {"Content-Type": ""}, {"Content-Type": "application/octet-stream"}]
    page = [{"Origin": "http://localhost:3000"}, {"Referer": "http://evil.example/"},
            {"Referer": ""}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Mode": "no-cors"}]
    for kind in types:
        status, _, text = mock.get("/api/generate", kind, "POST", body)
        assert status == 200 and json.loads(text)["eval_count"] == 2, (kind, text)
        for headers in page:
            status, message = error_of(mock.get("/api/generate", {**kind, **headers}, "POST", body))
            assert status == 415 and "application/json" in message, (kind, headers)
        assert error_of(mock.get("/api/generate", {**kind, "Origin": "http://evil.example"},
                                 "POST", body))[0] == 403
        assert mock.get("/v1/completions", kind, "POST", body)[0] == 415
    for headers in page:
        assert mock.get("/api/generate", {"Content-Type": "application/json", **headers}, "POST",
                        body)[0] == 200
    assert error_of(mock.get("/api/show", form, "POST", '{"model": 1}'))[0] == 400
    assert error_of(mock.get("/api/pull", {}, "POST", "{}"))[0] == 501
    assert error_of(mock.get("/api/chat", form, "POST", "prompt=hi"))[0] == 400  # not JSON
    assert error_of(mock.get("/api/chat", {**form, "Content-Encoding": "gzip"}, "POST",
                             body))[0] == 415


def test_keys(start):
    server = start("--api-key", "secret")
    assert server.get("/")[0] == server.get("/api/version")[0] == 200
    for path in ("/api/tags", "/api/ps", "/api/nothing"):
        assert error_of(server.get(path))[0] == 401
    assert error_of(post(server, "/api/chat", {}))[0] == 401
    assert post(server, "/api/chat", {}, Authorization="Bearer secret")[0] == 200


def test_an_answer_is_held_to_its_format(server):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["n"], "additionalProperties": False}
    for form in (schema, json.dumps(schema)):
        answer = whole(server, "/api/chat", messages=HELLO, format=form, options={"seed": 3})
        assert 1 <= json.loads(answer["message"]["content"])["n"] <= 9
    lines = stream(server, "/api/generate", prompt="x", format=schema, options={"seed": 4})
    assert 1 <= json.loads("".join(line["response"] for line in lines))["n"] <= 9


def test_log_probabilities(server):
    options = {"temperature": 0, "num_predict": 5}
    one = whole(server, "/api/chat", messages=HELLO, logprobs=True, top_logprobs=2, options=options)
    lines = stream(server, "/api/chat", messages=HELLO, logprobs=True, top_logprobs=2,
                   options=options)
    assert [item for line in lines for item in line.get("logprobs", [])] == one["logprobs"]
    assert 0 < len(one["logprobs"]) <= one["eval_count"]
    for item in one["logprobs"]:
        assert item["logprob"] <= 0 and len(item["top_logprobs"]) == 2
        assert item["top_logprobs"][0]["logprob"] >= item["top_logprobs"][1]["logprob"]
    plain = whole(server, "/api/chat", messages=HELLO, top_logprobs=2, options=options)
    assert "logprobs" not in plain


def test_thinking(start, tmp_path):
    template = tmp_path / "thinks.jinja"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
        "{% else %}<think>\n{% endif %}{% endif %}")
    server = start("--chat-template-file", str(template))
    show = json.loads(post(server, "/api/show", {})[2])
    assert show["capabilities"] == ["completion", "tools", "thinking"]
    options = {"seed": 1, "num_predict": 30}
    for think in (True, "low"):
        one = whole(server, "/api/chat", messages=HELLO, think=think, options=options)
        assert one["message"]["thinking"] and not one["message"]["content"]
        lines = stream(server, "/api/chat", messages=HELLO, think=think, options=options)
        thought = "".join(line["message"].get("thinking", "") for line in lines)
        assert thought == one["message"]["thinking"]
    one = whole(server, "/api/generate", prompt="Say hello.", think=True, options=options)
    assert one["thinking"] and not one["response"]
    one = whole(server, "/api/chat", messages=HELLO, think=False, options=options)
    assert "thinking" not in one["message"] and one["message"]["content"]


def test_calls(real):
    ask = []  # a small model repeats calls that it has seen
    for city, weather in (("Oslo", "snow"), ("Rome", "sun"), ("Cairo", "heat")):
        ask += [{"role": "user", "content": f"What is the weather in {city}?"},
                {"role": "assistant", "tool_calls": [
                    {"function": {"name": "get_weather", "arguments": {"city": city}}}]},
                {"role": "tool", "tool_name": "get_weather", "content": weather},
                {"role": "assistant", "content": f"In {city}: {weather}."}]
    ask.append({"role": "user", "content": "What is the weather in Paris?"})
    for seed in range(5):
        options = {"temperature": 0.1 * seed, "seed": seed, "num_predict": 40}
        one = whole(real, "/api/chat", messages=ask, tools=[WEATHER], options=options)
        if one["message"].get("tool_calls"):
            break
    call = one["message"]["tool_calls"][0]
    assert call["id"] and call["function"]["name"] == "get_weather"
    assert isinstance(call["function"]["arguments"]["city"], str)
    lines = stream(real, "/api/chat", messages=ask, tools=[WEATHER], options=options)
    streamed = [call for line in lines for call in line["message"].get("tool_calls", [])]
    assert [c["function"] for c in streamed] == [
        c["function"] for c in one["message"]["tool_calls"]]


def test_calls_need_no_ids(server):
    """The prompt equals that of OpenAI's conversation with ids."""
    def called(name, arguments, **more):
        return {"function": {"name": name, "arguments": arguments}, **more}

    messages = [*HELLO, {"role": "assistant", "content": "", "tool_calls": [
        called("get_weather", {"city": "Rome"}), called("get_weather", {"city": "Oslo"})]},
        {"role": "tool", "tool_name": "get_weather", "content": "sun"},
        {"role": "tool", "content": "rain"}]
    one = whole(server, "/api/chat", messages=messages, tools=[WEATHER], options=GREEDY)
    other = server.client().chat.completions.create(
        model="any", temperature=0, max_tokens=12, tools=[WEATHER], messages=[
            *HELLO, {"role": "assistant", "content": "", "tool_calls": [
                called("get_weather", '{"city":"Rome"}', id="call_0", type="function"),
                called("get_weather", '{"city":"Oslo"}', id="call_1", type="function")]},
            {"role": "tool", "tool_call_id": "call_0", "content": "sun"},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"}])
    assert other.usage.prompt_tokens == one["prompt_eval_count"]
    assert other.usage.prompt_tokens_details.cached_tokens == one["prompt_eval_count"] - 1


def test_what_open_webui_sends(mock):
    """All of its parameters; it really sends `num_predict` outside the options."""
    body = {"model": "mock:latest", "stream": True, "num_predict": 5, "think": False,
            "keep_alive": "10m", "messages": [{"role": "system", "content": "Be brief."}, *HELLO],
            "options": {"temperature": 0.0, "stop": ["<END>"], "top_p": 0.9, "seed": 7,
                        "mirostat": 0, "mirostat_eta": 0.1, "mirostat_tau": 5.0, "num_ctx": 4096,
                        "num_batch": 512, "num_keep": 24, "repeat_last_n": 64, "top_k": 40,
                        "min_p": 0.0, "repeat_penalty": 1.1, "presence_penalty": 0.0,
                        "frequency_penalty": 0.0, "num_gpu": 1, "use_mmap": True,
                        "use_mlock": False, "num_thread": 2}}
    status, fields, text = post(mock, "/api/chat", body)
    assert status == 200 and "x-radish-ignored" not in fields, text
    assert json.loads(text.splitlines()[-1])["eval_count"] <= 5
    # A call sent back with the ids and indices of a stream.
    body["messages"] += [
        {"role": "assistant", "content": "", "tool_calls": [
            {"index": 0, "id": "call_1", "function": {"name": "get_weather",
                                                      "arguments": {"city": "Rome"}}}]},
        {"role": "tool", "content": "sun", "tool_call_id": "call_1"}]
    status, fields, text = post(mock, "/api/chat", {**body, "tools": [WEATHER]})
    assert status == 200 and "x-radish-ignored" not in fields, text


def test_what_continue_sends(mock):
    options = {"temperature": 0.1, "top_p": 0.9, "top_k": 40, "num_predict": 5, "stop": ["\n\n"],
               "num_ctx": 8192, "num_thread": 2, "use_mmap": True, "min_p": 0.05, "num_gpu": 1}
    for path, body in [
            ("/api/show", {"name": "mock"}),
            ("/api/generate", {"model": "mock", "prompt": "x", "raw": True, "options": options,
                               "keep_alive": 1800, "stream": True}),
            ("/api/chat", {"model": "mock", "messages": [*HELLO, {
                "role": "assistant", "content": "", "tool_calls": [
                    {"function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]},
                {"role": "tool", "content": "sun"}, {"role": "user", "content": "And?"}],
                "options": options, "keep_alive": 1800, "tools": [WEATHER]})]:
        status, fields, text = post(mock, path, body)
        assert status == 200 and "x-radish-ignored" not in fields, (path, text)


def test_a_hang_up_ends_the_work(start):
    server = start("--mock-batch-cost-us", "5000")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/api/chat", json.dumps({"messages": HELLO}),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert json.loads(answer.readline())["done"] is False
    connection.close()
    answer.close()
    assert server.wait_idle()["canceled"] == 1


@pytest.mark.parametrize("path, body", [("/api/chat", {"messages": HELLO}),
                                        ("/api/generate", {"prompt": "x"})])
def test_a_late_error_is_a_line(start, path, body):
    server = start("--mock-batch-cost-us", "5000", "--shutdown-grace", "0")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.readline()
    server.send_signal(signal.SIGTERM)
    lines = answer.read().decode().splitlines()
    assert list(json.loads(lines[-1])) == ["error"] and "stopping" in lines[-1]
    connection.close()
    server.process.wait(30)  # a second signal would force it to stop
