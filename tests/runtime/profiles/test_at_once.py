"""How many runs of a build at once pay: throughputs computed by hand."""

import pytest

from appliance.domain.catalogue import Latency
from appliance.runtime.profiles.at_once import runs_at_once


def rows(*of: tuple[int, float], batch: int = 1) -> tuple[Latency, ...]:
    """(concurrency, ms) of a batch."""
    return tuple(Latency(batch, ms, ms, level) for level, ms in of)


@pytest.mark.parametrize(
    ("measured", "on_device", "on_cores"),
    [
        ((), None, None),
        (((1, 10.0),), None, None),  # nobody has measured more
        (((1, 10.0), (2, 20.0)), 1, None),  # 100 a second either way: a core would idle
        (((1, 10.0), (2, 19.5)), 1, None),  # 102.6
        (((1, 10.0), (2, 19.0)), None, None),  # 105.3
        (((1, 10.0), (2, 21.5)), 1, 1),  # 93: each costs the others more than it brings
        (((1, 10.0), (2, 12.0), (4, 24.0)), 2, None),  # 100, 167, 167
        (((1, 10.0), (2, 25.0), (4, 20.0)), 1, 1),  # 100, 80, 200: what comes after a step back is not looked at
    ],
)
def test_runs_at_once_are_raised_while_throughput_grows(
    measured: tuple[tuple[int, float], ...], on_device: int | None, on_cores: int | None
) -> None:
    found = rows(*measured)
    assert runs_at_once(found, on_cores=False) == on_device
    assert runs_at_once(found, on_cores=True) == on_cores


def test_runs_at_once_go_by_the_smallest_batch() -> None:
    """Whatever larger batches gain: it is not known yet which requests will share the run."""
    assert runs_at_once([*rows((1, 10.0), (2, 20.0)), *rows((1, 30.0), (2, 30.0), batch=4)], on_cores=False) == 1
