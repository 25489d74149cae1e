"""An idle server does nothing: no timer ticks, no thread spins.

Reads the kernel's counters of processor time and of context switches, a few seconds apart: neither may change. Work
left over from a request may fall into the first interval, so the test tries several times; a timer that ticks or a
thread that spins fails them all."""
import os
import time

import pytest

SECONDS = 3
TRIES = 10
REQUEST = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 30, "ignore_eos": True}


def processor_ticks(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def switches(pid):
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status") as status:
            total += sum(int(line.split()[1]) for line in status if "ctxt_switches" in line)
    return total


def check_idle(server):
    pid = server.process.pid
    counts = []
    for _ in range(TRIES + 1):
        counts.append((processor_ticks(pid), switches(pid)))
        if counts[-1:] == counts[-2:-1]:
            return
        time.sleep(SECONDS)
    pytest.fail(f"a timer ticks, or a thread spins: processor ticks and wake-ups every {SECONDS} s are {counts}")


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
@pytest.mark.parametrize("state", ["fresh", "connections", "after load"])
def test_an_idle_server_uses_no_processor(start, state):
    server = start(debug=False)
    kept = []
    if state == "connections":
        for _ in range(20):
            connection = server.connect()
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            kept.append(connection)
    if state == "after load":
        for stream in (True, False):
            for _ in range(5):
                assert server.post({**REQUEST, "stream": stream})[0] == 200
        server.wait_idle()
    check_idle(server)
    for connection in kept:
        connection.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_compute_threads_sleep_when_there_is_nothing_to_compute(real):
    assert real.post(REQUEST)[0] == 200
    real.wait_idle()
    check_idle(real)
