#!/usr/bin/env python3
"""Writes src/prompt/unicode/unicode_tables.h: the characters that the `tokenizers` library and
Python tell apart.

    python3 tools/make_unicode_tables.py > src/prompt/unicode/unicode_tables.h

Every code point is tested with both. Models are trained with the library, so the tokenizer must
agree with it on what a letter is. Templates see Python's strings: upper(), isalpha() and repr()
must agree with the Python that transformers runs on. The two know different versions of Unicode,
and so do parts of the library, so no table can replace another:

    letter_, number_, digit_, space_set   \\p{L}, \\p{N}, \\d and \\s of its regular expressions
    more_digit_set    digits of its Digits pre-tokeniser that are not numbers
    word_set          \\w in the pre-tokeniser Whitespace and in single_word
    punctuation_set   where the pre-tokeniser Punctuation splits
    nfc_set           characters that NFC may change, move or compose with the one before them
    nfkd_set          the same for the three other forms, which decompose more. Normal forms know
                      Unicode 9: later characters must not change
    more_alpha_, more_upper_, more_lower_set   what [:alpha:] adds to \\p{L} and \\p{Nl}, [:upper:]
                      to \\p{Lu} and [:lower:] to \\p{Ll}
    late_categories   characters of a general category of its regular expressions that are not in
                      Unicode 14, the version of PCRE2 since 10.40
    python_...        str.isalpha() and so on

Needs a Python with Unicode 14 (3.11).
"""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
              "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cf"]
WIDTH = 100  # columns of a line
STEP = 4096  # characters per call of the library

HEAD = f"""\
/* Made by tools/make_unicode_tables.py from tokenizers {tokenizers.__version__} and Python \
{sys.version_info[0]}.{sys.version_info[1]}, Unicode
 * {unicodedata.unidata_version}. Do not edit; what the tables are is said there. */
#ifndef RADISH_PROMPT_UNICODE_UNICODE_TABLES_H
#define RADISH_PROMPT_UNICODE_UNICODE_TABLES_H

#include "prompt/unicode/code_set.h"

struct case_run {{
    uint32_t first, last, step; /* every step-th character of first..last moves by delta */
    int32_t delta;
}};

struct case_special {{
    uint32_t code;
    const char *utf8;
}};

struct late_category {{
    const char *name;
    struct code_set set;
}};

// clang-format off"""

TAIL = """\
// clang-format on

#endif"""


# ---- as C ----

def print_items(items):
    """Prints as many items per line as fit."""
    line = "   "
    for item in items:
        if len(line) + len(item) + 4 > WIDTH:
            print(line)
            line = "   "
        line += f" {{{item}}},"
    print(line)


def print_table(declaration, items):
    print(f"static const struct {declaration}[{len(items)}] = {{")
    print_items(items)
    print("};\n")


def ranges(codes):
    """Code points as contiguous ranges."""
    found = []
    for c in sorted(codes):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return [f"{first:#x}, {last:#x}" for first, last in found]


def print_set(name, codes):
    items = ranges(codes)
    print(f"static const struct code_set {name}_set = {{(const struct code_range[]){{")
    print_items(items)
    print(f"}}, {len(items)}}};\n")


# ---- what the library knows ----

def members(splitter):
    """The code points that the splitter isolates in a text of code points between NULs."""
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


def normal_forms():
    """The characters that NFC may change, and those that the other forms may."""
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
    """\\w: characters that are not split from a letter before them."""
    found = set()
    splitter = pre_tokenizers.Whitespace()
    for at in range(0, len(CODES), STEP):
        codes = CODES[at:at + STEP]
        text = "".join(" a" + chr(c) for c in codes)
        for piece, (begin, _) in splitter.pre_tokenize_str(text):
            if len(piece) == 2:
                found.add(codes[begin // 3])
    return found


def print_late_categories():
    print("static const struct late_category late_categories[] = {")
    for name in CATEGORIES:
        known = {c for c in CODES if unicodedata.category(chr(c)) == name}
        late = ranges(by_class(rf"\p{{{name}}}") - known)
        if late:
            print(f'{{"{name}", {{(const struct code_range[]){{')
            print_items(late)
            print(f"}}, {len(late)}}}}},")
    print("};\n")


def print_library():
    letters, numbers, spaces = by_class(r"\p{L}"), by_class(r"\p{N}"), by_class(r"\s")
    digits = members(pre_tokenizers.Digits(individual_digits=True)) - numbers
    assert not letters & numbers and not letters & spaces and not digits & (letters | spaces)
    nfc, nfkd = normal_forms()
    print_set("letter", letters)
    print_set("number", numbers)
    print_set("digit", by_class(r"\d"))
    print_set("space", spaces)
    print_set("more_digit", digits)
    print_set("word", words())
    print_set("punctuation", members(pre_tokenizers.Punctuation()))
    print_set("nfc", nfc)
    print_set("nfkd", nfkd)
    for name, parts in [("alpha", r"\p{L}\p{Nl}"), ("upper", r"\p{Lu}"), ("lower", r"\p{Ll}")]:
        print_set(f"more_{name}", by_class(f"[[:{name}:]]") - by_class(f"[{parts}]"))
    print_late_categories()


# ---- what Python knows ----

def case_runs(method):
    """Runs of characters that move by the same distance, one by one or every second one."""
    runs, special = [], []
    for c in CODES:
        mapped = method(chr(c))
        if mapped == chr(c):
            continue
        if len(mapped) > 1:
            special.append((c, mapped))
            continue
        delta = ord(mapped) - c
        if runs:
            first, last, step, same = runs[-1]
            if same == delta and (step == c - last or (first == last and c - last == 2)
                                  or (first == last and c - last == 1)):
                runs[-1] = (first, c, c - last, delta)
                continue
        runs.append((c, c, 1, delta))
    return runs, special


def octal(text):
    return "".join(f"\\{byte:03o}" for byte in text.encode())


def print_case(name, method):
    runs, special = case_runs(method)
    print_table(f"case_run {name}_runs",
                [f"{first:#x}, {last:#x}, {step}, {delta}" for first, last, step, delta in runs])
    print_table(f"case_special {name}_special",
                [f'{c:#x}, "{octal(mapped)}"' for c, mapped in special])


def print_python():
    for name in ["alpha", "decimal", "digit", "numeric", "printable"]:
        is_member = getattr(str, f"is{name}")
        print_set(f"python_{name}", [c for c in CODES if is_member(chr(c))])
    for name in ["upper", "lower", "title"]:
        print_case(f"python_{name}", getattr(str, name))


def main():
    assert unicodedata.unidata_version == "14.0.0"
    print(HEAD)
    print_library()
    print_python()
    print(TAIL)


if __name__ == "__main__":
    main()
