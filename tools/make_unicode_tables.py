#!/usr/bin/env python3
"""Writes src/prompt/jinja_unicode_tables.h: what Python's str methods know about characters.

    python3 tools/make_unicode_tables.py > src/prompt/jinja_unicode_tables.h

Templates see Python's strings, so upper(), isalpha() and repr() must agree with the Python that
transformers runs on, not with the C library's locale.
"""
import sys
import unicodedata

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(predicate):
    out = []
    for c in CODES:
        if not predicate(chr(c)):
            continue
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def print_ranges(name, predicate):
    found = ranges(predicate)
    print(f"static const struct code_range {name}[{len(found)}] = {{")
    line = "   "
    for first, last in found:
        item = f" {{{first:#x}, {last:#x}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};\n")


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


def print_case(name, method):
    runs, special = case_runs(method)
    print(f"static const struct case_run {name}_runs[{len(runs)}] = {{")
    line = "   "
    for first, last, step, delta in runs:
        item = f" {{{first:#x}, {last:#x}, {step}, {delta}}},"
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};\n")
    print(f"static const struct case_special {name}_special[{len(special)}] = {{")
    line = "   "
    for c, mapped in special:
        text = "".join(f"\\{b:03o}" for b in mapped.encode())
        item = f' {{{c:#x}, "{text}"}},'
        if len(line) + len(item) > 100:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};\n")


def main():
    print("/* Made by tools/make_unicode_tables.py from Python "
          f"{sys.version_info[0]}.{sys.version_info[1]}, Unicode {unicodedata.unidata_version}.")
    print(" * Do not edit. */")
    print("// clang-format off")
    print_ranges("alpha_ranges", str.isalpha)
    print_ranges("decimal_ranges", str.isdecimal)
    print_ranges("digit_ranges", str.isdigit)
    print_ranges("numeric_ranges", str.isnumeric)
    print_ranges("printable_ranges", str.isprintable)
    print_case("upper", str.upper)
    print_case("lower", str.lower)
    print_case("title", str.title)
    print("// clang-format on")


main()
