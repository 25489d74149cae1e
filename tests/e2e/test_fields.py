"""Request fields: unknown ones are named, inert ones are not, strict servers refuse."""
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
    lines = [line for line in server.log().splitlines() if "unknown here" in line]
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
