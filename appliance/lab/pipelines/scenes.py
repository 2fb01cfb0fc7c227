"""What networks see in the frames of a scenario: how many regions, and which labels.

Drawn for each item by itself, from the scenario's seed and where the item is, so that no order of running and no policy
changes what is seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from random import Random
from typing import Any

from appliance.domain.pipeline import Crop, Join, Pick, Pipeline, Region
from appliance.lab.pipeline_shapes import PipelineShape, StageShape, crop_before, read_items

SIDE = 1000
"""Of the picture, in pixels."""
_BOX, _ROW = 10, 90


@dataclass(frozen=True, slots=True)
class Sight:
    """An item of a frame: whose, which frame of which sender, and the region that it is; None: all of the frame."""

    scenes: "Scenes"
    sender: str
    number: int
    region: Region | None = None

    def body(self, stage: str) -> dict[str, Any]:
        """What the network of a stage says of it."""
        return self.scenes.body(stage, self)


class Scenes:
    """Of one pipeline."""

    def __init__(self, entry: PipelineShape, pipeline: Pipeline, seed: int, base_dir: str) -> None:
        """Raises: Malformed (of a file)."""
        self._pipeline = pipeline
        self._seed = f"{seed}/pipelines/{entry.name}"
        self._seen = {shape.called: shape.seen for shape in entry.stages if shape.application is not None}
        shown = {_crop_of(shape): _Shown.of(shape, base_dir) for shape in entry.stages if shape.is_fanned}
        crops = [stage for stage in pipeline.stages if isinstance(stage, Crop)]
        self._shown = {
            stage.name: [shown[crop.name] for crop in crops if stage.name in crop.after and crop.name in shown]
            for stage in pipeline.stages
        }
        self.cpu_ms = {_crop_of(shape): shape.takes_ms for shape in entry.stages}

    def computes_ms(self) -> dict[int, float]:
        """Of picks and joins: `id` of the stage → what it takes; the pipeline, and so its stages, live as long."""
        return {
            id(stage): self.cpu_ms.get(stage.name, 0.0)
            for stage in self._pipeline.stages
            if isinstance(stage, Pick | Join)
        }

    def body(self, stage: str, sight: Sight) -> dict[str, Any]:
        """Of a detector its regions, of all others a label. Several crops behind a detector have its regions in common:
        as many as the one with most.
        """
        rng = Random(f"{self._seed}/{stage}/{sight.sender}/{sight.number}/{sight.region and sight.region.corners}")
        shown = self._shown.get(stage, ())
        if not shown:
            return {"labels": [{"label": _drawn(rng, self._seen.get(stage, {})), "score": 1.0}]}
        count = max(one.count(sight.number, rng) for one in shown)
        regions = [
            {"box": _box(index), "score": 1.0, "label": _drawn(rng, self._seen.get(stage, {}))}
            for index in range(count)
        ]
        return {"width": SIDE, "height": SIDE, "objects": regions, "regions": regions}


@dataclass(frozen=True, slots=True)
class _Shown:
    """Items that a crop finds: of one frame after the other, or Poisson about a mean."""

    items: Sequence[int]
    mean: float

    @classmethod
    def of(cls, shape: StageShape, base_dir: str) -> "_Shown":
        if shape.items_csv is not None:
            return cls(read_items(Path(base_dir) / shape.items_csv, "items_csv"), 0.0)
        return cls(shape.items or (), shape.fan_out or 0.0)

    def count(self, number: int, rng: Random) -> int:
        return self.items[number % len(self.items)] if self.items else _poisson(rng, self.mean)


def _crop_of(shape: StageShape) -> str:
    return crop_before(shape) if shape.application is not None else shape.called


def _box(index: int) -> list[float]:
    left, top = float(index % _ROW * (_BOX + 1)), float(index // _ROW * (_BOX + 1))
    return [left, top, left + _BOX, top + _BOX]


def _drawn(rng: Random, seen: Mapping[str, float]) -> str:
    return rng.choices([*seen], [*seen.values()])[0] if seen else ""


def _poisson(rng: Random, mean: float) -> int:
    limit, product, count = exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        count += 1
    return count
