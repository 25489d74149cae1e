"""Connections for fuzz_server.py: each is made from a seed and a number alone.

A script says what a client does on one connection: bytes that it sends, pauses, and how it leaves.
The requests are those of docs/api.md: its examples, its table of routes and its tables of fields.
A script is one of three kinds:
  - exact: valid requests, cut, delayed and pipelined. Each has one answer, which is known.
  - body: valid HTTP around damaged JSON. There is one answer for each request.
  - wire: damaged HTTP. There are at most as many answers as the bytes can be read as requests.
"""
import base64
import json
import pathlib
import random
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
METHODS = ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "BREW", ""]
USER_KEY, ADMIN_KEY = "key-of-a-user", "key-of-an-admin"
SERVERS = {"open": 8, "keyed": 2, "secure": 2}  # and how often each is chosen


class Request:
    """A valid request to one route."""

    def __init__(self, method, target, body=None):
        self.method, self.target, self.body = method, target, body
        self.name = ""

    def head(self, fields):
        return f"{self.method} {self.target} HTTP/1.1\r\n".encode() + \
            b"".join(name + b": " + value + b"\r\n" for name, value in fields) + b"\r\n"


def examples(text):
    """The requests of the examples in docs/api.md: curl commands."""
    found = []
    for command in re.findall(r"```sh\n(curl .*?)```", text, re.DOTALL):
        target = re.search(r"http://127\.0\.0\.1:8080([^' \n]*)", command).group(1) or "/"
        body = re.search(r"-d '(.*)'", command, re.DOTALL)
        method = re.search(r"-X (\w+)", command)
        found.append(Request(method.group(1) if method else "POST" if body else "GET", target,
                             json.loads(body.group(1)) if body else None))
    return found


def routes(text):
    """(method, path) of the table of routes."""
    return [(method, path.replace("{id}", "mock")) for method, path in
            re.findall(r"^\| `(GET|POST|DELETE) (/[^` ]*)` \|", text, re.MULTILINE)]


def fields(text):
    """Names in the tables of request fields."""
    tables = text[text.index("| `messages` | array"):]
    return sorted(set(re.findall(r"^\| `([a-z_]+)` \|", tables, re.MULTILINE)))


def shortened(body):
    """No answer should take long."""
    if "options" in body:
        return {**body, "options": {**body["options"], "num_predict": 4}}
    limit = "n_predict" if "input_prefix" in body or "n_predict" in body else "max_tokens"
    return {**body, limit: 4} if "messages" in body or "prompt" in body else body


class Corpus:
    """Everything that requests are made of."""

    def __init__(self):
        text = (ROOT / "docs" / "api.md").read_text()
        self.fields = fields(text)
        self.requests = examples(text)
        seen = {(r.method, r.target.partition("?")[0]) for r in self.requests}
        for method, path in routes(text):
            if (method, path) not in seen:
                self.requests.append(Request(method, path, {} if method == "POST" else None))
        for r in self.requests:
            if r.body is not None:
                r.body = shortened(r.body)
        for i, r in enumerate(self.requests):
            r.name = f"{r.method} {r.target} ({i})"


# ---- bodies -----------------------------------------------------------------------------------

STRANGE = [None, True, False, 0, -1, 1, 2**31, 2**32, 2**53 + 1, 2**63, -2**63, 10**30, 0.5, -0.0,
           1e308, "", "a", "\0", "\ud800", "é" * 50, "<|im_end|>", "true", "1", "x" * 5000, [], {}, [[]],
           [{}], {"": ""}, ["a"] * 200, [1] * 200, {"type": "text", "text": "a"}, {"type": "object"},
           {"$ref": "#"}, {"anyOf": []}, "root ::= root", "(a*)*b", "[", "\\", "none", "auto"]
RAW = ["1e999", "-1e-999", "NaN", "Infinity", "-", "00", "1.", "0x10", "+1", "'a'", '"\\x"', '"\\ud800"',
       '"\\udc00\\ud800"', "[" * 600 + "]" * 600, '{"a":' * 300 + "1" + "}" * 300, "1" * 400, "[1,]",
       '{"a":1,"a":2}', "nul", "", '"\n"', "/**/1", '"\\u00', "9" * 30 + "e-20"]
BYTES = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\0", b"\xef\xbb\xbf"]


def places(value, path=()):
    """The path of each member and item."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], path + (key,))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from places(item, path + (i,))


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def damaged_value(rng, body, corpus):
    mark = "\x01RAW\x01"
    for _ in range(rng.choice([1, 1, 2, 4])):
        kind = rng.random()
        path = rng.choice(list(places(body)))
        if kind < 0.4:
            body = replaced(body, path, rng.choice(STRANGE))
        elif kind < 0.8 and isinstance(body, dict):
            body = {**body, rng.choice(corpus.fields): rng.choice(STRANGE)}
        elif kind < 0.9:
            body = replaced(body, path, mark)
        elif path and isinstance(path[-1], str):
            parent = body
            for step in path[:-1]:
                parent = parent[step]
            body = replaced(body, path[:-1], {k: v for k, v in parent.items() if k != path[-1]})
    text = json.dumps(body, ensure_ascii=rng.random() < 0.7)
    text = text.replace(json.dumps(mark, ensure_ascii=True), rng.choice(RAW))
    if rng.random() < 0.1:
        text = text.replace("{", '{"stream": true, "stream": false, ', 1)
    return text.encode(errors="surrogatepass")


def damaged_bytes(rng, data):
    """A few edits of bytes."""
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        at = rng.randrange(len(data) + 1)
        edit = rng.randrange(6)
        if edit == 0:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
        elif edit == 1:
            data = data[:at] + data[at + rng.choice([1, 2, 4, 30]):]
        elif edit == 2:
            data = data[:at] + rng.choice(BYTES + [b"\r", b"\n", b"\r\n", b" ", b":", b"{", b'"']) + data[at:]
        elif edit == 3:
            end = min(len(data), at + rng.choice([1, 8, 64]))
            data = data[:end] + data[at:end] * rng.choice([1, 3]) + data[end:]
        elif edit == 4:
            data = data[:at]
        else:
            data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:] if at < len(data) \
                else data
    return data


def body_of(rng, request, corpus, damage):
    if request.body is None:
        return b""
    if not damage:
        body = dict(request.body)
        if request.target == "/v1/chat/completions" and rng.random() < 0.3:
            body["stream"] = True
        return json.dumps(body).encode()
    data = damaged_value(rng, request.body, corpus)
    return damaged_bytes(rng, data) if rng.random() < 0.3 else data


# ---- heads ------------------------------------------------------------------------------------

FIELDS = [b"Content-Length: 5", b"Content-Length: 5, 5", b"Content-Length: +5", b"Content-Length: 0x5",
          b"Content-Length:", b"Content-Length: 99999999999999999999", b"Content-Length : 5",
          b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: Chunked",
          b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked, chunked",
          b"Transfer-Encoding : chunked", b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: x\r\n chunked",
          b"Host: evil.example", b"Host: localhost", b"Host: a b", b"Host: [::1", b"Origin: null",
          b"Origin: http://evil.example", b"Expect: 100-continue", b"Expect: x", b"Connection: close",
          b"Connection: keep-alive, close", b"Connection: ,,", b"Authorization: Bearer x",
          b"Authorization: Bearer " + USER_KEY.encode(), b"x-api-key: " + ADMIN_KEY.encode(),
          b"Content-Type: text/plain", b"Content-Type: application/json;" + b"x" * 3000,
          b"Content-Encoding: gzip", b"X-Forwarded-For: 127.0.0.1", b"Via: 1.1 a", b" folded", b"\tfolded",
          b"A", b":", b"A: \0", b"A: \x7f", b"A: \xff", b"A: b\rC: d", b"A: b\nC: d", b"A b: c", b"(A): c",
          b"A: " + b"x" * 70000, b"x-request-id: " + b"y" * 200, b"Upgrade: h2c", b"Trailer: a", b"TE: trailers",
          b"Sec-Fetch-Site: cross-site", b"Cookie: " + b"a=b;" * 500]
TARGETS = ["/health%00", "/../stats", "/v1/../stats", "//stats", "/%73tats", "/stats/", "/stats?", "*",
           "http://127.0.0.1/health", "http://evil.example/health", "https://localhost/health", "http:///",
           "/v1/models/%2e%2e", "/v1/models/" + "m" * 7000, "/" + "a" * 9000, "/%", "/%zz", "/\\", "/#a", "/a b",
           "localhost:80", "/v1/cache?limit=-1", "/v1/cache?limit=1&limit=2", "/v1/cache?after=%ff",
           "/v1/cache/tree?depth=99999999999", "/api/blobs/", "/api/blobs/sha256:0"]
VERSIONS = ["HTTP/1.0", "HTTP/1.1", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.1 ", "HTTP/01.1", ""]


def plain_fields(rng, server, request, length):
    """Fields of a valid request. `length`: of the body, or None for chunks."""
    fields = [(b"Host", rng.choice([b"localhost", b"127.0.0.1", b"localhost:8080", b"[::1]"]))]
    if server == "keyed":
        fields.append((b"Authorization", b"Bearer " + ADMIN_KEY.encode()))
    if request.body is not None:
        fields.append((b"Content-Type", b"application/json"))
        fields.append((b"Transfer-Encoding", b"chunked") if length is None else
                      (b"Content-Length", str(length).encode()))
    if rng.random() < 0.3:
        fields += [(b"X-%d" % i, b"v" * rng.randrange(40)) for i in range(rng.randrange(90))]
    rng.shuffle(fields)
    if rng.random() < 0.3:
        fields = [(name.swapcase(), b" " * rng.randrange(4) + value) for name, value in fields]
    return fields


def chunked(rng, body):
    """A valid chunked form of a body."""
    out = b""
    while body:
        n = rng.choice([1, 2, 7, 50, 5000])
        size = b"%x" % len(body[:n])
        extension = rng.choice([b"", b"", b"", b";a", b";a=b", b' ; a="c"', b";" + b"x" * 200])
        out += rng.choice([size, size.upper(), b"000" + size]) + extension + b"\r\n" + body[:n] + b"\r\n"
        body = body[n:]
    trailers = rng.choice([b"", b"", b"A: b\r\n", b"A: b\r\nContent-Length: 5\r\n"])
    return out + rng.choice([b"0", b"000", b"0;x"]) + b"\r\n" + trailers + b"\r\n"


def damaged_chunks(rng, data):
    edits = [(b"\r\n", b"\n"), (b"\r\n", b""), (b"0\r\n", b"-0\r\n"), (b"\r\n", b" \r\n"), (b"\r\n", b"\r\r\n"),
             (b"1", b"ffffffffffffffff"), (b"5", b"0x5"), (b"0\r\n", b"\r\n"), (b"\r\n\r\n", b"\r\n"),
             (b"7", b"8"), (b"2\r\n", b"10000000000000002\r\n"), (b"\r\n", b";\n\r\n"), (b"0", b"0\0")]
    old, new = rng.choice(edits)
    cuts = [m.start() for m in re.finditer(re.escape(old), data)]
    if not cuts:
        return damaged_bytes(rng, data)
    at = rng.choice(cuts)
    return data[:at] + new + data[at + len(old):]


def valid(rng, server, request, corpus, damage=False):
    """Valid HTTP; with `damage` around a damaged body."""
    body = body_of(rng, request, corpus, damage)
    in_chunks = request.body is not None and rng.random() < 0.3
    head = request.head(plain_fields(rng, server, request, None if in_chunks else len(body)))
    return head + (chunked(rng, body) if in_chunks else body)


def damaged(rng, server, request, corpus):
    """HTTP that is damaged in one of many ways."""
    data = valid(rng, server, request, corpus)
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    kind = rng.randrange(9)
    if kind <= 1:
        for _ in range(rng.choice([1, 1, 2, 3])):
            lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(FIELDS))
    elif kind == 2:
        at = rng.randrange(1, len(lines))
        lines[at:at + 1] = rng.choice([[], [lines[at]] * 2, [lines[at]] * 101, [b" " + lines[at]]])
    elif kind == 3:
        method, target, version = lines[0].split(b" ", 2)
        parts = rng.choice([(rng.choice(METHODS).encode(), target, version),
                            (method, rng.choice(TARGETS).encode(), version),
                            (method, target, rng.choice(VERSIONS).encode())])
        lines[0] = rng.choice([b" ", b" ", b"  ", b"\t"]).join(parts)
    elif kind == 4:
        body = damaged_chunks(rng, body)
    elif kind == 5:
        return damaged_bytes(rng, data)
    elif kind == 6:  # bytes behind the body that look like a request
        body += rng.choice([b"GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n", b"x", b"\r\n" * 5, b"\0" * 20])
    elif kind == 7:
        other = valid(rng, server, rng.choice(corpus.requests), corpus)
        return data[:rng.randrange(len(data))] + other[rng.randrange(len(other)):]
    else:
        return rng.choice([b"\n", b"\r\n" * 3, b"\0", b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                           b"\x80\x2e\x01\x03", b" "]) + data
    return rng.choice([b"\r\n"] * 12 + [b"\n", b"\r"]).join(lines) + \
        rng.choice([b"\r\n\r\n"] * 12 + [b"\n\n", b"\r\n", b"\r\n\r"]) + body


# ---- connections ------------------------------------------------------------------------------

def pieces(rng, data):
    """The steps that send the bytes."""
    how = rng.random()
    if how < 0.4:
        return [["send", data]]
    if how < 0.5 and len(data) < 700:
        return [["send", data[i:i + 1]] for i in range(len(data))]
    steps = []
    while data:
        n = rng.choice([1, 3, 40, 500, 5000, len(data)])
        steps.append(["send", data[:n]])
        data = data[n:]
        if rng.random() < 0.1 and len(steps) < 20:
            steps.append(["wait", rng.choice([0.001, 0.01, 0.1])])
    return steps


def leaving(rng, steps, kind):
    """Steps that go before the script's end, and how it ends."""
    how = rng.random()
    if kind != "exact" and how < 0.15:
        return steps[:rng.randrange(len(steps) + 1)], rng.choice(["close", "reset"])
    if 0.15 <= how < 0.25:
        return steps + [["some", rng.randrange(1, 3000)]], rng.choice(["close", "reset"])
    if how < 0.3 and kind != "exact":
        return steps + [["half_close"]], "read"
    if how < 0.35:
        return steps + [["wait", rng.choice([0.1, 0.5, 1.5])]], "read"
    return steps, "read"


def made_of(data):
    """At most how many requests the bytes may be read as: one for each version in a line, and one
    for what cannot be read."""
    return len(re.findall(rb"(?i)http/\d", data)) + 1


def script(seed, n, corpus, secure=True):
    """What the client of connection `n` does."""
    rng = random.Random(f"{seed}.{n}")
    names = [name for name in SERVERS if secure or name != "secure"]
    server = rng.choices(names, [SERVERS[name] for name in names])[0]
    kind = rng.choices(["exact", "body", "wire"], [3, 4, 6])[0]
    count = rng.choice([1, 1, 1, 1, 2, 3, 12])
    chosen = [rng.choice(corpus.requests) for _ in range(count)]
    if kind == "wire":
        bad = rng.randrange(count)
        parts = [damaged(rng, server, r, corpus) if i == bad else valid(rng, server, r, corpus)
                 for i, r in enumerate(chosen)]
    else:
        parts = [valid(rng, server, r, corpus, kind == "body") for r in chosen]
    data = b"".join(parts)
    plain = server == "secure" and rng.random() < 0.2  # a client that does not speak TLS
    if plain and rng.random() < 0.5:
        data = b"\x16\x03" + rng.randbytes(rng.choice([1, 3, 100, 5000]))
    if plain:
        kind = "wire"
    steps, end = leaving(rng, pieces(rng, data), kind)
    return {"plain": plain, "seed": seed, "n": n, "server": server, "kind": kind, "steps": steps, "end": end,
            "count": count if kind != "wire" and end == "read" and ["half_close"] not in steps else None,
            "most": made_of(data), "names": [r.name for r in chosen]}


def to_json(item):
    """Bytes become {"base64": ...}, so that a script can lie in a file."""
    if isinstance(item, bytes):
        return {"base64": base64.b64encode(item).decode()}
    if isinstance(item, dict):
        return {key: to_json(value) for key, value in item.items()}
    return [to_json(i) for i in item] if isinstance(item, list) else item


def from_json(item):
    if isinstance(item, dict):
        return base64.b64decode(item["base64"]) if list(item) == ["base64"] else \
            {key: from_json(value) for key, value in item.items()}
    return [from_json(i) for i in item] if isinstance(item, list) else item
