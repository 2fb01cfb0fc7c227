"""What single calls take beside pipelines."""

import pytest

from appliance.clock import NS_PER_S
from appliance.runtime.pipelines.load import SingleCallLoad, parts_of


def seen(**workers: float) -> SingleCallLoad:
    """So many workers of two groups alike are busy with each tenant's calls, for twenty seconds."""
    load = SingleCallLoad()
    for second in range(20):
        load.observe(
            second * NS_PER_S, {tenant: {0: busy * second, 1: busy * second} for tenant, busy in workers.items()}
        )
    return load


def test_single_call_load_counts_a_tenants_weighted_part_at_most() -> None:
    """A tenant that takes less counts with that, and a tenant without a part with all that it takes."""
    load = seen(a=3.0, b=0.5)
    parts = parts_of({"a": 1.0, "b": 2.0, "c": 1.0})
    assert parts == {"a": 0.25, "b": 0.5, "c": 0.25}
    for group in (0, 1):
        assert load.share(group, 4, parts) == pytest.approx(0.25 + 0.125, abs=0.001)
        assert load.share(group, 4, {}) == pytest.approx(0.75 + 0.125, abs=0.001)
    assert load.share(0, 2, {}) == 1.0
    assert load.share(2, 4, parts) == 0.0


def test_single_call_load_of_next_to_nothing_counts_as_none() -> None:
    assert seen(a=0.01).share(0, 1, {}) == 0.0
    assert parts_of({}) == {}


def test_single_call_load_of_a_tenant_that_stopped_is_forgotten() -> None:
    """Soon counted with nothing, and then not at all; a tenant that begins anew counts from then on."""
    load = seen(a=1.0)
    assert set(load.tenants) == {"a"}
    for second in range(20, 80):
        load.observe(second * NS_PER_S, {"a": {0: 19.0, 1: 19.0}})
    assert not load.tenants
    load.observe(80 * NS_PER_S, {"a": {0: 1.0, 1: 0.0}})  # counted anew since the start of something
    load.observe(80 * NS_PER_S, {"a": {0: 5.0, 1: 0.0}})
    assert load.share(0, 1, {}) == 0.0
