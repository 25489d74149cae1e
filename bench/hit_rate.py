#!/usr/bin/env python3
"""Hit rate by cache size: radish compared with the best possible eviction.

    bench/hit_rate.py TRACE... [--radish build/radish] [--sizes 1,2,5,10,20,50,100] [--svg FILE]
                      [--title TEXT] [--json]

Sizes are in percent of the trace's distinct tokens. Several traces are merged: each keeps its own
blocks, and requests are ordered by time, as if all traces had started at once.

  radish   `radish replay` at that size: its tree, its LRU, 16 requests in flight, answers of up to
           16 tokens, which take room too.
  Belady   evicts what is used again furthest in the future, so it must know the future. A
           block is used whenever a block below it is, so the furthest is always a leaf and nothing
           is cut out of the middle of a prefix. One request at a time, no answers, and a block is
           trimmed from its end by what is needed. With blocks of one size this is the highest
           possible hit rate; it is a very close estimate if prompts end inside a block.
  ideal    a cache that never forgets.

Requests longer than the cache count as misses, for radish and Belady alike. Only the standard
library is used.
"""

import argparse
import heapq
import html
import json
import math
import subprocess
import sys
import tempfile

LINE_BLOCK_SIZE = 512
NEVER = 1 << 60


def flatten(requests):
    """An agent's requests, with those of its sub-agents inserted in order."""
    for request in requests:
        if "requests" in request:
            yield from flatten(request["requests"])
        else:
            yield request


def read_trace(path):
    """(block size, [(time in s, input, output, ids)]) of either format."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        trace = json.loads(text)
    except json.JSONDecodeError:
        trace = None
    if isinstance(trace, dict) and "requests" in trace:
        return trace["block_size"], [(r.get("t", 0), r["in"], r.get("out", 0), r["hash_ids"])
                                     for r in flatten(trace["requests"])]
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    return LINE_BLOCK_SIZE, [(r.get("timestamp", 0) / 1000, r["input_length"],
                              r.get("output_length", 0), r["hash_ids"]) for r in lines]


def merge(traces):
    """Merges traces: (block size, requests in order of time, blocks renumbered)."""
    sizes = {size for size, _ in traces}
    if len(sizes) > 1:
        sys.exit(f"these traces cannot be merged: their blocks have {sorted(sizes)} tokens")
    numbers = {}
    merged = []
    for i, (_, requests) in enumerate(traces):
        for at, n_input, n_output, ids in requests:
            blocks = [numbers.setdefault((i, block), len(numbers)) for block in ids]
            merged.append((at, n_input, n_output, blocks))
    if len(traces) > 1:
        merged.sort(key=lambda request: request[0])
    return sizes.pop(), merged


class Requests:
    """Requests as paths: each block together with all blocks before it has a number."""

    def __init__(self, block_size, requests):
        known, self.depths, self.paths, self.lengths = {}, [], [], []
        for i, (_, n_input, _, blocks) in enumerate(requests):
            if len(blocks) * block_size < n_input:
                blocks = [*blocks, ("nameless", i)]
            path, parent = [], -1
            for depth, block in enumerate(blocks):
                node = known.setdefault((parent, block), len(known))
                if node == len(self.depths):
                    self.depths.append(depth)
                path.append(node)
                parent = node
            self.paths.append(path)
            self.lengths.append([min(block_size, n_input - block_size * depth)
                                 for depth in range(len(blocks))])
        self.totals = [sum(lengths) for lengths in self.lengths]
        self.asked = sum(self.totals)
        self.next_uses = self._look_ahead()

    def _look_ahead(self):
        """For each request, when each of its blocks is used again."""
        soonest = [NEVER] * len(self.depths)
        next_uses = [None] * len(self.paths)
        for i in range(len(self.paths) - 1, -1, -1):
            next_uses[i] = [soonest[node] for node in self.paths[i]]
            for node in self.paths[i]:
                soonest[node] = i
        return next_uses

    def belady(self, capacity):
        """Number of tokens hit by a cache of that many tokens that knows the future."""
        cached = [0] * len(self.depths)  # tokens of the block that are cached
        next_use = [NEVER] * len(self.depths)
        heap = []  # (-next use, -depth, node); stale if the next use has changed
        used = hit = 0
        for path, lengths, total, uses in zip(self.paths, self.lengths, self.totals,
                                              self.next_uses):
            if total >= capacity:
                continue
            found = 0
            for node, length in zip(path, lengths):
                found += min(cached[node], length)
                if cached[node] < length:
                    break
            hit += min(found, total - 1)
            need = sum(max(0, length - cached[node]) for node, length in zip(path, lengths))
            running = set(path)
            while used + need > capacity:
                minus_use, minus_depth, node = heapq.heappop(heap)
                if cached[node] == 0 or next_use[node] != -minus_use or node in running:
                    continue
                cut = min(cached[node], used + need - capacity)
                cached[node] -= cut
                used -= cut
                if cached[node]:
                    heapq.heappush(heap, (minus_use, minus_depth, node))
            for node, length, use in zip(path, lengths, uses):
                used += max(0, length - cached[node])
                cached[node] = max(length, cached[node])
                next_use[node] = use
                heapq.heappush(heap, (-use, -self.depths[node], node))
        return hit


def replay(radish, path, pages):
    """radish's report on the trace with this many pages."""
    done = subprocess.run([radish, "replay", path, "--json", "--pages", str(pages)],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{radish}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(radish, block_size, requests, percents, out):
    """Rows of {percent, pages, radish, belady}, and the trace's totals; prints progress to `out`."""
    paths = Requests(block_size, requests)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"block_size": block_size,
                   "requests": [{"t": at, "in": n_input, "out": n_output, "hash_ids": blocks}
                                for at, n_input, n_output, blocks in requests]}, file)
        file.flush()
        whole = replay(radish, file.name, 0)
        ideal = paths.belady(math.inf)
        if ideal != whole["ideal"] or paths.asked != whole["asked"]:
            sys.exit(f"radish says the ideal is {whole['ideal']} of {whole['asked']}, "
                     f"it is {ideal} of {paths.asked}")
        rows = []
        for percent in percents:
            pages = int(whole["distinct"] * percent / 100)
            run = replay(radish, file.name, pages)
            row = {"percent": percent, "pages": pages, "refused": run["refused"],
                   "radish": run["hit_rate"], "belady": paths.belady(pages) / paths.asked}
            rows.append(row)
            share = row["radish"] / row["belady"] if row["belady"] else 1
            print(f"{percent:7g}% {pages:>12,} {100 * row['radish']:9.2f}% "
                  f"{100 * row['belady']:9.2f}% {share:7.3f} {row['refused']:8,}",
                  file=out, flush=True)
    return {"requests": whole["requests"], "asked": whole["asked"], "distinct": whole["distinct"],
            "unlimited": whole["hit_rate"], "ideal": ideal / paths.asked, "rows": rows}


# ---- the picture --------------------------------------------------------------------------------

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 64, 66
INK, FAINT, GRID = "#24292f", "#57606a", "#e4e7eb"
RADISH_COLOUR, BELADY_COLOUR = "#c2185b", "#1f5fa8"


def short(tokens):
    """1.2 M, 350 k"""
    if tokens >= 1e6:
        return f"{tokens / 1e6:.3g} M"
    return f"{tokens / 1e3:.3g} k" if tokens >= 1e3 else f"{tokens:.0f}"


class Picture:
    """SVG curves: sizes on a logarithmic axis, hit rates on a linear one."""

    def __init__(self, percents, top):
        self.low, self.high = math.log(min(percents)), math.log(max(percents))
        self.top = top
        self.parts = []

    def x(self, percent):
        span = (self.high - self.low) or 1
        return LEFT + (math.log(percent) - self.low) / span * (WIDTH - LEFT - RIGHT)

    def y(self, rate):
        return HEIGHT - BOTTOM - rate / self.top * (HEIGHT - TOP - BOTTOM)

    def text(self, x, y, words, anchor="middle", size=12, colour=FAINT, extra=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
                          f'font-size="{size}" fill="{colour}"{extra}>{html.escape(words)}</text>')

    def line(self, x1, y1, x2, y2, colour, extra=""):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke="{colour}"{extra}/>')

    def curve(self, points, colour):
        where = [(self.x(percent), self.y(rate)) for percent, rate in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                          'stroke-width="2.5" stroke-linejoin="round"/>')
        self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
                       for x, y in where]

    def axes(self, rows):
        step = next(step for step in (0.02, 0.05, 0.1, 0.2) if self.top / step <= 6.01)
        for i in range(int(self.top / step + 1.01)):
            y = self.y(i * step)
            self.line(LEFT, y, WIDTH - RIGHT, y, GRID)
            self.text(LEFT - 8, y + 4, f"{100 * i * step:.0f}%", "end")
        last = -math.inf
        for row in rows:
            x = self.x(row["percent"])
            self.line(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 5, FAINT)
            if x - last < 48:  # the labels would touch
                continue
            last = x
            self.text(x, HEIGHT - BOTTOM + 20, f"{row['percent']:g}%")
            self.text(x, HEIGHT - BOTTOM + 34, short(row["pages"]), size=10)
        self.line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, FAINT)
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12,
                  "cache size: share of the different tokens of the trace, and tokens")
        middle = (TOP + HEIGHT - BOTTOM) / 2
        self.text(18, middle, "prompt tokens found in the cache",
                  extra=f' transform="rotate(-90 18 {middle:.1f})"')

    def legend(self, entries):
        """Below the curves, on the right, where there is room."""
        y = HEIGHT - BOTTOM - 18 - 20 * (len(entries) - 1)
        self.parts.append(f'<rect x="{WIDTH - RIGHT - 244}" y="{y - 18}" width="244" '
                          f'height="{20 * len(entries) + 10}" fill="#ffffff"/>')
        for words, colour, extra in entries:
            self.line(WIDTH - RIGHT - 236, y - 4, WIDTH - RIGHT - 208, y - 4, colour,
                      f' stroke-width="2.5"{extra}')
            self.text(WIDTH - RIGHT - 200, y, words, "start", colour=INK)
            y += 20

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
                f'width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, sans-serif">\n'
                f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


def draw(result, title):
    rows = result["rows"]
    top = math.ceil(max(result["ideal"], 0.05) * 1.08 * 20) / 20
    picture = Picture([row["percent"] for row in rows], min(top, 1))
    picture.text(LEFT, 28, title, "start", 16, INK, ' font-weight="600"')
    picture.text(LEFT, 47, f"{result['requests']:,} requests, {short(result['asked'])} prompt tokens, "
                 f"{short(result['distinct'])} of them different", "start")
    picture.axes(rows)
    dashed = ' stroke-dasharray="6 4"'
    y = picture.y(result["ideal"])
    picture.line(LEFT, y, WIDTH - RIGHT, y, FAINT, ' stroke-width="1.5"' + dashed)
    picture.curve([(row["percent"], row["belady"]) for row in rows], BELADY_COLOUR)
    picture.curve([(row["percent"], row["radish"]) for row in rows], RADISH_COLOUR)
    picture.legend([(f"never forgets: {100 * result['ideal']:.1f}%", FAINT, dashed),
                    ("Belady: knows the future", BELADY_COLOUR, ""),
                    ("radish: least recently used", RADISH_COLOUR, "")])
    return picture.svg()


def percents_of(text):
    percents = sorted({float(part) for part in text.split(",")})
    if not percents or percents[0] <= 0:
        raise argparse.ArgumentTypeError("sizes are percentages above 0")
    return percents


def main():
    parser = argparse.ArgumentParser(description="Hit rate against the size of the cache.")
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--sizes", type=percents_of, default=percents_of("1,2,5,10,20,30,50,100"),
                        help="percent of the distinct tokens (default 1,2,5,10,20,30,50,100)")
    parser.add_argument("--svg", help="draw the curves into this file")
    parser.add_argument("--title", default="Hit rate against the size of the cache")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    block_size, requests = merge([read_trace(path) for path in args.traces])
    out = sys.stderr if args.json else sys.stdout
    print(f"{'size':>8} {'tokens':>12} {'radish':>10} {'Belady':>10} {'ratio':>7} {'refused':>8}",
          file=out)
    result = measure(args.radish, block_size, requests, args.sizes, out)
    print(f"without a limit: radish {100 * result['unlimited']:.2f}%, "
          f"ideal {100 * result['ideal']:.2f}%", file=out)
    if args.svg:
        with open(args.svg, "w", encoding="utf-8") as file:
            file.write(draw(result, args.title))
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
