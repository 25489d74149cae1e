"""A model's control bytes pass unchanged to a pipe or file, and never reach a terminal.

The mock engine likes letters. Penalties make it run out of them, and this seed then gives an answer
with an escape byte.
"""
import os
import pty
import subprocess

import pytest

from pseudo_terminal import RADISH, TIMEOUT_S, terminal  # noqa: F401

ANY_BYTE = ("--engine", "mock", "-n", "500", "--temperature", "2", "--top-k", "0", "--top-p", "1",
            "--min-p", "0", "--frequency-penalty", "2", "--presence-penalty", "2", "--seed", "36")
RUN = ("run", *ANY_BYTE, "hello")
CHAT = ("chat", *ANY_BYTE)
NO_CONTROLS = {code: "\ufffd" for code in (*range(9), *range(11, 32), *range(127, 160))}


def to_a_pipe(args, stdin=b""):
    done = subprocess.run([RADISH, *args], input=stdin, capture_output=True, timeout=TIMEOUT_S,
                          check=True)
    text = done.stdout.decode()
    assert "\033" in text
    return text


def to_a_terminal(args, stdin=b""):
    """The same with only standard output on a terminal."""
    try:
        master, slave = pty.openpty()
    except OSError as e:  # a bare chroot has no ptys
        pytest.skip(f"no pseudo-terminal: {e}")
    with os.fdopen(master, "rb", buffering=0) as screen:
        subprocess.run([RADISH, *args], input=stdin, stdout=slave, stderr=subprocess.PIPE,
                       timeout=TIMEOUT_S, check=True)
        os.close(slave)
        return screen.read(65536).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("args, stdin", [(RUN, b""), (CHAT, b"hello\n")])
def test_without_an_editor(args, stdin):
    whole = to_a_pipe(args, stdin)
    assert to_a_terminal(args, stdin) == whole.replace("\r", "").translate(NO_CONTROLS)


def test_at_the_editor(terminal, tmp_path):  # noqa: F811
    """Screen.feed rejects control characters and sequences that radish itself does not send."""
    whole = to_a_pipe(CHAT, b"hello\n")
    t = terminal(*CHAT, columns=1000, env={"XDG_STATE_HOME": str(tmp_path)})
    t.wait_for(r"> \r\033\[2C$")
    t.type("hello\r")
    answer_at = t.wait_for(r"hello[^\n]*\n")
    t.wait_for(r"> \r\033\[2C$", answer_at)
    t.type("\x04")
    assert t.end()[0] == 0
    shown = t.screen().rows
    last = whole.rstrip().split("\n")[-1].replace("\r", "").translate(NO_CONTROLS)
    assert any(last in row for row in shown), (last, shown)
