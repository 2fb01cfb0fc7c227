"""How many wait: bounded for each caller and application, and of some sorts."""

import pytest

from appliance.domain.errors import QueueFull
from appliance.domain.request import Request
from appliance.runtime.serving.waiting_counts import WaitingCounts


def request(
    tenant: str = "t", application: str = "o/a", *, is_item: bool = False, beyond_plan: bool | None = None
) -> Request:
    return Request(application, tenant, {}, 0, is_item=is_item, beyond_plan=beyond_plan)


def test_each_caller_of_an_application_has_a_bound_of_its_own() -> None:
    """Who is at it is refused with what it was; who leaves makes room; figures are by application."""
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


def test_no_tenant_takes_all_places() -> None:
    """Of eight places one alone has seven."""
    counts = WaitingCounts(100, 8)
    for _ in range(7):
        counts.check_room("o/a", "t")
        counts.add(request())
    with pytest.raises(QueueFull):
        counts.check_room("o/a", "t")
    counts.check_room("o/a", "other")


def test_sorts() -> None:
    """Whether all are items, and whether somebody else waits with what a plan counts on; nothing stays behind."""
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
