"""The documentation is what the code says."""

import json
import os
import re
import shutil
import subprocess

import pytest


@pytest.mark.parametrize("name", ["api", "models"])
def test_tables_are_up_to_date(name):
    build = os.environ.get("RADISH_BUILD", "build")
    made = subprocess.run([f"{build}/{name}_doc"], capture_output=True, text=True, check=True).stdout
    with open(f"docs/{name}.md", encoding="utf-8") as doc:
        assert doc.read() == made, "run `make docs`"


def readme_blocks(heading, language):
    """The examples in one section of the README."""
    with open("README.md", encoding="utf-8") as readme:
        section = readme.read().split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def test_the_readmes_explanation_is_what_its_commands_print(real):
    if not shutil.which("curl"):
        pytest.skip("there is no curl")
    heading = "Why was this not cached?"
    script = readme_blocks(heading, "sh")[0].replace("http://127.0.0.1:8080", real.url)
    printed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True,
                             timeout=120).stdout
    answers = [json.loads("{" + text) for text in re.split(r"^\{|(?<=\})\{", printed)[1:]]
    assert len(answers) == 2
    told = json.loads("{" + readme_blocks(heading, "json")[0] + "}")
    assert answers[1]["radish"] == told["radish"]
