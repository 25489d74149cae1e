#!/usr/bin/env python3
"""Fuzzes running servers over sockets and checks every answer.

    fuzz_server.py --radish build/radish-debug --seconds 60 --seed 1
    fuzz_server.py --radish build/radish-debug --replay build/fuzz-7.json

Starts three servers on the mock engine: without keys, with keys, and with TLS. Many clients send what
fuzz_inputs.py makes of the seed. All the while:
  - the servers live, and no sanitizer reports anything;
  - every complete answer is well-formed HTTP; valid requests have exactly one answer each, with the
    status that the request has when it is alone; damaged ones never have 500, nor more answers than
    requests; after `Connection: close` nothing follows;
  - another client is answered within seconds.
Every 20 seconds all clients rest: then no connection and no request may be left, all pages must be free
or cached, nothing is computed, and memory must not grow. At the end the servers must exit with 0 on SIGTERM. What failed is
written to a file that --replay sends again. Exits 1 if anything is wrong.
"""
import argparse
import collections
import http.client
import json
import pathlib
import re
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time

import fuzz_inputs
import wire
from fuzz_inputs import ADMIN_KEY, USER_KEY
from target import Target

ALLOWED = {200, 400, 401, 403, 404, 405, 408, 413, 414, 415, 417, 429, 431, 501, 503, 505}
BUSY = {429, 503}
ANSWER_TIMEOUT_S = 60       # longer is stuck
CONTROL_TIMEOUT_S = 10      # for a client that asks normally, with sanitizers, on a busy machine
REST_EVERY_S = 20
HEAD_TIMEOUT_S = 3          # of the servers
LATE_S = 2                  # a script that takes longer to send may get 408
IDLE_S = 0.5
GROWTH_BYTES = 48 << 20     # between the second rest and the last
REPORT = re.compile("Sanitizer|runtime error|Assertion")
OPTIONS = ["--engine", "mock", "-c", "512", "--cache-size", "6000t", "--max-tokens", "32", "--max-seqs", "8",
           "--mock-batch-cost-us", "100", "--max-body-mib", "1", "--max-unsent-mib", "8", "--max-connections",
           "512", "--header-timeout", HEAD_TIMEOUT_S, "--body-timeout", "3", "--idle-timeout", "1",
           "--write-timeout", "5", "--max-waiting", "64"]
# Without the quarantine, freed memory would look like a leak.
ENVIRONMENT = {"ASAN_OPTIONS": "quarantine_size_mb=4:detect_leaks=1"}


class Finding(Exception):
    """The server did something wrong on one connection."""


# ---- one connection -----------------------------------------------------------------------------

def connect(server, script):
    sock = wire.connect(server.port, ANSWER_TIMEOUT_S, f"127.0.0.{2 + script['n'] % 200}")
    if server.tls and not script["plain"]:
        return server.tls.wrap_socket(sock)
    return sock


def send(sock, script):
    """Does what the script says. False: the connection is over."""
    for step in script["steps"]:
        try:
            if step[0] == "send":
                sock.sendall(step[1])
            elif step[0] == "wait":
                time.sleep(step[1])
            elif step[0] == "some":
                sock.recv(step[1])
            elif isinstance(sock, ssl.SSLSocket):
                sock.unwrap()
                return False
            else:
                sock.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            pass  # refused and closed before everything was sent: there may be an answer to read
        except OSError as e:
            if isinstance(e, TimeoutError):
                raise Finding("the server neither reads nor answers") from e
    return True


def check_body(status, fields, body):
    kind = fields.get(b"content-type", b"")
    if kind.startswith(b"application/json"):
        value = json.loads(body)
        if status >= 400 and "error" not in value:
            raise Finding(f"status {status} without an error: {body[:200]!r}")
    elif kind.startswith(b"text/event-stream"):
        for event in body.split(b"\n\n"):
            if event.startswith(b"data: ") and event != b"data: [DONE]":
                json.loads(event[6:])
    elif kind.startswith(b"application/x-ndjson"):
        for line in body.splitlines():
            json.loads(line)


def read_answers(sock, script):
    """The status of each answer. Reads until the connection ends, or all answers are there."""
    reader, found = wire.Reader(sock), []
    while len(found) != script["count"]:
        try:
            status, fields, body = reader.answer()
        except EOFError:
            if reader.data:
                raise Finding(f"the connection ended within an answer: {reader.data[-200:]!r}") from None
            return found
        except TimeoutError:
            raise Finding(f"no answer and no end for {ANSWER_TIMEOUT_S} s, after {found}") from None
        check_body(status, fields, body)
        found.append(status)
        if fields.get(b"connection") == b"close":
            reader.to_end()
            if reader.data:
                raise Finding(f"bytes after Connection: close: {reader.data[:200]!r}")
            return found
    return found


def check_answers(script, expected, found, took):
    wrong = [s for s in found if s not in ALLOWED]
    if wrong:
        raise Finding(f"status {wrong[0]}")
    if len(found) > script["most"]:
        raise Finding(f"{len(found)} answers to at most {script['most']} requests: {found}")
    if script["end"] != "read" or script["plain"]:
        return
    late = took > LATE_S
    if not found and any(step[0] == "send" and step[1].strip(b"\r\n") for step in script["steps"]) and \
            ["half_close"] not in script["steps"]:
        raise Finding("no answer at all")
    if script["kind"] == "exact" and script["count"]:
        good = [s in BUSY or s == expected[t] or (late and s == 408) for s, t in zip(found, script["names"])]
        if not all(good) or (len(found) != script["count"] and not late):
            raise Finding(f"answers {found} to {script['names']}, which has "
                          f"{[expected[t] for t in script['names']]}")
    if script["kind"] == "body" and script["count"] and len(found) != script["count"] and not late:
        raise Finding(f"{len(found)} answers to {script['count']} requests: {found}")


def run_script(server, script, expected):
    """Plays one script; returns the statuses."""
    begin = time.monotonic()
    try:
        with connect(server, script) as sock:
            goes_on = send(sock, script)
            took = time.monotonic() - begin
            found = []
            if goes_on and script["end"] == "read" and not is_garbage(script):
                found = read_answers(sock, script)
            elif script["end"] == "reset":
                wire.reset(sock)
        check_answers(script, expected, found, took)
        return found
    except ssl.SSLError as e:
        if server.tls and not script["plain"] and script["kind"] == "exact" and script["end"] == "read":
            raise Finding(f"TLS: {e}") from e
        return []
    except (wire.Malformed, ValueError) as e:
        raise Finding(f"{type(e).__name__}: {e}") from e


def is_garbage(script):
    """What looks like TLS has no answer that could be read."""
    first = next((s[1] for s in script["steps"] if s[0] == "send"), b"")
    return script["plain"] and first[:1] == b"\x16"


# ---- the servers --------------------------------------------------------------------------------

class Servers:
    """The servers by name, and what is checked about each."""

    def __init__(self, binary):
        self.folder = tempfile.TemporaryDirectory(prefix="radish-fuzz-")
        files = wire.make_certificate(self.folder.name)
        options = {"open": [], "keyed": ["--api-key", f"ant:{USER_KEY}", "--admin-key", ADMIN_KEY]}
        if files:
            options["secure"] = ["--tls-cert", files[0], "--tls-key", files[1]]
        else:
            print("fuzz: without TLS, because openssl is not installed")
        self.by_name = {name: Target(binary, *OPTIONS, *more, environment=ENVIRONMENT)
                        for name, more in options.items()}
        if files:
            self.by_name["secure"].tls = wire.any_certificate()
        self.headers = {"keyed": {"Authorization": f"Bearer {ADMIN_KEY}"}}
        self.sizes = collections.defaultdict(list)
        self.read_to = collections.Counter()  # in the logs, which have a line for each request

    def reports(self, name):
        """What a sanitizer has said, or None. Reads only what is new in the log."""
        with open(self.by_name[name].log_file.name, errors="replace") as log:
            log.seek(self.read_to[name])
            text = log.read()
            found = REPORT.search(text)
            if not found:
                self.read_to[name] = log.tell()
            return text[max(0, found.start() - 500):][:6000] if found else None

    def ask(self, name, *args):
        return self.by_name[name].ask(*args, headers=self.headers.get(name), timeout=CONTROL_TIMEOUT_S)

    def expected(self, corpus):
        """The status of each request when it is alone."""
        return {r.name: self.ask("open", r.method, r.target, r.body).status
                for r in corpus.requests}

    def control(self):
        """Is another client served? Returns what is wrong, and the longest time that one took."""
        wrong, longest = [], 0
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        for name, target in self.by_name.items():
            begin = time.monotonic()
            try:
                for want, args in ((200, ("GET", "/health")), (BUSY | {200}, ("POST", "/v1/chat/completions", body))):
                    status = self.ask(name, *args).status
                    if status != want and status not in (want if isinstance(want, set) else ()):
                        wrong.append(f"{name}: {args[1]} is answered with {status}")
            except (OSError, http.client.HTTPException) as e:
                wrong.append(f"{name}: not answered within {CONTROL_TIMEOUT_S} s: {e!r}")
            longest = max(longest, time.monotonic() - begin)
            report = self.reports(name)
            if report or not target.is_alive():
                wrong.append(f"{name}: the server ended, or a sanitizer reports:\n{report or target.log()[-3000:]}")
        return wrong, longest

    def rest(self):
        """Nobody is connected: is anything left?"""
        wrong = []
        for name, target in self.by_name.items():
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                stats = json.loads(self.ask(name, "GET", "/stats").body)
                left = {k: stats[k] for k in ("running", "waiting", "completions", "pages_private")}
                left["connections"] = stats["connections"] - 1
                if not any(left.values()):
                    break
                time.sleep(0.05)
            else:
                wrong.append(f"{name}: left after all clients went: {left}")
            if stats["pages_free"] + stats["pages_cached"] != stats["pages"] - stats["pages_private"]:
                wrong.append(f"{name}: pages do not add up: {stats}")
            self.sizes[name].append(target.anonymous())
            computed = target.cpu_seconds()
            time.sleep(IDLE_S)
            computed = target.cpu_seconds() - computed
            if computed > IDLE_S / 2:
                wrong.append(f"{name}: computes without a request: {computed:.2f} s in {IDLE_S} s")
        return wrong

    def stop(self):
        wrong = []
        for name, target in self.by_name.items():
            target.signal(signal.SIGTERM)
            status = target.wait(60)
            report = self.reports(name)
            if status != 0 or report:
                wrong.append(f"{name}: exit status {status}; {report or target.log()[-3000:]}")
            target.end()
            sizes = self.sizes[name]
            if len(sizes) > 2 and sizes[-1] > sizes[1] + GROWTH_BYTES:
                wrong.append(f"{name}: memory grows: {[s >> 20 for s in sizes]} MiB")
        return wrong


# ---- many connections ---------------------------------------------------------------------------

class Fuzz:
    def __init__(self, args):
        self.args = args
        self.corpus = fuzz_inputs.Corpus()
        self.servers = Servers(args.radish)
        self.secure = "secure" in self.servers.by_name
        self.expected = self.servers.expected(self.corpus)
        self.lock = threading.Lock()
        self.next = args.first
        self.statuses, self.kinds = collections.Counter(), collections.Counter()
        self.wrong, self.files = [], 0
        self.busy = 0
        self.recent = collections.deque(maxlen=4 * args.clients)
        self.go, self.stopping = threading.Event(), threading.Event()
        self.longest = 0

    def note(self, message, scripts):
        with self.lock:
            self.wrong.append(message)
            if len(self.wrong) > 50:
                self.stopping.set()
                return
            self.files += 1
            path = pathlib.Path(self.args.out) / f"fuzz-{self.args.seed}-{self.files}.json"
        path.write_text(json.dumps({"why": message, "scripts": fuzz_inputs.to_json(scripts)}))
        print(f"fuzz: {message}\n  replay: {sys.argv[0]} --radish {self.args.radish} --replay {path}", flush=True)

    def play(self, script):
        self.recent.append(script)
        try:
            found = run_script(self.servers.by_name[script["server"]], script, self.expected)
        except Finding as e:
            self.note(f"connection {script['n']} ({script['server']}, {script['kind']}): {e}", [script])
            return
        except OSError as e:
            self.note(f"connection {script['n']}: {e!r}", [script])
            time.sleep(0.2)
            return
        with self.lock:
            self.statuses.update(found)
            self.kinds[script["kind"]] += 1

    def client(self):
        while not self.stopping.is_set():
            if not self.go.wait(0.1):
                continue
            with self.lock:
                n, self.next, self.busy = self.next, self.next + 1, self.busy + 1
            self.play(fuzz_inputs.script(self.args.seed, n, self.corpus, self.secure))
            with self.lock:
                self.busy -= 1

    def check(self, wrong):
        for message in wrong:
            self.note(message, list(self.recent))
        if wrong:
            self.stopping.set()

    def rest(self):
        """Lets all clients finish, and looks at what is left."""
        self.go.clear()
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while self.busy and time.monotonic() < deadline:
            time.sleep(0.02)
        if not self.stopping.is_set():
            self.check(self.servers.rest())
        self.go.set()

    def run(self):
        threads = [threading.Thread(target=self.client, daemon=True) for _ in range(self.args.clients)]
        self.go.set()
        for t in threads:
            t.start()
        begin = rested = said = time.monotonic()
        while not self.stopping.is_set() and time.monotonic() < begin + self.args.seconds:
            time.sleep(0.5)
            wrong, took = self.servers.control()
            self.longest = max(self.longest, took)
            self.check(wrong)
            if time.monotonic() > rested + REST_EVERY_S:
                self.rest()
                rested = time.monotonic()
            if time.monotonic() > said + 60:
                said = time.monotonic()
                print(f"fuzz: {said - begin:.0f} s, {sum(self.kinds.values())} connections", flush=True)
        self.rest()
        self.stopping.set()
        for t in threads:
            t.join(ANSWER_TIMEOUT_S)

    def replay(self, path):
        for script in fuzz_inputs.from_json(json.loads(pathlib.Path(path).read_text())["scripts"]):
            self.play(script)
            self.check(self.servers.control()[0])

    def report(self):
        self.wrong += self.servers.stop()
        sizes = {name: f"{sizes[min(1, len(sizes) - 1)] >> 20} to {sizes[-1] >> 20} MiB"
                 for name, sizes in self.servers.sizes.items() if sizes}
        print(f"fuzz: seed {self.args.seed}, {sum(self.kinds.values())} connections {dict(self.kinds)}, "
              f"{sum(self.statuses.values())} answers {dict(sorted(self.statuses.items()))}, "
              f"longest control {self.longest:.2f} s, memory {sizes}, {len(self.wrong)} wrong")
        for message in self.wrong[:10]:
            print("  " + message)
        return 1 if self.wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--radish", default="build/radish-debug")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--first", type=int, default=0, help="number of the first connection")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--out", default=".", help="folder for what fails")
    parser.add_argument("--replay", metavar="FILE", help="send what has failed again")
    args = parser.parse_args()
    fuzz = Fuzz(args)
    if args.replay:
        fuzz.replay(args.replay)
    else:
        fuzz.run()
    return fuzz.report()


if __name__ == "__main__":
    sys.exit(main())
