"""Single-line faults in C code, for mutants.py.

It relies on the code being formatted by clang-format: a function's body lies between a line "{"
and a line "}", binary operators have a space on either side, and a statement begins a line.
"""

import dataclasses
import re
from pathlib import Path

TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>/\*.*?\*/|//.*|/\*.*)
      | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<punct>->|\+\+|--|<<=|>>=|<<|>>|[-+*/%&|^=!<>]=|&&|\|\||\.\.\.|.)""",
    re.VERBOSE,
)

BINARY = {
    "<": ["<=", ">="],
    "<=": ["<", ">"],
    ">": [">=", "<="],
    ">=": [">", "<"],
    "==": ["!="],
    "!=": ["=="],
    "&&": ["||"],
    "||": ["&&"],
    "+": ["-"],
    "-": ["+"],
    "*": ["/"],
    "/": ["*"],
    "%": ["/"],
    "<<": [">>"],
    ">>": ["<<"],
    "&": ["|"],
    "|": ["&"],
    "^": ["|"],
    "+=": ["-=", "="],
    "-=": ["+=", "="],
    "*=": ["="],
    "/=": ["="],
    "|=": ["=", "&="],
    "&=": ["=", "|="],
}
TEXTS = {"++": "--", "--": "++", "true": "false", "false": "true"}

# Words that start a line that is not a complete statement, or a declaration.
NO_EXPRESSION = set(
    "if else for while do switch case default return goto break continue struct enum union static "
    "const unsigned signed extern typedef int char bool float double long short void".split()
)
# Calls that only print a line for people, and assertions.
SILENT = re.compile(r"\s*(assert|static_assert|_Static_assert|log_(error|warn|info|debug|write)|http_note)\(")
LOGS = re.compile(r"\b(log_\w+|\w+_log)\(")


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Fault:
    file: str
    line: int  # counted from 1
    function: tuple  # its body's first and last line
    before: str  # the line without its comments
    after: str


def tokens_of(line):
    found = []
    for match in TOKEN.finditer(line):
        if match.lastgroup not in ("space", "comment"):
            found.append(Token(match.lastgroup, match.group(), match.start(), match.end()))
    return found


def blank_comments(text):
    """The same lines, with comments replaced by spaces."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
    return pattern.sub(
        lambda m: re.sub(r"[^\n]", " ", m.group()) if m.group()[0] == "/" else m.group(), text
    )


def depth_change(tokens):
    return sum((t.text in "([{") - (t.text in ")]}") for t in tokens if t.kind == "punct")


def number_faults(text):
    """An integer plus and minus one; any other number doubled."""
    digits = text.rstrip("uUlL")
    try:
        value = int(digits, 0)
    except ValueError:
        return [f"({text} * 2)"]
    suffix = text[len(digits) :]
    return [f"{value + 1}{suffix}"] + ([f"{value - 1}{suffix}"] if value > 0 else [])


def constants_like(name, constants):
    """Other constants of the file whose names begin with the same word."""
    prefix = name.split("_")[0] + "_"
    return [c for c in constants if c != name and c.startswith(prefix)]


def token_faults(line, tokens, constants):
    for before, t in zip([None] + tokens, tokens):
        spaced = line[t.start - 1 : t.start] == " " and line[t.end : t.end + 1] in (" ", "")
        after = []
        if t.kind == "punct" and spaced and before and t.text in BINARY:
            after = BINARY[t.text]
        elif t.kind in ("punct", "name") and t.text in TEXTS:
            after = [TEXTS[t.text]]
        elif t.text == "!":
            after = [""]
        elif t.text == "?":
            after = ["&& 0 ?", "|| 1 ?"]
        elif t.kind == "number":
            after = number_faults(t.text)
        elif t.kind == "name" and t.text in constants:
            after = constants_like(t.text, constants)
        for text in after:
            yield line[: t.start] + text + line[t.end :]


def matching(tokens, at):
    """The index of the bracket that closes the one at `at`; None if it is on another line."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += depth_change([tokens[i]])
        if depth == 0:
            return i
    return None


def condition_faults(line, tokens):
    for i, t in enumerate(tokens[:-1]):
        if t.text in ("if", "while") and tokens[i + 1].text == "(":
            end = matching(tokens, i + 1)
            if end is not None:
                inner = line[tokens[i + 1].end : tokens[end].start]
                yield line[: tokens[i + 1].end] + f"!({inner})" + line[tokens[end].start :]


def is_expression(tokens):
    """True if a statement is an expression: not a declaration, and not starting with a keyword."""
    first, second = tokens[0], tokens[1]
    if first.text in NO_EXPRESSION or first.kind not in ("name", "punct") or first.text == "(":
        return False
    if first.kind == "name" and (second.kind == "name" or second.text == "*"):
        return False
    return first.text in ("*", "++", "--") or first.kind == "name"


def statement_faults(line, tokens, begins):
    if not begins or len(tokens) < 2 or tokens[-1].text != ";" or depth_change(tokens) != 0:
        return
    indent = line[: tokens[0].start]
    if is_expression(tokens) or tokens[0].text in ("break", "continue", "goto"):
        yield indent + ";"
    elif tokens[0].text == "return":
        value = line[tokens[1].start : tokens[-1].start]
        if not value:
            yield indent + ";"
        elif value not in ("0", "NULL", "true", "false"):
            yield f"{indent}return 0;"
            if len(tokens) > 3:
                yield f"{indent}return !({value});"


def body_lines(lines):
    """(line index, first and last line of its function) for the lines of function bodies, except
    those that only write to the log."""
    first, head = None, 0
    for i, line in enumerate(lines):
        if line == "{":
            first = i
        elif line == "}" and first is not None:
            if not LOGS.search(" ".join(lines[head:first])):
                for k in range(first + 1, i):
                    yield k, (first + 1, i + 1)
            first = None
        if first is None and (not line or line[0] in "}#/"):
            head = i + 1


def is_table(line):
    return re.match(r"\s*static const .*=\s*(\{|$)", line)


def faults_of(path):
    """Every fault for each line of a file that has any: lists of Fault."""
    text = Path(path).read_text()
    code = [line.rstrip() for line in blank_comments(text).split("\n")]
    names = set(re.findall(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b", "\n".join(code)))
    constants = sorted(n for n in names if not re.search(rf"\b{n}\(", text))
    ending, skipping, depth = "{", False, 0
    for i, function in body_lines(code):
        line = code[i]
        tokens = tokens_of(line)
        if not tokens or line.lstrip().startswith("#"):
            continue
        begins = depth == 0 and (ending in (";", "{", "}", ")", ":", "else", "do"))
        depth = max(0, depth + depth_change([t for t in tokens if t.text not in ("{", "}")]))
        if not skipping and (SILENT.match(line) or is_table(line)):
            skipping = True
        ending = tokens[-1].text
        if skipping:
            skipping = ending != ";"
            continue
        afters = list(token_faults(line, tokens, constants))
        afters += condition_faults(line, tokens)
        afters += statement_faults(line, tokens, begins)
        afters = sorted({a for a in afters if a != line})
        if afters:
            yield [Fault(path, i + 1, function, line, a) for a in afters]
