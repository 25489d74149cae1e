#!/usr/bin/env python3
"""Runs the client checks of this folder against radish, and counts what passes.

    python3 -m venv VENV && VENV/bin/pip install openai litellm langchain-openai instructor \
        'pydantic-ai-slim[openai]' llama-index-llms-openai-like llm ollama httpx mcp
    cp tools/peers/clients/node/package.json NODE/ && npm install --prefix NODE
    VENV/bin/python tools/peers/clients/run.py --node NODE [--radish build/radish] [--model PATH]
        [--json FILE] [CLIENT ...]

CLIENT is the name of a script without its ending: openai_client, node/ai_sdk, ... Without any, all
run; those in node/ only with --node, a folder with their packages. Two servers start on free ports:
one with the model (the default one), one with the mock engine, keys and 20 ms per step (checks.py).
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parent
MOCK = ["--engine", "mock", "--mock-batch-cost-us", "20000", "--api-key", "secret", "--admin-key", "operator"]


class Server:
    """A radish on a free port."""
    def __init__(self, radish, options, log):
        self.process = subprocess.Popen([radish, "serve", "--port", "0", *options], stdout=log,
                                        stderr=subprocess.STDOUT)
        self.url = self.wait_url(pathlib.Path(log.name))

    def wait_url(self, log, timeout_s=120):
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"listening on (http://\S+) \(ready", log.read_text(errors="replace"))
            if found:
                return found.group(1)
            time.sleep(0.05)
        self.stop()
        sys.exit(f"radish did not start:\n{log.read_text(errors='replace')}")

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def model_name(server):
    with urllib.request.urlopen(server.url + "/v1/models") as answer:
        return json.load(answer)["data"][0]["id"]


def script_of(client, node, folder):
    """The command that runs a client. Node looks for packages beside the script, so it runs a copy."""
    if not client.startswith("node/"):
        return [sys.executable, str(FOLDER / f"{client}.py")]
    copy = pathlib.Path(folder, "node")
    if not copy.exists():
        shutil.copytree(FOLDER / "node", copy)
        (copy / "node_modules").symlink_to(node.resolve() / "node_modules")
    return ["node", str(copy / f"{client[5:]}.mjs")]


def run_client(client, command, arguments):
    """Returns the failed checks with their reasons, and the number of checks."""
    began = time.monotonic()
    done = subprocess.run(command + arguments, capture_output=True, text=True, check=False)
    results = re.findall(r"^(ok|not ok) ([^\n]*)$", done.stdout, re.M)
    failed = [text for result, text in results if result != "ok"]
    passed = len(results) - len(failed)
    if not results or done.returncode not in (0, 1):
        failed.append(f"the script ended with {done.returncode}: {done.stderr[-500:]}")
    print(f"{client}: {passed} of {len(results)} in {time.monotonic() - began:.0f} s", flush=True)
    for text in failed:
        print(f"  {text}", flush=True)
    return {"run": len(results), "failed": failed, "errors": done.stderr}


def all_clients(node):
    clients = sorted(path.stem for path in FOLDER.glob("*_client.py"))
    if node:
        clients += sorted(f"node/{path.stem}" for path in (FOLDER / "node").glob("*.mjs") if path.stem != "checks")
    return clients


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", metavar="CLIENT")
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--model", help="default: radish's default model")
    parser.add_argument("--node", type=pathlib.Path, help="folder with node_modules")
    parser.add_argument("--json", help="write the results to this file")
    args = parser.parse_args()
    results, servers = {}, []
    with tempfile.TemporaryDirectory() as folder:
        try:
            with open(f"{folder}/model.log", "w", encoding="utf-8") as log:
                servers.append(Server(args.radish, ["-m", args.model] if args.model else [], log))
            with open(f"{folder}/mock.log", "w", encoding="utf-8") as log:
                servers.append(Server(args.radish, MOCK, log))
            arguments = [server.url for server in servers] + [model_name(servers[0])]
            for client in args.clients or all_clients(args.node):
                results[client] = run_client(client, script_of(client, args.node, folder), arguments)
        finally:
            for server in servers:
                server.stop()
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    n_failed = sum(len(result["failed"]) for result in results.values())
    print(f"total: {sum(result['run'] for result in results.values())} run, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
