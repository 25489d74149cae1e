#!/usr/bin/env python3
"""Agents in multi-turn conversations: how much of each turn is recomputed?

    bench/bench_agents.py --model FILE [--radish build/radish] [--peer llama-server] [--threads 2]

Four conversations at once share a system prompt of about 1,200 tokens and have twelve turns each, of
about 48 sampled tokens (--temperature 0.8, seeded). The assistant's turns are sent back as text, as every
client does. A turn counts as served from the cache if its cached_tokens cover at least the previous
turn's prompt and answer, minus one: the last sampled token was never fed to the model.

It also measures "replay": false, where earlier answers are tokenised like any text, and, with --peer, a
llama-server (which reports the same counts). Only the standard library is used.
"""

import argparse
import http.client
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from side_by_side import Server

RULES = ["answer in plain words", "name the tool before you use it", "keep to the facts that you were given",
         "ask when a task has two readings", "write numbers as digits", "say what you did and why",
         "never repeat a question", "stop when the task is done"]
QUESTIONS = ["What should we look at first?", "Why would that matter here?", "Give me an example with numbers.",
             "What could go wrong with it?", "How would you test that?", "Say it again for a child.",
             "Which part takes longest?", "What did we forget so far?", "Compare it with doing nothing.",
             "Name one tool that helps.", "What is the next step?", "Sum it up in one line."]


def system_prompt():
    lines = [f"Rule {i + 1}: in case {i * 7 % 31} of the handbook, {RULES[i % len(RULES)]}, unless rule "
             f"{i * 5 % 60 + 1} says otherwise." for i in range(44)]
    return "You are an agent in a team of four. " + " ".join(lines)


def ask(server, messages, seed, args, extra):
    """(text, usage, seconds to the first token) of one streamed turn."""
    body = {"messages": messages, "max_tokens": args.tokens, "temperature": args.temperature,
            "seed": seed, "stream": True, "stream_options": {"include_usage": True}, **extra}
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    text, usage, first = "", None, None
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event.get("choices") and event["choices"][0]["delta"].get("content"):
            first = first or time.perf_counter() - start
            text += event["choices"][0]["delta"]["content"]
        usage = event.get("usage") or usage
    connection.close()
    return text, usage, first if first is not None else time.perf_counter() - start


def converse(server, agent, args, extra):
    """[(prompt, cached, completion, first token)] of the turns of one conversation."""
    messages = [{"role": "system", "content": system_prompt()}]
    turns = []
    for turn in range(args.turns):
        messages.append({"role": "user", "content": f"Agent {agent}: {QUESTIONS[turn % len(QUESTIONS)]}"})
        text, usage, first = ask(server, messages, 1000 * agent + turn, args, extra)
        messages.append({"role": "assistant", "content": text})
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        turns.append((usage["prompt_tokens"], cached, usage["completion_tokens"], first))
    return turns


def measure(name, command, args, extra):
    with Server(name, command) as server, ThreadPoolExecutor(args.agents) as threads:
        start = time.perf_counter()
        agents = list(threads.map(lambda i: converse(server, i + 1, args, extra), range(args.agents)))
        return agents, time.perf_counter() - start


def report(name, agents, total_s):
    later = [(before, turn) for turns in agents for before, turn in zip(turns, turns[1:])]
    held = [turn[1] >= before[0] + before[2] - 1 for before, turn in later]
    again = sum(max(0, before[0] + before[2] - 1 - turn[1]) for before, turn in later)
    print(f"\n{name}")
    for number, turns in enumerate(agents):
        marks = ["ok" if turn[1] >= before[0] + before[2] - 1 else
                 f"-{before[0] + before[2] - 1 - turn[1]}" for before, turn in zip(turns, turns[1:])]
        print(f"  agent {number + 1}, turns 2 to {len(turns)}: " + " ".join(marks))
    computed = sum(turn[0] - turn[1] for turns in agents for turn in turns)
    print(f"  turns with cached >= previous prompt + completion - 1: {sum(held)} of {len(held)}"
          f" ({100 * sum(held) / len(held):.0f}%); {again} tokens computed again")
    print(f"  prompt tokens {sum(t[0] for a in agents for t in a)}, computed {computed}")
    print(f"  total {total_s:.1f} s, median time to the first token "
          f"{1000 * statistics.median(t[3] for a in agents for t in a):.0f} ms, of later turns "
          f"{1000 * statistics.median(turn[3] for _, turn in later):.0f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--peer", help="path of llama-server (default: measure radish alone)")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--temperature", type=float, default=0.8)
    args = parser.parse_args()
    radish = [args.radish, "serve", "-m", args.model, "-t", args.threads, "-c", "8192"]
    runs = [("radish, exact token replay", radish, {}), ("radish, replay: false", radish, {"replay": False})]
    if args.peer:
        runs.append(("llama-server", [args.peer, "-m", args.model, "-t", args.threads, "-c", "32768",
                                      "-np", str(args.agents), "-fa", "on", "--no-webui"], {"cache_prompt": True}))
    for name, command, extra in runs:
        report(name, *measure(name, command, args, extra))


if __name__ == "__main__":
    main()
