"""Clients that hang up: their work stops at once, and nobody else notices."""
import asyncio
import json
import socket
import struct
import threading
import time

import kill_clients
import pytest

STOP_WITHIN_S = 0.2
LONG = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3000, "ignore_eos": True}


def request(**options):
    data = json.dumps({**LONG, **options}).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data)) + data


def wait_running(server, n=1):
    deadline = time.monotonic() + 20
    while server.stats()["running"] < n:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def close_gently(sock):
    sock.close()


def close_with_reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def close_half(sock):
    sock.shutdown(socket.SHUT_WR)


def stop_time(server, how, data, extra=b""):
    """Seconds from the hang-up until nothing runs."""
    server.wait_idle()
    sock = server.connect()
    sock.sendall(data)
    wait_running(server)
    if extra:
        sock.sendall(extra)
        time.sleep(0.1)
    began = time.monotonic()
    how(sock)
    while server.stats()["running"]:
        assert time.monotonic() - began < 10, "the work goes on"
    elapsed = time.monotonic() - began
    sock.close()
    return elapsed


@pytest.mark.parametrize("how", [close_gently, close_with_reset, close_half])
@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_stops_the_work(slow, how, stream):
    best = min(stop_time(slow, how, request(stream=stream)) for _ in range(3))
    assert best < STOP_WITHIN_S


def test_a_hang_up_is_seen_behind_pipelined_bytes(slow):
    extra = b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 70000
    best = min(stop_time(slow, close_gently, request(stream=False), extra) for _ in range(3))
    assert best < STOP_WITHIN_S


def test_a_hang_up_of_several_choices(slow):
    assert min(stop_time(slow, close_gently, request(n=4)) for _ in range(3)) < STOP_WITHIN_S
    assert slow.wait_idle()["pages_private"] == 0


def test_what_was_computed_stays_cached(slow):
    messages = [{"role": "user", "content": "A prompt of its own for this test " * 5}]
    with slow.connect() as sock:
        sock.sendall(request(messages=messages, stream=True))
        text = b""
        while text.count(b'"content"') < 3:  # the role, and some of the answer
            text += sock.recv(10000)
    slow.wait_idle()
    usage = json.loads(slow.post({"messages": messages, "max_tokens": 1})[2])["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_a_hang_up_while_waiting(start):
    server = start("--max-seqs", "1", "--mock-batch-cost-us", "5000")
    first = server.connect()
    first.sendall(request(stream=True))
    wait_running(server)
    second = server.connect()
    second.sendall(request(stream=True))
    deadline = time.monotonic() + 10
    while server.stats()["waiting"] == 0:
        assert time.monotonic() < deadline
    close_gently(second)
    while server.stats()["waiting"]:
        assert time.monotonic() < deadline
    assert server.stats()["running"] == 1
    close_gently(first)
    server.wait_idle()


def test_hang_ups_before_the_answer_begins(slow):
    large = {"messages": [{"role": "user", "content": "x" * 3000}]}
    for i in range(40):
        sock = slow.connect()
        data = request(**large) if i % 2 else request()
        sock.sendall(data if i % 3 else data[:-1])
        time.sleep(0.002 * (i % 4))
        (close_with_reset if i % 5 else close_gently)(sock)
    stats = slow.wait_idle()
    assert stats["pages_private"] == 0
    assert slow.get("/health")[0] == 200


def test_a_stream_reads_on_while_another_hangs_up(slow):
    results = []

    def read():
        body = {**LONG, "max_tokens": 60, "seed": 5, "stream": True}
        results.append(slow.post(body)[2])

    threads = [threading.Thread(target=read) for _ in range(2)]
    threads[0].start()
    sock = slow.connect()
    sock.sendall(request(stream=True))
    time.sleep(0.1)
    close_with_reset(sock)
    threads[0].join()
    threads[1].start()
    threads[1].join()

    def texts(answer):
        return [json.loads(event[6:])["choices"] for event in answer.decode().split("\n\n")
                if event.startswith("data: {")]

    assert texts(results[0]) == texts(results[1])


def test_two_hundred_of_four_hundred_clients_are_killed(start):
    server = start("--max-waiting", "1000", "--mock-batch-cost-us", "500")
    wrong = asyncio.run(kill_clients.run(server.url, 400, 200, max_tokens=24))
    assert not wrong, "\n".join(wrong[:20])


def test_killed_clients_of_the_real_model(real):
    wrong = asyncio.run(kill_clients.run(real.url, 24, 12, max_tokens=12))
    assert not wrong, "\n".join(wrong[:20])
