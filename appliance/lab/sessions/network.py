"""The emulated link of one device of a scenario, both ways."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from appliance.lab.links.link import Link, LinkShape
from appliance.lab.links.trace import Trace, drawn, of_rows, read_trace, stairs, steady
from appliance.lab.session_shapes import NetworkShape

SOCKET_BYTES = 1 << 40
"""A device's socket keeps what its link cannot take yet: nothing of it is lost but in an outage."""
LEAST = 0.1
"""Of a mean: a rate that is drawn is never less, as one of 0 would let nothing through."""
Outage = tuple[int, int]
"""From when to when nothing comes through, nanoseconds after the start."""


@dataclass(frozen=True)
class DeviceNetwork:
    """Both directions; `uplink`: the rate of one of them over time."""

    up: Link
    down: Link
    uplink: Trace
    outages: tuple[Outage, ...]
    shape: NetworkShape

    def outage_at(self, at_ns: int) -> Outage | None:
        """That in which a time lies."""
        return next((one for one in self.outages if one[0] <= at_ns < one[1]), None)

    def way_ms(self, frame_bytes: float, result_bytes: float) -> float:
        """What a frame and its result take by the means, with nothing else on the link."""
        down_bps = self.shape.downlink_mbps * 1e6
        return self.shape.rtt_ms + 8000.0 * (frame_bytes / self.uplink.mean_bps + result_bytes / down_bps)


def network_of(
    shape: NetworkShape, seed: int, name: str, duration_s: float, base_dir: str, outages: tuple[Outage, ...]
) -> DeviceNetwork:
    """`seed`: the scenario's; `name`: the device's. Raises: Malformed (of a file)."""
    random = Random(f"{seed}/{name}/network")
    if shape.uplink_mbps is not None:
        uplink = _varying(shape.uplink_mbps, shape.uplink_sd, duration_s, random)
    elif shape.like is not None:
        uplink = stairs() if shape.like == "stairs" else drawn(shape.like, seed)
    else:
        assert shape.csv is not None, "checked when it was read"
        uplink = read_trace(Path(base_dir) / shape.csv, "network.csv")
    if shape.begins_anywhere:
        uplink = uplink.since(random.randrange(uplink.period_ns))
    delay_ms, jitter_ms = shape.rtt_ms / 2.0, shape.rtt_sd / 2.0**0.5
    down = LinkShape(steady(shape.downlink_mbps), delay_ms, jitter_ms, buffer_bytes=SOCKET_BYTES)
    up = LinkShape(uplink, delay_ms, jitter_ms, buffer_bytes=SOCKET_BYTES)
    links = [Link(one, random.randrange(1 << 30), outages) for one in (up, down)]
    return DeviceNetwork(links[0], links[1], uplink, outages, shape)


def _varying(mean_mbps: float, sd_mbps: float, duration_s: float, random: Random) -> Trace:
    """A value a second, independent of one another."""
    if not sd_mbps:
        return steady(mean_mbps)
    seconds = int(duration_s) + 1
    return of_rows([(float(at), max(LEAST * mean_mbps, random.gauss(mean_mbps, sd_mbps))) for at in range(seconds)])
