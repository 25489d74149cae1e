"""Raw HTTP: what RFC 9112 allows works, what it forbids is rejected, and limits hold."""
import json
import socket
import time

import pytest

HELLO = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "seed": 1})
HOST = b"Host: localhost\r\n"
HEALTH = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"


class Reader:
    """Reads answers one after another from a socket."""

    def __init__(self, sock):
        self.file = sock.makefile("rb")

    def line(self):
        return self.file.readline().rstrip(b"\r\n").decode()

    def answer(self, head=False):
        status_line = self.line()
        if not status_line:
            return None
        status = int(status_line.split()[1])
        headers = {}
        while line := self.line():
            name, value = line.split(": ", 1)
            headers[name.lower()] = value
        body = bytearray()
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self.line(), 16):
                body += self.file.read(size)
                assert self.file.readline() == b"\r\n"
            assert self.file.readline() == b"\r\n"
        elif not head:
            body = self.file.read(int(headers.get("content-length", 0)))
        return status, headers, bytes(body)


def post(body, extra=b"", version=b"HTTP/1.1"):
    body = body if isinstance(body, bytes) else body.encode()
    return (b"POST /v1/chat/completions " + version + b"\r\n" + HOST
            + b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body) + extra
            + b"\r\n" + body)


def talk(server, data, head=False):
    """Sends bytes; returns one answer and whether the server then closed the connection."""
    with server.connect() as sock:
        sock.sendall(data)
        reader = Reader(sock)
        answer = reader.answer(head)
        assert answer, "closed without an answer"
        sock.settimeout(0.2)
        try:
            closed = sock.recv(1) == b""
        except TimeoutError:
            closed = False
        return (*answer, closed)


BIG = b"x" * 70000
HOSTILE = [
    (400, b"GET / HTTP/1.1\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    (400, b"GET / HTTP/1.1\n" + HOST + b"\r\n"),
    (400, b"GET /health HTTP/1.1\r\n" + HOST + b"A : b\r\n\r\n"),
    (400, b"GET /health HTTP/1.1\r\n" + HOST + b"A: b\r\n folded\r\n\r\n"),
    (400, b"GET /health HTTP/1.1\r\n" + HOST + b"A: \0\r\n\r\n"),
    (400, b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n"),
    (400, b"G@T /health HTTP/1.1\r\n" + HOST + b"\r\n"),
    (400, b"GET /he\xffalth HTTP/1.1\r\n" + HOST + b"\r\n"),
    (400, b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\n"),
    (400, post(HELLO, b"Transfer-Encoding: chunked\r\n")),
    (400, post(HELLO, b"Content-Length: 3\r\n")),
    (400, post(HELLO, b"Content-Length: %d\r\n" % len(HELLO))),
    (400, b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1, 1\r\n\r\na"),
    (400, b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\na"),
    (400, b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n"),
    (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (413, b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999999\r\n\r\n"),
    (413, b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 33554433\r\n\r\n" + BIG),
    (414, b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n"),
    (431, b"GET /health HTTP/1.1\r\n" + HOST + b"A: " + BIG + b"\r\n\r\n"),
    (431, b"GET /health HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 101 + b"\r\n"),
    (417, b"GET /health HTTP/1.1\r\n" + HOST + b"Expect: miracles\r\n\r\n"),
    (501, b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
    (505, b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n"),
    (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
]


@pytest.mark.parametrize("case", range(len(HOSTILE)))
def test_hostile_requests_are_refused_and_closed(mock, case):
    want, data = HOSTILE[case]
    status, headers, body, closed = talk(mock, data)
    assert status == want
    assert closed and headers["connection"] == "close"
    assert json.loads(body)["error"]["message"]


CHUNKED_HEAD = (b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST
                + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")


@pytest.mark.parametrize("chunks", [
    b"zz\r\n", b"-1\r\n", b"5 \r\nhello\r\n", b"5\r\nhello!\r\n", b"5\nhello\r\n",
    b"10000000000000000\r\n", b"1;" + b"x" * 300 + b"\r\n", b"0\r\nA : b\r\n\r\n",
])
def test_bad_chunks_are_refused(mock, chunks):
    status, _, _, closed = talk(mock, CHUNKED_HEAD + chunks)
    assert status == 400 and closed


def test_chunks_beyond_the_limit(mock):
    assert talk(mock, CHUNKED_HEAD + b"2000001\r\n")[0] == 413
    assert talk(mock, CHUNKED_HEAD + b"ffffffffffffffff\r\n")[0] == 413


def test_a_chunked_request_byte_by_byte(mock):
    with mock.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        half = len(HELLO) // 2
        data = CHUNKED_HEAD + b"%x;ext=1\r\n%s\r\n%X\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (
            half, HELLO[:half].encode(), len(HELLO) - half, HELLO[half:].encode())
        for byte in data:
            sock.sendall(bytes([byte]))
        status, _, body = Reader(sock).answer()
        assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 3


def test_kept_alive_and_pipelined_requests_are_answered_in_order(mock):
    with mock.connect() as sock:
        get = b"GET /v1/models HTTP/1.1\r\n" + HOST + b"\r\n"
        sock.sendall(post(HELLO) + HEALTH + b"\r\n" + get + post(HELLO))
        reader = Reader(sock)
        answers = [reader.answer() for _ in range(4)]
        assert [status for status, _, _ in answers] == [200] * 4
        kinds = [json.loads(body).get("object", "health") for _, _, body in answers]
        assert kinds == ["chat.completion", "health", "list", "chat.completion"]
        assert (json.loads(answers[0][2])["choices"] == json.loads(answers[3][2])["choices"])
        sock.sendall(HEALTH)
        assert reader.answer()[0] == 200


def test_pipelined_requests_that_do_not_fit_the_buffer(mock):
    large = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2,
                        "user": "x" * 50000})
    with mock.connect() as sock:
        sock.sendall(post(large) * 5 + HEALTH)
        reader = Reader(sock)
        assert [reader.answer()[0] for _ in range(6)] == [200] * 6


def test_a_client_that_reads_no_answers_is_made_to_wait(mock):
    with mock.connect() as sock:
        sock.settimeout(1)
        sent = 0
        try:
            while sent < 64 << 20:
                sent += sock.send(HEALTH * 1000)
        except TimeoutError:
            pass
        assert sent < 64 << 20, "the server reads without end"
    assert mock.get("/health")[0] == 200


def test_expect_continue(mock):
    with mock.connect() as sock:
        reader = Reader(sock)
        data = post(HELLO, b"Expect: 100-continue\r\n")
        split = data.index(b"\r\n\r\n") + 4
        sock.sendall(data[:split])
        assert reader.line() == "HTTP/1.1 100 Continue" and reader.line() == ""
        sock.sendall(data[split:])
        assert reader.answer()[0] == 200
        # A rejected request gets no 100 Continue.
        sock.sendall(b"POST /nowhere HTTP/1.1\r\n" + HOST
                     + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert reader.answer()[0] == 404


def test_http_1_0(mock):
    status, headers, body, closed = talk(mock, b"GET /health HTTP/1.0\r\n\r\n")
    assert (status, body, closed) == (200, b'{"status":"ok"}', True)
    with mock.connect() as sock:
        stream = json.dumps({**json.loads(HELLO), "stream": True})
        sock.sendall(post(stream, version=b"HTTP/1.0"))
        text = sock.makefile("rb").read()
        assert b"chunked" not in text and text.endswith(b"data: [DONE]\n\n")


def test_head_and_options(mock):
    status, headers, _, closed = talk(mock, HEALTH.replace(b"GET", b"HEAD"), head=True)
    assert (status, headers["content-length"], closed) == (200, "15", False)
    status, headers, body, closed = talk(mock, HEALTH.replace(b"GET", b"OPTIONS"))
    assert (status, headers["allow"], body, closed) == (200, "GET, HEAD, OPTIONS", b"", False)
    assert talk(mock, b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n")[0] == 200


def test_routes(mock):
    assert mock.get("/health")[2] == b'{"status":"ok"}'
    assert mock.get("/health?x=1")[0] == 200
    assert mock.get("/nowhere")[0] == 404
    assert mock.get("/v1/nothing/")[0] == 404
    assert mock.get("/%00")[0] == 400
    status, headers, body = mock.get("/v1/chat/completions")
    assert (status, headers["Allow"]) == (405, "POST, OPTIONS")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert mock.get("/health", method="DELETE")[0] == 405
    assert mock.get("/health", method="BREW")[0] == 501
    assert talk(mock, b"GET http://127.0.0.1/health HTTP/1.1\r\n" + HOST + b"\r\n")[0] == 200


def test_only_hosts_of_this_machine(mock, start):
    for host in ("localhost", "127.0.0.1:1", "[::1]:80", "127.1.2.3"):
        assert mock.get("/health", {"Host": host})[0] == 200
    for host in ("evil.example", "localhost.evil.example", "10.0.0.1", ""):
        status, _, body = mock.get("/health", {"Host": host})
        assert status == 403
        assert "--allowed-host" in json.loads(body)["error"]["message"]
    # A host in the request target overrides the Host header.
    assert talk(mock, b"GET http://evil.example/health HTTP/1.1\r\n" + HOST + b"\r\n")[0] == 403
    server = start("--allowed-host", "box.example", "--allowed-host", "api.example:99")
    assert server.get("/health", {"Host": "BOX.example:1"})[0] == 200
    assert server.get("/health", {"Host": "api.example:99"})[0] == 200
    assert server.get("/health", {"Host": "api.example"})[0] == 403
    server = start("--allowed-host", "*")
    assert server.get("/health", {"Host": "any.example"})[0] == 200
    assert server.get("/health", {"Host": "any.example", "Origin": "http://x.example"})[0] == 403


def test_only_origins_of_this_machine(mock):
    for origin in ("http://evil.example", "null", "https://localhost.evil.example"):
        status, headers, _ = mock.get("/health", {"Origin": origin})
        assert status == 403 and "Access-Control-Allow-Origin" not in headers
    status, headers, _ = mock.get("/health", {"Origin": "http://localhost:3000"})
    assert status == 200
    assert headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    assert headers["Vary"] == "Origin"
    status, headers, _ = mock.get(
        "/v1/chat/completions", {"Origin": "http://localhost:3000",
                                 "Access-Control-Request-Method": "POST",
                                 "Access-Control-Request-Headers": "content-type, x-y"}, "OPTIONS")
    assert status == 200
    assert headers["Access-Control-Allow-Headers"] == "content-type, x-y"
    assert "POST" in headers["Access-Control-Allow-Methods"]


def test_posts_must_be_json(mock):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""):
        assert mock.post(HELLO, {"Content-Type": kind})[0] == 415
    assert mock.post(HELLO, {"Content-Type": "Application/JSON; charset=utf-8"})[0] == 200
    assert mock.get("/v1/chat/completions", method="POST", body=HELLO)[0] == 415


def test_only_plain_bodies(mock):
    for encoding in ("gzip", "br", "identity, gzip"):
        status, headers, body = mock.post(HELLO, {"Content-Encoding": encoding})
        assert status == 415 and headers["Accept-Encoding"] == "identity"
        assert f"'{encoding}'" in json.loads(body)["error"]["message"]
    assert mock.post(HELLO, {"Content-Encoding": "Identity"})[0] == 200


def test_a_body_that_is_too_large_is_told_the_limit(mock, start):
    large = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 33554433\r\n\r\n"
    message = json.loads(talk(mock, large)[2])["error"]["message"]
    assert "32 MiB (--max-body-mib)" in message
    server = start("--max-body-mib", "1")
    status, _, body, _ = talk(server, CHUNKED_HEAD + b"100001\r\n")
    assert status == 413
    assert "1 MiB (--max-body-mib)" in json.loads(body)["error"]["message"]


def test_an_answer_arrives_although_the_body_was_not_read(mock):
    with mock.connect() as sock:
        head = (b"POST /nowhere HTTP/1.1\r\n" + HOST + b"Content-Length: 20000000\r\n\r\n")
        sock.sendall(head)
        try:
            for _ in range(200):
                sock.sendall(b"x" * 100000)
        except OSError:
            pass
        assert Reader(sock).answer()[0] == 404


def test_many_idle_connections_leave_room_for_others(start):
    server = start()
    idle = [server.connect() for _ in range(1100)]
    try:
        for sock in idle[::100]:
            sock.sendall(b"GET /hea")
        assert server.get("/health")[0] == 200
        assert server.stats()["connections"] <= 1024
    finally:
        for sock in idle:
            sock.close()


def test_a_slow_reader_is_not_buffered_without_bound(start):
    server = start("-c", "40000", debug=False)
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20000, "stream": True,
            "ignore_eos": True, "stream_options": {"include_usage": True}}
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.settimeout(60)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(post(json.dumps(body)))
        seen, deadline = -1, time.monotonic() + 60
        while (now := server.stats()["generated_tokens"]) != seen or not seen:
            assert time.monotonic() < deadline
            seen = now
            time.sleep(0.5)
        status, _, text = Reader(sock).answer()
        assert status == 200 and text.endswith(b"data: [DONE]\n\n")
        usage = json.loads(text.split(b"\n\n")[-3][6:])["usage"]
        assert usage["completion_tokens"] > seen, "the answer was not throttled"
    assert server.wait_idle()["generated_tokens"] == usage["completion_tokens"]
