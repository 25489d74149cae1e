#!/usr/bin/env python3
"""Draws the README's pictures: docs/measured.svg from the tables in docs/bench.md, and docs/tree.svg.

    tools/pictures.py            draw both
    tools/pictures.py --check    draw nothing; fail if a file is out of date
"""
import argparse
import html
import math
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INK, FAINT, GRID, PAPER = "#24292f", "#57606a", "#e4e7eb", "#ffffff"
RADISH, BLUE, GREEN = "#c2185b", "#1f5fa8", "#2e7d32"

# A bar's label, the section of docs/bench.md and the first cell of the row that it shows.
BARS = [
    ("Prefill, 512 tokens", "The engine", "prefill, 512 tokens"),
    ("Prefill, 4,096 tokens", "The engine", "prefill, 4,096 tokens"),
    ("Decode, one stream", "The engine", "decode, one stream"),
    ("Decode, 8 streams through the server", "The server", "8 streams of 64 tokens"),
    ("First token of a cached 3,000-token prompt", "The server", "first token, cached prompt"),
    ("4 agents, 12 turns each", "The server", "4 agents of 12 turns"),
    ("32 questions on one 1,500-token prompt", "The server", "32 questions on one prompt"),
    ("Longest pause as a 4,000-token prompt arrives", "The server", "longest gap of 3 streams"),
]


class Picture:
    def __init__(self, width, height, title):
        self.width, self.height, self.title = width, height, title
        self.parts = []

    def text(self, x, y, words, anchor="start", size=13, colour=INK, extra=""):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" '
                          f'fill="{colour}"{extra}>{html.escape(words)}</text>')

    def line(self, x1, y1, x2, y2, colour=FAINT, extra=""):
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
                          f'stroke="{colour}"{extra}/>')

    def box(self, x, y, width, height, fill, stroke="none", radius=0):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
                          f'rx="{radius}" fill="{fill}" stroke="{stroke}"/>')

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img" '
                f'font-family="system-ui, sans-serif">\n<title>{html.escape(self.title)}</title>\n'
                f'<rect width="{self.width}" height="{self.height}" fill="{PAPER}"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


def measured_row(bench, section, start):
    """(radish, peer, ratio) of one row, as written in docs/bench.md."""
    text = bench.split(f"## {section}\n")[1].split("\n## ")[0]
    row = re.search(rf"^\| {re.escape(start)}[^|]*\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text,
                    re.MULTILINE)
    if not row:
        sys.exit(f'docs/bench.md: no row "{start}" in the section "{section}"')
    return row.groups()


def measured_picture(bench):
    left, right, top, step = 345, 60, 70, 30
    bottom = top + step * len(BARS)
    picture = Picture(800, bottom + 50, "radish against llama.cpp")
    low, high = math.log(1), math.log(200)
    across = 800 - left - right

    def x(ratio):
        return left + (math.log(ratio) - low) / (high - low) * across

    picture.text(20, 30, "How many times as fast as llama.cpp", size=17, extra=' font-weight="600"')
    picture.text(20, 50, "SmolLM2-135M in Q4_1, 2 cores (Zen 5, AVX-512), same run; logarithmic scale",
                 size=12, colour=FAINT)
    for tick in (1, 2, 5, 10, 20, 50, 100, 200):
        picture.line(x(tick), top, x(tick), bottom, GRID)
        picture.text(x(tick), bottom + 18, f"{tick}×", "middle", 12, FAINT)
    for i, (label, section, start) in enumerate(BARS):
        ratio = measured_row(bench, section, start)[2]
        y = top + step * i + 5
        picture.text(left - 10, y + 15, label, "end")
        picture.box(left, y, x(float(ratio)) - left, step - 10, RADISH)
        picture.text(x(float(ratio)) + 6, y + 15, f"{ratio}×", extra=' font-weight="600"')
    picture.line(left, top, left, bottom)
    picture.text(left, bottom + 38, "1× is llama.cpp", "middle", 12, FAINT)
    return picture.svg()


def tree_node(picture, x, y, width, colour, title, words, tokens):
    picture.box(x, y, width, 64, PAPER, colour, 6)
    picture.box(x, y, 6, 64, colour)
    picture.text(x + 16, y + 20, title, size=12, colour=colour, extra=' font-weight="600"')
    picture.text(x + 16, y + 38, words, extra=' font-family="ui-monospace, monospace"', size=12)
    picture.text(x + 16, y + 55, tokens, size=11, colour=FAINT)


def tree_picture():
    """Two agents with one system prompt, two turns each: counts of a real run."""
    picture = Picture(860, 310, "Two agents in one prefix tree")
    picture.text(20, 30, "Two agents, one tree: every token is computed once", size=17,
                 extra=' font-weight="600"')
    picture.text(20, 50, "Two turns each: 6,178 prompt tokens requested, 1,556 computed",
                 size=12, colour=FAINT)
    middle = 157
    for y, colour in ((80, BLUE), (204, GREEN)):
        picture.line(290, middle, 330, y + 32, colour, ' stroke-width="2"')
        picture.line(570, y + 32, 610, y + 32, colour, ' stroke-width="2"')
    tree_node(picture, 20, middle - 32, 270, RADISH, "shared by both agents",
              "system prompt … Where do I add a", "1,513 tokens, computed once, for agent A")
    tree_node(picture, 330, 80, 240, BLUE, "agent A, turn 1", " kernel? → answer",
              "8 tokens computed, 48 sampled")
    tree_node(picture, 610, 80, 230, BLUE, "agent A, turn 2", " And how is it tested?",
              "1,568 of 1,586 from the cache")
    tree_node(picture, 330, 204, 240, GREEN, "agent B, turn 1", " model? → answer",
              "1,513 of 1,521 from the cache")
    tree_node(picture, 610, 204, 230, GREEN, "agent B, turn 2", " And how is it tested?",
              "1,568 of 1,586 from the cache")
    picture.text(20, 294, "The paths split in the middle of the question, at the first token that differs.",
                 size=12, colour=FAINT)
    return picture.svg()


def main():
    parser = argparse.ArgumentParser(description="Draw the README's pictures.")
    parser.add_argument("--check", action="store_true",
                        help="draw nothing; fail if a picture is out of date")
    args = parser.parse_args()
    with open(os.path.join(ROOT, "docs/bench.md"), encoding="utf-8") as file:
        bench = file.read()
    for name, svg in (("docs/measured.svg", measured_picture(bench)), ("docs/tree.svg", tree_picture())):
        path = os.path.join(ROOT, name)
        if args.check:
            with open(path, encoding="utf-8") as file:
                if file.read() != svg:
                    sys.exit(f"{name} is out of date: run tools/pictures.py")
            continue
        with open(path, "w", encoding="utf-8") as file:
            file.write(svg)


if __name__ == "__main__":
    main()
