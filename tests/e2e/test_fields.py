"""Request fields: unknown ones are reported, inert ones are not, and strict servers reject them."""
import json

REQUEST = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


def test_unknown_fields_are_named_in_a_header(mock):
    status, headers, _ = mock.post({**REQUEST, "foo": 1, "bar\r\nX-Evil: 1": 2,
                                    "messages": [{"role": "user", "content": "", "baz": []}]})
    assert status == 200
    assert headers["x-radish-ignored"] == "messages[].baz, foo, bar??X-Evil:?1"
    assert "X-Evil" not in headers
    status, headers, _ = mock.post({**REQUEST, "foo": 1, "stream": True})
    assert headers["x-radish-ignored"] == "foo"


def test_known_fields_are_not(mock):
    status, headers, _ = mock.post({**REQUEST, "user": "me", "metadata": {}, "store": False,
                                    "service_tier": "auto", "prompt_cache_key": "k", "foo": None,
                                    "tools": [], "logprobs": None, "top_k": 5, "min_p": 0.1})
    assert status == 200
    assert "x-radish-ignored" not in headers


def test_the_log_names_them_once_per_client(start):
    server = start()
    for agent in ("one", "one", "two"):
        server.post({**REQUEST, "quux": 1}, {"User-Agent": agent})
    server.post({**REQUEST, "quux": 1, "other": 1}, {"User-Agent": "one"})
    lines = [line for line in server.log().splitlines() if "unknown fields" in line]
    assert len(lines) == 3


def test_strict_fields(start):
    server = start("--strict-fields")
    assert server.post(REQUEST)[0] == 200
    status, _, body = server.post({**REQUEST, "foo": 1})
    assert status == 400
    assert json.loads(body)["error"]["param"] == "foo"
    status, _, body = server.post({"messages": [{"role": "user", "content": "", "bar": 1}]})
    assert json.loads(body)["error"]["param"] == "messages[0].bar"


def test_strict_model(start):
    server = start("--strict-model")
    name = json.loads(server.get("/v1/models")[2])["data"][0]["id"]
    assert server.post({**REQUEST, "model": name})[0] == 200
    assert server.post(REQUEST)[0] == 200
    status, _, body = server.post({**REQUEST, "model": "gpt-9"})
    assert status == 404
    assert json.loads(body)["error"]["code"] == "model_not_found"


def test_log_lines_cannot_be_forged(mock):
    mock.post({"messages": [{"role": "x\n00:00:00.000 info  forged", "content": ""}]})
    assert not any(line.startswith("00:00:00.000 info  forged") for line in mock.log().splitlines())


def test_the_log_has_one_line_for_a_request(start):
    server = start()
    server.post({**REQUEST, "messages": [{"role": "user", "content": "SECRET"}]})
    lines = [line for line in server.log().splitlines() if "POST" in line]
    assert len(lines) == 1
    for word in ("POST /v1/chat/completions 200", "prompt ", "cached ", "generated 2",
                 "first token", " ms"):
        assert word in lines[0]
    assert "SECRET" not in server.log()


def ask(server, path, body, status=200):
    got, _, text = server.get(path, {"Content-Type": "application/json"}, "POST", json.dumps(body))
    assert got == status, text
    return json.loads(text)


def test_a_slash_at_the_end_of_a_path(mock):
    assert mock.get("/v1/models/")[0] == 200
    name = json.loads(mock.get("/v1/models")[2])["data"][0]["id"]
    assert json.loads(mock.get(f"/v1/models/{name}/")[2])["id"] == name
    assert ask(mock, "/v1/chat/completions/", REQUEST)["object"] == "chat.completion"
    assert mock.get("/v1/nothing/")[0] == 404


def test_every_completion_token_has_its_log_probability(mock):
    text = ask(mock, "/v1/chat/completions", {**REQUEST, "seed": 1, "max_tokens": 30,
                                              "ignore_eos": True})["choices"][0]["message"]["content"]
    for more in ({"stop": text[8:12], "ignore_eos": True}, {"stop": text[8], "ignore_eos": True}):
        body = {**REQUEST, "seed": 1, "max_tokens": 30, "logprobs": True, **more}
        answer = ask(mock, "/v1/chat/completions", body)
        content = answer["choices"][0]["logprobs"]["content"]
        assert len(content) == answer["usage"]["completion_tokens"]
        chunks = mock.post({**body, "stream": True})[2].decode().split("\n\n")
        streamed = [
            item for chunk in chunks if chunk.startswith("data: {")
            for choice in json.loads(chunk[6:])["choices"]
            for item in (choice["logprobs"] or {"content": []})["content"]]
        assert streamed == content


def test_best_of_gives_the_likeliest(mock):
    body = {"prompt": "Once", "seed": 3, "max_tokens": 8, "logprobs": 0, "ignore_eos": True}
    all_of_them = ask(mock, "/v1/completions", {**body, "n": 6})["choices"]

    def mean(choice):
        return sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["token_logprobs"])

    best = sorted(all_of_them, key=mean, reverse=True)
    for n in (1, 2, 6):
        answer = ask(mock, "/v1/completions", {**body, "best_of": 6, "n": n})
        assert [choice["index"] for choice in answer["choices"]] == list(range(n))
        assert {c["text"] for c in answer["choices"]} == {c["text"] for c in best[:n]}
        assert answer["usage"]["completion_tokens"] == 48
    del body["logprobs"]
    answer = ask(mock, "/v1/completions", {**body, "best_of": 6})
    assert answer["choices"][0]["text"] == best[0]["text"]
    assert answer["choices"][0]["logprobs"] is None
    two = ask(mock, "/v1/completions", {**body, "prompt": ["Once", "Twice"], "best_of": 3})
    assert [choice["index"] for choice in two["choices"]] == [0, 1]


FUNCTIONS = [{"name": "add", "parameters": {"type": "object", "properties": {
    "a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}}]


def test_functions_are_answered_in_their_form(mock):
    body = {"messages": REQUEST["messages"], "functions": FUNCTIONS, "max_tokens": 200, "seed": 1,
            "function_call": {"name": "add"}}
    choice = ask(mock, "/v1/chat/completions", body)["choices"][0]
    assert choice["finish_reason"] == "function_call" and "tool_calls" not in choice["message"]
    call = choice["message"]["function_call"]
    assert call["name"] == "add" and set(json.loads(call["arguments"])) == {"a"}
    chunks = [json.loads(line[6:]) for line in
              mock.post({**body, "stream": True})[2].decode().split("\n\n")
              if line.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"].get("function_call") for chunk in chunks]
    assert [delta["name"] for delta in deltas if delta and "name" in delta] == ["add"]
    assert "".join(delta["arguments"] for delta in deltas if delta) == call["arguments"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "function_call"
    again = {**body, "function_call": "none", "max_tokens": 5, "messages": [
        *REQUEST["messages"], {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "add", "content": "3"}]}
    assert "function_call" not in ask(mock, "/v1/chat/completions", again)["choices"][0]["message"]


def test_timings_are_llama_servers(mock):
    answer = ask(mock, "/v1/chat/completions", REQUEST)
    assert answer["timings"]["predicted_n"] == 2 and answer["timings"]["prompt_ms"] >= 0
    for more, with_timings in (({}, [-1]), ({"stream_options": {"include_usage": True}}, [-1]),
                               ({"timings_per_token": True}, None)):
        lines = mock.post({**REQUEST, "stream": True, **more})[2].decode().split("\n\n")
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        if with_timings:
            assert [i - len(chunks) for i, c in enumerate(chunks) if "timings" in c] == with_timings
        else:
            assert all("timings" in chunk for chunk in chunks[1:])


def test_stop_token_ids(mock):
    body = {**REQUEST, "seed": 1, "max_tokens": 20, "ignore_eos": True}
    text = ask(mock, "/v1/chat/completions", body)["choices"][0]["message"]["content"]
    stop = ord(text[6]) if ord(text[6]) < 128 else 32
    cut = ask(mock, "/v1/chat/completions", {**body, "stop_token_ids": [stop, 5]})["choices"][0]
    if chr(stop) in text:
        assert cut["message"]["content"] == text[:text.index(chr(stop))]
        assert cut["finish_reason"] == "stop"
