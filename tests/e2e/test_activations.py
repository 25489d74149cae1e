"""--activations q16 brings a quantised model close to float activations, in `radish logits` and in
the server."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD, Server, check_end

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("RADISH_SHARED", ROOT.parent / "shared"))
GGUF = SHARED / "data/models/stories260K/stories260K-f32.converted-v3.gguf"
STORY = "Once upon a time there was a dog"
N_TOKENS = 24

pytestmark = pytest.mark.skipif(not GGUF.exists(), reason=f"there is no model at {GGUF}")


def radish(*args, stdin=""):
    done = subprocess.run([os.path.join(BUILD, "radish-debug"), *map(str, args)], timeout=120,
                          input=stdin.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("activations") / "stories.gguf"
    radish("quantize", GGUF, path, "--type", "q8_0")
    return path


def logits_of(model, *args):
    tokens = ",".join(map(str, json.loads(radish("tokenize", "-m", model, stdin=STORY))))
    return json.loads(radish("logits", "-m", model, "--tokens", tokens, "--all", "--json",
                             "--kv-type", "f32", *args))["logits"]


def worst_error(got, want):
    return max(max(abs(a - b) for a, b in zip(*rows)) / max(map(abs, rows[1]))
               for rows in zip(got, want))


def test_logits_are_those_of_the_file(model):
    floats, default = logits_of(model, "--quantize", "f32"), logits_of(model)
    assert logits_of(model, "--activations", "q8") == default
    assert worst_error(default, floats) > 2e-3
    assert 0 < worst_error(logits_of(model, "--activations", "q16"), floats) < 5e-4


def test_the_server_answers_with_them(model):
    server = Server("-m", str(model), "--cache-size", "1024t", "--activations", "q16")
    body = {"prompt": STORY, "max_tokens": N_TOKENS, "temperature": 0}
    status, _, text = server.get("/v1/completions", {"Content-Type": "application/json"}, "POST",
                                 json.dumps(body))
    check_end(server)
    answer = json.loads(text)
    assert status == 200 and ", 16-bit activations)" in server.log()
    assert answer["system_fingerprint"].endswith("/q16")
    run = json.loads(radish("run", "-m", model, "--raw", "--temperature", "0", "--json", "-n",
                            N_TOKENS, "--activations", "q16", STORY))
    assert run["text"] == answer["choices"][0]["text"]
