#!/usr/bin/env python3
"""Compares how fast radish and the `tokenizers` library encode text, from tokenizer.json.

    bench/bench_tokenizers.py DIR... [--text FILE]

One thread each, the same text: the library in one call and in pieces of about 500 bytes, radish by
build/bench_tokenizer in the same two ways ("new" or "again", "messages"). The best of several rounds,
in processor time; MB are 10^6 bytes. The default text is this repository's documents and code.
"""
import argparse
import glob
import os
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
ROUNDS, PIECE = 5, 500


def own_text():
    names = glob.glob("*.md") + glob.glob("docs/*.md") + glob.glob("src/*/*.[ch]")
    return "".join(open(name, encoding="utf-8").read() for name in sorted(names))


def pieces(text):
    found, at = [], 0
    while at < len(text):
        end = min(at + PIECE, len(text))
        while end < len(text) and text[end - 1] not in " \n":
            end += 1
        found.append(text[at:end])
        at = end
    return found


def best(call):
    took = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        call()
        took.append(time.process_time() - begin)
    return min(took)


def library(path, text):
    from tokenizers import Tokenizer
    opened = best(lambda: Tokenizer.from_file(os.path.join(path, "tokenizer.json")))
    t = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    cut = pieces(text)
    size = len(text.encode()) / 1e6
    whole = best(lambda: t.encode_batch_fast([text], add_special_tokens=False))
    small = best(lambda: [t.encode(piece, add_special_tokens=False) for piece in cut])
    return size / whole, size / small, opened * 1e3


def radish(path, file):
    done = subprocess.run(["build/bench_tokenizer", path, file], capture_output=True, text=True,
                          check=True).stdout.split("\n")
    fields = done[1].split()[2:]
    return float(fields[0]), float(fields[1]), float(fields[2]), float(done[2].split()[-2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="+", metavar="DIR")
    parser.add_argument("--text", metavar="FILE")
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as own:
        text = open(args.text, encoding="utf-8").read() if args.text else own_text()
        own.write(text)
        own.flush()
        print(f"{len(text.encode()) / 1e6:.2f} MB of text; MB/s   library          radish"
              "                            faster         open, ms")
        print(f"{'':18} {'whole':>8} {'pieces':>8} {'new':>8} {'again':>8} {'pieces':>8} "
              f"{'new':>7} {'pieces':>7} {'library':>8} {'radish':>7}")
        slower = False
        for path in args.directories:
            whole, small, opened = library(path, text)
            new, again, messages, ms = radish(path, own.name)
            slower = slower or new < whole or messages < small
            print(f"{os.path.basename(path.rstrip('/')):18} {whole:8.1f} {small:8.1f} {new:8.1f} "
                  f"{again:8.1f} {messages:8.1f} {new / whole:6.1f}x {messages / small:6.1f}x "
                  f"{opened:8.1f} {ms:7.1f}", flush=True)
    print("radish is slower somewhere" if slower else "radish is faster everywhere")
    return 0


if __name__ == "__main__":
    sys.exit(main())
