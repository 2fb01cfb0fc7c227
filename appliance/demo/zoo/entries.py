"""A model of the zoo as its tenant has it, and the archive that the tenant uploads."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo


@dataclass(frozen=True, slots=True)
class ZooModel:
    """Everything about one model: what is uploaded, and what its devices send afterwards.

    The files stay in the cache.
    """

    name: str
    tenant: str
    task: str
    model: Path
    """One ONNX file."""
    metadata: dict[str, Any]
    """JSON in the words of `TaskSpec`, and `task`."""
    assets: dict[str, Path]
    """tokenizer.json, labels.txt."""
    calibration: tuple[Path, ...]
    """Inputs without truth."""
    evaluation: Path | None
    """Folder with labelled inputs and truth.json."""
    inputs: tuple[Path, ...]
    """What a device sends, in this order, one file a request."""
    rate_rps: float
    """Requests a second that suit a demo on two cores."""
    show: str
    """What a person should look at."""


@dataclass(frozen=True, slots=True)
class Zoo:
    """The models that could be had, and sentences about those that could not."""

    models: tuple[ZooModel, ...]
    missing: tuple[str, ...]


def as_archive(model: ZooModel, target: Path) -> Path:
    """Write the upload of `model` as the zip file `target`, and return it; equal models give equal bytes.

    Holds model.onnx, metadata.json, the assets, calibration/ and evaluation/. Weights and pictures do not shrink, so
    they are stored.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(target, "w") as archive:
        _put(archive, "metadata.json", json.dumps(model.metadata, ensure_ascii=False).encode(), ZIP_DEFLATED)
        for name, path in sorted(model.assets.items()):
            _put(archive, name, path.read_bytes(), ZIP_DEFLATED)
        for path in model.calibration:
            _put(archive, f"calibration/{path.name}", path.read_bytes(), ZIP_STORED)
        for path in sorted(model.evaluation.iterdir()) if model.evaluation else ():
            _put(archive, f"evaluation/{path.name}", path.read_bytes(), ZIP_STORED)
        _put(archive, "model.onnx", model.model.read_bytes(), ZIP_STORED)
    return target


def _put(archive: ZipFile, name: str, content: bytes, method: int) -> None:
    """One entry without a time, so that the archive depends on the content only."""
    entry = ZipInfo(name)
    entry.compress_type = method
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)
