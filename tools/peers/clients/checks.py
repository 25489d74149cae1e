"""What the client checks share: a registry of checks, questions, tools, schemas and raw HTTP.

Each script of this folder checks one client. run.py starts it as

    SCRIPT URL KEYED_URL MODEL

URL is a radish with the default model. KEYED_URL is one with the mock engine, keys (`secret`, and
`operator` for the operator) and 20 ms per step, for errors, timeouts and aborted answers. A script prints a line
"ok NAME" or "not ok NAME: REASON" for each check, and the end of the traceback to standard error.
"""
import asyncio
import concurrent.futures
import functools
import inspect
import json
import sys
import time
import traceback
import urllib.error
import urllib.request

URL, KEYED_URL, MODEL = (sys.argv[1:] + ["", "", ""])[:3]
KEY, ADMIN_KEY = "secret", "operator"
CAPITAL = "Is the capital of France Paris? Answer in one sentence."
LONG = "Write a long story about a ship, an island and a storm."
UNICODE = "Repeat after me: Grüße aus 東京 🎉👩‍👩‍👧"
SYSTEM = "You are a helpful assistant of a small library. " * 20
CITY = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40},
                   "inhabitants": {"type": "integer", "minimum": 1, "maximum": 40000000},
                   "kind": {"enum": ["town", "city"]}},
    "required": ["name", "inhabitants", "kind"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40},
                   "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
WEATHER_TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city.", "parameters": WEATHER}}
TIME_TOOL = {"type": "function", "function": {
    "name": "get_time", "description": "The time in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 40}},
                   "required": ["city"]}}}
ASK_WEATHER = "What is the weather in Paris, in celsius?"

_checks = []


def check(function):
    """Marks a function of the script as a check. Its name is the check's name."""
    _checks.append(function)
    return function


def each(*cases):
    """Makes a check of each case: the function is called with it."""
    def mark(function):
        for case in cases:
            bound = functools.partial(function, case)
            bound.__name__ = f"{function.__name__}[{case}]"
            _checks.append(bound)
        return function
    return mark


def main():
    """Runs the script's checks in order; exits with 1 if one fails. All share an event loop: a client that
    keeps connections cannot use those of a closed one."""
    failed = 0
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    for function in _checks:
        try:
            result = function()
            if inspect.iscoroutine(result):
                loop.run_until_complete(result)
            print(f"ok {function.__name__}", flush=True)
        except BaseException as error:  # a client may raise anything
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            reason = f"{type(error).__name__}: {error}".replace("\n", " ")
            print(f"not ok {function.__name__}: {reason[:600]}", flush=True)
            traceback.print_exc(limit=-3)
    raise SystemExit(1 if failed else 0)


def raises(types, call, contains=""):
    """Calls, and returns the error, which must have one of these types and contain that text."""
    try:
        result = call()
    except types as error:
        assert contains in str(error), f"no {contains!r} in {error}"
        return error
    raise AssertionError(f"no error but {result!r:.200}")


def messages(text, system=None):
    start = [{"role": "system", "content": system}] if system else []
    return start + [{"role": "user", "content": text}]


def unique_system():
    """A long system prompt that no cache has seen."""
    return f"Note {time.time_ns()}. " + SYSTEM


def check_city(city):
    assert set(city) == {"name", "inhabitants", "kind"}, city
    assert isinstance(city["name"], str) and city["kind"] in ("town", "city"), city
    assert type(city["inhabitants"]) is int and 1 <= city["inhabitants"] <= 40000000, city


def check_weather_arguments(arguments):
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert set(arguments) == {"city", "unit"}, arguments
    assert arguments["city"] and arguments["unit"] in ("celsius", "fahrenheit"), arguments


def together(call, items):
    """Calls with all items at the same time; returns the results in order."""
    with concurrent.futures.ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(call, items))


def http(path, body=None, method=None, headers=None, url=None, timeout=120):
    """(status, headers, bytes) of one request; errors too."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request((url or URL) + path, data, headers or {}, method=method)
    if data is not None and not request.has_header("Content-type"):
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def n_running(url=None):
    headers = {"Authorization": "Bearer " + ADMIN_KEY} if url == KEYED_URL else {}
    counters = json.loads(http("/stats", headers=headers, url=url)[2])
    return counters["running"] + counters["waiting"]


def wait_idle(url=None, timeout_s=20):
    """Waits until the server generates nothing, as after an abort."""
    deadline = time.monotonic() + timeout_s
    while n_running(url):
        assert time.monotonic() < deadline, "the server is still generating"
        time.sleep(0.05)
