"""Whose sleeping builds go for good first."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.residency.sleepers import Sleeper, order_of_leaving


def sleepers(*rows: tuple[str, int, int]) -> list[Sleeper]:
    """Of (tenant, bytes, last use)."""
    return [Sleeper(f"{tenant}{at}", tenant, size, at) for tenant, size, at in rows]


def test_sleeping_builds_of_one_tenant_leave_by_last_use() -> None:
    """Whatever they take; builds of equal last use by id."""
    assert order_of_leaving(sleepers(("a", 1, 3), ("a", 90, 2), ("a", 5, 4)), lambda t: 1) == ["a2", "a3", "a4"]
    equal = [Sleeper(name, "a", 1, 7) for name in "zyx"]
    assert order_of_leaving(equal, lambda t: 1) == ["z", "y", "x"]
    assert order_of_leaving([], lambda t: 1) == []


def test_sleeping_builds_of_the_tenant_with_most_by_weight_leave_first() -> None:
    """Until all tenants have the same by weight; then in turn, and the build that was asked longer ago first."""
    there = sleepers(("many", 10, 7), ("many", 10, 8), ("many", 10, 9), ("few", 10, 1))
    assert order_of_leaving(there, lambda t: 1) == ["many7", "many8", "few1", "many9"]
    assert order_of_leaving(there, {"many": 4.0, "few": 1.0}.__getitem__) == ["few1", "many7", "many8", "many9"]


TENANTS = {"a": 1.0, "b": 2.0, "c": 0.5}
ROW = st.tuples(st.sampled_from(sorted(TENANTS)), st.integers(1, 50))


@given(rows=st.lists(ROW, max_size=30))
def test_tenant_within_its_share_loses_no_sleeping_build_to_a_larger_tenant(rows: list[tuple[str, int]]) -> None:
    """Each build leaves once; each time it is a build of the tenant that has most by its weight at that moment."""
    there = {s.build_id: s for s in sleepers(*((tenant, size, at) for at, (tenant, size) in enumerate(rows)))}
    order = order_of_leaving(there.values(), TENANTS.__getitem__)
    assert sorted(order) == sorted(there)
    left = dict(there)
    for build_id in order:
        held = {
            tenant: sum(s.bytes for s in left.values() if s.tenant == tenant) / weight
            for tenant, weight in TENANTS.items()
        }
        assert held[left[build_id].tenant] == max(held.values())
        del left[build_id]
    for tenant in TENANTS:
        own = [there[build_id].last_used_ns for build_id in order if there[build_id].tenant == tenant]
        assert own == list(accumulate(own, max))
