"""The model's file changes while it is served: cut, overwritten, deleted, replaced."""
import json
import os
import shutil
import tempfile
import time

from measure import table
from target import Target

CHANGE_TO_NOTICE_S = 5
PROMPT = {"messages": [{"role": "user", "content": "Name three colours."}], "temperature": 0,
          "max_tokens": 16, "seed": 1, "cache_prompt": False}


def cut(path):
    os.truncate(path, os.path.getsize(path) // 3)


def cut_to_nothing(path):
    os.truncate(path, 0)


def overwrite(path):
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        while file.tell() < size:
            file.write(os.urandom(min(1 << 20, size - file.tell())))


def zero_tensors(path):
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.seek(size // 4)
        file.write(b"\0" * (size // 2))


def delete(path):
    os.unlink(path)


def replace(path):
    """As a download does it: a new file takes the name. The old one stays whole."""
    with open(path + ".new", "wb") as file:
        file.write(b"GGUF" + bytes(1000))
    os.rename(path + ".new", path)


# Each change, and whether the bytes that are served change with it.
CHANGES = [(cut, True), (cut_to_nothing, True), (overwrite, True), (zero_tensors, True),
           (delete, False), (replace, False)]


def answer(target):
    try:
        found = target.ask("POST", "/v1/chat/completions", PROMPT, timeout=20)
        return found.status, found.body
    except OSError as e:
        return None, str(e).encode()


def text_of(body):
    return json.loads(body)["choices"][0]["message"]["content"]


def ended(target):
    status = target.process.poll()
    return f"killed by signal {-status}" if status and status < 0 else f"exit {status}"


def last_words(target):
    return target.log().strip().splitlines()[-1][13:150]


def change_row(settings, change, is_served, options):
    """(cells, whether it holds): never a crash, and never an answer of what is not the model."""
    with tempfile.TemporaryDirectory(prefix="radish-attack-") as folder:
        path = shutil.copy(settings.model, f"{folder}/model.gguf")
        with Target(settings.radish, "-m", path, "-t", "2", "--engine", "cpu", *options) as target:
            status, body = answer(target)
            right = text_of(body)
            change(path)
            time.sleep(CHANGE_TO_NOTICE_S if is_served else 1)
            status, body = answer(target)
            alive = target.is_alive()
            said = last_words(target)
            same = status == 200 and text_of(body) == right
            good = same if not is_served else \
                same or (status in (503, None) and (alive or target.process.returncode >= 0))
            what = "same text" if same else f"200 {text_of(body)[:30]!r}" if status == 200 else \
                f"{status}" if status else "no answer"
            cells = [change.__name__, what, "runs" if alive else ended(target), said]
            return cells, good


def model_file(settings, options=()):
    """A table of changes: the answer after it, the process, and its last line in the log."""
    rows, good = [["change", "answer", "process", "last line of the log"], ["---"] * 4], True
    for change, is_served in CHANGES:
        cells, holds = change_row(settings, change, is_served, options)
        rows.append(cells)
        good &= holds
    return table(rows), good


CASES = {"model-file": model_file}
