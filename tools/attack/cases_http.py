"""Hostile HTTP: what it is answered, what it costs, and what another client notices."""
import collections
import os
import resource
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import http_shapes
import wire
from cases_steps import streams
from measure import ATTACKER, Attack, compare, mib, table

MIB = 1 << 20
SOURCES = [f"127.0.1.{i}" for i in range(1, 9)]  # an address has at most 256 connections
HEALTH = wire.request("/health")
# What a connection may take with its header and input: http_memory_bound in src/serve/http.
CONNECTION_BYTES = 100 * 1024


# ---- the right answers --------------------------------------------------------------------------

def shapes(settings):
    """Shapes of requests, and the one right answer to each: no second answer for smuggled bytes."""
    rows, good = [["shapes", "right", "wrong"], ["---"] * 3], True
    with settings.serve("--header-timeout", "5", "--body-timeout", "5", "--idle-timeout", "5", engine="mock") as target:
        for group, members in http_shapes.ALL.items():
            wrong = []
            for name, (data, want) in members.items():
                found, body = http_shapes.answers(target.port, data)
                if found != want or not http_shapes.is_explained(found, body):
                    wrong.append(f"{name}: {found} instead of {want} {body[:100]!r}")
            rows.append([group, len(members) - len(wrong), "; ".join(wrong) or "none"])
            good &= not wrong
        good &= target.is_alive() and target.end() == 0
    return table(rows), good


# ---- what a victim notices ----------------------------------------------------------------------

class Held(Attack):
    """Holds `n` connections and calls `push(sock, i)` for each, round after round. One that ends, or
    whose push returns False, is opened again."""

    def __init__(self, port, n, push, begin=b"", sources=(ATTACKER,), pause=0.05, **options):
        super().__init__(None)
        self.port, self.size, self.push, self.begin = port, n, push, begin
        self.sources, self.pause, self.options = sources, pause, options
        self.sockets = [None] * n
        self.opened = threading.Event()
        self.n_opened = 0
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def _open(self, i):
        self.sockets[i] = wire.connect(self.port, 5, self.sources[i % len(self.sources)], **self.options)
        self.n_opened += 1
        self.sockets[i].sendall(self.begin)
        self.sockets[i].setblocking(False)

    def _push(self, i):
        try:
            if self.sockets[i] is None:
                self._open(i)
            if self.push(self.sockets[i], i) is not False:
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        if self.sockets[i]:
            self.sockets[i].close()
        self.sockets[i] = None

    def run(self):
        # A real attacker computes elsewhere: this one must not slow the server down by itself.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while not self.stopping.is_set():
            for i in range(self.size):
                if self.stopping.is_set():
                    break
                self._push(i)
            self.opened.set()
            time.sleep(self.pause)
        for sock in filter(None, self.sockets):
            sock.close()


def is_closed(sock):
    """Reads what there is; True at the end."""
    try:
        return sock.recv(65536) == b""
    except BlockingIOError:
        return False


def bounded(row, bound, what):
    """Memory may grow by that much, and a little."""
    row.notes += f"{'; ' if row.notes else ''}bound {mib(bound)} ({what})"
    if row.peak - row.before > bound + 24 * MIB:
        row.under.failed.append(f"memory grew by {mib(row.peak - row.before)}")
    return row


def slow_writers(settings):
    """200 clients that send headers or bodies byte by byte."""
    head, body = http_shapes.get(extra=b"A: " + b"x" * 4000 + b"\r\n"), http_shapes.post(b" " * 4000)
    begin_body = len(body) - 4000
    with settings.serve("--header-timeout", "5", "--body-timeout", "5") as target:
        at = collections.Counter()

        def push(sock, i):
            data = body if i % 2 else head
            at[sock] = at[sock] or (begin_body if i % 2 else 0)
            sock.send(data[at[sock]:at[sock] + 1])
            at[sock] += 1
            return not is_closed(sock)
        attack = Held(target.port, 200, push)
        attack.begin = b""

        def first(i, open_=attack._open):
            open_(i)
            if i % 2:
                attack.sockets[i].send(body[:begin_body])
        attack._open = first
        row = compare("h. 200 slow writers", target, attack, max(settings.seconds, 8),
                      notes=lambda: f"{attack.n_opened} connections")
        return bounded(row, 200 * CONNECTION_BYTES, "connections")


def slow_readers(settings):
    """32 streams whose clients read a byte now and then (normal: 32 who read)."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 1500, "ignore_eos": True,
            "logprobs": True, "top_logprobs": 20}
    with settings.serve() as target:
        attack = Held(target.port, 32, lambda sock, i: sock.recv(1) != b"",
                      wire.request("/v1/chat/completions", body), receive_buffer=4096)
        row = compare("h. 32 slow readers (normal: 32 who read)", target, attack, max(settings.seconds, 8),
                      beside=streams(target, 32, ignore_eos=True, logprobs=True, top_logprobs=20), prepare=2)
        return bounded(row, 256 * MIB, "--max-unsent-mib")


def idle(settings):
    """1,000 idle connections."""
    with settings.serve() as target:
        attack = Held(target.port, 1000, lambda sock, i: not is_closed(sock), HEALTH,
                      (SOURCES * 113)[:900] + ["127.0.0.1"] * 100, pause=0.5)  # some slots are for this machine
        row = compare("h. 1,000 idle connections", target, attack, settings.seconds, prepare=3,
                      notes=lambda: f"{attack.n_opened} opened")
        return bounded(row, 1000 * CONNECTION_BYTES, "connections")


def slow_heads(settings):
    """1,100 slow headers from one address: /health and an admin's /stats stay reachable."""
    times = []
    with settings.serve() as target:
        attack = Held(target.port, 1100, lambda sock, i: not is_closed(sock), b"GET / HTTP/1.1\r\n", pause=0.2)
        looking = Attack(None)

        def look(_):
            for path, source in (("/health", None), ("/stats", None), ("/health", "127.0.0.3"), ("/health", ATTACKER)):
                answer = target.ask("GET", path, source=source, timeout=10)
                times.append(answer.seconds if answer.status == 200 else 99)
            time.sleep(0.1)
        looking.step = look
        attack.start()
        attack.opened.wait(20)
        looking.start()
        time.sleep(2)
        looking.stop()
        attack.stop()
        again = Held(target.port, 1100, attack.push, attack.begin, pause=0.2)
        row = compare("h. 1,100 slow headers from one address", target, again, settings.seconds, prepare=3,
                      notes=lambda: f"{len(times)} /health and /stats, longest {1e3 * max(times):.0f} ms")
        if max(times) > 1:
            row.under.failed.append("a /health or /stats was not answered within a second")
        return bounded(row, 1024 * CONNECTION_BYTES, "connections")


def flood(settings, name, data_of, n, statuses, bound=0, what="", prepare=0.5):
    """`n` clients send the bytes again and again, each time on a new connection."""
    found = collections.Counter()
    with settings.serve() as target:
        def step(i):
            with wire.connect(target.port, 60, ATTACKER) as sock:
                try:
                    for piece in data_of(i):
                        sock.sendall(piece)
                except OSError:
                    pass  # refused before all was sent
                try:
                    found[wire.Reader(sock).answer()[0]] += 1
                except EOFError:
                    found["reset"] += 1
        row = compare(name, target, Attack(step, n), settings.seconds, prepare=prepare,
                      notes=lambda: f"answers {dict(found)}")
        if not found or set(found) - set(statuses) - {"reset"}:
            row.under.failed.append(f"answers {dict(found)}")
        return bounded(row, bound, what) if bound else row


def declared(settings):
    """Bodies of 100 MB by Content-Length: refused before they arrive."""
    head = http_shapes.post(b"", length=b"Content-Length: 100000000\r\n")
    return flood(settings, "h. bodies of 100 MB, declared", lambda i: [head] + [b"x" * MIB] * 100, 4, [413],
                 4 * CONNECTION_BYTES, "connections")


def endless(settings):
    """Chunked bodies without end: refused at --max-body-mib."""
    head, chunk = http_shapes.post(b"", length=http_shapes.CHUNKED), b"10000\r\n" + b"x" * 65536 + b"\r\n"
    return flood(settings, "h. chunked bodies without end", lambda i: [head] + [chunk] * 1600, 4, [413],
                 4 * 32 * MIB * 2, "4 bodies of --max-body-mib, and their growth")


def tiny_chunks(settings):
    """Chunks of one byte with long extensions."""
    head, chunk = http_shapes.post(b"", length=http_shapes.CHUNKED), b"1;" + b"x" * 250 + b"\r\n \r\n"
    return flood(settings, "h. chunks of one byte, long extensions",
                 lambda i: [head] + [chunk * 1000] * 20 + [b"0\r\n\r\n"], 2, [400])


def array(settings):
    """Arrays of a million elements, again and again."""
    data = http_shapes.BODIES["a million elements"][0]
    return flood(settings, "h. arrays of a million elements", lambda i: [data], 2, [400], 2 * 128 * MIB,
                 "2 bodies as values")


def deep(settings):
    """6 MB of opening brackets."""
    data = http_shapes.post(b"[" * (6 * MIB))
    return flood(settings, "h. 6 MB of [", lambda i: [data], 2, [400], 2 * 64 * MIB, "2 bodies, and their growth")


def pipeline(settings):
    """Four clients that send requests without end, and read no answer."""
    with settings.serve() as target:
        block = HEALTH * 1000
        attack = Held(target.port, 4, lambda sock, i: sock.send(block) >= 0, pause=0.001)
        row = compare("h. pipelines without end, unread", target, attack, settings.seconds)
        return bounded(row, 4 * (CONNECTION_BYTES + 256 * 1024), "connections")


def in_line(row):
    """A request may wait a little for its turn to be read."""
    row.enough = 0.01
    return row


def pipeline_read(settings):
    """Four clients that send cheap requests without end, and read the answers."""
    with settings.serve() as target:
        attack = Held(target.port, 4, read_push(HEALTH * 2000), pause=0.0005)
        return in_line(compare("h. pipelines without end, read", target, attack, settings.seconds))


def push_of(block, n_bytes):
    """A push of a block again and again, until so many bytes are sent on a connection."""
    sent, view = collections.Counter(), memoryview(block)

    def push(sock, _):
        sent[sock] += sock.send(view[sent[sock] % len(block):])
        return sent[sock] < n_bytes
    return push


def read_push(block):
    """The same without end; what the server answers is read."""
    push = push_of(block, float("inf"))

    def read_and_push(sock, i):
        try:
            while sock.recv(1 << 18):
                pass
            return False
        except BlockingIOError:
            return push(sock, i)
    return read_and_push


def bursts(settings):
    """40 bodies in bursts of 240 KiB, with pauses of 10 ms."""
    with settings.serve() as target:
        attack = Held(target.port, 40, push_of(b"x" * 240 * 1024, 5 * MIB),
                      http_shapes.post(b"", length=b"Content-Length: 6000000\r\n"), pause=0.0105)
        return in_line(compare("h. 40 bodies in bursts", target, attack, settings.seconds))


def byte_chunks(settings):
    """Bodies in chunks of one byte."""
    with settings.serve() as target:
        attack = Held(target.port, 4, push_of(b"1\r\nx\r\n" * 20000, 64 * MIB),
                      http_shapes.post(b"", length=http_shapes.CHUNKED), pause=0.0005)
        return in_line(compare("h. chunks of one byte", target, attack, settings.seconds))


def crowd(settings):
    """240 connections of one address push bodies: another address uploads 4 MB."""
    body = {"messages": [{"role": "user", "content": "x" * 4_000_000}]}
    times = []
    with settings.serve() as target:
        attack = Held(target.port, 240, push_of(b"x" * 64 * 1024, MIB - 64 * 1024),
                      http_shapes.post(b"", length=b"Content-Length: 1000000\r\n"), pause=0.001)
        attack.start()
        attack.opened.wait(20)
        for _ in range(max(2, int(settings.seconds))):
            answer = target.ask("POST", "/v1/chat/completions", body, source="127.0.0.3", timeout=60)
            times.append(answer.seconds if answer.status == 400 else 99)
        attack.stop()
    rows = [["240 connections push bodies; an upload of 4 MB", "longest"],
            ["---"] * 2, [len(times), f"{1e3 * max(times):.0f} ms"]]
    return table(rows), max(times) < 0.5


def pushing(settings):
    """A client that pushes data while it is answered."""
    data = wire.request("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream": True,
                                                 "max_tokens": 1500, "ignore_eos": True})
    with settings.serve() as target:
        attack = Held(target.port, 4, lambda sock, i: sock.send(b"\r\n" * 32768) >= 0 and not is_closed(sock), data,
                      pause=0.001)
        row = compare("h. 4 clients push while they are answered (normal: 4 streams)", target, attack,
                      settings.seconds, beside=streams(target, 4, ignore_eos=True))
        return bounded(row, 4 * 1500 * 24 * 1024, "the cache of 4 answers")


def half_closed(settings):
    """Clients that ask for a stream and close their sending side: nothing runs for them."""
    data = wire.request("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream": True,
                                                 "max_tokens": 1500, "ignore_eos": True})
    with settings.serve() as target:
        def step(_):
            with wire.connect(target.port, 20, ATTACKER) as sock:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
            time.sleep(0.02)
        row = compare("h. half-closed clients", target, Attack(step, 4), settings.seconds)
        stats = target.wait_idle(10)
        if not stats or stats["connections"] > 1:
            row.under.failed.append(f"left over: {stats}")
        return row


def resets(settings):
    """Up to 2,000 connections a second that are reset at once, some within a request."""
    n = collections.Counter()
    with settings.serve() as target:
        def step(i):
            sock = wire.connect(target.port, 5, SOURCES[i])
            if n["connections"] % 3 == 0:
                sock.sendall(HEALTH[:20])
            wire.reset(sock)
            n["connections"] += 1
            time.sleep(0.001)
        row = compare("h. connects and resets", target, Attack(step, 2), settings.seconds, notes=lambda: str(dict(n)))
        stats = target.wait_idle(10)
        if not stats or stats["connections"] > 1:
            row.under.failed.append(f"left over: {stats}")
        return row


# ---- TLS ------------------------------------------------------------------------------------------

def client_hello():
    """The first bytes of a handshake, which can be sent again and again: cheap for a client only."""
    out, context = ssl.MemoryBIO(), wire.any_certificate()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def with_tls(settings, name, attack_of, notes=None):
    with tempfile.TemporaryDirectory(prefix="radish-attack-") as folder:
        files = wire.make_certificate(folder, "rsa")
        if not files:
            return "openssl is not installed"
        with settings.serve("--tls-cert", files[0], "--tls-key", files[1]) as target:
            target.tls = wire.any_certificate()
            attack = attack_of(target)
            row = compare(name, target, attack, settings.seconds, victim={"tls": True},
                          notes=lambda: notes(attack) if notes else "")
            row.enough = 0.02  # a handshake of another client more than usual is no harm
            return row


def handshakes(settings):
    """240 handshakes at a time with a certificate of RSA: much work for the server, none for the client."""
    hello = client_hello()

    def attack_of(target):
        return Held(target.port, 240, lambda sock, i: sock.recv(1) == b"", hello, pause=0.02)
    return with_tls(settings, "h. 240 TLS handshakes at a time", attack_of,
                    lambda attack: f"{attack.n_opened} handshakes")


class Commands(Attack):
    """openssl's client, with the same command again and again."""

    def __init__(self, port, command, *options):
        super().__init__(None)
        self.port, self.command, self.options = port, command, options

    def run(self):
        while not self.stopping.is_set():
            # A real attacker computes elsewhere: this one must not slow the server down by itself.
            with subprocess.Popen(["nice", "-n", "19", "openssl", "s_client", "-connect", f"127.0.0.1:{self.port}", *self.options],
                                  stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as client:
                self.counts[0] += 1
                try:
                    while not self.stopping.is_set():
                        os.write(client.stdin.fileno(), self.command)
                        time.sleep(0.0005)
                except OSError:
                    pass
                client.kill()


def renegotiation(settings):
    """A client of TLS 1.2 that asks for a new handshake without end."""
    return with_tls(settings, "h. TLS renegotiation", lambda target: Commands(target.port, b"R\n", "-tls1_2"))


def key_updates(settings):
    """A client of TLS 1.3 that renews the keys without end."""
    return with_tls(settings, "h. TLS key updates", lambda target: Commands(target.port, b"K\n", "-tls1_3"))


CASES = {"shapes": shapes, "slow-writers": slow_writers, "slow-readers": slow_readers, "idle": idle,
         "slow-heads": slow_heads, "body-declared": declared, "body-endless": endless, "tiny-chunks": tiny_chunks,
         "array": array, "deep": deep, "pipeline": pipeline, "pipeline-read": pipeline_read, "bursts": bursts,
         "byte-chunks": byte_chunks, "crowd": crowd, "pushing": pushing, "half-closed": half_closed, "resets": resets,
         "handshakes": handshakes, "renegotiation": renegotiation, "key-updates": key_updates}
