"""Bodies that come packed (`Content-Encoding`): unpacked as they come, and never to more than a body may have."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from appliance.domain.errors import BadEncoding, BadInput, TooLarge

HEADER = b"content-encoding"
READ = ("gzip", "deflate")
"""What is read, in the words of the header."""
RATIO_MAX = 100
"""A body may unpack to so many times as much, and to `FREE_BYTES` in any case: a large one of zeros comes to 1000."""
FREE_BYTES = 8 * 2**20
MEMBERS_MAX = 4096
"""Of a gzip body: each costs a step, however little is in it."""
_STEP_BYTES = 256 * 1024
"""Unpacked within a millisecond; what comes after the first step of a body is unpacked in a thread."""
_NAMES = {b"gzip": "gzip", b"x-gzip": "gzip", b"deflate": "deflate"}
_PLAIN = (b"", b"identity")
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


def packing_of(headers: Mapping[bytes, bytes]) -> str | None:
    """How a body is packed; None: it is not. Raises: BadEncoding where that is not read."""
    value = headers.get(HEADER)
    if value is None:
        return None
    word = value.strip(b" \t").lower()
    if word in _PLAIN:
        return None
    if word not in _NAMES:
        said = word[:80].decode("latin-1")
        raise BadEncoding(
            reason=f"a body of Content-Encoding {said!r} is not read; send it as it is, or as gzip or deflate"
        )
    return _NAMES[word]


class PackedBody:
    """What `receive` of ASGI gives, unpacked."""

    def __init__(self, receive: Receive, packing: str) -> None:
        """`packing`: as `packing_of` returns it."""
        self._receive = receive
        self._packing = packing
        self._unpacker: Any = None
        self._members = 0
        self._packed: bytes | bytearray | memoryview = b""
        """Has come, and is not unpacked yet."""
        self._packed_bytes = self._unpacked_bytes = 0
        self._is_all_here = False
        self._is_full = False
        """Whether the last step gave as much as it might: then there is more without more having come."""

    async def receive(self) -> MutableMapping[str, Any]:
        """The next piece; the last one is empty. Raises: BadInput (damaged, or cut off), TooLarge."""
        while True:
            if self._packed or self._is_full:
                piece = await self._unpacked()
                if piece:
                    return {"type": "http.request", "body": piece, "more_body": True}
            elif self._is_all_here:
                if self._unpacker is None or not self._unpacker.eof:
                    raise BadInput(reason=f"the {self._packing} body is cut off")
                return {"type": "http.request", "body": b"", "more_body": False}
            else:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._packed = message.get("body", b"")
                self._packed_bytes += len(self._packed)
                self._is_all_here = not message.get("more_body", False)

    async def _unpacked(self) -> bytes:
        if self._unpacked_bytes < _STEP_BYTES:
            piece = self._step()
        else:
            piece = await asyncio.to_thread(self._step)
        self._unpacked_bytes += len(piece)
        most = max(FREE_BYTES, RATIO_MAX * self._packed_bytes)
        if self._unpacked_bytes > most:
            raise TooLarge(what=f"the unpacked body ({RATIO_MAX} times the packed one)", limit_bytes=most)
        return piece

    def _step(self) -> bytes:
        if self._unpacker is None or self._unpacker.eof:
            self._begin_member()
        try:
            piece: bytes = self._unpacker.decompress(self._packed, _STEP_BYTES)
        except zlib.error:
            raise BadInput(reason=f"the body is no {self._packing}, or damaged") from None
        self._packed = self._unpacker.unconsumed_tail or self._unpacker.unused_data
        self._is_full = len(piece) == _STEP_BYTES and not self._unpacker.eof
        return piece

    def _begin_member(self) -> None:
        """A gzip body may have several, one after the other (RFC 1952, section 2.2); others have one."""
        if self._members and (self._packing != "gzip" or not _GZIP_MAGIC.startswith(bytes(self._packed[:2]))):
            raise BadInput(reason=f"something stands behind the {self._packing} body")
        self._members += 1
        if self._members > MEMBERS_MAX:
            raise BadInput(reason=f"the gzip body has more than {MEMBERS_MAX} members")
        self._unpacker = zlib.decompressobj(self._form())

    def _form(self) -> int:
        if self._packing == "gzip":
            return _GZIP
        first = bytes(self._packed[:2])
        # Some leave out the two bytes of zlib, which RFC 9110 asks for.
        is_zlib = first[0] & 15 == 8 and (len(first) < 2 or int.from_bytes(first, "big") % 31 == 0)
        return _ZLIB if is_zlib else _RAW
