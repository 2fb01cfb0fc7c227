"""Backups on the box, the restore of one, and the chores of the box."""

import datetime

from pydantic import ConfigDict, Field

from appliance.domain.backups import BackupState, RestoreState
from appliance.wire.fields import Text
from appliance.wire.shape import Order, Shape


class BackupShape(Shape):
    """One backup that lies on the box."""

    name: str = Field(examples=["nightly-20260101T030500Z.tar"])
    is_nightly: bool
    """Else it was asked for, and stays until it is deleted."""
    created_at: datetime.datetime
    state: BackupState
    """`failed`: there is no file; `error` says why. It is shown until the next one is begun."""
    size_bytes: int = Field(examples=[212_000_000])
    """0 until it is ready."""
    percent: float = Field(examples=[100.0])
    error: str = ""


class RestoreOrder(Order):
    """Which backup to restore: one that lies on the box, or a finished upload."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"upload": "5f1c0a9be2d4"}]})

    upload: Text | None = Field(None, max_length=200, examples=["5f1c0a9be2d4"])
    """Id of a finished upload (`/v1/uploads`), which goes with it."""
    backup: Text | None = Field(None, max_length=200, examples=["nightly-20260101T030500Z.tar"])
    """Name of a backup on the box."""


class RestoreShape(Shape):
    """How far a restore is."""

    state: RestoreState
    """`none`: there is none; `checking`; `ready`: the next start of the box applies it; `failed`: `error` says why."""
    percent: float = Field(examples=[41.5])
    created_at: datetime.datetime | None
    """When the backup was made; this and what follows is known once it was checked."""
    models: int | None = Field(examples=[7])
    tenants: int | None = Field(examples=[2])
    error: str = ""


class ChoreRunShape(Shape):
    """One run of a chore."""

    began_at: datetime.datetime
    took_s: float = Field(examples=[0.8])
    error: str = ""
    """Why it failed; empty: it did not."""


class ChoreShape(Shape):
    """Something that the box does now and then by itself."""

    name: str = Field(examples=["nightly backup"])
    every: str = Field(examples=["every night"])
    last: ChoreRunShape | None
    """Null: it has not run yet."""
    next_at: datetime.datetime | None
    is_running: bool
