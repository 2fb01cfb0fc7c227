"""Never evict: free memory, or nothing."""

import pytest

from appliance.policies.room.base import ResidentBuild, RoomProblem
from appliance.policies.room.none import NeverEvict


@pytest.mark.parametrize(("free", "fits"), [(10, True), (9, False)])
def test_fits_or_not(free: int, fits: bool) -> None:
    """It asks free memory only, however old the resident builds are."""
    plan = NeverEvict().plan(RoomProblem(100, "new", 10, free, (ResidentBuild("old", 100, 0, False),)))
    assert (plan.victims, plan.sufficient) == ((), fits)
