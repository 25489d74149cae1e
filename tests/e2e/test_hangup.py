"""Clients that hang up: their work stops at once, and nobody else notices.

"At once" is not measured in time, which a busy machine would stretch. Once the server has answered a request that was
sent after the hang-up, it has seen the hang-up too; from then on only a few more tokens may be generated."""
import asyncio
import json
import socket
import struct
import threading
import time

import kill_clients
import pytest

LATE_TOKENS = 5  # per choice: the running step, and tokens that the statistics have not counted yet
DEADLINE_S = 60  # for what should happen at once
LONG = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8000, "ignore_eos": True}


def request(**options):
    data = json.dumps({**LONG, **options}).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data)) + data


def wait_for(server, name, least):
    """Waits until this statistic is at least `least`."""
    deadline = time.monotonic() + DEADLINE_S
    while (stats := server.stats())[name] < least:
        assert time.monotonic() < deadline, f"{name} is less than {least}: {stats}"
        time.sleep(0.005)
    return stats


def close_gently(sock):
    sock.close()


def close_with_reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def close_half(sock):
    sock.shutdown(socket.SHUT_WR)


def check_stop(server, how, data, extra=b"", n=1):
    """The hang-up cancels all n choices of a request that would otherwise run for thousands of tokens."""
    before = server.wait_idle(DEADLINE_S)
    sock = server.connect()
    sock.sendall(data)
    running = wait_for(server, "running", n)
    if extra:
        sock.sendall(extra)  # the server reads it while it generates
        wait_for(server, "generated_tokens", running["generated_tokens"] + 10)
    how(sock)
    seen = server.stats()
    after = server.wait_idle(DEADLINE_S)
    sock.close()
    assert after["canceled"] == before["canceled"] + n and after["finished"] == before["finished"]
    assert after["generated_tokens"] - seen["generated_tokens"] <= n * LATE_TOKENS
    assert after["pages_private"] == 0


@pytest.mark.parametrize("how", [close_gently, close_with_reset, close_half])
@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_stops_the_work(slow, how, stream):
    check_stop(slow, how, request(stream=stream))


def test_a_hang_up_is_seen_behind_pipelined_bytes(slow):
    extra = b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 70000
    check_stop(slow, close_gently, request(stream=False), extra)


def test_a_hang_up_of_several_choices(slow):
    check_stop(slow, close_gently, request(n=4), n=4)


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
    wait_for(server, "running", 1)
    second = server.connect()
    second.sendall(request(stream=True))
    wait_for(server, "waiting", 1)
    close_gently(second)
    stats = wait_for(server, "canceled", 1)
    assert (stats["waiting"], stats["running"], stats["finished"]) == (0, 1, 0)
    close_gently(first)
    assert server.wait_idle(DEADLINE_S)["canceled"] == 2


def test_hang_ups_before_the_answer_begins(slow):
    large = {"messages": [{"role": "user", "content": "x" * 3000}]}
    for i in range(40):
        sock = slow.connect()
        data = request(**large) if i % 2 else request()
        sock.sendall(data if i % 3 else data[:-1])
        for _ in range(i % 4):  # round trips: the server gets a little further each time
            assert slow.get("/health")[0] == 200
        (close_with_reset if i % 5 else close_gently)(sock)
    stats = slow.wait_idle(DEADLINE_S)
    assert stats["pages_private"] == 0
    assert slow.get("/health")[0] == 200


def test_a_stream_reads_on_while_another_hangs_up(slow):
    body = {**LONG, "max_tokens": 60, "seed": 5, "stream": True}

    def texts(answer):
        return [json.loads(event[6:])["choices"] for event in answer.decode().split("\n\n")
                if event.startswith("data: {")]

    def read_beside_a_hang_up():
        """The stream's events, and whether it was running both before and after the hang-up."""
        answers = []
        sock = slow.connect()
        sock.sendall(request(stream=True))
        before = wait_for(slow, "running", 1)
        thread = threading.Thread(target=lambda: answers.append(slow.post(body)[2]))
        thread.start()
        wait_for(slow, "generated_tokens", before["generated_tokens"] + 20)
        ran = slow.stats()["running"] == 2
        close_with_reset(sock)
        after = wait_for(slow, "canceled", before["canceled"] + 1)
        thread.join()
        return texts(answers[0]), ran and after["running"] == 1

    alone = texts(slow.post(body)[2])
    for _ in range(20):  # on a busy machine the stream may end first
        events, was_beside = read_beside_a_hang_up()
        assert events == alone
        if was_beside:
            return
    pytest.fail("the stream never ran while the other hung up")


def test_two_hundred_of_four_hundred_clients_are_killed(start):
    server = start("--max-waiting", "1000", "--mock-batch-cost-us", "500")
    wrong = asyncio.run(kill_clients.run(server.url, 400, 200, max_tokens=24))
    assert not wrong, "\n".join(wrong[:20])


def test_killed_clients_of_the_real_model(real):
    wrong = asyncio.run(kill_clients.run(real.url, 24, 12, max_tokens=12))
    assert not wrong, "\n".join(wrong[:20])


def test_a_stream_that_nobody_reads_does_not_stall_others(start):
    server = start("-c", "8192", debug=False)
    data = json.dumps({"prompt": "abc", "n": 16, "n_predict": 8000, "stream": True, "n_probs": 20,
                       "ignore_eos": True}).encode()
    with server.connect() as sock:
        sock.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(data) + data)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            began = time.monotonic()
            server.get("/health")
            assert time.monotonic() - began < 2
            time.sleep(0.05)
