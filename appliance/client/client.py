"""A client of `/v1`: every route as a method, shapes in and out, errors as the classes they were on the box.

Synchronous, one connection pool, safe to share between threads. Methods raise `ApplianceError` (the box refused),
`UnexpectedAnswer` (something else answered) and `httpx.TransportError` (nobody answered).
"""

import datetime
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypedDict, Unpack

import httpx

from appliance.client.errors import raise_for
from appliance.client.pieces import pieces
from appliance.client.pipelines import PipelineCalls
from appliance.client.sending import BYTES, JSON, listing
from appliance.client.sessions import SessionCalls
from appliance.domain.catalogue import TaskKind
from appliance.wire.access import (
    KeyOrder,
    KeyShape,
    NewKeyShape,
    QuotaShape,
    SignInLinkShape,
    TenantChange,
    TenantOrder,
    TenantShape,
    TenantWithUseShape,
)
from appliance.wire.audit import AuditShape
from appliance.wire.backups import BackupShape, ChoreShape, RestoreOrder, RestoreShape
from appliance.wire.box import EventShape, MemoryShape, ProcessorShape, SensorsShape, SettingShape, SystemShape
from appliance.wire.catalogue import (
    ApplicationChange,
    ApplicationOrder,
    ApplicationShape,
    ModelShape,
    ModelSummary,
    RunsShape,
    VariantShape,
)
from appliance.wire.decisions import DecisionShape
from appliance.wire.health import HealthShape
from appliance.wire.history import (
    HistoryShape,
    MemoryHistoryShape,
    PromiseHistoriesShape,
    PromiseHistoryShape,
    TenantUsedShape,
)
from appliance.wire.jobs import JobShape, UploadOrder, UploadShape
from appliance.wire.notable import NotableShape
from appliance.wire.notifications import ReceiverOrder, ReceiverShape, SentShape
from appliance.wire.predict import PredictShape
from appliance.wire.requests import RequestShape
from appliance.wire.simulations import SimulationOrder, SimulationShape, SimulationsShape

Progress = Callable[[int, int], None]
"""Called with (bytes sent, bytes in all)."""
FORM_BYTES_MAX = 32 * 2**20
"""Larger models go by `/v1/uploads`, which survives a broken line."""


class PredictOptions(TypedDict, total=False):
    """What may be said beside the media; what is None, or left out, is the box's to choose."""

    variant: str | None
    timeout_ms: float | None
    priority: int | None
    sequence_id: str | None
    sequence_start: bool
    sequence_end: bool


class Client(PipelineCalls, SessionCalls):
    """One box, one key. Use it in a `with` block, or `close` it."""

    # -- calling -------------------------------------------------------------------------------------------------------

    def predict(
        self,
        application: str,
        media: bytes | Path | Mapping[str, Any],
        *,
        content_type: str = BYTES,
        **options: Unpack[PredictOptions],
    ) -> PredictShape:
        """Ask about a file, its bytes, or (text, tensors) a JSON object. The box finds out by itself what bytes are."""
        return PredictShape.model_validate_json(self._ask(_predict(application), media, content_type, options))

    def predict_later(
        self,
        application: str,
        media: bytes | Path | Mapping[str, Any],
        *,
        content_type: str = BYTES,
        **options: Unpack[PredictOptions],
    ) -> RequestShape:
        """As `predict`, without waiting for the answer: `request` fetches it, until a minute after it is there."""
        answer = self._ask(_predict(application), media, content_type, {"wait": "false", **options})
        return RequestShape.model_validate_json(answer)

    def request(self, id: str) -> RequestShape:
        """What became of a request that is answered later."""
        return self._get(f"/v1/requests/{id}", RequestShape)

    def answered(self) -> dict[str, int]:
        """Application → requests that it has answered since the box started, over all variants."""
        counts: dict[str, int] = {}
        for row in self._send("GET", "/v2/models/stats").json()["model_stats"]:
            counts[row["name"]] = counts.get(row["name"], 0) + row["inference_stats"]["success"]["count"]
        return counts

    def computed(self) -> tuple[int, int]:
        """Items that were computed since the box started, of all applications together, and in how many runs."""
        rows = self._send("GET", "/v2/models/stats").json()["model_stats"]
        return sum(row["inference_count"] for row in rows), sum(row["execution_count"] for row in rows)

    def run_times(self, application: str) -> dict[str, list[float]]:
        """Variant → milliseconds of its latest warm runs of one item."""
        return self._get(f"/v1/applications/{application}/runs", RunsShape).variants

    def notable_requests(self, application: str) -> list[NotableShape]:
        """Why answers were late, cold, failed or by another variant, newest first, and samples of the others."""
        answer = self._send("GET", f"/v1/applications/{application}/requests").json()
        return [NotableShape.model_validate(one) for one in answer]

    # -- models --------------------------------------------------------------------------------------------------------

    def upload_model(
        self,
        path: Path,
        name: str,
        task: TaskKind | str,
        *,
        metadata: Mapping[str, Any] | None = None,
        labels: Path | None = None,
        tokenizer: Path | None = None,
        calibration: Path | None = None,
        evaluation: Path | None = None,
        application: str | None = None,
        shared: bool = False,
        upload: str | None = None,
        on_progress: Progress | None = None,
    ) -> JobShape:
        """Upload an ONNX file or archive, in one form or in pieces, and begin its import.

        `labels` is a text with one name a line, `calibration` and `evaluation` are archives. `upload` is the id of a
        finished upload of `path`: then nothing of it is sent again.
        """
        fields = {"name": name, "task": str(task), "metadata": json.dumps(dict(metadata or {}))}
        if application is not None:
            fields["application"] = application
        if shared:
            fields["shared"] = "true"
        parts = {"labels": labels, "tokenizer": tokenizer, "calibration": calibration, "evaluation": evaluation}
        beside = {key: file for key, file in parts.items() if file is not None}
        if upload is not None:
            fields["upload"] = upload
        return self._import("/v1/models", path, fields, beside, on_progress)

    def upload_variant(self, model: str, path: Path, name: str, *, on_progress: Progress | None = None) -> JobShape:
        """Upload a variant of one's own beside those the box made."""
        return self._import(f"/v1/models/{model}/variants", path, {"name": name}, {}, on_progress)

    def models(self, *, every_tenant: bool = False, summary: bool = False) -> Iterator[ModelSummary]:
        """All that this key sees, by name, or those of all tenants; a summary is without the names of variants."""
        return self._pages("/v1/models", ModelSummary, listing(every_tenant=every_tenant, summary=summary))

    def model(self, name: str) -> ModelShape:
        """One, with its variants."""
        return self._get(f"/v1/models/{name}", ModelShape)

    def delete_model(self, name: str) -> None:
        """Returns when running requests have ended and it is gone."""
        self._send("DELETE", f"/v1/models/{name}", timeout=None)

    def variants(self, model: str) -> Iterator[VariantShape]:
        """By name."""
        return self._pages(f"/v1/models/{model}/variants", VariantShape)

    def release_variant(self, model: str, variant: str) -> None:
        """Let a quarantined variant serve again."""
        self._send("POST", f"/v1/models/{model}/variants/{variant}/release")

    def delete_variant(self, model: str, variant: str) -> None:
        """The model goes on with the others."""
        self._send("DELETE", f"/v1/models/{model}/variants/{variant}", timeout=None)

    # -- uploads and jobs ----------------------------------------------------------------------------------------------

    def upload(self, path: Path, *, on_progress: Progress | None = None) -> UploadShape:
        """Send a file in pieces; a broken connection is taken up where the box stopped."""
        return self.resume_upload(self.begin_upload(path).id, path, on_progress=on_progress)

    def begin_upload(self, path: Path, sha256: str | None = None) -> UploadShape:
        """Announce a file; its bytes go by `resume_upload`.

        The box checks the digest, if there is one, when the upload is used.
        """
        order = UploadOrder(length=path.stat().st_size, sha256=sha256, file_name=path.name)
        return self._post("/v1/uploads", order.model_dump_json(), UploadShape)

    def resume_upload(self, upload: str, path: Path, *, on_progress: Progress | None = None) -> UploadShape:
        """Go on with an upload that was begun before, also by another process."""
        return pieces(self.append, lambda: self.upload_state(upload), path, on_progress)

    def append(self, upload: str, offset: int, content: Iterator[bytes]) -> UploadShape:
        """Send the bytes of an upload from an offset on. Raises: OffsetMismatch."""
        headers = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
        response = self._send("PATCH", f"/v1/uploads/{upload}", content=content, headers=headers)
        return UploadShape.model_validate_json(response.content)

    def upload_state(self, upload: str) -> UploadShape:
        """How far an upload has come."""
        return self._get(f"/v1/uploads/{upload}", UploadShape)

    def delete_upload(self, upload: str) -> None:
        """Drop an upload and its bytes."""
        self._send("DELETE", f"/v1/uploads/{upload}")

    def job(self, job: str) -> JobShape:
        """One import, as it stands."""
        return self._get(f"/v1/jobs/{job}", JobShape)

    def jobs(self, *, every_tenant: bool = False) -> Iterator[JobShape]:
        """The tenant's imports, or those of all, newest first."""
        return self._pages("/v1/jobs", JobShape, listing(every_tenant=every_tenant))

    def follow_job(self, job: str) -> Iterator[JobShape]:
        """The job now and after each change, until it has ended."""
        for event in self._events(f"/v1/jobs/{job}/events", {}):
            yield JobShape.model_validate_json(event.data)

    # -- applications --------------------------------------------------------------------------------------------------

    def applications(self, *, every_tenant: bool = False, summary: bool = False) -> Iterator[ApplicationShape]:
        """All that this key can call, by name, or those of all tenants; a summary has the first choice alone."""
        return self._pages("/v1/applications", ApplicationShape, listing(every_tenant=every_tenant, summary=summary))

    def application(self, name: str) -> ApplicationShape:
        """One, with the variants that would serve it."""
        return self._get(f"/v1/applications/{name}", ApplicationShape)

    def create_application(self, order: ApplicationOrder, *, strict: bool = False) -> ApplicationShape:
        """Register a use of a model. `strict`: raises SloNotKept in place of the answer's `warnings`."""
        return self._post(f"/v1/applications{_strict(strict)}", order.model_dump_json(), ApplicationShape)

    def change_application(self, name: str, change: ApplicationChange, *, strict: bool = False) -> ApplicationShape:
        """Only fields that were set in `change` change. `strict` as in `create_application`."""
        path = f"/v1/applications/{name}{_strict(strict)}"
        response = self._send("PATCH", path, content=change.model_dump_json(exclude_unset=True), headers=JSON)
        return ApplicationShape.model_validate_json(response.content)

    def load_application(self, name: str, variant: str | None = None) -> ApplicationShape:
        """Bring a variant into memory, the most wanted one unless named, and the application back into service."""
        query = {} if variant is None else {"variant": variant}
        answer = self._send("POST", f"/v1/applications/{name}/load", params=query, timeout=None)
        return ApplicationShape.model_validate_json(answer.content)

    def unload_application(self, name: str) -> ApplicationShape:
        """Take it out of service; returns when running requests have ended and its variants have left."""
        answer = self._send("POST", f"/v1/applications/{name}/unload", timeout=None)
        return ApplicationShape.model_validate_json(answer.content)

    def delete_application(self, name: str) -> None:
        """The model stays."""
        self._send("DELETE", f"/v1/applications/{name}")

    # -- simulations ---------------------------------------------------------------------------------------------------

    def simulate(self, order: SimulationOrder) -> SimulationShape:
        """Begin to simulate the box as it is and with edits. Needs an admin key."""
        return self._post("/v1/simulations", order.model_dump_json(), SimulationShape)

    def simulation(self, simulation: str) -> SimulationShape:
        """How far it is, and its figures."""
        return self._get(f"/v1/simulations/{simulation}", SimulationShape)

    def simulations(self) -> SimulationsShape:
        """Those that are kept, newest first, and the policies to choose from."""
        return self._get("/v1/simulations", SimulationsShape)

    def delete_simulation(self, simulation: str) -> None:
        """End and forget it."""
        self._send("DELETE", f"/v1/simulations/{simulation}")

    # -- tenants and keys ----------------------------------------------------------------------------------------------

    def tenants(self) -> Iterator[TenantShape]:
        """All for an admin, else the key's own."""
        return self._pages("/v1/tenants", TenantShape)

    def tenant(self, name: str) -> TenantWithUseShape:
        """One, with its quota and what it uses of that."""
        return self._get(f"/v1/tenants/{name}", TenantWithUseShape)

    def create_tenant(self, name: str, quota: QuotaShape | None = None) -> TenantShape:
        """Needs an admin key."""
        order = TenantOrder(name=name, quota=quota or QuotaShape())
        return self._post("/v1/tenants", order.model_dump_json(), TenantShape)

    def change_tenant(self, name: str, quota: QuotaShape) -> TenantShape:
        """Replace the quota. Needs an admin key."""
        content = TenantChange(quota=quota).model_dump_json()
        response = self._send("PUT", f"/v1/tenants/{name}", content=content, headers=JSON)
        return TenantShape.model_validate_json(response.content)

    def delete_tenant(self, name: str) -> None:
        """With its keys and applications; its models must be gone. Needs an admin key."""
        self._send("DELETE", f"/v1/tenants/{name}")

    def sign_in_link(self) -> SignInLinkShape:
        """A link that signs a browser in as this key; good once, for ten minutes."""
        return self._post("/v1/sign-in/links", "", SignInLinkShape)

    def keys(self, tenant: str) -> Iterator[KeyShape]:
        """A tenant's keys, without their secrets; `*`: those of all tenants."""
        return self._pages(f"/v1/tenants/{tenant}/keys", KeyShape)

    def create_key(self, tenant: str, order: KeyOrder) -> NewKeyShape:
        """The answer holds the secret, this once."""
        return self._post(f"/v1/tenants/{tenant}/keys", order.model_dump_json(), NewKeyShape)

    def revoke_key(self, tenant: str, key_id: str) -> None:
        """It stops working at once."""
        self._send("DELETE", f"/v1/tenants/{tenant}/keys/{key_id}")

    def receivers(self) -> Iterator[ReceiverShape]:
        """Yield the tenant's receivers of notifications; with an admin key also those of the box."""
        return self._pages("/v1/notifications", ReceiverShape)

    def add_receiver(self, order: ReceiverOrder) -> ReceiverShape:
        """Add a receiver; the answer has neither address nor token."""
        return self._post("/v1/notifications", order.model_dump_json(), ReceiverShape)

    def remove_receiver(self, receiver: str) -> None:
        """Send nothing more to a receiver."""
        self._send("DELETE", f"/v1/notifications/{receiver}")

    def test_receiver(self, receiver: str) -> SentShape:
        """Send a test message, and return its result."""
        return self._post(f"/v1/notifications/{receiver}/test", "", SentShape)

    # -- the box -------------------------------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether it answers inference requests; False also when nobody answers at all."""
        try:
            return self._http.get("/v2/health/ready", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def system(self) -> SystemShape:
        """The box at a glance."""
        return self._get("/v1/system", SystemShape)

    def health(self) -> HealthShape:
        """Return what is wrong with the box and its promises."""
        return self._get("/v1/health", HealthShape)

    def memory(self) -> MemoryShape:
        """What is in memory."""
        return self._get("/v1/memory", MemoryShape)

    def processors(self) -> list[ProcessorShape]:
        """What computes."""
        return [ProcessorShape.model_validate(one) for one in self._send("GET", "/v1/processors").json()]

    def settings(self) -> list[SettingShape]:
        """Every setting with where its value came from; for an admin key."""
        return [SettingShape.model_validate(one) for one in self._send("GET", "/v1/settings").json()]

    def sensors(self) -> SensorsShape:
        """Heat, watts and clocks; for an admin key."""
        return self._get("/v1/sensors", SensorsShape)

    def history(
        self,
        series: Sequence[str] = (),
        *,
        start: datetime.datetime | None = None,
        to: datetime.datetime | None = None,
        points: int | None = None,
    ) -> HistoryShape:
        """Figures between two times, of the last hour where none is said; without `series` the names of those there
        are.
        """
        query: dict[str, Any] = {"series": list(series), **_period(start, to)}
        if points is not None:
            query["points"] = points
        return HistoryShape.model_validate_json(self._send("GET", "/v1/history", params=query).content)

    def memory_history(
        self,
        *,
        start: datetime.datetime | None = None,
        to: datetime.datetime | None = None,
        application: str | None = None,
    ) -> MemoryHistoryShape:
        """Who was in memory between two times, in which variant, and why."""
        query = _period(start, to) | ({} if application is None else {"application": application})
        answer = self._send("GET", "/v1/memory/history", params=query)
        return MemoryHistoryShape.model_validate_json(answer.content)

    def promises(
        self, *, application: str | None = None, pipeline: str | None = None, every_tenant: bool = False
    ) -> list[PromiseHistoryShape]:
        """Return how promises were kept in the last hour, day and month; with cells where `application` or `pipeline`
        is named.
        """
        wanted = {"application": application, "pipeline": pipeline, "tenant": "*" if every_tenant else None}
        query = {name: value for name, value in wanted.items() if value is not None}
        answer = self._send("GET", "/v1/history/promises", params=query)
        return PromiseHistoriesShape.model_validate_json(answer.content).items

    def tenants_used(self, *, over: str = "day", sort: str = "processor_s") -> Iterator[TenantUsedShape]:
        """Yield what tenants used in the last `hour`, `day` or `month`, sorted by a field of the rows."""
        return self._pages("/v1/history/tenants", TenantUsedShape, {"over": over, "sort": sort})

    def decisions(self, *, kind: str | None = None, application: str | None = None) -> Iterator[DecisionShape]:
        """What was decided, newest first; of one kind, or those that concerned an application (name, or id
        `tenant/name`).
        """
        wanted = {"kind": kind, "application": application}
        return self._pages("/v1/decisions", DecisionShape, {k: v for k, v in wanted.items() if v is not None})

    def decision(self, id: int) -> DecisionShape:
        """One of them, with everything that the policy knew."""
        return self._get(f"/v1/decisions/{id}", DecisionShape)

    def audit(self) -> Iterator[AuditShape]:
        """Who changed what, newest first; a tenant's key sees what concerned the tenant."""
        return self._pages("/v1/audit", AuditShape)

    def housekeeping(self) -> list[ChoreShape]:
        """What the box does by itself, with the latest and the next run of each; for an admin key, as what follows."""
        return [ChoreShape.model_validate(one) for one in self._send("GET", "/v1/housekeeping").json()]

    def backups(self) -> Iterator[BackupShape]:
        """Backups on the box, newest first."""
        return self._pages("/v1/backups", BackupShape)

    def make_backup(self) -> BackupShape:
        """Begin with one; `backups` says how far it is."""
        return self._post("/v1/backups", "", BackupShape)

    def download_backup(self, name: str, target: Path, *, on_progress: Progress | None = None) -> None:
        """Write one to a new file, which its owner alone can read. Raises: FileExistsError."""
        with ExitStack() as stack:
            response = stack.enter_context(self._http.stream("GET", f"/v1/backups/{name}"))
            if not response.is_success:
                response.read()
            raise_for(response)
            total, done = int(response.headers.get("content-length", 0)), 0
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            file = stack.enter_context(os.fdopen(descriptor, "wb"))
            for block in response.iter_bytes():
                file.write(block)
                done += len(block)
                if on_progress is not None:
                    on_progress(done, total)

    def delete_backup(self, name: str) -> None:
        """Frees its bytes at once."""
        self._send("DELETE", f"/v1/backups/{name}")

    def restore(self, order: RestoreOrder) -> RestoreShape:
        """Begin to check a backup, on an empty box; its next start applies it."""
        return self._post("/v1/restore", order.model_dump_json(), RestoreShape)

    def restore_state(self) -> RestoreShape:
        """How far a restore is."""
        return self._get("/v1/restore", RestoreShape)

    def withdraw_restore(self) -> None:
        """The box stays as it is."""
        self._send("DELETE", "/v1/restore")

    def events(self, after: int | None = None, kinds: Sequence[str] = ()) -> Iterator[EventShape]:
        """What happens, without end; `after` an event id, what was missed comes first. `kinds`: only events of these
        names, or whose names begin with these words.
        """
        query: dict[str, str | list[str]] = {"kinds": list(kinds)} if kinds else {}
        if after is not None:
            query["after"] = str(after)
        for event in self._events("/v1/events", query):
            yield EventShape.model_validate_json(event.data)

    def metrics(self) -> str:
        """The Prometheus text."""
        return self._send("GET", "/metrics").text

    # -- sending -------------------------------------------------------------------------------------------------------

    def _import(
        self, path: str, file: Path, fields: dict[str, str], beside: Mapping[str, Path], on_progress: Progress | None
    ) -> JobShape:
        with ExitStack() as stack:
            files = {key: (one.name, stack.enter_context(one.open("rb"))) for key, one in beside.items()}
            if "upload" in fields:
                pass
            elif file.stat().st_size > FORM_BYTES_MAX:
                fields = fields | {"upload": self.upload(file, on_progress=on_progress).id}
            else:
                files["file"] = (file.name, stack.enter_context(file.open("rb")))
            parts = [(key, (None, value)) for key, value in fields.items()] + list(files.items())
            response = self._send("POST", path, files=parts, timeout=httpx.Timeout(300.0, connect=5.0))
        if on_progress is not None and "file" in files:
            on_progress(file.stat().st_size, file.stat().st_size)
        return JobShape.model_validate_json(response.content)


def _predict(application: str) -> str:
    return f"/v1/applications/{application}/predict"


def _period(start: datetime.datetime | None, to: datetime.datetime | None) -> dict[str, str]:
    return {name: at.isoformat() for name, at in (("from", start), ("to", to)) if at is not None}


def _strict(strict: bool) -> str:
    return "?strict=true" if strict else ""
