"""Servers for the tests: each on a free loopback port, ended by its own process id.

RADISH_BUILD names the folder of the binaries (default build), RADISH_TEST_MODEL the model.
The mock engine runs in the debug binary, so that sanitizers and the scheduler's own checks watch
every test; the real model runs in the release binary.
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

import openai
import pytest

BUILD = os.environ.get("RADISH_BUILD", "build")
MODEL = os.environ.get(
    "RADISH_TEST_MODEL",
    os.path.expanduser("~/.cache/radish/SmolLM2-135M-Instruct.Q4_1.gguf"))
START_TIMEOUT_S = 120


class Server:
    """A running `radish serve`. Ends when stopped; its log stays readable.

    `tls`: the ssl.SSLContext of its clients, if it speaks TLS.
    """

    def __init__(self, *args, debug=True, tls=None):
        self.tls = tls
        binary = os.path.join(BUILD, "radish-debug" if debug else "radish")
        self.log_file = tempfile.NamedTemporaryFile(prefix="radish-log-", suffix=".txt")
        self.process = subprocess.Popen([binary, "serve", "--port", "0", *args],
                                        stdout=self.log_file, stderr=subprocess.STDOUT)
        self.port = self._wait_for_port()

    def _wait_for_port(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = re.search(r"listening on .*?https?://127\.0\.0\.1:(\d+)", self.log())
            if found:
                return int(found.group(1))
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.process.kill()
        self.process.wait()
        raise RuntimeError("the server did not start:\n" + self.log())

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def log(self):
        with open(self.log_file.name, errors="replace") as log:
            return log.read()

    def client(self, **options):
        options.setdefault("timeout", 120)
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, **options)

    def connect(self, timeout=30):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        return self.tls.wrap_socket(sock, server_hostname="127.0.0.1") if self.tls else sock

    def get(self, path, headers=None, method="GET", body=None):
        """(status, headers, body) of one request on a connection of its own."""
        if self.tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60,
                                                     context=self.tls)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def post(self, body, headers=None):
        text = body if isinstance(body, (str, bytes)) else json.dumps(body)
        return self.get("/v1/chat/completions", {"Content-Type": "application/json",
                                                 **(headers or {})}, "POST", text)

    def stats(self):
        return json.loads(self.get("/stats")[2])

    def wait_idle(self, timeout=30):
        """Waits until nothing runs or waits, and returns the statistics."""
        deadline = time.monotonic() + timeout
        while True:
            stats = self.stats()
            if stats["running"] == 0 and stats["waiting"] == 0 and stats["completions"] == 0:
                return stats
            assert time.monotonic() < deadline, f"still busy: {stats}"
            time.sleep(0.01)

    def send_signal(self, number):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGTERM, timeout=60):
        """Ends the server and returns its exit status."""
        if self.process.poll() is None:
            self.send_signal(number)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def check_end(server):
    """Checks that a stopped server exited with 0 and that its log has no sanitizer report."""
    status = server.stop()
    log = server.log()
    assert "Sanitizer" not in log and "runtime error" not in log, log[-8000:]
    assert status == 0, f"exit status {status}:\n{log[-4000:]}"


@pytest.fixture
def start():
    """Starts servers for this test only: start("--strict-fields")."""
    servers = []

    def run(*args, **options):
        server = Server("--engine", "mock", *args, **options)
        servers.append(server)
        return server

    yield run
    for server in servers:
        check_end(server)


@pytest.fixture(scope="session")
def mock():
    server = Server("--engine", "mock")
    yield server
    check_end(server)


@pytest.fixture(scope="session")
def slow():
    """Every step takes 5 ms, so that answers take long enough to be interrupted."""
    server = Server("--engine", "mock", "--mock-batch-cost-us", "5000")
    yield server
    check_end(server)


@pytest.fixture(scope="session")
def real():
    if not os.path.exists(MODEL):
        pytest.skip(f"there is no model at {MODEL}")
    server = Server("-m", MODEL, debug=False)
    yield server
    check_end(server)


@pytest.fixture(params=["mock", "real"])
def server(request):
    return request.getfixturevalue(request.param)
