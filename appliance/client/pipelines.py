"""Pipelines of a box: as they are defined, and frames through them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
        timeout_ms: float | None = None,
        client: str | None = None,
        frame: int | None = None,
    ) -> FrameShape:
        """Send a file, its bytes, or (text, tensors) a JSON object through a pipeline."""
        headers = _headers(client, frame)
        answer = self._ask(_predict(name), media, content_type, {"timeout_ms": timeout_ms}, headers)
        return FrameShape.model_validate_json(answer)

    def run_pipeline_later(
        self,
        name: str,
        media: bytes | Path | Mapping[str, Any],
        *,
        content_type: str = BYTES,
        timeout_ms: float | None = None,
        client: str | None = None,
        frame: int | None = None,
    ) -> RequestShape:
        """As `run_pipeline`, without waiting for the answer: `request` fetches it, until a minute after it is there."""
        query = {"wait": False, "timeout_ms": timeout_ms}
        answer = self._ask(_predict(name), media, content_type, query, _headers(client, frame))
        return RequestShape.model_validate_json(answer)


def _predict(pipeline: str) -> str:
    return f"/v1/pipelines/{pipeline}/predict"


def _headers(client: str | None, frame: int | None) -> dict[str, str]:
    given = {"X-Client": client, "X-Frame": None if frame is None else str(frame)}
    return {name: value for name, value in given.items() if value is not None}
