"""The scheduler's steps: slow masks, streams faster than the loop, and shares of tenants."""
import json
import tempfile
import threading
import time

import keyfile
from measure import MESSAGES, Attack, Row, compare, stream_to_end, streams
from victim import Times, Victim, percentile

# Each byte can be read in many ways, so each mask walks many stacks.
AMBIGUOUS = "root ::= s s s s\ns ::= ([^x] s s s | [^y] s s | [^z] s)?"


def ambiguous(settings, n):
    """Normal is beside as many streams without a grammar: sharing the machine is no attack."""
    with settings.serve() as target:
        return compare(f"b. {n} ambiguous grammar{'s' if n > 1 else ''} (normal: {n} plain)", target,
                       streams(target, n, grammar=AMBIGUOUS), settings.seconds,
                       beside=streams(target, n, ignore_eos=True))


def fast_streams(settings):
    """Streams of an engine without cost: how long /health takes."""
    with settings.serve("--mock-batch-cost-us", "0", "--max-seqs", "64", "-c", "100000",
                        engine="mock") as target:
        def step(i):
            body = {"messages": MESSAGES, "stream": True, "max_tokens": 90000, "ignore_eos": True,
                    "seed": i, "logprobs": True, "top_logprobs": 20}
            stream_to_end(target.port, body, stopping=attack.stopping)

        def health(seconds):
            times = Times()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                try:
                    times.first.append(target.ask("GET", "/health", timeout=60).seconds)
                except OSError as e:
                    times.failed.append(str(e))
                time.sleep(0.02)
            times.gaps = times.first
            return times
        attack = Attack(step, 16)
        normal, before = health(1), target.rss()
        attack.start()
        time.sleep(1)
        under = health(settings.seconds)
        attack.stop()
        return Row("f. 16 fast streams (figures: GET /health)", normal, under, before,
                   target.peak_bytes, f"p99 {1e3 * percentile(under.first, .99):.0f} ms",
                   enough=0.05)


def two_tenants(settings, name, step_of, n, seconds, beside_of=None):
    """The victim is tenant bee; the attack has tenant ant's key."""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write(keyfile.text([keyfile.Key("key-of-ant", "ant"), keyfile.Key("key-of-bee", "bee"),
                                 keyfile.Key("key-of-admin", "admin", "admin")]))
        file.flush()
        ant = [("Authorization", "Bearer key-of-ant")]
        with settings.serve("--api-key-file", file.name) as target:
            target.admin = keyfile.bearer("key-of-admin")
            attack = Attack(None, n)
            attack.step = step_of(target, attack, ant)
            return compare(name, target, attack, seconds, prepare=2,
                           beside=beside_of(target, ant) if beside_of else None,
                           victim={"headers": [("Authorization", "Bearer key-of-bee")]})


def many_choices(settings):
    """Two requests with 128 choices of one tenant; another tenant waits. Normal is beside 15 plain
    streams of that tenant: as many as fill the batch."""
    def step_of(target, attack, headers):
        def step(i):
            body = {"messages": MESSAGES, "stream": True, "n": 128, "max_tokens": 400,
                    "ignore_eos": True, "seed": i}
            stream_to_end(target.port, body, headers=headers, stopping=attack.stopping)
        return step

    def beside_of(target, headers):
        return streams(target, 15, headers=headers, ignore_eos=True)
    return two_tenants(settings, "g. two requests with n: 128 of another tenant (normal: 15 plain)",
                       step_of, 2, max(settings.seconds, 10), beside_of)


def shares(settings):
    """Two tenants, one with 100 times the requests: shared within 10%?"""
    tenants = {"ant": 600, "bee": 6}  # a batch has 8 places
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
        file.write(keyfile.text([keyfile.Key(f"key-of-{t}", t) for t in tenants]))
        file.flush()
        with settings.serve("--api-key-file", file.name, "--max-waiting", "1000", "--max-seqs",
                            "8") as target:
            clients = {t: [Victim(target.port, max_tokens=64,
                                   headers=[("Authorization", f"Bearer key-of-{t}")])
                           for _ in range(n)] for t, n in tenants.items()}
            for c in sum(clients.values(), []):
                c.start()
            time.sleep(3)
            begin = {t: sum(c.times.n_tokens for c in cs) for t, cs in clients.items()}
            time.sleep(max(settings.seconds, 10))
            tokens = {t: sum(c.times.n_tokens for c in cs) - begin[t] for t, cs in clients.items()}
            threads = [threading.Thread(target=c.stop) for c in sum(clients.values(), [])]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            share = tokens["bee"] / (sum(tokens.values()) or 1)
            return (f"600 clients of one tenant, 6 of another, a batch of 8: tokens "
                    f"{json.dumps(tokens)}; the second gets {100 * share:.0f}%, fair is 50%",
                    abs(share - 0.5) < 0.05)


def one(settings):
    """A grammar that is slow to match: the masks of one stream."""
    return ambiguous(settings, 1)


def fifteen(settings):
    """Fifteen streams with such grammars."""
    return ambiguous(settings, 15)


CASES = {"grammar": one, "grammars": fifteen, "fast-streams": fast_streams,
         "choices": many_choices, "shares": shares}
