"""What the small files of a model's directory say, and who hears of it: the template, the tokens
that it is given, the defaults of sampling, and what `radish info` tells of a model that cannot run.
"""
import json
import shutil

import pytest

from conftest import Server, check_end
from test_directories import FAILED, GGUF, OK, TINY, json_of, output_of, post, radish

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture
def model(tmp_path):
    """A directory whose JSON files a test changes: model("config.json", {"a": 1}, without=("b",))"""
    if not TINY.is_dir():
        pytest.skip(f"there is no model at {TINY}")
    path = tmp_path / "model"
    path.mkdir()
    for name in FILES:
        shutil.copyfile(TINY / name, path / name)

    def change(name=None, members=None, without=()):
        if name:
            file = path / name
            values = json.loads(file.read_text()) if file.exists() else {}
            for key in without:
                values.pop(key, None)
            file.write_text(json.dumps({**values, **(members or {})}))
        return path

    return change


def serve(path, *args):
    return Server("-m", str(path), "--cache-size", "4096t", *args)


# ---- JSON as Python and editors write it ------------------------------------------------------

def test_json_files_may_have_a_mark_and_pythons_constants(model):
    path = model("config.json", {"time_step_limit": [0.0, float("inf")], "x": float("nan")})
    model("generation_config.json", {"limit": float("-inf")})
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        text = (path / name).read_text()
        (path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert output_of("run", "--raw", "-n", "1", "-m", path, "Once")
    server = serve(path)
    assert post(server, "/v1/completions", {"prompt": "a", "temperature": float("nan")})[0] == 400
    check_end(server)


def test_a_setting_that_is_no_number_is_refused(model):
    path = model("config.json", {"rms_norm_eps": float("nan")})
    status, _, stderr = radish("run", "--raw", "-m", path, "hi")
    assert status == FAILED and "rms_norm_eps" in stderr
