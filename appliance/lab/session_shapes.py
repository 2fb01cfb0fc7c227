"""Devices as a scenario writes them, `[[sessions]]`: how many, when they come, their promises and their links."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from appliance.lab.drop_rates import Rates, read_rates
from appliance.lab.links.trace import read_trace
from appliance.lab.problems.base import Malformed, Name, NotNegative, Positive, Shape, known, refuse_duplicates

DEVICES_MAX = 4096
FRAMES_MAX = 100_000_000
"""Captures of one scenario."""
Mbps = Annotated[float, Field(gt=0, le=1e6)]


class NetworkShape(Shape):
    """The link of a device: a rate drawn anew each second, read from a file, or like a measured one, and delays.

    Half of `rtt_ms` each way. `csv` (columns `time_s,uplink_mbps`) or `like` stand in place of `uplink_mbps`.
    """

    uplink_mbps: Mbps | None = None
    uplink_sd: NotNegative = 0.0
    downlink_mbps: Mbps = 100.0
    rtt_ms: Annotated[float, Field(ge=0, le=1e5)] = 20.0
    rtt_sd: NotNegative = 0.0
    csv: Name | None = None
    like: Literal["lte", "wifi", "5g", "lte-fast", "stairs"] | None = None
    """An uplink like a measured one (`lab/links/trace.py`), the same for all devices of a scenario but for where each
    begins."""
    begins_anywhere: bool = False
    """Each device begins at a point of the file of its own, so that they do not go in lock-step."""


class SessionShape(Shape):
    """One entry of `[[sessions]]`, of an application or a pipeline. With `accuracy_slo` its devices are promised an
    accuracy, else a latency.
    """

    name: Name
    count: Annotated[int, Field(ge=1, le=DEVICES_MAX)] = 1
    application: Name | None = None
    pipeline: Name | None = None
    fps: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Frames captured; None: as many as `rate_rps`."""
    rate_rps: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Frames to be answered, of a promise of latency; None: all."""
    latency_slo_ms: Annotated[float, Field(ge=1, le=60_000)] | None = None
    """From capture to answer; None: the application's, or the pipeline's."""
    accuracy_min: Annotated[float, Field(ge=0, le=100)] | None = None
    accuracy_slo: Annotated[float, Field(gt=0, le=1)] | None = None
    reference: Literal["dedicated", "fresh"] = "dedicated"
    """What `accuracy_slo` is measured against: a box that serves nobody else behind the same link, as in the paper and
    in problems of kind `offload`; or a fresh result."""
    drop_rate: Annotated[float, Field(ge=0, le=1)] | Name = 0.006
    """Share of 1 that is lost with each frame of age; or a file (columns `time_s,drop_rate`, from the device's
    arrival on, repeated)."""
    arrive_s: NotNegative = 0.0
    arrival_rps: Positive | None = None
    """They come by themselves from `arrive_s` on, so many a second on average (Poisson); None: all at once."""
    stay_s: Positive | None = None
    """None: to the end."""
    fits: Literal["deadline", "rate"] = "deadline"
    """What a device makes its pictures small enough for: to be answered in time, as the SDK does; or only so that its
    link keeps up with their rate, as the baselines of Jellyfish do."""
    sends_px: Annotated[int, Field(ge=16, le=8192)] | None = None
    """Longer side of all its pictures, whatever plans and the link say; None: as they say."""
    weight: Positive = 1
    result_bytes: NotNegative = 2000
    network: NetworkShape = Field(NetworkShape(uplink_mbps=100.0))

    @property
    def captures_fps(self) -> float:
        """Frames captured a second."""
        fps = self.fps or self.rate_rps
        assert fps is not None, "checked when it was read"
        return fps

    def names(self) -> list[str]:
        """Of its devices."""
        return [self.name] if self.count == 1 else [f"{self.name}-{n}" for n in range(1, self.count + 1)]

    def rates(self, base_dir: str, key: str = "drop_rate") -> Rates:
        """What is lost with age. Raises: Malformed (of a file)."""
        if isinstance(self.drop_rate, str):
            return read_rates(Path(base_dir) / self.drop_rate, key)
        return Rates((0,), (self.drop_rate,), 1)


def check_sessions(
    entries: Sequence[SessionShape],
    slo_ms_of: Mapping[str, float | None],
    duration_s: float | None,
    base_dir: str,
    pipelines: Collection[str] = (),
) -> None:
    """`slo_ms_of`: application → its own; `pipelines`: those that there are. Raises: Malformed."""
    refuse_duplicates((entry.name for entry in entries), "sessions")
    refuse_duplicates((name for entry in entries for name in entry.names()), "sessions")
    if entries and duration_s is None:
        raise Malformed("duration_s", "is missing")
    if sum(entry.count for entry in entries) > DEVICES_MAX:
        raise Malformed("sessions", f"are more than {DEVICES_MAX} devices")
    for i, entry in enumerate(entries):
        key = f"sessions[{i}]"
        _check_target(entry, key, slo_ms_of, pipelines)
        if entry.fps is None and entry.rate_rps is None:
            raise Malformed(f"{key}.fps", "is missing")
        if entry.accuracy_slo is not None:
            for other in ("latency_slo_ms", "rate_rps", "accuracy_min"):
                if getattr(entry, other) is not None:
                    raise Malformed(f"{key}.{other}", "goes with no accuracy_slo")
        network = entry.network
        if [network.uplink_mbps, network.csv, network.like].count(None) != 2:
            raise Malformed(f"{key}.network", "needs exactly one of uplink_mbps, csv, like")
        if network.csv is not None:
            read_trace(Path(base_dir) / network.csv, f"{key}.network.csv")
        entry.rates(base_dir, f"{key}.drop_rate")
    frames = sum(entry.count * entry.captures_fps * min(entry.stay_s or 1e12, duration_s or 0) for entry in entries)
    if frames > FRAMES_MAX:
        raise Malformed("duration_s", f"about {frames:.0f} frames are more than {FRAMES_MAX}")


def _check_target(
    entry: SessionShape, key: str, slo_ms_of: Mapping[str, float | None], pipelines: Collection[str]
) -> None:
    """What its frames go to, and what may be promised there."""
    if (entry.application is None) == (entry.pipeline is None):
        raise Malformed(key, "needs exactly one of application, pipeline")
    if entry.pipeline is not None:
        known(entry.pipeline, list(pipelines), f"{key}.pipeline")
        for other in ("accuracy_slo", "accuracy_min"):
            if getattr(entry, other) is not None:
                raise Malformed(f"{key}.{other}", "goes with no pipeline, of which there is a promise of latency only")
        return
    assert entry.application is not None
    known(entry.application, list(slo_ms_of), f"{key}.application")
    if entry.accuracy_slo is None and entry.latency_slo_ms is None and slo_ms_of[entry.application] is None:
        raise Malformed(f"{key}.latency_slo_ms", "is missing, as is accuracy_slo, and the application has none")
