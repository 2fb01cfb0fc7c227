"""The devices of `appliance stream`: a thread each for its camera beside that of its sockets, and what became of them.

What a session was promised and what was kept is the box's word; frames, times and what is shown are the devices' own.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import process_time
from typing import TYPE_CHECKING, Any

from appliance.client.device import Accuracy, Box, Device, Latency, Promise
from appliance.client.device.sources import NoSource, Source, opened
from appliance.client.errors import NoAnswer, UnexpectedAnswer
from appliance.clock import NS_PER_S, Clock, SystemClock, pause_s
from appliance.domain.errors import ApplianceError, PromiseNotPossible
from appliance.domain.session import FrameEnd
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    from rich.table import Table

TICK_S = 0.5
LAST_NS, LAST_TICK_S = NS_PER_S, 0.01
"""So long the ends of the frames that were sent last are waited for."""
COLUMNS = ("DEVICE", "STATE", "PROMISE", "KEPT", "SENT", "IN TIME", "P50 ms", "P99 ms", "EVERY", "DROP")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line said."""

    source: str
    application: str | None
    pipeline: str | None
    """One of the two."""
    slo_ms: float | None
    drop: float | None
    rate: float | None
    fps: float | None
    devices: int
    duration_s: float | None
    wait: bool

    def promise(self, fps: float) -> Promise:
        """Of each device."""
        if self.slo_ms is not None:
            return Latency(self.slo_ms, min(self.rate or fps, fps))
        assert self.drop is not None
        return Accuracy(self.drop)


@dataclass(slots=True)
class Stay:
    """One device's stay, while it lasts and after."""

    name: str
    device: Device
    promise: Promise
    box: dict[str, Any] = field(default_factory=dict)
    """The session as the box last told."""
    state: str = ""
    """When it was left."""
    cpu_ms_per_frame: float | None = None
    """Of the whole process, over the frames of all its devices."""


class _Camera(threading.Thread):
    """Gives the frames of a source to a device, at its pace, until it is to stop; a frame that is late is left out."""

    def __init__(self, source: Source, device: Device, fps: float, clock: Clock) -> None:
        super().__init__(name="camera", daemon=True)
        self._source = source
        self._device = device
        self._fps = fps
        self._clock = clock
        self._is_over = threading.Event()

    def run(self) -> None:
        period_ns = int(NS_PER_S / self._fps)
        due_ns = self._clock.now_ns()
        for frame in self._source.frames():
            self._device.see(frame)
            if self._source.is_live:
                wait_ns = 0
            else:
                due_ns = max(due_ns + period_ns, self._clock.now_ns())
                wait_ns = due_ns - self._clock.now_ns()
            if self._is_over.wait(wait_ns / NS_PER_S):
                return

    def stop(self) -> None:
        self._is_over.set()
        self.join()
        self._source.close()


def streamed(box: Box, asked: Asked, *, stderr: bool = False) -> list[Stay]:
    """Stream until the time is over or Ctrl-C, with a live table on a terminal. Raises: CommandFailed (no source),
    what the box refuses, NoAnswer (it has hung, at the start or since), OSError (nothing is at its address).
    """
    clock, stays, cameras = SystemClock(), list[Stay](), list[_Camera]()
    spent_s, has_hung = process_time(), False
    try:
        for number in range(asked.devices):
            source = _opened(asked.source)
            fps = asked.fps or source.fps
            name = f"stream-{number + 1}"
            promise = asked.promise(fps)
            device = Device(
                box,
                asked.application,
                pipeline=asked.pipeline,
                fps=fps,
                promise=promise,
                name=name,
                wait=asked.wait,
            )
            _join(device)
            stays.append(Stay(name, device, promise))
            cameras.append(_Camera(source, device, fps, clock))
            cameras[-1].start()
        _watch(stays, clock, asked.duration_s, stderr)
    except NoAnswer:
        has_hung = True
        raise
    finally:
        for camera in cameras:
            camera.stop()
        _until_answered(stays, clock)
        spent_s = process_time() - spent_s
        frames = sum(stay.device.counts.captured for stay in stays)
        for stay in stays:
            stay.cpu_ms_per_frame = 1000.0 * spent_s / frames if frames else None
            try:
                if not has_hung:
                    _ask(stay)
            except NoAnswer:  # the table has what was told before
                has_hung = True
            stay.state = stay.device.state
            stay.device.leave(is_told=not has_hung)
    return stays


def document_of(stays: Sequence[Stay]) -> dict[str, Any]:
    """What `--json` prints."""
    # Sessions that are planned together have the same decisions: those of whom there were most.
    told = [stay.box["decisions"] for stay in stays if "decisions" in stay.box]
    none = {"count": 0, "mean_ms": None, "p99_ms": None}
    return {"sessions": [_row(stay) for stay in stays], "plans": max(told, key=lambda one: one["count"], default=none)}


def table_of(stays: Sequence[Stay]) -> "Table":
    """The same for a person."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    called = " or ".join(dict.fromkeys(stay.device.accuracy_meaning for stay in stays)).upper()
    for at, column in enumerate((*COLUMNS, called)):
        table.add_column(column, justify="right" if at > 2 else "left")
    for stay in stays:
        row = _row(stay)
        kept = "–" if not row["windows"] else f"{row['kept']} of {row['windows']}"
        table.add_row(
            stay.name,
            row["state"],
            _in_words(stay.promise),
            kept,
            f"{row['sent']} of {row['captured']}",
            in_time_of(row),
            screen.milliseconds(row["p50_ms"]),
            screen.milliseconds(row["p99_ms"]),
            "–" if row["interval_mean"] is None else f"{row['interval_mean']:.1f}",
            screen.share(row["drop_mean"]),
            screen.share(row["accuracy_mean"]),
        )
    return table


def in_time_of(row: Mapping[str, Any]) -> str:
    """The part of the frames that were sent: those that the plan leaves out are no misses."""
    return "–" if not row["sent"] else f"{row['answered'] / row['sent']:.1%}"


def _row(stay: Stay) -> dict[str, Any]:
    device, counts = stay.device, stay.device.counts
    latencies = sorted(device.latencies_ms)
    accuracies = list(device.accuracies)
    return {
        "name": stay.name,
        "state": stay.state or device.state,
        "promise": stay.promise.order(),
        "windows": stay.box.get("windows", 0),
        "kept": stay.box.get("kept", 0),
        "captured": counts.captured,
        "sent": counts.sent,
        "answered": counts.ends[FrameEnd.ANSWERED],
        "late": counts.ends[FrameEnd.LATE],
        "dropped": counts.ends[FrameEnd.DROPPED],
        "lost": counts.ends[FrameEnd.LOST],
        "skipped": counts.skipped,
        "p50_ms": _percentile(latencies, 0.5),
        "p99_ms": _percentile(latencies, 0.99),
        "interval_mean": counts.captured / counts.sent if counts.sent else None,
        "drop_mean": device.drop_mean,
        "accuracy_mean": sum(accuracies) / len(accuracies) if accuracies else None,
        "reconnects": device.reconnects,
        "cpu_ms_per_frame": stay.cpu_ms_per_frame,
    }


def _watch(stays: Sequence[Stay], clock: Clock, duration_s: float | None, stderr: bool) -> None:
    end_ns = None if duration_s is None else clock.now_ns() + int(duration_s * NS_PER_S)
    console = screen.console(stderr=stderr)

    def until_over(show: Callable[[], None]) -> None:
        while end_ns is None or clock.now_ns() < end_ns:
            for stay in stays:
                _ask(stay)
            show()
            left_s = TICK_S if end_ns is None else min(TICK_S, (end_ns - clock.now_ns()) / NS_PER_S)
            pause_s(max(0.0, left_s))

    try:
        if not console.is_terminal:
            until_over(lambda: None)
            return
        from rich.live import Live

        with Live(console=console, auto_refresh=False, transient=True) as live:
            until_over(lambda: live.update(table_of(stays), refresh=True))
    except KeyboardInterrupt:
        pass  # the usual end


def _ask(stay: Stay) -> None:
    """What the box has of a session; what it does not tell now, as while it starts anew, stays as it was.

    Raises: NoAnswer, where it has hung: nothing would tell a person.
    """
    try:
        stay.box = stay.device.box_says()
    except NoAnswer:
        raise
    except (ApplianceError, UnexpectedAnswer, OSError):
        pass


def _join(device: Device) -> None:
    """Raises: CommandFailed, with promises that are possible as one would ask for them here."""
    try:
        device.join()
    except PromiseNotPossible as error:
        asked_for = [_as_options(offer) for offer in error.offers]
        raise CommandFailed(f"{error}{': ' if asked_for else ''}{', or '.join(asked_for)}") from error


def _as_options(offer: Mapping[str, Any]) -> str:
    if offer.get("kind") == "accuracy":
        return f"--drop {offer['drop_max']:g}"
    return f"--slo-ms {offer['slo_ms']:g} --rate {offer['rate_rps']:g}"


def _until_answered(stays: Sequence[Stay], clock: Clock) -> None:
    """What was sent last has its end, too: a device that leaves at once loses it."""
    end_ns = clock.now_ns() + LAST_NS
    while clock.now_ns() < end_ns and any(stay.device.under_way for stay in stays):
        pause_s(LAST_TICK_S)


def _opened(source: str) -> Source:
    try:
        return opened(source)
    except (NoSource, ImportError) as error:
        raise CommandFailed(str(error)) from error


def _in_words(promise: Promise) -> str:
    if isinstance(promise, Latency):
        return f"{promise.rate_rps:.3g}/s within {promise.slo_ms:.0f} ms"
    return f"drop ≤ {promise.drop_max:.3g}"


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
