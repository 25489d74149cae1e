#!/usr/bin/env python3
"""Checks that keys get what their limits say: 20 keys with different limits, all asking for more.

    tools/key_limits.py [SECONDS [BINARY]]      default: 60 s, build/radish with the mock engine

Half of the keys have a limit of requests a minute, half of tokens a minute. Each first uses up what
it may use at once; then what it gets within SECONDS is compared with its limit. Prints a line per key
and fails if one is off by 5 % or more.
"""
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

REQUESTS = [120, 180, 240, 300, 420, 600, 780, 900, 1080, 1200]
TOKENS = [6000, 9000, 12000, 15000, 18000, 24000, 30000, 42000, 54000, 60000]
WORKERS = 3  # of each key, one request at a time each
MOST_OFF = 0.05


class Key:
    def __init__(self, name, kind, limit):
        self.name, self.kind, self.limit = name, kind, limit
        self.drained_at = None  # the first answer after the first 429
        self.got = self.refused = 0

    def line(self):
        return f"sk-{self.name} name={self.name} tenant={self.name} {self.kind}-per-minute={self.limit}\n"

    def off(self, seconds):
        return self.got / (self.limit * seconds / 60) - 1


async def ask(reader, writer, key, n_tokens):
    """One request on a kept connection: its status and the tokens it used."""
    body = json.dumps({"messages": [{"role": "user", "content": "x" * n_tokens}], "max_tokens": 8,
                       "ignore_eos": True, "temperature": 0}).encode()
    writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 f"Authorization: Bearer sk-{key.name}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE).group(1))
    answer = json.loads(await reader.readexactly(length))
    return int(head[9:12]), answer.get("usage", {}).get("total_tokens", 0)


async def work(port, key, seconds):
    reader = writer = None
    # Large prompts use up a minute's tokens soon; after that, many small ones.
    while key.drained_at is None or time.monotonic() < key.drained_at + seconds:
        if writer is None or writer.is_closing():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        was_refused = key.refused > 0
        try:
            status, used = await ask(reader, writer, key, 20 if was_refused or key.kind == "requests" else 2000)
        except (asyncio.IncompleteReadError, ConnectionError):  # a 429 comes before the body is read
            writer.close()
            continue
        now = time.monotonic()
        if status == 429:
            key.refused += 1
            writer.close()
            await asyncio.sleep(0.02)
        elif key.drained_at is None:
            key.drained_at = now if was_refused else None
        elif now < key.drained_at + seconds:
            key.got += 1 if key.kind == "requests" else used
    if writer:
        writer.close()


async def load(port, keys, seconds):
    await asyncio.gather(*(work(port, key, seconds) for key in keys for _ in range(WORKERS)))


def start(binary, keys, folder):
    path = os.path.join(folder, "keys")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(key.line() for key in keys)
    log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
    process = subprocess.Popen([binary, "serve", "--engine", "mock", "--port", "0", "--api-key-file", path,
                                "--log-level", "info"], stderr=log, stdout=log)
    while True:
        found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", open(log.name, encoding="utf-8").read())
        if found:
            return process, int(found.group(1))
        if process.poll() is not None:
            sys.exit("the server did not start: " + open(log.name, encoding="utf-8").read())
        time.sleep(0.02)


def measure(binary, keys, seconds):
    with tempfile.TemporaryDirectory() as folder:
        process, port = start(binary, keys, folder)
        try:
            asyncio.run(load(port, keys, seconds))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    binary = sys.argv[2] if len(sys.argv) > 2 else "build/radish"
    keys = [Key(f"r{n}", "requests", n) for n in REQUESTS] + [Key(f"t{n}", "tokens", n) for n in TOKENS]
    measure(binary, keys, seconds)
    for key in keys:
        print(f"{key.name:8} {key.kind:8} limit {key.limit * seconds / 60:8.0f}  got {key.got:7}  "
              f"{100 * key.off(seconds):+5.1f} %  refused {key.refused}")
    worst = max(abs(key.off(seconds)) for key in keys)
    print(f"worst: {100 * worst:.1f} %")
    return 1 if worst >= MOST_OFF else 0


if __name__ == "__main__":
    sys.exit(main())
