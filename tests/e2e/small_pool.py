#!/usr/bin/env python3
"""Many concurrent requests in a cache that barely holds one of them.

    small_pool.py --build build --model FILE --seconds 60 --clients 16 [--factor 1.2] [--release]

Every request is first answered by a server with a large cache. Then a server whose cache has
`factor` times the pages of the longest request gets them from many clients at once, over and over:
sequences queue, are preempted and resume. Each answer must equal the first one byte for byte, and
none may fail. The small server is the debug build, which checks after every step that free, cached
and private pages add up. Prints one line of totals; exits 1 when anything is wrong. Without --model
the mock engine answers.
"""
import argparse
import json
import os
import random
import sys
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import conftest  # noqa: E402


def request_of(i, max_tokens):
    """Some share a prefix with others, some a whole prompt. Each has its own seed."""
    content = "A radish grows. " * (1 + i % 4) + f"What is number {i % 5}? " + "Say it. " * (i % 3)
    return {"messages": [{"role": "user", "content": content}], "seed": i, "temperature": 1,
            "max_tokens": max_tokens, "ignore_eos": True}


def ask(server, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(server.url + "/v1/chat/completions", data,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def run_clients(server, requests, wanted, seconds, n_clients):
    """Sends requests from `n_clients` threads until time is up: (answers, preempted, problems)."""
    end = time.monotonic() + seconds
    lock, counts, problems = threading.Lock(), [0], []

    def client(seed):
        rng = random.Random(seed)
        while time.monotonic() < end and not problems:
            i = rng.randrange(len(requests))
            try:
                answer = ask(server, requests[i])
            except urllib.error.HTTPError as error:
                problems.append(f"request {i}: {error.code} {error.read()[:300]!r}")
                return
            except OSError as error:
                problems.append(f"request {i}: {error}")
                return
            with lock:
                counts[0] += 1
            if text_of(answer) != wanted[i]:
                problems.append(f"request {i}: {text_of(answer)!r} instead of {wanted[i]!r}")

    threads = [threading.Thread(target=client, args=(k,)) for k in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts[0], server.stats()["preempted"], problems


def small_pool(engine_args, seconds, n_clients, factor, max_tokens, n_requests=12, debug=True):
    requests = [request_of(i, max_tokens) for i in range(n_requests)]
    large = conftest.Server(*engine_args, debug=False)
    try:
        answers = [ask(large, r) for r in requests]
    finally:
        large.stop()
    wanted = [text_of(a) for a in answers]
    need = max(a["usage"]["prompt_tokens"] for a in answers) + max_tokens
    pages = int(need * factor)
    small = conftest.Server(*engine_args, "-c", str(need), "--cache-size", f"{pages}t",
                            "--max-seqs", str(n_clients), "--max-waiting", str(4 * n_clients),
                            debug=debug)
    try:
        n, preempted, problems = run_clients(small, requests, wanted, seconds, n_clients)
        stats = small.wait_idle()
    finally:
        status = small.stop()
    log = small.log()
    if stats["pages_private"] != 0:
        problems.append(f"{stats['pages_private']} pages are private to nobody")
    if status != 0 or "Sanitizer" in log:
        problems.append(f"exit status {status}: ...{log[-2000:]}")
    return {"need": need, "pages": pages, "answers": n, "preempted": preempted,
            "problems": problems}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--model")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--factor", type=float, default=1.2)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--release", action="store_true",
                        help="the fast build, which does not check itself")
    args = parser.parse_args()
    conftest.BUILD = args.build
    engine_args = ["-m", args.model] if args.model else ["--engine", "mock"]
    result = small_pool(engine_args, args.seconds, args.clients, args.factor, args.max_tokens,
                        debug=not args.release)
    for problem in result["problems"][:5]:
        print(problem, file=sys.stderr)
    print(f"one request needs {result['need']} pages, the pool has {result['pages']}: "
          f"{result['answers']} answers, {result['preempted']} preemptions, "
          f"{len(result['problems'])} wrong")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
