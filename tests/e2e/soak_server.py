#!/usr/bin/env python3
"""Keeps a server busy for a long time and checks that it stays right.

    soak_server.py --radish build/radish-tsan --seconds 600

Starts the server on the mock engine with a cache that is too small for the load, two capped
tenants, a prompt that they share, and entries that expire after a second. Many threads use it at
once: conversations that share prefixes, streamed or not, several choices, turns that send the
answer back, clients that hang up at any moment, prompts that are warmed and pinned, explanations,
cache listings and changes. All the while:
  - a request at temperature 0 always gets the same answer;
  - in every snapshot of /stats the pages add up, and no counter decreases;
  - no answer reports more cached tokens than prompt tokens.
At the end the server must be idle with no private pages, exit with 0, and have no sanitizer report
in its log. Prints a line every ten seconds; exits 1 when anything is wrong.

    soak_server.py --radish build/radish --defaults --clients 200 --seconds 600 [--model FILE]

tests a server with its default settings instead, and half of the requests are canceled or time out.
Memory without the cache must be the same after two minutes and at the end. Then SIGTERM arrives
while streams are open: each must end whole, with [DONE] or an error, within the grace period.
"""
import argparse
import collections
import http.client
import json
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

SYSTEM = ["You are a radish. " * 8, "You are a turnip, and know about roots. " * 5,
          "You are a radish. " * 8 + "Answer in one word."]
TOPICS = ["soil", "rain", "the moon", "worms", "seeds of other plants"]
COUNTERS = ["steps", "rows", "prompt_tokens", "cached_tokens", "generated_tokens", "canceled",
            "failed", "preempted", "cache_evicted", "cache_expired"]
BUSY = {429, 503}
KEYS = {"ann": "key-of-ann", "bob": "key-of-bob", "admin": "key-of-the-operator"}
TIMEOUT_S = 120
WARM_S = 120                # memory is compared from then on
GROWTH_BYTES = 24 << 20     # sampled answers are kept in 16 MiB, which fill slowly
POOL_BYTES = 192 << 20      # a mapping of at least that size is the pool
GRACE_S, MARGIN_S = 10, 5   # of the server: --shutdown-grace, and 2 s to send


class Wrong(Exception):
    """The server misbehaved."""


class Server:
    """The server process, on its own port, stopped by its process id."""

    def __init__(self, args):
        self.log_file = tempfile.NamedTemporaryFile(prefix="radish-soak-", suffix=".txt")
        self.files = tempfile.TemporaryDirectory(prefix="radish-soak-")
        keys, shared = self.write("keys", "\n".join(f"{who}:{key}" for who, key in KEYS.items())), \
            self.write("shared", SYSTEM[0])
        small = ["--max-seqs", "8", "-c", "1000", "--cache-size", f"{args.pages}t", "--max-waiting",
                 "24", "--cache-ttl", "1s", "--tenant-cache-size", f"{args.pages * 2 // 3}t",
                 "--api-key-file", keys, "--shared-prompt", shared]
        engine = ["-m", args.model] if args.model else \
            ["--engine", "mock", "--mock-batch-cost-us", "200"]
        self.process = subprocess.Popen(
            [args.radish, "serve", "--port", "0", *engine, *([] if args.defaults else small)],
            stdout=self.log_file, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while not (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", self.log())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError("the server did not start:\n" + self.log())
            time.sleep(0.05)
        self.port = int(found.group(1))

    def write(self, name, text):
        path = f"{self.files.name}/{name}"
        with open(path, "w") as file:
            file.write(text)
        return path

    def log(self):
        with open(self.log_file.name, errors="replace") as log:
            return log.read()

    def ask(self, method, path, body=None, who="admin"):
        """(status, body) of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            headers = {"Authorization": f"Bearer {KEYS[who]}"}
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, json.dumps(body) if body is not None else None,
                               headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def stats(self):
        return json.loads(self.ask("GET", "/stats")[1])

    def own_bytes(self):
        """Memory without files and without the pool of pages, which fills up to its size."""
        n_bytes = is_pool = 0
        with open(f"/proc/{self.process.pid}/smaps") as smaps:
            for line in smaps:
                name, value = line.split()[:2]
                if name == "Size:":
                    is_pool = int(value) * 1024 >= POOL_BYTES
                elif name == "Anonymous:" and not is_pool:
                    n_bytes += int(value) * 1024
        return n_bytes

    def stop(self):
        """Stops the server and returns what went wrong."""
        wrong = []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = f"none, it did not end (then {self.process.wait()})"
        log = self.log()
        if status != 0:
            wrong.append(f"exit status {status}; the log ends with:\n{log[-3000:]}")
        found = re.search("Sanitizer|runtime error|Assertion", log)
        if found:
            wrong.append("in the log:\n" + log[max(0, found.start() - 200):found.start() + 5000])
        return wrong


class Soak:
    """State shared by the load threads."""

    def __init__(self, server, actions):
        self.server = server
        self.actions = actions
        self.lock = threading.Lock()
        self.wrong = []
        self.done = collections.Counter()
        self.answers = {}
        self.n_compared = 0
        self.last_stats = threading.local()

    def check_answer(self, request, answer):
        """A request at temperature 0 has one answer, whatever the cache holds."""
        key = json.dumps([request["messages"], request["max_tokens"]])
        with self.lock:
            self.n_compared += key in self.answers
            before = self.answers.setdefault(key, answer)
        if before != answer:
            raise Wrong(f"two answers to {key}: {before!r} and {answer!r}")

    def check_stats(self, stats):
        if stats["pages_free"] + stats["pages_cached"] + stats["pages_private"] != stats["pages"]:
            raise Wrong(f"pages do not add up: {stats}")
        before = getattr(self.last_stats, "stats", {})
        self.last_stats.stats = stats
        fallen = [name for name in COUNTERS if stats.get(name, 0) < before.get(name, 0)]
        if fallen:
            raise Wrong(f"{fallen} fell from {before} to {stats}")


# ---- client actions: each takes (soak, rng) and returns a word that is counted -----------------


def make_request(rng, **options):
    """Many requests share a prefix; some conversations have several turns."""
    messages = [{"role": "system", "content": rng.choice(SYSTEM)}] if rng.random() < 0.8 else []
    for turn in range(rng.choice([1, 1, 1, 1, 2, 3])):
        if turn:
            messages.append({"role": "assistant", "content": f"About {rng.choice(TOPICS)}."})
        messages.append({"role": "user", "content": f"Tell of {rng.choice(TOPICS)}" +
                         " and more" * rng.randrange(3)})
    return {"messages": messages, "temperature": 0, "max_tokens": rng.choice([1, 24]),
            **options}


def make_comparable(rng, **options):
    """Without replay: an answer that was sampled with other tokens than the tokenizer's own would
    otherwise become a part of a later prompt of the same text."""
    return make_request(rng, replay=False, **options)


def tenant(rng):
    return rng.choice(["ann", "ann", "bob"])


def complete(soak, rng, request, who=None):
    """The answer to a request that is not streamed; None when the server is busy."""
    status, body = soak.server.ask("POST", "/v1/chat/completions", request, who or tenant(rng))
    if status in BUSY:
        return None
    if status != 200:
        raise Wrong(f"{status} {body[:500]!r}")
    answer = json.loads(body)
    usage = answer["usage"]
    if usage["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"]:
        raise Wrong(f"more was cached than can be: {usage}")
    return answer


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def chat(soak, rng):
    request = make_comparable(rng)
    answer = complete(soak, rng, request)
    if answer is None:
        return "busy"
    soak.check_answer(request, text_of(answer))
    return "whole"


def chat_turns(soak, rng):
    """Sends the answer back and continues, as a chat does."""
    who = tenant(rng)
    messages = make_request(rng)["messages"]
    for _ in range(rng.randrange(2, 4)):
        answer = complete(soak, rng, {"messages": messages, "max_tokens": 16,
                                      "seed": rng.randrange(100)}, who)
        if answer is None:
            return "busy"
        messages = messages + [{"role": "assistant", "content": text_of(answer)},
                               {"role": "user", "content": "Go on."}]
    return "turns"


def completion_explained(soak, rng):
    request = make_comparable(rng, radish={"explain": True})
    answer = complete(soak, rng, request)
    if answer is None:
        return "busy"
    told = answer["radish"]
    if told["cached_tokens"] + told["computed_tokens"] != told["prompt_tokens"]:
        raise Wrong(f"an explanation does not add up: {told}")
    if told["miss"] and told["miss"]["position"] > told["prompt_tokens"]:
        raise Wrong(f"a miss behind the prompt: {told}")
    soak.check_answer(request, text_of(answer))
    return "explained"


def chat_uncached(soak, rng):
    request = make_comparable(rng, cache_prompt=False)
    answer = complete(soak, rng, request)
    if answer is None:
        return "busy"
    if answer["usage"]["prompt_tokens_details"]["cached_tokens"]:
        raise Wrong(f"cached, though it was not to be: {answer['usage']}")
    soak.check_answer(request, text_of(answer))
    return "uncached"


def chat_choices(soak, rng):
    """Several choices, each sampled with its own seed."""
    n = rng.randrange(2, 5)
    answer = complete(soak, rng, make_request(rng, n=n, temperature=1, seed=rng.randrange(1000)))
    if answer is None:
        return "busy"
    if len(answer["choices"]) != n:
        raise Wrong(f"not {n} choices: {answer}")
    return "choices"


def stream_text(lines):
    """The text of a streamed answer."""
    text, ended = "", False
    for line in lines:
        if not line.startswith(b"data: "):
            continue
        if ended:
            raise Wrong(f"after the end of a stream: {line!r}")
        if line.startswith(b"data: [DONE]"):
            ended = True
            continue
        data = json.loads(line[6:])
        if "error" in data:
            raise Wrong(f"in a stream: {data}")
        text += "".join(c["delta"].get("content") or "" for c in data["choices"])
    if not ended:
        raise Wrong(f"a stream was cut short after {text!r}")
    return text


def chat_streamed(soak, rng):
    request = make_comparable(rng, stream=True)
    status, body = soak.server.ask("POST", "/v1/chat/completions", request, tenant(rng))
    if status in BUSY:
        return "busy"
    if status != 200:
        raise Wrong(f"{status} {body[:500]!r}")
    soak.check_answer(request, stream_text(body.splitlines()))
    return "streamed"


def time_out(soak, rng):
    """Waits for an answer, but not for long."""
    request = make_request(rng, max_tokens=300, ignore_eos=True, stream=rng.random() < 0.5)
    connection = http.client.HTTPConnection("127.0.0.1", soak.server.port,
                                            timeout=rng.choice([0.02, 0.1, 0.5, 2]))
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(request),
                           {"Content-Type": "application/json", "x-api-key": KEYS[tenant(rng)]})
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return "timed out"
    finally:
        connection.close()
    return "in time"


def hang_up(soak, rng):
    """Drops the connection: in the request, before the answer, or somewhere in it."""
    options = {"stream": rng.random() < 0.7, "max_tokens": 200, "ignore_eos": True}
    if rng.random() < 0.3:
        options["n"] = 3
    data = json.dumps(make_request(rng, **options)).encode()
    data = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: %s\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
            (KEYS[tenant(rng)].encode(), len(data))) + data
    with socket.create_connection(("127.0.0.1", soak.server.port), timeout=TIMEOUT_S) as sock:
        moment = rng.random()
        if moment < 0.1:
            data = data[:rng.randrange(len(data))]
        try:
            sock.sendall(data)
            if moment < 0.5:
                time.sleep(rng.random() * 0.05)
            elif moment < 0.9:
                sock.recv(rng.randrange(1, 4000))
                time.sleep(rng.random() * 0.05)
        except ConnectionError:
            pass  # a busy server may have refused and closed first
        if rng.random() < 0.5:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return "hung up"


def look_at_stats(soak, _rng):
    soak.check_stats(soak.server.stats())
    return "stats"


def ask_cache(soak, method, path, body=None, who="admin"):
    """The answer of a cache endpoint; None when the server is busy."""
    status, answer = soak.server.ask(method, path, body, who)
    if status in BUSY:
        return None
    if status != 200:
        raise Wrong(f"{method} {path}: {status} {answer[:500]!r}")
    return json.loads(answer)


def list_cache(soak, rng):
    """Lists all pages of the cache, or the first few."""
    after = ""
    for _ in range(rng.randrange(1, 20)):
        cache = ask_cache(soak, "GET", f"/v1/cache?limit={rng.randrange(1, 30)}{after}")
        if cache is None:
            return "busy"
        for entry in cache["data"]:
            if entry["tokens"] < entry["own_tokens"]:
                raise Wrong(f"an entry with more of its own than it has: {entry}")
        if cache["next"] is None:
            break
        after = f"&after={cache['next']}"
    return "listed"


def outline_cache(soak, rng):
    tree = ask_cache(soak, "GET", f"/v1/cache/tree?depth={rng.randrange(5)}")
    return "busy" if tree is None else "outlined"


def clear_cache(soak, rng):
    whose = rng.choice(["", "?tenant=ann", "?tenant=bob"])
    return "busy" if ask_cache(soak, "DELETE", "/v1/cache" + whose) is None else "cleared"


def warm_cache(soak, rng):
    request = {"messages": make_request(rng)["messages"], "pin": rng.choice([0, 0.2, 3, 1000])}
    warmed = ask_cache(soak, "POST", "/v1/cache/warm", request, tenant(rng))
    return "busy" if warmed is None else "pinned" if warmed["pinned"] else "warmed"


ACTIONS = [(30, chat), (20, chat_streamed), (10, chat_choices), (5, chat_turns),
           (5, completion_explained), (3, chat_uncached), (20, hang_up), (10, look_at_stats),
           (3, list_cache), (3, outline_cache), (1, clear_cache), (5, warm_cache)]


# With the default settings: without keys there are no tenants to list or clear.
CANCELS = [(20, chat), (15, chat_streamed), (5, chat_choices), (5, chat_turns), (30, hang_up),
           (20, time_out), (5, look_at_stats)]


# ---- stopping under load -------------------------------------------------------------------


def open_stream(soak, opened, done):
    """A long stream, read to its end; adds what is wrong with that end to `done`."""
    request = {"messages": [{"role": "user", "content": "Hi"}], "stream": True,
               "max_tokens": 50000, "ignore_eos": True}
    connection = http.client.HTTPConnection("127.0.0.1", soak.server.port, timeout=TIMEOUT_S)
    wrong = None
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(request),
                           {"Content-Type": "application/json"})
        opened.release()
        answer = connection.getresponse()
        body = answer.read()  # IncompleteRead: without the last chunk
        last = [line for line in body.split(b"\n") if line.startswith(b"data: ")][-1:]
        if answer.status == 200 and last != [b"data: [DONE]"] and b'"error"' not in b"".join(last):
            wrong = f"a stream ended with {last}"
        elif answer.status != 200 and (answer.status not in BUSY or b'"error"' not in body):
            wrong = f"{answer.status} {body[:200]!r}"
    except (OSError, http.client.HTTPException) as error:
        wrong = f"a stream was cut: {error!r}"
    finally:
        connection.close()
    done.append((wrong, answer.status if wrong is None else None))


def stop_loaded(soak, n):
    """SIGTERM while n streams are open."""
    opened, done = threading.Semaphore(0), []
    threads = [threading.Thread(target=open_stream, args=(soak, opened, done), daemon=True)
               for _ in range(n)]
    for thread in threads:
        thread.start()
    for _ in threads:
        opened.acquire(timeout=TIMEOUT_S)
    time.sleep(1)
    began = time.monotonic()
    wrong = soak.server.stop()
    took = time.monotonic() - began
    for thread in threads:
        thread.join(TIMEOUT_S)
    soak.wrong += wrong + [why for why, _ in done if why]
    statuses = collections.Counter(status for _, status in done)
    print(f"server soak: SIGTERM with {n} streams open: exit after {took:.1f} s, {dict(statuses)}")
    if len(done) != n or took > GRACE_S + MARGIN_S:
        soak.wrong.append(f"{len(done)} of {n} streams ended, exit after {took:.1f} s")


# ---- the load ------------------------------------------------------------------------------


def client(soak, rng, deadline):
    weights, actions = zip(*soak.actions)
    while time.monotonic() < deadline and not soak.wrong:
        if (deadline - time.monotonic()) % 15 > 12:  # all rest at the same time, so that entries expire
            time.sleep(0.1)
            continue
        action = rng.choices(actions, weights)[0]
        try:
            word = action(soak, rng)
        except Exception as error:  # any failure is what the soak looks for
            soak.wrong.append(f"{action.__name__}: {error!r}")
            return
        with soak.lock:
            soak.done[word] += 1


def wait_idle(soak):
    stats = {}
    for _ in range(1200):
        stats = soak.server.stats()
        if not (stats["running"] or stats["waiting"] or stats["completions"]):
            break
        time.sleep(0.05)
    soak.check_stats(stats)
    print("server soak:", ", ".join(f"{name} {stats.get(name)}" for name in COUNTERS))
    if stats["running"] or stats["waiting"] or stats["completions"] or stats["pages_private"]:
        raise Wrong(f"not idle at the end: {stats}")


def check_size(soak, sizes):
    sizes.append(soak.server.own_bytes())
    print(f"server soak: memory without pages: {[size >> 20 for size in sizes]} MiB")
    if sizes[-1] > sizes[0] + GROWTH_BYTES:
        raise Wrong(f"memory grows: {sizes}")


def run(args):
    server = Server(args)
    soak = Soak(server, CANCELS if args.defaults else ACTIONS)
    sizes = []
    began = time.monotonic()
    threads = [threading.Thread(target=client, daemon=True, args=(
        soak, random.Random(f"{args.seed}.{i}"), began + args.seconds))
        for i in range(args.clients)]
    for thread in threads:
        thread.start()
    next_line = began + 10
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.1)
        if time.monotonic() >= next_line:
            print(f"server soak: {time.monotonic() - began:.0f} s, "
                  f"{sum(soak.done.values())} requests, "
                  f"{server.own_bytes() >> 20} MiB without pages", flush=True)
            next_line += 10
        if not sizes and time.monotonic() > began + WARM_S:
            sizes.append(server.own_bytes())
    try:
        if not soak.wrong:
            wait_idle(soak)
        if args.defaults:
            check_size(soak, sizes)
            stop_loaded(soak, 50)
    except Exception as error:
        soak.wrong.append(f"at the end: {error!r}")
    if server.process.poll() is None:
        soak.wrong += server.stop()
    words = ", ".join(f"{n} {word}" for word, n in sorted(soak.done.items()))
    print(f"server soak: {time.monotonic() - began:.0f} s, seed {args.seed}: {words}; "
          f"{soak.n_compared} answers compared, {len(soak.wrong)} wrong")
    for line in soak.wrong[:10]:
        print(line)
    return 1 if soak.wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--radish", default="build/radish-tsan")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--defaults", action="store_true", help="the server's default settings")
    parser.add_argument("--model", help="instead of the mock engine")
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--pages", type=int, default=1500, help="cache size in tokens")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    sys.exit(run(parser.parse_args()))


if __name__ == "__main__":
    main()
