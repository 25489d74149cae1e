"""The documentation matches the code."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools"))
import api_examples


@pytest.mark.parametrize("name", ["api", "models"])
def test_tables_are_up_to_date(name):
    build = os.environ.get("RADISH_BUILD", "build")
    made = subprocess.run([f"{build}/{name}_doc"], capture_output=True, text=True, check=True).stdout
    with open(f"docs/{name}.md", encoding="utf-8") as doc:
        assert doc.read() == made, "run `make docs`"


def blocks(path, heading, language):
    """The examples in one section of a page."""
    with open(path, encoding="utf-8") as page:
        section = page.read().split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def run_shell(script, server):
    """The output of a page's commands, run against this server."""
    if not shutil.which("curl"):
        pytest.skip("there is no curl")
    return api_examples.ask(script, server.url)


def shape(value):
    """The members of an answer, at every depth. An array has the merged members of its items."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [merged(map(shape, value))] if value else []
    return {type(None): None, bool: "bool", str: "text"}.get(type(value), "number")


def merged(shapes):
    """Merges shapes: array items may omit members that others have."""
    shapes = list(shapes)
    if all(isinstance(s, dict) for s in shapes):
        keys = dict.fromkeys(key for s in shapes for key in s)
        return {key: merged(s[key] for s in shapes if key in s) for key in keys}
    if all(isinstance(s, list) for s in shapes):
        items = [item for s in shapes for item in s]
        return [merged(items)] if items else []
    return next((s for s in shapes if s is not None), None)


def is_same_shape(told, given):
    """Nulls and empty arrays match anything."""
    if told in (None, []) or given in (None, []):
        return True
    if isinstance(told, dict) and isinstance(given, dict):
        return told.keys() == given.keys() and all(is_same_shape(told[k], given[k]) for k in told)
    if isinstance(told, list) and isinstance(given, list):
        return is_same_shape(told[0], given[0])
    return told == given


def events(text):
    """The JSON objects of a stream: server-sent events, or one object per line."""
    lines = [line.removeprefix("data: ") for line in text.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_the_apis_examples_are_what_a_server_answers(real):
    with open("docs/api.md", encoding="utf-8") as page:
        examples = api_examples.EXAMPLE.findall(page.read())
    assert len(examples) > 15
    for script, kind, told in examples:
        given = run_shell(script, real)
        told, given = [events(t) if kind == "text" else json.loads(t) for t in (told, given)]
        assert is_same_shape(shape(told), shape(given)), f"{script}\n{given}\nrun tools/api_examples.py"
        if "error" in told:  # errors are the same each time
            assert told == given, f"{script}\nrun tools/api_examples.py"


def test_the_comparison_of_answers_notices_what_differs():
    assert is_same_shape(shape({"a": [{"b": 1}]}), shape({"a": []}))
    assert not is_same_shape(shape({"a": [{"b": 1}]}), shape({"a": [{"c": 1}]}))
    assert not is_same_shape(shape({"a": 1}), shape({"a": 1, "b": 1}))
    assert not is_same_shape(shape({"a": {"b": 1}}), shape({"a": "b"}))
    assert not is_same_shape(shape({"a": 1}), shape({"a": "1"}))


def test_every_endpoint_has_an_example():
    with open("docs/api.md", encoding="utf-8") as page:
        text = page.read()
    routes = re.findall(r"^\| `((?:GET|POST|DELETE) [^`]+)` \|[^|]*\| (.*) \|$", text, re.MULTILINE)
    assert routes
    for route, gives in routes:
        is_served = not re.match(r"the same|\d{3}:", gives)  # the others are aliases or errors
        assert not is_served or f"### `{route}`\n" in text, \
            f"add {route} to tools/api_examples.md and run tools/api_examples.py"


def test_the_readmes_first_command_answers_and_its_second_streams(real):
    first, second = blocks("README.md", "Ask a question", "sh")
    answer = json.loads(run_shell(first, real))
    assert answer["choices"][0]["message"]["content"]
    stream = run_shell(second, real)
    assert stream.startswith("data: {") and stream.endswith("data: [DONE]\n\n")


def test_the_readmes_figures_are_those_of_the_benchmarks():
    subprocess.run([sys.executable, "tools/pictures.py", "--check"], check=True)
    with open("docs/measured.svg", encoding="utf-8") as picture:
        drawn = re.findall(r">([\d.]+)×<", picture.read().split("1× is")[0])
    with open("README.md", encoding="utf-8") as readme:
        told = re.findall(r"\| ([\d.]+) times \|", readme.read())
    assert len(told) == 8 and set(told) <= set(drawn)


def pages():
    return ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *glob.glob("docs/*.md")]


def anchors(path):
    with open(path, encoding="utf-8") as page:
        titles = re.findall(r"^#+ (.*)$", page.read(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", pages())
def test_links_lead_somewhere(path):
    with open(path, encoding="utf-8") as page:
        links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read(), flags=re.DOTALL))
    for link in links:
        if re.match(r"https?:", link):
            continue
        target, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        assert os.path.exists(target), link
        assert not anchor or anchor in anchors(target), link


def test_the_explanation_is_what_its_commands_print(real):
    page, heading = "docs/cache.md", "Why was this not cached?"
    printed = run_shell(blocks(page, heading, "sh")[0], real)
    answers = [json.loads("{" + text) for text in re.split(r"^\{|(?<=\})\{", printed)[1:]]
    assert len(answers) == 2
    told = json.loads("{" + blocks(page, heading, "json")[0] + "}")
    assert answers[1]["radish"] == told["radish"]
