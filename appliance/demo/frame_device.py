"""A device that sends a pipeline one frame after the other, and reports what came of each. Run in the process of a
device (`appliance.demo.device`).
"""

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path

import httpx

from appliance.client import Client, UnexpectedAnswer
from appliance.clock import NS_PER_MS, Clock, pause_s
from appliance.demo.fleet import DeviceOrder
from appliance.demo.frames import cut_out, frame_in_words
from appliance.demo.reporting import report
from appliance.domain.errors import ApplianceError, LimitReached, PipelineNotPossible, Unavailable, UnknownClient
from appliance.terminal.media import content_type_of

WAIT_S = 0.5
"""After an error."""


class FrameDevice:
    """One device; one thread, one connection, one frame at a time."""

    def __init__(self, order: DeviceOrder, client: Client, clock: Clock) -> None:
        self._order = order
        self._client = client
        self._clock = clock
        self._id: str | None = None
        """As which client of the pipeline it sends."""

    def run(self, moments: Iterable[None]) -> None:
        """A frame at each moment."""
        for _, path in zip(moments, cycle(self._order.inputs), strict=False):
            self._send(Path(path))

    def _send(self, path: Path) -> None:
        body = path.read_bytes()
        begin_ns = self._clock.now_ns()
        try:
            frame = self._client.run_pipeline(
                self._order.application, body, content_type=content_type_of(path), client=self._joined()
            )
        except UnknownClient:
            self._id = None  # the box was silent, or this device: it joins anew with the next frame
        except (ApplianceError, UnexpectedAnswer, httpx.TransportError) as error:
            report(kind="failure", at_ns=self._clock.now_ns(), reason=str(error) or type(error).__name__)
            pause_s((error.retry_after_s if isinstance(error, LimitReached | Unavailable) else None) or WAIT_S)
        else:
            now_ns = self._clock.now_ns()
            report(
                kind="frame",
                at_ns=now_ns,
                latency_ms=(now_ns - begin_ns) / NS_PER_MS,
                is_in_time=frame.in_time,
                items=cut_out(frame.items),
                cost_s=frame.cost.seconds,
                recognised=frame_in_words(frame.items),
            )

    def _joined(self) -> str | None:
        """None: the box cannot hold the SLO for one more, and the frame goes unplanned."""
        if self._id is None:
            try:
                self._id = self._client.join_pipeline(self._order.application, self._order.rate_per_s).id
            except PipelineNotPossible:
                return None
        return self._id
