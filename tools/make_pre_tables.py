#!/usr/bin/env python3
"""Writes src/prompt/tokenizer_pre_tables.h: the characters that pre-tokenisers tell apart.

    python3 tools/make_pre_tables.py > src/prompt/tokenizer_pre_tables.h

Every code point is shown to the `tokenizers` library, which models are trained with: what it takes
for a letter, a number or a space is what the tokenizer must. Its regular expressions know another
version of Unicode than its Digits pre-tokeniser, so the latter has a table of its own for what it
takes for a digit beyond the numbers.
"""
import tokenizers
from tokenizers import Regex, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
STEP = 4096


def members(splitter):
    """The code points that the splitter cuts out of a text in which each stands between NULs."""
    found = set()
    for at in range(0, len(CODES), STEP):
        codes = CODES[at:at + STEP]
        text = "".join("\0" + chr(c) + "\0" for c in codes)
        for piece, (begin, _) in splitter.pre_tokenize_str(text):
            if len(piece) == 1 and piece != "\0":
                found.add(codes[begin // 3])
    return found


def by_class(name):
    return members(pre_tokenizers.Split(Regex(name), "isolated"))


def print_ranges(name, codes):
    ranges = []
    for c in sorted(codes):
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    print(f"static const struct code_range {name}[{len(ranges)}] = {{")
    line = "   "
    for first, last in ranges:
        item = f" {{{first:#x}, {last:#x}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};\n")


def main():
    letters, numbers, spaces = by_class(r"\p{L}"), by_class(r"\p{N}"), by_class(r"\s")
    digits = members(pre_tokenizers.Digits(individual_digits=True)) - numbers
    assert not letters & numbers and not letters & spaces and not digits & (letters | spaces)
    print(f"/* Made by tools/make_pre_tables.py from tokenizers {tokenizers.__version__}.")
    print(" * Do not edit. */")
    print("// clang-format off")
    print_ranges("letter_ranges", letters)
    print_ranges("number_ranges", numbers)
    print_ranges("digit_ranges", digits)
    print_ranges("space_ranges", spaces)
    print("// clang-format on")


main()
