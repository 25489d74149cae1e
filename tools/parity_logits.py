#!/usr/bin/env python3
"""Compares radish's logits with those of transformers (float32) on the same weights.

    pip install torch transformers accelerate gguf numpy
    python3 tools/parity_logits.py MODEL [--radish build/radish] [--positions 640]
    python3 tools/parity_logits.py DIRECTORY --goldens tests/e2e/data/tinystories_logits.json

The model is a real one: a directory, or a GGUF file whose weights transformers turns into floats.
tools/parity_models.py uses small random models, so it cannot show how quantised weights and
activations affect the logits of real text; this does. The first form prints, over real English
text:

    cosine    mean and least cosine of the rows (one row: the logits after one token)
    top-1     how often both have the same most likely token, and, if not, the largest
              margin by which the reference prefers its own
    nll       mean negative log-likelihood of the text under both
    relative  largest and mean max|a-b| / max|b| of a row

and fails (exit 1) if a bound is exceeded: 1e-4 relative if every tensor is a float, otherwise
cosine 0.999, top-1 93%, margin 0.75, nll 1%. The second form runs the reference only and writes a
few of its rows to a file that tests/e2e/test_directories.py compares with, without torch.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

TEXT = """
The ferry leaves the harbour at half past six, before the bakery opens and while the street lamps
are still lit. Most of its passengers are schoolchildren from the outer islands, who sleep against
the windows with their bags on their knees. The captain, a quiet man named Henrik, has made the
crossing eleven thousand times by his own count, and he says that no two of them were the same. In
winter the wind comes from the north and the boat arrives an hour late; in June the water is so
flat that you can see the mountains twice, once in the sky and once below it.

A radix tree stores strings by their common beginnings. Every edge carries a run of characters, and
two strings share a path from the root for exactly as long as they agree. To find a word, you start
at the root, choose the edge whose first letter matches, compare the rest of its label, and go on
from the node at its end. Nothing is ever compared twice. When a new word leaves an edge in the
middle, the edge is split there: the upper half keeps the old parent, the lower half keeps the old
children, and the new word gets a branch of its own. Removing a word does the same in reverse.

My grandmother never measured anything when she cooked. "You put in flour until it looks right,"
she used to say, and then laughed when our pancakes came out like roof tiles. She had grown up
during the war, when there were three things to eat and two of them were potatoes, and she could
not throw away so much as a crust. On Sundays she baked bread for the whole street. The neighbours
brought jam, eggs, or coffee in return, and they all sat in the garden until the church bells rang
at noon. I have her recipe book now. Half of the pages say only: "as always, but a bit more salt."

How far away is the Moon? On average it is about 384,400 kilometres from the Earth, which is some
thirty times the Earth's diameter. Light needs 1.3 seconds for the trip; the astronauts of Apollo
11 needed a little more than three days. Because its orbit is an ellipse, the distance changes
during the month by roughly 43,000 kilometres, enough for a careful observer to notice that the
full moon of one month is larger than that of another. It also moves away from us by 3.8
centimetres every year, about as fast as fingernails grow.
"""

FLOAT_TYPES = ("F32", "F16", "BF16")


class Reference:
    """A directory or a GGUF file as a model of transformers, in float32."""

    def __init__(self, path):
        options = {"dtype": torch.float32, "attn_implementation": "eager"}
        if path.is_dir():
            self.model = transformers.AutoModelForCausalLM.from_pretrained(path, **options)
            self.is_float = not hasattr(self.model.config, "quantization_config")
        else:
            self.model = transformers.AutoModelForCausalLM.from_pretrained(
                path.parent, gguf_file=path.name, **options)
            tensors = gguf.GGUFReader(path).tensors
            self.is_float = all(tensor.tensor_type.name in FLOAT_TYPES for tensor in tensors)
        self.n_context = self.model.config.max_position_embeddings
        self.model.eval()

    def logits(self, ids):
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0].numpy()

    def greedy(self, ids, n):
        for _ in range(n):
            ids = ids + [int(self.logits(ids)[-1].argmax())]
        return ids


class Radish:
    """The program under test, through its command line."""

    def __init__(self, binary, model, kv_type):
        self.binary, self.model, self.kv_type = binary, model, kv_type

    def tokenize(self, text):
        command = [self.binary, "tokenize", "-m", self.model]
        return json.loads(subprocess.run(command, input=text, **RUN).stdout)

    def logits(self, ids):
        """Yields a row for each token. A big model prints hundreds of megabytes, so rows are
        streamed."""
        command = [self.binary, "logits", "-m", self.model, "--tokens", ",".join(map(str, ids))]
        command += ["--all", "--json", "--kv-type", self.kv_type]
        with tempfile.TemporaryFile() as out:
            subprocess.run(command, stdout=out, check=True)
            out.seek(0)
            pending = b""
            while chunk := out.read(1 << 22):
                *rows, pending = (pending + chunk).split(b"]")
                for row in rows:
                    numbers = re.sub(rb'^.*\[', b"", row)
                    if numbers.strip(b",} \n"):
                        yield np.fromstring(numbers.decode(), dtype=np.float32, sep=",")


RUN = {"check": True, "capture_output": True, "text": True}


def windows(ids, size, bos):
    """The text in parts that fit the context, each starting like a new text."""
    while len(ids) > 1:
        yield ids[:size]
        ids = bos + ids[size:]


def log_probability(row, token):
    row = row.astype(np.float64)
    return row[token] - row.max() - np.log(np.exp(row - row.max()).sum())


class Comparison:
    """Collects the figures of all rows and gives the verdict."""

    def __init__(self):
        self.cosines, self.relatives, self.margins = [], [], []
        self.nll = {"reference": [], "radish": []}

    def add(self, reference, ours, following):
        a, b = ours.astype(np.float64), reference.astype(np.float64)
        self.cosines.append(a @ b / np.sqrt((a @ a) * (b @ b)))
        self.relatives.append(np.abs(a - b).max() / np.abs(b).max())
        if a.argmax() != b.argmax():
            self.margins.append(b.max() - b[a.argmax()])
        if following is not None:
            self.nll["reference"].append(-log_probability(reference, following))
            self.nll["radish"].append(-log_probability(ours, following))

    def report(self, is_float):
        n = len(self.cosines)
        nll = {name: float(np.mean(values)) for name, values in self.nll.items()}
        agreement = 1 - len(self.margins) / n
        margin = max(self.margins, default=0.0)
        difference = abs(nll["radish"] - nll["reference"]) / nll["reference"]
        print(f"positions {n}")
        print(f"cosine    mean {np.mean(self.cosines):.6f}, least {np.min(self.cosines):.6f}")
        print(f"top-1     {100 * agreement:.2f}% agree, worst margin {margin:.4f}")
        print(f"nll       reference {nll['reference']:.5f}, radish {nll['radish']:.5f}, "
              f"{100 * difference:.4f}% apart")  # fmt: skip
        print(f"relative  max {np.max(self.relatives):.2e}, mean {np.mean(self.relatives):.2e}")
        if is_float:
            return np.max(self.relatives) <= 1e-4
        mean = np.mean(self.cosines)
        return mean >= 0.999 and agreement >= 0.93 and margin < 0.75 and difference <= 0.01


def compare(reference, radish, text, positions):
    ids, bos = radish.tokenize(text), radish.tokenize("")
    comparison = Comparison()
    for window in windows(ids[:positions], reference.n_context, bos):
        expected = reference.logits(window)
        n_rows = 0
        for row in radish.logits(window):
            following = window[n_rows + 1] if n_rows + 1 < len(window) else None
            comparison.add(expected[n_rows], row, following)
            n_rows += 1
        if n_rows != len(window):
            sys.exit(f"radish gave {n_rows} rows for {len(window)} tokens")
    return comparison.report(reference.is_float)


def write_goldens(reference, path):
    """Writes tokens generated by the reference, and the best and every 64th value of six rows."""
    ids = reference.greedy([reference.model.config.bos_token_id], 95)
    rows, logits = [], reference.logits(ids)
    for position in (0, 1, 7, 31, 64, 95):
        row = logits[position]
        picked = sorted({*np.argsort(-row)[:5].tolist(), *range(0, row.size, 64)})
        rows.append({
            "position": position,
            "max_abs": float(np.abs(row).max()),
            "values": {str(i): round(float(row[i]), 6) for i in picked},
        })  # fmt: skip
    with open(path, "w", encoding="utf-8") as out:
        out.write(json.dumps({"tokens": ids, "rows": rows}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description="radish against transformers, on the same weights")
    parser.add_argument("model", type=Path)
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--kv-type", default="f32")
    parser.add_argument("--positions", type=int, default=640)
    parser.add_argument("--text", help="a file to use instead of the built-in text")
    parser.add_argument("--goldens", help="write the reference's rows to this file and stop")
    args = parser.parse_args()
    reference = Reference(args.model)
    if args.goldens:
        write_goldens(reference, args.goldens)
        return
    text = TEXT.strip().replace("\n\n", "\0").replace("\n", " ").replace("\0", "\n\n")
    if args.text:
        with open(args.text, encoding="utf-8") as file:
            text = file.read()
    radish = Radish(args.radish, args.model, args.kv_type)
    if not compare(reference, radish, text, args.positions):
        sys.exit("a bound was passed")


if __name__ == "__main__":
    main()
