"""The server under attack: started on a loopback address, measured, and ended by its process id."""
import collections
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

ADDRESS = "127.0.0.1"
START_TIMEOUT_S = 120
PAGE = os.sysconf("SC_PAGE_SIZE")

Answer = collections.namedtuple("Answer", "status headers body seconds")


def default_model():
    return os.path.expanduser("~/.cache/radish/SmolLM2-135M-Instruct.Q4_1.gguf")


class Target:
    """A `radish serve` of our own. Leaves no process behind: use it in a `with`."""

    def __init__(self, binary, *options, wait=True, environment=None):
        self.log_file = tempfile.NamedTemporaryFile(prefix="radish-attack-", suffix=".log")
        self.peak_bytes = 0
        self.process = subprocess.Popen(
            [binary, "serve", "--port", "0", *map(str, options)], stdout=self.log_file,
            stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})})
        self.port = 0
        self.tls = None
        self.admin = None  # headers that /stats needs
        threading.Thread(target=self._watch, daemon=True).start()
        if wait:
            self.wait_listening()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def wait_listening(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = re.search(r"listening on https?://[^ :]+:(\d+)", self.log())
            if found:
                self.port = int(found.group(1))
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.end()
        raise RuntimeError("the server did not start:\n" + self.log())

    def _watch(self):
        """The peak is sampled, because tests want it for a part of the server's life."""
        while self.process.poll() is None:
            self.peak_bytes = max(self.peak_bytes, self.rss())
            time.sleep(0.05)

    def rss(self):
        try:
            with open(f"/proc/{self.process.pid}/statm") as statm:
                return int(statm.read().split()[1]) * PAGE
        except (OSError, IndexError):
            return 0

    def anonymous(self):
        """Resident bytes that are no file's: a model that is mapped does not count."""
        try:
            with open(f"/proc/{self.process.pid}/status") as status:
                return int(re.search(r"RssAnon:\s+(\d+)", status.read()).group(1)) * 1024
        except (OSError, AttributeError):
            return 0

    def log(self):
        with open(self.log_file.name, errors="replace") as log:
            return log.read()

    def is_alive(self):
        return self.process.poll() is None

    def ask(self, method, path, body=None, headers=None, timeout=60, source=None):
        """One request on a connection of its own."""
        text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        begin = time.monotonic()
        options = {"timeout": timeout, "source_address": (source, 0) if source else None}
        if self.tls:
            connection = http.client.HTTPSConnection(ADDRESS, self.port, context=self.tls, **options)
        else:
            connection = http.client.HTTPConnection(ADDRESS, self.port, **options)
        try:
            given = {"Content-Type": "application/json"} if text is not None else {}
            connection.request(method, path, text, {**given, **(headers or {})})
            answer = connection.getresponse()
            data = answer.read()
            return Answer(answer.status, answer.headers, data, time.monotonic() - begin)
        finally:
            connection.close()

    def cpu_seconds(self):
        """What all its threads have computed so far."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stats(self):
        return json.loads(self.ask("GET", "/stats", headers=self.admin).body)

    def wait_idle(self, timeout=60):
        """Waits until nothing runs or waits; returns the statistics, or None after `timeout`."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            stats = self.stats()
            if not stats["running"] and not stats["waiting"] and not stats["completions"]:
                return stats
            time.sleep(0.05)
        return None

    def signal(self, number):
        if self.is_alive():
            self.process.send_signal(number)

    def wait(self, timeout):
        """The exit status, or None if it still runs."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def end(self, timeout=10):
        self.signal(signal.SIGTERM)
        if self.wait(timeout) is None:
            self.process.kill()
            self.process.wait()
        return self.process.returncode
