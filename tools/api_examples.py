#!/usr/bin/env python3
"""Records the answers in tools/api_examples.md, which `make docs` copies into docs/api.md.

    tools/api_examples.py --model MODEL.gguf [--radish build/radish]

Sends each request on the page to its own server and writes the answer into the block after it. Use
the default model. tests/e2e/test_docs.py compares the members of these answers with a server's.
"""
import argparse
import json
import os
import re
import subprocess
import sys

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "api_examples.md")
URL = "http://127.0.0.1:8080"
WIDTH = 100
# A request and its answer: the shell block, the kind of the next block, and that block.
EXAMPLE = re.compile(r"```sh\n(.*?)```\n\n```(json|text)\n(.*?)```", re.DOTALL)


def ask(script, url):
    """Returns the response to a curl command of the page, sent to this address."""
    script = script.replace(URL, url).replace("curl ", "curl -sS ")
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True,
                          timeout=120).stdout


def layout(value, indent=0):
    """JSON with each array or object on one line if it fits, else one line for each member."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or not value or indent + len(flat) <= WIDTH:
        return flat
    inner = " " * (indent + 2)
    if isinstance(value, list):
        parts = [layout(item, indent + 2) for item in value]
        return "[\n" + ",\n".join(inner + part for part in parts) + "\n" + " " * indent + "]"
    parts = [f"{json.dumps(key)}: {layout(item, indent + 2)}" for key, item in value.items()]
    return "{\n" + ",\n".join(inner + part for part in parts) + "\n" + " " * indent + "}"


def record(page, url):
    def fill(example):
        script, kind, _ = example.groups()
        body = ask(script, url)
        text = layout(json.loads(body)) + "\n" if kind == "json" else body.rstrip("\n") + "\n"
        return f"```sh\n{script}```\n\n```{kind}\n{text}```"
    return EXAMPLE.sub(fill, page)


def wait_for_port(process):
    for line in process.stdout:
        found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", line)
        if found:
            return found.group(1)
    sys.exit("the server did not start")


def main():
    parser = argparse.ArgumentParser(description="Record the answers in tools/api_examples.md.")
    parser.add_argument("--radish", default="build/radish", help="the program (default build/radish)")
    parser.add_argument("--model", required=True, help="the default model")
    args = parser.parse_args()
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    process = subprocess.Popen([args.radish, "serve", "--port", "0", "--cache-size", "256MiB", "-m",
                                args.model], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True)
    try:
        page = record(page, wait_for_port(process))
    finally:
        process.terminate()
        process.wait()
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page)


if __name__ == "__main__":
    main()
