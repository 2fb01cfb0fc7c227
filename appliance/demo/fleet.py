"""Device processes: one per application, started here, ended here, and their reports brought into the demo's thread.

A device gets its orders as one JSON line on standard input and reports JSON lines on standard output. Standard input
stays open as long as the demo lives: a device whose demo has gone reads its end and leaves.
"""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from appliance.clock import Clock, pause_s
from appliance.domain.errors import LimitReached, Unavailable

REPORTS_MAX = 10_000
STOP_S = 5
WAIT_S = 0.5
"""Between tries while an application has no variant yet, and after an error."""


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """What one device shall do with an application, or with a pipeline of that name."""

    url: str
    key: str
    """A device key of its own; it opens this one application."""
    application: str
    task: str
    rate_per_s: float
    inputs: tuple[str, ...]
    """Paths of files, sent in turn."""
    is_stream: bool = False
    """Whether the inputs are one sequence with a state on the box."""
    is_clip: bool = False
    """Whether they are the frames of a clip, which a session streams."""
    is_pipeline: bool = False
    """Whether they go through a pipeline."""


@dataclass(frozen=True, slots=True)
class Report:
    """A line of a device, by its number in the fleet: `kind` is answer, failure, or session."""

    device: int
    kind: str
    facts: dict[str, Any]


def report(**facts: object) -> None:
    """Tell the fleet, from the process of a device."""
    print(json.dumps(facts), flush=True)


def report_failure(error: Exception, clock: Clock) -> None:
    """Tell the fleet, and wait as long as the box asks for."""
    report(kind="failure", at_ns=clock.now_ns(), reason=str(error) or type(error).__name__)
    pause_s((error.retry_after_s if isinstance(error, LimitReached | Unavailable) else None) or WAIT_S)


class Fleet:
    """The running devices. `reports` may be asked from one thread only."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._reports: queue.Queue[Report] = queue.Queue(REPORTS_MAX)

    def start(self, order: DeviceOrder) -> int:
        """Start a device; returns its number."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "appliance.demo.device"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the demo, which ends its devices in order
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(order)) + "\n")
        process.stdin.flush()
        self._processes.append(process)
        number = len(self._processes) - 1
        threading.Thread(target=self._read, args=(number, process), daemon=True).start()
        return number

    def reports(self) -> Iterator[Report]:
        """What came since the last call."""
        while not self._reports.empty():
            yield self._reports.get_nowait()

    def stop(self) -> None:
        """End all devices: close their standard input, wait, kill those that stay."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _read(self, number: int, process: subprocess.Popen[str]) -> None:
        """In a thread per device. A full queue makes the device wait at its pipe rather than this process grow."""
        assert process.stdout is not None
        for line in process.stdout:
            facts = json.loads(line)
            self._reports.put(Report(number, facts.pop("kind"), facts))


@contextmanager
def fleet() -> Iterator[Fleet]:
    """A fleet that is ended on the way out."""
    devices = Fleet()
    try:
        yield devices
    finally:
        devices.stop()
