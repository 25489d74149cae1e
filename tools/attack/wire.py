"""HTTP as bytes: requests, sockets that stay as rude as an attack needs, and answers, checked."""
import json
import re
import shutil
import socket
import ssl
import struct
import subprocess

ADDRESS = "127.0.0.1"
BIND_ADDRESS_NO_PORT = 24  # from Linux's in.h; Python has no name for it


class Malformed(Exception):
    """An answer that is not HTTP."""


def request(path, body=None, method=None, headers=(), host="localhost"):
    """The bytes of a request; a body that is no text is written as JSON."""
    lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1", f"Host: {host}"]
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else \
            (body if isinstance(body, str) else json.dumps(body)).encode()
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def connect(port, timeout=30, source=None, receive_buffer=None, tls=None):
    """A socket to the server. A small `receive_buffer` makes a reader that does not read slow
    the server down early. `tls`: an ssl.SSLContext."""
    sock = socket.socket()
    sock.settimeout(timeout)
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    if source:
        # Thousands of connections a second would use up the ports of an address otherwise.
        sock.setsockopt(socket.IPPROTO_IP, BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source, 0))
    sock.connect((ADDRESS, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(sock) if tls else sock


def any_certificate():
    """A client's context that trusts every server."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def make_certificate(folder, kind="ec"):
    """Paths of a new certificate and its key, signed by itself, or None: openssl is not installed."""
    cert, key = f"{folder}/cert.pem", f"{folder}/key.pem"
    kinds = {"ec": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["rsa:2048"]}
    if not shutil.which("openssl"):
        return None
    subprocess.run(["openssl", "req", "-x509", "-newkey", *kinds[kind], "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=localhost"], check=True, capture_output=True)
    return cert, key


def reset(sock):
    """Closes with RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d) [^\r\n]*\r\n")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)\r\n")


class Reader:
    """Reads answers from a socket, one after the other, and rejects what is not HTTP."""

    def __init__(self, sock):
        self.sock = sock
        self.data = b""
        self.ended = False

    def _more(self):
        try:
            piece = self.sock.recv(65536)
        except ConnectionResetError:
            piece = b""
        if not piece:
            self.ended = True
            raise EOFError
        self.data += piece

    def _line(self):
        while b"\n" not in self.data:
            self._more()
        line, _, self.data = self.data.partition(b"\n")
        return line + b"\n"

    def _bytes(self, n):
        while len(self.data) < n:
            self._more()
        taken, self.data = self.data[:n], self.data[n:]
        return taken

    def head(self):
        """(status, fields). EOFError: the connection ended before an answer began."""
        line = self._line()
        found = STATUS_LINE.fullmatch(line)
        if not found:
            raise Malformed(f"status line {line[:200]!r}")
        fields = {}
        while (line := self._line()) != b"\r\n":
            field = FIELD.fullmatch(line)
            if not field:
                raise Malformed(f"field {line[:200]!r}")
            name = field.group(1).lower()
            if name in fields and name in (b"content-length", b"transfer-encoding"):
                raise Malformed(f"two fields {name!r}")
            fields[name] = field.group(2).strip()
        return int(found.group(1)), fields

    def _chunks(self):
        body = b""
        while True:
            line = self._line()
            found = re.fullmatch(rb"([0-9a-fA-F]{1,16})\r\n", line)
            if not found:
                raise Malformed(f"chunk size {line[:100]!r}")
            size = int(found.group(1), 16)
            if size == 0:
                if self._line() != b"\r\n":
                    raise Malformed("trailers")
                return body
            body += self._bytes(size)
            if self._bytes(2) != b"\r\n":
                raise Malformed("no line end after a chunk")

    def answer(self, to_head=False):
        """(status, fields, body) of the next final answer."""
        status, fields = self.head()
        while 100 <= status < 200:
            status, fields = self.head()
        if to_head or status in (204, 304):
            return status, fields, b""
        if fields.get(b"transfer-encoding") == b"chunked":
            if b"content-length" in fields:
                raise Malformed("both lengths")
            return status, fields, self._chunks()
        if b"content-length" in fields:
            if not fields[b"content-length"].isdigit():
                raise Malformed(f"length {fields[b'content-length']!r}")
            return status, fields, self._bytes(int(fields[b"content-length"]))
        return status, fields, self._rest()

    def to_end(self):
        """Reads until the connection ends; all of it is in `data`."""
        try:
            while True:
                self._more()
        except EOFError:
            pass

    def _rest(self):
        """A body that ends with the connection (to a client of HTTP/1.0)."""
        self.to_end()
        body, self.data = self.data, b""
        return body


def statuses(port, data, timeout=10, half_close=False, limit=16):
    """Sends bytes; returns the status of each answer until the server closes or `timeout` ends.
    A last item of "open" says that the server waits for more, "closed" that it answered nothing."""
    found = []
    with connect(port, timeout) as sock:
        try:
            sock.sendall(data)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        reader = Reader(sock)
        try:
            while len(found) < limit:
                found.append(reader.answer()[0])
        except TimeoutError:
            found.append("open")
        except EOFError:
            if not found:
                found.append("closed")
        except ConnectionResetError:
            found.append("reset")
    return found
