#!/usr/bin/env python3
"""Kills streaming clients at random moments and checks that nobody else notices.

    kill_clients.py --url http://127.0.0.1:8080 --clients 400 --kill 200

First every survivor's request is answered undisturbed. Then all clients run at once; those to be
killed drop their connection (half of them with a reset) after a random time or number of bytes.
The survivors' answers must equal the undisturbed ones, and the server must be idle afterwards with
every page free or cached. Prints one line of totals; exits 1 when anything is wrong.
"""
import argparse
import asyncio
import json
import random
import socket
import struct
import sys
import urllib.parse
import urllib.request


def request_of(i, max_tokens):
    """All requests share a prefix, and some share the whole prompt. Each has its own seed."""
    content = "Tell a story of a radish " + "and a turnip " * (i % 7) + f"number {i % 23}."
    return {"messages": [{"role": "user", "content": content}], "seed": i, "stream": True,
            "temperature": 1, "max_tokens": max_tokens, "ignore_eos": True}


def http_request(body):
    data = json.dumps(body).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data)) + data


def text_of(answer):
    """The text of a complete streamed answer; raises if it is incomplete."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise ValueError(f"answered {answer[:300]!r}")
    plain = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        plain += body[:int(size, 16)]
        body = body[int(size, 16) + 2:]
    if not plain.endswith(b"data: [DONE]\n\n"):
        raise ValueError(f"cut short: ...{plain[-300:]!r}")
    text = ""
    for event in plain.decode().split("\n\n"):
        if event.startswith("data: {"):
            data = json.loads(event[6:])
            if "error" in data:
                raise ValueError(data["error"]["message"])
            text += "".join(c["delta"].get("content", "") for c in data["choices"])
    return text


async def connect(address):
    for attempt in range(20):
        try:
            return await asyncio.open_connection(*address)
        except OSError:
            await asyncio.sleep(0.05 * (attempt + 1))
    raise ConnectionError("cannot connect")


async def survive(address, i, max_tokens):
    reader, writer = await connect(address)
    writer.write(http_request(request_of(i, max_tokens)))
    answer = await reader.read()
    writer.close()
    return text_of(answer)


async def be_killed(address, i, max_tokens, rng):
    """Drops its connection: in the request, before the answer, or somewhere in it."""
    reader, writer = await connect(address)
    data = http_request(request_of(i, max_tokens))
    moment = rng.random()
    if moment < 0.1:
        data = data[:rng.randrange(len(data))]
    writer.write(data)
    if moment < 0.4:
        await asyncio.sleep(rng.random() * 0.3)
    elif moment < 0.9:
        await reader.read(rng.randrange(1, 20000))
        await asyncio.sleep(rng.random() * 0.2)
    if rng.random() < 0.5:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def stats_of(url):
    with urllib.request.urlopen(url + "/stats") as answer:
        return json.load(answer)


async def idle_stats(url, timeout=60):
    for _ in range(timeout * 20):
        stats = stats_of(url)
        if not (stats["running"] or stats["waiting"] or stats["completions"]):
            return stats
        await asyncio.sleep(0.05)
    return stats


async def run(url, n_clients, n_kill, max_tokens, seed=1, width=16):
    """Returns a list of what went wrong."""
    parts = urllib.parse.urlsplit(url)
    address = (parts.hostname, parts.port)
    rng = random.Random(seed)
    killed = set(rng.sample(range(n_clients), n_kill))
    survivors = [i for i in range(n_clients) if i not in killed]
    turn = asyncio.Semaphore(width)

    async def undisturbed(i):
        async with turn:
            return await survive(address, i, max_tokens)

    wanted = dict(zip(survivors, await asyncio.gather(*map(undisturbed, survivors))))

    async def one(i):
        await asyncio.sleep(rng.random() * 0.5)
        if i in killed:
            return await be_killed(address, i, max_tokens, rng)
        return await survive(address, i, max_tokens)

    results = await asyncio.gather(*map(one, range(n_clients)), return_exceptions=True)
    wrong = []
    for i, result in enumerate(results):
        if isinstance(result, Exception):
            wrong.append(f"client {i}: {result!r}")
        elif i not in killed and result != wanted[i]:
            wrong.append(f"client {i}: got {result!r}, expected {wanted[i]!r}")
    stats = await idle_stats(url)
    if stats["running"] or stats["waiting"] or stats["completions"] or stats["pages_private"]:
        wrong.append(f"not idle afterwards: {stats}")
    if stats["pages_free"] + stats["pages_cached"] != stats["pages"]:
        wrong.append(f"pages are lost: {stats}")
    if stats["canceled"] == 0 and n_kill:
        wrong.append("nothing was cancelled")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--clients", type=int, default=400)
    parser.add_argument("--kill", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    wrong = asyncio.run(run(args.url, args.clients, args.kill, args.max_tokens, args.seed))
    for line in wrong[:20]:
        print(line)
    print(f"{args.clients} clients, {args.kill} killed, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
