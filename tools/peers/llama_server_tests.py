#!/usr/bin/env python3
"""Runs llama-server's own tests against radish, and counts what passes.

    python3 -m venv VENV && VENV/bin/pip install pytest requests openai wget
    VENV/bin/python tools/peers/llama_server_tests.py LLAMA_CPP --model stories260K.gguf [--radish build/radish]
        [--files basic,completion] [--peer LLAMA_SERVER] [--json FILE]

LLAMA_CPP is a checkout of llama.cpp. Its tests (tools/server/tests) run unchanged from a copy in a temporary folder;
LLAMA_SERVER_BIN_PATH names a launcher that turns llama-server's options into radish's:
  -c               the context of one conversation: --ctx-size / --parallel, or --ctx-size with --kv-unified; at most
                   what the model was trained for
  chat template    a named one is written out; chatml if the test names none, as llama-server does for this model
  model            always --model, whatever the test would download
Options without an equivalent are dropped. With --peer, llama-server itself runs with the same model: what fails there
as well cannot be asked of radish. Tests marked slow, which need large downloads, are left out, as in llama.cpp's CI.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

FILES = "basic,chat_completion,completion,tokenize,template,infill,ctx_shift,ignore_eos,security"

# Short forms of the templates that llama-server has by name.
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
LLAMA3 = ("{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim"
          " + '<|eot_id|>' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
COMMAND_R = ("{% for m in messages %}{{ '<|START_OF_TURN_TOKEN|>' + {'system': '<|SYSTEM_TOKEN|>', 'user':"
             " '<|USER_TOKEN|>', 'assistant': '<|CHATBOT_TOKEN|>'}[m.role] + m.content | trim"
             " + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}")
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "command-r": COMMAND_R}

# llama-server's options with a value that radish has too. The other two kinds are dropped.
SAME = {"--host": "--host", "--port": "--port", "--temp": "--temperature", "--seed": "--seed", "--alias": "--alias",
        "--n-predict": "--max-tokens", "--api-key": "--api-key", "--reasoning": "--thinking",
        "--chat-template-file": "--chat-template-file", "--threads": "--threads", "--parallel": "--max-seqs"}
SWITCHES = {"--offline", "--cont-batching", "--embedding", "--reranking", "--metrics", "--kv-unified", "--swa-full",
            "--slots", "--no-slots", "--verbose", "--context-shift", "--no-ui", "--no-models-autoload", "--jinja",
            "--no-jinja", "--no-mmproj", "--no-cache-idle-slots", "--ui-mcp-proxy", "--backend_sampling"}
MODEL_OPTIONS = {"--model", "--model-url", "--hf-repo", "--hf-file"}


def read_options(arguments):
    """Returns llama-server's options as a dict; a switch has the value None."""
    options, rest = {}, list(arguments)
    while rest:
        name = rest.pop(0)
        options[name] = None if name in SWITCHES else rest.pop(0)
    return options


def template_file(options, folder):
    text = options.get("--chat-template", "chatml")
    path = pathlib.Path(folder, f"template-{os.getpid()}.jinja")
    path.write_text(TEMPLATES.get(text, text), encoding="utf-8")
    return str(path)


def radish_arguments(arguments, setup):
    options = read_options(arguments)
    made = [setup["radish"], "serve", "-m", setup["model"]]
    for name, value in options.items():
        if name in SAME:
            made += [SAME[name], value]
    if "--ctx-size" in options:
        share = 1 if "--kv-unified" in options else int(options.get("--parallel", 1))
        made += ["-c", str(min(int(options["--ctx-size"]) // share, setup["context"]))]
    if "--chat-template-file" not in options:
        made += ["--chat-template-file", template_file(options, setup["folder"])]
    return made


def peer_arguments(arguments, setup):
    made = [setup["peer"], "-m", setup["model"]]
    for name, value in read_options(arguments).items():
        if name not in MODEL_OPTIONS | {"--offline"}:
            made += [name] if value is None else [name, value]
    return made


def launch(setup, arguments):
    made = (peer_arguments if setup["peer"] else radish_arguments)(arguments, setup)
    print("launched:", " ".join(made), flush=True)
    os.execv(made[0], made)


def prepare(arguments, folder):
    """Copies the tests into `folder`, next to what they read, and writes the launcher."""
    peer = pathlib.Path(arguments.llama_cpp).resolve()
    tests = pathlib.Path(folder, "tools/server/tests")
    shutil.copytree(peer / "tools/server/tests", tests, ignore=shutil.ignore_patterns("tmp", "__pycache__"))
    for shared in ("models", "tools/mtmd"):
        pathlib.Path(folder, shared).symlink_to(peer / shared)
    setup = {"radish": str(pathlib.Path(arguments.radish).resolve()), "model": str(arguments.model.resolve()),
             "context": arguments.context, "folder": folder,
             "peer": arguments.peer and str(pathlib.Path(arguments.peer).resolve())}
    launcher = pathlib.Path(folder, "launcher")
    launcher.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n"
                        f"import llama_server_tests\nllama_server_tests.launch({setup!r}, sys.argv[1:])\n")
    launcher.chmod(0o755)
    return tests, launcher


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_file(name, tests, launcher):
    """Runs one file. Returns a list of {test, result, why}."""
    report = tests / f"{name}.xml"
    environment = {**os.environ, "LLAMA_SERVER_BIN_PATH": str(launcher), "PORT": str(free_port()),
                   "PYTHONDONTWRITEBYTECODE": "1"}
    got = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow",
                          f"--junitxml={report}", f"unit/test_{name}.py"], cwd=tests, env=environment,
                         capture_output=True, text=True, check=False)
    if not report.exists():
        sys.exit(f"pytest failed for {name}:\n{got.stdout}{got.stderr}")
    return [read_case(case) for case in xml.parse(report).iter("testcase")]


def read_case(case):
    for child in case:
        if child.tag in ("failure", "error"):
            return {"test": case.get("name"), "result": "failed", "why": first_lines(child)}
        if child.tag == "skipped":
            return {"test": case.get("name"), "result": "skipped", "why": child.get("message") or ""}
    return {"test": case.get("name"), "result": "passed", "why": ""}


def first_lines(failure):
    """Returns the failed line of the test and what pytest says about it."""
    lines = (failure.text or "").splitlines()
    code = [line[1:].strip() for line in lines if line.startswith(">")]
    said = [line[1:].strip() for line in lines if line.startswith("E ")]
    return " | ".join(code[-1:] + said[:2])[:400]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp")
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--context", type=int, default=512, help="the largest context that the model can have")
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--peer", help="run this llama-server instead of radish")
    parser.add_argument("--files", default=FILES)
    parser.add_argument("--json", help="write every test's result to this file")
    arguments = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        tests, launcher = prepare(arguments, folder)
        for name in arguments.files.split(","):
            results[name] = run_file(name, tests, launcher)
            print_file(name, results[name])
    total = [case for cases in results.values() for case in cases]
    print_counts("total", total)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1), encoding="utf-8")


def print_counts(name, cases):
    count = {kind: sum(case["result"] == kind for case in cases) for kind in ("passed", "failed", "skipped")}
    print(f"{name}: {count['passed']} of {count['passed'] + count['failed']}, {count['skipped']} skipped", flush=True)


def print_file(name, cases):
    print_counts(name, cases)
    for case in cases:
        if case["result"] == "failed":
            print(f"  {case['test']}: {case['why']}")


if __name__ == "__main__":
    main()
