"""Regions of tenants: their bounds, and who has what."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.shared_memory import SharedMemory

import pytest

from appliance.api.regions.region import Region, SharedObject
from appliance.api.regions.regions import Regions
from appliance.domain.errors import BadRegion, QuotaExceeded, UnknownRegion


@pytest.fixture
def keys() -> Iterator[list[str]]:
    """Of three objects with 1,000 bytes each."""
    with ExitStack() as stack:
        made = [SharedMemory(create=True, size=1000) for _ in range(3)]
        for one in made:
            stack.callback(one.unlink)
            stack.callback(one.close)
        yield [one.name for one in made]


def region(name: str, key: str, size: int = 10, offset: int = 0, key_id: str = "k") -> Region:
    return Region(name, key, offset, size, key_id, SharedObject(key, os.geteuid()))


def names(regions: Regions, tenant: str) -> list[str]:
    return [one.name for one in regions.all(tenant)]


def test_regions_of_a_tenant_are_bounded_in_count_and_bytes(keys: list[str]) -> None:
    """Dropped regions count no more."""
    regions = Regions(3, 100)
    regions.add("a", region("one", keys[0], 60))
    with pytest.raises(QuotaExceeded, match="100 bytes of shared memory: 60 are used, and this needs 41"):
        regions.add("a", region("two", keys[0], 41))
    regions.add("a", region("two", keys[0], 40))
    regions.drop("a", "one")
    regions.add("a", region("three", keys[0], 1))
    regions.add("a", region("four", keys[0], 1))
    with pytest.raises(QuotaExceeded, match="3 shared memory regions"):
        regions.add("a", region("five", keys[0], 1))
    regions.add("b", region("one", keys[1], 100))
    assert len(regions) == 4
    assert regions.all("c") == []


def test_regions_of_all_tenants_are_bounded_together(keys: list[str]) -> None:
    """Ten times the bound of one tenant."""
    regions = Regions(1, 100)
    with ExitStack() as stack:
        for number in range(11):
            made = SharedMemory(create=True, size=10)
            stack.callback(made.unlink)
            stack.callback(made.close)
            if number < 10:
                regions.add(f"tenant{number}", region("r", made.name))
                continue
            with pytest.raises(QuotaExceeded):
                regions.add(f"tenant{number}", region("r", made.name))


def test_region_that_is_no_new_object_of_the_tenant_is_refused(keys: list[str]) -> None:
    """A name twice, more than there is, another tenant's object; then nothing of it is kept."""
    regions = Regions(9, 9000)
    regions.add("a", region("one", keys[0]))
    for tenant, refused, words in (
        ("a", region("one", keys[1]), "registered already"),
        ("a", region("two", keys[1], 1000, 1), "do not fit into the 1000"),
        ("b", region("one", keys[0], 10, 500), "registered by another tenant"),
    ):
        with pytest.raises(BadRegion, match=words):
            regions.add(tenant, refused)
    assert names(regions, "a") == ["one"]
    assert names(regions, "b") == []
    with pytest.raises(UnknownRegion, match="one"):
        regions.get("b", "one")
    regions.drop_tenant("a")
    regions.add("b", region("one", keys[0]))


def test_regions_are_dropped_by_name_key_and_tenant(keys: list[str]) -> None:
    """A region that is not there is no error."""
    regions = Regions(9, 9000)
    regions.add("a", region("one", keys[0], key_id="first"))
    regions.add("a", region("two", keys[0], key_id="second"))
    regions.add("b", region("one", keys[1], key_id="first"))
    regions.drop("b", "two")
    regions.drop("nobody", "one")
    regions.drop_key("first")
    assert names(regions, "a") == ["two"]
    assert names(regions, "b") == []
    regions.drop_tenant("nobody")
    regions.drop_tenant("a")
    assert len(regions) == 0
