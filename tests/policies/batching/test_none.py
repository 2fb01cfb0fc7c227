"""Without batching a network gains nothing by a line, however long."""

from appliance.policies.batching.base import BatchingInput, WaitingRequest
from appliance.policies.batching.by_profile import ByProfile
from appliance.policies.batching.none import NoBatching


def test_requests_of_a_long_queue_run_singly_without_batching() -> None:
    """Sixteen in one run take as long as one: by the profile all of them would run together."""
    line = BatchingInput([WaitingRequest(1)] * 16, 16, lambda items: 1_000_000)
    assert ByProfile().together(line) == 16
    assert NoBatching().together(line) == 1
    assert not NoBatching().shares
