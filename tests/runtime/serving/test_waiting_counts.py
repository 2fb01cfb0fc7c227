"""How many wait: bounded for each caller and application, and of some sorts."""

import pytest

from appliance.domain.errors import QueueFull
from appliance.domain.request import Request
from appliance.runtime.serving.waiting_counts import WaitingCounts


def request(
    tenant: str = "t", application: str = "o/a", *, is_item: bool = False, beyond_plan: bool | None = None
) -> Request:
    return Request(application, tenant, {}, 0, is_item=is_item, beyond_plan=beyond_plan)


def test_callers_of_an_application_have_bounds_of_their_own() -> None:
    """A caller at its bound is refused with the bound that it met; a request that leaves makes room; figures are by
    application.
    """
    counts = WaitingCounts(2, 100)
    for _ in range(2):
        counts.add(request())
    counts.add(request("other"))
    with pytest.raises(QueueFull) as caught:
        counts.check_room("o/a", "t")
    assert (caught.value.application_id, caught.value.queue_len_max) == ("o/a", 2)
    counts.check_room("o/a", "other")
    counts.check_room("o/b", "t")
    assert (len(counts), counts.lengths()) == (3, {"o/a": 3})
    counts.remove(request())
    counts.check_room("o/a", "t")


def test_lone_tenant_leaves_a_place_to_others() -> None:
    """Of eight places it has seven."""
    counts = WaitingCounts(100, 8)
    for _ in range(7):
        counts.check_room("o/a", "t")
        counts.add(request())
    with pytest.raises(QueueFull):
        counts.check_room("o/a", "t")
    counts.check_room("o/a", "other")


def test_waiting_counts_know_items_and_planned_requests_of_others() -> None:
    """Whether all requests of an application are items, and whether another tenant's planned request waits; nothing
    stays behind.
    """
    counts = WaitingCounts(100, 100)
    item, plain, planned = request(is_item=True), request(), request("p", is_item=True, beyond_plan=False)
    counts.add(item)
    assert counts.are_items("t", "o/a")
    counts.add(plain)
    assert not counts.are_items("t", "o/a")
    assert not counts.has_planned_beside("t")
    counts.add(planned)
    assert (counts.has_planned_beside("t"), counts.has_planned_beside("p")) == (True, False)
    for one in (item, plain, planned):
        counts.remove(one)
    assert not counts.has_planned_beside("t")
    assert (len(counts), counts.lengths()) == (0, {})
