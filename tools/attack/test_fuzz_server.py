"""The fuzzer notices what is wrong, and makes the same of the same seed."""
import json
import socket
import threading

import pytest

import fuzz_inputs
import fuzz_server

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
BAD = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "


class Fake:
    """A server that sends the same bytes to every client and closes."""
    tls = None

    def __init__(self, answer):
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        client, _ = self.listener.accept()
        with client:
            client.recv(65536)
            client.sendall(self.answer)
            client.shutdown(socket.SHUT_WR)
            client.recv(65536)


def play(answer, kind="exact", count=1, most=1, expected=200):
    script = {"n": 0, "server": "open", "plain": False, "kind": kind, "steps": [["send", b"GET / HTTP/1.1\r\n\r\n"]],
              "end": "read", "count": count, "most": most, "names": ["GET /"] * (count or 1)}
    return fuzz_server.run_script(Fake(answer), script, {"GET /": expected})


@pytest.mark.parametrize("answer, options", [
    (b"", {}),                                                         # no answer
    (b"", {"kind": "wire", "count": None}),
    (OK[:-1], {}),                                                     # cut
    (b"nonsense\r\n\r\n", {}),
    (OK.replace(b": 2", b": x"), {}),
    (OK.replace(b"{}", b"{]"), {}),                                    # no JSON
    (OK.replace(b"200 OK", b"500 Oops"), {"kind": "wire", "count": None}),
    (OK, {"expected": 404}),
    (OK * 2, {"kind": "wire", "count": None}),                         # more answers than requests
    (BAD + b"12\r\n\r\n" + b'{"error":{}}' + OK, {"kind": "wire", "count": None, "most": 9}),
    (BAD + b"2\r\n\r\n{}", {"kind": "wire", "count": None}),           # an error that says nothing
    (OK.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked") + b"\r\n", {}),
])
def test_it_notices(answer, options):
    with pytest.raises(fuzz_server.Finding):
        play(answer, **options)


def test_it_accepts_what_is_right():
    assert play(OK) == [200]
    assert play(OK * 2, count=2, most=2) == [200, 200]
    assert play(BAD + b'12\r\n\r\n{"error":{}}', kind="wire", count=None) == [400]


def test_a_seed_repeats_every_connection():
    corpus = fuzz_inputs.Corpus()
    again = fuzz_inputs.Corpus()
    scripts = [fuzz_inputs.script("7", n, corpus) for n in range(300)]
    assert scripts == [fuzz_inputs.script("7", n, again) for n in range(300)]
    assert scripts != [fuzz_inputs.script("8", n, corpus) for n in range(300)]
    text = json.dumps(fuzz_inputs.to_json(scripts))
    assert fuzz_inputs.from_json(json.loads(text)) == scripts


def test_every_route_and_many_fields_are_used():
    corpus = fuzz_inputs.Corpus()
    text = (fuzz_inputs.ROOT / "docs" / "api.md").read_text()
    asked = {(r.method, r.target.partition("?")[0].rsplit("/", 1)[0]) for r in corpus.requests}
    assert {(method, path.rsplit("/", 1)[0]) for method, path in fuzz_inputs.routes(text)} <= asked
    assert len(fuzz_inputs.routes(text)) > 30 and len(corpus.fields) > 100
