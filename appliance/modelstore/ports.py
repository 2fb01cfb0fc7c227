"""What the importer needs from others. `app` fills both; the shapes are those of `runtime.ports`, which this package may not import."""

from collections.abc import Sequence
from typing import Protocol

from appliance.domain.catalogue import Profile
from appliance.domain.hardware import MeasureCase, PreparedForm


class Measure(Protocol):
    """Measures one build in a process of its own, with the same processor and options as serving."""

    async def profile(self, form: PreparedForm, processor: str, cases: Sequence[MeasureCase]) -> Profile:
        """Resident and peak bytes (ΔPss), load times with cold and warm page cache, latency by batch.

        Raises: LoadFailed, RunFailed.
        """
        ...

    async def prepare(self, source: str, target_dir: str, processor: str) -> PreparedForm | None:
        """Write the prepared form of the ONNX file `source` into `target_dir`; None when there is none or it failed a check."""
        ...


class EventSink(Protocol):
    """Takes events for `/v1/events`, logs and tests; never blocks."""

    def emit(self, event: str, **facts: object) -> None: ...
