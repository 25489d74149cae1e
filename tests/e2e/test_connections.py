"""Clients that take connections, time and memory: others do not notice, and each gets its answer.

Addresses such as 127.0.0.2 stand for other machines: only 127.0.0.1 is near.
"""
import http.client
import json
import re
import resource
import socket
import struct
import time

import pytest

from test_http import Reader

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(autouse=True, scope="module")
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(server, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", server.port), timeout=30,
                                    source_address=(source, 0))


def health(server, source="127.0.0.1"):
    """Seconds that a new connection's /health takes; fails if it is not answered."""
    began = time.monotonic()
    with connect(server, source) as sock:
        sock.sendall(HEALTH)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
    return time.monotonic() - began


def anonymous_mib(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return int(re.search(r"RssAnon:\s+(\d+) kB", status.read()).group(1)) / 1024


def is_open(sock):
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def post(path, body):
    return (b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % (path.encode(), len(body))) + body


# ---- slots ------------------------------------------------------------------------------------

@pytest.mark.parametrize("sources", [["127.0.0.2"], ["127.0.0.1"],
                                     [f"127.0.1.{i}" for i in range(1, 200)]],
                         ids=["one address", "this machine", "many addresses"])
def test_slow_headers_do_not_lock_others_out(start, sources):
    server = start(debug=False)
    slow = []
    for i in range(1100):
        sock = connect(server, sources[i % len(sources)])
        sock.sendall(b"GET / HTTP/1.1\r\n")
        slow.append(sock)
    # Nearby, from elsewhere, and from where the slow ones come.
    times = [health(server, source) for source in ("127.0.0.1", "127.0.0.3", sources[0]) * 33]
    assert len(times) == 99 and max(times) < 1
    connections = server.stats()["connections"]
    assert connections <= (260 if sources == ["127.0.0.2"] else 1024)
    for sock in slow:
        sock.close()


def test_an_address_has_its_share(start):
    server = start("--max-connections", "64", "--max-connections-per-address", "4",
                   "--mock-batch-cost-us", "20000")
    body = json.dumps({"prompt": "a", "max_tokens": 1000, "stream": True}).encode()
    busy = []
    for _ in range(4):
        sock = connect(server, "127.0.0.2")
        sock.sendall(post("/v1/completions", body))
        assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
        busy.append(sock)
    with connect(server, "127.0.0.2") as fifth:  # a running answer makes no room
        assert fifth.recv(4096).startswith(b"HTTP/1.1 503 ")
    assert "its address has 4 already (--max-connections-per-address)" in server.log()
    health(server, "127.0.0.3")
    for _ in range(8):
        health(server)
    for sock in busy:
        assert is_open(sock)
        sock.close()


def test_a_full_server_keeps_slots_for_this_machine(start):
    server = start("--max-connections", "32", "--max-connections-per-address", "0",
                   "--mock-batch-cost-us", "20000")
    body = json.dumps({"prompt": "a", "max_tokens": 1000, "stream": True}).encode()
    busy = []
    for i in range(30):  # of 32 slots, 2 are kept
        sock = connect(server, f"127.0.2.{i + 1}")
        sock.sendall(post("/v1/completions", body))
        assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
        busy.append(sock)
    with connect(server, "127.0.0.9") as far:
        assert far.recv(4096).startswith(b"HTTP/1.1 503 ")
    assert "too many are open" in server.log()
    health(server)
    for sock in busy:
        assert is_open(sock)
        sock.close()


def test_a_thousand_idle_connections(start):
    server = start(debug=False)
    before = anonymous_mib(server)
    idle = [connect(server) for _ in range(1000)]
    for sock in idle:
        sock.sendall(HEALTH)
        assert Reader(sock).answer()[0] == 200
    assert max(health(server) for _ in range(50)) < 1
    assert server.stats()["connections"] >= 1000
    assert anonymous_mib(server) - before < 20
    for sock in idle:
        assert is_open(sock)
        sock.close()


def test_deadlines_are_settable(start):
    server = start("--header-timeout", "1", "--body-timeout", "1", "--idle-timeout", "1")
    late_head, late_body, idle = (connect(server) for _ in range(3))
    late_head.sendall(b"GET / HT")
    late_body.sendall(post("/tokenize", b"x" * 100)[:-50])
    idle.sendall(HEALTH)
    began = time.monotonic()
    assert Reader(late_head).answer()[0] == 408
    assert Reader(late_body).answer()[0] == 408
    reader = Reader(idle)
    assert reader.answer()[0] == 200 and reader.answer() is None
    assert 0.9 < time.monotonic() - began < 20


def test_a_slow_writer_is_waited_for(start):
    """A body that goes on growing may take longer than the time-out."""
    server = start("--body-timeout", "1")
    body = json.dumps({"content": "a" * 60_000}).encode()
    with connect(server) as sock:
        request = post("/tokenize", body)
        for at in range(0, len(request), 4000):
            sock.sendall(request[at:at + 4000])
            time.sleep(0.1)  # 40 kB a second, 1.5 s in all
        status, _, answer = Reader(sock).answer()
    assert status == 200 and len(json.loads(answer)["tokens"]) == 60_000


# ---- memory -----------------------------------------------------------------------------------

def test_answers_that_nobody_reads_are_bounded(start):
    server = start("--max-unsent-mib", "16", debug=False)
    body = json.dumps({"content": "a" * 200_000, "with_pieces": True}).encode()
    quick = connect(server)
    greedy = []
    for i in range(12):  # 6 MB each
        sock = connect(server, f"127.0.3.{i + 1}")
        sock.sendall(post("/tokenize", body))
        greedy.append(sock)
        quick.sendall(post("/tokenize", body))  # one who reads is never hung up on
        status, _, answer = Reader(quick).answer()
        assert status == 200 and len(json.loads(answer)["tokens"]) == 200_000
        assert max(health(server) for _ in range(3)) < 1
    assert "which reads too slowly: more than 16 MiB" in server.log()
    assert "127.0.0.1, which reads" not in server.log()
    assert anonymous_mib(server) < 60
    for sock in (*greedy, quick):
        sock.close()


def test_memory_goes_back_after_a_large_request(start):
    server = start(debug=False)
    health(server)
    before = anonymous_mib(server)
    bodies = [json.dumps({"content": ["a"] * 1_000_000}),
              json.dumps({"content": "a" * 30_000_000}),
              json.dumps({"tokens": [1] * 5_000_000})]
    for path, body in zip(("/tokenize", "/tokenize", "/detokenize"), bodies):
        server.get(path, {"Content-Type": "application/json"}, "POST", body)
    deadline = time.monotonic() + 20
    while anonymous_mib(server) > before + 8 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert anonymous_mib(server) <= before + 8


def test_a_body_of_100_mb_is_refused_or_read(start):
    body = json.dumps({"content": "a" * 100_000_000}).encode()
    for options, want in (((), 413), (("--max-body-mib", "128"), 413)):
        server = start(*options, debug=False)
        with connect(server) as sock:
            sock.sendall(post("/tokenize", b"")[:-4].replace(b": 0", b": %d" % len(body)) + b"\r\n\r\n")
            for at in range(0, len(body), 1 << 20):
                try:
                    sock.sendall(body[at:at + (1 << 20)])
                except ConnectionError:
                    break
                if at % (10 << 20) == 0:
                    assert health(server) < 1
            try:
                assert Reader(sock).answer()[0] == want
            except ConnectionError:
                assert not options  # refused by its length, while it was being sent
        assert health(server) < 1


def test_a_chunked_text_has_the_limit_of_its_route(mock):
    with connect(mock) as sock:
        sock.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n1000000\r\n")
        status, _, answer = Reader(sock).answer()
    assert status == 413 and b"larger than this server accepts here: 6356992 bytes" in answer


def test_bytes_pushed_during_an_answer_wait_outside(start):
    server = start("--mock-batch-cost-us", "5000", debug=False)
    before = anonymous_mib(server)
    with connect(server) as sock:
        sock.sendall(post("/v1/completions", json.dumps(
            {"prompt": "a", "max_tokens": 200, "stream": True}).encode()))
        sock.setblocking(False)
        got, n_pushed, end = b"", 0, time.monotonic() + 60
        while b"data: [DONE]" not in got and time.monotonic() < end:
            try:
                n_pushed += sock.send(b"\r\n" * 32768)
            except BlockingIOError:
                time.sleep(0.01)
            except ConnectionError:
                break  # answered, and what came behind is no request
            try:
                got += sock.recv(65536)
            except BlockingIOError:
                pass
        assert b"data: [DONE]" in got
        assert n_pushed < 32 << 20  # what the kernel's buffers hold
    assert anonymous_mib(server) - before < 8


def test_a_reset_is_seen_while_nothing_is_read(start):
    """With enough pipelined bytes the server stops reading; a reset must still end the work, and must
    not keep the event loop busy."""
    server = start("--mock-batch-cost-us", "20000", debug=False)
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2000,
                       "ignore_eos": True}).encode()
    sock = connect(server)
    sock.sendall(post("/v1/chat/completions", body) + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)
    deadline = time.monotonic() + 20
    while json.loads(server.get("/stats")[2])["running"] == 0:
        assert time.monotonic() < deadline
    time.sleep(0.2)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    deadline = time.monotonic() + 5
    while json.loads(server.get("/stats")[2])["running"] != 0:
        assert time.monotonic() < deadline, "the reset was not noticed"
        time.sleep(0.02)


def test_pipelined_requests_take_turns(start):
    """A client with thousands of requests at once does not keep others waiting."""
    server = start(debug=False)
    greedy = connect(server)
    greedy.setblocking(False)
    block, rest, times = HEALTH * 2000, b"", []
    end = time.monotonic() + 1
    while time.monotonic() < end:
        try:
            rest = rest or block
            rest = rest[greedy.send(rest):]
            greedy.recv(1 << 20)
        except BlockingIOError:
            pass
        times.append(health(server))
    assert len(times) > 5 and max(times) < 0.5
    greedy.close()


# ---- what is allowed once ---------------------------------------------------------------------

@pytest.mark.parametrize("extra", [b"Host: localhost\r\n",
                                   b"Origin: http://localhost\r\nOrigin: http://localhost\r\n",
                                   b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"])
def test_fields_that_must_not_be_repeated(mock, extra):
    with mock.connect() as sock:
        sock.sendall(HEALTH[:-2] + extra + b"\r\n")
        assert Reader(sock).answer()[0] == 400


def test_a_nul_in_the_path(mock):
    status, _, body = mock.get("/health%00")
    assert status == 400 and b"NUL" in body


def test_head_and_options_of_every_route(mock):
    paths = ["/health", "/v1/models", "/props", "/slots", "/stats", "/v1/cache", "/api/tags", "/",
             "/v1/chat/completions", "/tokenize", "/api/chat"]
    for path in paths:
        connection = http.client.HTTPConnection("127.0.0.1", mock.port, timeout=30)
        connection.request("OPTIONS", path)
        answer = connection.getresponse()
        answer.read()
        allowed = answer.headers["allow"].split(", ")
        assert answer.status == 200 and "OPTIONS" in allowed
        connection.request("HEAD", path)  # on the same connection: no body is left over
        answer = connection.getresponse()
        assert answer.read() == b"" and int(answer.headers["content-length"]) > 0
        assert answer.status == (200 if "GET" in allowed else 405)
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status":"ok"}'
        connection.close()
