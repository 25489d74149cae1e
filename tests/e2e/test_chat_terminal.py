"""`radish chat`: its commands, from a script and at a terminal.

Most tests run on the mock engine in the debug binary. Each test has its own history folder.
"""
import json
import os
import re
import signal
import stat
import subprocess
import termios

import pytest

from conftest import BUILD, MODEL
from pseudo_terminal import RADISH, TIMEOUT_S, terminal  # noqa: F401

MOCK = ("chat", "--engine", "mock")
OK, FAILED, USAGE = 0, 1, 2
# The mock's answer to "once" has 232 tokens, so it takes 5 seconds.
SLOW = ("--mock-batch-cost-us", "20000", "-s", "1")
PROMPT = r"\033\[J> \r\033\[2C$"  # an empty prompt, drawn last
STOPPED = r"\[stopped\][^>]*" + PROMPT


def radish(*args, stdin=b"", env=None, binary=RADISH):
    return subprocess.run([binary, *map(str, args)], input=stdin, capture_output=True,
                          timeout=TIMEOUT_S, check=False, env={**os.environ, **(env or {})})


def script(*lines, options=(), status=OK):
    """Standard output and standard error of a script with these lines."""
    done = radish(*MOCK, *options, stdin="".join(line + "\n" for line in lines).encode())
    assert done.returncode == status, done
    return done.stdout.decode(errors="replace"), done.stderr.decode()


def prompt_tokens(text):
    """The length of a message in the mock's template: one token per byte, and the markup."""
    return len(b"user\nassistant\n\n") + 3 + len(text.encode())


@pytest.fixture
def chat(terminal, tmp_path):  # noqa: F811
    def start(*args, env=None, **options):
        t = terminal(*MOCK, *args, env={"XDG_STATE_HOME": str(tmp_path), **(env or {})}, **options)
        t.wait_for(PROMPT)
        return t

    return start


# ---- with a script ----------------------------------------------------------------------------

def test_settings_show_what_the_options_set():
    _, notes = script("/set", "/set seed", "/set max_tokens 9", "/set max_tokens",
                      options=("-s", "5", "-n", "70"))
    assert re.search(r"^  seed +5 \(default\)$", notes, re.M), notes
    assert re.search(r"^  max_tokens +70 \(default\)$", notes, re.M), notes
    assert "seed is 5 (default). " in notes and "max_tokens is 9. " in notes
    _, notes = script("/set")
    assert re.search(r"^  seed +default\n  max_tokens +default$", notes, re.M), notes


def test_a_seed_does_not_make_every_turn_the_same(tmp_path):
    """The template drops earlier turns, so only the random numbers can differ."""
    path = tmp_path / "last.jinja"
    path.write_text("{{ messages[-1].content }}")
    lines, _ = script("hi", "hi", "/clear", "hi", "hi", options=(
        "--chat-template-file", path, "--seed", "7", "-n", "40", "--temperature", "2", "--top-k",
        "0", "--top-p", "1", "--min-p", "0"))
    half = len(lines) // 2
    assert lines[:half] == lines[half:]  # /clear starts over
    assert lines[:half // 2] != lines[half // 2:half]


def test_a_piped_chat_fails_when_a_turn_fails():
    script("hi", "how are you")
    assert script("hi", options=("--mock-fail-every", "1"), status=FAILED)[1]


def test_a_conversation_that_outgrew_the_context_is_told_of_clear():
    out, err = script("hi", "x" * 80, "/clear", "hi", options=("-c", "64"), status=FAILED)
    assert "/clear" in err and "the context holds 64" in err
    assert len(out.splitlines()) == 2  # the first turn and the one after /clear


@pytest.mark.parametrize("word", ["/quit", "/exit", "/bye"])
def test_words_that_leave(word):
    assert script(word, "hi") == ("", "")


def test_help_names_every_command():
    out, err = script("/help")
    assert not out
    for word in ("/clear", "/regen", "/system", "/set", "/save", "/load", "/quit", "Ctrl-C"):
        assert word in err


WRONG = [
    ("/hlep", "Did you mean /help?"), ("/regenerate", "see /help"),
    ("/etc", "put a space in front"), ("/clear all", "/clear takes no argument"),
    ("/save", "usage: /save FILE"), ("/set temprature 1", "Did you mean temperature?"),
    ("/set temperature 9", "from 0 to 2"), ("/set temperature hot", "must be a number"),
    ("/set top_k 1.5", "integer"), ("/set ignore_eos maybe", "true or false"),
    ("/set max_tokens 0", "at least 1"), ("/set enable_thinking off", "cannot switch thinking"),
    ("/set model x", "unknown setting 'model'"), ("/set timings maybe", "on or off"),
    ("/regen", "no message to answer"), ("/load /nowhere/x.json", "/nowhere/x.json"),
    ('"""open', "was not sent"),
]


def test_what_is_wrong_is_said_and_not_sent():
    out, err = script(*(line for line, _ in WRONG), status=FAILED)
    assert not out
    said = err.splitlines()
    assert len(said) == len(WRONG)
    for (line, says), message in zip(WRONG, said):
        assert says in message, line


MESSAGES = [
    ("/usr/bin/env: what is it?", None), ("// a comment", None), ("/* another", None), ("/", None),
    (" /etc", "/etc"), ('"""one"""', "one"), ('"""\none\n two\n"""', "one\n two"), ("/3", None),
]


def test_messages_that_look_like_commands():
    _, err = script(*(f"{line}\n/clear" for line, _ in MESSAGES), options=("--timings", "-n", "2"))
    assert re.findall(r"prompt (\d+) tokens", err) == \
        [str(prompt_tokens(sent or line)) for line, sent in MESSAGES]


def test_settings_change_answers():
    """The mock's answer to "once" with this seed is long."""
    out, err = script("/set max_tokens 3", "once", "/clear", "/set max_tokens = 9", "once",
                      "/clear", "/set max_tokens default", "once", "/clear",
                      "/set parameter stop e", "once",
                      options=("--seed", "1", "-n", "90", "--timings"))
    assert re.findall(r"; (\d+) tokens", err)[:3] == ["3", "9", "90"]
    lines = out.rstrip("\n").split("\n")
    assert "e" in lines[-2] and lines[-1] == lines[-2].split("e")[0]


def test_set_lists_and_describes():
    _, err = script("/set", "/set top_k", "/set top_k 7", "/set top_k", options=("--top-k", "33"))
    assert "top_k                33 (default)" in err and "top_k is 7." in err


def test_regen_answers_the_last_message_again():
    out, err = script("once", "/regen", "/regen", options=("--timings", "-n", "20", "-s", "1"))
    answers = out.splitlines()
    assert answers[0] not in answers[1:]  # different random numbers
    n = prompt_tokens("once")
    assert re.findall(r"prompt (\d+) tokens, (\d+) cached", err)[1:] == [(str(n), str(n - 1))] * 2


def test_a_conversation_in_a_file(tmp_path):
    path = tmp_path / "a chat.json"
    script("/system Be brief.", "hi", "/set temperature 0.5", '/set stop "###"', f"/save {path}",
           options=("-n", "9"))
    saved = json.loads(path.read_text())
    assert [m["role"] for m in saved["messages"]] == ["system", "user", "assistant"]
    assert saved["messages"][0]["content"] == "Be brief."
    assert (saved["model"], saved["temperature"], saved["stop"]) == ("mock", 0.5, "###")
    assert os.stat(path).st_mode & 0o777 == 0o600
    _, err = script(f"/load {path}", "/set temperature", "/system", f"/save {path}")
    assert "Loaded 3 messages" in err and "temperature is 0.5" in err and "Be brief." in err
    assert json.loads(path.read_text()) == saved
    path.write_text(json.dumps(saved["messages"][:2]))  # an array alone is enough
    out, err = script(f"/load {path}", "/regen")
    assert "/regen answers the last message" in err and out


def test_files_that_are_no_conversation(tmp_path):
    texts = ["", "no JSON", "{}", "[]", '{"messages": 1}', '[{"role": "x"}]', "[" * 5000,
             '[{"role": "user", "content": 3}]', '[{"role": "user", "content": "hi"}] 2',
             '{"messages": [{"role": "user", "content": "hi"}], "top_p": 7}']
    paths = [tmp_path / f"{i}.json" for i in range(len(texts))]
    for path, text in zip(paths, texts):
        path.write_text(text)
    _, err = script("/system Stay.", *(f"/load {path}" for path in paths), "/system", "/set top_p",
                    status=FAILED)
    for path in paths:
        assert f"{path}: " in err
    assert err.splitlines()[-2] == "Stay." and "top_p is 0.95" in err  # nothing has changed


def test_load_takes_regular_files_only(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, "/dev/zero"):
        assert f"{path}: it is not a regular file" in script(f"/load {path}", status=FAILED)[1]


def test_save_replaces_only_what_it_should(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("precious")
    assert "not a conversation" in script(f"/save {path}", status=FAILED)[1]
    assert path.read_text() == "precious" and os.listdir(tmp_path) == ["notes.txt"]
    path = tmp_path / "talk.json"
    _, err = script("/system One.", f"/save {path}", "/system Two.", f"/save {path}")
    assert err.count("Saved 1 message") == 2  # its own file
    others = ("/system Three.", f"/save {path}")
    assert f"{path} exists: repeat the command to replace it" in script(*others, status=FAILED)[1]
    _, err = script(f"/load {path}", "/clear", f"/save {path}", status=FAILED)  # no longer its own
    assert "exists" in err and json.loads(path.read_text())["messages"][0]["content"] == "Two."
    script(*others, f"/save {path}", status=FAILED)
    assert json.loads(path.read_text())["messages"][0]["content"] == "Three."
    mine = tmp_path / "mine.json"  # stays its own after a refused /save
    _, err = script("/system Four.", f"/save {mine}", f"/save {path}", f"/save {mine}", status=FAILED)
    assert err.count("Saved 1 message") == 2 and err.count("exists") == 1


def test_system_messages(tmp_path):
    path = tmp_path / "x.json"
    script("hi", "/system One.", f"/save {path}", options=("-n", "3"))
    assert [m["role"] for m in json.loads(path.read_text())["messages"]] == \
        ["system", "user", "assistant"]
    path = tmp_path / "y.json"
    script("hi", '/system ""', f"/save {path}", options=("-n", "3", "--system", "Two."))
    assert [m["role"] for m in json.loads(path.read_text())["messages"]] == ["user", "assistant"]
    path = tmp_path / "z.json"
    script('/system """', "a", 'b"""', f"/save {path}")
    assert json.loads(path.read_text())["messages"][0]["content"] == "a\nb"


def test_thoughts_are_not_the_answer(tmp_path):
    template = tmp_path / "think.jinja"
    template.write_text("{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
                        "{% if add_generation_prompt %}<think>\n{% endif %}")
    out, err = script("hi", options=("--chat-template-file", template, "-n", "30", "--seed", "1"))
    assert not out.strip() and len(err.strip()) > 10


def test_a_signal_ends_a_script():
    process = subprocess.Popen([RADISH, *MOCK, *SLOW], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdin.write(b"once\nonce\n")
    process.stdin.flush()
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 130
    process.stdin.close()
    process.stdout.close()


# ---- the default model ------------------------------------------------------------------------

@pytest.mark.parametrize("command", ["chat", "run", "serve"])
def test_without_a_model_the_default_one_is_named(tmp_path, command):
    done = radish(command, env={"XDG_CACHE_HOME": str(tmp_path)})
    assert done.returncode == USAGE
    for text in (f"{tmp_path}/radish/SmolLM2-135M-Instruct.Q4_1.gguf", "make chat", "-m PATH"):
        assert text in done.stderr.decode()


def test_the_default_model_answers(tmp_path, terminal):  # noqa: F811
    """... the same at a terminal, where rows break between words, as to a script."""
    binary, question = os.path.join(BUILD, "radish"), "Why is the sky blue?"
    (tmp_path / "radish").mkdir()
    os.symlink(MODEL, tmp_path / "radish/SmolLM2-135M-Instruct.Q4_1.gguf")
    env = {"XDG_CACHE_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    options = ("chat", "--temp", "0", "-n", "80")
    done = radish(*options, stdin=question.encode(), env=env, binary=binary)
    assert done.returncode == OK and b"sky" in done.stdout
    t = terminal(*options, binary=binary, shares_stderr=True, columns=60, env=env)
    t.wait_for("SmolLM2-135M-Instruct.Q4_1, 8192 tokens")
    at = t.wait_for(PROMPT)
    t.type(question + "\r")
    end = t.wait_for(PROMPT, at)
    rows = t.screen(at).rows
    assert max(map(len, rows)) <= 59 and len(rows) > 4
    answer = " ".join(rows[:-1]).split(question)[-1]  # on a busy machine it may begin in the first row
    assert answer.replace("[max_tokens reached]", "").split() == done.stdout.decode().split()
    t.type("/regen\r")
    t.wait_for(PROMPT, end)
    t.type("\x04")
    assert t.end()[0] == OK


# ---- typing -----------------------------------------------------------------------------------

def test_a_line_wider_than_the_terminal_is_shown_once(chat):
    t = chat(columns=20)
    line = "".join(chr(ord("a") + i % 26) for i in range(70))
    for i in range(0, len(line), 7):  # like a person typing, with a redraw now and then
        t.type(line[i : i + 7])
        t.wait_for(line[i : i + 7][-1] + r"[^a-z]*$")
    screen = t.wait_for_screen("> " + line[:18], line[18:38], line[38:58], line[58:])
    assert (screen.row, screen.column) == (3, 12)
    t.type("\033[H!\033[F\x7f\x7f")  # home, a key, end, two backspaces
    t.wait_for_screen("> !" + line[:17], line[17:37], line[37:57], line[57:-2])
    t.type("\x15/quit\r")
    assert t.end()[0] == OK
    t.wait_for_screen("> /quit", "")


def test_a_line_taller_than_the_terminal_keeps_the_cursor_in_sight(chat):
    t = chat(columns=10, rows=3)
    t.type("0123456789" * 5)
    t.wait_for_screen("8901234567", "8901234567", "89", only_last=True)
    t.type("\x15/quit\r")
    assert t.end()[0] == OK


def test_wide_characters(chat):
    t = chat(columns=13)
    t.type("漢字 e\u0301 👩\u200d💻x")
    screen = t.wait_for_screen("> 漢字 e\u0301 👩\u200d💻x")
    assert screen.column == 12
    t.type("\x7f\x7f\x7f\x7f!")  # x, the emoji, a blank, the accented letter
    t.wait_for_screen("> 漢字 !")
    t.type("\x15/quit\r")
    assert t.end()[0] == OK


def test_a_window_that_gets_narrower(chat):
    t = chat(columns=40)
    t.type("a line of more than twenty letters")
    t.wait_for_screen("> a line of more than twenty letters")
    before = len(t.output)
    t.resize(20)
    t.process.send_signal(signal.SIGWINCH)
    t.wait_for(r"\033\[1A\r\033\[J> a line", before)  # the terminal wrapped it into two rows
    t.type("\x15/quit\r")
    assert t.end()[0] == OK


def test_a_pasted_text_is_one_message(chat):
    t = chat("--timings")
    assert "\033[?2004h" in t.output
    pasted = '"""f"""\n\treturn 1\nf()'  # quotes closed on the same line are text
    t.type("\033[200~" + pasted.replace("\n", "\r") + "\r\033[201~")
    t.wait_for_screen('> """f"""', "      return 1", "  f()", "  ")
    at = len(t.output)
    t.type("\r")
    t.wait_for(PROMPT, at)
    t.type("\x04")
    status, stderr = t.end()
    assert status == OK and stderr.count("[prompt") == 1
    assert f"[prompt {prompt_tokens(pasted)} tokens" in stderr
    assert t.output.rstrip().endswith("\033[?2004l")


def test_lines_are_typed_with_alt_enter_and_between_quotes(chat):
    t = chat("--timings", "-n", "4")
    at = len(t.output)
    t.type("one\033\rtwo\r")
    at = t.wait_for(PROMPT, at)
    t.type('"""\rone\rtwo"""')
    t.wait_for(r'\r\n  two"""', at)
    t.type("\r")
    t.wait_for(PROMPT, at)
    t.type("\x04")
    status, stderr = t.end()
    assert status == OK
    first, second = map(int, re.findall(r"prompt (\d+) tokens", stderr))
    assert first == prompt_tokens("one\ntwo") and second > first


def test_tab_completes_and_lists(chat, tmp_path):
    (tmp_path / "talk.json").write_text('[{"role": "user", "content": "hi"}]')
    t = chat("-n", "4", columns=100)
    t.type("/s\t\t")
    t.wait_for(r"/system   /set      /save ")
    t.type(f"\x15/lo\t{tmp_path}/ta\t")
    t.wait_for_screen("> /s", "/system   /set      /save ", f"> /load {tmp_path}/talk.json")
    t.type("\r")
    t.wait_for("> hi")
    t.type("\x15/set xtc_p\t1\r\x04")
    status, stderr = t.end()
    assert status == OK and "Loaded 1 message from" in stderr and "xtc_probability: 1" in stderr


# ---- the history ------------------------------------------------------------------------------

def test_messages_are_kept_for_the_next_chat(chat, tmp_path):
    t = chat("-n", "4")
    at = len(t.output)
    t.type("first words\r")
    t.wait_for(PROMPT, at)
    t.type("/set top_k 3\r\x04")
    assert t.end()[0] == OK
    path = tmp_path / "radish/chat_history"
    assert path.read_text() == "first words\n/set top_k 3\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    t = chat("-n", "4")
    t.type("\033[A\033[A")
    t.wait_for_screen("> first words")
    t.type("\x15\x12FIRST")
    t.wait_for(r"\(search: FIRST\) first words")
    t.type("\x07\x04")
    assert t.end()[0] == OK
    t = chat("--no-history")
    t.type("\033[Ax")
    t.wait_for_screen("> x")
    t.type("\r\x04")
    assert t.end()[0] == OK
    assert "x" not in path.read_text().split("\n")


def test_a_history_that_cannot_be_written_stops_nothing(chat, tmp_path):
    (tmp_path / "radish").write_text("a file where the folder should be")
    t = chat("-n", "4")
    t.type("hi\r\x04")
    assert t.end()[0] == OK


# ---- while an answer is generated -------------------------------------------------------------

def test_what_is_typed_ahead_waits_for_the_prompt(chat):
    t = chat(*SLOW, "-n", "40", columns=60)
    at = len(t.output)
    t.type("once\r")
    at = t.wait_for(r"\n\w", at)  # the answer has begun
    t.type("typed ahead")
    end = t.wait_for(r"\033\[J> typed ahead", at)
    assert "typed" not in t.output[at : end - len("> typed ahead")]
    t.type("\x15\x04")
    assert t.end()[0] == OK


def test_an_answer_that_repeats_itself_ends(chat):
    """On a terminal only: a script gets what the model says."""
    options = ("--temp", "0", "--repeat-penalty", "0.01", "-n", "2000", "--timings")
    t = chat(*options, columns=80)
    at = len(t.output)
    t.type("/set ignore_eos true\r")
    at = t.wait_for(PROMPT, at)
    t.type("once\r")
    end = t.wait_for(r"\[stopped: the answer repeats itself; try /set temperature 0.7\]", at)
    n_letters = sum(c.isalpha() for c in t.output[at:end])
    assert 384 <= n_letters < 1500
    t.wait_for(PROMPT, end)
    t.type("\x04")
    assert t.end()[0] == OK
    _, notes = script("/set ignore_eos true", "once", options=options)
    assert "; 2000 tokens" in notes


def test_ctrl_c_ends_the_answer_and_the_second_one_the_chat(chat):
    t = chat(*SLOW)
    at = len(t.output)
    t.type("once\r")
    t.wait_for(r"\n\w", at)
    t.type("\x03")
    at = t.wait_for(STOPPED, at)
    t.type("\x03")
    assert t.end()[0] == OK
    assert termios.tcgetattr(t.slave) == t.mode


def test_ctrl_c_twice_at_once(chat):
    t = chat(*SLOW)
    at = len(t.output)
    t.type("once\r")
    t.wait_for(r"\n\w", at)
    t.type("\x03\x03")
    assert t.end()[0] == OK and "[stopped]" in t.output


def test_ctrl_c_at_a_prompt(chat):
    t = chat("-n", "4")
    t.type("some words\x03")  # empties the line
    t.wait_for_screen("> some words", "> ")
    t.type("\x03")
    assert t.end()[0] == OK


def test_a_ctrl_c_that_comes_too_late_does_not_end_the_chat(chat):
    t = chat("-n", "4")
    at = len(t.output)
    t.type("hi\r")
    at = t.wait_for(PROMPT, at)
    t.type("\x03")
    t.wait_for(PROMPT, at)
    t.type("\x03")
    status, stderr = t.end()
    assert status == OK and "Ctrl-C again to exit" in stderr


def test_a_stopped_answer_without_a_word_was_not_asked(chat, tmp_path):
    path = tmp_path / "x.json"
    t = chat("--mock-batch-cost-us", "300000")
    at = len(t.output)
    t.type("hi\r")
    t.wait_for(r"hi\r\033\[4C\r\n", at)
    t.type("\x03")
    t.wait_for(STOPPED, at)
    t.type(f"/system Me.\r/save {path}\r\x04")
    assert t.end()[0] == OK
    assert [m["role"] for m in json.loads(path.read_text())["messages"]] == ["system"]


def test_make_sees_no_signal(terminal, tmp_path):  # noqa: F811
    """make would print an error if Ctrl-C reached it, even if the chat handles it."""
    (tmp_path / "Makefile").write_text(
        f"chat:\n\t@{os.path.abspath(RADISH)} {' '.join(MOCK)} {' '.join(SLOW)}\n")
    t = terminal("-C", str(tmp_path), "--no-print-directory", "chat", binary="make",
                 shares_stderr=True, env={"XDG_STATE_HOME": str(tmp_path)})
    at = t.wait_for(PROMPT)
    t.type("once\r")
    t.wait_for(r"\n\w", at)
    t.type("\x03\x03")
    assert t.end()[0] == OK and "make" not in t.output


def test_an_answer_cannot_send_commands_to_the_terminal(chat):
    t = chat("-n", "400", "--seed", "4", "--temp", "2", "--top-k", "0",
             "--top-p", "1", "--min-p", "0", columns=50)
    at = len(t.output)
    t.type("hi\r")
    t.wait_for(PROMPT, at)
    t.screen(at)  # asserts that there are no other control characters
    t.type("\x04")
    assert t.end()[0] == OK


# ---- other terminals --------------------------------------------------------------------------

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_prompt_gives_the_terminal_back(chat, number):
    t = chat()
    assert termios.tcgetattr(t.slave) != t.mode  # raw
    t.process.send_signal(number)
    assert t.end()[0] == -number
    assert termios.tcgetattr(t.slave) == t.mode
    assert "\033[?2004l" in t.output


def test_ctrl_z_gives_the_terminal_back_for_a_while(chat):
    t = chat()
    at = len(t.output)
    t.type("words")
    t.wait_for("words", at)
    t.type("\x1a")
    t.wait_for(r"\033\[\?2004l", at)  # without job control nothing stops, so it continues at once
    t.wait_for(r"\033\[\?2004h.*> words", at)
    t.type("\x15\x04")
    assert t.end()[0] == OK


@pytest.mark.parametrize("env, is_colored", [({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_no_color(terminal, tmp_path, env, is_colored):  # noqa: F811
    t = terminal(*MOCK, "-n", "4", shares_stderr=True, env={"XDG_STATE_HOME": str(tmp_path), **env})
    t.wait_for(r"> ")
    t.type("hi\r\x04")
    assert t.end()[0] == OK
    assert ("\033[1m> \033[0m" in t.output) == is_colored == ("\033[2m" in t.output)


def test_a_terminal_that_takes_no_escapes(terminal):  # noqa: F811
    t = terminal(*MOCK, "-n", "4", env={"TERM": "dumb"}, shares_stderr=True)
    t.wait_for(r"> $")
    t.type("/help\n")
    t.wait_for(r"names\r\n> $")
    t.type("\x03")  # sends a signal here
    assert t.end()[0] == OK
    assert "\033" not in t.output and "/clear" in t.output


def test_a_chat_that_is_written_to_a_file(terminal, tmp_path):  # noqa: F811
    """Standard input is a terminal, standard output is not: plain lines, no escapes."""
    path = tmp_path / "out"
    t = terminal("-c", f"{RADISH} {' '.join(MOCK)} -n 4 -s 1 > {path}", binary="/bin/sh",
                 shares_stderr=True)
    t.wait_for("> $")
    t.type("once\n/quit\n")
    assert t.end()[0] == OK
    assert re.fullmatch(r"\S[^\033]{3}\n", path.read_text())
