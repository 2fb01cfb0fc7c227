"""Which steps of a variant's inputs are not padded any more."""

import pytest

from appliance.domain.padding import Unfit


def step(width: int, items: int = 1) -> dict[str, tuple[int, ...]]:
    return {"x": (items, 3, 32, width)}


@pytest.mark.parametrize(("failures", "is_certain", "is_unfit"), [(1, False, False), (2, False, True), (1, True, True)])
def test_padding_step_is_unfit_after_two_failures_or_a_certain_one(
    failures: int, is_certain: bool, is_unfit: bool
) -> None:
    """One failure may be for the values in the run; the number of items in the run does not matter."""
    unfit = Unfit()
    for items in range(1, failures + 1):
        unfit.note(step(64, items), has_failed=True, is_certain=is_certain)
    assert (step(64, 7) in unfit) is is_unfit
    assert step(96) not in unfit


def test_padding_step_failure_is_forgotten_after_a_successful_run() -> None:
    """Two failures with a success between are not one after the other."""
    unfit = Unfit()
    for has_failed in (True, False, True):
        unfit.note(step(64), has_failed=has_failed)
    assert step(64) not in unfit


def test_unfit_padding_steps_beyond_256_replace_the_oldest() -> None:
    """All 256 stay when one of them fails again; another step takes the place of the first."""
    unfit = Unfit()
    for width in range(256):
        unfit.note(step(width), has_failed=True, is_certain=True)
    unfit.note(step(255), has_failed=True)
    assert all(step(width) in unfit for width in range(256))
    unfit.note(step(256), has_failed=True, is_certain=True)
    assert [width for width in range(257) if step(width) not in unfit] == [0]
