"""The cache endpoints: access, contents and clearing."""
import json
import signal
import threading
import time

import pytest

ALICE = {"Authorization": "Bearer k-alice"}
ADMIN = {"Authorization": "Bearer k-admin"}
TENANTS = ("--api-key", "alice:k-alice", "--api-key", "bob:k-bob", "--admin-key", "k-admin")


def ask(server, text, headers=None, system=None, **fields):
    """The complete answer to one question."""
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": text})
    fields.setdefault("max_tokens", 4)
    status, _, body = server.post({"messages": messages, "temperature": 0, **fields}, headers)
    assert status == 200, body
    return json.loads(body)


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def asked(answer):
    return answer["usage"]["prompt_tokens"]


def get(server, path, headers=None, method="GET", want=200):
    status, _, body = server.get(path, headers, method)
    assert status == want, (status, body)
    return json.loads(body)


def settled(server, path="/v1/cache", headers=None):
    """The cache's answer once nothing is running."""
    deadline = time.monotonic() + 30
    while True:
        found = get(server, path, headers)
        if found["requests"]["running"] == 0 and found["requests"]["waiting"] == 0:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def pages(server, limit, headers=None):
    """Every entry, page by page."""
    entries, after = [], ""
    while True:
        page = get(server, f"/v1/cache?limit={limit}{after}", headers)
        assert len(page["data"]) <= limit
        entries += page["data"]
        if page["next"] is None:
            return entries
        after = "&after=" + page["next"]


# ---- access --------------------------------------------------------------------------------


def test_only_admins(start):
    server = start(*TENANTS)
    for method, path in (("GET", "/slots"), ("GET", "/v1/cache/tree"), ("DELETE", "/v1/cache"),
                         ("GET", "/stats")):
        assert server.get(path, ADMIN, method)[0] == 200
        assert server.get(path, ALICE, method)[0] == 403
        assert server.get(path, None, method)[0] == 401
    error = get(server, "/v1/cache/tree", ALICE, want=403)["error"]
    assert error["type"] == "permission_error" and "--admin-key" in error["message"]


def test_without_keys_the_machine_itself(start):
    server = start()
    assert get(server, "/v1/cache")["object"] == "cache"
    assert get(server, "/v1/cache/tree")["object"] == "cache.tree"
    assert get(server, "/v1/cache", method="DELETE")["cleared_tokens"] == 0


def test_methods(start):
    server = start()
    status, headers, _ = server.get("/v1/cache", method="POST",
                                    headers={"Content-Type": "application/json"}, body="{}")
    assert status == 405 and headers["Allow"] == "GET, HEAD, DELETE, OPTIONS"
    status, headers, _ = server.get("/v1/cache/tree", method="DELETE")
    assert status == 405 and headers["Allow"] == "GET, HEAD, OPTIONS"
    status, headers, body = server.get("/v1/cache", method="HEAD")
    assert status == 200 and int(headers["Content-Length"]) > 100 and body == b""
    page = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "DELETE"}
    status, headers, _ = server.get("/v1/cache", page, "OPTIONS")
    assert status == 200 and "DELETE" in headers["Access-Control-Allow-Methods"]
    assert headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    assert server.get("/v1/cache", {**page, "Origin": "http://evil.example"}, "OPTIONS")[0] == 403
    assert server.get("/v1/cache", {"Origin": "http://evil.example"}, "DELETE")[0] == 403


@pytest.mark.parametrize("path, param", [
    ("/v1/cache?limit=0", "limit"), ("/v1/cache?limit=201", "limit"), ("/v1/cache?limit", "limit"),
    ("/v1/cache?limit=1&limit=2", "limit"), ("/v1/cache?after=x", "after"),
    ("/v1/cache?depth=2", "depth"), ("/v1/cache/tree?depth=33", "depth"),
    ("/v1/cache/tree?limit=1001", "limit"), ("/v1/cache/tree?tenant=a", "tenant"),
])
def test_wrong_parameters(mock, path, param):
    error = get(mock, path, want=400)["error"]
    assert error["param"] == param and param in error["message"]


def test_wrong_clearing(start, mock):
    assert get(mock, "/v1/cache?tenants=a", method="DELETE", want=400)["error"]["param"] == "tenants"
    assert get(mock, "/v1/cache?tenant=a", method="DELETE", want=404)["error"]["param"] == "tenant"
    server = start(*TENANTS, "--share-cache")
    get(server, "/v1/cache?tenant=carol", ADMIN, "DELETE", want=404)
    message = get(server, "/v1/cache?tenant=bob", ADMIN, "DELETE", want=400)["error"]["message"]
    assert "--share-cache" in message


# ---- contents ------------------------------------------------------------------------------


def test_numbers_are_those_of_the_answers(start):
    server = start("--cache-size", "4000t")
    before = get(server, "/v1/cache")
    assert before["used"] == {"tokens": 0, "bytes": 0} and before["data"] == []
    assert before["budget"] == {"tokens": 4000, "bytes": 32000}
    assert before["hit_rate"] == 0 and before["misses"] == 0 and before["next"] is None

    question = "x" * 100
    answers = [ask(server, question), ask(server, question + "y" * 50), ask(server, "different"),
               ask(server, question)]
    answers.append(ask(server, "z" * 60, cache_prompt=False))
    now = settled(server)
    assert cached(answers[1]) >= 100 and cached(answers[3]) >= 100
    assert now["prompt_tokens"] == sum(map(asked, answers))
    assert now["cached_tokens"] == sum(map(cached, answers))
    assert now["hit_rate"] == pytest.approx(now["cached_tokens"] / now["prompt_tokens"])
    n_hits = sum(now["hits"].values())
    assert n_hits == 3 and now["misses"] == 1  # "different" shares the template's first tokens
    assert now["mean_match"] == pytest.approx(now["cached_tokens"] / 4)
    assert now["requests"]["length"] + now["requests"]["stop"] == 5
    assert now["requests"]["error"] == now["requests"]["canceled"] == 0
    assert now["pages"]["free"] + now["pages"]["cached"] + now["pages"]["in_use"] == 4000
    assert now["used"]["tokens"] == now["pages"]["cached"] and now["pages"]["in_use"] == 0
    assert now["usage_percent"] == pytest.approx(now["used"]["tokens"] / 40)
    assert now["used"]["bytes"] == 8 * now["used"]["tokens"]
    assert now["entries"] == len(now["data"]) == sum(b["entries"] for b in now["entries_by_depth"])
    assert now["namespaces"] == 1 and now["pressure"] == []
    stats = server.stats()
    assert stats["cached_tokens"] == now["cached_tokens"]
    assert stats["pages_cached"] == now["pages"]["cached"]


def test_entries(start):
    server = start("--alias", "clerk")
    began = int(time.time())
    first = ask(server, "The quick brown fox")
    second = ask(server, "The quick brown fox", max_tokens=9)
    entries = settled(server)["data"]
    assert cached(second) >= asked(first) - 1
    deepest = max(entries, key=lambda entry: entry["tokens"])
    usage = second["usage"]
    assert deepest["tokens"] >= usage["prompt_tokens"] + usage["completion_tokens"] - 1
    for entry in entries:
        assert entry["model"] == "clerk" and entry["tenant"] is None
        assert 0 < entry["own_tokens"] <= entry["tokens"]
        assert entry["bytes"] == 8 * entry["own_tokens"]
        assert began - 2 <= entry["created"] <= entry["last_used"] + 2 <= time.time() + 3
        assert 0 <= entry["idle_s"] < 60
        assert entry["locked"] is False and entry["pinned"] is False and entry["images"] == 0
    assert any(entry["text"].startswith("<|im_start|>") for entry in entries)
    assert len({entry["id"] for entry in entries}) == len(entries)


def test_text_is_valid_utf8(start):
    server = start()
    for text in ("\u00e4" * 40, "\U0001f600" * 30, "\u20ac" * 30 + "x", "\u00e4" * 39 + "\u00f6"):
        ask(server, text)
    texts = [entry["text"] for entry in pages(server, 50)]
    assert not any("\x00" in text for text in texts)
    # Texts are cut after a number of bytes; a character that is cut in half is left out.
    assert sorted({text[0] for text in texts if len(text) > 1 and len(set(text)) == 1}) == ["\u20ac", "\U0001f600"]


def test_paging(start):
    server = start()
    for i in range(30):
        ask(server, f"{i * 7919} is the number of this question", max_tokens=1)
    everything = settled(server)["data"]
    assert len(everything) >= 30
    for limit in (1, 7, 200):
        assert [entry["id"] for entry in pages(server, limit)] == \
            [entry["id"] for entry in everything]
    assert get(server, "/v1/cache?after=4000000000")["data"] == []


def test_pressure(start):
    server = start("--cache-size", "600t")
    for i in range(6):
        ask(server, f"{i}" * 200, max_tokens=2)
    now = settled(server)
    assert now["evicted"]["tokens"] > 0 and now["evicted"]["bytes"] == 8 * now["evicted"]["tokens"]
    events = now["pressure"]
    assert events and all(event["freed_tokens"] > 0 for event in events)
    assert [event["ago_s"] for event in events] == sorted(event["ago_s"] for event in events)
    for event in events:
        assert len(event["entries"]) <= event["nodes"]
        for entry in event["entries"]:
            assert len(entry["digest"]) == 16 and int(entry["digest"], 16) >= 0
            assert 0 < entry["freed_tokens"] <= 600 and entry["idle_s"] >= 0


def walk(nodes, level=0):
    for node in nodes:
        yield level, node
        yield from walk(node["children"], level + 1)


def test_tree(start):
    server = start()
    for question in ("one and one", "one and two", "two"):
        ask(server, question)
    settled(server)
    tree = get(server, "/v1/cache/tree?depth=32")
    assert tree["truncated"] is False and len(tree["data"]) == 1
    nodes = list(walk(tree["data"]))
    assert len(nodes) == tree["nodes"] == get(server, "/v1/cache")["nodes"]
    for level, node in nodes:
        assert (node["own_tokens"] == 0) == (level == 0)
        assert node["n_children"] == len(node["children"])
        assert level == 0 or 0 <= node["age_s"] < 60
        assert node["idle_s"] >= 0 and node["locked"] is False
        for child in node["children"]:
            assert child["tokens"] == node["tokens"] + child["own_tokens"]
    assert max(level for level, _ in nodes) >= 2
    shallow = get(server, "/v1/cache/tree?depth=1")
    assert max(level for level, _ in walk(shallow["data"])) == 1
    assert shallow["truncated"] is False
    assert any(node["n_children"] > 0 and not node["children"]
               for _, node in walk(shallow["data"]))
    cut = get(server, "/v1/cache/tree?depth=32&limit=3")
    assert cut["truncated"] is True and len(list(walk(cut["data"]))) == 3


# ---- clearing ------------------------------------------------------------------------------


def test_clear(start):
    server = start()
    first = ask(server, "hello " * 20)
    held = settled(server)["used"]["tokens"]
    answer = get(server, "/v1/cache", method="DELETE")
    assert answer["cleared_tokens"] == held > asked(first)
    assert answer["cleared_bytes"] == 8 * held
    now = get(server, "/v1/cache")
    assert now["used"]["tokens"] == 0 and now["entries"] == 0 and now["data"] == []
    assert now["cleared"]["tokens"] == held
    assert cached(ask(server, "hello " * 20)) == 0


def test_clear_while_an_answer_runs(start):
    server = start("--mock-batch-cost-us", "5000")
    done = ask(server, "finished " * 10)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(
        ask(server, "running " * 10, max_tokens=300, ignore_eos=True)))
    asking.start()
    deadline = time.monotonic() + 30
    while not any(entry["locked"] for entry in get(server, "/v1/cache")["data"]):
        assert time.monotonic() < deadline
    cleared = get(server, "/v1/cache", method="DELETE")["cleared_tokens"]
    assert cleared > 0
    left = get(server, "/v1/cache")["data"]
    assert left and all(entry["locked"] for entry in left)
    asking.join()
    assert answers[0]["usage"]["completion_tokens"] == 300
    # Prompts that were running are still cached; finished ones are not.
    assert cached(ask(server, "running " * 10)) >= asked(answers[0]) - 1
    assert cached(ask(server, "finished " * 10)) < asked(done) // 2


def test_hangups_leave_nothing_behind(start):
    """Clients ask about the cache and hang up before the answer."""
    server = start("--mock-batch-cost-us", "20000")
    asking = threading.Thread(target=ask, args=(server, "slow"), kwargs={"max_tokens": 40})
    asking.start()
    for request in ("GET /v1/cache", "GET /v1/cache/tree", "DELETE /v1/cache") * 10:
        with server.connect() as connection:
            connection.sendall(f"{request} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    asking.join()
    assert get(server, "/v1/cache")["object"] == "cache"


def test_a_hurried_stop_leaves_nothing_behind(start):
    """The server stops while cache queries are pending or just answered."""
    server = start("--mock-batch-cost-us", "300000")
    body = b'{"messages":[{"role":"user","content":"slow"}],"max_tokens":100}'
    requests = [b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body]
    requests += [b"%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % line for line in
                 (b"GET /v1/cache", b"GET /v1/cache/tree", b"DELETE /v1/cache") * 4]
    connections = [server.connect() for _ in requests]
    for connection, request in zip(connections, requests):
        connection.sendall(request)
        while server.stats()["running"] == 0:
            time.sleep(0.01)
    for number in (signal.SIGTERM, signal.SIGINT):
        server.send_signal(number)
    assert server.process.wait(60) == 0
    for connection in connections:
        connection.close()


def test_clearing_forgets_the_tokens_of_answers(start):
    server = start()
    messages = [{"role": "user", "content": "hello"}]

    def replayed():
        status, headers, body = server.post({"messages": messages, "max_tokens": 8, "seed": 1})
        assert status == 200
        return int(headers.get("x-radish-replayed-tokens", 0)), json.loads(body)

    content = replayed()[1]["choices"][0]["message"]["content"]
    messages += [{"role": "assistant", "content": content}, {"role": "user", "content": "go on"}]
    assert replayed()[0] > 0
    get(server, "/v1/cache", method="DELETE")
    assert replayed()[0] == 0
