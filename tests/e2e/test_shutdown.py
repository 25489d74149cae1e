"""SIGINT and SIGTERM: running answers may finish, no new ones start."""
import json
import signal
import socket
import time

import pytest

from test_http import HEALTH, Reader, post

BODY = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "stream": True,
        "seed": 1}
SLOW = ("--mock-batch-cost-us", "10000")
GRACE = ("--shutdown-grace", "120")
AT_ONCE_S = 60  # much less than the grace period, and enough for a busy machine


def begin(server, **options):
    """Starts a stream and waits for its first chunk; returns the socket and a line reader."""
    sock = server.connect(timeout=60)
    sock.sendall(post(json.dumps({**BODY, **options})))
    file = sock.makefile("rb")
    while b'"role"' not in file.readline():
        pass
    return sock, file


def stop(server, number=signal.SIGTERM):
    """Sends the signal and waits until the server has seen it."""
    server.send_signal(number)
    deadline = time.monotonic() + AT_ONCE_S
    while "stopping" not in server.log():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def last_event(file):
    """Reads a stream to its end and returns the last event."""
    events = [line for line in file.read().split(b"\n") if line.startswith(b"data: ")]
    assert b"[DONE]" not in b"".join(events)
    return json.loads(events[-1][6:])


def wait_connections(server, n):
    """Waits until the server has n other connections and has read what they sent."""
    deadline = time.monotonic() + AT_ONCE_S
    while server.stats()["connections"] < n + 1:
        assert time.monotonic() < deadline
    assert server.get("/health")[0] == 200


def wait_running(server, n):
    deadline = time.monotonic() + AT_ONCE_S
    while server.stats()["running"] < n:
        assert time.monotonic() < deadline


def end_status(server):
    """The exit status of a server that must end at once."""
    return server.process.wait(AT_ONCE_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_idle_server_stops_at_once(start, number):
    server = start(*GRACE)
    idle = server.connect()
    idle.sendall(HEALTH)
    assert Reader(idle).answer()[0] == 200
    server.send_signal(number)
    assert end_status(server) == 0
    assert idle.recv(1) == b""


def test_requests_that_have_only_begun_are_not_waited_for(start):
    server = start(*GRACE)
    half = server.connect()
    half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                 b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    wait_connections(server, 1)
    server.send_signal(signal.SIGTERM)
    assert Reader(half).answer()[0] == 503
    half.close()
    assert end_status(server) == 0


def test_a_stream_finishes_within_the_grace(start):
    server = start(*GRACE, *SLOW)
    sock, file = begin(server, max_tokens=60)
    server.send_signal(signal.SIGTERM)
    rest = file.read()  # to the end of the connection, long before the grace period ends
    assert b"data: [DONE]" in rest and b'"finish_reason":"length"' in rest
    assert end_status(server) == 0
    sock.close()


def test_a_stopping_server_says_so_and_begins_nothing_new(start):
    server = start(*GRACE, *SLOW)
    sock, file = begin(server, max_tokens=200)
    idle = server.connect()
    idle.sendall(HEALTH)
    assert Reader(idle).answer()[0] == 200
    stop(server)
    assert idle.recv(1) == b""
    status, headers, body = server.get("/health")
    assert (status, headers["Connection"], body) == (503, "close", b'{"status":"stopping"}')
    status, headers, body = server.post(BODY)
    error = json.loads(body)["error"]
    assert (status, error["type"], error["code"]) == (503, "unavailable_error", "server_stopping")
    assert headers["Connection"] == "close" and headers["Retry-After"]
    assert b"data: [DONE]" in file.read()
    assert end_status(server) == 0
    sock.close()


@pytest.mark.parametrize("sent", [20, -1])  # within the head, within the body
def test_a_post_that_has_begun_gets_503(start, sent):
    server = start(*GRACE, *SLOW)
    sock, _ = begin(server, max_tokens=8000)
    kept = server.connect()
    data = post("{}")
    kept.sendall(data[:sent])
    wait_connections(server, 2)
    stop(server)
    kept.sendall(data[sent:])
    status, headers, _ = Reader(kept).answer()
    assert status == 503 and headers["retry-after"]
    sock.close()
    assert end_status(server) == 0  # the hang-up ended the last answer


def test_after_the_grace_streams_end_with_an_error(start):
    server = start("--shutdown-grace", "1", *SLOW)
    sock, file = begin(server, max_tokens=8000)
    whole = server.connect(timeout=60)
    whole.sendall(post(json.dumps({**BODY, "stream": False, "max_tokens": 8000})))
    wait_running(server, 2)
    server.send_signal(signal.SIGINT)
    assert last_event(file)["error"]["code"] == "server_stopping"
    assert Reader(whole).answer()[0] == 503
    assert end_status(server) == 0
    sock.close()


def test_a_second_signal_stops_at_once(start):
    server = start(*GRACE, *SLOW)
    sock, file = begin(server, max_tokens=8000)
    stop(server, signal.SIGINT)
    assert server.get("/health")[0] == 503 and server.process.poll() is None
    server.send_signal(signal.SIGINT)
    assert last_event(file)["error"]["code"] == "server_stopping"
    assert end_status(server) == 0
    assert "answers cut off: 1" in server.log()
    sock.close()


def test_a_second_signal_does_not_wait_for_a_client_that_reads_nothing(start):
    server = start(*GRACE, "-c", "40000", debug=False)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(post(json.dumps({**BODY, "max_tokens": 30000})))
        seen, deadline = -1, time.monotonic() + 60
        while (now := server.stats()["generated_tokens"]) != seen or not seen:
            assert time.monotonic() < deadline
            seen = now
            time.sleep(0.3)
        stop(server)
        assert server.get("/health")[0] == 503
        server.send_signal(signal.SIGTERM)
        assert end_status(server) == 0
