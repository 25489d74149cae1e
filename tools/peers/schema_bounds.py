#!/usr/bin/env python3
"""Compares grammars of numeric schemas with exact decimal arithmetic.

    make build/schema_match
    python3 tools/peers/schema_bounds.py [--count 10000] [--seed 1] [--schema-match build/schema_match]

Schemas are random: number or integer, with minimum, maximum, their exclusive forms and multipleOf,
of magnitudes from 1e-320 to 1e320, integers beyond 64 bits, zeros with a sign, and exponents. For
each, texts around its bounds and multiples are matched. Python's Decimal decides what is valid:

  unsound   texts that the grammar matches and that are not valid: there must be none (exit status 1)
  plain     valid texts that a JSON writer would write without an exponent, with up to 15 digits;
            those that the grammar refuses are counted by what they look like
  no text   schemas refused because nothing matches: is there a value, and how would it be written?
"""
import argparse
import collections
import json
import math
import random
import subprocess
import sys
from decimal import Context, Decimal, ROUND_CEILING, ROUND_FLOOR, setcontext

setcontext(Context(prec=1500, Emin=-9999, Emax=9999))
LARGEST = Decimal("1.7e308")   # what a double holds
SMALLEST = Decimal("1e-307")
KEYWORDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")


# ---- schemas -----------------------------------------------------------------------------------


def number_text(rng):
    kind = rng.randrange(8)
    sign = rng.choice(["", "", "-"])
    if kind == 0:
        return sign + str(rng.randrange(12))
    if kind == 1:
        return sign + str(rng.randrange(10 ** rng.randrange(1, 25)))
    if kind == 2:
        return f"{sign}{rng.randrange(1000)}.{rng.randrange(10 ** 6):0{rng.randrange(1, 7)}d}"
    if kind == 3:
        return f"{sign}{rng.randrange(1, 10)}e{rng.randrange(-320, 321)}"
    if kind == 4:
        return f"{sign}{rng.randrange(1, 10)}.{rng.randrange(10 ** 9)}E{rng.randrange(-25, 26):+d}"
    if kind == 5:
        return sign + rng.choice(["0", "0.0", "0e5", "1.0", "10", "100", "1000", "0.1", "0.5"])
    if kind == 6:
        return sign + "0." + "0" * rng.randrange(20) + str(rng.randrange(1, 10 ** 5))
    return sign + str(rng.choice([2 ** 31, 2 ** 53, 2 ** 63, 2 ** 64]) + rng.randrange(-2, 3))


def near(rng, text):
    """Another bound close by, so that ranges are often narrow."""
    value = Decimal(text)
    step = Decimal(rng.choice([1, 2, 5, 10])).scaleb(rng.randrange(-8, 3))
    return format(value + step, "f") if abs(value) < 10 ** 30 else text


def schema_draw(rng):
    """Keywords with the texts of their values."""
    schema = {"type": rng.choice(['"number"', '"number"', '"integer"'])}
    low = number_text(rng)
    if rng.random() < 0.8:
        schema[rng.choice(KEYWORDS[:2])] = low
    if rng.random() < 0.7:
        high = near(rng, low) if rng.random() < 0.5 else number_text(rng)
        if Decimal(high) < Decimal(low) and rng.random() < 0.9:
            low, high = high, low
            for key in KEYWORDS[:2]:
                if key in schema:
                    schema[key] = low
        schema[rng.choice(KEYWORDS[2:4])] = high
    if rng.random() < 0.3:
        multiple = rng.choice(["1", "2", "3", "5", "7", "10", "0.1", "0.01", "0.25", "0.5", "2.5",
                               "1e3", "360", "1000", "0.001", "1e-5", "7e2", "12.5"])
        schema["multipleOf"] = multiple
    return schema


def schema_text(schema):
    return "{" + ", ".join(f'"{key}": {value}' for key, value in schema.items()) + "}"


class Rules:
    """What a schema asks for, in decimals."""
    def __init__(self, schema):
        self.is_integer = schema["type"] == '"integer"'
        for key in KEYWORDS:
            setattr(self, key, Decimal(schema[key]) if key in schema else None)

    def allow(self, value):
        def multiple(of):
            return value % of == 0
        return ((self.minimum is None or value >= self.minimum) and
                (self.exclusiveMinimum is None or value > self.exclusiveMinimum) and
                (self.maximum is None or value <= self.maximum) and
                (self.exclusiveMaximum is None or value < self.exclusiveMaximum) and
                (not self.is_integer or multiple(1)) and
                (self.multipleOf is None or multiple(self.multipleOf)))

    def low(self):
        return max((b for b in (self.minimum, self.exclusiveMinimum) if b is not None), default=None)

    def high(self):
        return min((b for b in (self.maximum, self.exclusiveMaximum) if b is not None), default=None)

    def step(self):
        """The distance of the values; None: there are values everywhere."""
        if not self.is_integer or self.multipleOf is None:
            return Decimal(1) if self.is_integer else self.multipleOf
        step = self.multipleOf
        while step % 1:
            step += self.multipleOf
        return step

    def witness(self):
        """A value that is allowed, nearest to 0 as far as that is easy; None: there is none."""
        low, high, step = self.low(), self.high(), self.step()
        if (low is None or low <= 0) and (high is None or high >= 0) and self.allow(Decimal(0)):
            return Decimal(0)
        is_below = high is not None and high <= 0
        edge = high if is_below else low if low is not None else Decimal(0)
        if step is None:
            if low is not None and high is not None:
                tries = [low, high, (low + high) / 2]
            else:
                tries = [edge, edge + (-1 if is_below else 1), edge * 2, edge / 2]
        else:
            first = (edge / step).to_integral_value(ROUND_FLOOR if is_below else ROUND_CEILING)
            tries = [(first + k) * step for k in (0, -1, 1)]
        return next((t for t in tries if self.allow(t)), None)


# ---- texts -------------------------------------------------------------------------------------


def spellings(value):
    plain = format(value, "f")
    yield plain
    if len(plain) > 60:
        plain = None
    digits = value.as_tuple()
    scientific = f"{value:e}".replace("+", "")
    yield scientific
    yield scientific.upper()
    if plain and "." not in plain:
        yield plain + ".0"
        yield plain + "e0"
    elif plain:
        yield plain.rstrip("0").rstrip(".")
        yield plain + "0"
    if digits.digits != (0,) and abs(digits.exponent) < 400:
        yield f"{'-' if digits.sign else ''}{''.join(map(str, digits.digits))}e{digits.exponent}"


def values_near(rng, rules):
    centers = [getattr(rules, key) for key in KEYWORDS] + [Decimal(0)]
    for center in (c for c in centers if c is not None):
        yield center
        for _ in range(2):
            unit = Decimal(rng.choice([1, 3, 9])).scaleb(center.adjusted() - rng.randrange(18))
            yield center + unit
            yield center - unit
        yield center + Decimal(rng.randrange(-999, 1000)).scaleb(-rng.randrange(4))
    low, high, step = rules.low(), rules.high(), rules.step()
    for _ in range(4):
        if low is not None and high is not None and low < high:
            inside = low + (high - low) * Decimal(rng.randrange(1, 1000)) / 1000
        else:
            inside = (low or high or Decimal(0)) + rng.randrange(-20, 20)
        if abs(inside) < 10 ** 30:
            yield inside.quantize(Decimal(1).scaleb(-rng.randrange(7)))
            if step is not None:
                yield (inside / step).to_integral_value() * step


def texts_draw(rng, rules):
    texts = {"0", "-0", "0.0", "1", "-1"}
    for value in values_near(rng, rules):
        if abs(value.adjusted()) < 330:
            texts.update(spellings(value))
    return sorted(texts)


def is_plain(text):
    """As a writer of JSON would write it: no exponent, up to 15 digits, no zeros at the end."""
    if "e" in text.lower() or text.startswith("-0") and not Decimal(text):
        return False
    if "." in text and text.endswith("0"):
        return False
    return sum(c.isdigit() for c in text) <= 15


def shape_of(text):
    """A plain text's class: how many digits are before and after the point."""
    whole, _, fraction = text.lstrip("-").partition(".")
    return f"{len(whole)} digits, {len(fraction)} after the point" if fraction else "an integer"


# ---- the run -----------------------------------------------------------------------------------


def match(program, pairs):
    lines = "".join(f'{{"schema": {schema}, "texts": {json.dumps(texts)}}}\n'
                    for schema, texts in pairs)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def as_read(text):
    """A number as Python's json reads it."""
    return float(text) if set(text.lower()) & set(".e") else int(text)


def reader_allows(schema, value):
    """Whether the bounds allow a value when both are read as most validators do."""
    tests = {"minimum": value.__ge__, "exclusiveMinimum": value.__gt__,
             "maximum": value.__le__, "exclusiveMaximum": value.__lt__}
    return all(test(as_read(schema[key])) is True for key, test in tests.items() if key in schema)


def witness_class(schema, rules):
    """Whether there is a value for a schema that matches no text, or why it cannot be written."""
    value = rules.witness()
    if value is None:
        return "no value exists"
    if value and not SMALLEST <= abs(value) <= LARGEST:
        return "values exist, but not as doubles"
    if rules.step() is not None and value % 1 == 0:
        tries = [int(value)]
    else:
        edges = [float(b) for b in (rules.low(), rules.high(), value) if b is not None]
        tries = edges + [math.nextafter(e, to) for e in edges for to in (-math.inf, math.inf)]
        tries = [t for t in tries if rules.allow(Decimal(t))]
    if not any(reader_allows(schema, t) for t in tries):
        return "values exist, but a reader with doubles rounds them or the bound out of the range"
    return "A VALUE EXISTS"


class Counts:
    def __init__(self):
        self.texts = self.plain = 0
        self.unsound, self.refused = [], collections.Counter()
        self.examples = {}
        self.schemas = collections.Counter()

    def add_refusal(self, schema, rules, error):
        kind = ("no text: " + witness_class(schema, rules) if "no text" in error
                else "refused by name")
        self.schemas[kind] += 1
        self.examples.setdefault(kind, schema_text(schema))

    def add_matches(self, schema, rules, texts, matches):
        self.schemas["served"] += 1
        for text, is_match in zip(texts, matches):
            self.texts += 1
            is_valid = rules.allow(Decimal(text))
            if is_match and not is_valid:
                self.unsound.append(f"{text} for {schema}")
            if is_valid and is_plain(text):
                self.plain += 1
                if not is_match:
                    self.refused[shape_of(text)] += 1
                    self.examples.setdefault(shape_of(text), f"{text} for {schema}")


def report(counts):
    for kind, n in counts.schemas.most_common():
        print(f"schemas {n}: {kind}" + (f", e.g. {counts.examples[kind]}" if kind in counts.examples
                                        else ""))
    print(f"texts matched: {counts.texts}; unsound: {len(counts.unsound)}")
    for text in counts.unsound[:20]:
        print(f"  UNSOUND {text}")
    print(f"plain valid texts refused: {sum(counts.refused.values())} of {counts.plain}")
    for shape, n in counts.refused.most_common(20):
        print(f"  {n}: {shape}, e.g. {counts.examples[shape]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schema-match", default="build/schema_match")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    counts = Counts()
    drawn = [schema_draw(rng) for _ in range(args.count)]
    for first in range(0, len(drawn), 500):
        some = drawn[first:first + 500]
        rules = [Rules(schema) for schema in some]
        pairs = [(schema_text(s), texts_draw(rng, r)) for s, r in zip(some, rules)]
        answers = match(args.schema_match, pairs)
        for schema, (text, texts), r, answer in zip(some, pairs, rules, answers):
            if "error" in answer:
                counts.add_refusal(schema, r, answer["error"])
            else:
                counts.add_matches(text, r, texts, answer["matches"])
    report(counts)
    return 1 if counts.unsound else 0


if __name__ == "__main__":
    sys.exit(main())
