"""The tables. Rows never leave this package: `to_…` functions turn them into domain values, and `take` fills them.

A change here needs a migration (`migrations/versions`); a test compares the two.
"""

import datetime
from collections.abc import Mapping
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, LargeBinary, MetaData
from sqlmodel import Field, SQLModel, UniqueConstraint

from appliance.domain.access import KeyRecord
from appliance.domain.audit import Actor, AuditRecord
from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Late,
    Model,
    Prefer,
    Profile,
    Quota,
    Shapes,
    TaskSpec,
    Tenant,
    TensorSpec,
    Unverified,
    Variant,
    Verify,
    WallViewers,
)
from appliance.domain.jobs import ImportRequest, JobRecord
from appliance.domain.notifications.receivers import Receiver
from appliance.domain.padding import Padding
from appliance.domain.parts import Cut
from appliance.domain.pipeline import CostBy, Pipeline, Stage
from appliance.domain.profiles import SeenLatency, SeenRuns
from appliance.domain.session import AccuracyPromise, LatencyPromise, Session
from appliance.domain.uploads import UploadRecord
from appliance.modelstore.store.columns import (
    Document,
    MeasuredAccuracy,
    Moment,
    PipelineStages,
    Points,
    ReviewedProfile,
)
from appliance.modelstore.store.values import columns_of, value_of

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

    def take(self, value: Any, *but: str) -> None:
        """Copy every field of a domain value, without those in `but`."""
        for name, column in columns_of(value, *but).items():
            setattr(self, name, column)


class TenantRow(Row, table=True):
    __tablename__ = "tenant"
    name: str = Field(primary_key=True)
    quota: Quota = Field(sa_column=Column(Document(Quota), nullable=False))
    created_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))
    wall: str = Field(default=WallViewers.NOBODY.value, sa_column_kwargs={"server_default": WallViewers.NOBODY.value})

    def to_tenant(self) -> Tenant:
        return value_of(Tenant, self)


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
        return value_of(KeyRecord, self)


class KeyUseRow(Row, table=True):
    """When a key was used last, to a minute."""

    __tablename__ = "key_use"
    key_id: str = Field(foreign_key="access_key.id", ondelete="CASCADE", primary_key=True)
    used_at: datetime.datetime = Field(sa_column=Column(Moment, nullable=False))


class ReceiverRow(Row, table=True):
    """A receiver of notifications. Its service needs address and token as they are, so they are stored in clear."""

    __tablename__ = "receiver"
    id: str = Field(primary_key=True)
    tenant: str | None = Field(default=None, foreign_key="tenant.name", ondelete="CASCADE", index=True)
    receiver: Receiver = Field(sa_column=Column(Document(Receiver), nullable=False))


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
        return value_of(Model, self, variants=variants, assets=assets)


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
    shape_max: Shapes | None = Field(default=None, sa_column=Column(Document(Shapes)))
    """The largest shape of each input; None until measured."""
    cut: Cut | None = Field(default=None, sa_column=Column(Document(Cut)))
    padding: Padding | None = Field(default=None, sa_column=Column(Document(Padding)))
    axes: Axes | None = Field(default=None, sa_column=Column(Document(Axes)))
    """Role of each axis of each input, as inspected; what profiling it again takes."""
    is_original: bool = False
    inspected_ms: float | None = None

    def to_variant(self) -> Variant:
        return value_of(Variant, self, content_sha256=self.content_sha256 or "")

    def take(self, value: Any, *but: str) -> None:
        """The number stays, by which clients know the variant."""
        super().take(value, *but, "number")
        self.content_sha256 = self.content_sha256 or None


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
        return value_of(Application, self)


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
        return value_of(Pipeline, self)


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
        return value_of(JobRecord, self)


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
        return value_of(UploadRecord, self, offset=offset)


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
        return value_of(SeenRuns, self)


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
        return value_of(AuditRecord, self)


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
        return value_of(Session, self, promise=self.latency or self.accuracy)

    def take(self, value: Any, *but: str) -> None:
        """The promise is one of two columns."""
        super().take(value, *but, "promise")
        self.latency = value.promise if isinstance(value.promise, LatencyPromise) else None
        self.accuracy = value.promise if isinstance(value.promise, AccuracyPromise) else None
