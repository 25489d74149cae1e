"""POST /v1/cache/warm: caching prompts in advance, and pins. Several choices share one prompt."""
import json
import threading

import pytest

SYSTEM = {"role": "system", "content": "You are a careful clerk. " * 8}
ASK = {"role": "user", "content": "What is open?"}


def warm(server, messages, status=200, headers=None, **options):
    got, _, text = server.get("/v1/cache/warm", {"Content-Type": "application/json", **(headers or {})},
                              "POST", json.dumps({"messages": messages, **options}))
    assert got == status, text
    return json.loads(text)


def chat(server, messages, **options):
    status, _, text = server.post({"messages": messages, "max_tokens": 4, "seed": 1, **options})
    assert status == 200, text
    return json.loads(text)


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_warm_then_chat(server):
    system = {"role": "system", "content": "Warm this up, please. " * 6}
    before = server.wait_idle()["generated_tokens"]
    first = warm(server, [system])
    assert first["object"] == "cache.warm" and first["id"].startswith("warm-")
    assert first["model"] == json.loads(server.get("/v1/models")[2])["data"][0]["id"]
    assert first["prompt_tokens"] > 20
    assert first["computed_tokens"] == first["prompt_tokens"] - first["cached_tokens"]
    assert first["pinned"] is False and first["pinned_s"] == 0 and "reason" not in first
    assert "radish" not in first
    assert server.wait_idle()["generated_tokens"] == before
    assert cached(chat(server, [system, ASK])) == first["prompt_tokens"]
    again = warm(server, [system])
    assert again["cached_tokens"] >= again["prompt_tokens"] - 1


def test_a_warmed_answer_has_begun(mock):
    messages = [{"role": "user", "content": "Begin this answer."}]
    plain = warm(mock, messages)
    begun = warm(mock, messages, add_generation_prompt=True)
    assert begun["prompt_tokens"] == plain["prompt_tokens"] + 1 + len("assistant\n")
    answer = chat(mock, messages)
    assert answer["usage"]["prompt_tokens"] == begun["prompt_tokens"]
    assert cached(answer) == begun["prompt_tokens"] - 1


def test_what_a_warming_says(mock):
    messages = [SYSTEM, {"role": "user", "content": "Explain the warming."}]
    told = warm(mock, messages, radish={"explain": True})
    assert told["radish"]["prompt_tokens"] == told["prompt_tokens"]
    assert told["radish"]["computed_tokens"] == told["computed_tokens"]
    assert told["radish"]["miss"]["reason"] in ("never_seen", "diverged")
    assert warm(mock, messages, radish={"explain": True})["radish"]["miss"] is None
    assert "radish" in warm(mock, messages, headers={"x-radish-explain": "1"})


def test_a_chat_request_can_be_sent_as_it_is(start):
    server = start("--strict-fields")
    warm(server, [SYSTEM, ASK], model="m", max_tokens=5, temperature=0.5, n=2, stop=["x"], seed=1,
         stream=False, top_p=1, user="u", metadata={}, pin=1)


@pytest.mark.parametrize("options, param", [
    ({"stream": True}, "stream"), ({"cache_prompt": False}, "cache_prompt"), ({"pin": -1}, "pin"),
    ({"pin": 8 * 24 * 3600}, "pin"), ({"pin": "1"}, "pin"), ({"tools": [{}]}, "tools[0]"),
    ({"messages": []}, "messages"), ({"messages": [{"role": "x", "content": ""}]}, "messages[0].role")])
def test_wrong_requests(mock, options, param):
    body = {"messages": [ASK], **options}
    assert warm(mock, status=400, **body)["error"]["param"] == param


def test_unknown_fields_are_named(mock):
    body = json.dumps({"messages": [ASK], "pins": 1})
    _, headers, _ = mock.get("/v1/cache/warm", {"Content-Type": "application/json"}, "POST", body)
    assert headers["x-radish-ignored"] == "pins"
    _, headers, _ = mock.post({"messages": [ASK], "max_tokens": 1, "pin": 1})
    assert headers["x-radish-ignored"] == "pin"


def test_only_posts(mock):
    assert mock.get("/v1/cache/warm")[0] == 405
    assert mock.get("/v1/cache/warm", {"Content-Type": "text/plain"}, "POST", "{}")[0] == 415


def test_too_long_a_prompt(start):
    server = start("-c", "64")
    error = warm(server, [SYSTEM], status=400)["error"]
    assert error["code"] == "context_length_exceeded"


def test_without_a_cache_there_is_nothing_to_warm(start):
    error = warm(start("--no-prefix-cache"), [ASK], status=501)["error"]
    assert "--no-prefix-cache" in error["message"]


def pressure(server, n=12):
    for i in range(n):
        chat(server, [{"role": "user", "content": f"{i} " + "pressure " * 25}])


def test_pins_survive_pressure(start):
    server = start("--cache-size", "1000t")
    pinned = warm(server, [SYSTEM], pin=600)
    assert pinned["pinned"] is True and pinned["pinned_s"] == 600
    loose = [{"role": "system", "content": "You may be evicted. " * 8}]
    warm(server, loose)
    pressure(server)
    assert server.wait_idle()["cache_evicted"] > 0
    assert cached(chat(server, [SYSTEM, ASK])) == pinned["prompt_tokens"]
    assert cached(chat(server, loose + [ASK])) < pinned["prompt_tokens"] // 2


def test_a_pin_that_is_over(start):
    server = start("--cache-size", "1000t")
    pinned = warm(server, [SYSTEM], pin=0.01)
    assert pinned["pinned"] is True and pinned["pinned_s"] == 0.01
    chat(server, [ASK])
    threading.Event().wait(1.2)
    pressure(server)
    assert cached(chat(server, [SYSTEM, ASK])) < pinned["prompt_tokens"]


def test_pins_have_a_budget(start):
    """Not everything can be pinned; the answer says so, and the prompt is cached anyway."""
    server = start("--cache-size", "1000t")
    told = [warm(server, [{"role": "system", "content": f"Part {i}. " + "Keep me. " * 20}], pin=600)
            for i in range(5)]
    refused = [t for t in told if not t["pinned"]]
    assert told[0]["pinned"] and refused
    for t in refused:
        assert t["pinned_s"] == 0 and "pinned" in t["reason"]
    assert server.wait_idle()["running"] == 0


def test_a_client_that_hangs_up_stops_a_warming(start):
    server = start("--mock-row-cost-us", "2000")
    body = json.dumps({"messages": [{"role": "user", "content": "long " * 400}]})
    with server.connect() as connection:
        connection.sendall((f"POST /v1/cache/warm HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                            + body).encode())
        while server.stats()["running"] == 0:
            pass
    stats = server.wait_idle(timeout=2)
    assert stats["canceled"] == 1


def test_several_choices_compute_the_prompt_once(start):
    """Steps are slow, so every choice has arrived before the first token."""
    server = start("--mock-batch-cost-us", "20000")
    messages = [SYSTEM, ASK]
    before = server.wait_idle()
    n_tokens = 6
    answer = chat(server, messages, n=4, temperature=1, max_tokens=n_tokens, ignore_eos=True)
    assert len(answer["choices"]) == 4
    after = server.wait_idle()
    prompt = answer["usage"]["prompt_tokens"]
    # The prompt once, then a row for every sampled token except each choice's last.
    assert after["rows"] - before["rows"] == prompt + 4 * (n_tokens - 1)


def test_choices_are_those_of_requests_of_their_own(server):
    """Forked at the first sampled token or not, the answers are the same."""
    body = {"temperature": 1.3, "max_tokens": 12, "seed": 5, "n": 3}
    texts = [c["message"]["content"] for c in chat(server, [SYSTEM, ASK], **body)["choices"]]
    uncached = [c["message"]["content"]
                for c in chat(server, [SYSTEM, ASK], cache_prompt=False, **body)["choices"]]
    assert texts == uncached and len(set(texts)) > 1
