"""Decisions as they are stored."""

import datetime
from dataclasses import replace

import pytest

from appliance.domain.catalogue import Tenant
from appliance.domain.decisions import DecisionRecord
from appliance.modelstore.store.decisions import SAMPLES_MAX
from appliance.modelstore.store.store import Store

pytestmark = pytest.mark.anyio

AT = datetime.datetime(2026, 1, 1, 12, 0, 0, 250, tzinfo=datetime.UTC)


def decided(application: str, *others: str, kind: str = "residency") -> DecisionRecord:
    names = sorted({application, *others})
    concerned = tuple((name, name.split("/")[0]) for name in names)
    answer = {"outcome": "cold", "actions": [], "reason": f"for {application}"}
    return DecisionRecord(AT, kind, application, concerned, {"kind": kind, "applications": []}, answer)


async def test_decisions_are_stored_and_listed_newest_first(store: Store) -> None:
    """Every field comes back, with an id."""
    await store.tenants.create(Tenant("museum"))
    first, second = decided("default/a", "museum/b"), decided("default/c")
    await store.decisions.add([first, second], 100)
    newest, oldest = await store.decisions.page()
    assert newest.id > oldest.id > 0
    assert [replace(record, id=0) for record in (oldest, newest)] == [first, second]


async def test_decisions_are_filtered_and_paged(store: Store) -> None:
    """By tenant, by application, by kind, and below an id; together they all hold."""
    await store.tenants.create(Tenant("museum"))
    records = [decided("default/a"), decided("museum/b", "default/a"), decided("museum/b", kind="other")]
    await store.decisions.add(records, 100)
    assert len(await store.decisions.page("museum")) == 2
    assert len(await store.decisions.page("default")) == 2
    assert [r.concerned for r in await store.decisions.page("museum", application="default/a")] == []
    assert len(await store.decisions.page(application="default/a")) == 2
    assert [r.kind for r in await store.decisions.page("museum", kind="other")] == ["other"]
    seen: list[int] = []
    before = None
    while page := await store.decisions.page(before=before, limit=1):
        before = page[0].id
        seen.append(before)
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 3


async def test_oldest_decisions_beyond_bound_are_removed(store: Store) -> None:
    """The table never holds more than its bound, links included, and ids go on."""
    for i in range(5):
        await store.decisions.add([decided(f"default/a{i}{k}") for k in range(4)], 10)
    kept = await store.decisions.page()
    assert [record.id for record in kept] == list(range(20, 10, -1))
    assert await store.decisions.page(application="default/a00") == []


async def test_sampled_decisions_do_not_push_out_other_kinds(store: Store) -> None:
    """Of a kind that is sampled so many are kept; others stay."""
    decisions = store.decisions
    await decisions.add([decided("t/a")], 100_000)
    for _ in range(6):
        await decisions.add([decided("t/a", kind="dispatch")] * 300, 100_000)
    kept = await decisions.page(kind="dispatch", limit=5000)
    assert SAMPLES_MAX <= len(kept) < SAMPLES_MAX + 300 + 256
    assert len(await decisions.page(kind="residency", limit=10)) == 1


async def test_decision_of_deleted_tenant_is_hidden_from_new_tenant_of_name(store: Store) -> None:
    """A decision about a deleted tenant's application is stored for the operator; a new tenant of that name does not
    see it, nor the older ones.
    """
    await store.tenants.create(Tenant("museum"))
    await store.decisions.add([decided("museum/b")], 100)
    await store.tenants.delete("museum")
    await store.decisions.add([decided("museum/b", "default/a")], 100)
    await store.tenants.create(Tenant("museum"))
    assert await store.decisions.page("museum") == []
    assert [record.concerned for record in await store.decisions.page()] == [(("default/a", "default"),), ()]


async def test_empty_batch_of_decisions_changes_nothing(store: Store) -> None:
    """An empty batch neither fails nor removes."""
    await store.decisions.add([decided("default/a")], 1)
    await store.decisions.add([], 1)
    assert len(await store.decisions.page()) == 1
