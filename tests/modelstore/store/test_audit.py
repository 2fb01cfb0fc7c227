"""The audit as it is stored: bounded, so that nobody pushes out what another did."""

import datetime
from dataclasses import replace

import pytest

from appliance.domain.access import Role
from appliance.domain.audit import Actor, AuditOutcome, AuditRecord
from appliance.domain.catalogue import Tenant
from appliance.domain.errors import AlreadyExists
from appliance.modelstore.store.audit import Audit
from appliance.modelstore.store.audit_entry import AuditEntry, entry_of_request
from appliance.modelstore.store.store import Store

pytestmark = pytest.mark.anyio

AT = datetime.datetime(2026, 1, 1, 12, 0, 0, 250, tzinfo=datetime.UTC)
ADMIN = Actor("default", Role.ADMIN, "a", "laptop")


def changed(tenant: str, actor: Actor | None, path: str = "/v1/models/m") -> AuditRecord:
    return AuditRecord(AT, tenant, "Delete a model", "DELETE", path, actor=actor, change={"a": [1]}, address="::1")


async def test_audit_entries_are_stored_listed_and_forgotten(store: Store) -> None:
    """Every field, newest first; by tenant; and old entries go."""
    audit = store.audit
    refused = AuditRecord(AT, "", "Sign in", "POST", "/v1/sign-in", outcome=AuditOutcome.REFUSED, times=9)
    await audit.add([changed("default", ADMIN), refused])
    found = await audit.page()
    assert [replace(one, id=0) for one in found] == [refused, changed("default", ADMIN)]
    assert [one.id for one in await audit.page("default")] == [found[1].id]
    assert [one.id for one in await audit.page(before=found[0].id)] == [found[1].id]
    assert await audit.forget(AT) == 0
    assert await audit.forget(AT + datetime.timedelta(seconds=1)) == 2


async def test_audit_flood_of_tenant_pushes_out_own_entries_only(store: Store) -> None:
    """A tenant that changes things all the time keeps its newest entries; the admin's are all there."""
    await store.tenants.create(Tenant("harbour"))
    audit = Audit(store.records, rows_max=3)
    await audit.add([changed("harbour", ADMIN)])
    own = Actor("harbour", Role.TENANT, "t")
    for number in range(5):
        await audit.add([changed("harbour", own, f"/v1/models/{number}")])
    found = await audit.page()
    assert [one.path[-1] for one in found] == ["4", "3", "2", "m"]


async def test_audit_entry_is_stored_in_transaction_of_change(store: Store) -> None:
    """In its transaction: where nothing is committed there is none, and the first change has it, not those that follow,
    or go on when the request is answered.
    """
    told = changed("harbour", ADMIN, "/v1/tenants")
    with entry_of_request(failing := AuditEntry(lambda: told)):
        with pytest.raises(AlreadyExists):
            await store.tenants.create(Tenant("default"))
        assert (failing.id, await store.audit.page()) == (None, [])
        await store.tenants.create(Tenant("harbour"))
        await store.tenants.create(Tenant("museum"))
    [entry] = await store.audit.page("harbour")
    assert (failing.id, replace(entry, id=0)) == (entry.id, told)
    await store.audit.complete(entry.id, "glasses")
    assert (await store.audit.page())[0].subject == "glasses"

    with entry_of_request(AuditEntry(lambda: told)):
        await store.tenants.delete("harbour")
    assert await store.audit.page("harbour") == []  # nobody's any more
    assert len(await store.audit.page()) == 2

    with entry_of_request(answered := AuditEntry(lambda: told)):
        answered.close()
        await store.tenants.create(Tenant("harbour"))
    assert len(await store.audit.page()) == 2
