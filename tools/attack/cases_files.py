"""The model's file changes while it is served: cut, overwritten, deleted, replaced."""
import json
import mmap
import os
import shutil
import subprocess
import tempfile
import time

from measure import table
from target import Target

CHANGE_TO_NOTICE_S = 5
LONG_AGO = 1_000_000_000
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


def write_mapped(path):
    """Another process that has the file mapped: watchers of files are not told."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[:] = bytes(len(view))


def damage_packed(path):
    """The file of packed weights, which --pack-cache on writes."""
    overwrite(path + ".radish-packed")


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
           (write_mapped, True), (delete, False), (replace, False)]
PACK_CHANGES = [(damage_packed, True)]
PACK_WRITTEN_S = 30


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
            if change is damage_packed:
                wait_packed(path)
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


def wait_packed(path):
    deadline = time.monotonic() + PACK_WRITTEN_S
    while not os.path.exists(path + ".radish-packed") and time.monotonic() < deadline:
        time.sleep(0.1)


def load_row(settings, change, is_served, options):
    """A change while `radish run` loads the model, which waits for its template meanwhile."""
    with tempfile.TemporaryDirectory(prefix="radish-attack-") as folder:
        path = shutil.copy(settings.model, f"{folder}/model.gguf")
        os.utime(path, (LONG_AGO, LONG_AGO))
        process = subprocess.Popen(
            [settings.radish, "run", "-m", path, "--engine", "cpu", "--chat-template-file", "-",
             "-n", "8", *options, "hello"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        deadline = time.monotonic() + 10
        while path not in maps_of(process) and time.monotonic() < deadline:
            time.sleep(0.01)
        change(path)
        _, said = process.communicate(b"{{ messages[0].content }}", timeout=60)
        status = process.returncode
        good = status == 1 if is_served else status == 0
        last = said.decode(errors="replace").strip().replace(folder, "")[:150]
        return [change.__name__, f"killed by signal {-status}" if status < 0 else f"exit {status}",
                last], good


def maps_of(process):
    with open(f"/proc/{process.pid}/maps") as maps:
        return maps.read()


def model_file_loading(settings, options):
    rows, good = [["change while loading", "process", "message"], ["---"] * 3], True
    for change, is_served in CHANGES:
        cells, holds = load_row(settings, change, is_served, options)
        rows.append(cells)
        good &= holds
    return table(rows), good


def model_file(settings, options=()):
    """A table of changes: the answer after it, the process, and its last line in the log."""
    rows, good = [["change", "answer", "process", "last line of the log"], ["---"] * 4], True
    packs = ("--pack-cache", "on", *options)
    for change, is_served in CHANGES + PACK_CHANGES:
        uses_packs = (change, is_served) in PACK_CHANGES
        cells, holds = change_row(settings, change, is_served, packs if uses_packs else options)
        rows.append(cells)
        good &= holds
    text, holds = model_file_loading(settings, options)
    return table(rows) + "\n" + text, good and holds


CASES = {"model-file": model_file}
