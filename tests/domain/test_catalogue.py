"""What a model's list of variants says to a person."""

import pytest

from appliance.domain.catalogue import shown_by
from appliance.domain.trial import Trial


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (Trial(), "agrees with the original to 100 % on 0 requests (0 to 100 % at 95 %)"),
        (Trial(1, 0.5, 0.25), "agrees with the original to 50 % on 1 request (0 to 100 % at 95 %)"),
    ],
)
def test_trial_text_states_number_of_requests_and_interval(trial: Trial, words: str) -> None:
    """Fewer than two requests show nothing about the mean."""
    assert shown_by(trial) == words
