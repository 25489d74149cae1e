"""Work before the first token: long texts, schemas that are slow to compile, answers nobody reads."""
import collections
import json
import threading
import time

import wire
from measure import ATTACKER, Attack, compare, streams

MESSAGES = [{"role": "user", "content": "Hi"}]
UNREAD = 40
MIB = 1 << 20


def chat(port, body, timeout, source=ATTACKER):
    """One chat that is not streamed; returns the status."""
    with wire.connect(port, timeout, source) as sock:
        sock.sendall(wire.request("/v1/chat/completions", body))
        return wire.Reader(sock).answer()[0]


def slow_schema(i):
    """97 bytes that take half a second or more to compile; a different one for each `i`."""
    return {"type": "integer", "multipleOf": 997, "minimum": -10**15 - i, "maximum": 10**15 + i}


def schema_body(i):
    return {"messages": MESSAGES, "max_tokens": 1, "response_format": {
        "type": "json_schema", "json_schema": {"name": "a", "schema": slow_schema(i)}}}


def tokenize(settings, name, text, n):
    data = wire.request("/tokenize", {"content": text})
    found = collections.Counter()
    with settings.serve() as target:
        def step(_):
            with wire.connect(target.port, 120, ATTACKER) as sock:
                sock.sendall(data)
                found[wire.Reader(sock).answer()[0]] += 1
        return compare(name, target, Attack(step, n), settings.seconds,
                       notes=lambda: f"answers {dict(found)}")


def tokenize_largest(settings):
    """Two clients that tokenize 30 MB, again and again."""
    return tokenize(settings, "a. two /tokenize of 30 MB", "radish root " * (30 * MIB // 12), 2)


def tokenize_longest(settings):
    """Sixteen clients that tokenize the longest text that is accepted, and a slow one."""
    return tokenize(settings, "a. 16 /tokenize of 1 MiB of spaces", " " * MIB, 16)


class Schemas:
    """Thirty clients, each with schemas of its own."""

    def __init__(self, port, hang_up):
        self.port, self.hang_up = port, hang_up
        self.lock, self.next = threading.Lock(), 0

    def step(self, _):
        with self.lock:
            self.next += 1
            body = schema_body(self.next)
        with wire.connect(self.port, 120, ATTACKER) as sock:
            sock.sendall(wire.request("/v1/chat/completions", body))
            if self.hang_up:
                time.sleep(0.05)
            else:
                wire.Reader(sock).answer()


def slow_schemas(settings):
    """Thirty different schemas at once that are slow to compile."""
    with settings.serve() as target:
        schemas = Schemas(target.port, hang_up=False)
        return compare("a. 30 slow schemas at once", target, Attack(schemas.step, 30),
                       settings.seconds)


def slow_schemas_hang_up(settings):
    """The same, but each client hangs up after 50 ms: nobody wants the work."""
    with settings.serve() as target:
        schemas = Schemas(target.port, hang_up=True)
        return compare("a. slow schemas, clients hang up", target, Attack(schemas.step, 30),
                       settings.seconds, notes=lambda: f"{schemas.next} schemas sent")


def large_bodies(settings):
    """Twelve bodies of 32 MiB, almost all of it white space, again and again: no memory for others."""
    body = json.dumps(schema_body(0)).encode()
    data = wire.request("/v1/chat/completions", b" " * (32 * MIB - len(body)) + body)
    found = collections.Counter()
    with settings.serve() as target:
        def step(_):
            with wire.connect(target.port, 120, ATTACKER) as sock:
                sock.sendall(data)
                found[wire.Reader(sock).answer()[0]] += 1
        return compare("a. 12 bodies of 32 MiB", target, Attack(step, 12), settings.seconds, prepare=3,
                       notes=lambda: f"answers {dict(found)}")


def abandoned(settings):
    """One client is busy with slow schemas, and hangs up on thousands of small requests."""
    small = wire.request("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1})
    with settings.serve() as target:
        schemas = Schemas(target.port, hang_up=False)

        def step(i):
            if i < 2:
                schemas.step(i)
                return
            with wire.connect(target.port, 10, ATTACKER) as sock:
                sock.sendall(small)
            time.sleep(0.002)  # up to 2,000 a second: this attack needs the same cores
        return compare("a. slow schemas beside requests that are hung up on", target, Attack(step, 6),
                       max(settings.seconds, 10), prepare=3)


class Unread:
    """Sends requests one after the other, each on a connection of its own, and reads no answer."""

    def __init__(self, port, data, n):
        self.port, self.data, self.n = port, data, n
        self.sockets = []

    def step(self, _):
        if len(self.sockets) >= self.n:
            return False
        sock = wire.connect(self.port, 120, ATTACKER, receive_buffer=4096)
        self.sockets.append(sock)
        sock.sendall(self.data)
        return True

    def close(self):
        for sock in self.sockets:
            sock.close()


def unread(settings, name, data, n, beside=0):
    with settings.serve() as target:
        attack = Unread(target.port, data, n)
        row = compare(name, target, Attack(attack.step), max(settings.seconds, 10),
                      beside=streams(target, beside, ignore_eos=True) if beside else None)
        deadline = time.monotonic() + 30  # the rest of the work counts for the peak, too
        while target.stats()["completions"] and time.monotonic() < deadline:
            time.sleep(0.2)
        row.peak = max(row.peak, target.peak_bytes)
        attack.close()
        return row


def unread_pieces(settings):
    """Whole answers of /tokenize with_pieces, 23 times as long as the text, which nobody reads."""
    data = wire.request("/tokenize", {"content": "1234567890" * (MIB // 10), "with_pieces": True})
    return unread(settings, f"c. {UNREAD} unread answers with pieces", data, UNREAD)


def unread_template(settings):
    """Rendered prompts of 30 MB, which nobody reads."""
    data = wire.request("/apply-template", {"messages": [
        {"role": "user", "content": "radish root " * (30 * MIB // 12)}]})
    return unread(settings, f"c. {UNREAD} unread /apply-template of 30 MB", data, UNREAD)


def unread_logprobs(settings):
    """Whole answers with 128 choices and log probabilities, which nobody reads. Normal is beside 15
    plain streams, which fill the batch as the choices do."""
    data = wire.request("/v1/chat/completions", {
        "messages": MESSAGES, "n": 128, "max_tokens": 200, "ignore_eos": True, "logprobs": True,
        "top_logprobs": 20, "temperature": 1})
    return unread(settings, "c. 3 unread answers, n: 128 with log probabilities (normal: 15 plain)",
                  data, 3, beside=15)


CASES = {"tokenize": tokenize_largest, "tokenize-longest": tokenize_longest,
         "schemas": slow_schemas, "schemas-hangup": slow_schemas_hang_up,
         "bodies": large_bodies, "abandoned": abandoned, "unread-pieces": unread_pieces, "unread-template": unread_template,
         "unread-logprobs": unread_logprobs}
