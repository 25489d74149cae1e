#!/usr/bin/env python3
"""Runs vLLM's and SGLang's tests of their tool call parsers against radish's answer parser.

Every parser class of the peer is replaced by one that asks build/answer_parse, so that the peer's
own tests decide what a right answer is. Prints how many tests pass of those that run, by format,
then each failure. A test that never parses anything, or that looks at a peer's internals, is
skipped; so is a format that radish does not have. Reasons are counted.

  make build/answer_parse
  git clone https://github.com/vllm-project/vllm; git clone https://github.com/sgl-project/sglang
  tools/peers/parser_tests.py vllm --checkout vllm
  tools/peers/parser_tests.py sglang --checkout sglang --verbose

It needs pytest and what the peer's parsers import (pip: torch, transformers, xgrammar, ...). No
model and no tokenizer is downloaded: a tokenizer that cuts text into short words stands in for all.

vLLM's parsers, and tests that offer no tools, let a model call any name. radish calls only what a
request offers, so every word of the text is offered there too.
"""

import argparse
import collections
import html
import importlib
import json
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
import unittest.mock
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

THINK = ["<think>", "</think>"]
# The style of radish that reads what a peer's parser reads, by a word of the parser's name.
STYLES = {
    "apertus": "hermes", "cohere": "hermes", "deepseek": "deepseek", "dots": "minimax",
    "ernie": "hermes", "functiongemma": "gemma", "gemma": "gemma", "gigachat": "hermes",
    "glm": "glm", "gptoss": "harmony", "granite": "hermes", "hermes": "hermes",
    "hunyuana13b": "hermes", "hunyuandetector": "glm", "hyv3": "glm", "internlm": "hermes",
    "jamba": "hermes", "kimik2": "kimi", "kimik3": "kimi-k3", "lfm2": "gemma-code",
    "ling3": "glm", "llama4pythonic": "llama3", "llama3": "llama3", "longcat": "hermes",
    "mimo": "qwen-coder", "minicpm": "qwen-coder", "minimax": "minimax", "mistral": "mistral",
    "olmo3": "gemma-code", "phi4": "hermes", "poolside": "glm", "pythonic": "gemma-code",
    "pythonicdetector": "llama3", "qwen3": "qwen-coder", "qwen25": "hermes",
    "seedoss": "qwen-coder", "step3p5": "qwen-coder", "step3": "deepseek", "trinity": "hermes", "xlam": "json",
}
THINKS = {"cohere": ["<|START_THINKING|>", "<|END_THINKING|>"], "ernie": THINK,
          "hunyuana13b": THINK, "kimik3": ["<|open|>think<|sep|>", "<|close|>think<|sep|>"],
          "trinity": THINK, "xlam": THINK}


class Internals(AttributeError):
    """The test uses a part of the peer's parser that radish has no counterpart of."""


class Unsupported(Exception):
    """radish does not have the format."""


class State:
    """What the test that is running has done."""
    n_parsed = 0
    formats = set()
    skip = None
    any_name = False
    process = None


def word_of(name, table):
    """The longest key of `table` in a parser's name."""
    plain = name.lower().replace("_", "")
    return max((word for word in table if word in plain), key=len, default=None)


def tools_json(tools, text):
    """The tools of a request as OpenAI writes them, and every word of the text if any may be
    called."""
    out = []
    for tool in tools or []:
        tool = tool if isinstance(tool, dict) else tool.model_dump(exclude_none=True)
        if "function" not in tool:
            tool = {"type": "function", "function": tool}
        out.append(tool)
    if out and not State.any_name:
        return out
    given = {tool["function"]["name"] for tool in out}
    words = set(re.findall(r"[^\W\d][\w.-]*", text)) | set(re.findall(r"[^\W\d]\w*", text))
    words |= {html.unescape(name) for name in re.findall(r'tool="([^"]+)"', text)} # Kimi K3
    return out + [{"type": "function", "function": {"name": word}}
                  for word in sorted((words | {"-"}) - given)
                  if not word.startswith(("functions.", "default_api."))]


def parse(name, deltas, tools):
    """The pieces that each delta gives, then those of the answer's end."""
    State.n_parsed += 1
    format_word = word_of(name, STYLES)
    State.formats.add(format_word or name)
    if format_word is None:
        State.skip = "format not supported"
        raise Unsupported(name)
    deltas = [delta.replace("</s>", "") for delta in deltas] # a server stops there
    line = {"style": STYLES[format_word], "deltas": deltas,
            "tools": tools_json(tools, "".join(deltas))}
    if format_word in THINKS:
        line["think"] = THINKS[format_word]
    State.process.stdin.write(json.dumps(line) + "\n")
    State.process.stdin.flush()
    return json.loads(State.process.stdout.readline())["steps"]


def whole(steps):
    """Content and calls of a complete answer, as the server puts them together."""
    content, calls, open_id = "", [], None
    for step in steps:
        for kind, text in step:
            if kind == "content" and not (step is steps[-1] and calls):
                content += text
            elif kind == "id":
                open_id = text
            elif kind == "call":
                calls.append({"id": open_id, "name": text, "arguments": ""})
                open_id = None
            elif kind == "arguments":
                calls[-1]["arguments"] += text
            elif kind == "broken" and step is not steps[-1]:
                calls.pop()
                content += text
    return content, calls


class Stream:
    """The pieces of an answer that comes in deltas. Earlier deltas are parsed again each time, so
    that words can be offered as they come."""

    def __init__(self, name):
        self.name, self.deltas, self.n_calls, self.tools = name, [], 0, None

    def add(self, delta, tools):
        self.deltas.append(delta)
        self.tools = tools
        return self.changes(parse(self.name, self.deltas, tools)[-2])

    def end(self):
        if not self.deltas:
            return "", "", []
        reasoning, content, calls = self.changes(parse(self.name, self.deltas, self.tools)[-1])
        self.deltas = []
        return reasoning, "" if self.n_calls else content, calls

    def changes(self, step):
        """New reasoning and content, and for each call with news: index, id, name, arguments."""
        reasoning, content, calls, open_id = "", "", [], None
        for kind, text in step:
            if kind in ("content", "broken"):
                content += text
            elif kind == "reasoning":
                reasoning += text
            elif kind == "id":
                open_id = text
            elif kind == "call":
                calls.append([self.n_calls, open_id, text, ""])
                self.n_calls += 1
            elif kind == "arguments":
                if not calls:
                    calls.append([self.n_calls - 1, None, None, ""])
                calls[-1][3] += text
        return reasoning, content, calls


class FakeTokenizer:
    """Cuts text into marks, words of up to four letters and single characters."""
    pieces, ids = [], {}
    is_fast, all_special_ids, all_special_tokens, eos_token = True, [], [], "</s>"

    def tokenize(self, text, **_):
        return re.findall(r"<[^<>\s]{1,40}>|\[[A-Z_/]+\]| ?\w{1,4}|\s|.", text, re.S)

    def encode(self, text, *_, **__):
        for piece in self.tokenize(text):
            if piece not in self.ids:
                self.ids[piece] = len(self.pieces)
                self.pieces.append(piece)
        return [self.ids[piece] for piece in self.tokenize(text)]

    def decode(self, ids, **_):
        return "".join(self.pieces[i] for i in ([ids] if isinstance(ids, int) else ids))

    def get_vocab(self):
        return AnyVocab()

    def get_added_vocab(self):
        return {}

    def __len__(self):
        return 1 << 20

    def add_tokens(self, tokens, **_):
        return len(tokens)

    def convert_tokens_to_ids(self, token):
        return AnyVocab().get(token)

    def convert_ids_to_tokens(self, ids, **_):
        return [self.pieces[i] for i in ids]

    def convert_tokens_to_string(self, tokens):
        return "".join(tokens)

    def __call__(self, text, **_):
        return {"input_ids": self.encode(text)}


class AnyVocab(dict):
    """Has every token."""

    def __contains__(self, token):
        return True

    def get(self, token, default=None):
        return FakeTokenizer().encode(token)[0] if token else default

    def __getitem__(self, token):
        return self.get(token)


def missing(self, name):
    if name.startswith("__"):
        raise AttributeError(name)
    State.skip = f"internals: {name}"
    raise Internals(name)


def classes_replace(package, base, make):
    """Puts make(class) in the place of each subclass of `base` in the package's modules. Returns
    them by name."""
    made = {}
    for info in pkgutil.iter_modules(package.__path__):
        try:
            module = importlib.import_module(f"{package.__name__}.{info.name}")
        except ImportError as e:
            print(f"not imported: {info.name}: {str(e).splitlines()[0]}", file=sys.stderr)
            continue
        for name, cls in list(vars(module).items()):
            if isinstance(cls, type) and issubclass(cls, base) and cls is not base:
                made.setdefault(name, make(name))
                setattr(module, name, made[name])
    return made


# ---- vLLM ----

def vllm_install():
    import transformers
    import vllm.tokenizers
    import vllm.tool_parsers
    from vllm.entrypoints.openai.engine import protocol
    from vllm.tool_parsers.abstract_tool_parser import ToolParser

    def message(reasoning, content, calls):
        if not reasoning and not content and not calls:
            return None
        return protocol.DeltaMessage(
            reasoning=reasoning or None, content=content or None, tool_calls=[
            protocol.DeltaToolCall(
                index=index, id=(call_id or f"call_{uuid.uuid4().hex}") if name else None,
                type="function" if name else None,
                function=protocol.DeltaFunctionCall(name=name, arguments=arguments))
            for index, call_id, name, arguments in calls])

    def init(self, tokenizer=None, tools=None, **_):
        self.model_tokenizer, self.tools = tokenizer, tools
        self.vocab = AnyVocab()
        self.stream = Stream(type(self).__name__)

    def extract(self, model_output, request):
        tools = self.tools or getattr(request, "tools", None)
        content, calls = whole(parse(type(self).__name__, [model_output], tools))
        return protocol.ExtractedToolCallInformation(
            tools_called=bool(calls), content=content or None, tool_calls=[
                protocol.ToolCall(id=call["id"] or f"call_{uuid.uuid4().hex}", function=protocol.FunctionCall(
                    name=call["name"], arguments=call["arguments"]))
                for call in calls])

    def extract_streaming(self, previous_text, current_text, delta_text, previous_token_ids,
                          current_token_ids, delta_token_ids, request):
        if not previous_text and current_text == delta_text: # some tests have no other texts
            self.stream = Stream(type(self).__name__)
        tools = self.tools or getattr(request, "tools", None)
        return message(*self.stream.add(delta_text, tools))

    def make(name):
        return type(name, (ToolParser,), {
            "__init__": init, "__getattr__": missing, "extract_tool_calls": extract,
            "extract_tool_calls_streaming": extract_streaming})

    classes_replace(vllm.tool_parsers, ToolParser, make)
    tokenizer = FakeTokenizer()
    transformers.AutoTokenizer.from_pretrained = lambda *_, **__: tokenizer
    vllm.tokenizers.get_tokenizer = lambda *_, **__: tokenizer

    import tests.tool_parsers.utils as helpers
    run = helpers.run_tool_extraction_streaming

    def run_to_end(tool_parser, *args, **kwargs):
        result = run(tool_parser, *args, **kwargs)
        rest = message(*tool_parser.stream.end())
        if rest:
            result.append_delta(rest)
        return result
    helpers.run_tool_extraction_streaming = run_to_end


# ---- SGLang ----

def sglang_install():
    import transformers
    register = transformers.AutoConfig.register
    transformers.AutoConfig.register = lambda *args, **_: register(*args, exist_ok=True)
    import sglang.srt.function_call as package
    from sglang.srt.function_call import core_types, function_call_parser
    from sglang.srt.function_call.base_format_detector import BaseFormatDetector

    def result(_, content, calls):
        return core_types.StreamingParseResult(normal_text=content, calls=[
            core_types.ToolCallItem(tool_index=index, name=name, parameters=arguments)
            for index, _, name, arguments in calls])

    def init(self, *_, **__):
        self.stream = Stream(type(self).__name__)

    def detect(self, text, tools):
        content, calls = whole(parse(type(self).__name__, [text], tools))
        return result("", content, [[i, call["id"], call["name"], call["arguments"]]
                                    for i, call in enumerate(calls)])

    def make(name):
        return type(name, (BaseFormatDetector,), {
            "__init__": init, "__getattr__": missing, "detect_and_parse": detect,
            "parse_streaming_increment": lambda self, text, tools: result(
                *self.stream.add(text, tools)),
            "finish": lambda self, *_: result(*self.stream.end()),
            "has_tool_call": lambda self, text: missing(self, "has_tool_call"),
            "structure_info": lambda self: missing(self, "structure_info")})

    made = classes_replace(package, BaseFormatDetector, make)
    parsers = function_call_parser.FunctionCallParser
    for key, cls in parsers.ToolCallParserEnum.items():
        parsers.ToolCallParserEnum[key] = made[cls.__name__]

    def parse_non_stream(self, text):
        found = self.detector.detect_and_parse(text, self.tools)
        return found.normal_text, found.calls
    parsers.parse_non_stream = parse_non_stream
    sys.modules["sglang.srt.utils.hf_transformers_utils"] = unittest.mock.MagicMock(
        get_tokenizer=lambda *_, **__: FakeTokenizer())
    # This module imports all of the server.
    sys.modules["sglang.test.test_utils"] = unittest.mock.MagicMock(
        CustomTestCase=unittest.TestCase)


PEERS = {
    "vllm": (".", vllm_install, ["tests/tool_parsers", "tests/entrypoints/tool_parsers",
                                 "tests/tool_use/test_kimi_k3_tool_parser.py",
                                 "tests/tool_use/test_muse_glimmer.py",
                                 "tests/tool_use/test_muse_glimmer_parse_delta.py"]),
    "sglang": ("python", sglang_install, ["test/registered/unit/function_call",
                                          "test/registered/function_call"]),
}


# ---- counting ----

class Counter:
    """A pytest plugin that sorts tests into passed, failed and skipped."""

    def __init__(self):
        self.passed, self.failed = collections.Counter(), collections.defaultdict(list)
        self.skipped = collections.Counter()

    @pytest.fixture(scope="module")
    def default_tokenizer(self): # vLLM's conftest.py has it, which imports all of the server
        return FakeTokenizer()

    def pytest_runtest_setup(self, item):
        State.any_name = item.nodeid.startswith("tests/") and "unknown" not in item.name # vLLM
        State.n_parsed, State.skip, State.formats = 0, None, set()

    def pytest_runtest_logreport(self, report):
        if report.when == "setup" and report.outcome == "passed" or report.when == "teardown":
            return
        formats = "+".join(sorted(State.formats)) or "-"
        if State.skip:
            self.skipped[State.skip] += 1
        elif report.outcome == "skipped" and not hasattr(report, "wasxfail"):
            self.skipped["skipped by the peer"] += 1
        elif State.n_parsed == 0:
            self.skipped["fails before it parses" if report.failed else "parses nothing"] += 1
        elif report.skipped:
            self.skipped["fails with the peer's own parser, too"] += 1
        elif report.failed and "XPASS" not in report.longreprtext: # better than the peer
            self.failed[formats].append((report.nodeid, report.longreprtext))
        else:
            self.passed[formats] += 1

    def show(self, verbose):
        for name in sorted(set(self.passed) | set(self.failed)):
            n = self.passed[name]
            print(f"{name:20} {n:5} of {n + len(self.failed[name])}")
        n_passed, n_failed = sum(self.passed.values()), sum(map(len, self.failed.values()))
        print(f"{'all':20} {n_passed:5} of {n_passed + n_failed}, "
              f"{sum(self.skipped.values())} skipped:")
        for reason, n in self.skipped.most_common():
            print(f"{n:7} {reason}")
        for name, tests in sorted(self.failed.items()):
            for test, text in tests:
                print(f"FAILED {name}: {test}")
                if verbose:
                    print(text)


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("peer", choices=PEERS)
    args.add_argument("--checkout", type=pathlib.Path, required=True)
    args.add_argument("--answer-parse", default=ROOT / "build" / "answer_parse")
    args.add_argument("--verbose", action="store_true", help="show how each failure came about")
    args.add_argument("-k", default="", help="only tests whose names match, as pytest has it")
    o = args.parse_args()
    source, install, paths = PEERS[o.peer]
    State.process = subprocess.Popen([o.answer_parse], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)
    os.chdir(o.checkout)
    sys.path[:0] = [str(pathlib.Path.cwd()), str(pathlib.Path.cwd() / source)]
    install()
    counter = Counter()
    pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", "--no-header", "--tb=short", "-k", o.k,
                 "--continue-on-collection-errors", *paths], plugins=[counter])
    counter.show(o.verbose)


if __name__ == "__main__":
    main()
