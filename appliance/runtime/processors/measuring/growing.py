"""How large the inputs of a build may become: what runs take from the first case's shapes up to the largest allowed.

The measuring child's. Shapes grow step by step, so that what the next one will take can be foreseen from the last: a
model whose memory grows with the square of its input is stopped before it fills the machine. What a run takes is the
high-water mark of this process above what it had before; how long its operators take is asked of the runtime's own
profile, and only where the whole run is slow enough for it to matter.
"""

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from appliance.clock import SystemClock
from appliance.domain.catalogue import RunBound, Shapes
from appliance.domain.errors import RunFailed
from appliance.domain.hardware import PreparedForm
from appliance.domain.units import BYTES_PER_MB
from appliance.resources.memory import MemoryLimits
from appliance.runtime.processors.cpu.heap import trim
from appliance.runtime.processors.cpu.process_memory import memory_of, peak_rss, reset_peak
from appliance.runtime.processors.cpu.session import OnnxSessions
from appliance.runtime.processors.measuring.stopwatch import Stopwatch, cpu_s

NODE_MS_MAX = 100.0
"""Longest operator of a harmless build: a run that must end is ended between two of them."""
RUN_BYTES_MAX = 2**30
"""Most memory of one run of a harmless build."""
STEP_BYTES_MAX = 2**29
"""Memory of a run that is not needed."""
STEPS_MS, STEPS_SHARE = 1_000.0, 0.25
"""Time of all that is done for such runs, or that share of what this process has computed before, if that is more: an
import does not become slow for them.
"""
TRIED_BYTES_MAX, TRIED_MS_MAX = 2**31, 30_000.0
"""What is not even tried. Half of what the machine has left is not exceeded either."""
EXPONENT = 2
"""What a run takes is foreseen to grow with the square of its inputs, as attention does."""
ALL_RUNS_MAX, ALL_MS_MAX = 64, 10_000.0
"""Shapes that are all run where that makes a build harmless, and what they may take together."""
_AGAIN_MS_MAX = 50.0
"""Below it a run is timed three times; above it the time is less what others had of the processor."""
_CLOCK = SystemClock()

Feeds = Mapping[str, np.ndarray]


@dataclass(slots=True)
class Grown:
    """What was found: runs from the smallest shapes to the largest, and why the build is hazardous."""

    runs: list[RunBound] = field(default_factory=list)
    hazards: list[str] = field(default_factory=list)


class Grower:
    """Measures one loaded build; `order` is a `Growth` as JSON."""

    def __init__(
        self,
        sessions: OnnxSessions,
        form: PreparedForm,
        loaded: Any,
        inputs: Feeds,
        order: Mapping[str, Any],
        scratch: str,
    ) -> None:
        """`scratch`: a folder for the runtime's profile."""
        self._sessions = sessions
        self._form = form
        self._loaded = loaded
        self._inputs = inputs
        self._order = order
        self._scratch = scratch
        self._longest_ms: dict[int, float] = {}
        """Number of elements → longest operator, of the runs that were asked about: each is larger than the last."""

    def grow(self) -> Grown:
        """Raises: RunFailed where the shapes that the tenant asked for cannot be run."""
        order, steps = self._order, [_shapes(step) for step in self._order["steps"]]
        runs = [self._measured({name: array.shape for name, array in self._inputs.items()})]
        for number, shapes in enumerate(steps[: order["needed"]]):
            try:
                self._foresee(shapes, runs[-1])
                runs.append(self._measured(shapes))
            except RunFailed:
                if number == order["stated"] - 1:
                    raise
        self._go_on(runs, steps[order["needed"] :])
        found = Grown(_monotone(runs), list(order["hazards"]))
        if order["unless_all_run"] and not self._run_all(found):
            found.hazards += order["unless_all_run"]
        self._judge(found)
        return found

    # -- inside --------------------------------------------------------------------------------------------------------

    def _go_on(self, runs: list[RunBound], steps: list[Shapes]) -> None:
        """Add runs that are not needed, while they are cheap."""
        allowed_ms = max(STEPS_MS, STEPS_SHARE * 1000 * cpu_s())
        spent = Stopwatch()
        for shapes in steps:
            share = _elements(shapes) / _elements(runs[-1].shapes)
            foreseen_ms = runs[-1].run_ms * share
            # A run of any length that matters is looked at operator by operator, which takes as long again.
            foreseen_ms *= 1 if foreseen_ms <= NODE_MS_MAX else 2
            longest_ms = self._longest_ms.get(_elements(runs[-1].shapes), 0.0)
            is_foreseen_long = self._may_be_harmless and longest_ms * share > NODE_MS_MAX
            if is_foreseen_long or spent.ms() + foreseen_ms > allowed_ms:
                return
            try:
                self._foresee(shapes, runs[-1])
                bound = self._measured(shapes)
            except RunFailed:
                continue
            is_long = self._may_be_harmless and self._longest_node_ms(bound) > NODE_MS_MAX
            if is_long or bound.peak_bytes > STEP_BYTES_MAX:
                return
            runs.append(bound)

    @property
    def _may_be_harmless(self) -> bool:
        return not (self._order["hazards"] or (self._order["unless_all_run"] and self._order["free"] is None))

    def _judge(self, found: Grown) -> None:
        """Add what the largest run takes too much of."""
        largest = found.runs[-1]
        if largest.peak_bytes > RUN_BYTES_MAX:
            taken, allowed = largest.peak_bytes / BYTES_PER_MB, RUN_BYTES_MAX / BYTES_PER_MB
            found.hazards.append(f"a run of the largest shapes takes {taken:.0f} MB; {allowed:.0f} are allowed")
        # What is guarded anyway is not looked at.
        longest_ms = 0.0 if found.hazards else self._longest_node_ms(largest)
        if longest_ms > NODE_MS_MAX:
            found.hazards.append(
                f"one of its operators takes {longest_ms:.0f} ms at the largest shapes; {NODE_MS_MAX:.0f} are allowed"
            )

    def _foresee(self, shapes: Shapes, last: RunBound) -> None:
        """Raises: RunFailed where a run of these shapes would take more than is tried."""
        share = (_elements(shapes) / _elements(last.shapes)) ** EXPONENT
        bytes_max = min(TRIED_BYTES_MAX, MemoryLimits().now().available_bytes // 2)
        if last.peak_bytes * share > bytes_max or sum(self._bytes(shapes)) > bytes_max:
            tried = f"the {bytes_max / BYTES_PER_MB:.0f} MB that are tried"
            reason = f"a run of {_words(shapes)} would take more memory than {tried}"
        elif last.run_ms * share > TRIED_MS_MAX:
            reason = f"a run of {_words(shapes)} would take longer than {TRIED_MS_MAX / 1000:g} s"
        else:
            return
        raise RunFailed(variant_id=self._form.build_id, reason=reason)

    def _bytes(self, shapes: Shapes) -> Iterator[int]:
        return (math.prod(shape) * self._inputs[name].itemsize for name, shape in shapes.items())

    def _measured(self, shapes: Shapes) -> RunBound:
        """Raises: RunFailed."""
        feeds = self._feeds(shapes)
        trim()
        reset_peak()
        before = memory_of("Rss")
        times_ms = [self._run_ms(feeds)]
        if times_ms[0] < _AGAIN_MS_MAX:
            times_ms += [self._run_ms(feeds) for _ in range(2)]
        taken = max(0, peak_rss() - before)
        return RunBound(dict(shapes), round(min(times_ms), 4), taken)

    def _run_ms(self, feeds: Feeds) -> float:
        watch = Stopwatch()
        self._sessions.run(self._loaded, feeds, None)
        took_ms = watch.elapsed_ms()
        return took_ms if took_ms < _AGAIN_MS_MAX else min(took_ms, watch.ms())

    def _feeds(self, shapes: Shapes) -> Feeds:
        """The first case's values over and over: ids stay legal, masks stay ones."""
        return {name: np.resize(array, shapes[name]) for name, array in self._inputs.items()}

    def _run_all(self, found: Grown) -> bool:
        """Run every shape within the largest; each bound takes the most of what lies within it."""
        free, largest = self._order["free"], found.runs[-1]
        if free is None:
            return False
        axes = [(name, axis) for name, places in free.items() for axis in places]
        count = math.prod(largest.shapes[name][axis] for name, axis in axes)
        if count > ALL_RUNS_MAX or count * largest.run_ms > ALL_MS_MAX:
            return False
        for sizes in itertools.product(*(range(1, largest.shapes[name][axis] + 1) for name, axis in axes)):
            shapes = {name: list(shape) for name, shape in largest.shapes.items()}
            for (name, axis), size in zip(axes, sizes, strict=True):
                shapes[name][axis] = size
            try:
                one = self._measured(_shapes(shapes))
            except RunFailed:
                continue  # a request of that shape gets the same error
            found.runs = [_raised(bound, one) for bound in found.runs]
        return True

    def _longest_node_ms(self, bound: RunBound) -> float:
        """The lesser of two measurements, less the share of time in which others had the processor."""
        if bound.run_ms <= NODE_MS_MAX:
            return bound.run_ms
        elements = _elements(bound.shapes)
        if elements not in self._longest_ms:
            longest_ms = self._profiled_node_ms(bound, runs=1)
            if longest_ms > NODE_MS_MAX:  # the first run takes page faults
                longest_ms = min(longest_ms, self._profiled_node_ms(bound, runs=2))
            self._longest_ms[elements] = longest_ms
        return self._longest_ms[elements]

    def _profiled_node_ms(self, bound: RunBound, runs: int) -> float:
        """From the runtime's own profile."""
        options = self._sessions.options(optimised=self._form.optimised)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(self._scratch) / "nodes")
        session = ort.InferenceSession(self._form.path, options, providers=["CPUExecutionProvider"])
        feeds = dict(self._feeds(bound.shapes))
        watch = Stopwatch()
        for _ in range(runs):
            session.run(None, feeds)
        share = watch.ms() / watch.elapsed_ms()
        file = Path(session.end_profiling())
        events = json.loads(file.read_text())
        file.unlink()
        del session, feeds
        trim()
        least_us: dict[str, float] = {}
        for event in events:
            if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                least_us[event["name"]] = min(event["dur"], least_us.get(event["name"], math.inf))
        return max(least_us.values(), default=0.0) / 1000 * share


def _monotone(runs: list[RunBound]) -> list[RunBound]:
    """A larger run is taken to need no less memory than a smaller one: what the heap had kept may hide some."""
    most = itertools.accumulate((bound.peak_bytes for bound in runs), max)
    return [replace(bound, peak_bytes=taken) for bound, taken in zip(runs, most, strict=True)]


def _raised(bound: RunBound, other: RunBound) -> RunBound:
    """`bound`, at least as much as `other` where that lies within it."""
    is_within = all(
        size <= limit
        for name, shape in other.shapes.items()
        for size, limit in zip(shape, bound.shapes[name], strict=True)
    )
    if not is_within:
        return bound
    return RunBound(bound.shapes, max(bound.run_ms, other.run_ms), max(bound.peak_bytes, other.peak_bytes))


def _shapes(shapes: Mapping[str, Any]) -> Shapes:
    return {name: tuple(shape) for name, shape in shapes.items()}


def _elements(shapes: Shapes) -> int:
    return max(1, sum(math.prod(shape) for shape in shapes.values()))


def _words(shapes: Shapes) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
