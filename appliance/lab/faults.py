"""What goes wrong in a scenario, and when: each fault switches something on at `at_s` and off again after `for_s`."""

from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from appliance.clock import NS_PER_MS
from appliance.lab.loop import START_NS, VirtualClock
from appliance.lab.problems.base import Malformed, Name, Positive, Shape, known
from appliance.lab.processors import EmulatedProcessor
from appliance.lab.workload import nanoseconds

PROCESSOR_LOST = "processor-lost"
SLOW_DOWN = "slow-down"
LOAD_FAILS = "load-fails"
CLOCK_STEP = "clock-step"
KINDS = (PROCESSOR_LOST, SLOW_DOWN, LOAD_FAILS, CLOCK_STEP)
PLANNED = ("memory-taken", "link-down")
"""Kinds of the format that nothing here can suffer yet."""


class Fault(Shape):
    """One entry of `[[faults]]`. Without `for_s` it lasts to the end; a step of the clock always does."""

    kind: Name
    at_s: Annotated[float, Field(ge=0, le=1e8)]
    for_s: Annotated[float, Field(gt=0, le=1e8)] | None = None
    target: Name | None = None
    """A processor; of `load-fails` an application, too."""
    application: Name | None = None
    factor: Positive | None = None
    mb: Positive | None = None
    ms: Annotated[float, Field(ge=-1e13, le=1e13)] | None = None


def check_faults(faults: Sequence[Fault], applications: Sequence[str], processors: Sequence[str]) -> None:
    """Raises: Malformed."""
    for i, fault in enumerate(faults):
        key = f"faults[{i}]"
        if fault.kind in PLANNED:
            raise Malformed(f"{key}.kind", f"{fault.kind!r} is not built yet")
        known(fault.kind, KINDS, f"{key}.kind")
        if fault.kind in (PROCESSOR_LOST, SLOW_DOWN) and fault.target is not None:
            known(fault.target, processors, f"{key}.target")
        if fault.kind == SLOW_DOWN and fault.factor is None:
            raise Malformed(f"{key}.factor", "is missing")
        if fault.kind == CLOCK_STEP and fault.ms is None:
            raise Malformed(f"{key}.ms", "is missing")
        if fault.kind == LOAD_FAILS:
            _check_application(fault, applications, key)


def _check_application(fault: Fault, applications: Sequence[str], key: str) -> None:
    field = "application" if fault.application is not None or fault.target is None else "target"
    name = getattr(fault, field)
    if name is None:
        raise Malformed(f"{key}.{field}", "is missing")
    known(name, applications, f"{key}.{field}")


async def inflict(fault: Fault, clock: VirtualClock, processor: EmulatedProcessor) -> None:
    """Wait for the fault's time, let it happen, and end it."""
    await clock.sleep_until_ns(START_NS + nanoseconds(fault.at_s))
    end = _begin(fault, clock, processor)
    if fault.for_s is not None:
        await clock.sleep_until_ns(START_NS + nanoseconds(fault.at_s) + nanoseconds(fault.for_s))
        end()


def _begin(fault: Fault, clock: VirtualClock, processor: EmulatedProcessor) -> Callable[[], None]:
    """Switch the fault on; the way to switch it off again."""
    ailments = processor.ailments
    match fault.kind:
        case "processor-lost":
            processor.lose()
            return processor.restore
        case "slow-down":
            assert fault.factor is not None, "checked when it was read"
            factor = fault.factor
            ailments.slow_factors.append(factor)
            return lambda: ailments.slow_factors.remove(factor)
        case "load-fails":
            application = fault.application or fault.target
            assert application is not None, "checked when it was read"
            ailments.failing_applications.append(application)
            return lambda: ailments.failing_applications.remove(application)
        case "clock-step":
            assert fault.ms is not None, "checked when it was read"
            clock.step_ns += round(fault.ms * NS_PER_MS)
            return lambda: None
        case _:
            raise AssertionError(fault.kind)
