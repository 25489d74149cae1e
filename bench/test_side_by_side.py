"""Tests side_by_side.py: how it reads answers, and whole runs with radish as its own peer. RADISH_BUILD names the
folder of the binaries (default build), RADISH_TEST_MODEL the model."""
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import side_by_side

BUILD = os.environ.get("RADISH_BUILD", "build")
MODEL = os.environ.get("RADISH_TEST_MODEL",
                       os.path.expanduser("~/.cache/radish/SmolLM2-135M-Instruct.Q4_1.gguf"))
TIMEOUT_S = 300
needs_model = pytest.mark.skipif(not os.path.exists(MODEL), reason="the default model is not there")


def event(text=None, **more):
    choices = [{"delta": {"content": text}}] if text is not None else []
    return b"data: " + json.dumps({"choices": choices, **more}).encode() + b"\n\n"


USAGE = event(usage={"completion_tokens": 3, "prompt_tokens": 9})
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_an_answer_has_the_times_at_which_its_text_was_whole():
    raw = HEAD + chunk(event("")) + chunk(event("a")) + chunk(event("b") + event("c")) + chunk(
        USAGE + b"data: [DONE]\n\n") + b"0\r\n\r\n"
    whole = side_by_side.Answer([(1.0, raw)])
    assert (whole.text, whole.n_tokens, whole.times) == ("abc", 3, [1.0] * 3)
    # Byte by byte: a piece of text has arrived when its line is complete.
    single = side_by_side.Answer([(float(i), raw[i:i + 1]) for i in range(len(raw))])
    ends = [raw.index(b"\n", raw.index(b'"%c"' % c)) for c in b"abc"]
    assert [abs(time - end) <= 1 for time, end in zip(single.times, ends)] == [True] * 3
    for cut in range(1, len(raw)):
        two = side_by_side.Answer([(1.0, raw[:cut]), (2.0, raw[cut:])])
        assert two.text == "abc" and two.times == sorted(two.times) and set(two.times) <= {1.0, 2.0}


def test_an_answer_without_chunks_and_failures():
    plain = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + event("hi") + USAGE
    assert side_by_side.Answer([(1.0, plain)]).times == [1.0]
    for raw in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 Busy\r\n\r\n{}",
                HEAD + chunk(b'data: {"error": {"message": "no"}}\n\n')):
        with pytest.raises(side_by_side.Failure):
            side_by_side.Answer([(1.0, raw)])
    request = side_by_side.Request("hi", 4)
    request.pieces = [(1.0, plain)]
    with pytest.raises(side_by_side.Failure, match="generated 3 tokens, not 4"):
        request.answer()


def test_rows_by_name():
    def names(text):
        return [row.name for row in side_by_side.rows_named(text)]

    assert names("gap,decode") == ["decode", "gap"]
    assert names("prefill") == ["prefill-512", "prefill-2048", "prefill-4096"]
    assert len(names("engine")) == 5 and len(names("engine,server")) == len(side_by_side.ROWS)
    with pytest.raises(SystemExit, match="no row 'x'"):
        names("decode,x")


def test_a_peer_that_hangs_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = side_by_side.Client(listener.getsockname()[1], 0.3)
        with pytest.raises(side_by_side.Failure, match="no answer after 0.3 s"):
            client.run([side_by_side.Request("hi", 1)])


def test_requests_lead_to_others():
    """A server that answers each request completely, in its own thread."""
    raw = HEAD + chunk(event("abc")) + chunk(USAGE) + b"0\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            for _ in range(3):
                connection = listener.accept()[0]
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(raw)

        thread = threading.Thread(target=serve)
        thread.start()
        last = side_by_side.Request("3", 3)
        second = side_by_side.Request("2", 3, then=lambda _: [last])
        first = side_by_side.Request("1", 3, then=lambda _: [second])
        side_by_side.Client(listener.getsockname()[1], 30).run([first])
        thread.join()
    assert first.end <= second.begin <= second.end <= last.begin
    assert last.answer().text == "abc" and last.first_token_s() > 0


def script(path, text):
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def run(*args):
    done = subprocess.run([str(Path(side_by_side.__file__)), "--model", MODEL, "--radish", f"{BUILD}/radish",
                           "--repeats", "1", *args], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stdout, done.stderr


@needs_model
def test_a_whole_run_beside_a_peer(tmp_path):
    # The peer is radish itself, without llama-server's options that it lacks.
    server = script(tmp_path / "server", f"""
import os, sys
args = sys.argv[1:]
if args == ["--version"]:
    sys.exit(print("version: 7 (abc)"))
for name, n in (("-fa", 2), ("--no-webui", 1)):
    at = args.index(name)
    del args[at:at + n]
args[args.index("-c") + 1] = "4096"  # of one sequence, not of all
os.execv({f"{BUILD}/radish"!r}, ["radish", "serve", *args])
""")
    bench = script(tmp_path / "bench", """
import json
print(json.dumps([{"samples_ts": [0.5, 1.0], "build_commit": "abc"}]))
""")
    status, out, err = run("--rows", "decode,streams", "--llama-bench", bench, "--llama-server", server, "--json",
                           "--threads", "1")
    assert status == 0, err
    told = json.loads(out)
    assert told["versions"]["llama.cpp"] == "7 (abc)" and told["threads"] == 1
    decode, streams = told["models"][0]["rows"]
    assert decode["row"] == "decode" and decode["llama.cpp"] == 1.0 and decode["ratio"] == decode["radish"]
    assert decode["limit"] > 0 and decode["unit"] == "tokens/s"
    assert streams["ratio"] == pytest.approx(streams["radish"] / streams["llama.cpp"])
    assert len(streams["radish all"]) == len(streams["llama.cpp all"]) == 1


@needs_model
def test_a_table_of_radish_alone_and_of_a_peer_that_fails(tmp_path):
    status, out, err = run("--rows", "decode", "--threads", "1")
    assert status == 0, err
    assert re.search(r"^SmolLM2.*; 1 thread; radish .* on cpu \(.*; best of 1$", out, re.M)
    assert re.search(r"^\| decode, one stream, tokens/s \| +[\d.,]+ \| +\d+% \|$", out, re.M), out
    assert "ratio" not in out
    bench = script(tmp_path / "bench", "import sys\nsys.exit('out of luck')\n")
    status, out, err = run("--rows", "decode", "--threads", "1", "--llama-bench", bench)
    assert status == 1 and "decode, llama.cpp: " in out and "out of luck" in out
    assert re.search(r"^\| decode, one stream, tokens/s \| +[\d.,]+ \| +- \| +- \|", out, re.M), out
