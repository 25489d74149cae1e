"""Who is an admin without keys, and what a web page or a proxy on the same machine cannot do."""
import http.client
import http.server
import json
import socket
import threading

import pytest

from test_http import talk
from test_keys import bearer, chat

ADMINS = [("GET", "/v1/cache"), ("GET", "/v1/cache/tree"), ("DELETE", "/v1/cache"), ("GET", "/stats"),
          ("GET", "/slots"), ("GET", "/cache")]


def statuses(server, headers=None):
    return {server.get(path, headers, method)[0] for method, path in ADMINS}


def test_who_asks_from_this_machine(mock):
    assert statuses(mock) == {200}
    for host in ("localhost:1", "127.9.9.9", "[::1]:80"):
        assert statuses(mock, {"Host": host}) == {200}, host
    assert statuses(mock, {"Host": socket.gethostname()}) == {403}  # allowed, but not loopback
    assert chat(mock, {"Host": socket.gethostname()}) == 200
    for field in ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP",
                  "Via", "CF-Connecting-IP", "x-forwarded-for"):
        assert statuses(mock, {field: "x"}) == {403}, field
        assert chat(mock, {field: "x"}) == 200
    error = json.loads(mock.get("/stats", {"Via": "1.1 x"})[2])["error"]
    assert error["type"] == "permission_error" and "--admin-key" in error["message"]


def test_an_old_nginx_makes_nobody_an_admin(mock):
    for version, expected in ((b"1.1", 200), (b"1.0", 403)):
        request = b"GET /stats HTTP/%s\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % version
        assert talk(mock, request)[0] == expected


class Proxy(http.server.BaseHTTPRequestHandler):
    """A reverse proxy on the same machine, as simple as they come."""

    def forward(self):
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=30)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        headers["X-Forwarded-For"] = self.client_address[0]
        headers["Host"] = "127.0.0.1"  # as nginx sends it by default
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        upstream.close()

    do_GET = do_POST = do_DELETE = forward

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy(mock):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.upstream = mock.port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_reverse_proxy_makes_nobody_an_admin(proxy):
    def ask(method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", proxy, timeout=30)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        status = connection.getresponse().status
        connection.close()
        return status

    assert {ask(method, path) for method, path in ADMINS} == {403}
    assert ask("GET", "/v1/models") == 200
    assert ask("POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "x"}],
                                                           "max_tokens": 2})) == 200


# ---- pages ---------------------------------------------------------------------------------


def test_a_rebound_name_is_refused(mock):
    """The page's own name resolves to 127.0.0.1 now: to the browser, this is its own origin."""
    page = {"Host": "evil.example:80", "Origin": "http://evil.example:80"}
    for method, path in ADMINS + [("GET", "/v1/models"), ("GET", "/health"), ("OPTIONS", "/v1/cache")]:
        status, headers, _ = mock.get(path, page, method)
        assert status == 403 and "Access-Control-Allow-Origin" not in headers, path
    assert chat(mock, page) == chat(mock, {"Host": "evil.example"}) == 403


def test_a_form_or_a_beacon_is_refused(mock):
    """Pages can send these without asking first; they get no answer to read, but must not act."""
    body = '{"messages":[{"role":"user","content":"x"}],"max_tokens":2}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        for more in ({}, {"Origin": "http://localhost:3000"}, {"Sec-Fetch-Site": "cross-site"}):
            assert mock.post(body, {"Content-Type": kind, **more})[0] == 415, (kind, more)
        assert mock.post(body, {"Content-Type": kind, "Origin": "http://evil.example"})[0] == 403


def test_foreign_origins(start):
    server = start("--allowed-origin", "https://chat.example", "--allowed-origin", "http://lan:3000")
    for origin in ("https://chat.example", "http://lan:3000", "http://localhost:9", "https://127.0.0.1",
                   f"http://localhost:{server.port}"):
        status, headers, _ = server.get("/v1/models", {"Origin": origin})
        assert status == 200 and headers["Access-Control-Allow-Origin"] == origin
        assert "x-request-id" in headers["Access-Control-Expose-Headers"]
        status, headers, _ = server.get("/v1/chat/completions", {
            "Origin": origin, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"}, "OPTIONS")
        assert status == 200 and headers["Access-Control-Allow-Origin"] == origin
        assert headers["Access-Control-Allow-Methods"] == "POST, OPTIONS"
        assert headers["Access-Control-Allow-Headers"] == "authorization,content-type"
        assert headers["Vary"] == "Origin"
    for origin in ("https://evil.example", "http://chat.example", "https://chat.example:444", "null",
                   "https://chat.example.evil.example", "http://lan"):
        for method in ("GET", "OPTIONS"):
            status, headers, body = server.get("/v1/models", {"Origin": origin}, method)
            assert status == 403 and "Access-Control-Allow-Origin" not in headers, origin
            assert "--allowed-origin" in json.loads(body)["error"]["message"]
    for args in (("--allowed-origin", "*"), ("--allowed-origin", "*", "--api-key", "k")):
        server = start(*args)
        status, headers, _ = server.get("/health", {"Origin": "https://evil.example"})
        assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://evil.example"
        assert server.get("/health", {"Host": "evil.example"})[0] == (200 if "k" in args else 403)


def test_wrong_origins():
    from test_keys import usage_error
    for origin in ("chat.example", "https://", "https://a/b", "null"):
        assert "is not an origin: write SCHEME://HOST" in usage_error("--allowed-origin", origin)


# ---- roles ---------------------------------------------------------------------------------


def test_roles(start):
    server = start("--api-key", "acme:k1 role=admin", "--api-key", "acme:k2", "--api-key", "b:k3 role=user")
    assert statuses(server, bearer("k1")) == {200}
    for key in ("k2", "k3"):
        assert statuses(server, bearer(key)) == {200, 403}
        assert [server.get(path, bearer(key))[0] for path in ("/v1/cache", "/v1/cache/tree", "/stats")] \
            == [200, 403, 403]


def test_a_tenant_lists_its_own_entries(start):
    server = start("--api-key", "a:k1", "--api-key", "b:k2", "--admin-key", "root")
    for key, text in (("k1", "the secret of a"), ("k2", "the secret of b")):
        server.post({"messages": [{"role": "user", "content": text}], "max_tokens": 2}, bearer(key))

    def entries(key):
        return json.loads(server.get("/v1/cache", bearer(key))[2])

    whole = entries("root")
    assert {entry["tenant"] for entry in whole["data"]} == {"a", "b"} and "requests" in whole
    for key, own in (("k1", "a"), ("k2", "b")):
        listed = entries(key)
        assert {entry["tenant"] for entry in listed["data"]} == {own}
        assert set(listed) == {"object", "model", "data", "next"}  # no counters about others
        assert all(entry["text"] for entry in listed["data"])


def test_every_lookup_compares_every_digest(start):
    server = start("--api-key", "a", "--api-key", "b", "--api-key", "c", "--admin-key", "root")

    def compared():
        return json.loads(server.get("/stats", bearer("root"))[2])["keys_compared"]

    for key in ("a", "b", "c", "root", "wrong", "aa"):
        before = compared()
        server.get("/v1/models", bearer(key))
        assert compared() - before == 4 + 4, key  # and those of the question itself


# ---- paths and methods ---------------------------------------------------------------------


def test_paths_without_v1(mock):
    for path in ("/models", "/models/mock", "/cache", "/cache/tree", "/health"):
        assert mock.get(path)[0] == mock.get("/v1" + path)[0] == 200
        for method, status in (("HEAD", 200), ("OPTIONS", 200), ("PUT", 405)):
            one, other = mock.get(path, method=method), mock.get("/v1" + path, method=method)
            assert one[0] == other[0] == status and one[1]["Allow"] == other[1]["Allow"], (path, method)
    for path in ("/embeddings", "/v1/embeddings", "/responses", "/v1/messages", "/v1/rerank"):
        assert mock.get(path, method="POST", body="{}")[0] == 501
    for path in ("/v1/v1/models", "/v1", "/v1models", "/v1/tokenize"):
        assert mock.get(path)[0] == 404
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 2})
    for path in ("/chat/completions", "/chat/completions/input_tokens", "/cache/warm"):
        assert mock.get(path, {"Content-Type": "application/json"}, "POST", body)[0] == 200
