"""`--config FILE`: the file's options reach the command, the command line wins, errors name the line."""
import pytest

from test_cli import FAILED, MOCK, USAGE, answer_of, radish


@pytest.fixture
def write(tmp_path):
    """Writes a config file: write("port = 0") is its path."""
    def run(text):
        path = tmp_path / "radish.conf"
        path.write_text(text)
        return str(path)

    return run


def test_a_server_takes_its_options_from_the_file(start, write):
    server = start("--config", write("# Two keys, two lines.\n"
                                     "api-key = first-tenant:key-1\n"
                                     "api-key = second-tenant:key-2\n"
                                     "strict-fields\n"
                                     "alias = \"a name\" # as clients see it\n"))
    assert server.get("/v1/models")[0] == 401
    for key in ("key-1", "key-2"):
        status, _, body = server.get("/v1/models", {"Authorization": f"Bearer {key}"})
        assert status == 200 and b'"a name"' in body
    status, _, body = server.post({"messages": [{"role": "user", "content": "once"}], "nonsense": 1}, {"Authorization": "Bearer key-1"})
    assert status == 400 and b"nonsense" in body


def test_the_command_line_wins(write):
    path = write("temp = 0\nmax-tokens = 7\nengine = mock\n")
    of_file = answer_of("--config", path, "once")
    assert of_file["completion_tokens"] == 7
    of_both = answer_of("--config", path, "-n", "3", "once")
    assert of_both["completion_tokens"] == 3


@pytest.mark.parametrize("command", ["serve", "run", "chat", "bench"])
def test_errors_name_the_file_and_the_line(command, write):
    path = write("# The engine.\nengine = mock\nthread = 2\n")
    done = radish(command, "--config", path)
    assert done.returncode == USAGE
    message = f"radish {command}: {path}, line 3: unknown option 'thread': did you mean threads?\n"
    assert done.stderr.decode().startswith(message)


def test_a_file_that_cannot_be_read(write, tmp_path):
    done = radish("serve", "--config", tmp_path / "nothing.conf")
    assert done.returncode == FAILED and b"nothing.conf: No such file" in done.stderr
    done = radish("serve", "--config", tmp_path)
    assert done.returncode == FAILED and str(tmp_path).encode() in done.stderr
    done = radish("serve", *MOCK, "--config", write("config = other.conf\n"))
    assert done.returncode == USAGE and b"cannot name another" in done.stderr


def test_a_missing_model_is_explained_with_the_file(write, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    path = write("# model = /somewhere/model.gguf\n")
    done = radish("serve", "--config", path)
    assert done.returncode == USAGE
    assert f"add a line `model = PATH` to {path}".encode() in done.stderr
