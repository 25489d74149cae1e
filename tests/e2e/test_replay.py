"""`radish replay`: small traces with results worked out by hand, recorded traces if present, and the benchmark that
plots hit rates."""
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conftest import BUILD

DEBUG, RELEASE = (os.path.join(BUILD, name) for name in ("radish-debug", "radish"))
SHARED = Path(os.environ.get("RADISH_SHARED", Path(__file__).resolve().parents[3] / "shared"))
AGENTS = SHARED / "data/traces/claude-code"
OK, FAILED, USAGE = 0, 1, 2
COUNTS = ("requests", "refused", "pages", "distinct", "asked", "hit", "ideal", "computed",
          "generated", "evicted", "expired", "preempted", "steps")
RATES = ("hit_rate", "share_of_ideal", "seconds", "tokens_per_second")


def radish(*args, binary=DEBUG, **options):
    return subprocess.run([binary, "replay", *map(str, args)], capture_output=True, text=True,
                          timeout=60, check=False, **options)


def replay(*args, binary=DEBUG):
    done = radish(*args, "--json", binary=binary)
    assert done.returncode == OK, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture
def trace(tmp_path):
    """Writes a trace and returns its path: one object per line, or an agent's object."""

    def write(content):
        path = tmp_path / "trace.json"
        if isinstance(content, list):
            content = "".join(json.dumps(line) + "\n" for line in content)
        elif isinstance(content, dict):
            content = json.dumps(content)
        path.write_text(content)
        return path

    return write


def line(input_length, *hash_ids, output_length=4):
    return {"timestamp": 0, "input_length": input_length, "output_length": output_length,
            "hash_ids": list(hash_ids)}


def agent(block_size, *requests):
    return {"id": "x", "block_size": block_size,
            "requests": [{"t": i, "type": "n", "in": length, "out": out, "hash_ids": ids}
                         for i, (length, out, ids) in enumerate(requests)]}


# A conversation of three turns, another with the same first block, and the first turn again.
TALKS = [line(600, 1, 2), line(1100, 1, 2, 3), line(700, 1, 9), line(1200, 1, 2, 3),
         line(600, 1, 2)]
TALKS_HIT = 0 + 600 + 512 + 1100 + 599


@pytest.mark.parametrize("clients", [1, 2, 16])
def test_hits_are_what_prompts_share(trace, clients):
    got = replay(trace(TALKS), "--max-seqs", clients)
    assert got["asked"] == 600 + 1100 + 700 + 1200 + 600
    assert got["hit"] == got["ideal"] == TALKS_HIT
    assert got["computed"] == got["asked"] - TALKS_HIT
    assert got["distinct"] == 1200 + 188
    assert got["generated"] == 5 * 4
    assert got["evicted"] == got["preempted"] == got["refused"] == got["expired"] == 0


def test_json_has_every_number(trace):
    got = replay(trace(TALKS))
    assert set(got) == {*COUNTS, *RATES, "times_us"}
    assert all(isinstance(got[name], int) and got[name] >= 0 for name in COUNTS)
    assert got["hit_rate"] == pytest.approx(got["hit"] / got["asked"])
    assert got["share_of_ideal"] == 1
    assert set(got["times_us"]) == {"match", "insert", "evict", "max_evict_in_step"}
    for kind in ("match", "insert", "evict"):
        times = got["times_us"][kind]
        assert set(times) == {"count", "mean", "p99", "max"}
        assert times["mean"] <= times["max"] and times["p99"] <= times["max"]
    # Each is looked up before it is admitted (several times if it sleeps) and again to be locked.
    assert got["times_us"]["match"]["count"] >= 2 * len(TALKS)


def test_a_small_cache_evicts(trace):
    # Two unrelated prompts alternate: a cache that holds one of them finds nothing.
    one, two = line(1024, 1, 2), line(1024, 3, 4)
    path = trace([one, two, one, two])
    assert replay(path)["hit"] == 2 * 1023
    got = replay(path, "--pages", 1200, "--max-seqs", 1)
    assert got["pages"] == 1200
    assert got["evicted"] > 1000
    assert got["hit"] < 600 and got["ideal"] == 2 * 1023
    assert got["times_us"]["evict"]["count"] > 0
    assert got["times_us"]["max_evict_in_step"] >= got["times_us"]["evict"]["max"]


def test_pages_as_a_share(trace):
    path = trace([line(1000, 1, 2), line(1000, 3, 4)])
    assert replay(path, "--pages", "60%")["pages"] == 1200
    assert replay(path, "--pages=300%")["pages"] == 6000
    for pages, tokens in (("0.01%", 0), ("1", 1), ("400000000%", 8000000000)):
        done = radish(path, "--pages", pages)
        assert done.returncode == USAGE
        assert f"--pages {pages} is {tokens} tokens, but the cache holds from 2" in done.stderr
    assert replay(path, "--pages", "0")["pages"] >= 2000


def test_what_cannot_fit_is_counted(trace):
    got = replay(trace([line(100, 1), line(1000, 1, 2), line(100, 1)]), "--pages", 500)
    assert got["refused"] == 1
    assert got["asked"] == 1200 and got["hit"] == 99


def test_an_agent_and_its_sub_agents(trace):
    content = agent(64, (130, 3, [1, 2]), (200, 3, [1, 2, 3]))
    content["requests"].insert(1, {"type": "subagent", "requests": [
        {"t": 0.5, "in": 100, "out": 1, "hash_ids": [1]}]})
    got = replay(trace(content), "--max-output", 2)
    assert got["requests"] == 3
    # The two tokens after block 2 have no id, so nothing shares them.
    assert got["hit"] == got["ideal"] == 0 + 64 + 128
    assert got["generated"] == 2 + 1 + 2


def test_long_answers_are_made_only_on_demand(trace):
    path = trace([line(10, 1, output_length=300)])
    assert replay(path)["generated"] == 16
    assert replay(path, "--max-output", 1000)["generated"] == 300
    assert replay(path, "--max-output", 0)["generated"] == 0


def test_standard_input(trace):
    done = radish("-", "--json", input=trace(TALKS).read_text())
    assert done.returncode == OK and json.loads(done.stdout)["hit"] == TALKS_HIT


def test_text_names_what_json_names(trace):
    done = radish(trace(TALKS))
    assert done.returncode == OK and done.stderr == ""
    words = done.stdout.split()
    for word in ("requests", "asked", "hit", "ideal", "computed", "evicted", "expired", "preempted",
                 "match", "insert", "evict", "p99", "tokens/s", "2,811"):
        assert word in words
    assert "refused" not in words


def test_progress_is_for_terminals(trace):
    try:
        leader, follower = pty.openpty()
    except OSError as e:  # a bare chroot has no ptys
        pytest.skip(f"no pseudo-terminal: {e}")
    with open(leader, "rb", buffering=0) as terminal:
        done = subprocess.run([DEBUG, "replay", trace(TALKS)], stdout=subprocess.PIPE,
                              stderr=follower, timeout=60, check=False)
        os.close(follower)
        shown = terminal.read(65536).decode()
    assert done.returncode == OK
    assert "of 5 requests, hit rate" in shown
    assert shown.endswith("\r\033[K")  # the progress line is erased at the end
    assert "hit rate" not in done.stdout.decode()


@pytest.mark.parametrize("args,message", [
    ((), "no trace given"),
    (("a", "b"), "unexpected argument 'b'"),
    (("a", "--pages", "many"), "--pages needs"),
    (("a", "--pages", "-5"), "--pages needs"),
    (("a", "--pages", "5%%"), "--pages needs"),
    (("a", "--pages", "1e12"), "--pages needs"),
    (("a", "--pages", "nan"), "--pages needs"),
    (("a", "--max-seqs", "0"), "--max-seqs needs"),
    (("a", "--what"), "unknown option"),
])
def test_usage(args, message):
    done = radish(*args)
    assert done.returncode == USAGE
    assert message in done.stderr and "radish replay --help" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("content,message", [
    ("", "the file is empty"),
    ("not a trace", "expected a value"),
    ('{"input_length": 5, "hash_ids": [1]}\n{"input_length": 9, "hash_', "line 2: unexpected end of JSON"),
    ([line(600, 1, 2), line(600, 1, 2, 3)], "line 2: 600 tokens are 2 blocks of 512"),
    ([line(-1)], "line 1: \"input_length\" must be"),
    ([line(1 << 40)], "line 1: \"input_length\" must be"),
    ([line(5, "one")], "line 1: \"hash_ids\" must hold"),
    (agent(64, (10, 1, []), (10, "x", [])), "request 2: \"out\" must be"),
    (agent(0, (10, 1, [])), "\"block_size\" must be"),
    ({"requests": []}, "\"block_size\" is missing"),
])
def test_bad_traces(trace, content, message):
    path = trace(content)
    done = radish(path)
    assert done.returncode == FAILED
    assert message in done.stderr and str(path) in done.stderr
    assert "Sanitizer" not in done.stderr and done.stdout == ""


def test_a_missing_file():
    done = radish("/nowhere/trace.jsonl")
    assert done.returncode == FAILED and "/nowhere/trace.jsonl: No such file" in done.stderr


def test_help():
    done = radish("--help")
    assert done.returncode == OK
    assert "--pages" in done.stdout and "example: radish replay" in done.stdout


@pytest.mark.parametrize("name", ["trace_0100", "trace_0486"])
def test_recorded_agents_reach_the_ideal(name):
    path = AGENTS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    got = replay(path, binary=RELEASE)
    assert got["hit"] == got["ideal"] > 0.8 * got["asked"]
    assert got["evicted"] == 0


# ---- bench/hit_rate.py ---------------------------------------------------------------------------

def hit_rate(*args):
    done = subprocess.run([sys.executable, "bench/hit_rate.py", "--radish", DEBUG, "--json",
                           *map(str, args)], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_bench_draws_both_curves(trace, tmp_path):
    # Three prompts take turns with room for two: LRU hits none, an optimal policy every second one.
    turns = [line(1024, 2 * i, 2 * i + 1) for i in range(3)] * 4
    svg = tmp_path / "out.svg"
    got = hit_rate(trace(turns), "--sizes", "10,70,100", "--svg", svg, "--title", "a < b")
    none, some, all_of_it = got["rows"]
    assert got["ideal"] == got["unlimited"] == 9 * 1023 / (12 * 1024)
    assert none["radish"] == none["belady"] == 0 and none["refused"] == 12
    assert some["radish"] < 0.1 and 0.3 < some["belady"] < got["ideal"]
    assert all_of_it["belady"] == got["ideal"]
    root = ElementTree.parse(svg).getroot()
    shapes = [element.tag.split("}")[1] for element in root]
    assert shapes.count("polyline") == 2 and shapes.count("circle") == 6
    texts = [element.text for element in root if element.tag.endswith("text")]
    assert {"a < b", "70%", "Belady: knows the future"} <= set(texts)


def test_the_bench_merges_traces_by_time(tmp_path):
    paths = []
    for i in range(2):
        paths.append(tmp_path / f"{i}.json")
        paths[-1].write_text(json.dumps(agent(64, (128, 1, [1, 2]), (192, 1, [1, 2, 3]))))
    got = hit_rate(*paths, "--sizes", "100")
    assert got["requests"] == 4 and got["distinct"] == 2 * 192  # equal ids, different blocks
    assert got["ideal"] == got["unlimited"] == 2 * 128 / (2 * 320)
