"""Pipelines of a box: as they are defined, and frames through them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

from appliance.client.sending import BYTES, JSON, Sending, listing
from appliance.wire.pipelines import (
    ClientOrder,
    ClientShape,
    FrameShape,
    PipelineChange,
    PipelineOrder,
    PipelineRowShape,
    PipelineShape,
    PipelineStatusShape,
)
from appliance.wire.requests import RequestShape


class FrameOptions(TypedDict, total=False):
    """What may be said beside the media of a frame; what is None, or left out, is the box's to choose."""

    timeout_ms: float | None
    client: str | None
    """Id of the client that has joined."""
    frame: int | None
    """Number of the frame, among its client's."""


class PipelineCalls(Sending):
    """Methods of a client about `/v1/pipelines`."""

    def pipelines(self, *, every_tenant: bool = False, summary: bool = False) -> Iterator[PipelineRowShape]:
        """All that this key can call, by name, or those of all tenants; a summary is without the stages."""
        return self._pages("/v1/pipelines", PipelineRowShape, listing(every_tenant=every_tenant, summary=summary))

    def pipeline(self, name: str) -> PipelineStatusShape:
        """One, with its plan, its clients and what became of its frames."""
        return self._get(f"/v1/pipelines/{name}", PipelineStatusShape)

    def create_pipeline(self, order: PipelineOrder) -> PipelineShape:
        """Define one. What cannot be run raises a `BadPipeline` with the `key` that is wrong."""
        return self._post("/v1/pipelines", order.model_dump_json(exclude_unset=True), PipelineShape)

    def change_pipeline(self, name: str, change: PipelineChange) -> PipelineShape:
        """Only fields that were set in `change` change."""
        content = change.model_dump_json(exclude_unset=True)
        response = self._send("PATCH", f"/v1/pipelines/{name}", content=content, headers=JSON)
        return PipelineShape.model_validate_json(response.content)

    def delete_pipeline(self, name: str) -> None:
        """The applications stay."""
        self._send("DELETE", f"/v1/pipelines/{name}")

    def join_pipeline(self, name: str, fps: float) -> ClientShape:
        """Say how many frames a second will come; its id goes with each frame. Raises PipelineNotPossible."""
        return self._post(f"/v1/pipelines/{name}/clients", ClientOrder(fps=fps).model_dump_json(), ClientShape)

    def leave_pipeline(self, name: str, client: str) -> None:
        """No more frames will come of this client."""
        self._send("DELETE", f"/v1/pipelines/{name}/clients/{client}")

    def run_pipeline(
        self,
        name: str,
        media: bytes | Path | Mapping[str, Any],
        *,
        content_type: str = BYTES,
        **options: Unpack[FrameOptions],
    ) -> FrameShape:
        """Send a file, its bytes, or (text, tensors) a JSON object through a pipeline."""
        return FrameShape.model_validate_json(self._frame(name, media, content_type, options))

    def run_pipeline_later(
        self,
        name: str,
        media: bytes | Path | Mapping[str, Any],
        *,
        content_type: str = BYTES,
        **options: Unpack[FrameOptions],
    ) -> RequestShape:
        """As `run_pipeline`, without waiting for the answer: `request` fetches it, until a minute after it is there."""
        return RequestShape.model_validate_json(self._frame(name, media, content_type, options, wait=False))

    def _frame(
        self,
        pipeline: str,
        media: bytes | Path | Mapping[str, Any],
        content_type: str,
        options: FrameOptions,
        *,
        wait: bool | None = None,
    ) -> bytes:
        query = {"wait": wait, "timeout_ms": options.get("timeout_ms")}
        given = {"X-Client": options.get("client"), "X-Frame": options.get("frame")}
        headers = {header: str(value) for header, value in given.items() if value is not None}
        return self._ask(f"/v1/pipelines/{pipeline}/predict", media, content_type, query, headers)
