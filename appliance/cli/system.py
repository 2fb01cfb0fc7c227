"""`appliance system`: the box and the machine that it runs on."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.wire.box import ProcessorShape, SensorsShape, SystemShape


@connected
def system(box: Connection) -> None:
    """Show the box at a glance: version, Python and how it was built, memory, disk, what waits and runs.

    [dim]$[/dim] appliance system
    """
    from appliance.domain.errors import Forbidden

    sensors = None
    with box.client() as client:
        now, processors = client.system(), client.processors()
        with suppress(Forbidden):  # a tenant's key
            sensors = client.sensors()
    if box.as_json:
        screen.show_json(now)
    else:
        show(now, processors)
        for line in () if sensors is None else _sensed(sensors):
            print(f"  sensors       {line}")


def show(now: "SystemShape", processors: "list[ProcessorShape]") -> None:
    """Print what the box says of itself, and of its processors."""
    print(f"{now.name} {now.version}   {'ready' if now.ready else 'not ready'}   up {now.uptime_s / 3600:.1f} h")
    print(f"  Python        {now.python} ({now.python_build or 'build not known'})")
    print(f"  machine       {now.machine}, {screen.count(now.cores, 'core')}{_bound(now.cores_bound)}")
    for one in processors:
        print(f"  processor     {_in_words(one)}")
    memory = f"{_mb(now.memory_available_bytes)} of {_mb(now.memory_total_bytes)} available"
    print(f"  memory        {memory}{_bound(now.memory_bound)}")
    print(f"  service       {_mb(now.process_bytes)}")
    print(f"  disk          {_mb(now.disk_free_bytes)} free")
    print(f"  models        {_models(now)}")
    print(f"  requests      {now.engine['queued']} wait, {now.engine['running']} run")


def _models(now: "SystemShape") -> str:
    """Whose models there are: an admin acts in one tenant at a time."""
    own = f"{now.models}, {screen.count(now.applications, 'application')}"
    if now.models_of_all is None or now.applications_of_all is None:
        return own
    every = f"{now.models_of_all}, {screen.count(now.applications_of_all, 'application')} of all tenants"
    return f"{every}; the tenant {now.tenant} sees {own}"


def _bound(limit: str) -> str:
    """What keeps the box from having more of the machine; workers and the memory budget follow from it."""
    if not limit:
        return ""
    return " (by its affinity)" if limit == "affinity" else f" (by the limit of its container or unit, {limit})"


def _in_words(one: "ProcessorShape") -> str:
    """Name, state, and what is known beside; an operator's key is told more."""
    told = f"{one.name}, {one.state}"
    if one.reason:
        told += f": {one.reason}"
    if one.workers is not None and one.runs is not None:
        batch = "" if one.mean_batch is None else f", mean batch {one.mean_batch:.1f}"
        told += f"   ({screen.count(one.workers, 'worker')}, {screen.count(one.runs, 'run')}{batch})"
    return told


def _sensed(sensors: "SensorsShape") -> Iterator[str]:
    """What is throttled, then a line for each device: its hottest place, and all the rest that is known of it."""
    for one in sensors.throttled:
        yield f"{one.device} throttled: {one.reason}"
    for device in sorted({one.device for one in sensors.readings}, key=lambda name: (name == "", name)):
        known = [one for one in sensors.readings if one.device == device and one.value is not None]
        heat = [one.value for one in known if one.quantity == "celsius" and one.value is not None]
        words = [f"{max(heat):.0f} °C"] if heat else []
        words += [f"{one.name} {one.value:.1f} W" for one in known if one.quantity == "watts"]
        clocks = [one.value for one in known if one.quantity == "megahertz" and one.value is not None]
        words += [f"{max(clocks):,.0f} MHz"] if clocks else []
        words += [f"{one.name} {one.value:.0f} rpm" for one in known if one.quantity == "rpm"]
        if words:
            yield f"{device or 'machine'}: {', '.join(words)}"


def _mb(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
