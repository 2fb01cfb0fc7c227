"""Who is admitted: what is kept free of the SLAs of those who are there."""

from collections.abc import Sequence

import pytest

from appliance.policies.offload.admission import Admission
from appliance.policies.offload.base import Client, OffloadInput
from appliance.policies.offload.fleet import Fleet, fleet_of
from appliance.policies.offload.ledger import Opening
from appliance.policies.offload.verify import Verified


def _at_twelve(fleet: Fleet, state: Opening, members: Sequence[int]) -> Verified:
    """A plan in which everybody has a mean stride of 12 frames."""
    return Verified(list(members), [], dict.fromkeys(members, 12.0), [])


@pytest.mark.parametrize(("margin", "members"), [(0.0, [0, 1]), (0.5, [0, 1]), (0.51, [0])])
def test_admission_with_a_margin_keeps_that_share_of_every_sla_free(margin: float, members: list[int]) -> None:
    """30 ms of network and inference are a reference stride of 2 frames; 0.1 at 0.005 a frame allow 20 more. A stride
    of 12 leaves half of them."""
    there = Client("a", 0.005, 0.1, 10.0, 10.0, 299, 5000.0, 298, 5000.0)
    new = Client("b", 0.005, 0.1, 10.0, 10.0)
    fleet = fleet_of(OffloadInput(60.0, 5000.0, 1000.0, {1: 10.0}, (there,), (new,)))
    search = Admission(fleet, [0.1, 0.1], [_at_twelve], 0.5, margin)
    assert search.decide().verified.members == members


def test_admission_with_a_margin_to_an_empty_box_admits_the_first_client() -> None:
    """No client is there that could lose what is kept free."""
    new = Client("b", 0.005, 0.1, 10.0, 10.0)
    fleet = fleet_of(OffloadInput(60.0, 5000.0, 1000.0, {1: 10.0}, (), (new,)))
    assert Admission(fleet, [0.1], [_at_twelve], 0.5, 0.9).decide().verified.members == [0]
