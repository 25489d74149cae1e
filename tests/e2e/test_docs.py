"""The documentation is what the code says."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys

import pytest


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
    """What a page's commands print when they ask this server."""
    if not shutil.which("curl"):
        pytest.skip("there is no curl")
    script = script.replace("http://127.0.0.1:8080", server.url).replace("curl ", "curl -sS ")
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True,
                          timeout=120).stdout


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
