"""A restore that was checked and waits for the next start, in the folder `restore` of the state folder.

Nothing of the box is touched before the mark `ready` is there, which is written last. From then on a start moves
contents first, the database last: the database is replaced by one rename, before which the box is the old one, and
after which it is the new one. Whatever a kill interrupts, the next start takes up. Blocking.
"""

import contextlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

from appliance.log import get as get_log
from appliance.modelstore.store.disk import full_disk_is_typed, private_file, remove, sync_file, sync_folder

FOLDER = "restore"
_READY = "ready"
_PARTS = "parts"
_COUNTS = {
    "models": "SELECT count(*) FROM model",
    "applications": "SELECT count(*) FROM application",
    "tenants": "SELECT count(*) FROM tenant WHERE name != 'default'",
    "keys": "SELECT count(*) FROM access_key WHERE role != 'admin'",
}
log = get_log("restore")


def parts_of(state_dir: Path) -> Path:
    """The folder that will be moved into the state folder; what was in it before is gone."""
    discard(state_dir)
    parts = state_dir / FOLDER / _PARTS
    parts.mkdir(parents=True, mode=0o700)
    return parts


def mark_ready(state_dir: Path, facts: dict[str, Any]) -> None:
    """All parts are there, checked and synced; `facts` say what they are."""
    folder = state_dir / FOLDER
    with full_disk_is_typed():
        sync_folder(folder / _PARTS)
        draft = folder / f"{_READY}.tmp"
        with private_file(draft) as file:
            file.write(json.dumps(facts).encode())
        sync_file(draft)
        os.rename(draft, folder / _READY)
        sync_folder(folder)


def ready(state_dir: Path) -> dict[str, Any] | None:
    """The facts of one that waits; None: none does."""
    try:
        facts = json.loads((state_dir / FOLDER / _READY).read_bytes())
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def discard(state_dir: Path) -> None:
    """Forget it, the mark first."""
    (state_dir / FOLDER / _READY).unlink(missing_ok=True)
    remove(state_dir / FOLDER)


def what_is_there(database: Path) -> dict[str, int]:
    """How many models, applications, tenants and keys a box has that a restore would take away; all 0: it is empty."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return {what: int(connection.execute(query).fetchone()[0]) for what, query in _COUNTS.items()}


def apply(state_dir: Path, database_name: str) -> None:
    """Make the box the one of the restore that waits, if one does; before anybody opens the database.

    Where the box is no longer empty, the restore is given up.
    """
    facts = ready(state_dir)
    if facts is None:
        remove(state_dir / FOLDER)  # a check that was interrupted
        return
    database, restored = state_dir / database_name, state_dir / FOLDER / _PARTS / database_name
    if restored.exists():
        if database.exists() and any(what_is_there(database).values()):
            log.error("restore given up: the box is no longer empty", **facts)
            discard(state_dir)
            return
        with full_disk_is_typed():
            _move_contents(state_dir / FOLDER / _PARTS / "blobs", state_dir / "blobs")
            _settle(database)
            os.replace(restored, database)
            sync_folder(state_dir)
    discard(state_dir)
    log.info("restored from a backup", **facts)


def _move_contents(source: Path, target: Path) -> None:
    """Contents are named by their digest: one that is there already is the same."""
    for entry in sorted(source.glob("*/*")):
        final = target / entry.parent.name / entry.name
        final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not final.exists():
            os.rename(entry, final)
            sync_folder(final.parent)
    if target.exists():
        sync_folder(target)


def _settle(database: Path) -> None:
    """Bring what stands beside a database into it: the log of another one must not be taken for the new one's."""
    if database.exists():
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode=DELETE")
