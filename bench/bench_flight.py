#!/usr/bin/env python3
"""Identical concurrent requests: how much do they cost compared with one?

    bench/bench_flight.py --model FILE [--radish build/radish] [--requests 8] [--repeats 5]

Sends a new prompt of about 2,000 tokens once, then another new one from several clients at the same
moment, alternately, and reports the best of each. The prompt's tokens must be computed only once,
and all answers must be equal; otherwise it fails. Only the standard library is used.
"""
import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

WORDS = ("radish turnip kale bean leek garden soil water seed root leaf frost shade rain clay compost "
         "spade barrow fence gate path hedge bee worm moss bark").split()
OPENING = 64  # tokens that all conversations of a template may share


def start(args):
    log = tempfile.NamedTemporaryFile(prefix="radish-bench-", suffix=".txt")
    process = subprocess.Popen([args.radish, "serve", "-m", args.model, "--port", "0", "-t",
                                str(args.threads)], stdout=log, stderr=subprocess.STDOUT)
    while process.poll() is None:
        with open(log.name) as text:
            found = re.search(r"listening on (http://\S+)", text.read())
        if found:
            return process, found.group(1)
        time.sleep(0.05)
    sys.exit("the server did not start")


def get(url, body=None):
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def ask_at_once(url, prompt, n, max_tokens):
    """Returns (seconds, answers, rows computed) for `n` equal requests."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens,
            "temperature": 0, "ignore_eos": True}
    answers = [None] * n

    def ask(i):
        answers[i] = get(url + "/v1/chat/completions", body)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(n)]
    before = get(url + "/stats")["rows"]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began, answers, get(url + "/stats")["rows"] - before


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=16)
    args = parser.parse_args()
    process, url = start(args)
    best = {1: float("inf"), args.requests: float("inf")}
    wrong = 0
    try:
        for repeat in range(args.repeats):
            for n in best:
                rng = random.Random(repeat * 100 + n)
                prompt = " ".join(rng.choice(WORDS) for _ in range(1640))
                seconds, answers, rows = ask_at_once(url, prompt, n, args.max_tokens)
                best[n] = min(best[n], seconds)
                n_prompt = answers[0]["usage"]["prompt_tokens"]
                once = rows <= n_prompt + n * args.max_tokens
                equal = len({a["choices"][0]["message"]["content"] for a in answers}) == 1
                wrong += not once or not equal or rows < n_prompt - OPENING
                print(f"{n} at once, {n_prompt} tokens: {seconds:.3f} s, {rows} rows computed, "
                      f"{'equal' if equal else 'DIFFERENT'} answers", flush=True)
    finally:
        process.terminate()
        process.wait()
    n = args.requests
    print(f"best of {args.repeats}: one {best[1]:.3f} s, {n} at once {best[n]:.3f} s, "
          f"{best[n] / best[1]:.3f} times")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
