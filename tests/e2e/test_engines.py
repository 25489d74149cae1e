"""Choosing the engine: --engine, plug-ins that are there, missing or wrong, and the room of a device. The plug-in is a
fake one with 3 GiB free of 4 GiB, and without an engine."""
import os
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, MODEL, Server

OK, FAILED, USAGE = 0, 1, 2
FAKES = os.path.join(BUILD, "fakes")
HAS_GPU = any(map(os.path.exists, ("/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")))

needs_model = pytest.mark.skipif(not os.path.exists(MODEL), reason=f"there is no model at {MODEL}")


@pytest.fixture
def install(tmp_path):
    """Copies radish to bin/, and a plug-in to lib/radish/ where an installed one is. Returns a function that runs it."""
    for folder in ("bin", "lib/radish"):
        (tmp_path / folder).mkdir(parents=True)
    program = tmp_path / "bin/radish"
    shutil.copy(os.path.join(BUILD, "radish"), program)

    def run(plugin, *args, log="info"):
        if plugin:
            shutil.copy(os.path.join(FAKES, plugin), tmp_path / "lib/radish/radish-cuda.so")
        done = subprocess.run([program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, "RADISH_LOG": log}, timeout=120)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return run


def answer(*args):
    return ("run", "-m", MODEL, "-n", "2", *args, "hi")


def test_version_names_the_engines(install):
    status, out, _ = install(None, "--version")
    assert status == OK and out.endswith("\nengines: cpu, mock; no cuda: there is no radish-cuda.so\n"), out
    status, out, _ = install("radish-good.so", "--version")
    assert status == OK and out.endswith("\nengines: cpu, mock, cuda (radish-cuda.so, Fake device)\n"), out
    status, out, _ = install("radish-abi.so", "--version")
    assert status == OK and "no cuda: " in out and "its engine interface has version 999" in out


@needs_model
def test_without_a_plugin_the_cpu_computes(install):
    status, out, log = install(None, *answer())
    reason = " (there is a GPU, but no radish-cuda.so: `make cuda` in radish's source folder builds it)" if HAS_GPU else ""
    assert status == OK and out and f"engine: cpu{reason}\n" in log
    assert install(None, *answer(), log="warn")[2] == ""
    status, out, log = install(None, *answer("--engine", "cpu"))
    assert status == OK and out and "engine:" not in log
    status, _, log = install(None, *answer("--engine", "cuda"))
    assert status == FAILED and re.search(r"radish-cuda\.so is neither in (.+)/bin nor in \1/lib/radish: `make cuda` in "
                                          r"radish's source folder builds it\n", log), log


@needs_model
def test_a_wrong_plugin_is_a_warning_or_an_error(install):
    status, out, log = install("radish-abi.so", *answer(), log="warn")
    assert status == OK and out and "warn  engine: cpu (" in log and "built for another radish" in log
    status, _, log = install("radish-abi.so", *answer("--engine", "cuda"))
    assert status == FAILED and "built for another radish" in log


@needs_model
@pytest.mark.parametrize("engine", [(), ("--engine", "auto"), ("--engine", "cuda")])
def test_a_plugin_computes_if_it_can(install, engine):
    status, _, log = install("radish-good.so", *answer(*engine))
    assert "engine: fake on Fake device" in log
    assert status == FAILED and "the fake plug-in has no engine" in log  # not: the CPU instead


@needs_model
@pytest.mark.parametrize("args,status,message", [
    (("--gpu-memory", "20GiB"), FAILED,
     "--gpu-memory is 20480 MiB, but of the 4096 MiB of Fake device only 3072 MiB are free"),
    (("--gpu-memory", "50MiB"), FAILED,
     "the model does not fit on Fake device: its weights and buffers take 9"),
    (("--cache-size", "3GiB"), FAILED, "the cache does not fit on Fake device: it takes 30"),
    (("--cache-size", "3GiB"), FAILED,
     "radish may use 2764 MiB (of 4096 MiB, 3072 MiB are free and 1024 MiB are in use"),
    (("--cache-size", "9000000t"), FAILED, "MiB for 9000000 tokens"),
    (("--cache-size", "10"), USAGE, "--cache-size is too small"),
    (("--cache-size", "max"), FAILED, "the fake plug-in has no engine"),
    (("--cache-size", "1GiB"), FAILED, "the fake plug-in has no engine"),
    (("--device", "1"), USAGE, "--device: there is only one"),
    (("--gpu-memory", "2"), USAGE, "'2' is not an amount of memory"),
])
def test_the_devices_room(install, args, status, message):
    got, _, log = install("radish-good.so", *answer(*args))
    assert got == status and message in log, log


@needs_model
def test_a_devices_options_do_nothing_on_the_cpu(install):
    status, _, log = install("radish-good.so", *answer("--engine", "cpu", "--gpu-memory", "0.5"))
    assert status == OK and "--device and --gpu-memory have no effect: the model runs on the CPU" in log


@pytest.mark.parametrize("option,advice", [
    ("-ngl", "--engine cuda"), ("--n-gpu-layers", "--engine cuda"), ("--main-gpu", "--device N"),
    ("--tensor-split", "--device N"), ("--gpu-memory-utilization", "--gpu-memory FRACTION"),
])
def test_other_servers_options_get_advice(install, option, advice):
    status, _, log = install(None, "serve", option, "1")
    assert status == USAGE and f"unknown option '{option}'" in log and advice in log


# ---- the CUDA plug-in that `make cuda` built, on a driver without a device: kernels do nothing, so answers are nonsense

CUDA = os.path.join(BUILD, "radish-cuda.so")

needs_cuda = pytest.mark.skipif(not os.path.exists(CUDA) or not os.path.exists(MODEL),
                                reason=f"there is no {CUDA} (make cuda), or no model at {MODEL}")


@pytest.fixture
def cuda(monkeypatch):
    """Sets the fake driver's numbers (tests/fakes/fake_cuda.h)."""
    def configure(**numbers):
        monkeypatch.setenv("LD_LIBRARY_PATH", os.path.abspath(FAKES))
        monkeypatch.setenv("FAKE_CUDA", ",".join(f"{name}={value}" for name, value in numbers.items()))

    configure()
    return configure


def run_cuda(*args):
    done = subprocess.run([os.path.join(BUILD, "radish"), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**os.environ, "RADISH_LOG": "info"}, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@needs_cuda
def test_cuda_is_chosen_where_there_is_a_device(cuda):
    assert run_cuda("--version")[1].endswith("\nengines: cpu, mock, cuda (radish-cuda.so, Fake GPU 0)\n")
    for engine in ("auto", "cuda"):
        status, out, log = run_cuda(*answer("--engine", engine))
        assert status == OK and out and "engine: cuda on Fake GPU 0" in log, log
    cuda(n_devices=2)
    assert "engine: cuda on Fake GPU 1" in run_cuda(*answer("--device", "1"))[2]
    assert "engine: cuda on Fake GPU 1" in run_cuda(*answer("--device", "GPU-00010203-0405-0607-0809-0a0b0c0d0e01"))[2]
    status, _, log = run_cuda(*answer("--device", "2"))
    assert status == USAGE and "--device 2: the last of the devices is 1" in log


@needs_cuda
@pytest.mark.parametrize("numbers,message", [
    ({"version": 12040}, "the NVIDIA driver is too old: it supports CUDA 12.4"),
    ({"n_devices": 0}, "the NVIDIA driver found no device"),
    ({"capability": 75}, "Fake GPU 0 is too old: it has compute capability 7.5"),
])
def test_without_a_usable_device_the_cpu_computes_and_the_log_says_why(cuda, numbers, message):
    cuda(**numbers)
    status, out, log = run_cuda(*answer())
    assert status == OK and out and "engine: cpu (" + message in log, log
    status, _, log = run_cuda(*answer("--engine", "cuda"))
    assert status == FAILED and message in log and "--engine cpu" in log, log


@needs_cuda
@pytest.mark.parametrize("made_for,reason", [(0, "the driver does not say which compute capability"),
                                             (80, "compiled for compute capability 8.0, not 9.0 or newer")])
def test_kernels_that_cannot_overlap_are_a_warning(cuda, made_for, reason):
    cuda(kernels_made_for=made_for)
    status, _, log = run_cuda(*answer())
    assert status == OK and log.count("Fake GPU 0: kernels cannot overlap") == 1 and reason in log, log
    cuda(kernels_made_for=made_for, capability=80)
    assert "cannot overlap" not in run_cuda(*answer())[2]


@needs_cuda
def test_a_small_device_is_an_error_with_figures(cuda):
    cuda(total=100 << 20)
    status, _, log = run_cuda(*answer())
    assert status == FAILED and re.search(
        r"the model does not fit on Fake GPU 0: its weights and buffers take \d+ MiB, and radish may use 90 MiB "
        r"\(of 100 MiB, 100 MiB are free and 0 MiB are in use; --gpu-memory changes this\)", log), log


@needs_cuda
@pytest.mark.parametrize("code,text", [(700, "illegal memory access"), (214, "uncorrectable ECC error")])
def test_a_server_survives_a_lost_device(cuda, code, text):
    cuda(fail_launch=100, launch_code=code)
    server = Server("-m", MODEL, "--engine", "cuda", debug=False)
    try:
        asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 400}
        first, second = (server.post(asked)[0] for _ in range(2))
        assert second == 200 and first in (200, 500)
        assert "the device was lost" in server.log() and text in server.log()
    finally:
        server.stop()
