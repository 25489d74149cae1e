#!/usr/bin/env python3
"""Attacks a server of its own and prints what another client notices.

    run.py --radish build/radish                 all cases
    run.py --radish build/radish schemas grammar only these
    run.py --list

Each case starts a server on a loopback port, measures a victim alone and then under the attack, and
ends the server. Exits 1 if a case does not hold.
"""
import argparse
import importlib
import sys
import time

from measure import Row, Settings, row_table

MODULES = ["cases_http", "cases_workers", "cases_steps", "cases_signals", "cases_files"]


def all_cases():
    return {name: case for module in MODULES
            for name, case in importlib.import_module(module).CASES.items()}


def outcome(result):
    """(text or None, row or None, whether it holds) of what a case returned."""
    if isinstance(result, Row):
        return None, result, result.holds()
    if isinstance(result, tuple):
        return result[0], None, result[1]
    return result, None, True


def main():
    cases = all_cases()
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases (default: all)")
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--engine", choices=["cpu", "mock"], default="cpu")
    parser.add_argument("--model")
    parser.add_argument("--seconds", type=float, default=6, help="of each measurement")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        for name, case in cases.items():
            print(f"{name:18} {(case.__doc__ or '').strip().splitlines()[0] if case.__doc__ else ''}")
        return 0
    unknown = [name for name in args.names if name not in cases]
    if unknown:
        parser.error(f"no case {unknown[0]}; --list names them")
    settings = Settings(args.radish, args.engine, args.seconds, args.model)
    rows, failed = [], []
    for name in args.names or cases:
        begin = time.monotonic()
        try:
            text, row, holds = outcome(cases[name](settings))
        except Exception as e:  # one broken case must not hide the others
            text, row, holds = f"{type(e).__name__}: {e}", None, False
        rows += [row] if row else []
        failed += [] if holds else [name]
        print(f"{name}: {'holds' if holds else 'DOES NOT HOLD'} ({time.monotonic() - begin:.0f} s)",
              flush=True)
        print(text if text else row_table([row]), flush=True)
    if rows:
        print("\n" + row_table(rows))
    print("\n" + (f"{len(failed)} do not hold: {' '.join(failed)}" if failed else "all hold"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
