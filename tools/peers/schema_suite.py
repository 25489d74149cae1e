#!/usr/bin/env python3
"""Runs JSON-Schema-Test-Suite against the grammars that radish makes of schemas.

    make build/schema_match
    python3 tools/peers/schema_suite.py SUITE/tests/draft2020-12 [--schema-match build/schema_match]

SUITE is a checkout of json-schema-org/JSON-Schema-Test-Suite. Each group of tests has one schema.
Instances are written in several ways: compact, spaced, indented, with their keys in other orders,
with escapes, and with numbers spelled differently. A false accept is an instance that the suite
calls invalid and that the grammar matches in any of them: there must be none (exit status 1). A
valid instance counts as refused if the grammar matches none of its texts: grammars may be narrower
than their schemas. --list names every refused schema and every refused valid instance.
"""
import argparse
import collections
import copy
import itertools
import json
import os
import re
import subprocess
import sys


class Number(float):
    """A number that remembers its text."""
    def __new__(cls, text):
        number = super().__new__(cls, text)
        number.text = text
        return number


def groups_of(folder):
    """(file, group) of all tests in the folder itself."""
    for file in sorted(os.listdir(folder)):
        if file.endswith(".json"):
            with open(os.path.join(folder, file), encoding="utf-8") as text:
                for group in json.load(text, parse_float=Number):
                    yield file, group


# ---- spellings ---------------------------------------------------------------------------------


def number_texts(value):
    text = value.text if isinstance(value, Number) else str(value)
    yield text
    if value == int(value):
        yield str(int(value))
        if abs(value) < 10 ** 15:
            yield f"{int(value)}.0"
            yield f"{int(value)}e0"


def write(value, style, numbers, order):
    """The text of a value. style: (after a comma, after a colon, indent, ascii)."""
    comma, colon, indent, is_ascii = style
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, (int, float)):
        texts = list(number_texts(value))
        return texts[numbers % len(texts)]
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=is_ascii)
    if isinstance(value, list):
        parts, ends = [write(v, style, numbers, order) for v in value], "[]"
    else:
        keys = list(value)
        keys = order(keys) if len(keys) > 1 else keys
        parts = [json.dumps(k, ensure_ascii=is_ascii) + colon + write(value[k], style, numbers, order)
                 for k in keys]
        ends = "{}"
    if not parts or indent is None:
        return ends[0] + comma.join(parts) + ends[1]
    inner = ",\n".join(parts)
    lines = "\n".join(" " * indent + line for line in inner.split("\n"))
    return f"{ends[0]}\n{lines}\n{ends[1]}"


def orders(value):
    """Ways to sort keys: all permutations of few, else some."""
    def width(v):
        if isinstance(v, dict):
            return max([len(v)] + [width(x) for x in v.values()])
        return max([0] + [width(x) for x in v]) if isinstance(v, list) else 0
    yield list
    if width(value) < 2:
        return
    yield sorted
    yield lambda keys: keys[::-1]
    for permutation in itertools.islice(itertools.permutations(range(4)), 1, None):
        if width(value) > 2:
            yield lambda keys, p=permutation: [keys[i] for i in p if i < len(keys)] + keys[4:]


def texts_of(value):
    styles = [(",", ":", None, False), (", ", ": ", None, False), (", ", ": ", None, True),
              (",", ": ", 2, False), (",", ": ", 4, False)]
    texts = {write(value, style, numbers, order): None
             for order in orders(value) for style in styles for numbers in range(4)}
    return list(texts)


# ---- schemas -----------------------------------------------------------------------------------


def plain(value):
    """The same without numbers that remember their text, for json.dumps."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return float(value) if isinstance(value, Number) else value


def with_others(schema):
    """The schema with additionalProperties: true wherever it names properties and says nothing of
    others; radish allows only the named ones there."""
    if isinstance(schema, list):
        return [with_others(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: with_others(value) for key, value in schema.items()}
    if "properties" in out and not {"additionalProperties", "unevaluatedProperties",
                                    "patternProperties"} & set(out):
        out["additionalProperties"] = True
    return out


def keyword_of(error):
    """What a refusal is about: the keyword that it quotes, a limit, or the end of its pointer."""
    quoted = re.search(r"'(\$?\w+)' (?:is|are|or|and)", error)
    if quoted:
        return quoted.group(1)
    place, _, what = error.partition(": ")
    last = place.rsplit("/", 1)[-1]
    if re.search(r"\btoo (large|many|long)\b", what):
        return what
    return last if re.fullmatch(r"\$?[a-zA-Z]+", last) else what


def match(program, pairs):
    """The program's answers to (schema, texts)."""
    lines = "".join(json.dumps({"schema": plain(schema), "texts": texts}) + "\n"
                    for schema, texts in pairs)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def instances_run(program, groups):
    """For each group: its answer, and per test whether any text matches."""
    pairs, spans = [], []
    for _, group in groups:
        texts, span = [], []
        for test in group["tests"]:
            spelled = texts_of(test["data"])
            span.append((len(texts), len(texts) + len(spelled)))
            texts += spelled
        pairs.append((group["schema"], texts))
        spans.append(span)
    for (schema, texts), span, answer in zip(pairs, spans, match(program, pairs)):
        matches = answer.get("matches")
        yield answer, [[t for t, m in zip(texts[a:b], matches[a:b]) if m] if matches else None
                       for a, b in span]


class Counts:
    def __init__(self):
        self.schemas = self.accepted = self.invalid = self.valid = 0
        self.refused = collections.defaultdict(list)
        self.false_accepts, self.missed = [], []

    def add(self, file, group, answer, matched):
        self.schemas += 1
        if "error" in answer:
            name = f"{file}: {group['description']}: {answer['error']}"
            self.refused[keyword_of(answer["error"])].append(name)
            return
        self.accepted += 1
        for test, texts in zip(group["tests"], matched):
            name = f"{file}: {group['description']}: {test['description']}"
            if test["valid"]:
                self.valid += 1
                if not texts:
                    self.missed.append((name, group["schema"], test["data"]))
            else:
                self.invalid += 1
                self.false_accepts += [f"{name}: {text}" for text in texts[:1]]


def reasons_of(program, missed):
    """Refused valid instances by reason."""
    pairs = [(with_others(copy.deepcopy(schema)), texts_of(data)) for _, schema, data in missed]
    reasons = collections.defaultdict(list)
    for (name, _, _), answer in zip(missed, match(program, pairs)):
        opened = any(answer.get("matches", []))
        reason = ("properties that the schema does not name" if opened
                  else "the grammar is narrower: " + name.split(".json", 1)[0])
        reasons[reason].append(name)
    return reasons


def report(counts, reasons, is_long):
    print(f"schemas accepted: {counts.accepted} of {counts.schemas}")
    for keyword, names in sorted(counts.refused.items(), key=lambda kv: -len(kv[1])):
        print(f"  refused {len(names)}: {keyword}")
        for name in names if is_long else []:
            print(f"    {name}")
    print(f"false accepts: {len(counts.false_accepts)} of {counts.invalid} invalid instances")
    for name in counts.false_accepts:
        print(f"  FALSE ACCEPT {name}")
    print(f"valid instances refused: {len(counts.missed)} of {counts.valid}")
    for reason, names in sorted(reasons.items(), key=lambda kv: -len(kv[1])):
        print(f"  {len(names)}: {reason}")
        for name in names if is_long else []:
            print(f"    {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("--schema-match", default="build/schema_match")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    groups = list(groups_of(args.folder))
    counts = Counts()
    for (file, group), (answer, matched) in zip(groups, instances_run(args.schema_match, groups)):
        counts.add(file, group, answer, matched)
    report(counts, reasons_of(args.schema_match, counts.missed), args.list)
    return 1 if counts.false_accepts else 0


if __name__ == "__main__":
    sys.exit(main())
