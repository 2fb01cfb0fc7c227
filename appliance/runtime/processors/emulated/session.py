"""Runs on an emulated processor: computed by ONNX Runtime on the CPU, and over when the time has passed that the
network's metadata gives for so many items. Its worker is held until then, and nothing else.

The times stand in the file: `emulated_ms` of its `metadata_props`, a JSON object of milliseconds by batch size.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from appliance.clock import NS_PER_MS, NS_PER_S, SystemClock
from appliance.domain.errors import LoadFailed, RunStopped
from appliance.domain.hardware import EMULATED, PreparedForm, ProcessorDescription
from appliance.domain.request import Tensors
from appliance.runtime.processors.blocking import BlockingProcessor
from appliance.runtime.processors.cpu.leases import Lease
from appliance.runtime.processors.cpu.session import Loaded, OnnxSessions

TIMES = "emulated_ms"
"""Key of a network's metadata."""
_CLOCK = SystemClock()


class Stop:
    """Ends a run: the computing and the waiting."""

    def __init__(self) -> None:
        self.options = ort.RunOptions()
        self.asked = threading.Event()

    @property
    def terminate(self) -> bool:
        return self.asked.is_set()

    @terminate.setter
    def terminate(self, wanted: bool) -> None:
        self.options.terminate = wanted
        if wanted:
            self.asked.set()


@dataclass(slots=True)
class Emulated:
    """A network in memory, and what its runs take, milliseconds by batch size."""

    loaded: Loaded
    times_ms: Mapping[int, float]
    lease: Lease | None = None
    """On a file that it has mapped: none."""
    file: None = None

    @property
    def build_id(self) -> str:
        return self.loaded.build_id

    def run_ms(self, items: int) -> float:
        """That of the smallest batch size that is no smaller; beyond the largest in proportion to that."""
        sizes = sorted(self.times_ms)
        size = next((one for one in sizes if one >= items), sizes[-1])
        return self.times_ms[size] * max(1.0, items / size)


class EmulatedSessions:
    """Blocking half."""

    def __init__(self) -> None:
        self._sessions = OnnxSessions(1)

    def stop(self) -> Stop:
        """What ends a run that is given it."""
        return Stop()

    def load(self, form: PreparedForm) -> Emulated:
        """Raises: LoadFailed, also for a network that does not say what its runs take."""
        loaded = self._sessions.load(form)
        text = loaded.session.get_modelmeta().custom_metadata_map.get(TIMES, "")
        try:
            return Emulated(loaded, times_of(text))
        except ValueError as error:
            reason = f"an emulated processor needs {TIMES!r} in the network's metadata: {error}"
            raise LoadFailed(build_id=form.build_id, reason=reason) from None

    def run(
        self, emulated: Emulated, inputs: Tensors, outputs: Sequence[str] | None, stop: Stop | None = None
    ) -> dict[str, Any]:
        """One inference, and the rest of its time. Raises: RunRefused with the runtime's own words; RunStopped."""
        start_ns = _CLOCK.now_ns()
        items = max((len(one) for one in inputs.values() if getattr(one, "ndim", 0)), default=1)
        computed = self._sessions.run(emulated.loaded, inputs, outputs, None if stop is None else stop.options)
        stop = stop or Stop()
        left_ns = start_ns + int(emulated.run_ms(items) * NS_PER_MS) - _CLOCK.now_ns()
        if stop.asked.wait(max(0, left_ns) / NS_PER_S):
            raise RunStopped(variant_id=emulated.loaded.build_id, reason="it took longer than it may")
        return computed

    def unload(self, emulated: Emulated) -> None:
        """Drop it."""
        self._sessions.unload(emulated.loaded)

    def fell_back_to(self, emulated: Emulated) -> str:
        """Nothing: it computes nothing itself."""
        return ""

    def supports(self, network: Path) -> bool:
        """What ONNX Runtime supports."""
        return self._sessions.supports(network)

    def prepare(self, source: Path, target_dir: Path) -> str | None:
        """There is no other form than the file itself."""
        return None


class EmulatedProcessor(BlockingProcessor):
    """Port `Processor`: so many runs at once as it has workers."""

    def __init__(self, name: str, workers: int, threads_per_run: int, loads_parallel_max: int) -> None:
        description = ProcessorDescription(name, EMULATED, workers, threads_per_run, "host", f"{EMULATED}-1")
        super().__init__(description, EmulatedSessions, loads_parallel_max)


def times_of(text: str) -> dict[int, float]:
    """Milliseconds by batch size, from the metadata. Raises: ValueError."""
    found = json.loads(text)
    if not isinstance(found, dict) or not found:
        raise ValueError("it is no object")
    times = {int(batch): float(ms) for batch, ms in found.items()}
    if not all(batch >= 1 and 0.0 < ms < 1e9 for batch, ms in times.items()):
        raise ValueError("batch sizes begin at 1, and times are above 0")
    return times
