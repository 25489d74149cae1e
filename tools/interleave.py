#!/usr/bin/env python3
"""Compares two builds of radish on one machine: runs old, new, new, old, ... and takes the best of each.

    tools/interleave.py OLD NEW --model FILE.gguf [--rounds 5] [--most 20] [--only tree,engine,server,memory] [--json]

OLD and NEW are build folders with `radish` and, for the tree, `bench_tree`. What is measured:
  tree     bench_tree: each call in each tree, warm (the mean of its best round) and cold (a median), and the
           bytes of a node and of a leaf
  engine   radish bench: prefill of 512 tokens, decode
  server   8 streams of 64 tokens, and the first token of a cached prompt of about 3,000 tokens
  memory   tokens that a cache of 64 MiB holds, with and without a window

The ratio is new / old; more is better for speeds, less for times and bytes. "near" is the distance between the best
and the second best figure, on the side where it is larger: a smaller difference between the builds means nothing.
With --most, a part continues after --rounds until the two best figures of each side agree within 1.5% (cold calls
aside), for at most that many rounds. Cold calls are medians of 24, and equal builds differ by 5% in them. Stop
everything else first: while other programs compete for the cores, no number of rounds is enough.
The rows of engine and server are those of bench/side_by_side.py. Only the standard library is used.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import side_by_side  # noqa: E402

SIDES = ("old", "new")
ROWS = {"engine": "prefill-512,decode", "server": "streams,cached"}
SETTLED = 0.015


class Figure:
    """One figure of both sides, over all rounds."""

    def __init__(self, name, unit, more_is_better=False):
        self.name, self.unit, self.more_is_better = name, unit, more_is_better
        self.values = {side: [] for side in SIDES}

    def ranked(self, side):
        return sorted(self.values[side], reverse=self.more_is_better)

    def best(self, side):
        return self.ranked(side)[0] if self.values[side] else None

    def ratio(self):
        old, new = (self.best(side) for side in SIDES)
        return new / old if old and new else None

    def near(self):
        ranked = [self.ranked(side)[:2] for side in SIDES]
        return max((abs(r[1] / r[0] - 1) for r in ranked if len(r) == 2 and r[0]), default=None)


class Table:
    def __init__(self):
        self.figures = {}

    def add(self, side, name, unit, value, more_is_better=False):
        self.figures.setdefault(name, Figure(name, unit, more_is_better)).values[side].append(value)

    def is_settled(self):
        return all(f.near() is not None and f.near() <= SETTLED for f in self.figures.values() if "cold" not in f.name)

    def text(self):
        lines = [("", *SIDES, "new / old", "near")]
        for f in self.figures.values():
            ratio, near = f.ratio(), f.near()
            lines.append((f"{f.name}, {f.unit}", *(side_by_side.number(f.best(side)) for side in SIDES),
                          f"{ratio:.3f}" if ratio else "-", f"{near:.1%}" if near is not None else "-"))
        widths = [max(len(line[c]) for line in lines) for c in range(len(lines[0]))]
        return "\n".join("  ".join(cell.ljust(w) if c == 0 else cell.rjust(w)
                                   for c, (cell, w) in enumerate(zip(line, widths))) for line in lines)

    def json(self):
        return json.dumps([{"name": f.name, "unit": f.unit, **f.values, "ratio": f.ratio(), "near": f.near()}
                           for f in self.figures.values()], indent=1)


def read_tree(text):
    """{(name, unit): value} from the output of bench_tree."""
    figures, leaves = {}, ""
    for line in text.splitlines():
        node = re.match(r"a node: (\d+) bytes", line)
        leaf = re.match(r" *(\d+) leaves: (\d+) bytes resident", line)
        if node:
            figures["a node of the tree", "bytes"] = float(node[1])
        if leaf:
            figures[f"a leaf of {int(leaf[1]):,}, resident", "bytes"] = float(leaf[2])
        head = re.match(r" *(\d+) leaves, ns a call:", line)
        row = re.match(r" *([a-z ]+?) +(\d+) +\d+ +\d+ \|(?: +(\d+))?", line)
        if head:
            leaves = f"{int(head[1]):,} leaves"
        elif row and leaves:
            figures[f"{row[1]}, {leaves}, warm", "ns"] = float(row[2])
            if row[3]:
                figures[f"{row[1]}, {leaves}, cold", "ns"] = float(row[3])
    if not figures:
        raise SystemExit(f"bench_tree printed no figures: {text[-300:]!r}")
    return figures


def measure_tree(table, builds, order, _):
    for side in order:
        done = subprocess.run([os.path.join(builds[side], "bench_tree")], capture_output=True, text=True, check=True)
        for (name, unit), value in read_tree(done.stdout).items():
            table.add(side, name, unit, value)


def measure_rows(part):
    def measure(table, builds, order, args):
        sides = []
        for side in order:
            radish = os.path.join(builds[side], "radish")
            sides.append(side_by_side.RadishSide(argparse.Namespace(radish=radish, kernels=None, threads=args.threads)))
            sides[-1].name = side
        options = argparse.Namespace(repeats=1, limit_s=300)
        for result in side_by_side.measure_model(args.model, side_by_side.rows_named(ROWS[part]), sides, options):
            if result.failures:
                raise SystemExit(f"{result.row.name}: {result.failures}")
            for i, metric in enumerate(result.row.metrics):
                for side in SIDES:
                    table.add(side, metric.label, metric.unit, result.best(side, i), metric.more_is_better)
    return measure


def cache_tokens(build, *options):
    command = [os.path.join(build, "radish"), "serve", "--engine", "mock", "--cache-size", "64MiB", *options]
    with side_by_side.Server("radish", command) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/cache") as answer:
            return json.load(answer)["budget"]["tokens"]


def measure_memory(table, builds, order, _):
    for side in order:
        table.add(side, "a cache of 64 MiB", "tokens", cache_tokens(builds[side]), True)
        table.add(side, "a cache of 64 MiB with a window of 256", "tokens",
                  cache_tokens(builds[side], "--mock-window", "256"), True)


MEASURES = {"tree": measure_tree, "engine": measure_rows("engine"), "server": measure_rows("server"),
            "memory": measure_memory}


def measure_part(part, builds, args):
    """Runs as many rounds of one part as needed."""
    table = Table()
    for turn in range(max(args.rounds, args.most)):
        if turn >= args.rounds and table.is_settled():
            break
        side_by_side.progress(f"{part}, round {turn + 1}")
        MEASURES[part](table, builds, SIDES if turn % 2 == 0 else SIDES[::-1], args)
    side_by_side.progress("")
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--model", metavar="FILE", help="the model, needed for engine and server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=int, default=0, metavar="ROUNDS")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default=",".join(MEASURES), metavar="PARTS")
    parser.add_argument("--json", action="store_true", help="print every figure of every round as JSON")
    args = parser.parse_args()
    parts = args.only.split(",")
    if not set(parts) <= set(MEASURES) or args.rounds < 1:
        parser.error(f"--only takes {', '.join(MEASURES)}; --rounds is 1 at least")
    if not args.model and set(parts) & set(ROWS):
        parser.error("engine and server need --model")
    builds = dict(zip(SIDES, (args.old, args.new)))
    table = Table()
    for part in parts:
        table.figures.update(measure_part(part, builds, args).figures)
    print(table.json() if args.json else table.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
