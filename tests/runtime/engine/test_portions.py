"""A limit that tenants share: much for one alone, something for everybody."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.runtime.engine.portions import GREED, Portions


def filled(portions: Portions, tenant: str) -> int:
    """Take one by one until there is no room."""
    while portions.take(tenant):
        pass
    return portions.held(tenant)


def test_lone_tenant_takes_all_but_a_reserve() -> None:
    """Seven eighths for the first; of the rest the next gets its part, and there is still something free."""
    portions = Portions(80)
    assert filled(portions, "greedy") == 70
    assert filled(portions, "second") > 0
    assert portions.take("third")
    assert portions.taken < portions.limit


def test_first_portion_of_a_tenant_is_bounded_by_the_limit_alone() -> None:
    """A tenant with nothing may take more than the reserve where it is free; over the limit only where it is alone."""
    portions = Portions(100)
    assert portions.take("a", 60)
    assert not portions.has_room("a", 30)
    assert portions.take("b", 30)
    assert not portions.take("c", 11)
    assert portions.take("c", 10)
    assert Portions(10).take("a", 64)


def test_portion_given_back_is_free_for_other_tenants() -> None:
    """A flood that ends leaves nothing behind."""
    portions = Portions(16)
    count = filled(portions, "a")
    portions.give("a", count)
    assert (portions.taken, portions.held("a")) == (0, 0)
    assert filled(portions, "b") == count


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 20), st.booleans()), max_size=60))
def test_portions_add_up_and_never_exceed_the_limit(steps: list[tuple[str, int, bool]]) -> None:
    """A tenant that holds nothing finds room for one while there is any."""
    portions = Portions(64)
    held: dict[str, int] = {}
    for tenant, count, gives in steps:
        if gives and held.get(tenant):
            portions.give(tenant, held.pop(tenant))
        elif portions.take(tenant, count):
            held[tenant] = held.get(tenant, 0) + count
        assert {t: portions.held(t) for t in held} == held
        assert portions.taken == sum(held.values()) <= portions.limit
        assert portions.taken == portions.limit or portions.has_room("newcomer")


def test_saturated_tenants_hold_equal_portions() -> None:
    """The first tenant gives way to the later one's equal part as its own requests end."""
    portions = Portions(1000)
    filled(portions, "first")
    for _ in range(2000):
        portions.give("first")
        portions.take("second")
        portions.take("first")
    equal = 1000 * GREED // (1 + 2 * GREED)
    assert all(abs(portions.held(tenant) - equal) <= GREED for tenant in ("first", "second"))
