"""The float models of the shared data against their references, through the program itself.

stories260K must write what llama2.c writes, to the letter. TinyStories-656K is converted here by
tools/hf_to_gguf.py and its logits compared with those of transformers, which
tools/parity_logits.py has left in data/tinystories_logits.json.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("RADISH_SHARED", ROOT.parent / "shared"))
MODELS = SHARED / "data" / "models"
RADISH = ROOT / os.environ.get("RADISH_BUILD", "build") / "radish"
STORIES = MODELS / "stories260K"
TINY = MODELS / "TinyStories-656K"
BOUND = 1e-4  # of max|a-b| / max|b| over a row

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="the shared data are not there")


def radish(*args, stdin=""):
    done = subprocess.run(
        [RADISH, *map(str, args)], input=stdin.encode(), capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def goldens():
    path = STORIES / "runc_greedy_goldens.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("golden", goldens(), ids=lambda g: g["prompt"] or "empty")
def test_stories260k_writes_what_llama2c_writes(golden):
    model = STORIES / "stories260K-f32.converted-v3.gguf"
    prompt = radish("tokenize", "-m", model, stdin=golden["prompt"])
    assert prompt[0] == 1
    # llama2.c counts steps over prompt and answer, from the first token on.
    n = golden["steps"] - (len(prompt) - 1)
    answer = radish(
        "run", "-m", model, "--raw", "--json", "--temp", 0, "-n", n, "--kv-type", "f32",
        golden["prompt"],
    )  # fmt: skip
    assert (golden["prompt"] + answer["text"]).removeprefix(" ") == golden["output"]
    assert answer["completion_tokens"] == n


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    pytest.importorskip("numpy")
    out = tmp_path_factory.mktemp("tiny") / "tinystories.gguf"
    subprocess.run([sys.executable, ROOT / "tools" / "hf_to_gguf.py", TINY, out], check=True)
    return out


@pytest.fixture(scope="module")
def tiny_goldens():
    path = Path(__file__).parent / "data" / "tinystories_logits.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_tinystories_logits_are_those_of_transformers(tiny, tiny_goldens):
    tokens = ",".join(map(str, tiny_goldens["tokens"]))
    rows = radish(
        "logits", "-m", tiny, "--tokens", tokens, "--all", "--json", "--kv-type", "f32"
    )["logits"]  # fmt: skip
    assert len(rows) == len(tiny_goldens["tokens"])
    for golden in tiny_goldens["rows"]:
        row = rows[golden["position"]]
        worst = max(abs(row[int(i)] - value) for i, value in golden["values"].items())
        assert worst / golden["max_abs"] <= BOUND, f"position {golden['position']}"


def test_tinystories_greedy_tokens_are_those_of_transformers(tiny, tiny_goldens):
    """The goldens' tokens are the reference's own choices: each row's best is the next token."""
    tokens = tiny_goldens["tokens"]
    rows = radish(
        "logits", "-m", tiny, "--tokens", ",".join(map(str, tokens)), "--all", "--json",
        "--kv-type", "f32",
    )["logits"]  # fmt: skip
    assert [row.index(max(row)) for row in rows[:-1]] == tokens[1:]


def test_tinystories_one_row_is_the_last_of_all(tiny, tiny_goldens):
    tokens = ",".join(map(str, tiny_goldens["tokens"][:20]))
    options = ["-m", tiny, "--tokens", tokens, "--json", "--kv-type", "f32"]
    assert radish("logits", *options)["logits"] == radish("logits", *options, "--all")["logits"][-1]


# What the tokenizers package makes of these texts with TinyStories' tokenizer.json.
TINY_TEXTS = {
    "Once upon a time, there was a little girl named Lily. She had a toy car":
        [1, 80, 147, 201, 282, 215, 286, 598, 1662, 356, 1544],
    'The dog said, "Hello!"\nTom ran home.':
        [1, 80, 247, 401, 204, 1288, 67, 572, 388, 494, 1128, 57, 10],
    "zebra 42 <x>": [1, 80, 78, 57, 644, 134, 15, 13, 80, 23, 76, 24],
}  # fmt: skip


@pytest.mark.parametrize("text", TINY_TEXTS)
def test_the_converter_keeps_the_tokenizer(tiny, text):
    assert radish("tokenize", "-m", tiny, stdin=text) == TINY_TEXTS[text]


def test_version_1_is_refused_in_words():
    model = STORIES / "tinyllamas-stories-260k-f32.gguf"
    done = subprocess.run([RADISH, "info", "-m", model], capture_output=True, timeout=60)
    assert done.returncode == 1
    assert str(model) in done.stderr.decode() and "GGUF version 1" in done.stderr.decode()


def test_a_model_that_is_not_one_is_refused_in_words(tmp_path):
    for name, content in [("empty.gguf", b""), ("zip.gguf", b"PK\3\4abcdefgh")]:
        path = tmp_path / name
        path.write_bytes(content)
        done = subprocess.run([RADISH, "info", "-m", path], capture_output=True, timeout=60)
        assert done.returncode == 1 and str(path) in done.stderr.decode()
