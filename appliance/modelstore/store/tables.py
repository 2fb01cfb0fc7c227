"""The tables. Rows never leave this package: `to_…` functions turn them into domain values.

A change here needs a migration (`migrations/versions`); a test compares the two.
"""

import datetime
from collections.abc import Mapping
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, LargeBinary, MetaData
from sqlmodel import Field, SQLModel, UniqueConstraint

from appliance.domain.access import KeyRecord, Role
from appliance.domain.audit import Actor, AuditOutcome, AuditRecord
from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Late,
    Model,
    Precision,
    Prefer,
    Profile,
    Quota,
    TaskSpec,
    Tenant,
    TensorSpec,
    Unverified,
    Variant,
    Verify,
)
from appliance.domain.jobs import ImportRequest, JobRecord
from appliance.domain.padding import Padding
from appliance.domain.parts import Cut
from appliance.domain.pipeline import CostBy, Pipeline, Stage
from appliance.domain.profiles import SeenLatency, SeenRuns
from appliance.domain.session import AccuracyPromise, LatencyPromise, Session
from appliance.domain.states import JobState, VariantState
from appliance.domain.uploads import UploadRecord
from appliance.modelstore.store.columns import (
    Document,
    MeasuredAccuracy,
    Moment,
    PipelineStages,
    Points,
    ReviewedProfile,
)

Axes = dict[str, tuple[str, ...]]


class Row(SQLModel):
    """Base of the tables, with names for constraints so that SQLite can alter them in batches."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class TenantRow(Row, table=True):
    __tablename__ = "tenant"
    name: str = Field(primary_key=True)
    quota: Quota = Field(sa_column=Column(Document(Quota), nullable=False))
    created_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))

    def to_tenant(self) -> Tenant:
        return Tenant(self.name, self.quota)


class KeyRow(Row, table=True):
    __tablename__ = "access_key"
    id: str = Field(primary_key=True)
    tenant: str = Field(foreign_key="tenant.name", ondelete="CASCADE", index=True)
    role: str
    sha256: bytes = Field(sa_column=Column(LargeBinary, nullable=False, unique=True))
    applications: tuple[str, ...] = Field(sa_column=Column(Document(tuple[str, ...]), nullable=False))
    pipelines: tuple[str, ...] = Field(
        default=(), sa_column=Column(Document(tuple[str, ...]), nullable=False, server_default="[]")
    )
    created_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))
    expires_at: datetime.datetime | None = Field(default=None, sa_column=Column(Moment))
    label: str = ""

    def to_key(self) -> KeyRecord:
        return KeyRecord(
            self.id,
            self.tenant,
            Role(self.role),
            self.sha256,
            self.created_at,
            self.applications,
            self.expires_at,
            self.label,
            self.pipelines,
        )


class KeyUseRow(Row, table=True):
    """When a key was used last, to a minute."""

    __tablename__ = "key_use"
    key_id: str = Field(foreign_key="access_key.id", ondelete="CASCADE", primary_key=True)
    used_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))


class ModelRow(Row, table=True):
    __tablename__ = "model"
    __table_args__ = (UniqueConstraint("tenant", "name"),)
    id: str = Field(primary_key=True)
    tenant: str = Field(foreign_key="tenant.name")
    name: str
    task: TaskSpec = Field(sa_column=Column(Document(TaskSpec), nullable=False))
    shared: bool = False
    created_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))
    deleted_at: datetime.datetime | None = Field(default=None, sa_column=Column(Moment))
    """Set: deletion was acknowledged and waits for running requests; finished at the next start at the latest."""

    def to_model(self, variants: tuple[Variant, ...], assets: Mapping[str, str]) -> Model:
        return Model(self.id, self.tenant, self.name, self.task, variants, self.shared, assets)


class BlobRow(Row, table=True):
    __tablename__ = "blob"
    sha256: str = Field(primary_key=True)
    size_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    modified_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    created_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))


class AssetRow(Row, table=True):
    """A file that was uploaded beside the graph and is needed to serve."""

    __tablename__ = "asset"
    model_id: str = Field(foreign_key="model.id", ondelete="CASCADE", primary_key=True)
    name: str = Field(primary_key=True)
    content_sha256: str = Field(foreign_key="blob.sha256", index=True)


class VariantRow(Row, table=True):
    __tablename__ = "variant"
    __table_args__ = (UniqueConstraint("model_id", "name"),)
    id: str = Field(primary_key=True)
    model_id: str = Field(foreign_key="model.id", ondelete="CASCADE")
    name: str
    number: int
    """Which variant of its model it is, from 1, in the order of making; as `VariantNumberRow` keeps it."""
    precision: str
    content_sha256: str | None = Field(default=None, foreign_key="blob.sha256", index=True)
    """None for a variant that could not be made."""
    size_bytes: int
    inputs: tuple[TensorSpec, ...] = Field(sa_column=Column(Document(tuple[TensorSpec, ...]), nullable=False))
    outputs: tuple[TensorSpec, ...] = Field(sa_column=Column(Document(tuple[TensorSpec, ...]), nullable=False))
    state: str
    height: int | None = None
    width: int | None = None
    accuracy: Accuracy | None = Field(default=None, sa_column=Column(MeasuredAccuracy))
    profile: Profile | None = Field(default=None, sa_column=Column(ReviewedProfile()))
    other_profiles: tuple[Profile, ...] = Field(
        default=(), sa_column=Column(Document(tuple[Profile, ...]), nullable=False, server_default="[]")
    )
    reason: str = ""
    batch_max: int = 1
    shape_max: dict[str, tuple[int, ...]] | None = Field(
        default=None, sa_column=Column(Document(dict[str, tuple[int, ...]]))
    )
    """The largest shape of each input; None until measured."""
    cut: Cut | None = Field(default=None, sa_column=Column(Document(Cut)))
    padding: Padding | None = Field(default=None, sa_column=Column(Document(Padding)))
    axes: Axes | None = Field(default=None, sa_column=Column(Document(Axes)))
    """Role of each axis of each input, as inspected; what profiling it again takes."""
    is_original: bool = False
    inspected_ms: float | None = None

    def to_variant(self) -> Variant:
        return Variant(
            id=self.id,
            model_id=self.model_id,
            name=self.name,
            precision=Precision(self.precision),
            content_sha256=self.content_sha256 or "",
            size_bytes=self.size_bytes,
            inputs=self.inputs,
            outputs=self.outputs,
            state=VariantState(self.state),
            height=self.height,
            width=self.width,
            accuracy=self.accuracy,
            profile=self.profile,
            other_profiles=self.other_profiles,
            reason=self.reason,
            batch_max=self.batch_max,
            shape_max=self.shape_max,
            number=self.number,
            cut=self.cut,
            padding=self.padding,
            is_original=self.is_original,
            inspected_ms=self.inspected_ms,
        )

    def take(self, variant: Variant) -> None:
        """Copy every field of `variant` but its identity."""
        self.precision = variant.precision.value
        self.content_sha256 = variant.content_sha256 or None
        self.size_bytes = variant.size_bytes
        self.inputs, self.outputs = variant.inputs, variant.outputs
        self.state = variant.state.value
        self.height, self.width = variant.height, variant.width
        self.accuracy, self.profile = variant.accuracy, variant.profile
        self.other_profiles = variant.other_profiles
        self.cut, self.padding = variant.cut, variant.padding
        self.is_original, self.inspected_ms = variant.is_original, variant.inspected_ms
        self.reason, self.batch_max = variant.reason, variant.batch_max
        self.shape_max = None if variant.shape_max is None else dict(variant.shape_max)


class VariantNumberRow(Row, table=True):
    """The number that a name has among the variants of a model, kept when variant or model are deleted: clients know a
    variant by it.

    It goes with the tenant, not with the model, so that a model imported again gives its variants the numbers they had.
    """

    __tablename__ = "variant_number"
    model_id: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    tenant: str = Field(foreign_key="tenant.name", ondelete="CASCADE", index=True)
    number: int


class ApplicationRow(Row, table=True):
    __tablename__ = "application"
    __table_args__ = (UniqueConstraint("tenant", "name"),)
    id: str = Field(primary_key=True)
    tenant: str = Field(foreign_key="tenant.name", ondelete="CASCADE")
    name: str
    model_id: str = Field(foreign_key="model.id", index=True)
    latency_slo_ms: float | None = None
    accuracy_min: float = Field(default=0.0, sa_column=Column(Points, nullable=False))
    weight: float = 1.0
    shared: bool = False
    late: str = Late.DROP.value
    prefer: str = Prefer.BALANCED.value
    unverified: str = Unverified.NEVER.value
    verify: str = Verify.ON.value

    def to_application(self) -> Application:
        return Application(
            self.id,
            self.tenant,
            self.name,
            self.model_id,
            self.latency_slo_ms,
            self.accuracy_min,
            self.weight,
            self.shared,
            Late(self.late),
            Prefer(self.prefer),
            Unverified(self.unverified),
            Verify(self.verify),
        )

    def take(self, application: Application) -> None:
        """Copy every field of `application` but its identity."""
        self.model_id = application.model_id
        self.latency_slo_ms = application.latency_slo_ms
        self.accuracy_min = application.accuracy_min
        self.weight = application.weight
        self.shared = application.shared
        self.late = application.late.value
        self.prefer = application.prefer.value
        self.unverified = application.unverified.value
        self.verify = application.verify.value


class PipelineRow(Row, table=True):
    __tablename__ = "pipeline"
    __table_args__ = (UniqueConstraint("tenant", "name"),)
    id: str = Field(primary_key=True)
    tenant: str = Field(foreign_key="tenant.name", ondelete="CASCADE")
    name: str
    latency_slo_ms: float
    stages: tuple[Stage, ...] = Field(sa_column=Column(PipelineStages, nullable=False))
    cost_by: str = CostBy.SECONDS.value
    weight: float = 1.0

    def to_pipeline(self) -> Pipeline:
        return Pipeline(
            self.id, self.tenant, self.name, self.latency_slo_ms, self.stages, CostBy(self.cost_by), self.weight
        )

    def take(self, pipeline: Pipeline) -> None:
        """Copy every field of `pipeline` but its identity."""
        self.latency_slo_ms, self.stages = pipeline.latency_slo_ms, pipeline.stages
        self.cost_by, self.weight = pipeline.cost_by.value, pipeline.weight


class PipelineUseRow(Row, table=True):
    """A pipeline asks an application, which therefore stays. An import that brings nothing takes its application along
    all the same.
    """

    __tablename__ = "pipeline_use"
    pipeline_id: str = Field(foreign_key="pipeline.id", ondelete="CASCADE", primary_key=True)
    application_id: str = Field(primary_key=True, index=True)


class JobRow(Row, table=True):
    """Jobs outlive their model, so that a failed or cancelled import can still be asked about."""

    __tablename__ = "job"
    id: str = Field(primary_key=True)
    tenant: str = Field(foreign_key="tenant.name", ondelete="CASCADE", index=True)
    model_id: str = Field(index=True)
    state: str = Field(index=True)
    stage: str
    percent: float
    message: str
    error: str
    request: ImportRequest = Field(sa_column=Column(Document(ImportRequest), nullable=False))
    created_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))
    updated_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))

    def to_job(self) -> JobRecord:
        return JobRecord(
            self.id,
            self.tenant,
            self.model_id,
            JobState(self.state),
            self.stage,
            self.percent,
            self.message,
            self.error,
            self.created_at,
            self.updated_at,
        )


class UploadRow(Row, table=True):
    """The offset is not here: it is the size of the spooled file."""

    __tablename__ = "upload"
    id: str = Field(primary_key=True)
    tenant: str = Field(foreign_key="tenant.name", ondelete="CASCADE", index=True)
    length: int | None = None
    sha256: str | None = None
    file_name: str = ""
    created_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))
    updated_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))

    def to_upload(self, offset: int) -> UploadRecord:
        return UploadRecord(
            self.id, self.tenant, offset, self.length, self.sha256, self.file_name, self.created_at, self.updated_at
        )


class ResidentRow(Row, table=True):
    """The builds that were in memory, most wanted first, so that a restarted box comes back warm."""

    __tablename__ = "resident"
    position: int = Field(primary_key=True)
    build_id: str


class SeenRunsRow(Row, table=True):
    """What runs of a build were seen to take, so that a restarted box expects what it did before."""

    __tablename__ = "seen_runs"
    build_id: str = Field(primary_key=True)
    shape: str = Field(primary_key=True)
    content_sha256: str = Field(foreign_key="blob.sha256", ondelete="CASCADE", index=True)
    tenant: str | None = Field(default=None, foreign_key="tenant.name", ondelete="CASCADE", index=True)
    """In whose guard they ran; None = in the service."""
    fingerprint: str
    latencies: tuple[SeenLatency, ...] = Field(sa_column=Column(Document(tuple[SeenLatency, ...]), nullable=False))

    def to_seen(self) -> SeenRuns:
        return SeenRuns(self.build_id, self.shape, self.fingerprint, self.latencies)


class DecisionRow(Row, table=True):
    """What was decided, newest last; the oldest rows go as new ones come, and an id never comes twice."""

    __tablename__ = "decision"
    __table_args__ = {"sqlite_autoincrement": True}
    id: int | None = Field(default=None, primary_key=True)
    at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))
    kind: str
    application: str | None = None
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    """Problem and answer as JSON, compressed by zlib."""


class DecisionApplicationRow(Row, table=True):
    """An application that asked or was changed."""

    __tablename__ = "decision_application"
    decision_id: int = Field(foreign_key="decision.id", ondelete="CASCADE", primary_key=True)
    application: str = Field(primary_key=True, index=True)
    tenant: str = Field(foreign_key="tenant.name", ondelete="CASCADE", index=True)


class AuditRow(Row, table=True):
    """Who changed what, newest last; an id never comes twice."""

    __tablename__ = "audit"
    __table_args__ = {"sqlite_autoincrement": True}
    id: int | None = Field(default=None, primary_key=True)
    at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))
    tenant: str
    owner: str | None = Field(default=None, foreign_key="tenant.name", ondelete="SET NULL", index=True)
    """The same while it exists: a new tenant of the same name sees nothing of the old one."""
    part: str = Field(index=True)
    """Whose part of the rows it is in: a tenant's that changed something, `*` admins', empty: nobody's."""
    action: str
    method: str
    path: str
    subject: str
    change: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    actor: Actor | None = Field(default=None, sa_column=Column(Document(Actor)))
    address: str
    outcome: str
    times: int

    def to_record(self) -> AuditRecord:
        assert self.id is not None
        return AuditRecord(
            self.at,
            self.tenant,
            self.action,
            self.method,
            self.path,
            self.subject,
            self.change,
            self.actor,
            self.address,
            AuditOutcome(self.outcome),
            self.times,
            self.id,
        )


class SessionRow(Row, table=True):
    """A device's session that has not ended. What became of its frames is not stored."""

    __tablename__ = "session"
    id: str = Field(primary_key=True)
    tenant: str = Field(foreign_key="tenant.name", ondelete="CASCADE", index=True)
    application_id: str
    name: str = ""
    fps: float
    latency: LatencyPromise | None = Field(default=None, sa_column=Column(Document(LatencyPromise)))
    accuracy: AccuracyPromise | None = Field(default=None, sa_column=Column(Document(AccuracyPromise)))
    """One of the two."""
    key_id: str
    began_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))
    weight: float = 1.0
    wait: bool = False
    is_paused: bool = False
    pipeline_id: str = ""
    """Empty of one of an application, whose id is empty of one of a pipeline."""

    def to_session(self) -> Session:
        promise = self.latency or self.accuracy
        assert promise is not None
        return Session(
            id=self.id,
            tenant=self.tenant,
            application_id=self.application_id,
            name=self.name,
            fps=self.fps,
            promise=promise,
            key_id=self.key_id,
            began_at=self.began_at,
            weight=self.weight,
            wait=self.wait,
            is_paused=self.is_paused,
            pipeline_id=self.pipeline_id,
        )

    def take(self, session: Session) -> None:
        """Everything but its id."""
        self.tenant, self.application_id, self.name = session.tenant, session.application_id, session.name
        self.pipeline_id = session.pipeline_id
        self.fps, self.key_id, self.began_at = session.fps, session.key_id, session.began_at
        self.weight, self.wait, self.is_paused = session.weight, session.wait, session.is_paused
        promise = session.promise
        self.latency = promise if isinstance(promise, LatencyPromise) else None
        self.accuracy = promise if isinstance(promise, AccuracyPromise) else None
