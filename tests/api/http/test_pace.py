"""How long a connection may take."""

import pytest

from appliance.api.http.pace import Pace, Phase, Watch

PACE = Pace(head_s=10, keep_alive_s=30, body_s=10, body_bytes_per_s_min=1000)


def seconds_until_slow(phase: Phase, bytes_per_s: int, request_each_s: int = 1000) -> int | None:
    """Looked at once a second for five minutes."""
    watch = Watch()
    for second in range(300):
        if watch.is_too_slow(PACE, phase, second // request_each_s, second * bytes_per_s, second):
            return second
    return None


@pytest.mark.parametrize(
    ("phase", "bytes_per_s", "expected"),
    [
        (Phase.HEAD, 10**6, 10),
        (Phase.IDLE, 0, 30),
        (Phase.BODY, 0, 10),
        (Phase.BODY, 999, 10),
        (Phase.BODY, 1000, None),
        (Phase.READING, 0, 10),
        (Phase.READING, 1000, None),
        (Phase.ENDING, 0, 2),
        (Phase.ENDING, 999, 2),
        (Phase.ENDING, 10**6, 60),
        (Phase.OURS, 0, None),
    ],
)
def test_connection_phase_has_its_bound_of_seconds(phase: Phase, bytes_per_s: int, expected: int | None) -> None:
    """Bytes help a body and an answer, and for a while a body that is dropped."""
    assert seconds_until_slow(phase, bytes_per_s) == expected


def test_slow_small_bodies_in_a_row_are_not_one_slow_body() -> None:
    assert seconds_until_slow(Phase.BODY, 1, request_each_s=9) is None


def test_body_that_slows_down_is_noticed() -> None:
    """The pace of before does not count for later."""
    watch = Watch()
    seen = [watch.is_too_slow(PACE, Phase.BODY, 1, min(second, 20) * 10**6, second) for second in range(60)]
    assert seen.index(True) == 30
