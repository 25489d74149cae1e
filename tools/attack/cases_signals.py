"""Signals: SIGTERM in each state, once, twice, three times; SIGHUP under load."""
import collections
import json
import signal
import ssl
import subprocess
import tempfile
import threading
import time

import keyfile
import wire
from cases_workers import schema_body
from measure import MESSAGES, table
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


def make_certificate(folder, n):
    """A new certificate in the same files; returns its serial number."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "1", "-subj", "/CN=localhost", "-set_serial", str(n), "-keyout",
                    f"{folder}/key.new", "-out", f"{folder}/cert.new"], check=True, capture_output=True)
    for name in ("key", "cert"):  # as certbot does it: a whole file takes the name
        subprocess.run(["mv", f"{folder}/{name}.new", f"{folder}/{name}"], check=True)
    return n


def served_serial(port):
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    text = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=pem.encode(), check=True,
                          capture_output=True).stdout.decode()
    return int(text.split("=")[1], 16)


def reload(settings):
    """SIGHUP twice a second with new keys and a new certificate, while 16 clients stream over TLS."""
    found, stopping = collections.Counter(), threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        def write_keys(n):
            with open(f"{folder}/keys", "w") as file:
                file.write(keyfile.text([keyfile.Key("key-of-all", "all"),
                                         keyfile.Key(f"key-{n}", "changing")]))

        def ask(target):
            body = {"messages": MESSAGES, "stream": True, "max_tokens": 40, "ignore_eos": True}
            while not stopping.is_set():
                try:
                    answer = target.ask("POST", "/v1/chat/completions", body,
                                        keyfile.bearer("key-of-all"))
                    whole = b'"finish_reason":"length"' in answer.body and b"[DONE]" in answer.body
                    found["whole" if whole else f"status {answer.status}, cut off"] += 1
                except OSError as e:
                    found[str(e)] += 1

        write_keys(0)
        make_certificate(folder, 1)
        with settings.serve("--api-key-file", f"{folder}/keys", "--tls-cert", f"{folder}/cert",
                            "--tls-key", f"{folder}/key", engine="mock") as target:
            target.tls = ssl._create_unverified_context()
            threads = [threading.Thread(target=ask, args=(target,)) for _ in range(16)]
            for t in threads:
                t.start()
            served, end, n = [], time.monotonic() + max(settings.seconds, 10), 1
            while time.monotonic() < end:
                n += 1
                write_keys(n)
                make_certificate(folder, n)
                target.signal(signal.SIGHUP)
                time.sleep(0.4)
                statuses = [target.ask("GET", "/v1/models", headers=keyfile.bearer(f"key-{k}")).status
                            for k in (n - 1, n)]
                served.append(served_serial(target.port) == n and statuses == [401, 200])
            stopping.set()
            for t in threads:
                t.join()
    good = all(served) and set(found) == {"whole"}
    return f"{len(served)} reloads, {sum(served)} in effect; streams {json.dumps(found)}", good


CASES = {"signals": signals, "reload": reload}
