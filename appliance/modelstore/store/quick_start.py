"""The start of a box whose state folder needs no mending: what serving has to know, read without SQLAlchemy, whose
import alone takes longer than such a start.

`Store.recover` and `Store.snapshot` do the same by the tables; a test compares the two. Blocking.
"""

import contextlib
import datetime
import json
import sqlite3
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from appliance.domain.access import KeyRecord, Role
from appliance.domain.accuracy import points
from appliance.domain.catalogue import DEFAULT_TENANT, Accuracy, Application, Model, Profile, Tenant, Variant
from appliance.domain.pipeline import Pipeline
from appliance.domain.profiles import SeenRuns
from appliance.domain.session import AccuracyPromise, LatencyPromise, Session
from appliance.domain.states import JobState
from appliance.modelstore.store.disk import keep_only
from appliance.modelstore.store.documents import accuracy_fields, profile_fields, stage_of
from appliance.modelstore.store.snapshot import Snapshot
from appliance.modelstore.store.sqlite_errors import sqlite_errors_are_typed
from appliance.modelstore.store.state_folder import DATABASE, StateFolder
from appliance.modelstore.store.values import Value, enum_of, types_of


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
        [_made(Tenant, row) for row in database.execute("SELECT * FROM tenant ORDER BY name")],
        [
            _made(Model, row, variants=tuple(variants.get(row["id"], ())), assets=assets.get(row["id"], {}))
            for row in database.execute("SELECT * FROM model ORDER BY id")
        ],
        [
            _made(Application, row, accuracy_min=points(row["accuracy_min"]))
            for row in database.execute("SELECT * FROM application ORDER BY id")
        ],
        [_made(KeyRecord, row) for row in database.execute("SELECT * FROM access_key ORDER BY id")],
        [
            _made(Pipeline, row, stages=tuple(stage_of(one) for one in json.loads(row["stages"])))
            for row in database.execute("SELECT * FROM pipeline ORDER BY id")
        ],
    )


def _seen(database: sqlite3.Connection) -> list[SeenRuns]:
    return [_made(SeenRuns, row) for row in database.execute("SELECT * FROM seen_runs ORDER BY build_id, shape")]


def _sessions(database: sqlite3.Connection) -> list[Session]:
    return [
        _made(Session, row, promise=_read(LatencyPromise, row["latency"]) or _read(AccuracyPromise, row["accuracy"]))
        for row in database.execute("SELECT * FROM session ORDER BY id")
    ]


def _variant(row: sqlite3.Row) -> Variant:
    return _made(
        Variant,
        row,
        content_sha256=row["content_sha256"] or "",
        accuracy=_read(Accuracy, row["accuracy"], accuracy_fields),
        profile=_read(Profile, row["profile"], profile_fields),
    )


def _made(kind: type[Value], row: sqlite3.Row, **others: Any) -> Value:
    """Return the value that a row holds; `others`: fields whose column means more than its text."""
    readers = _readers(kind)  # type: ignore[arg-type]  # mypy doubts that a generic class is hashable
    return kind(**{name: read(row[name]) for name, read in readers if name not in others}, **others)


@cache
def _readers(kind: type) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return how to read the column of each field."""
    return [(name, _PLAIN.get(hint) or enum_of(hint) or partial(_read, hint)) for name, hint in types_of(kind).items()]


def _read(shape: Any, text: str | None, fields: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> Any:
    """A column of `columns.Document`; `fields`: what its document means."""
    if text is None or text == "null":
        return None
    if fields is None:
        return _adapter(shape).validate_json(text)
    return _adapter(shape).validate_python(fields(json.loads(text)))


def _same(column: Any) -> Any:
    return column


_PLAIN: Mapping[Any, Callable[[Any], Any]] = {
    **dict.fromkeys((str, int, float, bytes), _same),
    bool: bool,
    datetime.datetime: lambda text: None if text is None else datetime.datetime.fromisoformat(text),
}
"""Types of fields whose columns are no documents."""


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
