"""Which steps of a variant's inputs are not padded any more."""

import pytest

from appliance.domain.padding import Unfit


def step(width: int, items: int = 1) -> dict[str, tuple[int, ...]]:
    return {"x": (items, 3, 32, width)}


@pytest.mark.parametrize(("failures", "is_certain", "is_unfit"), [(1, False, False), (2, False, True), (1, True, True)])
def test_unfit_takes_a_step_after_two_failures_or_a_certain_one(
    failures: int, is_certain: bool, is_unfit: bool
) -> None:
    """One failure may be for the values in the run; how many items were in it does not matter."""
    unfit = Unfit()
    for items in range(1, failures + 1):
        unfit.note(step(64, items), has_failed=True, is_certain=is_certain)
    assert (step(64, 7) in unfit) is is_unfit
    assert step(96) not in unfit


def test_unfit_forgets_a_steps_failure_when_a_run_succeeds() -> None:
    """Two failures with a success between are not one after the other."""
    unfit = Unfit()
    for has_failed in (True, False, True):
        unfit.note(step(64), has_failed=has_failed)
    assert step(64) not in unfit


def test_unfit_with_256_steps_forgets_the_oldest_for_a_new_one() -> None:
    """The 256 that it keeps stay when one of them fails again; another one takes the place of the first."""
    unfit = Unfit()
    for width in range(256):
        unfit.note(step(width), has_failed=True, is_certain=True)
    unfit.note(step(255), has_failed=True)
    assert all(step(width) in unfit for width in range(256))
    unfit.note(step(256), has_failed=True, is_certain=True)
    assert [width for width in range(257) if step(width) not in unfit] == [0]
