#!/usr/bin/env python3
"""Checks answers constrained by real JSON schemas: each must parse and validate.

    python3 bench/schemas.py FOLDER --url http://127.0.0.1:8080 [--count 300] [--out pairs.jsonl]

FOLDER and its subfolders contain .json files: each is a schema, or an object with a member "schema"
or "json_schema", as in public suites. `count` of the schemas that the server accepts are used, from
the smallest to the largest; rejected ones are counted by error message. Needs openai and jsonschema
from PyPI. --out saves schemas and answers for build/bench_schemas.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import sys
import time

import jsonschema
import openai


def schemas_of(folder):
    """(name, schema), from the smallest to the largest."""
    found = {}
    for parent, _, files in os.walk(folder):
        for file in sorted(files):
            if not file.endswith(".json"):
                continue
            path = os.path.join(parent, file)
            try:
                with open(path, encoding="utf-8") as text:
                    value = json.load(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                schema = value.get("json_schema", value.get("schema", value))
                if isinstance(schema, str):
                    schema = json.loads(schema)
                if isinstance(schema, dict):
                    found[json.dumps(schema)] = os.path.relpath(path, folder)
    return [(name, json.loads(text))
            for text, name in sorted(found.items(), key=lambda item: (len(item[0]), item[0]))]


def validator_of(schema):
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


class Run:
    def __init__(self, args):
        self.args = args
        self.client = openai.OpenAI(base_url=args.url + "/v1", api_key="none", timeout=600)
        self.refused = collections.Counter()
        self.bad, self.cut, self.pairs = [], [], []
        self.short = self.tokens = 0

    def ask(self, name, schema):
        prompt = "Answer with JSON that has made-up but sensible values: " + name
        answer = self.client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": prompt}],
            max_tokens=self.args.max_tokens, seed=1, temperature=0.8,
            response_format={"type": "json_schema", "json_schema": {"name": "s",
                                                                    "schema": schema}})
        return answer.choices[0], answer.usage.completion_tokens

    def one(self, pair):
        name, schema = pair
        try:
            choice, tokens = self.ask(name, schema)
        except openai.BadRequestError as e:
            said = e.body["message"] if isinstance(e.body, dict) else str(e)
            self.refused[re.sub(r"^.*#\S*: ", "", said)[:80]] += 1
            return False
        self.tokens += tokens
        text = choice.message.content
        is_short = choice.finish_reason == "length"
        self.short += is_short
        try:
            validator_of(schema).validate(json.loads(text))
        except (ValueError, jsonschema.ValidationError) as e:
            if is_short and tokens == self.args.max_tokens:
                self.cut.append(name)
                return True
            self.bad.append((name, str(e)[:200], text[:200]))
        self.pairs.append({"name": name, "schema": schema, "text": text})
        return True


def spread(items, n):
    """n of the items, evenly spaced from the first to the last."""
    return items if len(items) <= n else [items[i * (len(items) - 1) // (n - 1)] for i in range(n)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder")
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--max-tokens", type=int, default=1000)
    parser.add_argument("--out")
    args = parser.parse_args()
    run = Run(args)
    candidates = []
    for name, schema in schemas_of(args.folder):
        try:
            validator_of(schema)
        except Exception:  # not a schema
            continue
        candidates.append((name, schema))
    chosen = spread(candidates, args.count)
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        served = sum(pool.map(run.one, chosen))
    took = time.monotonic() - began
    print(f"{len(chosen)} of {len(candidates)} schemas: {served} served, "
          f"{sum(run.refused.values())} refused by name; {run.tokens} tokens in {took:.0f} s")
    for said, n in run.refused.most_common():
        print(f"  refused {n}: {said}")
    print(f"complete and valid: {len(run.pairs) - len(run.bad)}, of these ended early to be so: "
          f"{run.short - len(run.cut)}; invalid: {len(run.bad)}; max_tokens too small for any "
          f"answer: {len(run.cut)}")
    for name, error, text in run.bad:
        print(f"  INVALID {name}: {error}\n    {text}")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as out:
            for pair in run.pairs:
                out.write(json.dumps(pair) + "\n")
    return 1 if run.bad else 0


if __name__ == "__main__":
    sys.exit(main())
