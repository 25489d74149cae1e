#!/usr/bin/env python3
"""Compares the tokenizers of GGUF files that `radish quantize` writes with their sources'.

    pip install numpy tokenizers
    tools/parity_export_tokens.py [--radish build/radish] [--llama-tokens PROGRAM] DIR...

Each directory has a tokenizer. A copy of its files and a model with one small layer are written as
a GGUF file. For each of a few hundred strings, the directory and the file must give the same ids,
with special tokens as tokens and as text, and the same decoded text. With --llama-tokens (a program
that reads texts as lines of hex and prints lists of ids for FILE), llama.cpp's ids are compared
too; these differences are counted but are not failures.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import model_draw
from parity_tokenizers import load, radish, reference, strings

WIDTH = 32


def write_model(directory, n_vocab):
    """Writes config.json and weights of a model with `n_vocab` tokens."""
    rng = np.random.default_rng(1)
    sizes = {"model.embed_tokens.weight": (n_vocab, WIDTH), "model.norm.weight": (WIDTH,)}
    layer = "model.layers.0."
    for name in ("input_layernorm", "post_attention_layernorm"):
        sizes[f"{layer}{name}.weight"] = (WIDTH,)
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                 "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        sizes[f"{layer}{name}.weight"] = (WIDTH, WIDTH)
    config = {"model_type": "llama", "hidden_size": WIDTH, "intermediate_size": WIDTH,
              "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": n_vocab,
              "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "tie_word_embeddings": True}
    tensors = {name: rng.standard_normal(shape).astype(np.float32)
               for name, shape in sizes.items()}
    model_draw.write_directory(directory, config, tensors)


def llama_ids(program, path, texts):
    lines = "".join(text.encode().hex() + "\n" for text in texts)
    done = subprocess.run([program, path], input=lines, capture_output=True, text=True)
    ids = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return ids if len(ids) == len(texts) else (done.stderr.strip().splitlines() or ["?"])[0]


def compare(args, source, scratch):
    ref = reference(str(source))
    directory, out = scratch / source.name, scratch / f"{source.name}.gguf"
    added = load(str(source), "tokenizer_config.json").get("added_tokens_decoder", {})
    own = load(str(source), "tokenizer.json").get("added_tokens", [])
    n_vocab = 5 + max([ref.size] + [1 + int(i) for i in added] + [1 + a["id"] for a in own])
    write_model(directory, n_vocab)
    for path in source.iterdir():
        if path.name.startswith(("tokenizer", "chat_template")) or path.suffix == ".tiktoken":
            shutil.copy(path, directory)
    done = subprocess.run([args.radish, "quantize", directory, out, "--type", "f32"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{source.name:18} not written: {done.stderr.strip()}")
        return 1
    texts = [text for text in strings(args.count, 1, ref.added) if text]
    notes, failed = [], 0
    for flags in (["--no-special", "--parse-special"], ["--no-special"], ["--parse-special"]):
        before, after = (radish(args, str(path), texts, *flags) for path in (directory, out))
        failed += sum(a != b for a, b in zip(before, after, strict=True))
        for a, b, text in zip(before, after, texts):
            if a != b and failed < 4:
                print("   ", repr(text[:60]), a[:20], b[:20])
    lists = [ids for ids in before if ids]
    for flags in ([], ["--no-special"]):
        before, after = (radish(args, str(path), lists, *flags) for path in (directory, out))
        failed += sum(a != b for a, b in zip(before, after, strict=True))
        for a, b, text in zip(before, after, lists):
            if a != b and failed < 4:
                print("   ", text[:10], repr(a[:40]), repr(b[:40]))
    notes.append(f"{len(texts)} strings, {failed} differ")
    if args.llama_tokens:
        want = radish(args, str(out), texts, "--no-special", "--parse-special")
        got = llama_ids(args.llama_tokens, out, texts)
        for a, b, text in list(zip(got, want, texts)):
            if a != b and args.show and not isinstance(got, str):
                print("    llama.cpp", repr(text[:60]), a[:20], b[:20])
        notes.append(f"llama.cpp: {got}" if isinstance(got, str) else
                     f"llama.cpp: {sum(a != b for a, b in zip(got, want))} differ")
    size = os.path.getsize(out) - n_vocab * WIDTH * 4
    warning = done.stderr.strip().replace(str(out), "it")
    print(f"{source.name:18} {size / 1e6:5.1f} MB  {'; '.join(notes)}"
          f"{'  (' + warning + ')' if warning else ''}")
    sys.stdout.flush()
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="+", metavar="DIR", type=Path)
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--llama-tokens", type=Path)
    parser.add_argument("--show", action="store_true", help="show where llama.cpp differs")
    args = parser.parse_args()
    failed = 0
    for source in args.directories:
        with tempfile.TemporaryDirectory() as scratch:
            failed += compare(args, source, Path(scratch))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
