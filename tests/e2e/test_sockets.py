"""Where the server listens: Unix sockets, several addresses, sockets passed by a service manager,
and what it tells the service manager."""
import http.client
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

import pytest

from conftest import BUILD

RADISH = os.path.join(BUILD, "radish-debug")
PASS_SOCKETS = """
import os, sys
for i, fd in enumerate(map(int, sys.argv[1].split(","))):
    os.dup2(fd, 3 + i)
    os.set_inheritable(3 + i, True)
os.environ["LISTEN_PID"] = sys.argv[2] if sys.argv[2] != "own" else str(os.getpid())
os.environ["LISTEN_FDS"] = str(len(sys.argv[1].split(",")))
os.execv(sys.argv[3], sys.argv[3:])
"""


class Process:
    """`radish serve --engine mock` with these options, and no others."""

    def __init__(self, *args, sockets=(), pid="own", env=None):
        command = [RADISH, "serve", "--engine", "mock", *args]
        if sockets:  # above the numbers that they are moved to
            numbers = [os.dup(s.fileno()) for s in sockets]
            numbers = [os.dup2(n, 50 + i) for i, n in enumerate(numbers)]
            command = [sys.executable, "-c", PASS_SOCKETS, ",".join(map(str, numbers)), pid, *command]
        self.log_file = tempfile.NamedTemporaryFile(prefix="radish-log-", suffix=".txt")
        self.process = subprocess.Popen(command, stdout=self.log_file, stderr=subprocess.STDOUT,
                                        pass_fds=numbers if sockets else (),
                                        env={**os.environ, **(env or {})})
        for number in numbers if sockets else ():
            os.close(number)

    def log(self):
        with open(self.log_file.name, errors="replace") as log:
            return log.read()

    def wait(self):
        """Waits until it serves, and returns where; or until it has failed, and returns why."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if found := re.search(r"listening on (.*) \(ready", self.log()):
                return found.group(1)
            if self.process.poll() is not None:
                return self.log()
            time.sleep(0.02)
        raise AssertionError("neither started nor failed:\n" + self.log())

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(60)
        assert "Sanitizer" not in self.log(), self.log()
        return status


@pytest.fixture
def run():
    processes = []

    def begin(*args, **options):
        processes.append(Process(*args, **options))
        return processes[-1]

    yield begin
    for process in processes:
        process.end(signal.SIGTERM)


@pytest.fixture
def folder():
    """A short path: that of a Unix socket has 107 bytes at most."""
    path = tempfile.mkdtemp(prefix="radish-")
    yield path
    shutil.rmtree(path)


def get_unix(path, target="/health", headers=None):
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    connection.request("GET", target, headers=headers or {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def get_tcp(port, target="/health"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", target)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def port_in(urls):
    return int(re.search(r"http://127\.0\.0\.1:(\d+)", urls).group(1))


def test_a_unix_socket(run, folder):
    path = f"{folder}/radish.sock"
    for host in (path, f"unix:{path}"):
        server = run("--host", host)
        assert server.wait() == f"unix:{path}"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        assert get_unix(path) == (200, b'{"status":"ok"}')
        assert get_unix(path, "/v1/models", {"Host": "evil.example"})[0] == 403
        assert "anyone who can reach" not in server.log()
        assert server.end() == 0
        assert not os.path.exists(path)


def test_several_addresses(run, folder):
    path = f"{folder}/a"
    server = run("--port", "0", "--listen", "127.0.0.1:0", "--listen", f"unix:{path}",
                 "--socket-mode", "0600")
    urls = server.wait().split(", ")
    assert len(urls) == 3 and f"unix:{path}" in urls
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert get_unix(path)[0] == 200
    ports = [port_in(url) for url in urls if url.startswith("http")]
    assert len(set(ports)) == 2
    for port in ports:
        assert get_tcp(port)[0] == 200
    # A server that stops leaves all of them.
    assert server.end() == 0
    assert not os.path.exists(path)
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            get_tcp(port)


def test_only_the_given_addresses(run):
    server = run("--listen", "127.0.0.1:0")
    assert server.wait().count("http://") == 1


def test_a_killed_server_leaves_a_file_that_the_next_one_replaces(run, folder):
    path = f"{folder}/a.sock"
    first = run("--host", path)
    first.wait()
    second = run("--host", path)
    assert "another program listens there" in second.wait()
    assert second.end() != 0
    assert get_unix(path)[0] == 200
    first.end(signal.SIGKILL)
    assert os.path.exists(path)
    third = run("--host", path)
    assert third.wait() == f"unix:{path}"
    assert get_unix(path)[0] == 200


@pytest.mark.parametrize("args, message", [
    (["--host", "a.sock", "--port", "1"], "--port has no effect on the Unix socket"),
    (["--listen", "nonsense"], "--listen needs HOST:PORT or :PORT"),
    (["--listen", "127.0.0.1:99999"], "--listen needs HOST:PORT or :PORT"),
    (["--socket-mode", "0600", "--port", "0"], "--socket-mode has no effect"),
    (["--socket-mode", "rw", "--host", "a.sock"], "--socket-mode needs permissions"),
    (["--host", "unix:"], "a Unix socket's path has 1 to 107 bytes"),
    (["--host", "unix:/no/such/folder/a"], "No such file or directory"),
    (["--max-connections", "5", "--max-connections-per-address", "6"], "is more than"),
])
def test_addresses_that_cannot_be(run, args, message):
    assert message in run(*args).wait()


def test_sockets_of_a_service_manager(run, folder):
    path = f"{folder}/a.sock"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(path)
        unix.listen()
        port = tcp.getsockname()[1]
        server = run(sockets=[tcp, unix])
        assert server.wait() == f"http://127.0.0.1:{port}, unix:{path}"
        assert get_tcp(port)[0] == 200 and get_unix(path)[0] == 200
        assert server.end() == 0
        assert os.path.exists(path)  # it is the service manager's
        # The next one takes what waits.
        with socket.create_connection(("127.0.0.1", port), timeout=30) as early:
            early.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            run(sockets=[tcp]).wait()
            assert early.recv(4096).startswith(b"HTTP/1.1 ")


def test_sockets_for_another_process(run):
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        server = run("--port", "0", sockets=[tcp], pid="1")
        assert port_in(server.wait()) != tcp.getsockname()[1]


def test_a_descriptor_that_is_no_socket_for_it(run):
    with socket.socket() as silent:
        assert "is not a listening stream socket" in run(sockets=[silent]).wait()


def test_the_service_manager_is_told(run, folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{folder}/notify")
        manager.settimeout(30)
        server = run("--port", "0", env={"NOTIFY_SOCKET": f"{folder}/notify"})
        assert manager.recv(4096) == b"READY=1"
        assert get_tcp(port_in(server.wait()))[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert manager.recv(4096) == b"STOPPING=1"
        assert server.end() == 0
