"""HTTPS: real clients, bad certificates, clients that are not TLS, and certificates that change."""
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from datetime import datetime, timedelta, timezone

import httpx2
import openai
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from conftest import BUILD

CHAT = {"model": "mock", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}


class Authority:
    """A certificate authority, and files with what it issued."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca_file)

    def issue(self, name, **options):
        """Writes a certificate for this machine and its key; returns both paths."""
        leaf = self.authority.issue_cert("127.0.0.1", "localhost", **options)
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        key.write_bytes(leaf.private_key_pem.bytes())
        return str(cert), str(key)

    def client(self):
        return ssl.create_default_context(cafile=self.ca_file)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def files(authority):
    return authority.issue("server")


@pytest.fixture
def secure(start, authority, files):
    cert, key = files
    return start("--tls-cert", cert, "--tls-key", key, "--header-timeout", "1",
                 tls=authority.client())


def test_python_speaks_to_it(secure):
    assert "listening on https://127.0.0.1:" in secure.log()
    with secure.connect() as sock:
        assert sock.version() == "TLSv1.3"
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := sock.recv(4096):  # an end without close_notify would raise
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b'{"status":"ok"}')


def test_the_openai_client_speaks_to_it(secure, authority):
    with httpx2.Client(verify=authority.client()) as web:
        client = openai.OpenAI(base_url=secure.url + "/v1", api_key="none", max_retries=0,
                               http_client=web)
        whole = client.chat.completions.create(**CHAT, seed=1)
        pieces = client.chat.completions.create(**CHAT, seed=1, stream=True)
        text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert text == whole.choices[0].message.content


def test_curl_speaks_to_it(secure, authority):
    if not shutil.which("curl"):
        pytest.skip("there is no curl")
    result = subprocess.run(["curl", "-sS", "--cacert", authority.ca_file, secure.url + "/health"],
                            capture_output=True, text=True, timeout=30)
    assert (result.returncode, result.stdout) == (0, '{"status":"ok"}')


def test_an_unknown_authority_is_not_trusted(secure):
    with pytest.raises(ssl.SSLCertVerificationError):
        with socket.create_connection(("127.0.0.1", secure.port)) as sock:
            ssl.create_default_context().wrap_socket(sock, server_hostname="127.0.0.1")
    assert secure.get("/health")[0] == 200


def test_connections_are_kept_and_bodies_are_whole(secure):
    connection = http.client.HTTPSConnection("127.0.0.1", secure.port, context=secure.tls)
    text = "x" * 300_000
    for _ in range(3):
        connection.request("POST", "/tokenize", json.dumps({"content": text}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        assert len(json.loads(answer.read())["tokens"]) == len(text)
    connection.close()


def test_plain_http_is_told_so(secure):
    with socket.create_connection(("127.0.0.1", secure.port), timeout=30) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while piece := sock.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"this server speaks HTTPS: use https://" in answer
    assert b'"status":"ok"' not in answer


def test_a_client_of_http_2_alone_fails_clearly(secure, authority):
    context = authority.client()
    context.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        with socket.create_connection(("127.0.0.1", secure.port)) as sock:
            context.wrap_socket(sock, server_hostname="127.0.0.1")
    context = authority.client()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection(("127.0.0.1", secure.port)) as sock:
        with context.wrap_socket(sock, server_hostname="127.0.0.1") as both:
            assert both.selected_alpn_protocol() == "http/1.1"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_are_refused(secure, authority):
    context = authority.client()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with socket.create_connection(("127.0.0.1", secure.port)) as sock:
            context.wrap_socket(sock, server_hostname="127.0.0.1")
    context = authority.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", secure.port)) as sock:
        with context.wrap_socket(sock, server_hostname="127.0.0.1") as old:
            assert old.version() == "TLSv1.2" and old.cipher()[0].startswith("ECDHE")


def test_handshakes_have_a_deadline(secure):
    began = time.monotonic()
    silent, half = (socket.create_connection(("127.0.0.1", secure.port)) for _ in range(2))
    half.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    garbage = socket.create_connection(("127.0.0.1", secure.port))
    garbage.sendall(b"\x16\x03\x01\x00\x05hello" + bytes(100))
    for sock in (silent, half, garbage):
        sock.settimeout(30)
        try:
            while sock.recv(4096):
                pass
        except ConnectionResetError:
            pass
        sock.close()
    assert 0.9 < time.monotonic() - began < 20
    assert secure.get("/health")[0] == 200


def test_a_hang_up_ends_a_running_request(start, authority, files):
    server = start("--tls-cert", files[0], "--tls-key", files[1], "--mock-batch-cost-us", "5000",
                   tls=authority.client())
    body = json.dumps({**CHAT, "max_tokens": 5000, "stream": True}).encode()
    for unwraps in (True, False):  # with close_notify, and without
        sock = server.connect()
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     b"application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
        if unwraps:
            sock.setblocking(False)
            try:
                sock.unwrap()
            except (ssl.SSLError, OSError):
                pass
            server.wait_idle()
        sock.close()
        server.wait_idle()


# ---- certificates -----------------------------------------------------------------------------

def serve_fails(*args):
    result = subprocess.run([os.path.join(BUILD, "radish"), "serve", "--engine", "mock", "--port",
                             "0", *args], capture_output=True, text=True, timeout=60)
    assert result.returncode in (1, 2)
    return result.stderr


def test_certificates_that_cannot_be_used(authority, files, tmp_path):
    cert, key = files
    other_cert, other_key = authority.issue("other")
    assert "--tls-cert needs --tls-key" in serve_fails("--tls-cert", cert)
    assert "--tls-key needs --tls-cert" in serve_fails("--tls-key", key)
    assert "nofile: No such file" in serve_fails("--tls-cert", "nofile", "--tls-key", key)
    assert "nofile: No such file" in serve_fails("--tls-cert", cert, "--tls-key", "nofile")
    assert "does not belong to" in serve_fails("--tls-cert", cert, "--tls-key", other_key)
    assert "has no certificate that can be used" in serve_fails("--tls-cert", key, "--tls-key", key)
    assert "has no private key that can be used" in serve_fails("--tls-cert", cert, "--tls-key",
                                                                cert)
    private = serialization.load_pem_private_key(open(key, "rb").read(), None)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret")))
    assert "is encrypted" in serve_fails("--tls-cert", cert, "--tls-key", str(encrypted))
    on_unix = subprocess.run([os.path.join(BUILD, "radish"), "serve", "--engine", "mock", "--host",
                              str(tmp_path / "a.sock"), "--tls-cert", cert, "--tls-key", key],
                             capture_output=True, text=True, timeout=60)
    assert on_unix.returncode in (1, 2) and "--tls-cert has no effect on Unix" in on_unix.stderr
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    assert "has no certificate" in serve_fails("--tls-cert", str(empty), "--tls-key", key)


def test_an_expired_certificate_is_a_warning(start, authority):
    cert, key = authority.issue("expired", not_after=datetime.now(timezone.utc)
                                - timedelta(days=1))
    context = authority.client()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    server = start("--tls-cert", cert, "--tls-key", key, tls=context)
    assert "expired on" in server.log() and "clients will reject it" in server.log()
    assert server.get("/health")[0] == 200
