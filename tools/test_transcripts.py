"""Tests transcripts.py: what it normalises, what it rejects, and that two recordings of one build are equal.
RADISH_BUILD names the folder of the binaries (default build)."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

import transcripts

RADISH = os.path.join(os.environ.get("RADISH_BUILD", "build"), "radish-debug")


def answer(body, *fields):
    return "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *fields, "", body]).encode()


def run(*args):
    done = subprocess.run([sys.executable, transcripts.__file__, *args], capture_output=True, text=True, timeout=300,
                          check=False)
    return done.returncode, done.stdout + done.stderr


def test_ids_and_times_are_replaced():
    first, second = "chatcmpl-" + "a1" * 12, "call_" + "Zz9" * 8
    text = '{"id":"%s","created":1794823758,"calls":["%s","%s"],"idle_s":0.022,"tokens":12}' % (first, second, second)
    kept = transcripts.transcript(answer(text, "Date: Mon, 16 Nov 2026 10:09:18 GMT", f"x-request-id: {first}"))
    head, _, body = kept.partition(b"\r\n\r\n")
    assert body == b'{"id":"ID-1","created":TIME,"calls":["ID-2","ID-2"],"idle_s":TIME,"tokens":12}'
    assert b"Date: TIME\r\nx-request-id: ID-1" in head and b"Content-Length: %d\r\n" % len(body) in head
    # Another run has different ids, times and lengths.
    other = text.replace(first, "chatcmpl-" + "b2" * 12).replace(second, "call_" + "Yy8" * 8).replace("0.022", "13.5")
    assert transcripts.transcript(answer(other, "Date: x", "x-request-id: chatcmpl-" + "b2" * 12)) == kept
    assert transcripts.transcript(answer(text.replace("12}", "13}"))) != transcripts.transcript(answer(text))


def test_a_wrong_length_is_refused():
    with pytest.raises(ValueError, match="Content-Length"):
        transcripts.transcript(answer("{}") + b" ")


def test_chunks():
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for chunks in (b"3\r\nabc\r\n0\r\n\r\n", b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"):
        assert transcripts.transcript(chunked + chunks).endswith(b"\r\n\r\nabc")
    for chunks in (b"", b"3\r\nabc\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\nx"):
        with pytest.raises(ValueError):
            transcripts.transcript(chunked + chunks)


def test_events_are_sorted_by_choice():
    def events(*texts):
        return b"".join(b"data: %s\n\n" % text for text in texts)

    def choice(i, text):
        return b'{"choices":[{"index":%d,"delta":"%s"}]}' % (i, text)

    one, another = (choice(0, b"a"), choice(0, b"b")), (choice(1, b"c"), choice(1, b"d"))
    end = (b'{"choices":[],"usage":{}}', b"[DONE]")
    wanted = events(*one, *another, *end)
    for mixed in ((one[0], another[0], one[1], another[1]), (another[0], one[0], another[1], one[1])):
        assert transcripts.sort_events(events(*mixed, *end)) == wanted
    assert transcripts.sort_events(events(another[1], another[0], *one, *end)) != wanted


def test_recordings_of_one_build_are_equal(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        status, said = run("record", "--radish", RADISH, "--model", "none", "--out", str(folder), "--only", "strict")
        assert status == 0, said
    n = len(list(first.iterdir()))
    assert n >= 8
    status, said = run("compare", str(first), str(second))
    assert status == 0 and said == f"{n} of {n} answers are equal\n"
    changed, gone, *_ = sorted(second.iterdir())
    changed.write_bytes(changed.read_bytes().replace(b"error", b"horror"))
    gone.unlink()
    status, said = run("compare", str(first), str(second))
    assert status == 1 and f"{n - 2} of {n} answers are equal" in said
    assert f"{changed.name} differs" in said and "horror" in said and f"{gone.name} is only in" in said


def test_nothing_is_not_equal(tmp_path):
    Path(tmp_path / "a").mkdir()
    assert run("compare", str(tmp_path / "a"), str(tmp_path / "a"))[0] == 1
