#!/usr/bin/env python3
"""Compares radish with llama.cpp: same file, same threads, alternating, best of several runs.

    bench/side_by_side.py --model FILE... [--llama-bench PATH] [--llama-server PATH] [--quick]

Rows of the engine (radish bench, and llama-bench with flash attention):
  prefill-512, prefill-2048, prefill-4096   a prompt, nothing cached
  decode, decode-deep                       one stream, from nothing and after 3,000 tokens
Rows of the server (radish serve, and llama-server with flash attention, 8 slots and its prompt cache):
  streams    8 conversations at once, 64 tokens each: total tokens per second
  cached     a prompt of about 3,000 tokens that was just answered: time to its first token
  questions  32 questions on one system prompt of about 1,500 tokens, 4 at a time, 16 tokens each: seconds
  agents     4 conversations of 12 turns with one system prompt of about 1,200 tokens, 48 tokens per turn:
             seconds, and the median time to the first token of a turn
  gap        3 streams while a prompt of about 4,000 tokens arrives: longest gap between two tokens
             (of streams whose tokens all have text: two steps, one without any, look like one long one)
  equal      8 equal prompts of about 1,500 tokens at once: time until all have their first token
--rows takes their names, or "engine", "server", "prefill".

Every repeat measures both, one after the other, in changing order. A server is started for its row and stopped
after it, so that it runs alone and its cache is empty. Temperature is 0, and both must generate the requested
number of tokens, or the row fails. The ratio says how many times better radish is. "Of the limit" is the share
of what the machine's memory bandwidth and arithmetic allow, which radish bench measures each time; for decode
the limit is the bandwidth.

Without a peer, radish is measured alone. To compare with a peer built for an older instruction set, use
--kernels, e.g. avx2. The client shares the cores with the server that it measures, so it is a single thread
that only records what arrives and when, and parses it afterwards. Only the standard library is used.
"""

import argparse
import bisect
import json
import os
import random
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time

WORDS = ("the of and to in is was for on that by this with you it not or be are from at as your all have new more "
         "an we will home can us about if page my has search free but our one other do no time they site he up may "
         "what which their news out use any there see only so his when here who also now help get first been would "
         "how were services some these its like service than find date back top people list name just over year "
         "day into two health world next used go work last most music data make them should product system post her "
         "city add policy number such please available copyright support message after best software then good well").split()
QUESTIONS = ["What should we look at first?", "Why would that matter here?", "Give me an example with numbers.",
             "What could go wrong with it?", "How would you test that?", "Say it again for a child.",
             "Which part takes longest?", "What did we forget so far?", "Compare it with doing nothing.",
             "Name one tool that helps.", "What is the next step?", "Sum it up in one line."]
CONTEXT = 8192  # tokens of one conversation
SLOTS = 8
START_LIMIT_S = 120


class Failure(Exception):
    """Why a figure could not be measured."""


def text_of(n_tokens, salt):
    """Common words, one token each in most vocabularies; the salt changes all of them."""
    rng = random.Random(salt)
    return f"{salt} " + " ".join(rng.choice(WORDS) for _ in range(n_tokens))


# ---- the client --------------------------------------------------------------------------------------------

class Request:
    """One streamed chat completion. `then` is called when it ends, `watch` when something arrives; both may return
    further requests to start."""

    def __init__(self, messages, n_tokens, then=None, watch=None):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = json.dumps({"messages": messages, "max_tokens": n_tokens, "temperature": 0, "stream": True,
                           "ignore_eos": True, "stream_options": {"include_usage": True}}).encode()
        self.sent = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                     b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
        self.n_tokens, self.then, self.watch = n_tokens, then, watch
        self.pieces = []  # (time, bytes) as they arrived
        self.begin = self.end = None

    def answer(self):
        """The parsed answer; fails if it is not what was requested."""
        answer = Answer(self.pieces)
        if answer.n_tokens != self.n_tokens:
            raise Failure(f"generated {answer.n_tokens} tokens, not {self.n_tokens}")
        if not answer.times:
            raise Failure("answered without text")
        return answer

    def first_token_s(self):
        return self.answer().times[0] - self.begin


class Answer:
    """What a server sent: the text, the arrival time of each piece, and the usage."""

    def __init__(self, pieces):
        raw, ends = b"", []
        for _, data in pieces:
            raw += data
            ends.append(len(raw))
        head, separator, _ = raw.partition(b"\r\n\r\n")
        status = head.split(b"\r\n")[0]
        if not separator or b" 200" not in status:
            raise Failure(f"answered {status.decode(errors='replace')!r}: {raw[len(head):][:300]!r}")
        body, marks = unchunk(raw, len(head) + 4) if re.search(rb"(?i)\r\ntransfer-encoding: *chunked", head) else (
            raw[len(head) + 4:], [(len(raw) - len(head) - 4, len(raw))])
        self.times, self.usage, texts = [], {}, []
        at = 0
        for line in body.split(b"\n"):
            at += len(line) + 1
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise Failure(f"answered {event['error']}")
            text = event["choices"][0]["delta"].get("content") if event.get("choices") else None
            if text:
                texts.append(text)
                arrived = bisect.bisect_left(ends, raw_offset(marks, min(at - 1, len(body))))
                self.times.append(pieces[min(arrived, len(pieces) - 1)][0])
            self.usage = event.get("usage") or self.usage
        self.text = "".join(texts)
        self.n_tokens = self.usage.get("completion_tokens")


def unchunk(raw, at):
    """The body of a chunked answer, and each chunk's end in the body and in the received bytes."""
    body, marks = [], []
    length = 0
    while at < len(raw):
        line_end = raw.find(b"\r\n", at)
        size = int(raw[at:line_end].split(b";")[0], 16) if line_end > at else 0
        if size == 0:
            break
        at = line_end + 2 + size
        body.append(raw[line_end + 2:at])
        length += size
        marks.append((length, at))
        at += 2
    return b"".join(body), marks


def raw_offset(marks, at):
    """The position of the body's byte `at` in the received bytes."""
    body_end, raw_end = marks[min(bisect.bisect_left(marks, (at, 0)), len(marks) - 1)]
    return raw_end - (body_end - at)


class Client:
    """Runs requests concurrently, on one thread that only reads and records the time."""

    def __init__(self, port, limit_s):
        self.port, self.limit_s = port, limit_s
        self.selector = selectors.DefaultSelector()
        self.running = {}  # socket: request, in order of start

    def run(self, requests):
        """Runs until all requests, and those that they started, have ended; returns the time taken."""
        begin = time.perf_counter()
        try:
            self.start(requests)
            while self.running:
                oldest = next(iter(self.running.values()))
                left_s = oldest.begin + self.limit_s - time.perf_counter()
                if left_s <= 0:
                    raise Failure(f"no answer after {self.limit_s:g} s")
                for key, _ in self.selector.select(left_s):
                    self.receive(key.fileobj)
        except OSError as e:
            raise Failure(f"the connection failed: {e}") from e
        finally:
            for connection in list(self.running):
                self.finish(connection)
        return time.perf_counter() - begin

    def start(self, requests):
        for request in requests or []:
            request.begin = time.perf_counter()
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=self.limit_s)
            self.running[connection] = request
            connection.sendall(request.sent)
            connection.setblocking(False)
            self.selector.register(connection, selectors.EVENT_READ)

    def receive(self, connection):
        request = self.running[connection]
        data = connection.recv(1 << 18)
        now = time.perf_counter()
        if data:
            request.pieces.append((now, data))
        if not data or data == b"0\r\n\r\n" or data.endswith(b"\r\n0\r\n\r\n"):
            request.end = now
            self.finish(connection)
            self.start(request.then and request.then(request))
        elif request.watch:
            self.start(request.watch(request))

    def finish(self, connection):
        if connection in self.selector.get_map():
            self.selector.unregister(connection)
        del self.running[connection]
        connection.close()


class Server:
    """A server on a free port. `command` is its command line without the address."""

    def __init__(self, name, command):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = tempfile.NamedTemporaryFile(prefix="side-by-side-", suffix=".txt")
        try:
            self.process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(self.port)],
                                            stdout=self.log, stderr=subprocess.STDOUT)
        except OSError as e:
            raise Failure(f"cannot start {name}: {e}") from e
        deadline = time.monotonic() + START_LIMIT_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                with open(self.log.name, errors="replace") as log:
                    raise Failure(f"{name} did not start ({' '.join(command)}): {log.read()[-300:]}")
            time.sleep(0.05)

    def is_ready(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                return b" 200" in connection.recv(4096).split(b"\r\n")[0]
        except OSError:
            return False

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


# ---- the server's rows: each returns its figures in the order of the row's metrics ---------------------------

def measure_streams(client, salt):
    requests = [Request(text_of(10, salt + i), 64) for i in range(8)]
    seconds = client.run(requests)
    return [sum(request.answer().n_tokens for request in requests) / seconds]


def measure_cached(client, salt):
    prompt = text_of(2950, salt)
    client.run([Request(prompt, 1)])
    firsts = []
    for _ in range(3):
        request = Request(prompt, 1)
        client.run([request])
        firsts.append(request.first_token_s() * 1000)
    return [min(firsts)]


def measure_questions(client, salt):
    system = {"role": "system", "content": text_of(1480, salt)}
    waiting = [Request([system, {"role": "user", "content": f"Question {i}: {QUESTIONS[i % len(QUESTIONS)]}"}], 16)
               for i in range(32)]
    requests = list(waiting)
    for request in requests:
        request.then = lambda _: [waiting.pop(0)] if waiting else None
    first = [waiting.pop(0) for _ in range(4)]
    seconds = client.run(first)
    for request in requests:
        request.answer()
    return [seconds]


def measure_agents(client, salt):
    requests, system = [], {"role": "system", "content": text_of(1180, salt)}

    def turn(agent, messages, number):
        messages = messages + [{"role": "user", "content": f"Agent {agent}: {QUESTIONS[number]}"}]

        def then(request):
            if number + 1 < len(QUESTIONS):
                said = {"role": "assistant", "content": request.answer().text}
                return [turn(agent, messages + [said], number + 1)]
            return None

        requests.append(Request(messages, 48, then))
        return requests[-1]

    seconds = client.run([turn(agent, [system], 0) for agent in range(1, 5)])
    return [seconds, 1000 * statistics.median(request.first_token_s() for request in requests)]


def measure_gap(client, salt):
    intruder = [Request(text_of(3950, salt + 9), 1)]

    def watch(_):
        begun = all(len(stream.pieces) >= 8 for stream in streams)
        return [intruder.pop()] if intruder and begun else None

    streams = [Request(f"{salt} {i} " + "one two three four " * 50, 240, watch=watch) for i in range(3)]
    client.run(streams)
    if intruder:
        raise Failure("the streams ended before the prompt arrived")
    # In an answer that continues past its end, tokens without text would distort the gaps.
    seen = [a.times for a in (stream.answer() for stream in streams) if len(a.times) == a.n_tokens]
    if not seen:
        raise Failure("in every stream there were tokens without text")
    return [1000 * max(b - a for times in seen for a, b in zip(times, times[1:]))]


def measure_equal(client, salt):
    prompt = text_of(1480, salt)
    requests = [Request(prompt, 1) for _ in range(8)]
    client.run(requests)
    return [1000 * max(request.first_token_s() for request in requests)]


# ---- what is measured --------------------------------------------------------------------------------------

class Row:
    def __init__(self, name, metrics, bench=None, serve=None):
        self.name, self.metrics, self.bench, self.serve = name, metrics, bench, serve


class Metric:
    def __init__(self, label, unit, more_is_better=False):
        self.label, self.unit, self.more_is_better = label, unit, more_is_better
        self.best_of = max if more_is_better else min


def speed(label):
    return [Metric(label, "tokens/s", True)]


ROWS = [
    Row("prefill-512", speed("prefill, 512 tokens"), bench=("-p", "512", "-n", "0")),
    Row("prefill-2048", speed("prefill, 2,048 tokens"), bench=("-p", "2048", "-n", "0")),
    Row("prefill-4096", speed("prefill, 4,096 tokens"), bench=("-p", "4096", "-n", "0")),
    Row("decode", speed("decode, one stream"), bench=("-p", "0", "-n", "64")),
    Row("decode-deep", speed("decode behind 3,000 tokens"), bench=("-p", "0", "-n", "32", "-d", "3000")),
    Row("streams", speed("8 streams of 64 tokens, in total"), serve=measure_streams),
    Row("cached", [Metric("first token, cached prompt of 3,000 tokens", "ms")], serve=measure_cached),
    Row("questions", [Metric("32 questions on one prompt of 1,500 tokens, 4 at a time", "s")], serve=measure_questions),
    Row("agents", [Metric("4 agents, 12 turns each", "s"), Metric("the same, median first token", "ms")],
        serve=measure_agents),
    Row("gap", [Metric("longest gap of 3 streams while 4,000 tokens arrive", "ms")], serve=measure_gap),
    Row("equal", [Metric("8 equal prompts of 1,500 tokens, all first tokens", "ms")], serve=measure_equal),
]


def rows_named(names):
    chosen = []
    for name in names.split(","):
        found = [row for row in ROWS if name in (row.name, row.name.split("-")[0] if name == "prefill" else "",
                                                 "engine" if row.bench else "server")]
        if not found:
            raise SystemExit(f"no row '{name}'; there are {', '.join(row.name for row in ROWS)}, engine, server, prefill")
        chosen += found
    return [row for row in ROWS if row in chosen]


class Side:
    """One of the two programs and how to run it."""

    def __init__(self, name, version, bench, server):
        self.name, self.version, self.bench, self.server = name, version, bench, server

    def can_measure(self, row):
        return bool(self.bench if row.bench else self.server)


def run_json(command, limit_s):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as e:
        raise Failure(f"{command[0]} took more than {limit_s:g} s") from e
    except OSError as e:
        raise Failure(f"cannot start {command[0]}: {e}") from e
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


class RadishSide(Side):
    def __init__(self, args):
        version = subprocess.run([args.radish, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
        kernels = ["--kernels", args.kernels] if args.kernels else []
        common = ["-t", str(args.threads), *kernels]
        super().__init__("radish", version, [args.radish, "bench", *common],
                         [args.radish, "serve", "-c", str(CONTEXT), *common])

    def run_bench(self, row, model, limit_s):
        """(tokens per second, the machine's limit, the engine's name)"""
        told = run_json([*self.bench, "-m", model, *row.bench, "-r", "2", "--json"], limit_s)
        return told["rows"][0]["tokens_per_second"], told["rows"][0].get("limit_tokens_per_second"), told["engine"]


class LlamaSide(Side):
    def __init__(self, args):
        threads = ["-t", str(args.threads)]
        super().__init__(
            "llama.cpp", llama_version(args.llama_server),
            args.llama_bench and [args.llama_bench, *threads, "-fa", "1", "-o", "json", "--no-warmup"],
            args.llama_server and [args.llama_server, *threads, "-c", str(CONTEXT * SLOTS), "-np", str(SLOTS),
                                   "-fa", "on", "--no-webui"])

    def run_bench(self, row, model, limit_s):
        told = run_json([*self.bench, "-m", model, *row.bench, "-r", "2"], limit_s)[0]
        if not self.version:
            self.version = told.get("build_commit", "")
        return max(told["samples_ts"]), None, None


def llama_version(server):
    if not server:
        return ""
    done = subprocess.run([server, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version: (.*)", done.stdout + done.stderr)
    return found.group(1) if found else ""


class Result:
    """The figures of one row: for each side, a list of figures for each metric."""

    def __init__(self, row):
        self.row = row
        self.figures = {}  # name of the side: [[figures] of each metric]
        self.failures = {}  # name of the side: what went wrong first
        self.limit = None

    def add(self, side, figures):
        of_side = self.figures.setdefault(side.name, [[] for _ in self.row.metrics])
        for metric, figure in zip(of_side, figures):
            metric.append(figure)

    def best(self, name, i):
        figures = self.figures.get(name)
        return self.row.metrics[i].best_of(figures[i]) if figures else None

    def ratio(self, i, names):
        ours, theirs = (self.best(name, i) for name in names)
        if not ours or not theirs:
            return None
        return ours / theirs if self.row.metrics[i].more_is_better else theirs / ours


def measure(side, result, model, salt, limit_s):
    row = result.row
    if row.bench:
        figure, limit, engine = side.run_bench(row, model, limit_s)
        result.limit = max(result.limit or 0, limit or 0) or None
        side.engine = engine
        result.add(side, [figure])
        return
    with Server(side.name, [*side.server, "-m", model]) as server:
        client = Client(server.port, limit_s)
        client.run([Request("Say hello.", 8)])
        result.add(side, row.serve(client, salt))


def measure_model(model, rows, sides, args):
    results = {row.name: Result(row) for row in rows}
    for repeat in range(args.repeats):
        for number, row in enumerate(rows):
            result = results[row.name]
            for side in sides if repeat % 2 == 0 else sides[::-1]:
                if not side.can_measure(row) or side.name in result.failures:
                    continue
                progress(f"{os.path.basename(model)}, repeat {repeat + 1} of {args.repeats}: {row.name}, {side.name}")
                try:
                    measure(side, result, model, 10000 * (repeat + 1) + 100 * number, args.limit_s)
                except Failure as e:
                    result.failures[side.name] = str(e)
    progress("")
    return list(results.values())


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


# ---- what is printed ---------------------------------------------------------------------------------------

def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            return re.search(r"model name\s*: (.*)", info.read()).group(1)
    except (OSError, AttributeError):
        return "unknown CPU"


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table_of(model, results, sides, args):
    names = [side.name for side in sides]
    engine = getattr(sides[0], "engine", None)
    told = [cpu_model(), f"{args.threads} thread{'s' if args.threads > 1 else ''}",
            sides[0].version + (f" on {engine}" if engine else "")]
    told += [f"{side.name} {side.version}" for side in sides[1:]]
    has_limit = any(result.limit for result in results)
    head = ["", *names] + (["ratio"] if len(names) > 1 else []) + (["of the limit"] if has_limit else [])
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for result in results:
        for i, metric in enumerate(result.row.metrics):
            line = [f"{metric.label}, {metric.unit}", *(number(result.best(name, i)) for name in names)]
            if len(names) > 1:
                line.append(number(result.ratio(i, names)))
            bests = [result.best(name, i) for name in names] if result.limit else []
            shares = " / ".join(f"{best / result.limit:.0%}" for best in bests if best)
            lines.append(line + ([shares] if has_limit else []))
    widths = [max(len(line[c]) for line in lines) for c in range(len(head))]
    text = [f"{os.path.basename(model)}: {'; '.join(told)}; best of {args.repeats}", ""]
    for line in lines:
        cells = [cell.ljust(w) if c == 0 else cell.rjust(w) for c, (cell, w) in enumerate(zip(line, widths))]
        text.append("| " + " | ".join(cells) + " |")
    text += [f"\n{result.row.name}, {name}: {why}" for result in results for name, why in result.failures.items()]
    return "\n".join(text)


def json_of(model, results, sides):
    rows = []
    for result in results:
        for i, metric in enumerate(result.row.metrics):
            row = {"row": result.row.name, "label": metric.label, "unit": metric.unit}
            for side in sides:
                if side.name in result.figures:
                    row[side.name] = result.best(side.name, i)
                    row[f"{side.name} all"] = result.figures[side.name][i]
            if len(sides) > 1:
                row["ratio"] = result.ratio(i, [side.name for side in sides])
            if result.limit:
                row["limit"] = result.limit
            if result.failures:
                row["failures"] = result.failures
            rows.append(row)
    return {"model": model, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, nargs="+", metavar="FILE", help="GGUF files, one table each")
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--llama-bench", metavar="PATH", help="llama-bench, the peer for the engine's rows")
    parser.add_argument("--llama-server", metavar="PATH", help="llama-server, the peer for the server's rows")
    parser.add_argument("--kernels", help="radish's kernel path, e.g. avx2 (default: the best)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", default="engine,server", help="rows to measure (default: all)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="2 repeats")
    parser.add_argument("--limit-s", type=float, default=300, help="timeout of an answer or engine run (default 300)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.repeats = 2 if args.quick else args.repeats
    if args.repeats < 1 or args.threads < 1:
        parser.error("--repeats and --threads are 1 at least")
    rows = rows_named(args.rows)
    sides = [RadishSide(args)]
    if args.llama_bench or args.llama_server:
        sides.append(LlamaSide(args))
    tables, failed = [], False
    for model in args.model:
        results = measure_model(model, rows, sides, args)
        failed = failed or any(result.failures for result in results)
        if args.json:
            tables.append(json_of(model, results, sides))
        else:
            print(table_of(model, results, sides, args) + "\n", flush=True)
    if args.json:
        print(json.dumps({"cpu": cpu_model(), "threads": args.threads, "repeats": args.repeats,
                          "versions": {side.name: side.version for side in sides}, "models": tables}, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
