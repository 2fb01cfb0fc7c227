"""Uploads are opened without letting them write, link or grow where they should not."""

import gzip
import io
import json
import os
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from appliance.domain.errors import BadArchive, BadMetadata
from appliance.modelstore.orders import Unpacked, UnpackOrder
from appliance.modelstore.stages.archive import unpack
from tests.modelstore import networks
from tests.modelstore.stages.stage_runs import quiet

Pack = Callable[[Mapping[str, bytes], Path], Path]
MODEL = networks.relu().SerializeToString()
WHOLE: Mapping[str, bytes] = {
    "model.onnx": MODEL,
    "metadata.json": b'{"task": "image-classification"}',
    "labels.txt": "cat\n\nhund ä\n".encode(),
    "tokenizer.json": b"{}",
    "calibration/b.JPG": b"jpeg",
    "calibration/a.png": b"png",
    "calibration/notes.md": b"no input",
    "evaluation/c.wav": b"wav",
    "evaluation/truth.json": json.dumps({"samples": [{"file": "c.wav", "text": "hello"}]}).encode(),
}


def zipped(entries: Mapping[str, bytes], path: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


def tarred(entries: Mapping[str, bytes], path: Path, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]  # the mode is no literal
        for name, data in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def append(archive: Path, name: str) -> None:
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr(name, MODEL)


def unpacked(upload: Path, **limits: float) -> Unpacked:
    target = upload.parent / "target"
    shutil.rmtree(target, ignore_errors=True)
    order = UnpackOrder(str(upload), str(target), **limits)  # type: ignore[arg-type]
    return unpack(order, quiet)


def refusal(upload: Path, **limits: float) -> str:
    with pytest.raises((BadArchive, BadMetadata)) as caught:
        unpacked(upload, **limits)
    outside = set(os.listdir(upload.parent)) - {upload.name, "target"}
    assert not outside, "nothing is written outside of the target"
    return str(caught.value)


@pytest.mark.parametrize("kind", ["zip", "stored", "tar", "tar.gz", "tar.bz2", "tar.xz"])
@pytest.mark.parametrize("top", ["", "my-model/", "./"])
def test_archive_contents_of_every_sort_are_found(tmp_path: Path, kind: str, top: str) -> None:
    """All formats, with and without a top folder, with the litter that systems add."""
    entries = {top + name: data for name, data in WHOLE.items()} | {
        "__MACOSX/._model.onnx": b"x",
        top + ".DS_Store": b"x",
    }
    upload = tmp_path / "upload"
    if kind in ("zip", "stored"):
        zipped(entries, upload, zipfile.ZIP_STORED if kind == "stored" else zipfile.ZIP_DEFLATED)
    else:
        tarred(entries, upload, "w:" + kind[4:])
    found = unpacked(upload)
    assert Path(found.model).read_bytes() == MODEL
    assert found.metadata == {"task": "image-classification"}
    assert found.labels == ("cat", "hund ä")
    assert list(found.assets) == ["tokenizer.json"]
    assert [Path(path).name for path in found.calibration] == ["a.png", "b.JPG"]
    assert found.evaluation is not None
    assert (Path(found.evaluation).name, found.evaluation_samples) == ("evaluation", 1)
    assert not list(tmp_path.rglob("*DS_Store"))


def test_upload_that_is_no_archive_is_taken_for_model(tmp_path: Path) -> None:
    """Without a second copy on the disk."""
    upload = tmp_path / "upload"
    upload.write_bytes(MODEL)
    assert unpacked(upload) == Unpacked(model=str(upload))


@pytest.mark.parametrize(
    "name", ["../evil.onnx", "/tmp/evil.onnx", "a/../../evil.onnx", "a\\..\\evil.onnx", "a/" * 9 + "x.onnx"]
)
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_archive_names_that_lead_outside_are_refused(tmp_path: Path, name: str, pack: Pack) -> None:
    """Parents, absolute paths, backslashes and depth."""
    assert "no path inside the archive" in refusal(pack({name: MODEL}, tmp_path / "upload"))


def test_archive_links_and_devices_are_refused(tmp_path: Path) -> None:
    """Whatever is no file and no folder."""
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        with tarfile.open(tmp_path / "upload", "w") as archive:
            info = tarfile.TarInfo("model.onnx")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        assert "link" in refusal(tmp_path / "upload")
    with zipfile.ZipFile(tmp_path / "upload", "w") as zip_archive:
        entry = zipfile.ZipInfo("model.onnx")
        entry.external_attr = 0o120777 << 16
        zip_archive.writestr(entry, "/etc/passwd")
    assert "link" in refusal(tmp_path / "upload")


def test_archive_bombs_are_stopped_by_bytes_ratio_and_entries(tmp_path: Path) -> None:
    """What is declared is refused at once, what is hidden as soon as it shows."""
    zeros = {"model.onnx": bytes(96 << 20)}
    assert "times its size" in refusal(zipped(zeros, tmp_path / "upload"))
    assert "more than 1000000 bytes" in refusal(zipped(zeros, tmp_path / "upload"), bytes_max=1_000_000)
    assert "times its size" in refusal(tarred(zeros, tmp_path / "upload", "w:gz"))
    many = {f"calibration/{number}.txt": b"" for number in range(30)}
    assert "more than 20 entries" in refusal(zipped(many, tmp_path / "upload"), entries_max=20)


def test_archive_sizes_that_lie_are_caught_while_unpacking(tmp_path: Path) -> None:
    """A central directory that declares one byte does not get more past the count."""
    upload = zipped({"model.onnx": bytes(3 << 20)}, tmp_path / "upload")
    data = bytearray(upload.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (1).to_bytes(4, "little")
    upload.write_bytes(data)
    assert "damaged" in refusal(upload, bytes_max=1 << 20) or (tmp_path / "target/model.onnx").stat().st_size <= 1


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz", "tar.bz2"])
def test_damaged_archive_is_refused(tmp_path: Path, kind: str) -> None:
    """Cut short or overwritten, in every format."""
    noise = random.Random(3).randbytes(200_000)
    upload = tmp_path / "upload"
    entries = {"model.onnx": MODEL, "calibration/a.npz": noise}
    zipped(entries, upload) if kind == "zip" else tarred(entries, upload, "w:" + kind[4:])
    whole = upload.read_bytes()
    upload.write_bytes(whole[: len(whole) // 2])
    assert "damaged" in refusal(upload)
    if kind != "tar":  # plain tar has no checksum over its contents
        upload.write_bytes(whole[:5000] + bytes(50_000) + whole[55_000:])
        assert "damaged" in refusal(upload) or "twice" in refusal(upload)


@pytest.mark.parametrize("seed", [138, 139])
def test_archive_damage_that_unpacks_to_no_tar_is_reported_as_damage(tmp_path: Path, seed: int) -> None:
    """What bzip2 makes of it fails in its checksum only at the end of a block."""
    entries = {"model.onnx": MODEL, "calibration/a.npz": random.Random(seed).randbytes(200_000)}
    whole = tarred(entries, tmp_path / "upload", "w:bz2").read_bytes()
    (tmp_path / "upload").write_bytes(whole[:5000] + bytes(50_000) + whole[55_000:])
    assert "damaged" in refusal(tmp_path / "upload")


def test_archive_with_encrypted_or_duplicate_entries_is_refused(tmp_path: Path) -> None:
    """No guessing of keys, no overwriting."""
    upload = zipped({"model.onnx": MODEL}, tmp_path / "upload", zipfile.ZIP_STORED)
    data = bytearray(upload.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    upload.write_bytes(data)
    assert "encrypted" in refusal(upload)
    zipped({"model.onnx": MODEL}, upload)
    with pytest.warns(UserWarning, match="Duplicate"):
        append(upload, "model.onnx")
    assert "twice" in refusal(upload)


def test_archive_model_is_only_onnx_file_or_model_onnx(tmp_path: Path) -> None:
    assert "no .onnx file" in refusal(zipped({"labels.txt": b"x"}, tmp_path / "upload"))
    assert "several ONNX files" in refusal(zipped({"a.onnx": MODEL, "b.onnx": MODEL}, tmp_path / "upload"))
    (tmp_path / "more").mkdir()
    found = unpacked(zipped({"a.onnx": b"other", "model.onnx": MODEL}, tmp_path / "more" / "upload"))
    assert Path(found.model).read_bytes() == MODEL


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("metadata.json", b"[1]", "must hold a JSON object"),
        ("metadata.json", b"{", "is not JSON"),
        ("metadata.json", b"[" * 100_000, "is not JSON"),
        ("labels.txt", b"\xff\xfe\x00", "not UTF-8"),
        ("evaluation/truth.json", b'{"samples": []}', "must be"),
        ("evaluation/truth.json", b'{"samples": [{"file": "../model.onnx"}]}', "names no file"),
        ("evaluation/truth.json", b'{"samples": [{"file": "/etc/passwd"}]}', "names no file"),
        ("evaluation/truth.json", b'{"samples": [7]}', "names no file"),
    ],
)
def test_archive_metadata_that_cannot_be_used_is_refused(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    """The file and the reason are named."""
    assert words in refusal(zipped({"model.onnx": MODEL, name: data}, tmp_path / "upload"))


def test_packed_file_without_tar_is_refused_with_hint(tmp_path: Path) -> None:
    path = tmp_path / "upload"
    path.write_bytes(gzip.compress(MODEL))
    with pytest.raises(BadArchive, match="no tar is inside: unpack it"):
        unpack(UnpackOrder(str(path), str(tmp_path / "target")), quiet)
