"""GGUF files: stories260K must write exactly what llama2.c writes, and other files are rejected. test_directories.py
does the same with a directory.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("RADISH_SHARED", ROOT.parent / "shared"))
RADISH = ROOT / os.environ.get("RADISH_BUILD", "build") / "radish"
STORIES = SHARED / "data/models/stories260K"

pytestmark = pytest.mark.skipif(not STORIES.is_dir(), reason="the shared data are not there")


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
    # llama2.c counts prompt and answer tokens as steps.
    n = golden["steps"] - (len(prompt) - 1)
    answer = radish(
        "run", "-m", model, "--raw", "--json", "--temp", 0, "-n", n, "--kv-type", "f32",
        golden["prompt"],
    )  # fmt: skip
    assert (golden["prompt"] + answer["text"]).removeprefix(" ") == golden["output"]
    assert answer["completion_tokens"] == n


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
