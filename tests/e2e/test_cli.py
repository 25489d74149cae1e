"""The command line: exit statuses, messages, and behaviour at a terminal.

Most tests run on the mock engine in the debug binary. test_chat_terminal.py tests `radish chat`.
"""
import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD, MODEL
from pseudo_terminal import terminal  # noqa: F401

RADISH = os.path.join(BUILD, "radish-debug")
MOCK = ("--engine", "mock")
SHARED = Path(os.environ.get("RADISH_SHARED", Path(__file__).resolve().parents[3] / "shared"))
NO_TEMPLATE = SHARED / "data/models/stories260K/stories260K-f32.converted-v3.gguf"
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
TIMEOUT_S = 60
# The mock's answer to this has 232 tokens, so it takes 5 seconds.
LONG_ANSWER = ("--mock-batch-cost-us", "20000", "-s", "1", "once")


def radish(*args, stdin=b"", binary=RADISH):
    return subprocess.run([binary, *map(str, args)], input=stdin, capture_output=True,
                          timeout=TIMEOUT_S, check=False)


def answer_of(*args, stdin=b""):
    done = radish("run", *MOCK, "--json", *args, stdin=stdin)
    assert done.returncode == OK, done.stderr.decode()
    return json.loads(done.stdout)


def prompt_tokens(text):
    """The length of a message in the mock's template: one token per byte, and the markup."""
    return len(b"user\nassistant\n\n") + 3 + len(text.encode())


# ---- usage ------------------------------------------------------------------------------------

@pytest.mark.parametrize("args, message", [
    (["bench"], "-m PATH"),
    (["tokenize"], "-m PATH"),
    (["info"], "radish info FILE|DIR"),
    (["serve", *MOCK, "--cache-size", "2XB"], "--cache-size: '2XB'"),
    (["serve", *MOCK, "--cache-size", "1"], "must hold at least 2 tokens"),
    (["serve", *MOCK, "--activations", "q4"], "--activations must be one of q8, q16, not 'q4'"),
    (["serve", *MOCK, "--cache-ttl", "30x"], "--cache-ttl: '30x' is not a duration: write it as 90s"),
    (["serve", *MOCK, "--api-key", "a:k", "--tenant-cache-size", "0"], "--tenant-cache-size: '0'"),
    (["logits", *MOCK, "--tokens", ""], "--tokens needs a value"),
    (["logits", *MOCK, "--tokens", "1,x"], "'x'"),
    (["logits", *MOCK, "--tokens", "1,999"], "from 0 to 258, not 999"),
    (["render", "--context", "c.json"], "--template FILE"),
    (["render", "--template", "t", "--context", "c", "--now", "foo"], "--now needs a time"),
    (["serve", "-m", ""], "-m needs a value"),
    (["serve", "-m", "nofile", "--host", ""], "--host needs a value"),
    (["serve", "-m", "nofile", "--alias", ""], "--alias needs a value"),
    (["serve", "-m", "nofile", "--allowed-host", ""], "--allowed-host needs a value"),
    (["serve", *MOCK, "--port", "1", "--addr", ":2"], "--port"),
    (["serve", *MOCK, "--host", "a", "--addr", "b:2"], "--host"),
    (["run", *MOCK, "--raw", "--system", "foo", "hi"], "--system"),
    (["run", *MOCK, "--raw", "--chat-template-file", "foo", "hi"], "--chat-template-file"),
    (["run", *MOCK, "-n", "0", "hi"], "at least 1, or -1 for no limit"),
    (["run", *MOCK, "--repeat-penalty", "0", "hi"], "from 0.01 to 10"),
    (["run", *MOCK, "--chat-template", "chatml", "hi"], "unknown option"),
    (["bench", *MOCK, "--chat-template-file", "foo"], "unknown option"),
    (["logits", *MOCK, "--tokens", "1", "--chat-template-file", "foo"], "unknown option"),
    (["bench", *MOCK, "-p", "0", "-n", "0"], "nothing to measure"),
    (["bench", *MOCK, "-p", "9000"], "1 stream of 9000 tokens"),
    (["help", "nothing"], "unknown command 'nothing'"),
    (["pull", "llama"], "unknown command 'pull': radish has no downloads yet"),
    (["srve"], "unknown command 'srve': did you mean serve?"),
    (["serve", *MOCK, "-c", "4k"], "-c needs a whole number of at least 0, not '4k'"),
    (["-m", "x.gguf"], "'-m' is an option; give a command first, such as radish serve -m PATH\ntry:"),
    (["no/model.gguf"], "did you mean radish serve -m no/model.gguf?"),
    (["/"], "did you mean radish serve -m /?"),
    (["run", *MOCK, "qwen3", "hi"], "unexpected argument 'hi': put the prompt in quotes; the model is given with -m PATH"),
    (["run", *MOCK, "why", "is", "it", "blue"], "put the prompt in quotes"),
    (["serve", "model.gguf"], "unexpected argument 'model.gguf': the model is given with -m PATH"),
    (["chat", *MOCK, "hello"], 'for one answer: radish run "PROMPT"'),
    (["tokenize", "-m", "M", "hello"], 'echo -n "TEXT" | radish tokenize -m PATH'),
    (["quantize", "IN", "OUT", "Q4_K_M"], "such as --type q4_k"),
    (["serve", *MOCK, "--quantise", "q8_0"], "'--quantise': did you mean --quantize?"),
    (["serve", *MOCK, "-ngl", "99"], "'-ngl': radish computes all layers on one device"),
    (["chat", *MOCK, "-hf", "a/b"], "'-hf': radish has no downloads yet"),
    (["run", *MOCK, "--raw", "--thinking", "off", "hi"], "--thinking has no effect"),
    (["serve", *MOCK, "--thinking", "maybe"], "--thinking must be one of auto, on, off"),
    (["serve", *MOCK, "-max_tokens", "0"], "-max_tokens needs a whole number of at least 2"),
    (["serve", *MOCK, "--cache-size", "900TiB"], "MiB of memory: give a smaller --cache-size"),
    (["serve", *MOCK, "--fallback", "cpu"], "--fallback must be one of none, mock"),
])  # fmt: skip
def test_usage_errors_exit_with_2(args, message):
    done = radish(*args)
    assert done.returncode == USAGE
    assert message in done.stderr.decode() and not done.stdout


@pytest.mark.parametrize("name, shows_usage", [("pull", False), ("srve", False), ("-v", False), ("x.gguf", False),
                                               ("nothing", True)])
def test_the_usage_is_for_those_without_advice(name, shows_usage):
    stderr = radish(name).stderr.decode()
    assert ("usage:" in stderr) == shows_usage
    assert shows_usage or (stderr.count("\n") == 2 and stderr.endswith("\ntry: radish --help\n"))


COMMANDS = ("serve", "chat", "run", "bench", "info", "tokenize", "render", "logits", "replay", "quantize")


def foreign_options():
    """The names in the table of other servers' options."""
    source = (Path(__file__).parents[2] / "src/cli/foreign_options.c").read_text(encoding="utf-8")
    table = source.split("foreign[] = {")[1].split("};")[0]
    return {name for names in re.findall(r'^    \{((?:\s*"[^"]*")+),', table, re.M)
            for name in " ".join(re.findall(r'"([^"]*)"', names)).split()}


def test_advice_names_only_options_that_the_command_has():
    names, advised = foreign_options(), set()
    assert len(names) > 100
    for command in COMMANDS:
        own = set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", radish(command, "--help").stdout.decode().replace(",", " ")))
        for name in sorted(names):
            option = ("-" if len(name) < 3 else "--") + name
            done = radish(command, option, "--no-such-option", binary=os.path.join(BUILD, "radish"))
            assert done.returncode == USAGE, (command, option)
            found = re.match(rf"radish {command}: unknown option '{option}': (?!did you mean)(.+)", done.stderr.decode())
            if found:
                advised.add(name)
                named = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", re.sub(r"`[^`]*`", "", found[1]))
                assert set(named) <= own, (command, found[0])
    assert advised == names


@pytest.mark.parametrize("command, option, advice", [
    ("serve", "--verbose", "use --log-level debug"),
    ("chat", "--verbose", "use --timings"),
    ("run", "--verbose", "set RADISH_LOG=debug in the environment"),
    ("bench", "--log-disable", "set RADISH_LOG=error in the environment"),
    ("serve", "-b", "(--step-budget-ms bounds a step)"),
    ("run", "-b", "radish sizes its batches itself; leave this option out\n"),
    ("serve", "--cache-reuse", "radish reuses every prefix"),
    ("serve", "--slots", "GET /slots is always there"),
    ("chat", "-no-cnv", "leave this option out"),
    ("run", "--no-display-prompt", "leave this option out"),
    ("run", "--format", "send `response_format` in a request to the server"),
])
def test_advice_fits_the_command(command, option, advice):
    assert f"unknown option '{option}': " in (stderr := radish(command, option, "1").stderr.decode())
    assert advice in stderr


def test_an_unknown_kernel_path_is_a_usage_error():
    if not os.path.exists(MODEL):
        pytest.skip(f"there is no model at {MODEL}")
    done = radish("run", "-m", MODEL, "--kernels", "foo", "hi")
    assert done.returncode == USAGE and "scalar" in done.stderr.decode()


def test_a_shared_prompt_that_is_not_there_is_told_before_the_model_is_read():
    done = radish("serve", "-m", "nofile", "--api-key", "a:k", "--shared-prompt", "/no/such/file")
    assert done.returncode == FAILED
    assert "--shared-prompt /no/such/file: No such file" in done.stderr.decode()


def test_a_cache_beyond_the_memory_is_refused():
    if not os.path.exists(MODEL):
        pytest.skip(f"there is no model at {MODEL}")
    run = ("run", "-m", MODEL, "-n", "1", "hi", "--cache-size")
    huge, small = (radish(*run, size, binary=os.path.join(BUILD, "radish"))
                   for size in ("9999TiB", "100t"))
    assert huge.returncode == USAGE and small.returncode == OK
    assert re.search(r"a cache of \d+ tokens takes \d+ MiB, but this machine has \d+ MiB of memory: "
                     r"give a smaller --cache-size", huge.stderr.decode())


def test_a_file_that_is_not_there_is_a_failure(terminal):
    t = terminal("run", "-m", "nofile")  # the error comes before a prompt is typed
    status, stderr = t.end()
    assert status == FAILED and "nofile" in stderr and "Ctrl-D" not in stderr
    done = radish("run", *MOCK, "--chat-template-file", "nofile", "hi")
    assert done.returncode == FAILED and "--chat-template-file nofile: No such file" in done.stderr.decode()


def test_help_and_version():
    of_serve = radish("serve", "--help")
    assert of_serve.returncode == OK and b"--alias NAME" in of_serve.stdout
    assert radish("help", "serve").stdout == of_serve.stdout
    version = radish("--version").stdout
    assert re.fullmatch(rb"radish \d+\.\d+\.\d+\nengines: cpu, mock[,;].+\n", version)
    assert radish("version").stdout == radish("serve", "--version").stdout == version
    assert radish().returncode == USAGE


def test_the_help_of_bench_explains_the_columns():
    text = radish("bench", "--help").stdout.decode()
    for column in ("tokens/s, mean", "limit, reached", "MB/token", "int8 MMAC", "float MMAC", "products", "attention",
                   "other", "attention/peak"):
        assert re.search(rf"\n  {column}  +\w", text), column


@pytest.mark.parametrize("command", ["serve", "chat", "run", "bench", "logits"])
def test_help_shows_what_the_command_uses(command):
    text = radish(command, "--help").stdout.decode()
    assert "--mock" not in text and "256MiB to 8GiB" in text
    assert ("--chat-template-file" in text) == (command in ("serve", "chat", "run"))
    assert ("--max-seqs" in text) == (command == "serve")
    if command in ("serve", "chat", "run"):
        assert all(f"(default: the model's, or {x})" in text for x in ("0.8", "0.95", "0.05", "40"))


# ---- run, tokenize and bench ------------------------------------------------------------------

def test_seeds_are_random_unless_given():
    seeds = {answer_of("-n", "1", "hi")["seed"] for _ in range(4)}
    seeds.add(answer_of("-n", "1", "--seed", "-1", "hi")["seed"])
    assert len(seeds) > 1
    first, second = (answer_of("--temp", "2", "--top-k", "-1", "-s", "7", "hi") for _ in range(2))
    assert first["seed"] == 7 and first["text"] == second["text"]


def test_minus_one_token_is_the_rest_of_the_context():
    default, unlimited = answer_of("-s", "1", "hello"), answer_of("-s", "1", "-n", "-1", "hello")
    assert default["text"] == unlimited["text"]
    assert answer_of("-s", "1", "-n", "1", "hello")["completion_tokens"] == 1


@pytest.mark.parametrize("stdin", [b"Hi", b"Hi\n", b"Hi\r\n"])
def test_a_piped_prompt_is_the_same_as_an_argument(stdin):
    assert answer_of("Hi")["prompt_tokens"] == prompt_tokens("Hi")
    assert answer_of(stdin=stdin)["prompt_tokens"] == prompt_tokens("Hi")


def test_only_one_newline_is_taken_off_and_none_of_a_raw_text():
    assert answer_of(stdin=b"Hi\n\n")["prompt_tokens"] == prompt_tokens("Hi\n")
    assert answer_of("--raw", stdin=b"Hi\n")["prompt_tokens"] == 3


def test_text_that_is_not_utf8_is_refused_with_its_place():
    done = radish("run", *MOCK, stdin=b"caf\xe9 au lait")
    assert done.returncode == FAILED and not done.stdout
    assert "0xe9 at offset 3" in done.stderr.decode()
    done = radish("chat", *MOCK, stdin=b"caf\xe9\n")
    assert done.returncode == FAILED and "0xe9 at offset 3" in done.stderr.decode()
    if NO_TEMPLATE.exists():
        done = radish("tokenize", "-m", NO_TEMPLATE, stdin=b"ab\xff")
        assert done.returncode == FAILED and "0xff at offset 2" in done.stderr.decode()


def test_a_template_file_is_applied_to_the_mock_engine(tmp_path):
    path = tmp_path / "template.jinja"
    path.write_text("{{ messages[0].content }}!")
    assert answer_of("--chat-template-file", path, "Hi")["prompt_tokens"] == 3


def test_a_dash_appends_standard_input_to_the_prompt():
    both = prompt_tokens("Say\n\nHi")
    assert answer_of("Say", "-", stdin=b"Hi\n")["prompt_tokens"] == both
    assert answer_of("Say", "-")["prompt_tokens"] == prompt_tokens("Say")
    assert answer_of("-", stdin=b"Hi")["prompt_tokens"] == prompt_tokens("Hi")
    assert answer_of("--raw", "Say", "-", stdin=b"Hi\n")["prompt_tokens"] == len("Say\n\nHi\n")


UNREAD = "standard input is not read, because the prompt is an argument; to append it: radish run \"PROMPT\" -"


def test_without_a_dash_standard_input_is_not_read_and_a_warning_says_so(tmp_path):
    run = (RADISH, "run", *MOCK, "-n", "1", "Hi")

    def warned(**options):
        done = subprocess.run(run, capture_output=True, timeout=TIMEOUT_S, check=True, **options)
        return UNREAD in done.stderr.decode()

    path = tmp_path / "lines"
    path.write_text("one\ntwo\n")
    with open(path, "rb", buffering=0) as lines:
        assert warned(stdin=lines)
        lines.readline()
        assert not warned(stdin=lines)  # the loop of a script that reads the lines
        assert lines.readline() == b"two\n"
    for stdin in ("< /dev/null", "<&-"):
        done = subprocess.run(["sh", "-c", f'"$@" {stdin}', "sh", *run], capture_output=True, timeout=TIMEOUT_S, check=True)
        assert UNREAD not in done.stderr.decode()
    out, into = os.pipe()
    with os.fdopen(out, "rb"), os.fdopen(into, "wb", buffering=0) as writer:
        assert not warned(stdin=out)  # a pipe that nobody closes
        writer.write(b"text")
        assert warned(stdin=out)
    assert not warned(input=b"")


@pytest.mark.parametrize("args, stdin", [([], b""), ([], b"\n"), ([""], b"unread")])
def test_run_asks_for_a_prompt(args, stdin):
    done = radish("run", *MOCK, *args, stdin=stdin)
    assert done.returncode == FAILED and not done.stdout
    assert "the prompt is empty: give it as an argument" in done.stderr.decode()


def test_ctrl_c_ends_run_with_130():
    process = subprocess.Popen([RADISH, "run", *MOCK, *LONG_ANSWER], stdout=subprocess.PIPE)
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    assert process.stdout.read().endswith(b"\n")
    process.stdout.close()
    assert process.wait(TIMEOUT_S) == INTERRUPTED


def bench(*args, binary=RADISH):
    done = radish("bench", *args, "--json", binary=binary)
    assert done.returncode == OK, done.stderr.decode()
    return json.loads(done.stdout)


def test_bench_leaves_out_what_was_not_measured():
    text = radish("bench", *MOCK, "-p", "0", "-n", "4", "-d", "3", "--streams", "2").stdout.decode()
    assert "prefill" not in text and "\n| decode 4 x2 @ d3 | " in text
    assert "limit" not in text and "MB/token" not in text and "products" not in text
    text = radish("bench", *MOCK, "-p", "4", "-n", "0").stdout.decode()
    assert "\n| prefill 4 | " in text and "decode" not in text
    both = bench(*MOCK, "-p", "4", "-n", "4")
    assert both["decode_tokens_per_second"] > 0 and both["prefill_tokens_per_second"] > 0
    prefill = bench(*MOCK, "-p", "4", "-n", "0")
    assert "prefill_tokens_per_second" in prefill and "decode_tokens_per_second" not in prefill
    assert [sorted(row) for row in prefill["rows"]] == [
        ["depth", "streams", "test", "threads", "tokens", "tokens_per_second", "tokens_per_second_mean"]]
    assert "limits" not in prefill["engines"][0]


def test_bench_measures_every_combination():
    told = bench(*MOCK, "-p", "4,600", "-n", "2,3", "-d", "0,5", "--streams", "1,8", "-t", "1,2")
    rows = [(r["threads"], r["depth"], r["test"], r["tokens"], r["streams"]) for r in told["rows"]]
    assert rows == [(t, d, *test) for t in (1, 2) for d in (0, 5)
                    for test in (("prefill", 4, 1), ("prefill", 600, 1), ("decode", 2, 1), ("decode", 2, 8),
                                 ("decode", 3, 1), ("decode", 3, 8))]
    assert told["prefill_tokens_per_second"] == told["rows"][0]["tokens_per_second"]
    assert told["decode_tokens_per_second"] == told["rows"][2]["tokens_per_second"]
    text = radish("bench", *MOCK, "-p", "4,600", "-n", "0", "-t", "1,2").stdout.decode()
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 4 and len({len(line) for line in table}) == 1
    assert "| threads |" in table[0]


@pytest.mark.parametrize("args, words", [
    (("-p", "4,x"), "-p needs a whole number of at least 0, not 'x' in '4,x'"),
    (("-n", "4,,5"), "-n needs a whole number of at least 0, not '' in '4,,5'"),
    (("--streams", "0"), "--streams needs a whole number from 1 to 256, not '0'"),
    (("-p", "0", "-n", "0,0"), "nothing to measure"),
    (("-d", "9999999"), "do not fit into the context"),
])
def test_bench_says_what_is_wrong(args, words):
    done = radish("bench", *MOCK, *args)
    assert done.returncode == USAGE and words in done.stderr.decode()


def test_bench_shows_progress_on_a_terminal_only():
    args = ("bench", *MOCK, "-p", "4", "-n", "2", "-d", "7")
    assert radish(*args).stderr == b""
    try:
        master, slave = pty.openpty()
    except OSError as e:
        pytest.skip(f"no pseudo-terminal: {e}")
    with os.fdopen(master, "rb", buffering=0) as terminal:
        done = subprocess.run([RADISH, *args], stdout=subprocess.PIPE, stderr=slave, timeout=TIMEOUT_S, check=True)
        os.close(slave)
        shown = terminal.read(65536).decode()
    assert "measuring 1 of 2: prefill of 4 tokens after 7" in shown
    assert "measuring 2 of 2: decode of 2 tokens after 7" in shown and "\n" not in shown
    assert shown.endswith("\r\033[K") and done.stdout.startswith(b"mock on mock\n")


@pytest.mark.skipif(not os.path.exists(MODEL), reason="the default model is not there")
class TestBenchOfTheModel:
    RELEASE = os.path.join(BUILD, "radish")

    def test_limits(self):
        told = bench("-m", MODEL, "-p", "8,16", "-n", "2", "-d", "0,3", "--streams", "1,2", "-t", "1", "-r", "1",
                     binary=self.RELEASE)
        limits = told["engines"][0]["limits"]
        assert all(limits[name] > 1e6 for name in (
            "memory_bytes_per_second", "int8_macs_per_second", "float_macs_per_second"))
        assert len(told["rows"]) == 8
        for row in told["rows"]:
            assert row["bound_by"] in ("memory", "compute")
            assert 0 < row["share_of_limit"] < 10
            assert 0 < row["tokens_per_second_mean"] <= row["tokens_per_second"] * 1.0001
            assert row["limit_tokens_per_second"] * row["share_of_limit"] == pytest.approx(
                row["tokens_per_second"])
            assert row["bytes_per_token"] > 1e6 and row["int8_macs_per_token"] > 1e8
            assert row["float_macs_per_token"] > row["attention_macs_per_token"] > 0
            shares = [row[f"{part}_share_of_time"] for part in ("products", "attention", "other")]
            assert sum(shares) == pytest.approx(1) and min(shares) > 0
            assert 0 < row["attention_share_of_float_peak"] < 10 and 0 < row["products_share_of_peak"] < 10
        one, two = [row for row in told["rows"] if row["test"] == "decode"][:2]
        assert two["int8_macs_per_token"] == one["int8_macs_per_token"]
        assert one["bytes_per_token"] / 2 < two["bytes_per_token"] < one["bytes_per_token"] * 0.51

    def test_without_limits(self):
        told = bench("-m", MODEL, "-p", "8", "-n", "0", "-t", "1", "-r", "1", "--no-limits", binary=self.RELEASE)
        assert "limits" not in told["engines"][0] and "share_of_limit" not in told["rows"][0]
        assert told["rows"][0]["bytes_per_token"] > 1e6
        text = radish("bench", "-m", MODEL, "-p", "8", "-n", "2", "-r", "1", binary=self.RELEASE).stdout.decode()
        assert "GB/s" in text and "e+" not in text and "| reached |" in text and "| attention/peak |" in text


@pytest.mark.skipif(not NO_TEMPLATE.exists(), reason="the shared data are not there")
class TestWithoutChatTemplate:
    def test_chat_and_run_say_what_to_do(self):
        done = radish("chat", "-m", NO_TEMPLATE)
        assert done.returncode == FAILED and "--chat-template-file" in done.stderr.decode()
        done = radish("run", "-m", NO_TEMPLATE, "hi")
        assert done.returncode == FAILED and "--raw" in done.stderr.decode()
        assert radish("run", "-m", NO_TEMPLATE, "--raw", "-n", "1", "hi").returncode == OK

    def test_serve_warns(self):
        process = subprocess.Popen([RADISH, "serve", "-m", NO_TEMPLATE, "--port", "0"],
                                   stderr=subprocess.PIPE, text=True)
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "listening" in line:
                break
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
        assert any("no chat template, so chat requests are rejected" in line for line in lines), lines


# ---- reading from a terminal ------------------------------------------------------------------

def test_one_ctrl_d_ends_a_prompt(terminal):
    t = terminal("run", *MOCK, "--json")
    t.type("Hi\n\x04")
    status, stderr = t.end()
    assert status == OK and "Ctrl-D" in stderr
    assert json.loads(t.output.splitlines()[-1])["prompt_tokens"] == prompt_tokens("Hi")


@pytest.mark.skipif(not NO_TEMPLATE.exists(), reason="the shared data are not there")
def test_one_ctrl_d_ends_a_text(terminal):
    t = terminal("tokenize", "-m", str(NO_TEMPLATE), "--no-special")
    t.type("Hi\n\x04")
    status, stderr = t.end()
    assert status == OK and "Ctrl-D" in stderr
    assert json.loads(t.output.splitlines()[-1])
