#!/usr/bin/env python3
"""Collects answers to a new user's first question, for a person to judge without bias.

The question is the README's ("Why is the sky blue?"), asked with seeds 1, 2, 3, ... once with the
server's own sampling values ("after") and once with plain sampling at temperature 1 ("before").
`ask` saves both sets. `shuffle` writes all answers in random order, without saying which set they
are from. The judge puts one word behind the number of each answer, in a file of lines such as
"17 sensible". `score` counts these words by set.

    tools/peers/first_answers.py ask --url http://127.0.0.1:8080 --out answers
    tools/peers/first_answers.py shuffle --out answers      # answers/blind.txt
    tools/peers/first_answers.py score --out answers --judged judged.txt

It needs a running server and nothing else.
"""
import argparse
import collections
import json
import pathlib
import random
import urllib.request

QUESTION = "Why is the sky blue?"
SETS = {
    "after": {},
    "before": {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0},
}
VERDICTS = ("sensible", "partly", "wrong-cause", "nonsense")


def ask(url, seed, sampling):
    body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 100, "seed": seed,
            **sampling}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def run_ask(options):
    options.out.mkdir(parents=True, exist_ok=True)
    for name, sampling in SETS.items():
        answers = [ask(options.url, seed, sampling) for seed in range(1, options.seeds + 1)]
        (options.out / f"{name}.json").write_text(json.dumps(answers, indent=1))
        print(f"{name}: {len(answers)} answers, {len(set(answers))} of them different")


def run_shuffle(options):
    answers = [(name, seed, text) for name in SETS
               for seed, text in enumerate(json.loads((options.out / f"{name}.json").read_text()), 1)]
    random.SystemRandom().shuffle(answers)
    (options.out / "key.json").write_text(json.dumps([answer[:2] for answer in answers]))
    blind = options.out / "blind.txt"
    blind.write_text("\n\n".join(f"[{i}] {answer[2]}" for i, answer in enumerate(answers, 1)) + "\n")
    print(f"{blind}: {len(answers)} answers. Judge each: {', '.join(VERDICTS)}")


def run_score(options):
    key = json.loads((options.out / "key.json").read_text())
    judged = dict(line.split() for line in options.judged.read_text().splitlines() if line.strip())
    counts = {name: collections.Counter() for name in SETS}
    for number, (name, _) in enumerate(key, 1):
        verdict = judged[str(number)]
        if verdict not in VERDICTS:
            raise SystemExit(f"answer {number}: '{verdict}' is not one of {', '.join(VERDICTS)}")
        counts[name][verdict] += 1
    for name, count in counts.items():
        print(f"{name}: " + ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run in (("ask", run_ask), ("shuffle", run_shuffle), ("score", run_score)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("--out", type=pathlib.Path, required=True, help="folder of the answers")
    commands.choices["ask"].add_argument("--url", default="http://127.0.0.1:8080")
    commands.choices["ask"].add_argument("--seeds", type=int, default=20)
    commands.choices["score"].add_argument("--judged", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
