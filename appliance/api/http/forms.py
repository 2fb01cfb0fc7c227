"""Multipart forms whose files go straight to the state folder: bounded, on the disk that has the room, never held in
memory.

The framework's own form reader spools to the machine's temporary folder, which on small boxes is memory.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from appliance.api.http.limits import HELD_BODY, HeldBody
from appliance.domain.errors import BadInput, TooLarge
from appliance.modelstore.store.disk import failed_disk_is_typed, full_disk_is_typed, private_file, require_free

BLOCK_BYTES = 2**20
FIELD_BYTES_MAX = 2**20
PARTS_MAX = 32


@dataclass(slots=True)
class FormFile:
    """A file of the form, on disk until the form is left; whoever keeps it moves it away."""

    path: Path
    file_name: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """Text fields and files by their names in the form, of which each is there once."""

    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, FormFile] = field(default_factory=dict)


@asynccontextmanager
async def received_form(
    request: Request, folder: Path, file_bytes_max: int, reserve_bytes: int = 0
) -> AsyncIterator[Form]:
    """Read the request's form; its files lie in `folder` and are gone at the end unless moved away. `reserve_bytes` of
    the disk stay free.

    Raises: BadInput (no form, or a broken one), TooLarge, Busy, StorageFull.
    """
    held: HeldBody | None = request.scope.get(HELD_BODY)
    reader = _Reader(_boundary(request), folder, file_bytes_max, reserve_bytes, held)
    try:
        yield await reader.read(request.stream())
    finally:
        await asyncio.to_thread(reader.discard)


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise BadInput(reason="send a form: Content-Type multipart/form-data with a boundary")
    return boundary


class _Reader:
    """Turns the parser's callbacks into a form. The parser runs on the event loop, writes in a thread."""

    def __init__(
        self, boundary: bytes, folder: Path, file_bytes_max: int, reserve_bytes: int, held: HeldBody | None
    ) -> None:
        """`held` counts the text fields, which stay in memory."""
        self._held = held
        self._folder = folder
        self._reserve_bytes = reserve_bytes
        self._file_bytes_max = file_bytes_max
        self._form = Form()
        self._made: list[Path] = []
        self._names: set[str] = set()
        self._parts = 0
        self._is_whole = False
        self._header = b""
        self._value = b""
        self._disposition = b""
        self._name = ""
        self._file: FormFile | None = None
        self._open: BinaryIO | None = None
        self._text = bytearray()
        self._pending: list[tuple[BinaryIO, bytearray]] = []
        self._finished: list[BinaryIO] = []
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
        )

    async def read(self, stream: AsyncIterator[bytes]) -> Form:
        """Everything, to the end of the stream."""
        try:
            async for block in stream:
                self._parser.write(block)
                if self._finished or sum(len(data) for _, data in self._pending) >= BLOCK_BYTES:
                    await asyncio.to_thread(self._flush)
            self._parser.finalize()
        except FormParserError as error:
            raise BadInput(reason=f"the form is broken: {error}") from error
        if not self._is_whole:
            raise BadInput(reason="the form is cut off: its last boundary is missing")
        await asyncio.to_thread(self._flush)
        return self._form

    def discard(self) -> None:
        """Close what is open and remove what was not moved away."""
        for stream in {self._open, *self._finished, *(stream for stream, _ in self._pending)} - {None}:
            assert stream is not None
            with suppress(OSError):  # what did not fit on the disk is written once more, in vain
                stream.close()
        for path in self._made:
            with suppress(OSError):  # gone, or the disk cannot be written; the next start removes what is left
                path.unlink()

    # -- the parser's callbacks ----------------------------------------------------------------------------------------

    def _on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise BadInput(reason=f"a form has at most {PARTS_MAX} parts")
        self._disposition, self._name, self._file, self._open, self._text = b"", "", None, None, bytearray()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise BadInput(reason="each part of a form needs Content-Disposition with a name")
        self._name = options[b"name"].decode(errors="replace")
        if self._name in self._names:
            raise BadInput(
                reason=f"the form has two parts called {self._name!r}: send one; files of a model that belong together "
                "go as a tar or zip"
            )
        self._names.add(self._name)
        if b"filename" in options:
            self._begin_file(options[b"filename"].decode(errors="replace"))

    def _begin_file(self, file_name: str) -> None:
        path = self._folder / f"form-{secrets.token_hex(12)}"
        self._made.append(path)
        with failed_disk_is_typed():
            self._open = private_file(path)
        self._file = self._form.files[self._name] = FormFile(path, file_name)
        self._pending.append((self._open, bytearray()))

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._file is None:
            self._text += data[start:end]
            if len(self._text) > FIELD_BYTES_MAX:
                raise TooLarge(what=f"the field {self._name!r}", limit_bytes=FIELD_BYTES_MAX)
            if self._held is not None:
                self._held.add(end - start)
            return
        self._file.size_bytes += end - start
        if self._file.size_bytes > self._file_bytes_max:
            raise TooLarge(what=f"the file {self._name!r}", limit_bytes=self._file_bytes_max)
        self._pending[-1][1].extend(memoryview(data)[start:end])

    def _on_part_end(self) -> None:
        if self._open is not None:
            self._finished.append(self._open)
        else:
            self._form.fields[self._name] = self._text.decode(errors="replace")

    def _on_end(self) -> None:
        self._is_whole = True

    # -- in a thread ---------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write what has come and close what is complete; the event loop waits meanwhile. Raises: StorageFull."""
        require_free(self._folder, sum(len(data) for _, data in self._pending), self._reserve_bytes)
        with full_disk_is_typed():
            for stream, data in self._pending:
                stream.write(data)
                data.clear()
            self._pending = [(stream, data) for stream, data in self._pending if stream not in self._finished]
            for stream in self._finished:
                stream.close()
        self._finished.clear()
