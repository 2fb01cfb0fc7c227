"""Raw connections to a box: what a client library would never send."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

ANSWER_S = 120.0
_READ_BYTES = 1 << 16


class Wire:
    """One TCP connection."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), ANSWER_S)
        self._rest = b""

    def send(self, data: bytes) -> bool:
        """Whether the box still took it."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def answer(self) -> tuple[int, bytes]:
        """(status, body) of the next answer; (0, b"") where the connection was closed instead."""
        data = self._rest
        while b"\r\n\r\n" not in data:
            piece = self._read()
            if not piece:
                return 0, b""
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lengths[0][15:]) if lengths else 0  # "go on" has none
        while len(body) < length:
            piece = self._read()
            assert piece, "the box broke off inside its answer"
            body += piece
        self._rest = body[length:]
        return int(head[9:12]), body[:length]

    def rest(self) -> Iterator[bytes]:
        """Whatever the box still says until it ends the connection."""
        while piece := self._read():
            yield piece

    def is_closed(self) -> bool:
        """Whether the box ends the connection, after whatever it still says."""
        return all(self.rest())

    def ask(self, request: bytes) -> int:
        """The status of the answer; 0 where there is none."""
        self.send(request)
        return self.answer()[0]

    def close(self) -> None:
        self.socket.close()

    def _read(self) -> bytes:
        try:
            return self.socket.recv(_READ_BYTES)
        except ConnectionError:
            return b""


def head(method: str, path: str, key: str | None = None, **headers: object) -> bytes:
    """A head; `content_length=5` becomes `content-length: 5`."""
    lines = [f"{method} {path} HTTP/1.1", "host: box"]
    if key is not None:
        lines.append(f"authorization: Bearer {key}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    """A piece of a body of unknown length."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextmanager
def wires(url: str, count: int) -> Iterator[list[Wire]]:
    """Many connections, closed at the end."""
    made: list[Wire] = []
    try:
        for _ in range(count):
            made.append(Wire(url))
        yield made
    finally:
        for wire in made:
            wire.close()


@contextmanager
def wire(url: str) -> Iterator[Wire]:
    """One connection, closed at the end."""
    with closing(Wire(url)) as made:
        yield made
