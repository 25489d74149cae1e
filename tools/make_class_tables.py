#!/usr/bin/env python3
"""Writes src/prompt/tokenizer_class_tables.h: classes of characters as the `tokenizers` library has
them, where the libraries that radish is linked with know another version of Unicode.

    python3 tools/make_class_tables.py > src/prompt/tokenizer_class_tables.h

    nfc_ranges            characters that NFC may change, move or compose with the one before them
    nfkd_ranges           the same for the three other forms, which decompose more
    word_ranges           \\w as the pre-tokeniser Whitespace and single_word have it
    punctuation_ranges    what the pre-tokeniser Punctuation cuts at
    late_XX               characters of a general category that are not in Unicode 14, which is what
                          PCRE2 knows from 10.40 on; needs a Python of that version (3.11)

Every code point is shown to the library. Its normal forms know Unicode 9: characters that came
later are in neither of the first two tables, and must be left alone.
"""
import unicodedata

import tokenizers
from tokenizers import normalizers, pre_tokenizers

from c_tables import CODES, print_ranges
from make_pre_tables import STEP, by_class, members

CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
              "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cf"]


def normal_forms():
    """What NFC may touch, and what the other forms may."""
    nfc, nfd, nfkd = normalizers.NFC(), normalizers.NFD(), normalizers.NFKD()
    composing, moving = set(), set()
    for c in CODES:
        text = chr(c)
        apart = nfd.normalize_str(text)
        if len(apart) > 1 and nfc.normalize_str(apart) == text:
            composing.add(ord(apart[-1]))
        if nfd.normalize_str("\u0345" + text + "\u0334") != "\u0345" + apart + "\u0334":
            moving.add(c)
    changed = {c for c in CODES if nfc.normalize_str(chr(c)) != chr(c)}
    decomposed = {c for c in CODES if nfkd.normalize_str(chr(c)) != chr(c)}
    return changed | composing | moving, decomposed | composing | moving


def words():
    """\\w: what stays in one piece with a letter before it."""
    found = set()
    splitter = pre_tokenizers.Whitespace()
    for at in range(0, len(CODES), STEP):
        codes = CODES[at:at + STEP]
        text = "".join(" a" + chr(c) for c in codes)
        for piece, (begin, _) in splitter.pre_tokenize_str(text):
            if len(piece) == 2:
                found.add(codes[begin // 3])
    return found


def main():
    assert unicodedata.unidata_version == "14.0.0"
    nfc, nfkd = normal_forms()
    print(f"/* Made by tools/make_class_tables.py from tokenizers {tokenizers.__version__}.")
    print(" * Do not edit. */")
    print("// clang-format off")
    print_ranges("nfc_ranges", sorted(nfc))
    print_ranges("nfkd_ranges", sorted(nfkd))
    print_ranges("word_ranges", sorted(words()))
    print_ranges("punctuation_ranges", sorted(members(pre_tokenizers.Punctuation())))
    for name in CATEGORIES:
        known = {c for c in CODES if unicodedata.category(chr(c)) == name}
        late = by_class(rf"\p{{{name}}}") - known
        if late:
            print_ranges(f"late_{name}", sorted(late))
    print("// clang-format on")


if __name__ == "__main__":
    main()
