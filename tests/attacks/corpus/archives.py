"""Hostile archives: what is uploaded in place of a model, and what has to come of each."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

from tests.attacks.corpus.models import GOOD
from tests.attacks.expected import Expected, Refused, Taken

MIB = 2**20


def zipped(*files: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, body in files:
            archive.writestr(name, body)
    return made.getvalue()


def with_model(*files: tuple[str, bytes]) -> bytes:
    """A zip of a good model and more."""
    return zipped(("model.onnx", GOOD), *files)


def tarred(*entries: tarfile.TarInfo, mode: str = "w", body: bytes = b"evil", model: bool = False) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        if model:
            _add(archive, _entry("model.onnx"), GOOD)
        for entry in entries:
            _add(archive, entry, body)
    return made.getvalue()


def _add(archive: tarfile.TarFile, entry: tarfile.TarInfo, body: bytes) -> None:
    if entry.isreg():
        entry.size = len(body)
    archive.addfile(entry, io.BytesIO(body) if entry.isreg() else None)


def _entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", **more: Any) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    for key, value in more.items():
        setattr(entry, key, value)
    return entry


def _changed(archive: bytes, old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    assert old in archive
    return archive.replace(old, new)


def _lying_size() -> bytes:
    """A zip whose directory says that an entry has four gigabytes, packed to nothing."""
    made = bytearray(zipped(("model.onnx", GOOD)))
    at = made.rindex(b"PK\x01\x02")
    struct.pack_into("<I", made, at + 24, 0xFFFFFFF0)
    return bytes(made)


def _encrypted() -> bytes:
    made = bytearray(zipped(("model.onnx", GOOD)))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        made[made.index(mark) + offset] |= 1
    return bytes(made)


def _wrong_sum() -> bytes:
    made = bytearray(zipped(("model.onnx", GOOD), method=zipfile.ZIP_STORED))
    made[made.index(GOOD)] ^= 0x55
    return bytes(made)


def _pax_bomb() -> bytes:
    return tarred(_entry("model.onnx", pax_headers={"comment": "x" * (8 * MIB)}), body=GOOD)


def _sparse() -> bytes:
    """A sparse file of a terabyte in a few bytes."""
    entry = _entry(
        "model.onnx",
        pax_headers={"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(2**40),
                     "GNU.sparse.numblocks": "1", "GNU.sparse.map": f"{2**40 - 4},4", "GNU.sparse.name": "model.onnx"},
    )  # fmt: skip
    return tarred(entry)


FILES: Mapping[str, tuple[Callable[[], bytes], Expected]] = {
    # bombs
    "zip-bomb": (lambda: zipped(("model.onnx", bytes(300 * MIB))), Refused()),
    "gzip-bomb": (lambda: gzip.compress(bytes(300 * MIB), 9), Refused()),
    "bzip2-bomb": (lambda: bz2.compress(bytes(300 * MIB)), Refused()),
    "xz-bomb": (lambda: lzma.compress(bytes(300 * MIB), preset=1), Refused()),
    "tar-gz-bomb": (lambda: tarred(_entry("model.onnx"), mode="w:gz", body=bytes(300 * MIB)), Refused()),
    "zip-of-zips": (lambda: zipped(("model.zip", zipped(("model.onnx", GOOD)))), Refused()),
    "many-entries": (lambda: zipped(*((f"f{at}", b"") for at in range(20_000))), Refused()),
    "lying-size": (_lying_size, Refused()),
    "pax-bomb": (_pax_bomb, Taken()),
    "sparse-terabyte": (_sparse, Refused()),
    # ways out
    "tar-above": (lambda: tarred(_entry("../../escaped.onnx")), Refused()),
    "tar-absolute": (lambda: tarred(_entry("/tmp/escaped.onnx")), Refused()),
    "tar-symlink": (lambda: tarred(_entry("model.onnx", tarfile.SYMTYPE, "/etc/passwd")), Refused()),
    "tar-symlink-folder": (
        lambda: tarred(_entry("calibration", tarfile.SYMTYPE, "/etc"), _entry("calibration/x.jpg"), model=True),
        Refused(),
    ),
    "tar-hardlink": (lambda: tarred(_entry("model.onnx", tarfile.LNKTYPE, "/etc/passwd")), Refused()),
    "tar-device": (lambda: tarred(_entry("model.onnx", tarfile.CHRTYPE, devmajor=1, devminor=5)), Refused()),
    "tar-block-device": (lambda: tarred(_entry("model.onnx", tarfile.BLKTYPE)), Refused()),
    "tar-pipe": (lambda: tarred(_entry("model.onnx", tarfile.FIFOTYPE)), Refused()),
    "zip-above": (lambda: zipped(("../../escaped.onnx", GOOD)), Refused()),
    "zip-absolute": (lambda: zipped(("/tmp/escaped.onnx", GOOD)), Refused()),
    "zip-backslash": (lambda: zipped(("..\\..\\escaped.onnx", GOOD)), Refused()),
    "zip-drive": (lambda: zipped(("C:\\escaped.onnx", GOOD)), Refused()),
    # damage
    "zip-truncated": (lambda: zipped(("model.onnx", GOOD))[:-30], Refused()),
    "zip-encrypted": (_encrypted, Refused()),
    "zip-wrong-sum": (_wrong_sum, Refused()),
    "zip-empty": (lambda: zipped(), Refused()),
    "tar-truncated": (lambda: tarred(_entry("model.onnx"), body=GOOD * 1000)[:2000], Refused()),
    "tar-gz-truncated": (lambda: tarred(_entry("model.onnx"), mode="w:gz", body=GOOD * 1000)[:-20], Refused()),
    "tar-empty": (lambda: tarred(), Refused()),
    "gzip-of-nothing": (lambda: gzip.compress(b""), Refused()),
    "xz-damaged": (lambda: lzma.compress(GOOD * 100)[:-5] + b"?????", Refused()),
    # what is inside
    "no-model": (lambda: zipped(("readme.txt", b"hello")), Refused()),
    "two-models": (lambda: zipped(("a.onnx", GOOD), ("b.onnx", GOOD)), Refused()),
    "model-is-a-folder": (lambda: zipped(("model.onnx/x", b"")), Refused()),
    "same-name-twice": (
        lambda: _changed(zipped(("model.onnx", GOOD), ("modex.onnx", b"evil")), b"modex.onnx", b"model.onnx"),
        Refused(),
    ),
    "metadata-no-json": (lambda: with_model(("metadata.json", b"{")), Refused("metadata.json")),
    "metadata-list": (lambda: with_model(("metadata.json", b"[]")), Refused("metadata.json")),
    "metadata-deep": (lambda: with_model(("metadata.json", b'{"a":' * 5000)), Refused("metadata.json")),
    "metadata-half-pair": (lambda: with_model(("metadata.json", b'{"labels": ["\\ud800"]}')), Refused("metadata.json")),
    "metadata-unknown": (lambda: with_model(("metadata.json", b'{"rm": "-rf"}')), Refused("unknown key")),
    "metadata-endless": (
        lambda: with_model(("metadata.json", b'{"image": {"mean": 1e999}}')),
        Refused("metadata.json"),
    ),
    "metadata-no-utf8": (lambda: with_model(("metadata.json", b"\xff\xfe")), Refused("metadata.json")),
    "labels-no-utf8": (lambda: with_model(("labels.txt", b"\xff\xfe\x00")), Refused("labels.txt")),
    "truth-above": (
        lambda: with_model(("evaluation/truth.json", b'{"samples": [{"file": "../../../etc/passwd"}]}')),
        Refused("truth.json"),
    ),
    "truth-no-list": (lambda: with_model(("evaluation/truth.json", b'{"samples": 5}')), Refused("truth.json")),
    "calibration-garbage": (lambda: with_model(("calibration/a.jpg", b"\xff\xd8\xff" * 100)), Taken()),
    "name-with-nul": (lambda: zipped(("model.onnx\0.txt", GOOD)), Taken()),
    "name-with-escapes": (lambda: with_model(("\x1b[2J.txt", b"x")), Taken()),
}
