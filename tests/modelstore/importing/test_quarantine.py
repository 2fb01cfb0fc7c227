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
async def test_variant_is_quarantined_only_after_crashes_on_first_processor() -> None:
    """After crashes on another kind it serves elsewhere; a variant that crashes there, too, is put away."""
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
async def test_crashes_of_long_ago_are_forgotten_by_quarantine() -> None:
    """Models come and go, and few crash more than once."""
    clock = HandClock()

    async def store() -> Any:
        raise AssertionError("nothing is put away")

    quarantine = Quarantine(clock, store, lambda build_id: [])
    for number in range(10):
        quarantine.crashed(f"c{number}@cpu@t", "once")
        clock.pass_s(WITHIN_S + 1)
    assert len(quarantine.crashes) == 1
