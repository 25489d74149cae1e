"""Request ids, and the log: a line for each request, as text or JSON, without what was said."""
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from conftest import BUILD
from test_keys import CHAT, bearer, chat

JSON = {"Content-Type": "application/json"}
SECRET = {"messages": [{"role": "user", "content": "the-secret-question"}], "max_tokens": 3,
          "ignore_eos": True}


def ids(server, path="/v1/models", headers=None, **more):
    """The x-request-id of an answer."""
    return server.get(path, headers, **more)[1].get_all("x-request-id")


def test_every_answer_has_one_id(mock):
    seen = set()
    for path, method, body in (("/v1/models", "GET", None), ("/health", "HEAD", None), ("/nowhere", "GET", None),
                               ("/v1/models", "OPTIONS", None), ("/v1/models", "PUT", None),
                               ("/v1/chat/completions", "POST", "{"), ("/v1/chat/completions", "POST", json.dumps(SECRET)),
                               ("/v1/chat/completions", "POST", json.dumps({**SECRET, "stream": True})),
                               ("/tokenize", "POST", '{"content":"x"}'), ("/api/version", "GET", None)):
        given = ids(mock, path, JSON, method=method, body=body)
        assert len(given) == 1 and re.fullmatch(r"req-[0-9a-v]{24}", given[0]), path
        seen.add(given[0])
    assert len(seen) == 10
    with mock.connect() as connection:  # no request at all
        connection.sendall(b"nonsense\r\n\r\n")
        assert b"\r\nx-request-id: req-" in connection.recv(65536)
    assert len(ids(mock, "/health", {"Host": "evil.example"})) == 1


def test_ids_of_clients(mock):
    for own in ("a", "x" * 128, "018f-4b:{}[]\"'<>\\~"):
        assert ids(mock, headers={"X-Request-Id": own}) == [own]
        assert ids(mock, "/nowhere", {"x-request-id": own}) == [own]
    for bad in ("x" * 129, "two words", "", "caf\u00e9", "tab\tin"):
        assert ids(mock, headers={"X-Request-Id": bad.encode("latin-1")})[0].startswith("req-"), bad
    status, headers, body = mock.post(SECRET, {"x-request-id": "mine"})
    assert headers["x-request-id"] == "mine" and json.loads(body)["id"].startswith("chatcmpl-")
    _, headers, body = mock.post(SECRET)  # the log leads from one to the other
    assert headers["x-request-id"][4:] == json.loads(body)["id"][9:]


def test_a_line_of_text(start):
    server = start("--api-key", "acme:k-1 name=alice", "--api-key", "k-2")
    server.post(SECRET, {**bearer("k-1"), "x-request-id": "id-1"})
    server.post(SECRET, {**bearer("k-2"), "x-request-id": "id-2"})
    server.get("/v1/models?q=the-secret-query", {"x-request-id": "id-3"})
    assert server.stop() == 0
    assert re.search(r"info  POST /v1/chat/completions 200 [\d.]+ ms: tenant acme, prompt \d+, cached 0, "
                     r"generated 3, first token [\d.]+ ms, key alice, id id-1\n", server.log())
    assert re.search(r"tenant default, .* from 127\.0\.0\.1, id id-2\n", server.log())
    assert re.search(r"GET /v1/models 401 [\d.]+ ms: this server needs .*, from 127\.0\.0\.1, id id-3\n",
                     server.log())
    assert "the-secret" not in server.log() and "k-1" not in server.log()


def test_lines_of_json(start):
    server = start("--api-key", "acme:k-1 name=alice", "--log-format", "json", "--log-level", "debug")
    server.post(SECRET, {**bearer("k-1"), "x-request-id": 'id-"1"'})
    server.get("/health?q=the-secret-query", {"x-request-id": "id-2"})
    server.get("/no/caf%C3%A9", {"x-request-id": "id-3"})
    with server.connect() as connection:
        connection.sendall(b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\nx-request-id: id-4\r\n\r\n")
        connection.recv(65536)
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.log().splitlines()]
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["level"] in ("debug", "info", "warn", "error")
    requests = {line["id"]: line for line in lines if "id" in line}
    one = requests['id-"1"']
    assert one.pop("duration_ms") > 0 and one.pop("first_token_ms") > 0 and one.pop("time")
    assert one.pop("prompt_tokens") > 20
    assert one == {"level": "info", "id": 'id-"1"', "client": "127.0.0.1", "key": "alice", "tenant": "acme",
                   "method": "POST", "path": "/v1/chat/completions", "status": 200, "cached_tokens": 0,
                   "generated_tokens": 3}
    assert requests["id-2"]["path"] == "/health" and requests["id-2"]["level"] == "debug"
    assert requests["id-3"]["status"] == 401 and "API key" in requests["id-3"]["note"]
    assert "the-secret" not in server.log()


def test_a_client_that_hangs_up(start):
    server = start("--log-format", "json", "--mock-batch-cost-us", "5000")
    for body in (b'{"messages":[{"role":"user","content":"x"}],"ignore_eos":true}', b'{"mess'):
        with server.connect() as connection:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                               b"Content-Type: application/json\r\nContent-Length: 62\r\n\r\n" + body)
            time.sleep(0.1)
    server.wait_idle()
    lines = [json.loads(line) for line in server.log().splitlines()]
    assert [(line["status"], line["hung_up"]) for line in lines if line.get("path") == "/v1/chat/completions"] \
        == [(499, True)] * 2


def test_a_log_that_nobody_reads(tmp_path):
    """The server goes on while its log's pipe is full, and says later what is missing."""
    process = subprocess.Popen([os.path.join(BUILD, "radish"), "serve", "--engine", "mock", "--port", "0",
                                "--log-level", "debug"], stderr=subprocess.PIPE)
    try:
        port = None
        while port is None:
            found = re.search(rb"listening on http://127\.0\.0\.1:(\d+)", process.stderr.readline())
            port = int(found.group(1)) if found else None
        import http.client
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        slowest = 0
        for _ in range(2000):  # a pipe holds 64 KiB
            began = time.monotonic()
            connection.request("GET", "/v1/models")
            assert connection.getresponse().read()
            slowest = max(slowest, time.monotonic() - began)
        connection.close()
        assert slowest < 1
        rest, has_room = [], threading.Event()

        def read():
            rest.append(process.stderr.read(32768))
            has_room.set()
            rest[0] += process.stderr.read()
        reader = threading.Thread(target=read)
        reader.start()
        assert has_room.wait(20)
        process.send_signal(signal.SIGTERM)
        reader.join(20)
        assert process.wait(20) == 0
        lost = int(re.search(rb"log lines lost, because nobody read them: (\d+)", rest[0]).group(1))
        assert lost > 500 and rest[0].count(b"GET /v1/models 200") + lost >= 1995
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_repeated_warnings_are_one(start):
    server = start("--max-connections", "1", "--mock-batch-cost-us", "20000")
    with server.connect() as held:
        body = json.dumps({"prompt": "x", "stream": True, "max_tokens": 4000, "ignore_eos": True})
        held.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (len(body), body.encode()))
        assert held.recv(4096)  # a connection with a running answer makes no room for others
        for _ in range(20):
            with server.connect() as refused:
                assert refused.recv(4096).startswith(b"HTTP/1.1 503")
    assert server.stop() == 0
    assert len(re.findall(r"warn  rejected a connection: too many are open\n", server.log())) == 1
    assert re.search(r"warn  rejected a connection: too many are open \(repeated 19 times in \d s\)\n", server.log())


def test_wrong_format():
    from test_keys import usage_error
    assert "--log-format" in usage_error("--log-format", "xml")
