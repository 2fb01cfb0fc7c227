"""Forms that go to disk."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from appliance.api.http.forms import PARTS_MAX, Form, received_form
from appliance.domain.errors import BadInput, StorageFailed, TooLarge

pytestmark = pytest.mark.anyio


def part(name: str, content: bytes, file_name: str | None = None) -> bytes:
    file = f'; filename="{file_name}"' if file_name is not None else ""
    head = f'--xyz\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def request_of(body: bytes, step: int = 1000, content_type: str = "multipart/form-data; boundary=xyz") -> Request:
    blocks = [body[at : at + step] for at in range(0, len(body), step)]

    async def receive() -> dict[str, Any]:
        block = blocks.pop(0) if blocks else b""
        return {"type": "http.request", "body": block, "more_body": bool(blocks)}

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", content_type.encode())]}
    return Request(scope, receive)


def left(folder: Path) -> list[str]:
    return os.listdir(folder)


async def read(body: bytes, folder: Path, limit: int = 10**8, step: int = 1000) -> dict[str, bytes]:
    async with received_form(request_of(body, step), folder, limit) as form:
        return {name: file.path.read_bytes() for name, file in form.files.items()} | {
            name: value.encode() for name, value in form.fields.items()
        }


@pytest.mark.parametrize("step", [1, 7, 64, 65536])
async def test_form_fields_and_files_cut_anywhere_arrive_whole(tmp_path: Path, step: int) -> None:
    """Contents with dashes and line ends in them included."""
    content = random.Random(step).randbytes(5000) + b"\r\n--xy\r\n--" + b"--xyz"[:4]
    body = part("name", "Käse".encode()) + part("file", content, "m.onnx") + part("empty", b"", "e") + b"--xyz--\r\n"
    assert await read(body, tmp_path, step=step) == {"name": "Käse".encode(), "file": content, "empty": b""}
    assert left(tmp_path) == []


async def test_form_file_that_was_moved_away_is_kept(tmp_path: Path) -> None:
    """The other files go when the form is left."""
    folder, kept = tmp_path / "scratch", tmp_path / "kept"
    folder.mkdir()
    body = part("file", b"1234", "../../m.onnx") + part("other", b"5", "o") + b"--xyz--\r\n"
    async with received_form(request_of(body), folder, 100) as form:
        assert form.files["file"].file_name == "../../m.onnx"
        assert form.files["file"].path.parent == folder
        assert form.files["file"].size_bytes == 4
        form.files["file"].path.rename(kept)
    assert kept.read_bytes() == b"1234"
    assert left(folder) == []


async def test_form_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    """TooLarge names the field; nothing stays on the disk."""
    with pytest.raises(TooLarge) as raised:
        await read(part("file", b"x" * 5001, "m") + b"--xyz--\r\n", tmp_path, limit=5000)
    assert "file" in raised.value.what
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    "body",
    [
        b"no form at all",
        b"--xyz\r\nContent-Disposition: form-data\r\n\r\nx\r\n--xyz--\r\n",
        b"--xyz\r\nBad Header\r\n\r\nx\r\n--xyz--\r\n",
        b"".join(part(str(number), b"x") for number in range(PARTS_MAX + 1)) + b"--xyz--\r\n",
    ],
)
async def test_broken_form_is_refused_and_leaves_no_file(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(BadInput):
        await read(body, tmp_path)
    assert left(tmp_path) == []


@pytest.mark.parametrize("first", [part("file", b"1", "a.onnx"), part("file", b"1")])
async def test_form_with_two_parts_of_one_name_is_refused(first: bytes, tmp_path: Path) -> None:
    """One of the parts would be ignored, and the caller would not know which."""
    with pytest.raises(BadInput, match=r"two parts called 'file'.*tar or zip"):
        await read(first + part("file", b"2", "b.bin") + b"--xyz--\r\n", tmp_path)
    assert left(tmp_path) == []


@pytest.mark.parametrize("content_type", ["application/json", "multipart/form-data", ""])
async def test_body_that_is_no_form_is_refused_with_what_to_send(tmp_path: Path, content_type: str) -> None:
    """Another content type, or a form without a boundary."""
    with pytest.raises(BadInput, match="multipart/form-data"):
        async with received_form(request_of(b"", content_type=content_type), tmp_path, 10):
            pass


async def test_form_text_field_above_the_bound_is_refused(tmp_path: Path) -> None:
    """A field is held in memory, so it may not be endless."""
    with pytest.raises(TooLarge):
        await read(part("name", b"x" * (2**20 + 1)) + b"--xyz--\r\n", tmp_path, step=65536)


async def test_truncated_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        await read(part("file", b"x" * 5000, "m"), tmp_path)
    assert left(tmp_path) == []


def test_form_begins_without_fields_of_another_form() -> None:
    Form().fields["a"] = "b"
    assert Form().fields == {}


async def test_form_file_without_a_usable_folder_is_refused_as_a_failed_disk(tmp_path: Path) -> None:
    """What was not made cannot be removed either, and is no error of its own."""
    folder = tmp_path / "no-folder"
    folder.touch()
    with pytest.raises(StorageFailed):
        await read(part("file", b"1234", "m.onnx") + b"--xyz--\r\n", folder)
