"""`appliance system`: the box and the machine that it runs on."""

from typing import TYPE_CHECKING

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.wire.box import ProcessorShape, SystemShape


@connected
def system(box: Connection) -> None:
    """Show the box at a glance: version, Python and how it was built, memory, disk, what waits and runs.

    [dim]$[/dim] appliance system
    """
    with box.client() as client:
        now, processors = client.system(), client.processors()
    if box.as_json:
        screen.show_json(now)
    else:
        _print(now, processors)


def _print(now: "SystemShape", processors: "list[ProcessorShape]") -> None:
    print(f"{now.name} {now.version}   {'ready' if now.ready else 'not ready'}   up {now.uptime_s / 3600:.1f} h")
    print(f"  Python        {now.python} ({now.python_build or 'build not known'})")
    print(f"  machine       {now.machine}, {screen.count(now.cores, 'core')}")
    for one in processors:
        print(f"  processor     {_in_words(one)}")
    print(f"  memory        {_mb(now.memory_available_bytes)} of {_mb(now.memory_total_bytes)} available")
    print(f"  service       {_mb(now.process_bytes)}")
    print(f"  disk          {_mb(now.disk_free_bytes)} free")
    print(f"  models        {now.models}, {screen.count(now.applications, 'application')}")
    print(f"  requests      {now.engine['queued']} wait, {now.engine['running']} run")


def _in_words(one: "ProcessorShape") -> str:
    """Name, state, and what is known beside; an operator's key is told more."""
    told = f"{one.name}, {one.state}"
    if one.reason:
        told += f": {one.reason}"
    if one.workers is not None and one.runs is not None:
        told += f"   ({screen.count(one.workers, 'worker')}, {screen.count(one.runs, 'run')})"
    return told


def _mb(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
