"""Keys: which of them need another one in their place."""

import datetime

import pytest

from appliance.domain.access import KeyRecord, Role

NOW = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


@pytest.mark.parametrize(
    ("lasts_days", "left_days", "needs_successor"),
    [(365, 6, True), (365, 8, False), (30, 2, True), (30, 4, False), (1, 0.9, False), (1, 0.05, True)],
)
def test_key_needs_successor_in_last_tenth_of_its_time_and_last_week(
    lasts_days: float, left_days: float, needs_successor: bool
) -> None:
    end = NOW + left_days * DAY
    key = KeyRecord("k", "harbour", Role.DEVICE, b"", created_at=end - lasts_days * DAY, expires_at=end)
    assert key.needs_successor(NOW) is needs_successor


def test_key_without_end_needs_no_successor() -> None:
    assert not KeyRecord("k", "harbour", Role.DEVICE, b"", created_at=NOW).needs_successor(NOW)
