"""Another client: how long it waits for its first token, and between tokens.

    victim.py --port 8080 --seconds 10

Streams short chats, each on a connection of its own, one after the other. Prompts are unique, so
that nothing comes from the cache unless `--cached` is given.
"""
import argparse
import json
import socket
import subprocess
import sys
import threading
import time
import uuid

import wire


def percentile(values, share):
    """The value below which that share of the values lies; nan for none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Times:
    """What one or more chats measured, in seconds."""

    def __init__(self):
        self.first = []     # to the first token, of each chat
        self.gaps = []      # between tokens
        self.failed = []    # why a chat had no whole answer
        self.n_tokens = 0

    def median_first(self):
        return percentile(self.first, 0.5)

    def worst_first(self):
        return max(self.first, default=float("nan"))

    def gap(self, share=0.5):
        return percentile(self.gaps, share)

    def mean_gap(self):
        """Tokens may arrive in bursts, so the mean says what the median hides."""
        return sum(self.gaps) / len(self.gaps) if self.gaps else float("nan")

    def describe(self):
        text = f"TTFT median {1e3 * self.median_first():.0f} ms, max {1e3 * self.worst_first():.0f}; " \
               f"gap mean {1e3 * self.mean_gap():.1f} ms, median {1e3 * self.gap():.1f}, p95 {1e3 * self.gap(0.95):.1f}, " \
               f"max {1e3 * max(self.gaps, default=float('nan')):.0f}; {len(self.first)} chats"
        return text + (f", {len(self.failed)} failed: {self.failed[0]}" if self.failed else "")


class Victim:
    """Chats in a thread until `stop`. An answer that has not begun counts with the time that it has
    waited so far, so that a server that stands still is not measured as fast."""

    def __init__(self, port, max_tokens=24, cached=False, headers=(), timeout=120, tls=False):
        self.port, self.max_tokens, self.cached = port, max_tokens, cached
        self.tls = wire.any_certificate() if tls else None
        self.headers, self.timeout = headers, timeout
        self.times = Times()
        self.stopping = threading.Event()
        self.thread = None
        self.sock = None
        self.waiting_since = None
        self.last_token = None

    def body(self):
        text = "Tell me about soil." if self.cached else f"{uuid.uuid4().hex}: tell me about soil."
        return {"messages": [{"role": "user", "content": text}], "stream": True, "temperature": 0,
                "max_tokens": self.max_tokens, "ignore_eos": True, "cache_prompt": self.cached}

    def chat(self):
        """One chat; raises OSError or ValueError if it does not end well."""
        begin = time.monotonic()
        self.waiting_since, self.last_token = begin, None
        with wire.connect(self.port, self.timeout, tls=self.tls) as sock:
            self.sock = sock
            sock.sendall(wire.request("/v1/chat/completions", self.body(), headers=self.headers))
            file = sock.makefile("rb")
            status = file.readline().split()
            if status[1:2] != [b"200"]:
                raise ValueError(f"status {b' '.join(status[1:2]).decode() or 'none'}")
            done = False
            for line in file:
                if line.startswith(b"data: [DONE]"):
                    done = True
                    break
                if line.startswith(b"data: ") and self._is_token(line):
                    self._note(time.monotonic(), begin)
            if not done:
                raise ValueError("the stream ended early")

    @staticmethod
    def _is_token(line):
        event = json.loads(line[6:])
        if "error" in event:
            raise ValueError(event["error"]["message"])
        return any("content" in choice["delta"] and choice["delta"]["content"]
                   for choice in event["choices"])

    def _note(self, now, begin):
        self.times.n_tokens += 1
        if self.last_token is None:
            self.times.first.append(now - begin)
            self.waiting_since = None
        else:
            self.times.gaps.append(now - self.last_token)
        self.last_token = now

    def _run(self):
        while not self.stopping.is_set():
            try:
                self.chat()
            except (OSError, ValueError, IndexError) as e:
                if not self.stopping.is_set():
                    self.times.failed.append(str(e) or type(e).__name__)
                    time.sleep(0.05)

    def start(self):
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def stop(self):
        """Ends the current chat, too, and returns the times."""
        self.stopping.set()
        now = time.monotonic()
        if self.waiting_since is not None:
            self.times.first.append(now - self.waiting_since)
        elif self.last_token is not None:
            self.times.gaps.append(now - self.last_token)
        self.waiting_since = self.last_token = None
        if self.sock:
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.thread.join(10)
        return self.times


def measure(port, seconds, **options):
    victim = Victim(port, **options).start()
    time.sleep(seconds)
    return victim.stop()


def measure_apart(port, seconds, **options):
    """The same in a process of its own, which an attack by this process cannot slow down."""
    options = {"port": port, "seconds": seconds, **options}
    done = subprocess.run([sys.executable, __file__, "--json", json.dumps(options)],
                          capture_output=True, timeout=seconds + 60, check=True)
    times = Times()
    times.__dict__.update(json.loads(done.stdout))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--cached", action="store_true", help="the same prompt each time")
    parser.add_argument("--json", help="options of measure(), for measure_apart()")
    args = parser.parse_args()
    if args.json:
        json.dump(measure(**json.loads(args.json)).__dict__, sys.stdout)
    elif args.port:
        print(measure(args.port, args.seconds, cached=args.cached).describe())
    else:
        parser.error("--port is missing")


if __name__ == "__main__":
    main()
