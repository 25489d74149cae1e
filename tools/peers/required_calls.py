#!/usr/bin/env python3
"""Counts the calls of answers with `tool_choice: "required"`, without max_tokens.

A small model tends to repeat itself, so such an answer must end by itself: it has at least one call
and none of them twice. Two prompts, two tools, temperatures 0 and 0.8, seeds 1, 2, 3, ...

    tools/peers/required_calls.py --url http://127.0.0.1:8080 [--seeds 20]

It needs a running server and nothing else. It exits with 1 if an answer breaks a rule.
"""
import argparse
import collections
import json
import sys
import urllib.request

PROMPTS = {
    "one": "What is the weather in Paris?",
    "several": "What is the weather and the time in Paris, London, Rome, Berlin and Madrid? "
               "Look up every city.",
}


def tool(name, description):
    parameters = {"type": "object", "properties": {"city": {"type": "string"}},
                  "required": ["city"], "additionalProperties": False}
    return {"type": "function",
            "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [tool("get_weather", "The weather in a city."), tool("get_time", "The time in a city.")]


def ask(url, prompt, temperature, seed):
    body = {"messages": [{"role": "user", "content": prompt}], "tools": TOOLS, "seed": seed,
            "tool_choice": "required", "temperature": temperature}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def faults(answer):
    """What is wrong with an answer, in words."""
    choice = answer["choices"][0]
    calls = [(call["function"]["name"], call["function"]["arguments"])
             for call in choice["message"].get("tool_calls") or []]
    if not calls:
        yield "no call"
    parsed = []
    for name, arguments in calls:
        try:
            parsed.append((name, json.dumps(json.loads(arguments), sort_keys=True)))
        except ValueError:
            yield f"arguments that are no JSON: {arguments[:80]}"
    if len(set(parsed)) < len(parsed):
        yield "a repeated call"
    if {name for name, _ in calls} - {"get_weather", "get_time"}:
        yield "an unknown function"
    if any(set(json.loads(arguments)) != {"city"} for _, arguments in parsed):
        yield "arguments that break the schema"
    if choice["finish_reason"] != "tool_calls":
        yield f"finish_reason {choice['finish_reason']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    n_faults = 0
    for name, prompt in PROMPTS.items():
        for temperature in (0, 0.8):
            calls, tokens = collections.Counter(), []
            for seed in range(1, options.seeds + 1):
                answer = ask(options.url, prompt, temperature, seed)
                calls[len(answer["choices"][0]["message"].get("tool_calls") or [])] += 1
                tokens.append(answer["usage"]["completion_tokens"])
                for fault in faults(answer):
                    n_faults += 1
                    print(f"FAULT {name}, temperature {temperature}, seed {seed}: {fault}")
            histogram = ", ".join(f"{n} calls: {count}" for n, count in sorted(calls.items()))
            print(f"{name}, temperature {temperature}: {histogram} "
                  f"({min(tokens)} to {max(tokens)} tokens)", flush=True)
    print(f"{n_faults} faults")
    sys.exit(1 if n_faults else 0)


if __name__ == "__main__":
    main()
