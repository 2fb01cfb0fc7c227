"""The audit as it is stored: bounded, so that nobody pushes out what another did."""

import asyncio
import datetime
from dataclasses import replace
from pathlib import Path

from appliance.domain.access import Role
from appliance.domain.audit import Actor, AuditOutcome, AuditRecord
from appliance.domain.catalogue import Tenant
from appliance.modelstore.store.audit import Audit
from tests.modelstore.boxes import parts

AT = datetime.datetime(2026, 1, 1, 12, 0, 0, 250, tzinfo=datetime.UTC)
ADMIN = Actor("default", Role.ADMIN, "a", "laptop")


def changed(tenant: str, actor: Actor | None, path: str = "/v1/models/m") -> AuditRecord:
    return AuditRecord(AT, tenant, "Delete a model", "DELETE", path, actor=actor, change={"a": [1]}, address="::1")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Every field, newest first; by tenant; and what is old goes."""

    async def story() -> None:
        async with parts(tmp_path, runs=False) as box:
            audit = box.store.audit
            refused = AuditRecord(AT, "", "Sign in", "POST", "/v1/sign-in", outcome=AuditOutcome.REFUSED, times=9)
            await audit.add([changed("default", ADMIN), refused])
            found = await audit.page()
            assert [replace(one, id=0) for one in found] == [refused, changed("default", ADMIN)]
            assert [one.id for one in await audit.page("default")] == [found[1].id]
            assert [one.id for one in await audit.page(before=found[0].id)] == [found[1].id]
            assert await audit.forget(AT) == 0
            assert await audit.forget(AT + datetime.timedelta(seconds=1)) == 2

    asyncio.run(story())


def test_a_flood_pushes_out_its_own(tmp_path: Path) -> None:
    """A tenant that changes things all the time keeps its newest entries; the admin's are all there."""

    async def story() -> None:
        async with parts(tmp_path, runs=False) as box:
            await box.store.tenants.create(Tenant("harbour"))
            audit = Audit(box.store.records, rows_max=3)
            await audit.add([changed("harbour", ADMIN)])
            own = Actor("harbour", Role.TENANT, "t")
            for number in range(5):
                await audit.add([changed("harbour", own, f"/v1/models/{number}")])
            found = await audit.page()
            assert [one.path[-1] for one in found] == ["4", "3", "2", "m"]

    asyncio.run(story())
