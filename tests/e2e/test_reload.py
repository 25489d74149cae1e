"""SIGHUP: keys are read again, and nothing that runs notices."""
import json
import signal
import threading
import time

import pytest

from conftest import Server
from test_keys import CHAT, bearer, chat


@pytest.fixture
def reloading(start, tmp_path):
    """A server with a key file, and a function that writes the file and waits for the log to say
    what became of it."""
    file = tmp_path / "keys"

    class Reloading:
        def begin(self, text, *args):
            file.write_text(text)
            self.server = start("--api-key-file", str(file), *args)
            return self.server

        def reload(self, text, says="reloaded; keys: "):
            n = self.server.log().count(says)
            file.write_text(text)
            self.server.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 20
            while self.server.log().count(says) == n:
                assert time.monotonic() < deadline, self.server.log()
                time.sleep(0.005)

    return Reloading()


def test_keys_come_and_go(reloading):
    server = reloading.begin("a:k1\nb:k2\nadmin:root\n", "--api-key", "c:fixed")
    assert [chat(server, bearer(key)) for key in ("k1", "k2", "k3", "fixed")] == [200, 200, 401, 200]
    reloading.reload("d:k3\nb:k2\nadmin:root\n")
    assert [chat(server, bearer(key)) for key in ("k1", "k2", "k3", "fixed")] == [401, 200, 200, 200]
    assert "reloaded; keys: 3, tenants: 3, admin keys: 1\n" in server.log()


def test_a_wrong_file_changes_nothing(reloading):
    server = reloading.begin("a:k1\n")
    for text, problem in (("a:k2\nodd name:SECRET\n", ", line 2: "), ("", "has no keys"),
                          ("a:SECRET\nb:SECRET\n", "two tenants"), ("# none\n", "has no keys")):
        reloading.reload(text, "error the keys stay as they were: --api-key-file ")
        assert problem in server.log()
        assert [chat(server, bearer(key)) for key in ("k1", "k2", "SECRET")] == [200, 401, 401]
    assert "SECRET" not in server.log()
    reloading.reload("a:k2\n")
    assert [chat(server, bearer(key)) for key in ("k1", "k2")] == [401, 200]


def test_a_new_tenant_never_gets_the_cache_of_an_old_one(reloading):
    server = reloading.begin("a:k1\nadmin:root\n")
    body = {**CHAT, "messages": [{"role": "user", "content": "a secret " * 10}]}

    def cached(key):
        usage = json.loads(server.post(body, bearer(key))[2])["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert [cached("k1"), cached("k1") > 50] == [0, True]
    reloading.reload("b:k1\nadmin:root\n")  # the same key, of another tenant
    assert cached("k1") == 0
    reloading.reload("a:k9\nadmin:root\n")  # the old tenant, with another key
    assert cached("k9") > 50


def test_what_runs_goes_on_and_buckets_stay(reloading):
    server = reloading.begin("a:k1\nb:k2 requests-per-minute=2\n", "--mock-batch-cost-us", "5000")
    body = json.dumps({**CHAT, "max_tokens": 60, "ignore_eos": True, "stream": True}).encode()
    with server.connect() as stream:
        stream.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                       b"Content-Type: application/json\r\nAuthorization: Bearer k1\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
        received = stream.recv(65536)
        assert [chat(server, bearer("k2")) for _ in range(3)] == [200, 200, 429]
        reloading.reload("b:k2 requests-per-minute=2\n")
        assert chat(server, bearer("k1")) == 401
        assert chat(server, bearer("k2")) == 429
        while piece := stream.recv(65536):
            received += piece
    assert b"data: [DONE]" in received and received.count(b'"content":') >= 50


def test_no_request_is_lost_under_load(reloading):
    texts = ["a:k1\nb:k2\nold:k3\n", "b:k2 name=n\nnew:k4\na:k1\n"]
    server = reloading.begin(texts[0])
    statuses, is_over = [], threading.Event()

    def ask(key):
        while not is_over.is_set():
            statuses.append(chat(server, bearer(key)))

    threads = [threading.Thread(target=ask, args=(key,)) for key in ("k1", "k2") * 2]
    for thread in threads:
        thread.start()
    n_reloads = 0
    while n_reloads < 10 or len(statuses) < 40:
        n_reloads += 1
        reloading.reload(texts[n_reloads % 2])
    is_over.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200}


def test_in_its_first_moments():
    """Without a terminal, SIGHUP does not end a server that is still loading."""
    server = Server("--engine", "mock", "--api-key", "k", debug=False)
    server.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while "reloaded; keys: 1" not in server.log():
        assert time.monotonic() < deadline and server.process.poll() is None, server.log()
        time.sleep(0.005)
    assert server.stop() == 0
