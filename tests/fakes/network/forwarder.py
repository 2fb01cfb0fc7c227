"""The process that carries packets over emulated links: from the TUN device of one end to that of the other.

Its first line of input is the links, each later one an outage; it ends with its input, and writes what went over the
links to the file that its argument names.
"""

import heapq
import json
import os
import select
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypedDict

from appliance.clock import NS_PER_MS, NS_PER_S, SystemClock
from appliance.lab.links.link import Link, LinkShape, Passage
from appliance.lab.links.trace import Trace

_PACKET_BYTES_MAX = 65536


class Order(TypedDict):
    """One device's link: `box` and `device` are the files of its two TUN devices."""

    name: str
    box: int
    device: int
    up: dict[str, Any]
    down: dict[str, Any]
    seed: int


def shape_to_json(shape: LinkShape) -> dict[str, Any]:
    trace = shape.trace
    return {
        "trace": [trace.begins_ns, trace.rates_bps, trace.period_ns],
        "delay_ms": shape.delay_ms,
        "jitter_ms": shape.jitter_ms,
        "loss": shape.loss,
        "buffer_bytes": shape.buffer_bytes,
        "jitter_bytes": shape.jitter_bytes,
    }


def shape_of_json(found: dict[str, Any]) -> LinkShape:
    begins_ns, rates_bps, period_ns = found["trace"]
    return LinkShape(**{**found, "trace": Trace(tuple(begins_ns), tuple(rates_bps), period_ns)})


@dataclass(frozen=True, slots=True)
class _Way:
    """One direction of one device's link."""

    device: str
    name: str
    link: Link
    into: int
    """The file of the other end."""


class Forwarder:
    """Carries packets until its input ends. Times are since its start."""

    def __init__(self, order: Sequence[Order], log: Path) -> None:
        self._clock = SystemClock()
        self._start_ns = self._clock.now_ns()
        self._ways: dict[int, _Way] = {}
        for one in order:
            up, down = (
                Link(shape_of_json(shape), one["seed"] * 2 + at) for at, shape in enumerate((one["up"], one["down"]))
            )
            self._ways[one["device"]] = _Way(one["name"], "up", up, one["box"])
            self._ways[one["box"]] = _Way(one["name"], "down", down, one["device"])
        self._under_way: list[tuple[int, int, int, bytes]] = []
        self._numbers = count()
        self._passages: list[tuple[_Way, Passage]] = []
        self._log = log

    def carry(self, orders: int) -> None:
        """`orders`: the file from which more comes."""
        left = b""
        while True:
            readable, _, _ = select.select([*self._ways, orders], [], [], self._pause_s())
            for file in readable:
                if file != orders:
                    self._take(file)
                    continue
                said = os.read(orders, 65536)
                if not said:
                    self._tell()
                    return
                *lines, left = (left + said).split(b"\n")
                for line in lines:
                    self._cut(**json.loads(line))
            self._hand_over()

    def _now_ns(self) -> int:
        return self._clock.now_ns() - self._start_ns

    def _pause_s(self) -> float | None:
        return max(0, self._under_way[0][0] - self._now_ns()) / NS_PER_S if self._under_way else None

    def _take(self, file: int) -> None:
        way = self._ways[file]
        try:
            while True:
                packet = os.read(file, _PACKET_BYTES_MAX)
                passage = way.link.passes(self._now_ns(), len(packet))
                self._passages.append((way, passage))
                if passage.out_ns is not None:
                    heapq.heappush(self._under_way, (passage.out_ns, next(self._numbers), way.into, packet))
        except BlockingIOError:
            return  # all is read

    def _hand_over(self) -> None:
        now_ns = self._now_ns()
        while self._under_way and self._under_way[0][0] <= now_ns:
            _, _, into, packet = heapq.heappop(self._under_way)
            try:
                os.write(into, packet)
            except OSError:
                continue  # that end has no room, or is gone

    def _cut(self, cut: str, for_ms: float) -> None:
        now_ns = self._now_ns()
        for way in self._ways.values():
            if way.device == cut:
                way.link.cut(now_ns, now_ns + round(for_ms * NS_PER_MS))

    def _tell(self) -> None:
        with self._log.open("w") as file:
            for way, one in self._passages:
                file.write(json.dumps([way.device, way.name, one.in_ns, one.size_bytes, one.out_ns]) + "\n")


def main() -> None:
    orders = sys.stdin.buffer.fileno()
    first = b""
    while not first.endswith(b"\n"):  # no more than the first line
        first += os.read(orders, 1)
    forwarder = Forwarder(json.loads(first), Path(sys.argv[1]))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    forwarder.carry(orders)


if __name__ == "__main__":
    main()
