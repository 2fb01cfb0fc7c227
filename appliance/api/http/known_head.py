"""A head that comes again byte by byte on one connection, with what the parser made of it: a client that asks the same
of the same model sends nothing else. To parse it anew is an eighth of what a small request takes, and more of a large
one, which finds the parser's code cold after a run.
"""

from collections.abc import Mapping
from typing import Any

from appliance.api.http.exchange import AHEAD, SIZE, number

KNOWN_BYTES_MAX = 4096
"""Of a head that is worth being kept with its connection."""
_BEGIN, _END = b"POST /v2/", b"\r\n\r\n"
_OF_A_REQUEST = "appliance."
"""Begins the names of what the box puts into a scope: it is of one request only."""
_NOT_ALIKE = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
"""Headers of requests that need the parser, or more than one look."""


class KnownHead:
    """The bytes of a head, and the parts of a request with it that are the same each time.

    `size`: of the body behind it, and how much of it is `ahead` of its tensors; None where the headers say nothing
    sane.
    """

    __slots__ = ("ahead", "headers", "length", "raw", "scope", "size")

    def __init__(self, raw: bytes, scope: Mapping[str, Any]) -> None:
        self.raw = raw
        self.length = len(raw)
        self.scope = {name: value for name, value in scope.items() if not name.startswith(_OF_A_REQUEST)}
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self.size = number(self.headers.get(SIZE))
        self.ahead = number(self.headers.get(AHEAD, b"0"))

    def begins(self, data: bytes | memoryview) -> bool:
        """Whether `data` begins with this head."""
        return bytes(data[: self.length]) == self.raw

    def is_repeatable(self, size_max: int) -> bool:
        """Whether the next request with it can do without the parser; with a body of at most so many bytes."""
        is_alike = _NOT_ALIKE.isdisjoint(self.headers) and self._is_as_parsed()
        return is_alike and self.size is not None and self.ahead is not None and self.ahead <= self.size <= size_max

    def _is_as_parsed(self) -> bool:
        """Whether the scope is that of these bytes, read in the plainest way: the parser took the head to end where we
        do, and has not gone on to another request behind it.
        """
        query, (request, *lines) = self.scope["query_string"], self.raw[: -len(_END)].split(b"\r\n")
        target: bytes = self.scope["raw_path"] + (b"?" + query if query else b"")
        fields = [(name.lower(), value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]
        return request == b"POST %b HTTP/1.1" % target and fields == self.scope["headers"]


def head_of(data: bytes | memoryview) -> bytes:
    """The head of a call of `/v2` that `data` begins with, to the end of its empty line; else nothing."""
    if bytes(data[: len(_BEGIN)]) != _BEGIN:
        return b""
    start = bytes(data[:KNOWN_BYTES_MAX])
    return start[: start.find(_END) + len(_END)] if _END in start else b""
