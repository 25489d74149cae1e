"""Limits of keys and of addresses: what is refused, what clients are told, and that what they get is
what their limits say. tools/key_limits.py measures 20 keys for a minute."""
import json
import os
import sys
import threading
import time

import openai
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
import key_limits  # noqa: E402

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "ignore_eos": True}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def chat(server, key=None, **more):
    status, headers, body = server.post({**CHAT, **more}, bearer(key) if key else None)
    return status, headers, json.loads(body)


def test_requests_a_minute(start):
    server = start("--api-key", "a requests-per-minute=3", "--api-key", "b")
    for left in (2, 1, 0):
        status, headers, _ = chat(server, "a")
        assert status == 200
        assert headers["x-ratelimit-limit-requests"] == "3"
        assert headers["x-ratelimit-remaining-requests"] == str(left)
        assert headers["x-ratelimit-reset-requests"].endswith("s")
        assert "x-ratelimit-limit-tokens" not in headers
    status, headers, body = chat(server, "a")
    assert status == 429 and body["error"]["code"] == "rate_limit_exceeded"
    assert body["error"]["type"] == "rate_limit_error"
    assert "your limit is 3 requests a minute; try again in " in body["error"]["message"]
    assert 1 <= int(headers["Retry-After"]) <= 20
    assert headers["x-ratelimit-remaining-requests"] == "0" and headers["x-request-id"]
    assert headers["x-ratelimit-reset-requests"].startswith(("59", "1m0"))
    assert [server.get(path, bearer("a"))[0] for path in ("/v1/models", "/health")] == [200, 200]
    assert [chat(server, "b")[0] for _ in range(9)] == [200] * 9  # another key
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="a", max_retries=0)
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="mock", messages=CHAT["messages"])
    assert caught.value.code == "rate_limit_exceeded"


def test_a_refused_body_is_not_awaited(start):
    server = start("--limits", "requests-per-minute=1")
    assert chat(server)[0] == 200
    with server.connect() as connection:
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 429 ")


def test_requests_at_once(start):
    server = start("--api-key", "a requests-at-once=2", "--mock-batch-cost-us", "20000",
                   "--admin-key", "root")
    sockets = []
    for body in (b'{"messages":[{"role":"user","content":"x"}],"ignore_eos":true}', b'{"messa'):
        connection = server.connect()  # one is being answered, the other's body is on its way
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: application/json\r\nAuthorization: Bearer a\r\n"
                           b"Content-Length: 62\r\n\r\n" + body)
        sockets.append(connection)
    deadline = time.monotonic() + 20
    while (answer := chat(server, "a"))[0] == 200 and time.monotonic() < deadline:
        pass
    assert answer[0] == 429 and "2 requests at once" in answer[2]["error"]["message"]
    assert answer[1]["Retry-After"] == "1"
    for connection in sockets:  # both hang up: that makes room
        connection.close()
    while (status := chat(server, "a")[0]) == 429 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert status == 200
    assert chat(server, "root")[0] == 200


def test_tokens_a_minute(start):
    server = start("--api-key", "a tokens-per-minute=60 name=x", "--api-key", "b")
    status, headers, body = chat(server, "a", max_tokens=40)
    used = body["usage"]["total_tokens"]
    assert status == 200 and used > 60  # it could start, and is in debt now
    assert headers["x-ratelimit-limit-tokens"] == headers["x-ratelimit-remaining-tokens"] == "60"
    status, headers, body = chat(server, "a")
    assert status == 429 and "60 tokens a minute" in body["error"]["message"]
    assert used - 60 - 1 <= int(headers["Retry-After"]) <= used - 60 + 2
    assert headers["x-ratelimit-remaining-tokens"] == "0"
    assert chat(server, "b")[0] == 200


def test_tokens_a_request(start):
    server = start("--api-key", "a tokens-per-request=50", "--strict-fields")
    prompt = chat(server, "a")[2]["usage"]["prompt_tokens"]
    status, _, body = chat(server, "a", max_tokens=50 - prompt)
    assert status == 200 and body["usage"]["total_tokens"] == 50
    for more in ({"max_tokens": 51 - prompt}, {"max_tokens": (50 - prompt) // 2 + 1, "n": 2}):
        status, _, body = chat(server, "a", **more)
        assert status == 400 and body["error"]["param"] == "max_tokens"
        assert body["error"]["code"] == "tokens_per_request_exceeded"
        assert "your limit is 50 tokens a request: give a smaller max_tokens" in body["error"]["message"]
    status, _, body = chat(server, "a", max_tokens=None)  # what is left
    assert status == 200 and body["usage"]["total_tokens"] == 50
    status, _, body = chat(server, "a", max_tokens=None, n=2)
    assert status == 200 and body["usage"]["total_tokens"] == prompt + (50 - prompt) // 2 * 2
    long = [{"role": "user", "content": "x" * 50}]
    status, _, body = chat(server, "a", messages=long, max_tokens=1)
    assert status == 400 and "send a shorter prompt" in body["error"]["message"]


def test_defaults_and_addresses(start):
    server = start("--limits", "requests-per-minute=2", "--api-key", "a", "--admin-key", "root",
                   "--api-key", "b requests-per-minute=0", "--api-key", "c requests-at-once=9")
    for key, wanted in (("a", [200, 200, 429]), ("b", [200] * 3), ("c", [200, 200, 429]),
                        ("root", [200] * 3)):
        assert [chat(server, key)[0] for _ in range(3)] == wanted, key
    server = start("--limits", "requests-per-minute=2")
    assert [chat(server)[0] for _ in range(3)] == [200, 200, 429]


def test_wrong_limits():
    from test_keys import usage_error
    assert "'x=1' is not a limit" in usage_error("--limits", "x=1")
    assert "needs a whole number" in usage_error("--limits", "requests-at-once=many")
    assert "there is no limit in it" in usage_error("--limits", " ")


def test_keys_get_what_their_limits_say():
    """Under load, once what may be used at once is used up."""
    keys = [key_limits.Key("r", "requests", 900), key_limits.Key("t", "tokens", 60000)]
    key_limits.measure(os.path.join(os.environ.get("RADISH_BUILD", "build"), "radish"), keys, 2)
    for key in keys:
        assert key.refused > 0 and abs(key.off(2)) < 0.12, (key.name, key.got)
