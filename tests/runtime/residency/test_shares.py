"""Who holds how much of the memory, and whom a newcomer may not push out."""

from dataclasses import replace

import pytest

from appliance.domain.catalogue import Quota, Tenant
from appliance.domain.isolation import Isolation
from appliance.policies.residency.base import TenantShare
from appliance.runtime.memory.room import Holding, Process, ResidentBuild
from appliance.runtime.residency.groups import VariantGroups
from appliance.runtime.residency.shares import Shares
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost

BUDGET = 100


def shares_of(**quotas: Quota) -> tuple[Shares, dict[str, str], EngineBench]:
    """A catalogue with two models of 10 bytes for each tenant; and (tenant + number) → build."""
    bench = EngineBench(BUDGET)
    builds: dict[str, str] = {}
    for tenant, quota in quotas.items():
        for number in "12":
            name = tenant + number
            bench.add({f"v{name}": Cost(10)}, name=name, tenant=tenant, quota=quota)
            builds[name] = bench.build(f"v{name}", f"{tenant}/{name}")
    return Shares(bench.catalogue, VariantGroups(bench.catalogue), BUDGET), builds, bench


def there(builds: dict[str, str], *names: str) -> list[ResidentBuild]:
    """Resident builds, the longest unused first."""
    return [ResidentBuild(builds[name], 10, at, False) for at, name in enumerate(names)]


@story
async def test_tenant_share_takes_lower_ceiling_and_caps_guarantee() -> None:
    """A share of the budget counts as bytes of it; tenants without a share are no share, but they hold something. A
    quota counts as soon as the catalogue has it; a tenant that goes has no share.
    """
    quota = Quota(memory_guarantee_bytes=60, memory_ceiling_bytes=80, memory_share=0.5)
    shares, builds, bench = shares_of(a=quota, b=Quota())
    assert shares.all() == (TenantShare("a", 50, 50),)
    assert shares.holdings(there(builds, "a1", "b1", "b2")) == [Holding("a", 10, 50, 50), Holding("b", 20, 0, None)]
    assert shares.less(there(builds, "a1", "b1")) == (TenantShare("a", 40, 40),)
    bench.catalogue.put_tenant(Tenant("a", Quota(memory_ceiling_bytes=5)))
    assert shares.all() == (TenantShare("a", 0, 5),)
    bench.catalogue.remove_tenant("a")
    assert shares.all() == ()


@story
async def test_guaranteed_builds_do_not_leave_for_other_tenants() -> None:
    """What is above the guarantee may leave, the longest unused; for a new build of the same tenant everything may."""
    shares, builds, _ = shares_of(a=Quota(memory_guarantee_bytes=10), b=Quota())
    resident = there(builds, "a1", "a2", "b1")
    assert shares.guaranteed("b", resident) == {builds["a2"]}
    assert shares.guaranteed("a", resident) == set()
    assert shares.guaranteed(None, resident) == {builds["a2"]}


@story
async def test_tenant_above_ceiling_is_full() -> None:
    """Exactly at the ceiling the tenant is not; a build that is replaced does not count; the surplus is what was used
    longest ago.
    """
    shares, builds, bench = shares_of(a=Quota(memory_ceiling_bytes=20), b=Quota())
    resident = there(builds, "a1", "b1")
    assert shares.full(builds["a2"], 10, resident) is None
    assert shares.full(builds["a2"], 11, resident) == Holding("a", 10, 0, 20)
    assert shares.full(builds["a2"], 11, resident, {builds["a1"]}) is None
    assert shares.full(builds["b2"], 1000, resident) is None
    assert shares.surplus(there(builds, "b1", "a1", "a2")) == []
    bench.catalogue.put_tenant(Tenant("a", Quota(memory_ceiling_bytes=19)))
    assert shares.surplus(there(builds, "b1", "a1", "a2")) == [builds["a1"]]
    small, large = ResidentBuild(builds["a1"], 1, 0, False), ResidentBuild(builds["a2"], 30, 1, False)
    assert shares.surplus([small, large]) == [builds["a2"]]  # without it the small one fits


@story
async def test_guard_memory_is_charged_to_tenant_of_guard() -> None:
    """Beside the tenant's builds, also of a guard that a new build would begin; nothing of other tenants."""
    quota = Quota(memory_ceiling_bytes=30, memory_guarantee_bytes=30, isolation=Isolation.PROCESS)
    _, builds, bench = shares_of(a=quota, b=Quota())
    shares = Shares(bench.catalogue, VariantGroups(bench.catalogue), BUDGET, {"cpu": 6})
    resident = there(builds, "a1", "b1")
    assert shares.full(builds["a2"], 14, resident) is None
    assert shares.full(builds["a2"], 15, resident) == Holding("a", 10, 30, 30)
    assert shares.less(resident, builds["a2"]) == (TenantShare("a", 14, 14),)
    assert shares.guard_to_come(builds["a2"]) == Process(("a", "cpu"), 6, "a")

    shares.charge_guards({("a", "cpu"): 7, ("b", "cpu"): 50})
    assert shares.full(builds["a2"], 13, resident) is None
    assert shares.full(builds["a2"], 14, resident) == Holding("a", 17, 30, 30)
    assert shares.less(resident, builds["a2"]) == (TenantShare("a", 13, 13),)
    assert [one.held_bytes for one in shares.holdings(resident)] == [17, 60]
    assert shares.guaranteed("b", there(builds, "a1", "a2")) == {builds["a1"], builds["a2"]}
    assert shares.surplus(there(builds, "a1", "a2")) == []

    assert shares.guard_to_come(builds["a2"]) is None
    shares.charge_guards({("a", "cpu"): 11})
    assert shares.surplus(there(builds, "a1", "a2")) == [builds["a1"]]
    asleep = [ResidentBuild(builds["a2"], 10, 0, False)]
    assert shares.asleep_above_ceiling(asleep, lambda: there(builds, "a1")) == {builds["a2"]}


@story
async def test_sleeping_builds_above_tenant_ceiling_leave() -> None:
    """Beside what the tenant has awake, the longest unused first; without a ceiling the builds
    awake are not even read.
    """
    shares, builds, bench = shares_of(a=Quota(memory_ceiling_bytes=20), b=Quota())
    asleep = [ResidentBuild(builds[name], 6, at, False) for at, name in enumerate(("b1", "a2", "a1", "b2"))]
    assert shares.asleep_above_ceiling(asleep, lambda: there(builds, "b1")) == set()
    assert shares.asleep_above_ceiling(asleep, lambda: there(builds, "a1")) == {builds["a2"]}
    assert shares.asleep_above_ceiling(asleep, lambda: there(builds, "a1", "a2")) == {builds["a1"], builds["a2"]}
    assert shares.holdings([*asleep, *there(builds, "a1")])[0].held_bytes == 22
    bench.catalogue.put_tenant(Tenant("a", Quota()))
    assert shares.asleep_above_ceiling(asleep, lambda: pytest.fail("asked")) == ()


@story
async def test_tenant_with_many_sleeping_builds_evicts_none_of_other_tenants() -> None:
    """Memory for sleeping builds has room for ten: a tenant that has two keeps them whatever another tenant's twenty
    do, and a tenant with a ceiling keeps to it with what sleeps.
    """
    bench = EngineBench(400)
    cost = Cost(40, asleep_bytes=10)
    builds: dict[str, str] = {}
    for tenant, count, quota in (
        ("few", 2, Quota()),
        ("many", 20, Quota()),
        ("held", 4, Quota(memory_ceiling_bytes=65)),
    ):
        for number in range(count):
            name = f"{tenant}{number}"
            bench.add({f"v{name}": replace(cost)}, name=name, tenant=tenant, quota=quota)
            builds[name] = bench.build(f"v{name}", f"{tenant}/{name}")

    async def use(name: str) -> None:
        bench.memory.unpin(await bench.memory.pin(builds[name], 40, 40, None))
        bench.memory.release(builds[name])
        await bench.clock.sleep_until_ns(bench.clock.now_ns() + 1_000_000_000)

    def asleep(tenant: str) -> list[str]:
        return [name for name, build in builds.items() if bench.memory.is_asleep(build) and tenant in name]

    for name in builds:
        if "held" not in name:
            await use(name)
    assert asleep("few") == ["few0", "few1"]
    assert asleep("many") == [f"many{number}" for number in range(12, 20)]
    for number in range(4):
        await use(f"held{number}")
        bench.memory.trim()
    assert len(asleep("many")) < 8
    assert asleep("few") == ["few0", "few1"]
    bench.memory.unpin(await bench.memory.pin(builds["held0"], 40, 40, None))
    holding = next(one for one in bench.core.shares.holdings(bench.memory.holders()) if one.tenant == "held")
    assert holding.held_bytes <= 65
    assert len(asleep("held")) == 2


@story
async def test_first_guard_of_processor_brings_fork_server() -> None:
    """The server's memory is promised with the guard, and no tenant is charged for it. The next guard does not bring it
    again.
    """
    bench = EngineBench(BUDGET)
    shares = Shares(bench.catalogue, VariantGroups(bench.catalogue), BUDGET, {"cpu": 20}, {"cpu": 30})
    bench.add({"v": Cost(10)}, name="own", tenant="a", quota=Quota(memory_ceiling_bytes=35))
    first = shares.guard_to_come("content@cpu@a")
    assert first is not None
    assert (first.tenant, first.shared_bytes) == ("a", 30)
    assert (first.bytes, shares.guard_bytes_of("content@cpu@a"), shares.ceiling_for("a")) == (50, 50, 35)
    assert shares.ceiling_for("a", ["content@cpu@a"]) == 15
    shares.charge_servers({"cpu": 32})
    second = shares.guard_to_come("content@cpu@b")
    assert second is not None
    assert second.bytes == 20
    shares.charge_guards({("a", "cpu"): 22})
    assert (shares.guard_to_come("content@cpu@a"), shares.guard_bytes_of("content@cpu@a")) == (None, 54)
    shares.charge_servers({"cpu": 0})
    assert shares.server_to_come("cpu") == 30
