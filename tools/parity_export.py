#!/usr/bin/env python3
"""Compares the GGUF files that `radish quantize` writes with the directories they were made from.

    pip install numpy gguf torch transformers sentencepiece
    python3 tools/parity_models.py --llama-cpp DIRECTORY --keep FOLDER
    python3 tools/parity_export.py FOLDER [--radish build/radish] [--llama-logits PROGRAM] [ROW ...]

FOLDER has, for each row of tests/models, directories ROW.plain and ROW.hub, and ROW.plain.gguf and
ROW.hub.gguf by llama.cpp's converter if it supports them. For each directory:

    radish     logits of the directory and of the file with --type f32: the same bits, or the error
               max|a-b| / max|b| if rows of q and k, and so the sums, are in another order
    converter  keys and tensors against the converter's file: "same", or what differs
    llama.cpp  (--llama-logits: a program that prints logits of every position for FILE TOKENS)
               its logits for the file against radish's, and those for the converter's file

Exits with 1 if an error exceeds 1e-5, or a tensor's data differs from the converter's. The file may
omit what nobody reads: heads that equal the embedding, layers for multi-token prediction, keys of
layers that share those of others.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader

import model_draw
from parity_models import radish_logits

TOLERANCE = 1e-5
# Irrelevant here, or about the vocabulary.
IGNORED = ("GGUF.", "general.name", "general.size_label", "general.file_type", "tokenizer.",
           "general.quantization_version")


def contents(path):
    """The keys, and the tensors as arrays."""
    reader = GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items()
            if not name.startswith(IGNORED)}
    return keys, {tensor.name: tensor for tensor in reader.tensors}


def differences(own, other):
    """Lines about keys, lines about tensors."""
    own_keys, own_tensors = contents(own)
    other_keys, other_tensors = contents(other)
    if own_keys["general.architecture"] != other_keys["general.architecture"]:
        return [f"not compared: the converter's is a {other_keys['general.architecture']}"], []
    keys = []
    for name in sorted(own_keys.keys() | other_keys.keys()):
        short = name.partition(".")[2]
        a, b = own_keys.get(name), other_keys.get(name)
        if a is None or b is None:
            keys.append(f"{'-' if a is None else '+'}{short}={b if a is None else a}")
        elif a != b:
            keys.append(f"{short}={a} not {b}")
    tensors = []
    for name in sorted(own_tensors.keys() | other_tensors.keys()):
        a, b = own_tensors.get(name), other_tensors.get(name)
        if a is None or b is None:
            tensors.append(f"{'-' if a is None else '+'}{name}")
        elif a.tensor_type != b.tensor_type or list(a.shape) != list(b.shape):
            tensors.append(f"{name} is {a.tensor_type.name} {list(map(int, a.shape))}, not "
                           f"{b.tensor_type.name} {list(map(int, b.shape))}")
        elif not np.allclose(a.data, b.data, rtol=1e-6 if name == "rope_freqs.weight" else 0,
                             atol=0):
            tensors.append(f"{name} has other data")
    return keys, tensors


def peer_logits(program, path, golden):
    done = subprocess.run([program, path, ",".join(map(str, golden["tokens"]))],
                          capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[[")]
    if done.returncode != 0 or not lines:
        return None, (done.stderr.strip().splitlines() or ["failed"])[0][:100]
    return np.array(json.loads(lines[-1]), np.float32), ""


def error_of(a, b):
    return f"{model_draw.relative_error(a, b):.1e}"


def form_report(options, golden, directory, out):
    """Prints the results for one directory; returns whether they are right."""
    done = subprocess.run([options.radish, "quantize", directory, out, "--type", "f32"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        print(f"    {directory.suffix[1:]:6} not written: {done.stderr.strip()}")
        return False
    before, _ = radish_logits(options.radish, directory, golden)
    after, why = radish_logits(options.radish, out, golden)
    if after is None:
        print(f"    {directory.suffix[1:]:6} not read: {why}")
        return False
    same = np.array_equal(before, after)
    good = same or model_draw.relative_error(after, before) <= TOLERANCE
    notes = ["same bits" if same else error_of(after, before)]
    converted = directory.with_name(directory.name + ".gguf")
    if converted.exists():
        keys, tensors = differences(out, converted)
        notes.append("tensors same" if not tensors else "TENSORS " + ", ".join(tensors[:4]))
        notes.append("keys same" if not keys else "keys " + ", ".join(keys))
        good = good and all(tensor.startswith("-") for tensor in tensors)
    if options.llama_logits:
        peer, why = peer_logits(options.llama_logits, out, golden)
        notes.append("llama.cpp " + (error_of(peer, after) if peer is not None else why))
        if converted.exists():
            other, why = peer_logits(options.llama_logits, converted, golden)
            notes[-1] += f" (of the converter's file {error_of(other, before)})" \
                if other is not None else f" (of the converter's file {why})"
    print(f"    {directory.suffix[1:]:6} " + "; ".join(notes))
    sys.stdout.flush()
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", nargs="*", help="only these rows")
    parser.add_argument("--radish", type=Path, default=Path("build/radish"))
    parser.add_argument("--goldens", type=Path, default=Path("tests/models"))
    parser.add_argument("--llama-logits", type=Path)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(options.goldens.glob("*.json")):
            if options.rows and path.stem not in options.rows:
                continue
            golden = model_draw.read_golden(path)
            print(golden["name"])
            for form in ("plain", "hub"):
                directory = options.folder / f"{golden['name']}.{form}"
                if directory.is_dir():
                    good &= form_report(options, golden, directory,
                                        Path(scratch) / f"{golden['name']}.{form}.gguf")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
