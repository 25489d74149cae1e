"""What a case prints: the victim alone, the victim under attack, and the server's memory."""
import threading
import time

import wire
from target import Target, default_model
from victim import Victim, measure_apart

ATTACKER = "127.0.0.2"  # another address than the victim's: clients without keys are told apart by it
MESSAGES = [{"role": "user", "content": "Hi"}]
LIMIT = 2.0             # times normal; what the project promises


class Settings:
    """How the cases start servers: from the command line of run.py."""

    def __init__(self, radish, engine="cpu", seconds=6, model=None):
        self.radish, self.engine, self.seconds = radish, engine, seconds
        self.model = model or default_model()

    def serve(self, *options, engine=None, **more):
        engine = engine or self.engine
        which = ["--engine", "mock", "--mock-batch-cost-us", "2000"] if engine == "mock" else \
            ["-m", self.model, "--engine", "cpu", "-t", "2"]
        return Target(self.radish, *which, *options, **more)


class Attack(threading.Thread):
    """Runs `step(i)` in `n` threads again and again until it is stopped. Errors are what an attack
    expects: a refused connection, a reset, an early end."""

    def __init__(self, step, n=1):
        super().__init__(daemon=True)
        self.step, self.n = step, n
        self.stopping = threading.Event()
        self.counts = [0] * n

    def _loop(self, i):
        while not self.stopping.is_set():
            try:
                if self.step(i) is False:
                    return
            except (OSError, EOFError, ValueError):
                time.sleep(0.02)
            self.counts[i] += 1

    def run(self):
        threads = [threading.Thread(target=self._loop, args=(i,), daemon=True)
                   for i in range(self.n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def stop(self, timeout=5):
        self.stopping.set()
        self.join(timeout)


def stream_to_end(port, body, source=ATTACKER, headers=(), timeout=60, stopping=None):
    """Reads a stream and drops it; returns the number of tokens that arrived."""
    n = 0
    with wire.connect(port, timeout, source) as sock:
        sock.sendall(wire.request("/v1/chat/completions", body, headers=headers))
        for line in sock.makefile("rb"):
            n += line.startswith(b"data: {")
            if line.startswith(b"data: [DONE]") or (stopping and stopping.is_set()):
                break
    return n


def streams(target, n, headers=(), **fields):
    """An attack, or a load: n streams that are read to their end, again and again."""
    attack = Attack(None, n)
    def step(i):
        body = {"messages": MESSAGES, "stream": True, "max_tokens": 300, "temperature": 1.5,
                "seed": i, **fields}
        stream_to_end(target.port, body, headers=headers, stopping=attack.stopping)
    attack.step = step
    return attack


class Row:
    """One line of the table."""
    HEAD = ("attack", "TTFT normal", "under", "max", "ratio", "gap normal", "under", "max", "ratio",
            "RSS before", "peak", "notes")

    def __init__(self, name, normal, under, before, peak, notes="", enough=0):
        self.name, self.normal, self.under = name, normal, under
        self.before, self.peak, self.notes = before, peak, notes
        self.enough = enough  # seconds that are no harm, whatever the ratio

    def ratios(self):
        """Under attack to normal: of the times to the first token, and of the gaps."""
        return (self.under.median_first() / self.normal.median_first(),
                self.under.mean_gap() / self.normal.mean_gap())

    def holds(self):
        pairs = zip(self.ratios(), (self.under.worst_first(), self.under.mean_gap()))
        return all(r < LIMIT or s < self.enough for r, s in pairs) and not self.under.failed

    def cells(self):
        first, gap = self.ratios()
        notes = [self.notes] if self.notes else []
        if self.under.failed:
            notes.append(f"{len(self.under.failed)} chats failed: {self.under.failed[0]}")
        return (self.name, ms(self.normal.median_first()), ms(self.under.median_first()),
                ms(self.under.worst_first()), f"{first:.1f}", ms(self.normal.mean_gap()),
                ms(self.under.mean_gap()), ms(max(self.under.gaps, default=float("nan"))),
                f"{gap:.1f}", mib(self.before), mib(self.peak), "; ".join(notes))


def ms(seconds):
    return f"{1e3 * seconds:.0f} ms" if seconds >= 0.1 else f"{1e3 * seconds:.1f} ms"


def mib(n_bytes):
    return f"{n_bytes / (1 << 20):.0f} MiB"


def table(rows):
    """Rows of cells as Markdown."""
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def row_table(rows):
    return table([Row.HEAD, ["---"] * len(Row.HEAD)] + [row.cells() for row in rows])


def warm_up(port, **victim):
    """The first chat touches memory for the first time."""
    Victim(port, **victim).chat()


def compare(name, target, attack, seconds, victim=None, prepare=0.5, notes=None, beside=None):
    """A row: the victim alone, then while the attack runs. With `beside`, an honest load of the same
    size, normal is not alone but beside that."""
    victim = victim or {}
    warm_up(target.port, **victim)
    if beside:
        beside.start()
        time.sleep(prepare)
    normal = measure_apart(target.port, seconds, **victim)
    if beside:
        beside.stop()
        target.wait_idle()
    before = target.rss()
    target.peak_bytes = 0
    attack.start()
    time.sleep(prepare)
    under = measure_apart(target.port, seconds, **victim)
    attack.stop()
    row = Row(name, normal, under, before, target.peak_bytes, notes() if notes else "")
    if not target.is_alive():
        row.notes = f"THE SERVER ENDED ({target.process.returncode}) " + row.notes
    return row
