"""SIGINT and SIGTERM: what is being answered may finish, nothing new begins."""
import json
import signal
import time

import pytest

from test_http import HEALTH, Reader

BODY = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True, "stream": True,
        "seed": 1}
SLOW = ("--mock-batch-cost-us", "10000")


def begin(server, **options):
    """A stream whose first chunk has come: the socket and a reader of its lines."""
    sock = server.connect(timeout=60)
    data = json.dumps({**BODY, **options}).encode()
    sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                 b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    file = sock.makefile("rb")
    while b'"role"' not in file.readline():
        pass
    return sock, file


def wait_end(server, timeout):
    began = time.monotonic()
    status = server.process.wait(timeout)
    return status, time.monotonic() - began


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_idle_server_stops_at_once(start, number):
    server = start()
    idle = server.connect()
    idle.sendall(HEALTH)
    assert Reader(idle).answer()[0] == 200
    server.send_signal(number)
    status, elapsed = wait_end(server, 30)
    assert status == 0
    assert elapsed < 5
    assert idle.recv(1) == b""


def test_a_stream_finishes_within_the_grace(start):
    server = start(*SLOW)
    sock, file = begin(server, max_tokens=60)
    server.send_signal(signal.SIGTERM)
    rest = file.read()
    assert b"data: [DONE]" in rest and b'"finish_reason":"length"' in rest
    assert wait_end(server, 30)[0] == 0
    sock.close()


def test_nothing_new_begins(start):
    server = start(*SLOW)
    sock, file = begin(server, max_tokens=150)
    kept = server.connect()
    kept.sendall(b"GET /heal")  # a request that has begun is answered
    time.sleep(0.1)
    server.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 5
    while "stopping" not in server.log():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kept.sendall(HEALTH[len(b"GET /heal"):])
    status, headers, body = Reader(kept).answer()
    assert (status, headers["connection"]) == (503, "close")
    assert b"stopping" in body
    with pytest.raises(OSError):
        server.connect(timeout=2).close()
    assert b"data: [DONE]" in file.read()
    assert wait_end(server, 30)[0] == 0
    sock.close()


def test_a_post_on_a_kept_connection_gets_503(start):
    server = start(*SLOW)
    sock, _ = begin(server, max_tokens=200)
    kept = server.connect()
    head = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    kept.sendall(head[:20])
    time.sleep(0.1)
    server.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    kept.sendall(head[20:])
    status, headers, _ = Reader(kept).answer()
    assert status == 503 and headers["retry-after"]
    sock.close()
    assert wait_end(server, 30)[0] == 0


def test_after_the_grace_streams_end_with_an_error(start):
    server = start("--shutdown-grace", "1", *SLOW)
    sock, file = begin(server, max_tokens=3000)
    whole = server.connect(timeout=60)
    data = json.dumps({**BODY, "stream": False, "max_tokens": 3000}).encode()
    whole.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                  b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    time.sleep(0.2)
    server.send_signal(signal.SIGINT)
    events = [line for line in file.read().split(b"\n") if line.startswith(b"data: ")]
    error = json.loads(events[-1][6:])["error"]
    assert error["code"] == "server_stopping" and b"[DONE]" not in b"".join(events)
    assert Reader(whole).answer()[0] == 503
    status, elapsed = wait_end(server, 30)
    assert status == 0 and elapsed < 10
    sock.close()


def test_a_second_signal_stops_at_once(start):
    server = start("--shutdown-grace", "60", *SLOW)
    sock, file = begin(server, max_tokens=3000)
    server.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert server.process.poll() is None
    server.send_signal(signal.SIGINT)
    status, elapsed = wait_end(server, 30)
    assert status == 0 and elapsed < 5
    sock.close()
