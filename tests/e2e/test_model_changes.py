"""A model's files change while it is loaded, and while it is served: never a crash, and never an answer of anything but the
model.

A template that comes from standard input holds a start back between opening the model and reading its weights.
"""
import json
import mmap
import os
import shutil
import subprocess
import time

import pytest

from conftest import BUILD, MODEL, Server, check_end
from test_directories import TEMPLATE, TINY, needs_tiny

RADISH = os.path.join(BUILD, "radish")
FAILED = 1
OLD = 1_000_000_000

needs_model = pytest.mark.skipif(not os.path.exists(MODEL), reason=f"there is no model at {MODEL}")


def write_mapped(path):
    """No watcher of files is told of this."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[:] = bytes(len(view))


def write_over(path):
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.write(os.urandom(size))


def cut(path):
    os.truncate(path, os.path.getsize(path) // 3)


def cut_to_nothing(path):
    os.truncate(path, 0)


def replace(path):
    with open(f"{path}.new", "wb") as file:
        file.write(b"something else")
    os.rename(f"{path}.new", path)


CHANGES = [write_mapped, write_over, cut, cut_to_nothing, replace, os.unlink]


def text_of(server, prompt):
    status, _, body = server.get(
        "/v1/completions", {"Content-Type": "application/json"}, "POST",
        json.dumps({"prompt": prompt, "max_tokens": 12, "temperature": 0, "cache_prompt": False}))
    assert status == 200, body
    return json.loads(body)["choices"][0]["text"]


def check_serving(model, weights):
    """All changes in turn, to the file of the weights. The prompts have tokens not read before."""
    prompts = ["Once upon a time there was a dog", "The queen of 1817 sold blue carrots!"]
    quiet = Server("-m", str(model), "--cache-size", "4096t", debug=False)
    wanted = [text_of(quiet, prompt) for prompt in prompts]
    check_end(quiet)
    server = Server("-m", str(model), "--cache-size", "4096t", debug=False)
    assert text_of(server, prompts[0]) == wanted[0]
    with open(f"/proc/{server.process.pid}/maps") as maps:
        assert str(weights) not in maps.read()
    for change in CHANGES:
        change(weights)
        assert [text_of(server, prompt) for prompt in prompts] == wanted, change.__name__
    check_end(server)


@needs_model
def test_a_served_gguf_file_may_change(tmp_path):
    path = shutil.copy(MODEL, tmp_path / "model.gguf")
    check_serving(path, path)


@needs_tiny
def test_a_served_directory_may_change(tmp_path):
    shutil.copytree(TINY, tmp_path / "model")
    check_serving(tmp_path / "model", tmp_path / "model/model.safetensors")


def start_held(path, *command):
    """A command that has opened the model, and waits for its template."""
    process = subprocess.Popen([RADISH, *command, "-m", path, "--engine", "cpu",
                                "--chat-template-file", "-"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with open(f"/proc/{process.pid}/maps") as maps:
            if str(path) in maps.read():
                return process
        time.sleep(0.01)
    process.kill()
    raise AssertionError(process.communicate())


def go_on(process):
    """(status, what it says)"""
    out, said = process.communicate(TEMPLATE.encode(), timeout=60)
    return process.returncode, out.decode(), said.decode()


RUN = ("run", "--temperature", "0", "--json", "-n", "4", "hello")


@needs_model
@pytest.mark.parametrize("change, words", [
    (write_mapped, "it changed while it was read; try again when it is complete"),
    (write_over, "it changed while it was read; try again when it is complete"),
    (cut, "it was cut short"), (cut_to_nothing, "it was cut short")])
def test_a_change_while_loading_ends_with_a_message(tmp_path, change, words):
    path = shutil.copy(MODEL, tmp_path / "model.gguf")
    os.utime(path, (OLD, OLD))
    held = start_held(path, *RUN)
    change(path)
    status, out, said = go_on(held)
    assert status == FAILED and out == "", (status, out, said)
    assert said.startswith("radish") and f"{path}: " in said and words in said, said
    assert said.count("\n") == 1, said
    assert not os.path.exists(f"{path}.radish-packed")


@needs_model
@pytest.mark.parametrize("change", [replace, os.unlink])
def test_a_file_that_goes_while_loading_is_still_read(tmp_path, change):
    path = shutil.copy(MODEL, tmp_path / "model.gguf")
    held = start_held(path, *RUN)
    change(path)
    status, out, said = go_on(held)
    assert status == 0 and '"text"' in out, said


@needs_model
def test_a_server_that_loads_ends_with_a_message(tmp_path):
    path = shutil.copy(MODEL, tmp_path / "model.gguf")
    held = start_held(path, "serve", "--port", "0")
    cut_to_nothing(path)
    status, _, said = go_on(held)
    # Found by the fault, or by looking at the file again after reading.
    assert status == FAILED and f"{path}: " in said and "it was cut short" in said
    assert "listening" not in said
