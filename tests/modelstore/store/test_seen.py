"""What runs were seen to take: kept in the database, as long as there is a build that runs."""

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.domain.catalogue import Tenant
from appliance.domain.names import build_id
from appliance.domain.profiles import SeenLatency, SeenRuns
from appliance.modelstore.store import migrations
from appliance.modelstore.store.database import make_engine
from appliance.modelstore.store.state_folder import DATABASE
from appliance.modelstore.store.store import Store
from tests.modelstore.boxes import quickly_started, stored_model
from tests.present import present

pytestmark = pytest.mark.anyio
AT = datetime.datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=datetime.UTC)
ROWS = (SeenLatency(1, 0, 90_000, 120_000, 7, AT), SeenLatency(1, 1, 200_000, 300_000, 5000, AT))


async def test_seen_runs_are_saved_and_replaced_by_build_and_shape(store: Store, tmp_path: Path) -> None:
    """The rest of what was saved stays."""
    variant = await stored_model(store, tmp_path, body=b"one")
    build = build_id(variant.content_sha256, "cpu")
    one, two = SeenRuns(build, "", "f", ROWS), SeenRuns(build, "~9", "f", ROWS[:1])
    await store.seen.save([one, two])
    assert await store.seen.load() == [one, two]
    other = replace(one, fingerprint="g", latencies=ROWS[1:])
    await store.seen.save([other])
    assert await store.seen.load() == [other, two]


async def test_seen_runs_are_deleted_with_content_or_tenant(store: Store, tmp_path: Path) -> None:
    """With the tenant in whose guard they ran; runs of a build that has gone before they are saved are left out."""
    await store.tenants.create(Tenant("harbour"))
    variant = await stored_model(store, tmp_path, body=b"one")
    builds = [build_id(variant.content_sha256, "cpu", tenant) for tenant in (None, "harbour")]
    seen = [SeenRuns(build, "", "f", ROWS) for build in builds]
    await store.seen.save([*seen, SeenRuns("0" * 24 + "@cpu", "", "f", ROWS)])
    assert await store.seen.load() == seen
    await store.tenants.delete("harbour")
    await store.seen.save(seen)
    assert await store.seen.load() == seen[:1]
    await store.models.begin_deletion(variant.model_id)
    await store.models.finish_deletion(variant.model_id)
    assert await store.seen.load() == []


def test_database_of_an_older_revision_is_migrated_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    database = tmp_path / "state" / DATABASE
    engine = make_engine(database, begin="BEGIN IMMEDIATE", pooled=False)
    with engine.begin() as connection:
        migrations.upgrade(connection, "0017")
        connection.exec_driver_sql("INSERT INTO tenant VALUES ('default', '{}', '2026-01-01T00:00:00+00:00')")
        connection.exec_driver_sql(
            "INSERT INTO access_key VALUES"
            " ('a', 'default', 'admin', X'00', '[]', '[]', '2026-01-01T00:00:00+00:00', NULL, '')"
        )
    engine.dispose()
    beginning = present(quickly_started(tmp_path / "state"))
    assert (beginning.seen, [tenant.name for tenant in beginning.snapshot.tenants]) == ([], ["default"])
    assert migrations.current_revision(database) == migrations.HEAD
