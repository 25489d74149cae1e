"""Models as Hugging Face directories: every command accepts one, the server serves it and caches its turns, and a
directory with no model or an incomplete one is reported in one line.

The commands run in the debug binary, so the sanitizers check how files are read.
"""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD, Server, check_end

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("RADISH_SHARED", ROOT.parent / "shared"))
TINY = SHARED / "data/models/TinyStories-656K"
GGUF = SHARED / "data/models/stories260K/stories260K-f32.converted-v3.gguf"
GOLDENS = Path(__file__).parent / "data/tinystories_logits.json"
RADISH = os.path.join(BUILD, "radish-debug")
OK, FAILED, USAGE = 0, 1, 2
TRAINED = 512  # max_position_embeddings
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"
STORY = "Once upon a time there was a dog"
GREEDY = ("--raw", "--temperature", "0", "--json")

needs_tiny = pytest.mark.skipif(not TINY.is_dir(), reason=f"there is no model at {TINY}")


def radish(*args, stdin=""):
    done = subprocess.run([RADISH, *map(str, args)], input=stdin.encode(), capture_output=True,
                          timeout=120, check=False)
    stderr = done.stderr.decode()
    assert "Sanitizer" not in stderr and "runtime error" not in stderr, stderr
    return done.returncode, done.stdout.decode(), stderr


def output_of(*args, stdin=""):
    status, stdout, stderr = radish(*args, stdin=stdin)
    assert status == OK, stderr
    return stdout


def json_of(*args, stdin=""):
    return json.loads(output_of(*args, stdin=stdin))


def post(server, path, body):
    """(status, answer)"""
    status, _, text = server.get(path, {"Content-Type": "application/json"}, "POST",
                                 json.dumps(body))
    return status, json.loads(text)


def cached_tokens(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def relative_error(got, want):
    return max(abs(a - b) for a, b in zip(got, want)) / max(map(abs, want))


def logits_of(*args):
    tokens = json.loads(GOLDENS.read_text(encoding="utf-8"))["tokens"]
    return json_of("logits", "--tokens", ",".join(map(str, tokens)), "--all", "--json",
                   "--kv-type", "f32", *args)["logits"]


# ---- the server -------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def tiny():
    if not TINY.is_dir():
        pytest.skip(f"there is no model at {TINY}")
    server = Server("-m", f"{TINY}/", "--cache-size", "4096t")
    yield server
    check_end(server)


def test_the_model_has_the_name_of_its_directory(tiny):
    models = json.loads(tiny.get("/v1/models")[2])["data"]
    assert [(m["id"], m["context_window"]) for m in models] == [("TinyStories-656K", TRAINED)]


@needs_tiny
def test_the_tables_of_a_small_model_are_part_of_its_cache():
    """A page has 512 bytes of KV and about half as much in tables."""
    server = Server("-m", TINY, "--cache-size", "1GiB", debug=False)
    check_end(server)
    kv, other = map(float, re.search(r"cache \(KV\) up to ([\d.]+) MiB.*other ([\d.]+) MiB",
                                     server.log()).groups())
    assert kv > 500 and 900 < kv + other < 1024 + 50, (kv, other)


def test_a_story_goes_on_from_the_cache(tiny):
    """The second turn finds all of the first except the last sampled token."""
    ask = {"max_tokens": 24, "temperature": 0}
    status, first = post(tiny, "/v1/completions", {"prompt": STORY, **ask})
    assert status == 200 and cached_tokens(first) == 0, first
    usage, text = first["usage"], first["choices"][0]["text"]
    assert usage["prompt_tokens"] == len(json_of("tokenize", "-m", TINY, stdin=STORY))
    assert text == json_of("run", "-m", TINY, *GREEDY, "-n", 24, STORY)["text"]
    more = STORY + text + " One day, Spot"
    status, second = post(tiny, "/v1/completions", {"prompt": more, **ask})
    assert status == 200, second
    assert cached_tokens(second) == usage["prompt_tokens"] + usage["completion_tokens"] - 1
    status, again = post(tiny, "/v1/completions", {"prompt": more, **ask})
    assert status == 200 and cached_tokens(again) == again["usage"]["prompt_tokens"] - 1
    assert again["choices"] == second["choices"]


def test_a_chat_without_a_template_is_refused(tiny):
    status, answer = post(tiny, "/v1/chat/completions",
                          {"messages": [{"role": "user", "content": STORY}]})
    assert status == 501 and "--chat-template-file" in answer["error"]["message"], answer
    assert "no chat template, so chat requests are rejected" in tiny.log()


def test_a_prompt_beyond_the_context_is_refused(tiny):
    status, answer = post(tiny, "/v1/completions", {"prompt": [5] * (TRAINED + 88)})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
    assert "600" in answer["error"]["message"] and str(TRAINED) in answer["error"]["message"]


@needs_tiny
@pytest.mark.parametrize("place", ["option", "directory"])
def test_a_chat_goes_on_from_the_cache(tmp_path, place):
    """The template comes from an option or from the directory."""
    if place == "option":
        model, template = TINY, tmp_path / "template.jinja"
        options = ("--chat-template-file", str(template))
    else:
        model, options = tmp_path / "model", ()
        shutil.copytree(TINY, model, copy_function=os.symlink)
        model.chmod(0o755)
        template = model / "chat_template.jinja"
    template.write_text(TEMPLATE)
    server = Server("-m", str(model), "--cache-size", "4096t", *options)
    try:
        messages = [{"role": "user", "content": STORY}]
        ask = {"max_tokens": 16, "temperature": 0}
        status, first = post(server, "/v1/chat/completions", {"messages": messages, **ask})
        assert status == 200 and cached_tokens(first) == 0, first
        messages.append(first["choices"][0]["message"])
        messages.append({"role": "user", "content": "Spot was happy."})
        status, second = post(server, "/v1/chat/completions", {"messages": messages, **ask})
        assert status == 200, second
        usage = first["usage"]
        assert cached_tokens(second) == usage["prompt_tokens"] + usage["completion_tokens"] - 1
    finally:
        check_end(server)


# ---- the commands -----------------------------------------------------------------------------

@needs_tiny
def test_info():
    text = output_of("info", TINY)
    assert "TinyStories-656K" in text and "Hugging Face directory" in text and "GGUF" not in text
    info = json_of("info", "--json", "-m", TINY)
    shape = {key: info[key] for key in ("architecture", "context", "vocabulary", "layers", "heads",
                                        "kv_heads", "tied_head", "chat_template")}
    assert shape == {"architecture": "llama", "context": TRAINED, "vocabulary": 2048, "layers": 2,
                     "heads": 8, "kv_heads": 4, "tied_head": True, "chat_template": False}


@needs_tiny
def test_tokenize_and_back():
    tokens = json_of("tokenize", "-m", TINY, stdin=STORY)
    assert tokens[0] == 1 and len(tokens) < len(STORY) / 2
    plain = json_of("tokenize", "-m", TINY, "--no-special", stdin=STORY)
    assert plain == tokens[1:]
    assert output_of("tokenize", "-m", TINY, "--decode", stdin=json.dumps(plain)).strip() == STORY


# Token ids from the tokenizers package.
TEXTS = {
    "Once upon a time, there was a little girl named Lily. She had a toy car":
        [1, 80, 147, 201, 282, 215, 286, 598, 1662, 356, 1544],
    'The dog said, "Hello!"\nTom ran home.':
        [1, 80, 247, 401, 204, 1288, 67, 572, 388, 494, 1128, 57, 10],
    "zebra 42 <x>": [1, 80, 78, 57, 644, 134, 15, 13, 80, 23, 76, 24],
}


@needs_tiny
@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_those_of_the_tokenizers_package(text):
    assert json_of("tokenize", "-m", TINY, stdin=text) == TEXTS[text]


@needs_tiny
def test_logits_are_those_of_transformers():
    """The expected logits were written by tools/parity_logits.py."""
    goldens = json.loads(GOLDENS.read_text(encoding="utf-8"))
    rows = logits_of("-m", TINY)
    assert len(rows) == len(goldens["tokens"]) and goldens["rows"]
    assert [row.index(max(row)) for row in rows[:-1]] == goldens["tokens"][1:]
    for golden in goldens["rows"]:
        row = rows[golden["position"]]
        worst = max(abs(row[int(i)] - value) for i, value in golden["values"].items())
        assert worst / golden["max_abs"] < 1e-4, f"position {golden['position']}"
    tokens = ",".join(map(str, goldens["tokens"]))
    one = json_of("logits", "-m", TINY, "--tokens", tokens, "--json", "--kv-type", "f32")
    assert one["logits"] == rows[-1]


@needs_tiny
def test_quantised_as_it_is_loaded():
    rows, small = logits_of("-m", TINY), logits_of("-m", TINY, "--quantize", "q8_0")
    worst = max(map(relative_error, small, rows))
    assert 0 < worst < 0.05, worst
    status, _, stderr = radish("run", "-m", TINY, "--quantize", "q9", *GREEDY, STORY)
    assert status == USAGE and "--quantize must be" in stderr and "q9" in stderr and "q8_0" in stderr


@needs_tiny
def test_run_and_bench():
    answer = json_of("run", "-m", TINY, *GREEDY, "-n", 24, STORY)
    assert answer["completion_tokens"] == 24 and answer["text"].isascii()
    assert len(answer["text"].split()) > 10  # words, not noise
    status, stdout, stderr = radish("run", "-m", TINY, "-n", 4, STORY)
    assert status == FAILED and not stdout and "--raw" in stderr  # it has no template
    report = json_of("bench", "-m", TINY, "-p", 16, "-n", 4, "-r", 1, "--no-limits", "--json")
    assert report["model"] == "TinyStories-656K"
    assert [row["test"] for row in report["rows"]] == ["prefill", "decode"]


@needs_tiny
@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("run", "--raw", "hi"),
                                     ("logits", "--tokens", "1")])
def test_a_context_beyond_the_trained_one_is_refused(command):
    status, stdout, stderr = radish(*command, "-m", TINY, "-c", TRAINED + 1)
    assert status == USAGE and not stdout
    assert str(TRAINED) in stderr and str(TRAINED + 1) in stderr
    if command[0] == "logits":
        assert output_of(*command, "-m", TINY, "-c", TRAINED)


def test_quantize_writes_a_smaller_file(tmp_path):
    if not GGUF.exists():
        pytest.skip(f"there is no model at {GGUF}")
    out = tmp_path / "small.gguf"
    output_of("quantize", GGUF, out, "--type", "q8_0")
    assert out.stat().st_size < GGUF.stat().st_size / 2
    ask = ("run", *GREEDY, "-n", 16, "Once upon a time")
    assert json_of(*ask, "-m", out)["text"] == json_of(*ask, "-m", GGUF)["text"]
    status, _, stderr = radish("quantize", out, tmp_path / "again.gguf", "--type", "q4_0")
    assert status != OK and "--allow-requantize" in stderr
    assert os.listdir(tmp_path) == [out.name]


@needs_tiny
def test_quantize_takes_a_directory(tmp_path):
    """The file computes, tokenises and serves the same as the directory."""
    whole, small = tmp_path / "whole.gguf", tmp_path / "small.gguf"
    assert "tensors converted" in output_of("quantize", TINY, whole, "--type", "f32")
    output_of("quantize", f"{TINY}/", small)
    assert small.stat().st_size < whole.stat().st_size * 0.6
    for got, want in zip(logits_of("-m", whole), logits_of("-m", TINY)):
        assert relative_error(got, want) < 1e-5
    texts = "\n".join(json.dumps(text) for text in (STORY, "", " é\t<s>\n  x", "<|endoftext|>7"))
    for flags in ((), ("--parse-special",), ("--no-special",)):
        ask = ("tokenize", "--lines", *flags, "-m")
        assert output_of(*ask, whole, stdin=texts) == output_of(*ask, TINY, stdin=texts)
    ask = ("run", *GREEDY, "-n", 24, STORY)
    text = json_of(*ask, "-m", TINY)["text"]
    assert json_of(*ask, "-m", whole)["text"] == text
    assert json_of("info", whole, "--json")["context"] == TRAINED
    server = Server("-m", str(whole), "--cache-size", "4096t")
    try:
        status, answer = post(server, "/v1/completions",
                              {"prompt": STORY, "max_tokens": 24, "temperature": 0})
        assert status == 200 and answer["choices"][0]["text"] == text, answer
    finally:
        check_end(server)


@needs_tiny
def test_what_quantize_refuses(tmp_path, broken):
    for args, words in ((("quantize", TINY), ["Usage"]),
                        (("quantize", TINY, tmp_path), ["directory", "NAME.gguf"]),
                        (("quantize", TINY, tmp_path / "x.gguf", "--type", "q9"), ["q9", "q4_k"])):
        status, stdout, stderr = radish(*args)
        assert status == USAGE and not stdout and all(word in stderr for word in words), stderr
    out = tmp_path / "out.gguf"
    shutil.copyfile(TINY / "config.json", out)
    status, _, stderr = radish("quantize", out, out)
    assert status == USAGE and "choose another name for the output" in stderr
    out.unlink()
    directory = broken("config.json")
    status, _, stderr = radish("quantize", directory, out)
    assert status == FAILED and "*.safetensors" in stderr and stderr.count("\n") == 1
    directory = broken("config.json", "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "model_type": "t5"}))
    status, _, stderr = radish("quantize", directory, out)
    assert status == FAILED and '"t5"' in stderr and stderr.count("\n") == 1
    status, _, stderr = radish("quantize", TINY, "/dev/full/out.gguf")
    assert status == FAILED and "/dev/full/out.gguf" in stderr
    assert not out.exists() and not list(tmp_path.glob("*.tmp"))


# ---- not a model ------------------------------------------------------------------------------

@pytest.fixture
def broken(tmp_path):
    """A directory with parts of a model: broken("config.json", "model.safetensors")"""
    if not TINY.is_dir():
        pytest.skip(f"there is no model at {TINY}")

    def make(*names):
        for name in names:
            shutil.copyfile(TINY / name, tmp_path / name)
        return tmp_path

    return make


COMMANDS = [("serve", "--port", "0", "-m"), ("run", "--raw", "hi", "-m"), ("info",),
            ("logits", "--tokens", "1", "-m"), ("bench", "--no-limits", "-m")]


def check_refused(path, *words, commands=tuple(COMMANDS)):
    """Each command reports it in one line with the path, after what the log says about loading."""
    for command in commands:
        status, stdout, stderr = radish(*command, path)
        assert status == FAILED and not stdout, (command, status, stdout)
        notes = ("until it is ready", "info  engine: cpu")
        lines = [line for line in stderr.splitlines() if not any(note in line for note in notes)]
        assert len(lines) == 1 and str(path) in lines[0], stderr
        assert all(word in stderr for word in words), stderr


def test_a_path_that_is_not_there(tmp_path):
    check_refused(tmp_path / "none", "No such file or directory", "GGUF", "config.json")
    check_refused(tmp_path / "none", "No such file", commands=[("tokenize", "-m")])


def test_an_empty_directory(tmp_path):
    check_refused(tmp_path, "no model in this directory", "config.json", "*.safetensors")
    check_refused(tmp_path, "tokenizer.json", commands=[("tokenize", "-m")])


def test_only_a_config(broken):
    check_refused(broken("config.json"), "config.json is there, but no weights", "*.safetensors")


def test_only_weights(broken):
    check_refused(broken("model.safetensors"), "config.json is missing")


def test_a_missing_shard(broken):
    path = broken("config.json", "model.safetensors", "tokenizer.json")
    (path / "model.safetensors").rename(path / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors",
                            "model.norm.weight": "model-00002-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    check_refused(path, "model-00002-of-00002.safetensors is missing")


@pytest.mark.parametrize("n_bytes", [0, 7, 100, 2000, 100000, 2626167])
def test_weights_that_were_cut_off(broken, n_bytes):
    path = broken("config.json", "model.safetensors", "tokenizer.json")
    os.truncate(path / "model.safetensors", n_bytes)
    check_refused(path, "model.safetensors", commands=COMMANDS[:2])


def test_a_quantisation_that_is_not_read(broken):
    path = broken("config.json", "model.safetensors", "tokenizer.json")
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 128}
    (path / "config.json").write_text(json.dumps(config))
    check_refused(path, "AWQ", "GGUF")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model_type": 3}', '{"model_type": "no_such"}',
                                  "\0" * 100, "[" * 10000])
def test_a_config_that_says_nothing(broken, text):
    path = broken("config.json", "model.safetensors", "tokenizer.json")
    (path / "config.json").write_text(text)
    check_refused(path, commands=COMMANDS[1:3])


def test_without_a_tokenizer(broken):
    """Commands that need no text work without it."""
    path = broken("config.json", "model.safetensors")
    check_refused(path, "tokenizer.json", commands=[*COMMANDS[:2], ("tokenize", "-m")])
    assert len(json_of("logits", "-m", path, "--tokens", "1", "--json")["logits"]) == 2048
    assert "2048 tokens" in output_of("info", path)
