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

from c_tables import CODES, print_ranges

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


def main():
    letters, numbers, spaces = by_class(r"\p{L}"), by_class(r"\p{N}"), by_class(r"\s")
    digits = members(pre_tokenizers.Digits(individual_digits=True)) - numbers
    assert not letters & numbers and not letters & spaces and not digits & (letters | spaces)
    print(f"/* Made by tools/make_pre_tables.py from tokenizers {tokenizers.__version__}.")
    print(" * Do not edit. */")
    print("// clang-format off")
    print_ranges("letter_ranges", sorted(letters))
    print_ranges("number_ranges", sorted(numbers))
    print_ranges("digit_ranges", sorted(digits))
    print_ranges("space_ranges", sorted(spaces))
    print("// clang-format on")


if __name__ == "__main__":
    main()
