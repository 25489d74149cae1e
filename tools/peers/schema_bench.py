#!/usr/bin/env python3
"""Runs the instances of JSONSchemaBench against the grammars that radish makes of its schemas.

    make build/schema_match
    python3 tools/peers/schema_bench.py BENCH/maskbench/data [--schema-match build/schema_match]

BENCH is a checkout of guidance-ai/jsonschemabench. Each file has a real schema, and instances that
are marked as valid or not. A false accept is an instance marked as invalid that the grammar matches,
compact or spaced: there must be none (exit status 1). Valid instances are also tried with their keys
in the order of the schema, because grammars have only that one; those still refused are counted by
reason. --list names every refused schema and every refused valid instance. bench/schemas.py has a
model answer these schemas.
"""
import argparse
import collections
import json
import os
import sys

import schema_suite

BATCH = 200


def files_of(folder):
    """(name, schema, tests) of all files."""
    for file in sorted(os.listdir(folder)):
        if file.endswith(".json"):
            with open(os.path.join(folder, file), encoding="utf-8") as text:
                value = json.load(text)
            yield file, value["schema"], value.get("tests", [])


def names_of(schema, ranks):
    """Property names in the order in which a document first mentions them."""
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key == "properties" and isinstance(value, dict):
            for name in value:
                ranks.setdefault(name, len(ranks))
        names_of(value, ranks)
    for value in schema if isinstance(schema, list) else ():
        names_of(value, ranks)
    return ranks


def sort_keys(value, ranks):
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: ranks.get(key, len(ranks)))
        return {key: sort_keys(value[key], ranks) for key in keys}
    return [sort_keys(v, ranks) for v in value] if isinstance(value, list) else value


def texts_of(schema, test):
    values = [test["data"]]
    if test["valid"]:
        values.append(sort_keys(test["data"], names_of(schema, {})))
    texts = []
    for value in values:
        texts += [json.dumps(value, ensure_ascii=False),
                  json.dumps(value, ensure_ascii=False, separators=(",", ":"))]
    return texts


def instances_run(program, files):
    """For each file: the program's answer, and the texts of each instance that match."""
    pairs, spans = [], []
    for _, schema, tests in files:
        texts, span = [], []
        for test in tests:
            spelled = texts_of(schema, test)
            span.append((len(texts), len(texts) + len(spelled)))
            texts += spelled
        pairs.append((schema, texts))
        spans.append(span)
    for (_, texts), span, answer in zip(pairs, spans, schema_suite.match(program, pairs)):
        matches = answer.get("matches", [])
        yield answer, [[t for t, m in zip(texts[a:b], matches[a:b]) if m] for a, b in span]


class Counts:
    def __init__(self):
        self.schemas = self.accepted = self.valid = self.invalid = 0
        self.refused = collections.defaultdict(list)
        self.false_accepts, self.missed = [], []

    def add(self, file, answer, matched):
        name, schema, tests = file
        self.schemas += 1
        if "error" in answer:
            keyword = schema_suite.keyword_of(answer["error"])
            self.refused[keyword].append(f"{name}: {answer['error']}")
            return
        self.accepted += 1
        for test, texts in zip(tests, matched):
            self.valid += test["valid"]
            self.invalid += not test["valid"]
            if texts and not test["valid"]:
                self.false_accepts.append(f"{name}: {texts[0][:300]}")
            if test["valid"] and not texts:
                self.missed.append((name, schema, test))


def reasons_of(program, missed):
    """Refused valid instances by reason."""
    reasons = collections.defaultdict(list)
    for first in range(0, len(missed), BATCH):
        some = missed[first:first + BATCH]
        opened = [(name, schema_suite.with_others(schema), [test]) for name, schema, test in some]
        for (name, _, _), (_, (texts,)) in zip(opened, instances_run(program, opened)):
            reasons["properties that the schema does not name" if texts
                    else "the grammar is narrower"].append(name)
    return reasons


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("--schema-match", default="build/schema_match")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    counts = Counts()
    files = list(files_of(args.folder))
    for first in range(0, len(files), BATCH):
        some = files[first:first + BATCH]
        for file, (answer, matched) in zip(some, instances_run(args.schema_match, some)):
            counts.add(file, answer, matched)
    schema_suite.report(counts, reasons_of(args.schema_match, counts.missed), args.list)
    return 1 if counts.false_accepts else 0


if __name__ == "__main__":
    sys.exit(main())
