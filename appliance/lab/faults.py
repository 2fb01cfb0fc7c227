"""What goes wrong in a scenario, and when: each fault switches something on at `at_s` and off again after `for_s`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from pydantic import Field

from appliance.clock import NS_PER_MS
from appliance.lab.loop import START_NS, VirtualClock
from appliance.lab.problems.base import Malformed, Name, Positive, Shape, known
from appliance.lab.processors import EmulatedProcessor
from appliance.lab.workload import nanoseconds

T = TypeVar("T")

PROCESSOR_LOST = "processor-lost"
SLOW_DOWN = "slow-down"
LOAD_FAILS = "load-fails"
CLOCK_STEP = "clock-step"
MEMORY_TAKEN = "memory-taken"
LINK_DOWN = "link-down"
KINDS = (PROCESSOR_LOST, SLOW_DOWN, LOAD_FAILS, MEMORY_TAKEN, CLOCK_STEP, LINK_DOWN)

_NEEDS = {SLOW_DOWN: "factor", MEMORY_TAKEN: "mb", CLOCK_STEP: "ms", LINK_DOWN: "session"}


class Fault(Shape):
    """One entry of `[[faults]]`. Without `for_s` it lasts to the end; a step of the clock always does."""

    kind: Name
    at_s: Annotated[float, Field(ge=0, le=1e8)]
    for_s: Annotated[float, Field(gt=0, le=1e8)] | None = None
    target: Name | None = None
    """A processor; of `load-fails` an application, too."""
    application: Name | None = None
    session: Name | None = None
    """Of `link-down`: a device, or the entry of several."""
    factor: Positive | None = None
    mb: Positive | None = None
    ms: Annotated[float, Field(ge=-1e13, le=1e13)] | None = None


def check_faults(
    faults: Sequence[Fault], applications: Sequence[str], processors: Sequence[str], sessions: Sequence[str] = ()
) -> None:
    """`sessions`: devices, and the entries of several. Raises: Malformed."""
    for i, fault in enumerate(faults):
        key = f"faults[{i}]"
        known(fault.kind, KINDS, f"{key}.kind")
        if fault.kind in (PROCESSOR_LOST, SLOW_DOWN) and fault.target is not None:
            known(fault.target, processors, f"{key}.target")
        field = _NEEDS.get(fault.kind)
        if field is not None and getattr(fault, field) is None:
            raise Malformed(f"{key}.{field}", "is missing")
        if fault.kind == LINK_DOWN and fault.session is not None:
            known(fault.session, sessions, f"{key}.session")
        if fault.kind == LOAD_FAILS:
            _check_application(fault, applications, key)


def _check_application(fault: Fault, applications: Sequence[str], key: str) -> None:
    field = "application" if fault.application is not None or fault.target is None else "target"
    name = getattr(fault, field)
    if name is None:
        raise Malformed(f"{key}.{field}", "is missing")
    known(name, applications, f"{key}.{field}")


SPARE_BYTES = 64 * 2**20
"""Least memory beside the budget, which is given and taken in whole steps; without it a step would be lost at once."""


@dataclass(slots=True)
class Machine:
    """The memory that the box shares with other programs. While they take none, there is more than the box may have."""

    total_bytes: int
    spare_bytes: int = SPARE_BYTES
    """Memory beside the budget."""
    taken: list[int] = field(default_factory=list)
    """By others, each while its fault lasts."""

    def available_bytes(self, used_bytes: int) -> int:
        """What is left while the box's builds occupy `used_bytes`; never negative, as others cannot take what is not
        there.
        """
        left = self.total_bytes - sum(self.taken) if self.taken else self.total_bytes + self.spare_bytes
        return max(0, left - used_bytes)


class Weather:
    """Lets faults happen to the parts of a box."""

    def __init__(
        self,
        clock: VirtualClock,
        processors: Sequence[EmulatedProcessor],
        machine: Machine,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change`: told when a processor has come or gone."""
        self._clock = clock
        self._processors = tuple(processors)
        self._machine = machine
        self._on_change = on_change

    async def inflict(self, fault: Fault) -> None:
        """Wait for the fault's time, let it happen, and end it."""
        start_ns = START_NS + nanoseconds(fault.at_s)
        await self._clock.sleep_until_ns(start_ns)
        end = self._begin(fault)
        if fault.for_s is not None:
            await self._clock.sleep_until_ns(start_ns + nanoseconds(fault.for_s))
            end()

    def _begin(self, fault: Fault) -> Callable[[], None]:
        """Switch the fault on; the way to switch it off again."""
        meant = [one for one in self._processors if fault.target in (None, one.describe().name)]
        match fault.kind:
            case "processor-lost":
                return self._lose(meant)
            case "slow-down":
                return _all([_listed(one.ailments.slow_factors, fault.factor) for one in meant])
            case "load-fails":
                name = fault.application or fault.target
                return _all([_listed(one.ailments.failing_applications, name) for one in self._processors])
            case "memory-taken":
                assert fault.mb is not None, "checked when it was read"
                return _listed(self._machine.taken, round(fault.mb * 1e6))
            case "link-down":  # the links know of it beforehand
                return lambda: None
            case _:
                assert fault.kind == CLOCK_STEP and fault.ms is not None, "checked when it was read"
                self._clock.step_ns += round(fault.ms * NS_PER_MS)
                return lambda: None

    def _lose(self, processors: Sequence[EmulatedProcessor]) -> Callable[[], None]:
        for one in processors:
            one.lose()
        self._on_change()

        def restore() -> None:
            for one in processors:
                one.restore()
            self._on_change()

        return restore


def _all(each: Sequence[Callable[[], None]]) -> Callable[[], None]:
    def undo() -> None:
        for one in each:
            one()

    return undo


def _listed(values: list[T], value: T | None) -> Callable[[], None]:
    assert value is not None, "checked when it was read"
    values.append(value)
    return lambda: values.remove(value)
