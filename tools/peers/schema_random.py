#!/usr/bin/env python3
"""Compares grammars of random small schemas with the jsonschema package.

    pip install jsonschema
    make build/schema_match
    python3 tools/peers/schema_random.py [--draft 4] [--count 2000] [--seed 1]
                                         [--schema-match build/schema_match]

Schemas combine type, enum, const, bounds, sizes, properties, items, allOf, anyOf, oneOf, not, if,
dependencies, contains, uniqueItems, unevaluatedProperties and $ref over a few names and values, as
draft 4, 7 or 2020 (the default) has them; older drafts are named by $schema. Each is matched against the same set of a few hundred small values. A false accept is a value that the
grammar matches and jsonschema calls invalid: there must be none (exit status 1). Valid values that
are refused are counted: grammars may be narrower than their schemas.
"""
import argparse
import collections
import itertools
import json
import random
import subprocess
import sys

import jsonschema

SCALARS = [None, True, False, 0, 1, 2, 3, 7, -1, 1.5, "", "a", "b", "ab", "zzz"]
NAMES = ["a", "b", "c"]


def values_all():
    """Scalars, arrays of up to three of them, and objects of up to three members."""
    few = [None, 1, 2, "a", "b", True]
    yield from SCALARS
    yield from ([list(p) for n in range(3) for p in itertools.product(few, repeat=n)])
    yield from ([1, 2, 1], [1, 2, 3], ["a", "b", "a"], [1, 1, 1], [[1], [1]], [[], [1]], [{}, {}])
    for n in range(4):
        for names in itertools.combinations(NAMES + ["d"], n):
            for values in itertools.product([1, 2, "a", None] if n < 3 else [1, "a"], repeat=n):
                yield dict(zip(names, values))
    yield from ([{"a": 1}, {"a": 1}], [{"a": 1}, {"a": 2}], [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
                {"a": {"a": 1}}, {"a": {}}, {"a": [1]}, {"a": [1, 1]}, {"a": {"b": 2}, "b": 1})


def texts_of(value):
    """The value, with its keys in every order."""
    if isinstance(value, dict):
        members = [[json.dumps(k) + ": " + t for t in texts_of(v)] for k, v in value.items()]
        for order in itertools.permutations(members):
            for parts in itertools.product(*order):
                yield "{" + ", ".join(parts) + "}"
    elif isinstance(value, list):
        for parts in itertools.product(*[list(texts_of(v)) for v in value]):
            yield "[" + ", ".join(parts) + "]"
    else:
        yield json.dumps(value)


class Draw:
    def __init__(self, seed, draft):
        self.rng = random.Random(seed)
        self.draft = draft
        self.defs = "$defs" if draft == 2020 else "definitions"

    def some(self, items, least=1, most=3):
        return self.rng.sample(items, self.rng.randint(least, min(most, len(items))))

    def schemas(self, depth, least=1, most=3):
        return [self.schema(depth - 1) for _ in range(self.rng.randint(least, most))]

    def types(self):
        types = self.some(["null", "boolean", "integer", "number", "string", "array", "object"])
        return {"type": types[0] if self.rng.random() < 0.7 else types}

    def bound(self, keyword, exclusive):
        value, is_exclusive = self.rng.randint(-1, 3), self.rng.random() < 0.5
        if self.draft == 4:
            return {keyword: value, exclusive: is_exclusive}
        return {exclusive if is_exclusive else keyword: value}

    def leaf(self):
        rng = self.rng
        kinds = [self.types, self.types, lambda: {"enum": self.some(SCALARS, 1, 4)},
                 lambda: self.bound("minimum", "exclusiveMinimum"),
                 lambda: self.bound("maximum", "exclusiveMaximum"),
                 lambda: {"multipleOf": rng.choice([2, 0.5])},
                 lambda: {"minLength": rng.randint(0, 2)}, lambda: {"maxLength": rng.randint(0, 2)},
                 lambda: {"minItems": rng.randint(0, 2)}, lambda: {"maxItems": rng.randint(0, 2)},
                 lambda: {"minProperties": rng.randint(0, 2)},
                 lambda: {"maxProperties": rng.randint(0, 2)},
                 lambda: {"pattern": rng.choice(["^a", "b$", "^$", "z"])},
                 lambda: {"required": self.some(NAMES, 1, 2)},
                 lambda: {"uniqueItems": True}, lambda: {"unknown": 1},
                 lambda: {"$ref": f"#/{self.defs}/{rng.choice(NAMES)}"}]
        if self.draft > 4:
            kinds.append(lambda: {"const": rng.choice(SCALARS + [{"a": 1}, [1]])})
        return rng.choice(kinds)()

    def nest(self, depth):
        rng = self.rng
        kinds = [
            lambda: {"properties": {k: self.schema(depth - 1) for k in self.some(NAMES)}},
            lambda: {"additionalProperties": rng.choice([False, self.schema(depth - 1)])},
            lambda: {"patternProperties": {"^[ab]$": self.schema(depth - 1)}},
            lambda: {"items": self.schema(depth - 1)},
            lambda: {"allOf": self.schemas(depth, 1, 2)},
            lambda: {"anyOf": self.schemas(depth)},
            lambda: {"oneOf": self.schemas(depth, 2, 3)},
            lambda: {"not": self.schema(depth - 1)}]
        since_6 = [
            lambda: {"propertyNames": {"pattern": rng.choice(["^[ab]$", "^c"])}},
            lambda: {"contains": self.schema(depth - 1)},
            lambda: {"if": self.schema(depth - 1), "then": self.schema(depth - 1),
                     "else": self.schema(depth - 1)}]
        until_7 = [
            lambda: {"items": self.schemas(depth, 1, 2)},
            lambda: {"items": self.schemas(depth, 1, 2), "additionalItems": self.schema(depth - 1)},
            lambda: {"dependencies": {rng.choice(NAMES): self.some(NAMES, 1, 2)}},
            lambda: {"dependencies": {rng.choice(NAMES): self.schema(depth - 1)}}]
        since_2019 = [
            lambda: {"prefixItems": self.schemas(depth, 1, 2)},
            lambda: {"dependentRequired": {rng.choice(NAMES): self.some(NAMES, 1, 2)}},
            lambda: {"dependentSchemas": {rng.choice(NAMES): self.schema(depth - 1)}},
            lambda: {"unevaluatedProperties": rng.choice([False, self.schema(depth - 1)])},
            lambda: {"unevaluatedItems": False}]
        kinds += since_6 if self.draft > 4 else []
        kinds += since_2019 if self.draft == 2020 else until_7
        return rng.choice(kinds)()

    def schema(self, depth):
        out = {}
        for _ in range(self.rng.randint(1, 3)):
            out.update(self.nest(depth) if depth > 0 and self.rng.random() < 0.6 else self.leaf())
        return out

    def document(self):
        out = self.schema(self.rng.randint(1, 3))
        if "#/" + self.defs in json.dumps(out):
            out[self.defs] = {name: self.schema(self.rng.randint(0, 2)) for name in NAMES}
        if self.draft != 2020:
            out["$schema"] = f"http://json-schema.org/draft-0{self.draft}/schema#"
        return out


VALIDATORS = {4: jsonschema.Draft4Validator, 7: jsonschema.Draft7Validator,
              2020: jsonschema.Draft202012Validator}


def refers_to_itself(schema, defs):
    """Whether $ref leads back to itself without a property or an item in between: validators then
    recurse without end."""
    def here(node, seen):
        if not isinstance(node, dict):
            return False
        found = []
        if "$ref" in node:
            name = node["$ref"].rsplit("/", 1)[-1]
            if name in seen or here(schema[defs][name], seen | {name}):
                return True
        for key in ("allOf", "anyOf", "oneOf"):
            found += node.get(key, [])
        found += [node[key] for key in ("not", "if", "then", "else") if key in node]
        for key in ("dependencies", "dependentSchemas"):
            found += [v for v in node.get(key, {}).values() if isinstance(v, dict)]
        return any(here(child, seen) for child in found)

    nodes = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if here(node, frozenset()):
                return True
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    return False


def run(program, schemas, texts):
    lines = "".join(json.dumps({"schema": s, "texts": texts}) + "\n" for s in schemas)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--draft", type=int, choices=sorted(VALIDATORS), default=2020)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schema-match", default="build/schema_match")
    args = parser.parse_args()
    values = list(values_all())
    pairs = [(i, text) for i, value in enumerate(values) for text in texts_of(value)]
    texts = [text for _, text in pairs]
    draw = Draw(args.seed, args.draft)
    drawn = (draw.document() for _ in itertools.count())
    schemas = list(itertools.islice((s for s in drawn if not refers_to_itself(s, draw.defs)),
                                    args.count))
    counts, bad = collections.Counter(), []
    for schema, answer in zip(schemas, run(args.schema_match, schemas, texts)):
        if "error" in answer:
            counts["refused"] += 1
            continue
        counts["served"] += 1
        matched = {i: text for (i, text), m in zip(pairs, answer["matches"]) if m}
        validator = VALIDATORS[args.draft](schema)
        for i, value in enumerate(values):
            is_valid = validator.is_valid(value)
            counts["valid"] += is_valid
            counts["missed"] += is_valid and i not in matched
            if i in matched and not is_valid:
                bad.append((schema, matched[i]))
    print(f"schemas: {counts['served']} served, {counts['refused']} refused; {len(texts)} texts of "
          f"{len(values)} values each")
    print(f"false accepts: {len(bad)}")
    for schema, text in sorted(bad, key=lambda pair: len(json.dumps(pair[0])))[:10]:
        print(f"  FALSE ACCEPT {text} for {json.dumps(schema)}")
    print(f"valid values refused: {counts['missed']} of {counts['valid']}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
