#!/usr/bin/env python3
"""Records what radish answers to a fixed list of requests, and compares two recordings.

    tools/transcripts.py record --radish build/radish --model FILE.gguf --out DIR [--only WORD]
    tools/transcripts.py compare DIR DIR

For a change that must not change any answer: record with the build before it and the build after it, on the same
machine, and compare. Requests are sent one at a time, in a fixed order, to servers with fixed options: the model
on the CPU engine, and the mock engine plain and with a window, a small cache, tenants, thinking templates, every
tool format, and faults. transcript_cases.py lists the requests. Each file of a recording is one answer as it came
over the socket, or the output of one command:

    DIR/0317-mock-chat-stream.txt    status line, headers, body

What differs from run to run is normalised:
  - ids of requests and calls are numbered by first appearance; dates and times are replaced; Content-Length is
    checked against the body and then recomputed;
  - chunked bodies are joined, because where they are cut depends on timing; the framing is checked;
  - the events of a stream with several choices are sorted by choice, because they interleave by timing.

compare prints how many answers are equal and how the first differing ones differ; the exit status is 1 if any
differ. Only the standard library is used.
"""

import argparse
import contextlib
import difflib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

import transcript_cases

START_LIMIT_S = 60
ANSWER_LIMIT_S = 120
SHOWN_DIFFERENCES = 8
SHOWN_LINES = 12
SHOWN_COLUMNS = 300

NUMBER = rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
TIMES = [
    (rb"\r\nDate: [^\r]*", b"\r\nDate: TIME"),
    (rb'"(created|last_used)":\d+', rb'"\1":TIME'),
    (rb'"(\w+_ms|\w+_per_second|\w+_duration)":' + NUMBER, rb'"\1":TIME'),
    (rb'"(idle_s|ago_s|gone_s|age_s)":' + NUMBER, rb'"\1":TIME'),
    (NUMBER + rb" (?:s|minutes|hours) ago, after " + NUMBER + rb" (?:s|minutes|hours) without use",
     b"TIME ago, after TIME without use"),
    # A prompt is split into steps by the time they take.
    (rb'"steps":\d+', b'"steps":N'),
    (rb'"mean":' + NUMBER + rb',"p99":' + NUMBER + rb',"max":' + NUMBER, b'"mean":TIME,"p99":TIME,"max":TIME'),
    (rb'"(max_evict_in_step|seconds|tokens_per_second)":' + NUMBER, rb'"\1":TIME'),
]
IDS = re.compile(rb"\b(chatcmpl|cmpl|warm|req|call)([-_])[0-9A-Za-z]{9,40}\b")


def normalise(text):
    for pattern, replacement in TIMES:
        text = re.sub(pattern, replacement, text)
    seen = {}
    return IDS.sub(lambda m: b"ID-%d" % seen.setdefault(m.group(), len(seen) + 1), text)


def dechunk(body):
    """The body of a chunked answer; fails when the framing is wrong."""
    joined = b""
    while True:
        size, separator, body = body.partition(b"\r\n")
        n = int(size, 16)
        if not separator or (n and body[n:n + 2] != b"\r\n"):
            raise ValueError("wrong chunks")
        if n == 0:
            if body != b"\r\n":
                raise ValueError("something follows the last chunk")
            return joined
        joined += body[:n]
        body = body[n + 2:]


def choice_of(event):
    found = re.search(rb'"choices":\[\{"index":(\d+)', event)
    return int(found.group(1)) if found else None


def sort_events(body):
    """Sorts the events of several choices by choice; events without a choice come last."""
    events = body.split(b"\n\n")
    choices = [choice_of(event) for event in events]
    last = max([c for c in choices if c is not None], default=0)
    if last == 0:
        return body
    order = sorted(range(len(events)), key=lambda i: last + 1 if choices[i] is None else choices[i])
    return b"\n\n".join(events[i] for i in order)


def transcript(raw, has_body=True):
    """Normalises a raw answer: see the top of this file."""
    head, separator, body = raw.partition(b"\r\n\r\n")
    if not separator:
        return normalise(raw)
    if re.search(rb"(?i)\r\ntransfer-encoding: chunked", head):
        body = dechunk(body)
    length = re.search(rb"\r\nContent-Length: (\d+)", head)
    if length and has_body and int(length.group(1)) != len(body):
        raise ValueError(f"Content-Length {length.group(1).decode()} with {len(body)} bytes")
    if b"text/event-stream" in head:
        body = sort_events(body)
    text = normalise(head + b"\r\n\r\n" + body)
    if length and has_body:
        head, _, body = text.partition(b"\r\n\r\n")
        head = re.sub(rb"(\r\nContent-Length: )\d+", rb"\g<1>%d" % len(body), head)
        text = head + b"\r\n\r\n" + body
    return text


class Recorder:
    """Servers and commands whose answers are written to a folder, numbered in order."""

    def __init__(self, args):
        self.radish, self.model, self.out, self.only = args.radish, args.model, args.out, args.only
        self.n = 0

    def write(self, name, text):
        self.n += 1
        with open(os.path.join(self.out, f"{self.n:04}-{name}.txt"), "wb") as file:
            file.write(text)
        if sys.stderr.isatty():
            print(f"\r\033[K{self.n} {name}", end="", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def serve(self, group, *options, admin_key=None):
        """A server for a group of requests; None if --only excludes the group."""
        if self.only and self.only not in group:
            yield None
            return
        with Server(self, group, options, admin_key) as server:
            yield server

    def command(self, name, *args, text=""):
        """Runs radish once and keeps its status and output."""
        name = "cli-" + name
        if self.only and self.only not in name:
            return
        done = subprocess.run([self.radish, *args], input=text.encode(), capture_output=True, check=False,
                              timeout=ANSWER_LIMIT_S)
        output = b"exit %d\n--- stdout\n%s\n--- stderr\n%s" % (done.returncode, done.stdout, done.stderr)
        self.write(name, normalise(output.replace(self.model.encode(), b"MODEL")))


class Server:
    """One server of a recording. Each method sends one request and keeps its answer."""

    def __init__(self, recorder, group, options, admin_key):
        self.recorder, self.group = recorder, group
        self.auth = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        self.log = tempfile.NamedTemporaryFile(prefix="transcripts-", suffix=".txt")
        self.process = subprocess.Popen(
            [recorder.radish, "serve", "--host", "127.0.0.1", "--port", "0", *options],
            stdout=self.log, stderr=subprocess.STDOUT)
        try:
            self.port = self.wait_for_port()
        except BaseException:
            self.stop()
            raise

    def wait_for_port(self):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            with open(self.log.name, errors="replace") as log:
                text = log.read()
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", text)
            if found:
                return int(found.group(1))
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError(f"the server of {self.group} did not start:\n{text}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(ANSWER_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if status != 0:
            raise RuntimeError(f"the server of {self.group} ended with status {status}")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_LIMIT_S)

    def exchange(self, data):
        with self.connect() as connection:
            connection.sendall(data)
            raw = b""
            while piece := connection.recv(1 << 18):
                raw += piece
        return raw

    def stats(self):
        raw = self.exchange(request_bytes("GET", "/stats", None, self.auth))
        return json.loads(raw.partition(b"\r\n\r\n")[2])

    def settle(self, until=None):
        """Waits until the server has finished the previous request, or for a given state."""
        idle = {"connections": 1, "completions": 0, "running": 0, "waiting": 0}
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while True:
            stats = self.stats()
            if all(stats[name] == value for name, value in (until or idle).items()):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.group} does not settle: {stats}")
            time.sleep(0.002)

    def wait_stopping(self):
        """Waits until the server reports that it is stopping."""
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(ConnectionError):
                if b"stopping" in self.exchange(request_bytes("GET", "/health", None, None)):
                    return
        raise RuntimeError(f"{self.group} does not stop")

    def raw(self, name, data, settle=True):
        """Sends raw bytes; the server must close the connection after its answer."""
        if settle:
            self.settle()
        raw = self.exchange(data)
        try:
            text = transcript(raw, not data.startswith(b"HEAD"))
        except ValueError as e:
            raise RuntimeError(f"{self.group}-{name}: {e}: {raw[:2000]!r}") from e
        self.recorder.write(f"{self.group}-{name}", text)
        return raw

    def ask(self, name, method, path, body=None, headers=None, settle=True):
        return self.raw(name, request_bytes(method, path, body, headers), settle)

    def get(self, name, path, headers=None, method="GET"):
        self.ask(name, method, path, None, headers)

    def post(self, name, path, body, headers=None):
        """The answer as an object, for a following turn; None for an error or a stream."""
        raw = self.ask(name, "POST", path, body, headers)
        if not raw.startswith(b"HTTP/1.1 200") or b"\r\nContent-Type: application/json" not in raw:
            return None
        return json.loads(raw.partition(b"\r\n\r\n")[2])

    def chat(self, name, body, headers=None):
        return self.post(name, "/v1/chat/completions", body, headers)

    def both(self, name, path, body, headers=None):
        """The same request whole and, with usage, as a stream."""
        whole = self.post(name, path, body, headers)
        self.post(name + "-stream", path, {**body, "stream": True, "stream_options": {"include_usage": True}},
                  headers)
        return whole

    @contextlib.contextmanager
    def holding(self, body, state):
        """A stream that runs or waits while other requests are sent; its answer is not kept."""
        with self.connect() as connection:
            connection.sendall(request_bytes("POST", "/v1/chat/completions", body, None))
            self.settle(state)
            yield


def request_bytes(method, path, body, headers):
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    fields = {"Host": "127.0.0.1", "Connection": "close"}
    if body is not None:
        fields.update({"Content-Type": "application/json", "Content-Length": str(len(body))})
    fields.update(headers or {})
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value is not None)]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + (body or b"")


def record(args):
    os.makedirs(args.out, exist_ok=True)
    for name in os.listdir(args.out):
        if re.fullmatch(r"\d{4}-.*\.txt", name):
            os.remove(os.path.join(args.out, name))
    recorder = Recorder(args)
    transcript_cases.run(recorder)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(f"{recorder.n} answers in {args.out}")
    return 0


def read_folder(folder):
    answers = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".txt"):
            with open(os.path.join(folder, name), "rb") as file:
                answers[name] = file.read()
    return answers


def difference(before, after):
    # A JSON body is one line; split at commas, a difference is short enough to read.
    lines = [re.sub(rb",(?=[\"{\[])", b",\n", text).decode(errors="replace").splitlines() for text in (before, after)]
    changed = [line for line in difflib.unified_diff(*lines, "before", "after", n=1, lineterm="")][2:]
    shown = [line[:SHOWN_COLUMNS] for line in changed[:SHOWN_LINES]]
    if len(changed) > SHOWN_LINES:
        shown.append(f"... and {len(changed) - SHOWN_LINES} more lines")
    return "\n".join("    " + line for line in shown)


def compare(args):
    before, after = read_folder(args.before), read_folder(args.after)
    names = sorted(before.keys() | after.keys())
    differing = [name for name in names if before.get(name) != after.get(name)]
    for name in differing[:SHOWN_DIFFERENCES]:
        if name in before and name in after:
            print(f"{name} differs:\n{difference(before[name], after[name])}")
        else:
            print(f"{name} is only in {args.before if name in before else args.after}")
    if len(differing) > SHOWN_DIFFERENCES:
        print("also: " + ", ".join(differing[SHOWN_DIFFERENCES:]))
    print(f"{len(names) - len(differing)} of {len(names)} answers are equal")
    return 1 if differing or not names else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("--radish", required=True, metavar="PATH")
    recording.add_argument("--model", required=True, metavar="GGUF")
    recording.add_argument("--out", required=True, metavar="DIR")
    recording.add_argument("--only", metavar="WORD", help="only groups of requests whose name contains this word")
    comparison = commands.add_parser("compare")
    comparison.add_argument("before", metavar="DIR")
    comparison.add_argument("after", metavar="DIR")
    args = parser.parse_args()
    return record(args) if args.command == "record" else compare(args)


if __name__ == "__main__":
    sys.exit(main())
