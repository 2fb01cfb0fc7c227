"""Builds whose process ends again and again: another kind of processor first, then their variants are put away."""

from typing import Any

from appliance.domain.states import VariantState
from appliance.modelstore.importing.quarantine import CRASHES_MAX, WITHIN_S, Quarantine
from tests.fakes.clock import settle, story
from tests.fakes.hand_clock import HandClock


class _Models:
    """What is put away."""

    def __init__(self) -> None:
        self.away: list[str] = []

    async def set_variant_state(self, variant_id: str, state: VariantState, reason: str) -> None:
        assert state is VariantState.QUARANTINED
        assert "the third" in reason
        self.away.append(variant_id)


@story
async def test_on_another_kind_than_the_first_nothing_is_put_away() -> None:
    """It serves elsewhere from then on; what crashes there, too, is put away."""
    models = _Models()
    avoided: list[str] = []
    told: list[tuple[str, str]] = []

    async def store() -> Any:
        return models

    def avoid(build_id: str) -> bool:
        if build_id.endswith("@cpu@t"):
            return False
        avoided.append(build_id)
        return True

    quarantine = Quarantine(HandClock(), store, lambda build_id: ["t/m:v"], avoid, lambda *about: told.append(about))
    for build_id, put_away in (("c@openvino@t", []), ("c@cpu@t", ["t/m:v"])):
        for time in ("the first", "the second", "the third"):
            assert not models.away
            quarantine.crashed(build_id, time)
        await settle()
        assert models.away == put_away
    assert avoided == ["c@openvino@t"]
    assert told == [("c@openvino@t", "the third")]
    assert CRASHES_MAX == 3


@story
async def test_what_crashed_long_ago_is_forgotten() -> None:
    """Models come and go, and few crash more than once."""
    clock = HandClock()

    async def store() -> Any:
        raise AssertionError("nothing is put away")

    quarantine = Quarantine(clock, store, lambda build_id: [])
    for number in range(10):
        quarantine.crashed(f"c{number}@cpu@t", "once")
        clock.pass_s(WITHIN_S + 1)
    assert len(quarantine._crashes) == 1
