"""Real inputs that came with an upload, as the task decodes them, and synthetic ones where none came.

Runs in a child process.

Samples are decoded when they are asked for, one at a time: a set of large pictures never lies in memory as tensors.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from appliance.domain.catalogue import TaskSpec
from appliance.domain.errors import BadInput, BadMetadata
from appliance.modelstore.orders import Extent, Inspection, Size
from appliance.modelstore.stages.feeds import synthetic
from appliance.tasks import TASKS
from appliance.tasks.base import Decoded, Media, Target, step_inputs

CONTENT_TYPES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".gif": "image/gif",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".wav": "audio/wav",
    ".txt": "text/plain",
    ".json": "application/json",
    ".npz": "application/x-npz",
}
SYNTHETIC_FEEDS = 8
SMALLER_FEEDS = 8
"""Calibration inputs at each smaller size: the ranges differ a little, the layers are the same."""
MEDIA_BYTES_MAX = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """One file, and what is true of it."""

    path: Path
    truth: Mapping[str, Any] = field(default_factory=dict)

    def media(self) -> Media:
        if self.path.stat().st_size > MEDIA_BYTES_MAX:
            raise BadMetadata(reason=f"{self.path.name} is larger than {MEDIA_BYTES_MAX} bytes")
        return Media(self.path.read_bytes(), CONTENT_TYPES.get(self.path.suffix.lower(), ""))


def labelled(folder: str | None, count_max: int) -> list[Sample]:
    """Samples of truth.json, spread evenly over the set when there are more than `count_max`."""
    if folder is None:
        return []
    entries = json.loads((Path(folder) / "truth.json").read_text("utf-8-sig"))["samples"]
    return [Sample(Path(folder) / entry["file"], entry) for entry in _spread(entries, count_max)]


def unlabelled(paths: Sequence[str], count_max: int) -> list[Sample]:
    """Calibration inputs, spread evenly over the set when there are more than `count_max`."""
    return [Sample(Path(path)) for path in _spread(paths, count_max)]


def digest_of(samples: Sequence[Sample]) -> str:
    """The same for the same samples in the same order, by their names, their sizes and what is true of them."""
    digest = hashlib.sha256()
    for sample in samples:
        size = sample.path.stat().st_size if sample.path.exists() else -1
        digest.update(json.dumps([sample.path.name, size, sample.truth], sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _spread(entries: Sequence[Any], count_max: int) -> list[Any]:
    if len(entries) <= count_max:
        return list(entries)
    return [entries[index * len(entries) // count_max] for index in range(count_max)]


def target_of(inspection: Inspection, size: Size | None, assets: Mapping[str, str]) -> Target:
    """What the task decodes for: the graph's interface at one rung."""
    height, width = (size.height, size.width) if size else (None, None)
    return Target(inspection.inputs, inspection.outputs, height, width, assets)


def decoded(sample: Sample, task: TaskSpec, target: Target) -> Decoded:
    """The sample's tensors.

    Raises: BadInput as the task does.
    """
    return TASKS[task.kind].decode(sample.media(), task, target, {})


@dataclass(frozen=True, slots=True)
class Feeds:
    """Inputs of runs, by the name of the input."""

    full: list[dict[str, np.ndarray]]
    """At full size."""
    smaller: list[dict[str, np.ndarray]]
    """At the other sizes of the ladder, which share the file and so its value ranges."""
    words: str
    """What they are, for a person."""

    def all(self) -> list[dict[str, np.ndarray]]:
        return [*self.full, *self.smaller]


def calibration_feeds(
    paths: Sequence[str], task: TaskSpec, inspection: Inspection, assets: Mapping[str, str], count_max: int
) -> Feeds:
    """At most `count_max` inputs at full size and a few at each smaller one. Files that cannot be decoded are left out.

    Synthetic inputs when there is no usable file: they keep a quantised network alive, but its accuracy suffers.
    """
    full, *others = inspection.ladder or (None,)
    problems: list[str] = []
    usable: list[Sample] = []
    feeds: list[dict[str, np.ndarray]] = []
    for sample in unlabelled(paths, count_max):
        try:
            steps = _steps(sample, task, target_of(inspection, full, assets))
        except BadInput as error:
            problems.append(f" ({sample.path.name}: {error})")
            continue
        usable.append(sample)
        feeds.extend(steps[: max(1, count_max - len(feeds))])
        if len(feeds) >= count_max:
            break
    if not feeds:
        made = list(synthetic_feeds(inspection, task, full, SYNTHETIC_FEEDS))
        smaller = [one for size in others for one in synthetic_feeds(inspection, task, size, SMALLER_FEEDS)]
        words = f"{SYNTHETIC_FEEDS} synthetic inputs, as no calibration input was usable{''.join(problems[:1])}"
        return Feeds(made, smaller, words)
    few = usable[:: -(-len(usable) // SMALLER_FEEDS)]
    smaller = [
        one
        for size in others
        for sample in few
        for one in _steps(sample, task, target_of(inspection, size, assets))[:1]
    ]
    return Feeds(feeds, smaller, f"{len(feeds)} calibration inputs")


def _steps(sample: Sample, task: TaskSpec, target: Target) -> list[dict[str, np.ndarray]]:
    return [step_inputs(step, task, {}) for step in decoded(sample, task, target).steps]


def synthetic_feeds(
    inspection: Inspection, task: TaskSpec, size: Size | None, count: int
) -> Iterator[dict[str, np.ndarray]]:
    """Inputs of `count` runs at the size of a rung."""
    for seed in range(count):
        yield synthetic(inspection.inputs, inspection.axes, task, extent_of(inspection, size), seed)


def extent_of(inspection: Inspection, size: Size | None) -> Extent:
    """The sizes that inspection found to run, height and width as in `size`."""
    return inspection.trial if size is None else replace(inspection.trial, height=size.height, width=size.width)
