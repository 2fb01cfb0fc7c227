"""Opens an upload: a bare ONNX file, a zip or a tar, told apart by content. Runs in a stage's child process.

Layout of an archive, optionally inside one top folder: one .onnx file (or `model.onnx` among several), its external
data beside it, and, all optional, metadata.json, labels.txt, tokenizer.json, calibration/ (inputs without truth) and
evaluation/ with truth.json = {"samples": [{"file": "a.jpg", "label": ...}]}. Links, devices, and names that lead
elsewhere are refused, not repaired.

Parts that were uploaded apart lie in an outer tar under the names of `PARTS`, and are opened here, one level deep.
"""

import bz2
import gzip
import json
import lzma
import os
import secrets
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from appliance.domain.errors import BadArchive, BadMetadata
from appliance.modelstore.orders import Unpacked, UnpackOrder
from appliance.tasks import strict_json
from appliance.tasks.metadata import LABELS_MAX

Report = Callable[[float, str], None]
CHUNK_BYTES = 1 << 20
READ_THROUGH_BYTES = 64 << 20
"""Largest part of a packed file that is unpacked to tell damage from another format."""
RATIO_FROM_BYTES = 64 << 20
"""Below this an archive of zeros does no harm; small models often compress well."""
TEXT_BYTES_MAX = 8 << 20
DEPTH_MAX = 8
ASSETS = ("tokenizer.json",)
MODEL_PART = "model.part"
PARTS = {MODEL_PART: ".", "calibration.part": "calibration", "evaluation.part": "evaluation"}
"""File of an outer tar to the folder that its content goes to."""
MEDIA = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".wav", ".txt", ".json", ".npz")
BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    gzip.BadGzipFile,
    NotImplementedError,
)


def unpack(order: UnpackOrder, report: Report) -> Unpacked:
    """Unpack into `order.target` and say what was found; a bare ONNX file stays where it is.

    Raises: BadArchive with the entry and the reason; BadMetadata for a metadata.json or truth.json that cannot be used.
    """
    source, target = Path(order.source), Path(order.target)
    target.mkdir(parents=True, exist_ok=True)
    extraction = _Extraction(order, report)
    try:
        if not extraction.open(source):
            return Unpacked(model=order.source)
        for name in PARTS:
            if (target / name).is_file():
                _open_part(target, name, extraction)
    except BROKEN as error:
        if isinstance(error, tarfile.ReadError) and not extraction.entries:
            reason = "it is packed, but no tar is inside: unpack it (gunzip, bunzip2, unxz) and upload the .onnx file"
            raise BadArchive(reason=reason) from error
        raise BadArchive(reason=f"the archive is damaged: {error}") from error
    except OSError as error:
        if error.errno is None:  # bz2 reports broken data so
            raise BadArchive(reason=f"the archive is damaged: {error}") from error
        raise
    return _contents(target)


def _open_part(target: Path, name: str, extraction: "_Extraction") -> None:
    """Put what a part holds where it belongs; a model may be a bare file, the others are archives."""
    part, extraction.target = target / name, target / PARTS[name]
    if extraction.open(part):
        part.unlink()
        _lift(extraction.target)
    elif name == MODEL_PART:
        part.rename(target / "model.onnx")
    else:
        raise BadArchive(reason=f"the {PARTS[name]} inputs must be a zip or a tar")


def _lift(folder: Path) -> None:
    """Archives often hold one top folder: its content moves up."""
    entries = list(folder.iterdir()) if folder.name in PARTS.values() else []
    if len(entries) == 1 and entries[0].is_dir():
        top = entries[0].rename(folder / f"{secrets.token_hex(8)}.top")
        for entry in top.iterdir():
            entry.rename(folder / entry.name)
        top.rmdir()


def _tar_opener(head: bytes) -> Callable[[Path], IO[bytes]] | None:
    if head[257:262] == b"ustar":
        return lambda path: path.open("rb")
    openers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
    return next((cast(Any, opener) for magic, opener in openers.items() if head.startswith(magic)), None)


def _read_through(opener: Callable[[Path], IO[bytes]], source: Path) -> None:
    """Unpack the beginning of a file into nothing. Raises: one of `BROKEN`, or OSError, where it is damaged."""
    with opener(source) as stream:
        for _ in range(READ_THROUGH_BYTES // CHUNK_BYTES):
            if not stream.read(CHUNK_BYTES):
                return


class _Extraction:
    """Writes entries one by one and keeps count of what they cost."""

    def __init__(self, order: UnpackOrder, report: Report) -> None:
        self.target = Path(order.target)
        self.order = order
        self.report = report
        self.packed_bytes = max(1, os.path.getsize(order.source))
        self.bytes = 0
        self.entries = 0

    def open(self, source: Path) -> bool:
        """Extract `source` into `target`; False when it is no archive."""
        with source.open("rb") as upload:
            head = upload.read(512)
        if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            self.zip(source)
        elif opener := _tar_opener(head):
            try:
                with opener(source) as stream:
                    self.tar(stream)
            except tarfile.ReadError:
                if not self.entries:  # no tar, or a packed one whose damage made its first bytes wrong
                    _read_through(opener, source)
                raise
        else:
            return False
        return True

    def zip(self, source: Path) -> None:
        with zipfile.ZipFile(source) as archive:
            for info in archive.infolist():
                if info.flag_bits & 0x1:
                    raise BadArchive(reason=f"{info.filename!r} is encrypted")
                if (info.external_attr >> 16) & 0o170000 not in (0, 0o100000, 0o040000):
                    raise BadArchive(reason=f"{info.filename!r} is a link or a device")
                path = self._admitted(info.filename, info.file_size)
                if path is not None and not info.is_dir():
                    with archive.open(info) as entry:
                        self._write(entry, path, info.filename)

    def tar(self, stream: IO[bytes]) -> None:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if not (member.isreg() or member.isdir()) or member.issparse():
                    raise BadArchive(reason=f"{member.name!r} is a link, a device or sparse")
                path = self._admitted(member.name, member.size)
                if path is not None and member.isreg():
                    entry = archive.extractfile(member)
                    assert entry is not None
                    self._write(entry, path, member.name)

    def _admitted(self, name: str, size: int) -> Path | None:
        """Where an entry goes; None for what systems add by themselves."""
        self.entries += 1
        if self.entries > self.order.entries_max:
            raise BadArchive(reason=f"the archive has more than {self.order.entries_max} entries")
        pure = PurePosixPath(name)
        if "\\" in name or "\0" in name or pure.is_absolute() or ".." in pure.parts or len(pure.parts) > DEPTH_MAX:
            raise BadArchive(reason=f"{name!r} is no path inside the archive")
        self._check(self.bytes + size)
        if not pure.parts or "__MACOSX" in pure.parts or pure.name == ".DS_Store" or pure.name.startswith("._"):
            return None
        return self.target.joinpath(*pure.parts)

    def _check(self, total_bytes: int) -> None:
        if total_bytes > self.order.bytes_max:
            raise BadArchive(reason=f"the archive unpacks to more than {self.order.bytes_max} bytes")
        if total_bytes > RATIO_FROM_BYTES and total_bytes > self.order.ratio_max * self.packed_bytes:
            raise BadArchive(reason=f"the archive unpacks to more than {self.order.ratio_max:.0f} times its size")

    def _write(self, entry: IO[bytes], path: Path, name: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                while chunk := entry.read(CHUNK_BYTES):
                    self.bytes += len(chunk)
                    self._check(self.bytes)  # the declared size may lie
                    file.write(chunk)
        except (FileExistsError, NotADirectoryError) as error:
            raise BadArchive(reason=f"{name!r} is in the archive twice") from error
        self.report(min(0.99, self.bytes / (self.bytes + self.packed_bytes)), f"unpacked {path.name}")


def _contents(target: Path) -> Unpacked:
    """What lies in an unpacked folder."""
    model = _model_file(target)
    root = model.parent
    labels = _text(root / "labels.txt")
    samples = _truth_samples(root / "evaluation")
    return Unpacked(
        model=str(model),
        metadata=_json_object(root / "metadata.json"),
        labels=tuple(line.strip() for line in labels.splitlines() if line.strip())[:LABELS_MAX],
        assets={name: str(root / name) for name in ASSETS if (root / name).is_file()},
        calibration=tuple(str(path) for path in _media(root / "calibration")),
        evaluation=str(root / "evaluation") if samples else None,
        evaluation_samples=samples,
        unused="; ".join(filter(None, (_no_media(root / "calibration"), _no_truth(root / "evaluation", samples)))),
    )


def _model_file(target: Path) -> Path:
    found = sorted(
        path
        for path in target.rglob("*.onnx")
        if path.is_file() and path.parent.name not in ("calibration", "evaluation")
    )
    named = [path for path in found if path.name == "model.onnx"]
    if len(found) == 1 or len(named) == 1:
        return (named or found)[0]
    names = ", ".join(str(path.relative_to(target)) for path in found[:5])
    if found:
        raise BadArchive(reason=f"the archive holds several ONNX files ({names}): name one of them model.onnx")
    if next(target.rglob("data.pkl"), None) is not None:
        raise BadArchive(reason="this is a PyTorch file: export the model to ONNX with torch.onnx.export")
    raise BadArchive(reason="the archive holds no .onnx file")


def _media(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in MEDIA)


def _no_media(folder: Path) -> str:
    """Which files of the calibration folder are not read; empty: all are."""
    others = _files(folder, set(_media(folder)))
    if not others:
        return ""
    return f"{_counted(others, folder)} no calibration input: those lie in the folder itself and are {', '.join(MEDIA)}"


def _no_truth(folder: Path, samples: int) -> str:
    """Which files of the evaluation folder are of no use for want of a truth.json; empty: there is one, or no file."""
    others = [] if samples else _files(folder)
    if not others:
        return ""
    return f"{_counted(others, folder)} not used: evaluation has no truth.json, which names its samples"


def _files(folder: Path, known: Collection[Path] = ()) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path not in known)


def _counted(files: Sequence[Path], folder: Path) -> str:
    first = files[0].relative_to(folder)
    return (
        f"{len(files)} files of {folder.name} ({first} ...) are" if len(files) > 1 else f"{first} in {folder.name} is"
    )


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    if path.stat().st_size > TEXT_BYTES_MAX:
        raise BadMetadata(reason=f"{path.name} is larger than {TEXT_BYTES_MAX} bytes")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadMetadata(reason=f"{path.name} is not UTF-8 text") from error


def _json_object(path: Path, read: Callable[[str], Any] = strict_json.read) -> dict[str, Any]:
    text = _text(path)
    if not text.strip():
        return {}
    try:
        value = read(text)
    except json.JSONDecodeError as error:
        raise BadMetadata(reason=f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadMetadata(reason=f"{path.name} must hold a JSON object")
    return value


def _truth_samples(folder: Path) -> int:
    """How many samples truth.json lists; each file must be there."""
    if not (folder / "truth.json").is_file():
        return 0
    samples = _json_object(folder / "truth.json", strict_json.read_checked).get("samples")  # in a child
    if not isinstance(samples, list) or not samples:
        raise BadMetadata(reason='evaluation/truth.json must be {"samples": [{"file": "a.jpg", ...}]}')
    for number, sample in enumerate(samples):
        name = sample.get("file") if isinstance(sample, dict) else None
        if not isinstance(name, str) or not _inside(folder, name):
            raise BadMetadata(reason=f"evaluation/truth.json: sample {number} names no file of the folder evaluation")
    return len(samples)


def _inside(folder: Path, name: str) -> bool:
    pure = PurePosixPath(name)
    return not pure.is_absolute() and ".." not in pure.parts and folder.joinpath(*pure.parts).is_file()
