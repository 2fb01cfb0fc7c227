"""The first key: made at the first start, so that whoever owns the state folder owns the box."""

import asyncio
import os
from pathlib import Path
from typing import Protocol

from appliance.api.auth.keyring import digest_of, new_key, new_key_id
from appliance.clock import Clock
from appliance.domain.access import KeyRecord, Role
from appliance.domain.catalogue import DEFAULT_TENANT

FILE_NAME = "admin.key"


class Keys(Protocol):
    """What of the store is needed here."""

    async def all(self) -> list[KeyRecord]: ...

    async def create(self, key: KeyRecord) -> KeyRecord: ...


async def ensure_admin_key(state_dir: Path, keys: Keys, clock: Clock) -> None:
    """See to it that some admin key opens the box.

    With an admin key in the store nothing happens: an owner who took the file away meant it. Else the key in the file
    counts (a store that was restored or begun anew), and without a file a new one is written there, readable by its
    owner only.
    """
    if any(key.role is Role.ADMIN for key in await keys.all()):
        return
    path = state_dir / FILE_NAME
    key = await asyncio.to_thread(_read, path)
    if not key:
        key = new_key()
        await asyncio.to_thread(_write, path, key)
    await keys.create(_record(key, clock))


def _record(key: str, clock: Clock) -> KeyRecord:
    return KeyRecord(
        new_key_id(), DEFAULT_TENANT, Role.ADMIN, digest_of(key), clock.wall_now(), label=f"written to {FILE_NAME}"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""


def _write(path: Path, key: str) -> None:
    """Whole or not at all, and never readable by others, not even for an instant."""
    draft = path.with_suffix(".tmp")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
