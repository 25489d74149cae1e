"""Why no more of a prompt was cached: every reason, reported at the right place.

The mock's tokenizer has one token per byte and ChatML, so positions can be counted by hand: <|im_start|> and <|im_end|>
are one token each.
"""
import json
import threading
import time

import pytest

SYSTEM = "You are a careful clerk. Today is {}, and the office is open until five."
ROLE = {"system": 1 + len("system\n"), "user": 1 + len("user\n"), "assistant": 1 + len("assistant\n")}
END = 2  # <|im_end|> and a line feed


def conversation(user="What is open?", day="Monday"):
    return [{"role": "system", "content": SYSTEM.format(day)}, {"role": "user", "content": user}]


def ask(server, messages, headers=None, path="/v1/chat/completions", **options):
    body = {"messages": messages, "max_tokens": 4, "seed": 1, "ignore_eos": True,
            "radish": {"explain": True}, **options}
    status, _, text = server.get(path, {"Content-Type": "application/json", **(headers or {})}, "POST",
                                 json.dumps(body))
    assert status == 200, text
    return json.loads(text)


def explain(server, messages, headers=None, **options):
    answer = ask(server, messages, headers, **options)
    told = answer["radish"]
    details = answer["usage"]["prompt_tokens_details"]
    assert told["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert told["cached_tokens"] == details["cached_tokens"]
    assert told["computed_tokens"] == told["prompt_tokens"] - told["cached_tokens"]
    assert 0 <= told["shared_tokens"] <= told["cached_tokens"]
    miss = told["miss"]
    if miss:
        assert miss["detail"].endswith(".") and len(miss["detail"]) > 20
        assert set(miss) - {"position", "message", "role", "precedes_message", "reason", "before",
                            "prompt_text", "cached_text", "gone_tokens", "gone_s", "idle_s", "tenant",
                            "tenant_tokens", "detail"} == set()
    else:
        assert told["cached_tokens"] >= told["prompt_tokens"] - 1
    return told


@pytest.fixture
def fresh(start):
    return start()


def test_never_seen_from_the_first_token(fresh):
    miss = explain(fresh, conversation())["miss"]
    assert miss["reason"] == "never_seen" and miss["position"] == 0
    assert miss["message"] is None and miss["role"] is None and miss["precedes_message"] == 0
    assert miss["before"] == "" and miss["prompt_text"] == "<|im_start|>system\n"
    assert "message 0 (system)" in miss["detail"]
    assert miss["detail"].endswith(' is new: "<|im_start|>system\\n".')


def test_never_seen_behind_the_last_turn(fresh):
    first = ask(fresh, conversation())
    text = first["choices"][0]["message"]["content"]
    known = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"] - 1
    told = explain(fresh, conversation() + [{"role": "assistant", "content": text},
                                            {"role": "user", "content": "And then?"}])
    miss = told["miss"]
    assert told["cached_tokens"] == known
    assert miss["reason"] == "never_seen" and miss["position"] == known
    # The last sampled token was never fed to the model, so the cache lacks it.
    assert miss["message"] == 2 and miss["role"] == "assistant"
    assert miss["prompt_text"] == text[-1] + "<|im_end|>\n<|im_start|>user"
    assert (conversation()[1]["content"] + "<|im_end|>\n<|im_start|>assistant\n" + text[:-1]).endswith(
        miss["before"])
    assert "up to the last one sampled for message 2 (assistant)" in miss["detail"]


def test_diverged(fresh):
    ask(fresh, conversation(day="Monday"))
    told = explain(fresh, conversation(day="Tuesday"))
    miss = told["miss"]
    assert miss["reason"] == "diverged"
    assert miss["position"] == told["cached_tokens"] == ROLE["system"] + SYSTEM.index("{}")
    assert miss["message"] == 0 and miss["role"] == "system" and "precedes_message" not in miss
    assert miss["before"] == "oday is " and miss["prompt_text"] == "Tuesday,"
    assert miss["cached_text"] == "Monday, "
    assert '"Tuesday,"' in miss["detail"] and '"Monday, "' in miss["detail"]
    assert f"The first {told['cached_tokens']} tokens" in miss["detail"]


def test_diverged_in_the_template(fresh):
    """A conversation continues where another ended: the difference is the role's name."""
    ask(fresh, conversation())
    told = explain(fresh, conversation() + [{"role": "system", "content": "Be brief."}])
    miss = told["miss"]
    whole = sum(ROLE[m["role"]] + len(m["content"]) + END for m in conversation())
    assert miss["reason"] == "diverged" and miss["position"] == whole + 1
    assert miss["message"] is None and miss["precedes_message"] == 2
    assert miss["prompt_text"] == "system\nB" and miss["cached_text"] == "assistan"


def test_nothing_is_missing(fresh):
    ask(fresh, conversation())
    told = explain(fresh, conversation())
    assert told["miss"] is None and told["computed_tokens"] == 1


def test_texts_are_utf8_wherever_they_are_cut(fresh):
    ask(fresh, conversation(user="caf\u00e9 \U0001f331"))
    miss = explain(fresh, conversation(user="caf\u00ea \U0001f332"))["miss"]
    # Both letters begin with the byte c3.
    assert miss["reason"] == "diverged" and miss["message"] == 1
    assert miss["prompt_text"].startswith("\ufffd ") and miss["cached_text"].startswith("\ufffd ")
    assert miss["before"].endswith("caf\ufffd")


def fill(server, n, tag):
    ask(server, [{"role": "user", "content": tag * (n // len(tag))}], radish=None)


def test_evicted(start):
    server = start("--cache-size", "600t")
    story = [{"role": "user", "content": "Once upon a time there was a clerk. " * 8}]
    whole = ask(server, story)["usage"]["prompt_tokens"]
    fill(server, 400, "xyz")
    assert server.wait_idle()["cache_evicted"] > 0
    told = explain(server, story)
    miss = told["miss"]
    assert miss["reason"] == "evicted" and miss["position"] == told["cached_tokens"] < whole - 1
    assert 0 <= miss["gone_s"] < 60 and 0 <= miss["idle_s"] < 60
    assert "--cache-size" in miss["detail"]
    assert miss["message"] == 0 and miss["role"] == "user"
    assert story[0]["content"][miss["position"] - ROLE["user"]:].startswith(miss["prompt_text"])


def test_evicted_from_a_tenants_part(start):
    server = start("--api-key", "acme:k1", "--admin-key", "k3", "--tenant-cache-size", "200t")
    for word in ("plum ", "pear ", "fig "):
        ask(server, [{"role": "user", "content": word * 30}], key("k1"))
    miss = explain(server, [{"role": "user", "content": "plum " * 30}], key("k1"))["miss"]
    assert miss["reason"] == "evicted" and "or --tenant-cache-size would have" in miss["detail"]


def test_expired(start):
    server = start("--cache-ttl", "1s")
    ask(server, conversation())
    deadline = time.monotonic() + 20
    while server.wait_idle()["cache_expired"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    told = explain(server, conversation())
    miss = told["miss"]
    assert miss["reason"] == "expired" and miss["position"] == told["cached_tokens"] == 0
    assert miss["message"] is None and miss["precedes_message"] == 0
    assert 0.9 < miss["idle_s"] < 20 and 0 <= miss["gone_s"] < 20
    assert "--cache-ttl" in miss["detail"]


def test_cleared(fresh):
    ask(fresh, conversation())
    assert fresh.get("/v1/cache", method="DELETE")[0] == 200
    miss = explain(fresh, conversation())["miss"]
    assert miss["reason"] == "cleared" and miss["position"] == 0
    assert 0 <= miss["gone_s"] < 60


def key(name):
    return {"Authorization": f"Bearer {name}"}


@pytest.fixture
def keyed(start):
    return start("--api-key", "acme:k1", "--api-key", "rival:k2", "--admin-key", "k3")


def test_another_namespace_is_told_to_the_operator_only(keyed):
    known = ask(keyed, conversation(), key("k1"))["usage"]["prompt_tokens"]
    miss = explain(keyed, conversation(), key("k2"))["miss"]
    assert miss["reason"] == "never_seen" and "tenant" not in miss and "acme" not in json.dumps(miss)
    longer = conversation(user="What is open? And where?")
    miss = explain(keyed, longer, key("k3"))["miss"]
    assert miss["reason"] == "namespace" and miss["position"] == 0
    assert miss["tenant"] in ("acme", "rival")
    assert 0 < miss["tenant_tokens"] < known
    assert "tenant" in miss["detail"]


def test_a_tenant_sees_its_own_continuation(keyed):
    ask(keyed, conversation(day="Monday"), key("k1"))
    ask(keyed, conversation(day="Friday"), key("k2"))
    miss = explain(keyed, conversation(day="Tuesday"), key("k1"))["miss"]
    assert miss["reason"] == "diverged" and miss["cached_text"] == "Monday, "


def test_behind_a_shared_cache_tenants_do_not_read_each_other(start):
    server = start("--api-key", "acme:k1", "--api-key", "rival:k2", "--share-cache")
    ask(server, conversation(day="Monday"), key("k1"))
    miss = explain(server, conversation(day="Tuesday"), key("k2"))["miss"]
    assert miss["position"] > 0 and "cached_text" not in miss
    assert "Monday" not in json.dumps(miss)


def test_behind_a_shared_prompt_tenants_do_not_exist_for_each_other(start, tmp_path):
    shared = tmp_path / "system.txt"
    shared.write_text(SYSTEM)
    server = start("--api-key", "acme:k1", "--api-key", "rival:k2", "--admin-key", "k3",
                   "--shared-prompt", str(shared))
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "A private matter."}]
    ask(server, messages, key("k1"))
    messages[1]["content"] = "Another matter."
    told = explain(server, messages, key("k2"))
    miss = told["miss"]
    assert told["cached_tokens"] >= len(SYSTEM) and miss["position"] == told["cached_tokens"]
    assert miss["reason"] == "never_seen" and "cached_text" not in miss
    # A tenant's own text is not shared, but the operator is told who has the same text.
    messages[1]["content"] = "A public matter."
    own = explain(server, messages, key("k1"))["miss"]
    assert own["reason"] == "diverged" and own["cached_text"] == "rivate m"
    seen = explain(server, messages, key("k3"))["miss"]
    assert seen["reason"] == "namespace" and seen["tenant"] == "acme"
    assert seen["tenant_tokens"] is None and "cached_text" not in seen


def test_shared_while_it_waited(start):
    server = start("--mock-batch-cost-us", "20000", "--mock-row-cost-us", "100")
    messages = conversation(user="Read this. " * 60)
    told = [None, None]

    def run(i):
        told[i] = explain(server, messages)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = sorted(told, key=lambda t: t["shared_tokens"])
    assert first["shared_tokens"] == 0 and first["miss"]["reason"] == "never_seen"
    assert second["prompt_tokens"] // 2 < second["shared_tokens"] <= second["cached_tokens"]
    assert second["miss"] is None


def test_a_request_that_does_without_the_cache(fresh, start):
    ask(fresh, conversation())
    told = explain(fresh, conversation(), cache_prompt=False)
    assert told["cached_tokens"] == 0
    assert told["miss"]["reason"] == "disabled" and "cache_prompt" in told["miss"]["detail"]
    told = explain(start("--no-prefix-cache"), conversation())
    assert told["miss"]["reason"] == "disabled" and "--no-prefix-cache" in told["miss"]["detail"]


def test_streams_explain_in_a_chunk_of_their_own(fresh):
    ask(fresh, conversation())
    whole = explain(fresh, conversation(day="Tuesday"))
    for usage in (True, False):
        body = {"messages": conversation(day="Wednesday" if usage else "Thursday"), "max_tokens": 4,
                "stream": True, "stream_options": {"include_usage": usage},
                "radish": {"explain": True}}
        _, _, text = fresh.post(body)
        events = text.decode().split("\n\n")[:-1]
        assert events.pop() == "data: [DONE]"
        events = [json.loads(event[len("data: "):]) for event in events]
        last = events.pop()
        assert last["choices"] == [] and last["object"] == "chat.completion.chunk"
        assert all("radish" not in event for event in events)
        assert ("usage" in last) == usage and last.get("usage") is None
        assert (events[-1].get("usage") is not None) == usage
        assert set(last["radish"]) == set(whole)
        assert last["radish"]["miss"]["reason"] == "diverged"


def test_the_header_asks_too(fresh):
    plain = {"messages": conversation(), "max_tokens": 2}
    for value, asks in (("true", True), ("1", True), ("TRUE", True), ("0", False), ("false", False), ("", False)):
        status, _, text = fresh.post(plain, {"x-radish-explain": value})
        assert status == 200 and ("radish" in json.loads(text)) == asks, value
    assert "radish" not in json.loads(fresh.post(plain)[2])
    answer = json.loads(fresh.post({**plain, "radish": {"explain": False}})[2])
    assert "radish" not in answer


def test_of_several_choices_the_first_explains(fresh):
    answer = ask(fresh, conversation(), n=3, temperature=1)
    assert answer["radish"]["miss"]["reason"] == "never_seen"
    assert answer["radish"]["cached_tokens"] == 0 == answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_the_sdk_reads_it(fresh):
    answer = fresh.client().chat.completions.create(
        model="any", messages=conversation(), max_tokens=2, extra_body={"radish": {"explain": True}})
    assert answer.model_extra["radish"]["miss"]["reason"] == "never_seen"
    chunks = list(fresh.client().chat.completions.create(
        model="any", messages=conversation(), max_tokens=2, stream=True,
        extra_body={"radish": {"explain": True}}))
    assert chunks[-1].model_extra["radish"]["miss"] is None


def test_a_log_for_debugging_has_a_line_for_every_request(start):
    server = start("--log-level", "debug")
    for day in ("Monday", "Tuesday"):
        status, _, text = server.post({"messages": conversation(user="SECRET", day=day), "max_tokens": 2})
        assert status == 200 and "radish" not in json.loads(text)
    lines = [line for line in server.log().splitlines() if "debug chatcmpl-" in line]
    assert len(lines) == 2
    assert "never_seen, in the template's text before message 0 (system)" in lines[0]
    assert "diverged, in message 0 (system)" in lines[1]
    assert "SECRET" not in server.log() and "Tuesday" not in server.log()
