"""The first key."""

import asyncio
import stat
from pathlib import Path

from appliance.api.auth.access import ensure_admin_key
from appliance.api.auth.keyring import digest_of
from appliance.domain.access import Role
from appliance.modelstore.store.store import Store
from tests.fakes.hand_clock import HandClock


async def admin_digests(store: Store) -> list[bytes]:
    return [key.sha256 for key in await store.keys.all() if key.role is Role.ADMIN]


def test_first_start_writes_admin_key_file_for_owner_only(tmp_path: Path) -> None:
    """The file is 0600 and opens the box; later starts change nothing."""

    async def story() -> None:
        store = Store.open(tmp_path, HandClock())
        await ensure_admin_key(tmp_path, store.keys, HandClock())
        key = (tmp_path / "admin.key").read_text().strip()
        assert stat.S_IMODE((tmp_path / "admin.key").stat().st_mode) == 0o600
        assert await admin_digests(store) == [digest_of(key)]
        await ensure_admin_key(tmp_path, store.keys, HandClock())
        assert (tmp_path / "admin.key").read_text().strip() == key
        assert await admin_digests(store) == [digest_of(key)]
        store.close()

    asyncio.run(story())


def test_deleted_admin_key_file_is_not_written_again(tmp_path: Path) -> None:
    """While the store has an admin key, a missing file is the owner's will."""

    async def story() -> None:
        store = Store.open(tmp_path, HandClock())
        await ensure_admin_key(tmp_path, store.keys, HandClock())
        (tmp_path / "admin.key").unlink()
        await ensure_admin_key(tmp_path, store.keys, HandClock())
        assert not (tmp_path / "admin.key").exists()
        store.close()

    asyncio.run(story())


def test_admin_key_is_made_anew_when_the_store_has_none_that_is_good(tmp_path: Path) -> None:
    """File gone and key revoked: the owner of the folder is not locked out."""

    async def story() -> None:
        store = Store.open(tmp_path, HandClock())
        await ensure_admin_key(tmp_path, store.keys, HandClock())
        (tmp_path / "admin.key").unlink()
        for key in await store.keys.all():
            await store.keys.revoke(key.id)
        await ensure_admin_key(tmp_path, store.keys, HandClock())
        assert await admin_digests(store) == [digest_of((tmp_path / "admin.key").read_text().strip())]
        store.close()

    asyncio.run(story())


def test_empty_store_takes_admin_key_from_the_file(tmp_path: Path) -> None:
    """A folder with a key file but an empty store: scripts that hold the key go on working."""

    async def story() -> None:
        (tmp_path / "admin.key").write_text("ea_from-before\n")
        store = Store.open(tmp_path, HandClock())
        await ensure_admin_key(tmp_path, store.keys, HandClock())
        assert await admin_digests(store) == [digest_of("ea_from-before")]
        store.close()

    asyncio.run(story())
