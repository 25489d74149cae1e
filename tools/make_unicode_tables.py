#!/usr/bin/env python3
"""Writes src/prompt/jinja_unicode_tables.h: what Python's str methods know about characters.

    python3 tools/make_unicode_tables.py > src/prompt/jinja_unicode_tables.h

Templates see Python's strings, so upper(), isalpha() and repr() must agree with the Python that
transformers runs on, not with the C library's locale.
"""
import sys
import unicodedata

from c_tables import CODES, print_ranges, print_table


def print_members(name, predicate):
    print_ranges(name, [c for c in CODES if predicate(chr(c))])


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
    print_table(f"case_special {name}_special", [f'{c:#x}, "{octal(mapped)}"' for c, mapped in special])


def main():
    print("/* Made by tools/make_unicode_tables.py from Python "
          f"{sys.version_info[0]}.{sys.version_info[1]}, Unicode {unicodedata.unidata_version}.")
    print(" * Do not edit. */")
    print("// clang-format off")
    print_members("alpha_ranges", str.isalpha)
    print_members("decimal_ranges", str.isdecimal)
    print_members("digit_ranges", str.isdigit)
    print_members("numeric_ranges", str.isnumeric)
    print_members("printable_ranges", str.isprintable)
    print_case("upper", str.upper)
    print_case("lower", str.lower)
    print_case("title", str.title)
    print("// clang-format on")


main()
