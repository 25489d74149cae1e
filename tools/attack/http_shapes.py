"""Requests that parsers disagree about, and the one answer to each.

The expected answers are those that RFC 9112 demands, or the strictest that it allows. A list of statuses
is all that the server sends before it closes; "open" at its end: the connection waits for more.

What others do with some of these: nginx and h11 accept lines that end with LF alone, llhttp did until it
became strict by default; nginx skips control characters in names unless told otherwise; all three read
`chunked` after an unknown coding; many take the first of two lengths that are equal. Each of these has
made smuggling possible between two servers that differ, so radish refuses all of them.
"""
import json

import wire

HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
SECOND = b"GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n"  # what a smuggler wants answered
CLOSE = b"Connection: close\r\n"


def get(target=b"/health", extra=b"", version=b"HTTP/1.1", host=HOST, method=b"GET"):
    return method + b" " + target + b" " + version + b"\r\n" + host + extra + b"\r\n"


def post(body, extra=b"", length=None, target=b"/tokenize"):
    if length is None:
        length = b"Content-Length: %d\r\n" % len(body)
    return b"POST " + target + b" HTTP/1.1\r\n" + HOST + JSON + length + extra + b"\r\n" + body


TEXT = b'{"content": "a"}'
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def chunks(*lines, extra=b""):
    return post(b"".join(lines), extra, CHUNKED)


ONE_CHUNK = b"10\r\n" + TEXT + b"\r\n"

# Where a body ends. What follows must never be answered if that is in doubt.
SMUGGLING = {
    "both lengths": (post(b"0\r\n\r\n" + SECOND, CHUNKED, b"Content-Length: 5\r\n"), [400]),
    "both lengths, the other order": (post(b"0\r\n\r\n" + SECOND, b"Content-Length: 5\r\n", CHUNKED), [400]),
    "two lengths that differ": (post(TEXT + SECOND, b"Content-Length: 1\r\n"), [400]),
    "two lengths that are equal": (post(TEXT + SECOND, b"Content-Length: 16\r\n"), [400]),
    "a list of equal lengths": (post(TEXT + SECOND, length=b"Content-Length: 16, 16\r\n"), [400]),
    "a length with a sign": (post(TEXT + SECOND, length=b"Content-Length: +16\r\n"), [400]),
    "a negative length": (post(TEXT + SECOND, length=b"Content-Length: -16\r\n"), [400]),
    "a length in hexadecimal": (post(TEXT + SECOND, length=b"Content-Length: 0x10\r\n"), [400]),
    "a length with blanks within": (post(TEXT + SECOND, length=b"Content-Length: 1 6\r\n"), [400]),
    "an empty length": (post(TEXT + SECOND, length=b"Content-Length:\r\n"), [400]),
    "a length beyond 64 bits": (post(SECOND, length=b"Content-Length: 18446744073709551632\r\n"), [413]),
    "a length with leading zeros": (post(TEXT, length=b"Content-Length: 0016\r\n") + get(extra=CLOSE), [200, 200]),
    "a space before the length's colon": (post(TEXT + SECOND, length=b"Content-Length : 16\r\n"), [400]),
    "a tab before the coding's colon": (post(b"0\r\n\r\n" + SECOND, length=b"Transfer-Encoding\t: chunked\r\n"), [400]),
    "a vertical tab in the coding": (post(b"0\r\n\r\n" + SECOND, length=b"Transfer-Encoding: \x0bchunked\r\n"), [400]),
    "an underscore in a length's name": (post(get(extra=CLOSE), length=b"Content_Length: 99\r\n"), [400, 200]),
    "an unknown coding": (post(SECOND, length=b"Transfer-Encoding: xchunked\r\n"), [400]),
    "identity": (post(SECOND, length=b"Transfer-Encoding: identity\r\n"), [400]),
    "chunked, then identity": (post(b"0\r\n\r\n" + SECOND, length=b"Transfer-Encoding: chunked, identity\r\n"), [400]),
    "gzip, then chunked": (post(b"0\r\n\r\n" + SECOND, length=b"Transfer-Encoding: gzip, chunked\r\n"), [501]),
    "chunked twice": (chunks(b"0\r\n\r\n" + SECOND, extra=CHUNKED), [400]),
    "a coding over two lines": (post(b"0\r\n\r\n" + SECOND, length=b"Transfer-Encoding:\r\n chunked\r\n"), [400]),
    "chunked in HTTP/1.0": (post(b"0\r\n\r\n" + SECOND, length=CHUNKED).replace(b"HTTP/1.1", b"HTTP/1.0", 1), [400]),
    "a GET with a body": (get(extra=b"Content-Length: %d\r\n" % len(SECOND)) + SECOND + get(extra=CLOSE), [200, 200]),
    "bytes behind the body": (post(TEXT) + b"\0" + SECOND, [200, 400]),
}

CHUNKS = {
    "upper case, zeros, an extension": (chunks(b"010;a=b\r\n", TEXT, b"\r\n000\r\n\r\n") + get(extra=CLOSE), [200, 200]),
    "trailers": (chunks(ONE_CHUNK, b"0\r\nContent-Length: 9\r\nHost: b\r\n\r\n") + get(extra=CLOSE), [200, 200]),
    "no size": (chunks(b"\r\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "a size with a sign": (chunks(b"+10\r\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "0x before the size": (chunks(b"0x10\r\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "a space before the size": (chunks(b" 10\r\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "a space after the size": (chunks(b"10 \r\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "a size beyond 64 bits": (chunks(b"10000000000000010\r\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "a size that is too large": (chunks(b"ffffffffffffffff\r\n" + SECOND), [413]),
    "LF alone after the size": (chunks(b"10\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "LF alone after the data": (chunks(b"10\r\n" + TEXT + b"\n0\r\n\r\n" + SECOND), [400]),
    "LF alone in an extension": (chunks(b"10;a\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "CR alone in an extension": (chunks(b"10;\ra\r\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "an endless extension": (chunks(b"10;" + b"a" * 300 + b"\r\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "more data than the size": (chunks(b"f\r\n" + TEXT + b"\r\n0\r\n\r\n" + SECOND), [400]),
    "two bytes instead of CRLF": (chunks(b"10\r\n" + TEXT + b"ab0\r\n\r\n" + SECOND), [400]),
    "a trailer that is no field": (chunks(ONE_CHUNK, b"0\r\nnonsense\r\n\r\n" + SECOND), [400]),
    "a folded trailer": (chunks(ONE_CHUNK, b"0\r\nA: b\r\n c\r\n\r\n" + SECOND), [400]),
    "trailers without end": (chunks(ONE_CHUNK, b"0\r\n" + b"A: b\r\n" * 20000), [431]),
}

LINES = {
    "LF alone after the request line": (b"GET /health HTTP/1.1\n" + HOST + b"\r\n", [400]),
    "LF alone after a field": (b"GET /health HTTP/1.1\r\nHost: localhost\n\r\n", [400]),
    "LF alone at the end": (b"GET /health HTTP/1.1\r\n" + HOST + b"\n" + SECOND, [400]),
    "CR alone": (get(extra=b"A: b\rContent-Length: 9\r\n"), [400]),
    "a folded field": (get(extra=b"A: b\r\n c\r\n"), [400]),
    "a blank before the first field": (b"GET /health HTTP/1.1\r\n " + HOST + b"\r\n", [400]),
    "NUL in a value": (get(extra=b"A: b\0c\r\n"), [400]),
    "NUL in a name": (get(extra=b"A\0: b\r\n"), [400]),
    "NUL in the target": (get(b"/health\0"), [400]),
    "DEL in a value": (get(extra=b"A: \x7f\r\n"), [400]),
    "a space before a colon": (get(extra=b"A : b\r\n"), [400]),
    "a space within a name": (get(extra=b"A b: c\r\n"), [400]),
    "no name": (get(extra=b": b\r\n"), [400]),
    "no colon": (get(extra=b"nonsense\r\n"), [400]),
    "brackets in a name": (get(extra=b"A[1]: b\r\n"), [400]),
    "bytes above 127 in a value": (get(extra=b"A: \xff\r\n" + CLOSE), [200]),
    "an empty line before the request": (b"\r\n" + get(extra=CLOSE), [200]),
    "many empty lines": (b"\r\n" * 50 + get(extra=CLOSE), [400]),
    "a space before the method": (b" " + get(), [400]),
    "two spaces after the method": (get(b" /health"), [400]),
    "a tab after the method": (b"GET\t/health HTTP/1.1\r\n" + HOST + b"\r\n", [400]),
    "a space after the version": (get(version=b"HTTP/1.1 "), [400]),
    "no version": (b"GET /health\r\n", [400]),
    "a version of three digits": (get(version=b"HTTP/1.10"), [400]),
    "HTTP/2.0": (get(version=b"HTTP/2.0"), [505]),
    "HTTP/1.9 is read as 1.1": (get(extra=CLOSE, version=b"HTTP/1.9"), [200]),
    "http/1.1": (get(version=b"http/1.1"), [400]),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [505]),
    "101 fields": (get(extra=b"A: b\r\n" * 101), [431]),
    "a field without end": (get(extra=b"A: " + b"x" * 200000), [431]),
    "a target without end": (get(b"/" + b"x" * 20000), [414]),
    "a TLS hello in plain text": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [400]),
}

TARGETS = {
    "a lower-case method": (get(method=b"get", extra=CLOSE), [501]),
    "an unknown method": (get(method=b"BREW", extra=CLOSE), [501]),
    "no method": (get(method=b""), [400]),
    "TRACE": (get(method=b"TRACE", extra=CLOSE), [501]),
    "CONNECT": (get(b"localhost:80", method=b"CONNECT", extra=CLOSE), [501]),
    "an absolute target": (get(b"http://localhost/health", CLOSE), [200]),
    "an absolute target of another host": (get(b"http://evil.example/health", CLOSE), [403]),
    "an absolute target with a user": (get(b"http://a@localhost/health"), [400]),
    "an absolute target without a host": (get(b"http:///health"), [400]),
    "another scheme": (get(b"ftp://localhost/health"), [400]),
    "no host": (get(host=b""), [400]),
    "two hosts": (get(extra=HOST), [400]),
    "two hosts that differ": (get(extra=b"hOST: evil.example\r\n"), [400]),
    "a host with a path": (get(host=b"Host: localhost/a\r\n"), [400]),
    "a host with a user": (get(host=b"Host: a@localhost\r\n"), [400]),
    "a list of hosts": (get(host=b"Host: localhost, evil.example\r\n", extra=CLOSE), [400]),
    "an empty host": (get(host=b"Host:\r\n", extra=CLOSE), [403]),
    "two origins": (get(extra=b"Origin: http://localhost\r\nOrigin: http://localhost\r\n"), [400]),
    "two keys": (get(extra=b"x-api-key: a\r\nX-API-Key: b\r\n"), [400]),
    "two content types": (post(TEXT, b"Content-Type: text/plain\r\n"), [400]),
    "two authorizations": (get(extra=b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"), [400]),
    "/health%00": (get(b"/health%00"), [400]),
    "a broken escape": (get(b"/%zz"), [400]),
    "a fragment": (get(b"/health#a"), [400]),
    "a backslash": (get(b"/\\stats"), [400]),
    "a quote": (get(b'/"'), [400]),
    "..": (get(b"/v1/../health", CLOSE), [404]),
    ".. in escapes": (get(b"/v1/%2e%2e/health", CLOSE), [404]),
    "two slashes": (get(b"//health", CLOSE), [404]),
    "* with GET": (get(b"*"), [400]),
    "Expect: miracles": (get(extra=b"Expect: miracles\r\n"), [417]),
    "Upgrade: h2c is ignored": (get(extra=b"Connection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"), [200]),
}

PROXY = [b"X-Forwarded-For: 203.0.113.9", b"Forwarded: for=203.0.113.9", b"Via: 1.1 proxy", b"X-Real-IP: 203.0.113.9",
         b"x-forwarded-host: api.example", b"X-Forwarded-For:"]
ORIGIN = b"Origin: http://evil.example\r\n"
EVIL = b"Host: evil.example\r\n"
PLAIN = b"Content-Type: text/plain\r\n"

# As docs/api.md says: what web pages and the clients of a proxy may not do.
STRANGERS = {
    "a rebound name": (get(host=EVIL, extra=CLOSE), [403]),
    "a rebound name with a port": (get(host=b"Host: evil.example:8080\r\n", extra=CLOSE), [403]),
    "a rebound name asks for a chat": (post(TEXT, CLOSE).replace(HOST, EVIL), [403]),
    "a name that begins like localhost": (get(host=b"Host: localhost.evil.example\r\n", extra=CLOSE), [403]),
    "a foreign page": (get(extra=ORIGIN + CLOSE), [403]),
    "a foreign page asks for a chat": (post(TEXT, ORIGIN + CLOSE), [403]),
    "a foreign page's preflight": (get(b"/tokenize", ORIGIN + CLOSE, method=b"OPTIONS"), [403]),
    "a page from a file": (get(extra=b"Origin: null\r\n" + CLOSE), [403]),
    "text/plain": (post(TEXT, CLOSE).replace(JSON, PLAIN), [415]),
    "a form": (post(TEXT, CLOSE).replace(JSON, b"Content-Type: application/x-www-form-urlencoded\r\n"), [415]),
    "no type": (post(TEXT, CLOSE).replace(JSON, b""), [415]),
    "text/plain from a page to Ollama's routes": (
        post(b'{"model":"a"}', b"Sec-Fetch-Site: cross-site\r\n" + CLOSE, target=b"/api/show").replace(JSON, PLAIN), [415]),
    "text/plain from a program to Ollama's routes": (
        post(b'{"model":"a"}', CLOSE, target=b"/api/show").replace(JSON, PLAIN), [200]),
    "an admin on this machine": (get(b"/stats", CLOSE), [200]),
    "an admin's name for this machine": (get(b"/stats", CLOSE, host=b"Host: 127.0.0.1:1\r\n"), [200]),
    **{f"{field.decode()}: /stats": (get(b"/stats", field + b"\r\n" + CLOSE), [403]) for field in PROXY},
    **{f"{field.decode()}: DELETE /v1/cache":
       (get(b"/v1/cache", field + b"\r\n" + CLOSE, method=b"DELETE"), [403]) for field in PROXY},
    "a proxied chat is served": (post(TEXT, PROXY[0] + b"\r\n" + CLOSE), [200]),
}


def chat(**fields):
    return json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, **fields}).encode()


def raw_chat(more):
    """A chat with more members, as they are."""
    return chat()[:-1] + b", " + more + b"}"


CHATS = b"/v1/chat/completions"
BODIES = {name: (post(body, CLOSE, target=CHATS), want) for name, (body, want) in {
    "an empty body": (b"", [400]),
    "no object": (b"[]", [400]),
    "a byte order mark": (b"\xef\xbb\xbf" + chat(), [400]),
    "bytes behind the value": (chat() + b"x", [400]),
    "bytes that are no UTF-8": (chat(user="X").replace(b"X", b"\xff"), [400]),
    "an overlong NUL": (chat(user="X").replace(b"X", b"\xc0\x80"), [400]),
    "an encoded surrogate": (chat(user="X").replace(b"X", b"\xed\xa0\x80"), [400]),
    "half a surrogate pair": (chat(user="X").replace(b"X", b"\\ud800"), [400]),
    "a cut character": (chat(user="X").replace(b"X", b"\xe2\x82"), [400]),
    "a control character": (chat(user="X").replace(b"X", b"\n"), [400]),
    "a key twice": (raw_chat(b'"max_tokens": 2'), [400]),
    "a key twice, in escapes": (raw_chat(b'"max\\u005ftokens": 2'), [400]),
    "1e999": (raw_chat(b'"temperature": 1e999'), [400]),
    "NaN": (raw_chat(b'"temperature": NaN'), [400]),
    "a number of 100,000 digits": (raw_chat(b'"seed": ' + b"9" * 100000), [400]),
    "2 to the 64th": (raw_chat(b'"seed": 18446744073709551616'), [400]),
    "half a token": (raw_chat(b'"top_k": 1.5'), [400]),
    "0x10": (raw_chat(b'"seed": 0x10'), [400]),
    "01": (raw_chat(b'"seed": 01'), [400]),
    "a comment": (raw_chat(b'/**/"seed": 1'), [400]),
    "a comma too many": (raw_chat(b'"seed": 1,'), [400]),
    "100,000 arrays": (raw_chat(b'"metadata": ' + b"[" * 100000 + b"]" * 100000), [400]),
    "100,000 arrays without end": (b'{"messages": ' + b"[" * 100000, [400]),
    "a million elements": (b'{"messages": [' + b"1," * 999999 + b"1]}", [400]),
    "a million messages": (b'{"messages": [' + b"{}," * 999999 + b"{}]}", [400]),
    "a million members": (b"{" + b",".join(b'"%d":1' % i for i in range(1000000)) + b"}", [400]),
}.items()}

ALL = {"where a body ends": SMUGGLING, "chunks": CHUNKS, "lines and fields": LINES, "methods, targets, hosts": TARGETS,
       "pages and proxies": STRANGERS, "JSON": BODIES}


def answers(port, data):
    """The statuses of all answers until the server closes, and the last body."""
    found, body = [], b""
    with wire.connect(port, 20) as sock:
        try:
            sock.sendall(data)
        except OSError:
            pass  # refused before all was sent
        reader = wire.Reader(sock)
        try:
            while True:
                status, _, body = reader.answer()
                found.append(status)
        except EOFError:
            pass
        except TimeoutError:
            found.append("open")
    return found, body


def is_explained(found, body):
    """An error says what is wrong, in JSON."""
    return not found or found[-1] == 200 or b'"error":' in body
