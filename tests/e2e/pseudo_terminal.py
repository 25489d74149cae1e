"""A terminal for the tests: runs a command on a pty and models what the screen shows.

A test that wants the fixture imports it: from pseudo_terminal import terminal  # noqa: F401
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata

import pytest

from conftest import BUILD

RADISH = os.path.join(BUILD, "radish-debug")
TIMEOUT_S = 60


def width(c):
    if unicodedata.combining(c) or c in "\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


class Screen:
    """A terminal screen with support for what radish sends. A wide character is followed by an
    empty cell."""

    def __init__(self, columns):
        self.columns, self.row, self.column, self.cells = columns, 0, 0, [[]]

    @property
    def rows(self):
        return ["".join(row) for row in self.cells]

    def put(self, c):
        row = self.cells[self.row]
        if width(c) == 0 or "".join(row[: self.column]).endswith("\u200d"):
            row[self.column - 1] += c
            return
        assert self.column + width(c) <= self.columns, "the terminal has to wrap this line"
        row += [" "] * (self.column + width(c) - len(row))
        row[self.column : self.column + width(c)] = [c, ""][: width(c)]
        self.column += width(c)

    def feed(self, text):
        for sequence, c in re.findall(r"\033\[([?\d]*[A-Za-z])|(.)", text, re.DOTALL):
            if c == "\r":
                self.column = 0
            elif c == "\n":
                self.row += 1
                self.cells += [[] for _ in range(self.row + 1 - len(self.cells))]
            elif c:
                assert ord(c) >= 32, f"control {c!r}"
                self.put(c)
            elif sequence[-1] == "A":
                self.row = max(0, self.row - int(sequence[:-1]))
            elif sequence[-1] == "C":
                self.column += int(sequence[:-1])
            elif sequence[-1] == "D":
                self.column = max(0, self.column - int(sequence[:-1]))
            elif sequence == "J":
                del self.cells[self.row][self.column :]
                del self.cells[self.row + 1 :]
            elif sequence == "K":
                del self.cells[self.row][self.column :]
            elif sequence == "H":
                self.row = self.column = 0
            elif sequence == "2J":
                self.cells = [[]]
            elif sequence[-1] not in "hlm":
                raise AssertionError(f"unexpected sequence {sequence!r}")
        return self


class Terminal:
    """A command on a pty, with standard error on its own pipe or on the pty too."""

    def __init__(self, *args, columns=40, rows=24, env=None, binary=RADISH, shares_stderr=False):
        try:
            self.master, self.slave = pty.openpty()
        except OSError as e:  # a bare chroot has no ptys
            pytest.skip(f"no pseudo-terminal: {e}")
        self.resize(columns, rows)
        self.mode = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [binary, *args], stdin=self.slave, stdout=self.slave,
            stderr=self.slave if shares_stderr else subprocess.PIPE,
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", **(env or {})},
            preexec_fn=self._become_foreground)
        self.output = ""

    def _become_foreground(self):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, columns, rows=24):
        self.columns = columns
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def read(self, quiet_s):
        """Reads what is available or arrives in time; False if nothing did."""
        if not select.select([self.master], [], [], quiet_s)[0]:
            return False
        self.output += os.read(self.master, 65536).decode(errors="replace")
        return True

    def wait_for(self, pattern, since=0):
        """Reads until the output after `since` matches the pattern; returns the match's end."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := re.compile(pattern).search(self.output, since)):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.output[since:]!r}"
            self.read(0.05)
        return found.end()

    def screen(self, since=0):
        return Screen(self.columns).feed(self.output[since:])

    def wait_for_screen(self, *rows, only_last=False):
        """Reads until the screen, or the last thing drawn, shows these rows; returns it."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            if self.read(0.05):
                continue
            screen = self.screen(self.output.rfind("\033[J") if only_last else 0)
            if screen.rows == list(rows):
                return screen
            assert time.monotonic() < deadline, f"{screen.rows} is not {rows}"

    def end(self):
        """Returns the exit status and the text on standard error."""
        status = self.process.wait(TIMEOUT_S)
        stderr = self.process.stderr.read().decode() if self.process.stderr else ""
        while self.read(0):
            pass
        seen = stderr + self.output
        assert "Sanitizer" not in seen and "runtime error" not in seen, seen
        return status, stderr


@pytest.fixture
def terminal():
    started = []

    def start(*args, **options):
        started.append(Terminal(*args, **options))
        return started[-1]

    yield start
    for t in started:
        if t.process.poll() is None:
            os.killpg(t.process.pid, signal.SIGKILL)
        t.process.wait()
        if t.process.stderr:
            t.process.stderr.close()
        os.close(t.master)
        os.close(t.slave)
