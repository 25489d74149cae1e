#!/usr/bin/env python3
"""Makes random single-line faults in src/cache, src/sched and src/serve, and runs the unit tests
against each: a fault that no test detects shows what the tests do not check.

    make mutants [N=300] [SEED=1]
    python3 tools/mutants.py [-n 300] [--seed 1] [-j 2] [--fresh] [PATH ... | FILE:LINE ...]

A sample takes random lines, of all files or of those below PATH, and one random fault for each;
FILE:LINE gives all faults of a line. Every mutant ends as one of these:

    killed      a test failed, crashed or hung, or a sanitizer reported an error, twice in a row
    equivalent  the compiler makes the same code of it, or tests/mutants_equivalent.txt has a reason
    survived    no test noticed; exit 1 if there are any

Mutants that do not compile are replaced by others. First every test case runs alone in a build that
records which lines it reaches; a mutant then runs only the cases that reach its line, fastest first,
and after them those that reach its function. The build is that of build/unit, with sanitizers.

The report is build/mutants/report.txt. Results are kept in build/mutants and reused: a kill while
the sources stay the same, a survivor while the tests do, too. --fresh forgets them all.
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import os
import random
import re
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from mutants_faults import Fault, faults_of

FOLDERS = ["src/cache", "src/sched", "src/serve"]
EQUIVALENT = Path("tests/mutants_equivalent.txt")
TRACE_SOURCE = "tools/mutants_trace.c"
MAX_MEMORY = 4 << 30
MAX_FILE = 1 << 30
# A case hangs if it has used this much processor time and ten times what it needs, or if it uses no
# processor time for a while. On a busy machine, wall time says little.
MAX_CPU_S = 5
MAX_IDLE_S = 12


def digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def digest_files(paths):
    return digest(*(f"{p}\0{p.read_text(errors='replace')}" for p in sorted(paths) if p.is_file()))


def source_files():
    return sorted(str(p) for folder in FOLDERS for p in Path(folder).rglob("*.[ch]"))


class Tool:
    """The commands that make runs for build/unit, and variants of them."""

    def __init__(self, build):
        self.build = build
        self.env = dict(os.environ, CCACHE_DISABLE="1")
        printed = subprocess.run(
            ["make", "-n", "-B", "V=1", f"BUILD={build}", f"{build}/unit"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.compiles = {}
        for line in printed.splitlines():
            found = re.search(r" -c (\S+\.c) -o \S+$", line)
            if found:
                self.compiles[found.group(1)] = shlex.split(line)
            elif line.endswith(f" -o {build}/unit"):
                self.link_command = shlex.split(line)
        self.library = f"{build}/debug/libradish.a"

    def compile(self, source, path, output, flags=()):
        """Compiles the file at `path` as if it were `source`. Returns None or the compiler's
        error."""
        command = [a for a in self.compiles[source] if a not in ("-MMD", "-MP")]
        command[command.index("-c") + 1] = path
        command[command.index("-o") + 1] = output
        command[1:1] = ["-I" + str(Path(output).parent), "-iquote", str(Path(source).parent)]
        done = subprocess.run(
            command + ["-w", *flags], capture_output=True, text=True, env=self.env
        )
        return done.stderr if done.returncode else None

    def link(self, objects, output, flags=()):
        """Links the unit tests with some objects replaced: {source: object}."""
        command = list(self.link_command)
        command[-1] = output
        at = command.index(self.library)
        command[at:at] = [o for source, o in objects.items() if source.startswith("src/")]
        for source, o in objects.items():
            name = f"{self.build}/debug/{source[:-2]}.o"
            if name in command:
                command[command.index(name)] = o
        done = subprocess.run([*command, *flags], capture_output=True, text=True, env=self.env)
        if done.returncode:
            sys.exit(f"mutants: cannot link: {done.stderr}")

    def includers(self, source):
        """The sources, including tests, that depend on a file."""
        if source in self.compiles:
            return [source]
        folder = Path(self.build, "debug")
        named = re.compile(rf"(^|\s){re.escape(source)}(\s|$)", re.MULTILINE)
        return sorted(
            c for c in self.compiles if named.search((folder / c).with_suffix(".d").read_text())
        )


# ---- running test cases ------------------------------------------------------------------------


def session_use(session):
    """Processor seconds and bytes of memory used by the processes of a session."""
    cpu, pages = 0, 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            cpu += sum(map(int, fields[11:15]))
            pages += int(fields[21])
    return cpu / os.sysconf("SC_CLK_TCK"), pages * resource.getpagesize()


class Watch:
    """Detects a process that hangs or takes all memory."""

    def __init__(self, pid):
        self.pid = pid
        self.began(0)
        self.cpu = self.looked_at = 0

    def began(self, needs):
        """A case has started that needs `needs` processor seconds."""
        self.limit = MAX_CPU_S + 10 * needs
        self.cpu_before = None
        self.busy_at = time.monotonic()

    def trouble(self):
        now = time.monotonic()
        if now < self.looked_at + 1:
            return ""
        self.looked_at = now
        cpu, memory = session_use(self.pid)
        if cpu > self.cpu + 0.02:
            self.cpu, self.busy_at = cpu, now
        if self.cpu_before is None:
            self.cpu_before = cpu
        if memory > MAX_MEMORY:
            return "took all memory"
        if cpu - self.cpu_before > self.limit or now - self.busy_at > MAX_IDLE_S:
            return "hung"
        return ""


@dataclasses.dataclass
class Run:
    """The result of cases that ran in one process until one failed."""

    failed: bool
    case: str = ""  # the last one that started
    how: str = ""
    n_begun: int = 0
    cpu_s: float = 0


def run_cases(binary, cases, needs, scratch, env=None):
    """Runs cases in order. `needs` has the processor seconds of each."""
    names = Path(scratch, "names")
    names.write_text("".join(c + "\n" for c in cases))
    with open(Path(scratch, "log"), "wb") as log:
        process = subprocess.Popen(
            [binary, "--listed", str(names)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(os.environ, RADISH_BUILD=str(scratch), **(env or {})),
            start_new_session=True,
        )
    run = Run(failed=True)
    watch = Watch(process.pid)
    pending = b""
    while not run.how:
        readable, _, _ = select.select([process.stdout], [], [], 0.2)
        read = os.read(process.stdout.fileno(), 65536) if readable else b""
        *lines, pending = (pending + read).split(b"\n")
        for line in lines:
            if run.n_begun < len(cases) and line.decode(errors="replace") == cases[run.n_begun]:
                run.case = cases[run.n_begun]
                run.n_begun += 1
                watch.began(needs.get(run.case, 60))
        run.how = "ended" if readable and not read else watch.trouble()
    if run.how == "ended":
        _, status, use = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        run.failed = process.returncode != 0
        run.how = f"exit {process.returncode}"
        run.cpu_s = use.ru_utime + use.ru_stime
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    process.stdout.close()
    return run


# ---- which cases reach which lines -----------------------------------------------------------


class Reach:
    """For each line of the sources, the cases that reach it."""

    def __init__(self, tool, folder, jobs):
        self.tool, self.folder, self.jobs = tool, folder, jobs
        listed = subprocess.run([f"{tool.build}/unit", "--list"], capture_output=True, text=True)
        self.cases = listed.stdout.split()
        self.needs = {}  # case -> processor seconds
        self.order = {}  # case -> sort key
        self.lines = {}  # file -> line -> cases
        self.by_file = {}  # test file -> cases

    def learn(self, source_hash):
        """Runs the cases that are new or whose test file has changed since the last time."""
        store = self.folder / "reach.json"
        known = json.loads(store.read_text()) if store.exists() else {}
        if known.get("sources") != source_hash:
            known = {"sources": source_hash, "cases": {}}
        homes = self.homes()
        wanted = [c for c in self.cases if known["cases"].get(c, {}).get("home") != homes[c]]
        known["cases"] = {c: known["cases"].get(c) for c in self.cases}
        if wanted:
            print(f"mutants: learning which lines {len(wanted)} test cases reach", flush=True)
            for case, seconds, lines in self.trace(wanted):
                known["cases"][case] = {"home": homes[case], "seconds": seconds, "lines": lines}
            store.write_text(json.dumps(known))
        for case, entry in known["cases"].items():
            self.needs[case], waits = entry["seconds"]
            self.order[case] = self.needs[case] + waits / 4
            for file, numbers in entry["lines"].items():
                for number in numbers:
                    self.lines.setdefault(file, {}).setdefault(number, set()).add(case)

    def homes(self):
        """For each case a hash of its file; records the cases of each file."""
        found = {}
        for path in Path("tests/unit").glob("*.c"):
            text = path.read_text()
            self.by_file[str(path)] = set()
            for suite, name in re.findall(r"\bTEST\((\w+), (\w+)\)", text):
                found[f"{suite}.{name}"] = digest(text)
                self.by_file[str(path)].add(f"{suite}.{name}")
            self.by_file[str(path)] &= set(self.cases)
        return {c: found.get(c, "") for c in self.cases}

    def trace(self, cases):
        """Yields a case, its seconds and its lines (file -> numbers), for each."""
        folder = self.folder / "traced"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        flags = ["-Og", "-g", "-fno-sanitize=all", "-fsanitize-coverage=trace-pc"]
        objects = {s: f"{folder}/{digest(s)}.o" for s in source_files() if s in self.tool.compiles}
        hook = f"{folder}/hook.o"
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            said = pool.map(lambda s: self.tool.compile(s, s, objects[s], flags), objects)
            for message in said:
                if message:
                    sys.exit(f"mutants: {message}")
            subprocess.run(["cc", "-O2", "-c", TRACE_SOURCE, "-o", hook], check=True)
            binary = f"{folder}/unit"
            self.tool.link(objects, binary, [hook])
            traced = list(pool.map(lambda c: self.trace_one(binary, folder, c), cases))
        places = self.places(binary, sorted({p for _, offsets in traced for p in offsets}))
        for case, (seconds, offsets) in zip(cases, traced):
            lines = {}
            for file, number in {places[p] for p in offsets if p in places}:
                lines.setdefault(file, []).append(number)
            yield case, seconds, {f: sorted(n) for f, n in lines.items()}
        shutil.rmtree(folder)

    def trace_one(self, binary, folder, case):
        scratch = folder / case
        scratch.mkdir()
        output = scratch / "trace"
        env = {"MUTANTS_TRACE": str(output)}
        began = time.monotonic()
        run = run_cases(binary, [case], {}, scratch, env)
        if run.failed:  # on a busy machine a test of deadlines may fail
            run = run_cases(binary, [case], {}, scratch, env)
        if run.failed:
            sys.exit(f"mutants: {case} fails without a fault ({run.how}); see {scratch}/log")
        seconds = run.cpu_s, time.monotonic() - began
        data = output.read_bytes()
        shutil.rmtree(scratch)
        return seconds, [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]

    @staticmethod
    def places(binary, offsets):
        """The file and line of each code offset."""
        asked = "\n".join(hex(offset - 1) for offset in offsets)  # inside the call, not after it
        answer = subprocess.run(
            ["addr2line", "-e", binary], input=asked, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        found = {}
        for offset, line in zip(offsets, answer):
            match = re.match(r".*?\b(src/\S+):(\d+)", line)
            if match:
                found[offset] = (match.group(1), int(match.group(2)))
        return found

    def of(self, fault):
        """The cases that reach a line, then the others that reach its function, fastest first.

        Only the first lines of blocks are recorded, so the line's block is the last one that starts
        at or before it."""
        first, last = fault.function
        by_line = self.lines.get(fault.file, {})
        blocks = [n for n in range(first, last + 1) if n in by_line]
        starts = [n for n in blocks if n <= fault.line]
        near = by_line[max(starts) if starts else min(blocks)] if blocks else set()
        function = set().union(*(by_line[n] for n in blocks))
        for test in self.tool.includers(fault.file):  # tests' uses of a header are not recorded
            function |= self.by_file.get(test, set())
        return [sorted(cases, key=self.order.get) for cases in (near, function - near)]


# ---- mutants -------------------------------------------------------------------------------------


def equivalents():
    """{(file, line, mutated line): reason} from the file kept by hand, which explains its
    format."""
    found = {}
    text = EQUIVALENT.read_text() if EQUIVALENT.exists() else ""
    for entry in text.split("\n\n"):
        lines = [line for line in entry.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        if len(lines) != 4 or lines[1][:2] != "- " or lines[2][:2] != "+ ":
            sys.exit(f"mutants: {EQUIVALENT}: an entry is not a file, - line, + line, reason: {lines[0]}")
        found[lines[0], lines[1][2:].strip(), lines[2][2:].strip()] = lines[3]
    for file, line, _ in found:
        if not Path(file).exists() or line not in Path(file).read_text():
            print(f"mutants: {EQUIVALENT}: no longer in {file}: {line}")
    return found


@dataclasses.dataclass
class Result:
    fault: Fault
    state: str  # killed, equivalent, survived, broken
    why: str
    seconds: float = 0

    def show(self):
        f = self.fault
        return (
            f"{self.state} {f.file}:{f.line} ({self.why})\n"
            f"  - {f.before.strip()}\n  + {f.after.strip()}\n"
        )


class Hunt:
    def __init__(self, args):
        self.args = args
        self.folder = Path(args.build, "mutants")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tool = Tool(args.build)
        self.reach = Reach(self.tool, self.folder, args.jobs)
        self.reasons = equivalents()
        self.sources = digest_files(Path("src").rglob("*.[ch]"))
        self.tests = digest_files(Path("tests/unit").rglob("*.[ch]"))
        self.store = self.folder / "results.jsonl"
        self.lock = threading.Lock()
        self.plain = {}  # source -> its compiled code without a fault
        self.known = {}

    def load(self):
        if self.args.fresh:
            self.store.unlink(missing_ok=True)
            (self.folder / "reach.json").unlink(missing_ok=True)
        for line in self.store.read_text().splitlines() if self.store.exists() else []:
            entry = json.loads(line)
            if entry["sources"] == self.sources and (
                entry["state"] != "survived" or entry["tests"] == self.tests
            ):
                self.known[entry["key"]] = entry
        kept = "".join(json.dumps(e) + "\n" for e in self.known.values())
        self.store.write_text(kept)

    def save(self, key, result):
        entry = {"key": key, "sources": self.sources, "tests": self.tests, "state": result.state}
        entry |= {"why": result.why, "seconds": result.seconds}
        with self.lock, open(self.store, "a") as out:
            out.write(json.dumps(entry) + "\n")

    def result_of(self, fault):
        reason = self.reasons.get((fault.file, fault.before.strip(), fault.after.strip()))
        if reason:
            return Result(fault, "equivalent", reason)
        key = digest(fault.file, str(fault.line), fault.after)
        if key in self.known:
            entry = self.known[key]
            return Result(fault, entry["state"], entry["why"], entry["seconds"])
        scratch = self.folder / key
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        began = time.monotonic()
        state, why = self.test(fault, scratch)
        shutil.rmtree(scratch)
        result = Result(fault, state, why, round(time.monotonic() - began, 2))
        self.save(key, result)
        return result

    def test(self, fault, scratch):
        objects = self.build(fault, scratch)
        if isinstance(objects, str):
            return objects, "the compiler refuses it" if objects == "broken" else "the same code"
        near, others = self.reach.of(fault)
        if not near and not others:
            return "survived", "no test reaches it"
        binary = str(scratch / "unit")
        self.tool.link(objects, binary, ["-Wl,--strip-debug"])
        needs = self.reach.needs
        for cases in (near, others):
            while cases:
                run = run_cases(binary, cases, needs, scratch)
                if not run.failed:
                    break
                if self.is_real(binary, cases, run, scratch):
                    return "killed", f"{run.case}: {run.how}"
                cases = cases[run.n_begun :]
        return "survived", f"cases that reach it: {len(near)}"

    def is_real(self, binary, cases, run, scratch):
        """A failure is real if it is repeatable, and never happens without the fault."""
        alone, needs = [run.case], self.reach.needs
        original = f"{self.tool.build}/unit"
        for _ in range(1 if run.how == "hung" else 2):
            if run_cases(original, alone, needs, scratch).failed:
                return False
            if not run_cases(binary, alone, needs, scratch).failed:
                begun = cases[: run.n_begun]  # the failure may need the earlier cases
                return (
                    run_cases(binary, begun, needs, scratch).failed
                    and not run_cases(original, begun, needs, scratch).failed
                )
        return True

    def build(self, fault, scratch):
        """The objects of a mutant; "broken"; or "equivalent" if they equal those without the
        fault."""
        lines = Path(fault.file).read_text().split("\n")
        if not lines[fault.line - 1].startswith(fault.before.rstrip(";")[:20]):
            sys.exit(f"mutants: {fault.file} has changed meanwhile")
        lines[fault.line - 1] = fault.after
        changed = scratch / Path(fault.file).relative_to("src")
        changed.parent.mkdir(parents=True)
        changed.write_text(f'#line 1 "{fault.file}"\n' + "\n".join(lines))
        objects, same = {}, True
        for source in self.tool.includers(fault.file):
            path = str(changed) if source == fault.file else source
            output = f"{scratch}/{digest(source)}.o"
            if self.tool.compile(source, path, output, ["-g0"]):
                return "broken"
            objects[source] = output
            same = same and self.optimised(source, path, scratch) == self.original(source)
        return "equivalent" if same else objects

    def optimised(self, source, path, scratch):
        """The code without sanitizers, which would embed the column of every operator."""
        output = f"{scratch}/optimised.o"
        flags = ["-O2", "-g0", "-fno-sanitize=all"]
        said = self.tool.compile(source, path, output, flags)
        return said or Path(output).read_bytes()

    def original(self, source):
        if source not in self.plain:
            scratch = Path(tempfile.mkdtemp(prefix="plain-", dir=self.folder))
            copy = scratch / Path(source).name
            copy.write_text(f'#line 1 "{source}"\n' + Path(source).read_text())
            self.plain[source] = self.optimised(source, str(copy), scratch)
            shutil.rmtree(scratch)
        return self.plain[source]

    # ---- which ones ----

    def candidates(self):
        """Faults in the order in which they are tried."""
        where = self.args.where
        lines = [
            faults
            for file in source_files()
            if not where or any(file == w.split(":")[0] or file.startswith(w + "/") for w in where)
            for faults in faults_of(file)
        ]
        if any(":" in w for w in where):
            for faults in lines:
                if f"{faults[0].file}:{faults[0].line}" in where:
                    yield from faults
            return
        chance = random.Random(self.args.seed)
        chance.shuffle(lines)
        yield from (chance.choice(faults) for faults in lines)

    def run(self):
        """The results of the first n faults that compile."""
        self.load()
        self.reach.learn(self.sources)
        wanted = self.args.n
        results, waiting = [], set()
        source = self.candidates()
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            while True:
                n_more = wanted - len(results) - len(waiting)
                waiting |= {pool.submit(self.result_of, f) for f in itertools.islice(source, n_more)}
                if not waiting:
                    return results
                done, waiting = concurrent.futures.wait(
                    waiting, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for result in (future.result() for future in done):
                    if result.state != "broken":
                        results.append(result)
                        print(f"{len(results)} {result.seconds} s {result.show()}", end="", flush=True)


def report(results, args, seconds):
    lines = [f"seed {args.seed}, {len(results)} mutants\n"]
    for state in ("survived", "equivalent", "killed"):
        lines += [r.show() for r in results if r.state == state]
    counts = {s: sum(r.state == s for r in results) for s in ("killed", "equivalent", "survived")}
    total = ", ".join(f"{n} {state}" for state, n in counts.items())
    lines.append(f"{total}; seed {args.seed}, {seconds:.0f} s")
    Path(args.build, "mutants", "report.txt").write_text("\n".join(lines) + "\n")
    print(lines[-1])
    return counts["survived"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("-n", type=int, default=300, help="number of mutants")
    parser.add_argument("--seed", type=int, default=1, help="random seed")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--build", default="build", help="the folder that make builds in")
    parser.add_argument("--fresh", action="store_true", help="discard earlier results")
    parser.add_argument("where", nargs="*", metavar="PATH", help="files or folders to mutate; FILE:LINE for one line")
    args = parser.parse_args()
    began = time.monotonic()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # for processes started from here
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))
    results = Hunt(args).run()
    sys.exit(1 if report(results, args, time.monotonic() - began) else 0)


if __name__ == "__main__":
    main()
