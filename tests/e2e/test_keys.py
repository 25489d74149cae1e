"""Access rights: API keys, admins' keys, and what clients without a key see."""
import json
import os
import re
import socket
import subprocess

import openai
import pytest

from conftest import BUILD

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
KEYS = ("--api-key", "acme:k-acme", "--api-key", "k-alone", "--admin-key", "k-admin")


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def chat(server, headers=None):
    return server.post(CHAT, headers)[0]


@pytest.fixture
def keyed(start):
    return start(*KEYS)


def test_with_keys_any_host_name_is_answered(start, keyed):
    """Host names need no check: a page that rebinds its name to this machine has no key."""
    page = {"Host": "llm.example:8080", "Origin": "http://llm.example:8080"}
    foreign = {"Host": "llm.example:8080", "Origin": "http://evil.example"}
    assert chat(keyed, {**bearer("k-alone"), "Host": "llm.example"}) == 200
    assert chat(keyed, {"Host": "llm.example"}) == 401
    assert chat(keyed, {**bearer("k-alone"), **page}) == 200
    assert chat(keyed, {**bearer("k-alone"), **foreign}) == 403
    open_server = start()
    assert chat(open_server, {"Host": "llm.example"}) == 403
    assert chat(open_server, page) == 403
    assert chat(open_server, {"Host": socket.gethostname()}) == 200
    assert chat(open_server, {"Host": socket.gethostname().split(".")[0] + ".local"}) == 200


def usage_error(*args):
    """The command's message about wrong options; the exit status must be 2."""
    done = subprocess.run([os.path.join(BUILD, "radish-debug"), "serve", "--engine", "mock",
                           "--port", "0", *args], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, (done.returncode, done.stderr)
    return done.stderr


def test_matrix(keyed):
    routes = {  # status for a tenant, an admin, and without a key
        ("POST", "/v1/chat/completions"): (200, 200, 401),
        ("GET", "/v1/models"): (200, 200, 401),
        ("GET", "/v1/models/mock"): (200, 200, 401),
        ("HEAD", "/v1/models"): (200, 200, 401),
        ("GET", "/stats"): (403, 200, 401),
        ("GET", "/health"): (200, 200, 200),
        ("GET", "/nowhere"): (404, 404, 401),
        ("DELETE", "/v1/models"): (405, 405, 401),
    }
    for (method, path), wanted in routes.items():
        body = json.dumps(CHAT) if method == "POST" else None
        got = tuple(keyed.get(path, {"Content-Type": "application/json", **headers}, method,
                              body)[0]
                    for headers in (bearer("k-acme"), bearer("k-admin"), {}))
        assert got == wanted, (method, path)


def test_both_headers_and_every_key(keyed):
    for key in ("k-acme", "k-alone", "k-admin"):
        assert chat(keyed, bearer(key)) == 200
        assert chat(keyed, {"authorization": f"bearer  {key}"}) == 200
        assert chat(keyed, {"x-api-key": key}) == 200
        assert chat(keyed, {"X-Api-Key": key, "Authorization": "Basic YTpi"}) == 200
    for headers in (bearer("k-acm"), bearer("k-acme2"), bearer(""), bearer("acme:k-acme"),
                    {"Authorization": "k-acme"}, {"Authorization": "Basic k-acme"},
                    {"x-api-key": ""}, {"x-api-key": "K-ACME"}, {"api-key": "k-acme"},
                    {**bearer("wrong"), "x-api-key": "k-acme"}):
        assert chat(keyed, headers) == 401, headers


def test_the_error_is_openais(keyed):
    status, headers, body = keyed.post(CHAT)
    error = json.loads(body)["error"]
    assert status == 401 and headers["WWW-Authenticate"] == "Bearer"
    assert error["type"] == "invalid_request_error" and error["code"] == "invalid_api_key"
    assert "Bearer" in error["message"]
    wrong = openai.OpenAI(base_url=keyed.url + "/v1", api_key="k-wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as caught:
        wrong.models.list()
    assert caught.value.code == "invalid_api_key"
    right = openai.OpenAI(base_url=keyed.url + "/v1", api_key="k-acme", max_retries=0)
    assert right.models.list().data[0].id == "mock"


def test_the_body_is_not_awaited(keyed):
    with keyed.connect() as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")
    with keyed.connect() as connection:  # nor asked for
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: application/json\r\nContent-Length: 10\r\n"
                           b"Expect: 100-continue\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_preflight_needs_no_key(keyed):
    status, headers, _ = keyed.get("/v1/chat/completions", {
        "Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization"}, "OPTIONS")
    assert status == 200
    assert headers["Access-Control-Allow-Methods"] == "POST, OPTIONS"
    assert headers["Access-Control-Allow-Headers"] == "authorization"
    assert keyed.get("/v1/chat/completions", {"Origin": "http://evil.example"},
                     "OPTIONS")[0] == 403


def test_keys_are_not_in_the_log(start):
    server = start(*KEYS, "--log-level", "debug")
    for headers in (bearer("k-acme"), bearer("k-admin"), bearer("k-wrong"),
                    {"x-api-key": "k-wrong"}):
        chat(server, headers)
        server.get("/stats", headers)
    assert server.stop() == 0
    assert " 401 " in server.log() and " 200 " in server.log() and "k-" not in server.log()


def test_the_log_tells_who_asked(start):
    server = start(*KEYS)
    chat(server, bearer("k-acme"))
    server.get("/v1/cache", bearer("k-admin"), "DELETE")
    assert "keys: 2, tenants: 2, admin keys: 1\n" in server.log()
    assert re.search(r"POST /v1/chat/completions 200 [\d.]+ ms: tenant acme, prompt \d", server.log())
    assert re.search(r"DELETE /v1/cache 200 [\d.]+ ms: tenant admin, cleared \d+ tokens", server.log())
    log = start("--api-key", "k").log()
    assert "keys: 1, tenants: 1, admin keys: 0; without one nobody can inspect the cache" in log


def test_an_open_server_without_keys_is_warned_of(start):
    assert "warn" not in start().log()


def test_key_file(start, tmp_path):
    file = tmp_path / "keys"
    file.write_text("# ours\nacme:k1\n\nother:k2\nk3\n")
    server = start("--api-key-file", str(file), "--api-key", "acme:k4")
    assert [chat(server, bearer(key)) for key in ("k1", "k2", "k3", "k4", "ours", "#")] == \
        [200, 200, 200, 200, 401, 401]
    assert server.get("/stats", bearer("k1"))[0] == 403  # there is no admin
    file.write_text("acme:k1\nadmin:k-admin\n")
    server = start("--api-key-file", str(file))
    assert [server.get("/v1/cache/tree", bearer(key))[0] for key in ("k1", "k-admin")] == [403, 200]


def test_only_an_admin_key(start):
    server = start("--admin-key", "k-admin")
    assert chat(server) == 401 and chat(server, bearer("k-admin")) == 200
    assert server.get("/stats", bearer("k-admin"))[0] == 200


def test_without_keys_any_is_welcome(mock):
    assert chat(mock) == chat(mock, bearer("sk-any")) == 200
    assert mock.get("/stats")[0] == 200


def test_wrong_options(tmp_path):
    assert "no tenant before the colon" in usage_error("--api-key", ":SECRET")
    assert "the key is empty" in usage_error("--api-key", "acme:")
    assert "a tenant's name" in usage_error("--api-key", "ac/me:SECRET")
    assert "number 2" in usage_error("--api-key", "a:SECRET", "--api-key", "b c:SECRET")
    assert "'a' and 'b'" in usage_error("--api-key", "a:SECRET", "--api-key", "b:SECRET")
    assert "'a' and 'admin'" in usage_error("--api-key", "a:SECRET", "--admin-key", "SECRET")
    assert "two roles" in usage_error("--api-key", "admin:SECRET role=user")
    assert "only for keys with role=admin" in usage_error("--api-key", "SECRET tenant=admin")
    assert "64 hex digits" in usage_error("--api-key", "sha256:SECRET")
    file = tmp_path / "keys"
    file.write_text("a:SECRET\nb:SEC RET\n")
    message = usage_error("--api-key-file", str(file))
    assert f"{file}, line 2" in message
    for args in (("--api-key", "a b:SECRET"), ("--api-key-file", str(file)),
                 ("--admin-key", "SEC RET")):
        assert "SEC" not in usage_error(*args)
    file.write_text("")
    assert "has no keys" in usage_error("--api-key-file", str(file))
