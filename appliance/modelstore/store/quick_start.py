"""The start of a box whose state folder needs no mending: what serving has to know, read without SQLAlchemy, whose
import alone takes longer than such a start.

`Store.recover` and `Store.snapshot` do the same by the tables; a test compares the two. Blocking.
"""

import contextlib
import datetime
import json
import sqlite3
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from appliance.domain.access import KeyRecord, Role
from appliance.domain.accuracy import points
from appliance.domain.catalogue import (
    DEFAULT_TENANT,
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
from appliance.domain.padding import Padding
from appliance.domain.parts import Cut
from appliance.domain.pipeline import CostBy, Pipeline
from appliance.domain.profiles import SeenLatency, SeenRuns
from appliance.domain.session import AccuracyPromise, LatencyPromise, Session
from appliance.domain.states import JobState, VariantState
from appliance.modelstore.store.disk import keep_only
from appliance.modelstore.store.documents import accuracy_fields, profile_fields, stage_of
from appliance.modelstore.store.snapshot import Snapshot
from appliance.modelstore.store.sqlite_errors import sqlite_errors_are_typed
from appliance.modelstore.store.state_folder import DATABASE, StateFolder

_TENSORS = tuple[TensorSpec, ...]
_PROFILES = tuple[Profile, ...]
_SEEN = tuple[SeenLatency, ...]
_LARGEST = dict[str, tuple[int, ...]]


class Beginning(NamedTuple):
    """What a start needs to know."""

    snapshot: Snapshot
    residents: list[str]
    """Builds that were in memory when that was last saved, most wanted first."""
    seen: list[SeenRuns]
    """What runs were seen to take when that was last saved."""
    sessions: list[Session]
    """Devices' sessions that had not ended."""


def quick_start(folder: StateFolder) -> Beginning | None:
    """Sweep what a crash left behind, and read what serving needs; None, and nothing done, where `Store.recover` has
    rows to write: a new folder, a deletion that was interrupted, content that is not as recorded.

    Raises: StorageBusy, StorageFailed.
    """
    with (
        sqlite_errors_are_typed(),
        contextlib.closing(sqlite3.connect(folder.path / DATABASE)) as database,
    ):
        database.row_factory = sqlite3.Row
        database.execute("BEGIN")
        if not _is_in_order(database, folder):
            return None
        _sweep(database, folder)
        residents = _column(database, "SELECT build_id FROM resident ORDER BY position")
        return Beginning(_snapshot(database), residents, _seen(database), _sessions(database))


def _is_in_order(database: sqlite3.Connection, folder: StateFolder) -> bool:
    """Whether there is a default tenant and an admin's key, no deletion is half done, all content is used, and there
    as recorded.
    """
    wanted = (
        ("SELECT 1 FROM tenant WHERE name = ?", DEFAULT_TENANT, True),
        ("SELECT 1 FROM access_key WHERE role = ?", Role.ADMIN.value, True),
        ("SELECT 1 FROM model WHERE deleted_at IS NOT NULL OR id = ?", "", False),
    )
    if any((database.execute(query, (value,)).fetchone() is not None) is not there for query, value, there in wanted):
        return False
    used = set(_column(database, "SELECT content_sha256 FROM variant UNION SELECT content_sha256 FROM asset"))
    blobs = database.execute("SELECT sha256, size_bytes, modified_ns FROM blob")
    return all(sha256 in used and folder.blobs.is_as_recorded(sha256, size, at) for sha256, size, at in blobs)


def _sweep(database: sqlite3.Connection, folder: StateFolder) -> None:
    under_way = [JobState.QUEUED.value, JobState.RUNNING.value]
    jobs = _column(database, "SELECT id FROM job WHERE state IN (?, ?)", *under_way)
    keep_only(folder.path / "scratch", set(jobs))
    keep_only(folder.path / "uploads", set(_column(database, "SELECT id FROM upload")))
    folder.blobs.sweep(_column(database, "SELECT sha256 FROM blob"))


def _column(database: sqlite3.Connection, query: str, *values: str) -> list[str]:
    return [row[0] for row in database.execute(query, values)]


# -- rows --------------------------------------------------------------------------------------------------------------


def _snapshot(database: sqlite3.Connection) -> Snapshot:
    """One query a table."""
    variants: dict[str, list[Variant]] = {}
    for row in database.execute("SELECT * FROM variant ORDER BY number"):
        variants.setdefault(row["model_id"], []).append(_variant(row))
    assets: dict[str, dict[str, str]] = {}
    for row in database.execute("SELECT * FROM asset ORDER BY name"):
        assets.setdefault(row["model_id"], {})[row["name"]] = row["content_sha256"]
    return Snapshot(
        [
            Tenant(row["name"], _read(Quota, row["quota"]))
            for row in database.execute("SELECT name, quota FROM tenant ORDER BY name")
        ],
        [
            Model(
                row["id"],
                row["tenant"],
                row["name"],
                _read(TaskSpec, row["task"]),
                tuple(variants.get(row["id"], ())),
                bool(row["shared"]),
                assets.get(row["id"], {}),
            )
            for row in database.execute("SELECT * FROM model ORDER BY id")
        ],
        [_application(row) for row in database.execute("SELECT * FROM application ORDER BY id")],
        [_key(row) for row in database.execute("SELECT * FROM access_key ORDER BY id")],
        [_pipeline(row) for row in database.execute("SELECT * FROM pipeline ORDER BY id")],
    )


def _seen(database: sqlite3.Connection) -> list[SeenRuns]:
    return [
        SeenRuns(row["build_id"], row["shape"], row["fingerprint"], _read(_SEEN, row["latencies"]))
        for row in database.execute("SELECT * FROM seen_runs ORDER BY build_id, shape")
    ]


def _sessions(database: sqlite3.Connection) -> list[Session]:
    return [
        Session(
            id=row["id"],
            tenant=row["tenant"],
            application_id=row["application_id"],
            name=row["name"],
            fps=row["fps"],
            promise=_read(LatencyPromise, row["latency"]) or _read(AccuracyPromise, row["accuracy"]),
            key_id=row["key_id"],
            began_at=datetime.datetime.fromisoformat(row["began_at"]),
            weight=row["weight"],
            wait=bool(row["wait"]),
            is_paused=bool(row["is_paused"]),
            pipeline_id=row["pipeline_id"],
        )
        for row in database.execute("SELECT * FROM session ORDER BY id")
    ]


def _variant(row: sqlite3.Row) -> Variant:
    return Variant(
        id=row["id"],
        model_id=row["model_id"],
        name=row["name"],
        precision=Precision(row["precision"]),
        content_sha256=row["content_sha256"] or "",
        size_bytes=row["size_bytes"],
        inputs=_read(_TENSORS, row["inputs"]),
        outputs=_read(_TENSORS, row["outputs"]),
        state=VariantState(row["state"]),
        height=row["height"],
        width=row["width"],
        accuracy=_read(Accuracy, row["accuracy"], accuracy_fields),
        profile=_read(Profile, row["profile"], profile_fields),
        other_profiles=_read(_PROFILES, row["other_profiles"]) or (),
        reason=row["reason"],
        batch_max=row["batch_max"],
        shape_max=_read(_LARGEST, row["shape_max"]),
        number=row["number"],
        cut=_read(Cut, row["cut"]),
        padding=_read(Padding, row["padding"]),
        is_original=bool(row["is_original"]),
        inspected_ms=row["inspected_ms"],
    )


def _application(row: sqlite3.Row) -> Application:
    return Application(
        row["id"],
        row["tenant"],
        row["name"],
        row["model_id"],
        row["latency_slo_ms"],
        points(row["accuracy_min"]),
        row["weight"],
        bool(row["shared"]),
        Late(row["late"]),
        Prefer(row["prefer"]),
        Unverified(row["unverified"]),
        Verify(row["verify"]),
    )


def _key(row: sqlite3.Row) -> KeyRecord:
    return KeyRecord(
        row["id"],
        row["tenant"],
        Role(row["role"]),
        row["sha256"],
        datetime.datetime.fromisoformat(row["created_at"]),
        _read(tuple[str, ...], row["applications"]),
        None if row["expires_at"] is None else datetime.datetime.fromisoformat(row["expires_at"]),
        row["label"],
        _read(tuple[str, ...], row["pipelines"]),
    )


def _pipeline(row: sqlite3.Row) -> Pipeline:
    return Pipeline(
        row["id"],
        row["tenant"],
        row["name"],
        row["latency_slo_ms"],
        tuple(stage_of(document) for document in json.loads(row["stages"])),
        CostBy(row["cost_by"]),
        row["weight"],
    )


def _read(shape: Any, text: str | None, fields: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> Any:
    """A column of `columns.Document`; `fields`: what its document means."""
    if text is None or text == "null":
        return None
    if fields is None:
        return _adapter(shape).validate_json(text)
    return _adapter(shape).validate_python(fields(json.loads(text)))


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
