#!/usr/bin/env python3
"""Measures a running radish against a llama-server in the same run, on the same model.

    bench/bench_serve.py --model FILE [--radish build/radish] [--peer llama-server] [--threads 2]

Scenarios (best of --repeats, each server alone on the machine while it is measured):
  streams   8 conversations at once, 64 tokens each: tokens a second in total
  cached    a prompt of about 3,000 tokens a second time: time to its first token, beside the time of
            one decode step at that length
  gap       3 streams while a prompt of about 3,000 tokens arrives: longest gap between their tokens
  shared    8 identical prompts of about 1,500 tokens at once: time until all have their first token
Only the standard library is used.
"""

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import threading
import time

WORDS = "the river ran past an old mill where nobody had ground any corn for a hundred years".split()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def text_of(n_words, salt):
    """Words that differ with the salt from the first on, so that nothing is cached by accident."""
    return f"Story {salt}. " + " ".join(WORDS[(i * 7 + salt) % len(WORDS)] for i in range(n_words))


class Server:
    def __init__(self, name, command):
        self.name = name
        self.port = free_port()
        self.process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if self.get("/health") == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"{name} did not start: {' '.join(command)}")

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", path)
        return connection.getresponse().status

    def stream(self, prompt, n_tokens):
        """Times (seconds from the request) at which pieces of text came, and the usage."""
        body = json.dumps({
            "messages": [{"role": "user", "content": prompt}], "max_tokens": n_tokens,
            "temperature": 0, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True}})
        start = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        times, usage = [], None
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event.get("choices") and event["choices"][0]["delta"].get("content"):
                times.append(time.perf_counter() - start)
            usage = event.get("usage") or usage
        return times, usage

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


def at_once(calls):
    results = [None] * len(calls)

    def run(i):
        results[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def measure_streams(server, salt):
    start = time.perf_counter()
    done = at_once([lambda i=i: server.stream(text_of(10, salt + i), 64) for i in range(8)])
    tokens = sum(usage["completion_tokens"] for _, usage in done)
    return tokens / (time.perf_counter() - start)


def measure_cached(server, salt):
    prompt = text_of(2850, salt)
    server.stream(prompt, 4)
    first = min(server.stream(prompt, 1)[0][0] for _ in range(5))
    times, usage = server.stream(prompt, 32)
    steps = [b - a for a, b in zip(times, times[1:])]
    return first * 1000, statistics.median(steps) * 1000, usage["prompt_tokens"]


def measure_gap(server, salt):
    gaps = []

    def decode(i):
        times, _ = server.stream(text_of(10, salt + i), 200)
        gaps.append(max(b - a for a, b in zip(times, times[1:])))

    def intrude():
        time.sleep(0.3)
        server.stream(text_of(2850, salt + 9), 1)

    at_once([lambda i=i: decode(i) for i in range(3)] + [intrude])
    return max(gaps) * 1000


def measure_shared(server, salt):
    prompt = text_of(1400, salt)
    done = at_once([lambda: server.stream(prompt, 1) for _ in range(8)])
    return max(times[0] for times, _ in done) * 1000


def measure(server, repeats):
    server.stream(text_of(10, 1), 8)
    result = {"streams": max(measure_streams(server, 100 * r) for r in range(1, repeats + 1))}
    cached = [measure_cached(server, 1000 * r) for r in range(1, repeats + 1)]
    result["cached"], result["step"], result["prompt"] = min(cached)
    result["gap"] = min(measure_gap(server, 10000 * r) for r in range(1, repeats + 1))
    result["shared"] = min(measure_shared(server, 100000 * r) for r in range(1, repeats + 1))
    return result


ROWS = [("streams", "8 streams, tokens/s in total", True), ("cached", "first token, cached prompt, ms", False),
        ("step", "one decode step at that length, ms", False),
        ("gap", "longest gap of 3 streams, ms", False), ("shared", "8 equal prompts at once, ms", False)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--peer", help="path of llama-server; without it radish is measured alone")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    commands = {"radish": [args.radish, "serve", "-m", args.model, "-t", args.threads, "-c", "8192"]}
    if args.peer:
        commands["llama-server"] = [args.peer, "-m", args.model, "-t", args.threads, "-c", "65536",
                                    "-np", "8", "-fa", "on", "--no-webui"]
    results = {}
    for name, command in commands.items():
        server = Server(name, command)
        try:
            results[name] = measure(server, args.repeats)
        finally:
            server.stop()
    names = list(results)
    print(f"{'':38}" + "".join(f"{name:>14}" for name in names) + ("         ratio" if args.peer else ""))
    for key, label, more_is_better in ROWS:
        values = [results[name][key] for name in names]
        line = f"{label:38}" + "".join(f"{value:14.1f}" for value in values)
        if args.peer:
            line += f"{values[0] / values[1] if more_is_better else values[1] / values[0]:13.1f}x"
        print(line)
    print(f"cached prompt: {results['radish']['prompt']} tokens")


if __name__ == "__main__":
    main()
