"""Requests that ask for another protocol, as some clients do with each, are answered in this one.

RFC 9110 §7.8: a server that does not switch ignores the field. The parser behind httptools ends with such a head, and
takes the body for the other protocol; so another parser goes on behind it.
"""

from typing import Any

import httptools

FRAMING = (b"content-length", b"transfer-encoding")


class _Callbacks:
    """The callbacks of a parser, but for those of the first head: somebody was told of it already."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_told = True

    def on_message_begin(self) -> None:
        if not self._is_told:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_told:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_told:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._is_told:
            self._protocol.on_headers_complete()
        self._is_told = False

    def on_body(self, body: bytes) -> None:
        self._protocol.on_body(body)

    def on_message_complete(self) -> None:
        self._protocol.on_message_complete()


def go_on_behind_head(protocol: Any) -> None:
    """Give a protocol the parser for what comes behind the head with its `headers`."""
    framing = b"".join(b"%b: %b\r\n" % (name, value) for name, value in protocol.headers if name in FRAMING)
    protocol.parser = httptools.HttpRequestParser(_Callbacks(protocol))
    protocol.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
