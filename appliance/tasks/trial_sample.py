"""A request that was answered, kept for a few seconds so that another variant can be run on it, too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.domain.catalogue import Variant
from appliance.tasks.base import Arrays, Media


@dataclass(frozen=True, slots=True, eq=False)
class MediaAsked:
    """Media, and what the task read in the outputs."""

    media: Media
    body: Mapping[str, Any]

    @property
    def size_bytes(self) -> int:
        pixels = self.media.pixels
        return len(self.media.body) + (0 if pixels is None else pixels.array.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class TensorsAsked:
    """Tensors, and the outputs that were asked for."""

    inputs: Arrays
    outputs: Arrays

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for array in (*self.inputs.values(), *self.outputs.values()))


@dataclass(frozen=True, slots=True, eq=False)
class TrialSample:
    """What a request asked, what it was answered, and the variant that is to be run beside."""

    tenant: str
    model_id: str
    answered: str
    """Id of the variant that answered."""
    beside: Variant
    asked: MediaAsked | TensorsAsked
    at_ns: int
