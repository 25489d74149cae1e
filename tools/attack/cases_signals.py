"""SIGTERM in each state, once, twice, three times: seconds until the process is gone."""
import signal
import time

import wire
from cases_workers import schema_body
from measure import table
from target import Target

GRACE_S = 3
STATES = ["idle", "loading", "preparing", "prefilling", "decoding", "streaming unread"]
# Long after the grace period: a server that still runs is ended by force.
PATIENCE_S = 60
MARGIN_S = 1.0


def slow_prompt(n_words):
    return " ".join(f"root{i}" for i in range(n_words))


def enter(state, target, sockets):
    """Brings the server into a state."""
    def send(data):
        sockets.append(wire.connect(target.port, PATIENCE_S, receive_buffer=4096))
        sockets[-1].sendall(data)
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8000, "ignore_eos": True}
    if state == "preparing":
        for i in range(40):
            send(wire.request("/v1/chat/completions", schema_body(i)))
    elif state == "prefilling":
        for i in range(8):
            chat["messages"][0]["content"] = f"{i} " + slow_prompt(1500)
            send(wire.request("/v1/chat/completions", chat))
    elif state == "decoding":
        send(wire.request("/v1/chat/completions", chat))
    elif state == "streaming unread":
        send(wire.request("/v1/chat/completions", {**chat, "stream": True, "logprobs": True,
                                                   "top_logprobs": 20}))
        time.sleep(2)
    time.sleep(0.3)


def wait_loading(target):
    deadline = time.monotonic() + 10
    while "loading" not in target.log() and time.monotonic() < deadline:
        time.sleep(0.001)


def seconds_to_exit(settings, state, n_signals):
    """(seconds from the last signal to the end, exit status)."""
    sockets = []
    arguments = ["-m", settings.model, "-t", "2", "--engine", "cpu", "--shutdown-grace", GRACE_S]
    with Target(settings.radish, *arguments, wait=state != "loading") as target:
        if state == "loading":
            wait_loading(target)
        else:
            enter(state, target, sockets)
        for i in range(n_signals):
            time.sleep(0.2 if i else 0)
            target.signal(signal.SIGTERM)
        begin = time.monotonic()
        status = target.wait(PATIENCE_S)
        took = time.monotonic() - begin
        for sock in sockets:
            sock.close()
        return took, status


def holds(n_signals, took, status):
    """The first waits for the grace period and two seconds to send; the second sends for 0.2 s; the
    third does nothing more."""
    limit = (GRACE_S + 2, 0.2, 0)[n_signals - 1] + MARGIN_S
    return status is not None and took < limit


def signals(settings):
    """A table: state, and the time to exit after one, two and three signals."""
    rows, good = [], True
    for state in STATES:
        cells = []
        for n in (1, 2, 3):
            took, status = seconds_to_exit(settings, state, n)
            cells.append(f"{took:.2f} s, status {status}")
            good &= holds(n, took, status)
        rows.append([state, *cells])
    head = [f"state (grace {GRACE_S} s)", "SIGTERM", "second", "third"]
    return table([head, ["---"] * 4] + rows), good


CASES = {"signals": signals}
