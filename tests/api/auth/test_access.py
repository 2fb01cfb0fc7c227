"""The first key."""

import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from appliance.api.auth.access import ensure_admin_key
from appliance.api.auth.keyring import digest_of
from appliance.domain.access import Role
from appliance.modelstore.store.store import Store
from tests.fakes.hand_clock import HandClock

pytestmark = pytest.mark.anyio


async def admin_digests(store: Store) -> list[bytes]:
    return [key.sha256 for key in await store.keys.all() if key.role is Role.ADMIN]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(tmp_path, HandClock())) as made:
        yield made


async def ensured(store: Store, folder: Path) -> str | None:
    """What stands in the file once a start has looked for a key."""
    await ensure_admin_key(folder, store.keys, HandClock())
    file = folder / "admin.key"
    return file.read_text().strip() if file.exists() else None


async def test_first_start_writes_admin_key_file_for_owner_only(store: Store, tmp_path: Path) -> None:
    """The file is 0600 and opens the box; later starts change nothing."""
    for _ in range(2):
        key = await ensured(store, tmp_path)
        assert key is not None
        assert stat.S_IMODE((tmp_path / "admin.key").stat().st_mode) == 0o600
        assert await admin_digests(store) == [digest_of(key)]


async def test_deleted_admin_key_file_is_not_written_again(store: Store, tmp_path: Path) -> None:
    """While the store has an admin key, a missing file is the owner's will."""
    await ensured(store, tmp_path)
    (tmp_path / "admin.key").unlink()
    assert await ensured(store, tmp_path) is None


async def test_admin_key_is_made_anew_when_the_store_has_none_that_is_good(store: Store, tmp_path: Path) -> None:
    """File gone and key revoked: the owner of the folder is not locked out."""
    await ensured(store, tmp_path)
    (tmp_path / "admin.key").unlink()
    for key in await store.keys.all():
        await store.keys.revoke(key.id)
    made = await ensured(store, tmp_path)
    assert made is not None
    assert await admin_digests(store) == [digest_of(made)]


async def test_empty_store_takes_admin_key_from_the_file(store: Store, tmp_path: Path) -> None:
    """A folder with a key file but an empty store: scripts that hold the key go on working."""
    (tmp_path / "admin.key").write_text("ea_from-before\n")
    await ensured(store, tmp_path)
    assert await admin_digests(store) == [digest_of("ea_from-before")]
