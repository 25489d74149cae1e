"""Starting the real model: the log's figures for time and memory are true, and a second start reads the packed weights
that the first one saved beside the model."""
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from conftest import BUILD, MODEL, Server, check_end

RADISH = os.path.join(BUILD, "radish")

needs_model = pytest.mark.skipif(not os.path.exists(MODEL), reason=f"there is no model at {MODEL}")


def resident_mib(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        text = status.read()
    return {key: int(re.search(key + r":\s+(\d+) kB", text)[1]) / 1024
            for key in ("VmRSS", "RssAnon", "RssFile")}


def said_mib(server):
    found = re.search(r"memory: packed weights ([\d.]+) MiB, embeddings ([\d.]+) MiB, "
                      r"cache \(KV\) up to ([\d.]+) MiB \(\d+ tokens of \d+ bytes\), other ([\d.]+) MiB",
                      server.log())
    assert found, server.log()
    return dict(zip(("packed", "file", "kv", "other"), map(float, found.groups())))


def vocabulary_text():
    """Lines with tokens from every part of the vocabulary."""
    newline = json.loads(subprocess.run([RADISH, "tokenize", "-m", MODEL, "--no-special"],
                                        input=b"\n", stdout=subprocess.PIPE, check=True).stdout)
    ids = [i for token in range(300, 49000, 40) for i in (token, newline[0])]
    return subprocess.run([RADISH, "tokenize", "-m", MODEL, "--decode"],
                          input=json.dumps(ids).encode(), stdout=subprocess.PIPE,
                          check=True).stdout.decode(errors="replace")


@needs_model
def test_memory_is_what_the_log_says():
    server = Server("-m", MODEL, "--cache-size", "64MiB", "--step-budget-ms", "10000", debug=False)
    try:
        lines = vocabulary_text().split("\n")
        for part in range(5):  # more than the cache holds
            text = "\n".join(lines[part::5])
            status, _, body = server.post({"messages": [{"role": "user", "content": text}],
                                           "max_tokens": 8})
            assert status == 200, body
        stats = server.wait_idle()
        assert stats["pages_free"] < stats["pages"] / 2, stats
        said, resident = said_mib(server), resident_mib(server)
        total = sum(said.values())
        assert abs(resident["VmRSS"] - total) < 0.05 * total, (said, resident)
        # Packed weights must not be in memory twice.
        assert resident["RssFile"] < said["file"] + 10, (said, resident)
    finally:
        check_end(server)


@needs_model
def test_the_log_says_how_long_the_start_took():
    before = time.monotonic()
    server = Server("-m", MODEL, "--cache-size", "64MiB", debug=False)
    took = time.monotonic() - before
    check_end(server)
    found = re.search(r"listening on \S+ \(ready in ([\d.]+) s\)", server.log())
    assert found and 0 < float(found[1]) <= took + 0.01, server.log()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def models_of(server):
    return json.loads(server.get("/v1/models")[2])["data"][0]


def test_a_busy_port_is_told_before_the_model_is_loaded():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        done = subprocess.run([RADISH, "serve", "-m", __file__, "--port",
                               str(other.getsockname()[1])], capture_output=True, timeout=60,
                              check=False)
    assert done.returncode == 1
    assert b"Address already in use; use another --port" in done.stderr, done.stderr


@pytest.mark.parametrize("args, message", [
    (("-m", "/no/such/model"), "/no/such/model: No such file or directory; expected a GGUF file"),
    (("-m", __file__, "--chat-template-file", "/no/such"), "--chat-template-file /no/such: No such file or directory"),
    (("--engine", "mock", "--chat-template-file", "/no/such"), "--chat-template-file /no/such: No such file"),
])
def test_a_path_that_is_not_there_is_told_before_anything_is_served(args, message):
    done = subprocess.run([RADISH, "serve", "--port", "0", *args], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.decode().startswith("radish serve: " + message) and done.stderr.count(b"\n") == 1


@needs_model
def test_requests_get_503_while_the_model_is_loaded(tmp_path):
    port, seen = free_port(), []
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([RADISH + "-debug", "serve", "-m", MODEL, "--port", str(port),
                                    "--cache-size", "64MiB"], stderr=log)
    deadline = time.monotonic() + 120
    while (not seen or seen[-1][0] != 200) and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as reply:
                seen.append((reply.status, reply.read()))
        except urllib.error.HTTPError as error:
            seen.append((error.code, error.read()))
            assert error.headers["Retry-After"]
        except OSError:
            assert not seen or seen[-1][0] == 503  # the socket does not exist yet
        time.sleep(0.05)
    process.terminate()
    assert process.wait(60) == 0
    loading = [json.loads(body) for status, body in seen if status == 503]
    assert loading and loading[0]["error"]["message"] == "Loading model", seen
    assert seen[-1][0] == 200, seen


@needs_model
@pytest.mark.skipif(subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode != 0,
                    reason="this user may not make a PID namespace")
def test_the_first_process_of_a_container_can_be_stopped_while_it_loads(tmp_path):
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", RADISH + "-debug", "serve",
                                    "-m", MODEL, "--port", "0", "--cache-size", "64MiB"], stderr=log)
    deadline = time.monotonic() + 60
    while b"loading" not in (tmp_path / "log").read_bytes() and time.monotonic() < deadline:
        time.sleep(0.01)
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
        os.kill(int(children.read()), signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "log").read_bytes().endswith(b"radish: stopped before the model was loaded\n")


@needs_model
def test_without_a_model_the_default_one_is_served(tmp_path, monkeypatch):
    (tmp_path / "radish").mkdir()
    os.symlink(MODEL, tmp_path / "radish/SmolLM2-135M-Instruct.Q4_1.gguf")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    server = Server("--cache-size", "64MiB", debug=False)
    try:
        models = json.loads(server.get("/v1/models")[2])["data"]
        assert [model["id"] for model in models] == ["SmolLM2-135M-Instruct.Q4_1"]
    finally:
        check_end(server)


def test_a_tls_hello_is_told_to_use_http(start):
    server = start()
    with server.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32))
        reply = b""
        while part := connection.recv(4096):
            reply += part
    assert reply.startswith(b"HTTP/1.1 400 ") and b"use http://" in reply
    assert "this looks like HTTPS; use http://" in server.log()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLError), server.connect() as connection:
        context.wrap_socket(connection, server_hostname="localhost")


def test_a_model_that_fails_to_load_may_have_a_fallback(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and no more")
    done = subprocess.run([RADISH, "serve", "-m", str(broken), "--port", "0"], capture_output=True,
                          timeout=60, check=False)
    assert done.returncode == 1 and b"broken.gguf" in done.stderr
    server = Server("-m", str(broken), "--fallback", "mock", "--alias", "clever")
    assert "the model failed to load: " in server.log() and "the mock engine runs" in server.log()
    assert json.loads(server.get("/health")[2]) == {"status": "ok", "fallback": "mock"}
    assert models_of(server)["id"] == "mock (fallback of broken)"
    status, _, body = server.post({"messages": [{"role": "user", "content": "Hi"}],
                                   "max_tokens": 4})
    assert status == 200 and json.loads(body)["model"] == "mock (fallback of broken)"
    check_end(server)


def test_the_cache_size_in_tokens_and_names_with_one_dash():
    server = Server("-engine", "mock", "-max_tokens", "3000", "--max-tokens", "5")
    assert server.stats()["pages"] == 3000
    assert json.loads(server.get("/health")[2]) == {"status": "ok"}
    _, _, body = server.post({"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True})
    assert json.loads(body)["usage"]["completion_tokens"] == 5
    check_end(server)


@needs_model
def test_what_the_bits_depend_on_is_in_the_fingerprint():
    def of(*options):
        server = Server("-m", MODEL, "-max_tokens", "9000", *options, debug=False)
        status, _, body = server.post({"messages": [{"role": "user", "content": "Hi"}],
                                       "max_tokens": 1})
        too_long = server.post({"messages": [{"role": "user", "content": "a b " * 9000}]})[2]
        check_end(server)
        assert status == 200
        # The context is the model's maximum: a larger -c does not help.
        assert b"Please reduce their length." in too_long and b" -c" not in too_long, too_long
        return json.loads(body)["system_fingerprint"]

    plain, f32, quantised = of(), of("--kv-type", "f32"), of("--quantize", "q8_0")
    assert len({plain, f32, quantised}) == 3
    assert "/kv-f32/" in f32 and "/to-q8_0/" in quantised and "/kv-" not in plain


@needs_model
def test_the_default_model_is_sampled_as_its_makers_recommend(tmp_path):
    """The model is recognised by its metadata, so the file name does not matter."""
    other = tmp_path / "other.gguf"
    other.symlink_to(MODEL)
    server = Server("-m", str(other), "--cache-size", "64MiB", debug=False)
    told = json.loads(server.get("/v1/models")[2])["data"][0]["default_sampling"]
    check_end(server)
    assert (told["temperature"], told["top_p"], told["top_k"], told["min_p"]) == (0.2, 0.9, 40, 0.05)
    assert "sampling defaults: temperature 0.2 (model), top_p 0.9 (model), top_k 40" in server.log()
    info = subprocess.run([RADISH, "info", str(other), "--json"], stdout=subprocess.PIPE, check=True)
    assert json.loads(info.stdout)["default_sampling"] == told


def answer(server):
    status, _, body = server.post({"messages": [{"role": "user", "content": "Name three rivers."}],
                                   "max_tokens": 24, "temperature": 0})
    assert status == 200, body
    return json.loads(body)["choices"][0]


@needs_model
def test_a_second_start_reads_the_packed_weights(tmp_path):
    model = tmp_path / "model.gguf"
    packed = tmp_path / "model.gguf.radish-packed"
    shutil.copy(MODEL, model)
    options = ("-m", str(model), "--cache-size", "64MiB")

    def run(*more, wait=False):
        server = Server(*options, *more, debug=False)
        try:
            choice = answer(server)
            deadline = time.monotonic() + 60
            while wait and "saved for the next start" not in server.log():
                assert time.monotonic() < deadline, server.log()
                time.sleep(0.05)
        finally:
            check_end(server)
        return choice, server.log()

    plain, log = run()  # packing takes less than a second, so nothing is saved
    assert not packed.exists() and "radish-packed" not in log
    first, log = run("--pack-cache", "on", wait=True)
    assert packed.exists() and sorted(os.listdir(tmp_path)) == [model.name, packed.name]
    second, log = run()
    assert f"packed weights read from {packed}" in log, log
    assert plain == first == second
    third, log = run("--pack-cache", "off")
    assert "radish-packed" not in log and third == first

    # A damaged file is replaced, and the log says so.
    with open(packed, "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(b"damage")
    fourth, log = run("--pack-cache", "on", wait=True)
    assert f"{packed} is not used: its weights are damaged" in log and fourth == first
    fifth, log = run()
    assert f"packed weights read from {packed}" in log and fifth == first

    # `radish logits` gives the same bits and does not mention packing.
    command = [RADISH, "logits", "-m", str(model), "--tokens", "1,2,3", "--json", "--pack-cache"]
    read, made = (subprocess.run([*command, mode], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 check=True) for mode in ("auto", "off"))
    assert read.stdout == made.stdout and read.stderr == made.stderr == b""


@needs_model
def test_a_folder_that_cannot_be_written(tmp_path):
    """The model is served, and the log has one line about it."""
    model = tmp_path / "model.gguf"
    shutil.copy(MODEL, model)
    (tmp_path / "model.gguf.radish-packed.tmp").mkdir()  # root may write everywhere else
    server = Server("-m", str(model), "--cache-size", "64MiB", "--pack-cache", "on", debug=False)
    assert answer(server)["message"]["content"]
    check_end(server)
    lines = [line for line in server.log().split("\n") if "radish-packed" in line]
    assert len(lines) == 1 and " info " in lines[0] and "is not written" in lines[0], server.log()
