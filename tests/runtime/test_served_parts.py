"""Which parts of a cut network serve where, and what they cost together."""

from dataclasses import replace

import pytest

from appliance.domain.catalogue import Latency, Precision, Profile, Variant
from appliance.domain.parts import BatchTime, Cut, Part, PartProfile
from appliance.policies.selection.kinds import quickest_kinds
from appliance.runtime.profiles.store import MEASURED, Where
from appliance.runtime.served_parts import PASS_MS, ServedParts, served_parts


def part(number: int, takes_ms: dict[str, float], *, asleep_bytes: int | None = None) -> Part:
    profiles = tuple(
        PartProfile(kind, (BatchTime(1, took_ms), BatchTime(4, 3 * took_ms)), True, 100, 130, asleep_bytes)
        for kind, took_ms in takes_ms.items()
    )
    return Part(1, {}, (f"t{number}",), (f"t{number + 1}",), 10, 1.0, 4, profiles)


CUT = Cut(
    {"cpu": "", "npu": "", "gpu": ""},
    (part(0, {"cpu": 8, "npu": 2}), part(1, {"cpu": 1}), part(2, {"cpu": 4, "npu": 3.9, "gpu": 1})),
)
WHOLE = Profile("cpu", 300, 400, 50, 60, (Latency(1, 20, 30),), hazards=())
VARIANT = Variant("t/m:v", "t/m", "v", Precision.FP32, "0" * 64, 10, (), (), profile=WHOLE, cut=CUT)


def served(
    variant: Variant, *places: dict[str, Where], scale: float = 1.0, copies: int = 1, leaves_out: bool = False
) -> ServedParts | None:
    return served_parts(
        variant,
        scale,
        places,
        lambda kind: copies if kind == "cpu" else 1,
        lambda build, profile, where, is_measured: None,
        leaves_out=leaves_out,
    )


def test_part_serves_on_the_quickest_kind_on_the_same_cores() -> None:
    """On the first kind that runs it, where another is hardly quicker, or the run so short that the call is what it
    takes.
    """
    runs_ms = [{"cpu": 8.0, "npu": 2.0}, {"cpu": 1.0}, {"cpu": 4.0, "npu": 3.9}, {"gpu": 1.0}, {"cpu": 0.1, "npu": 0.0}]
    assert quickest_kinds(runs_ms, ["cpu", "npu"]) == ("npu", "cpu", "cpu", None, "cpu")


def test_parts_on_shared_cores_run_one_after_the_other() -> None:
    """All together are one build; each further run has its way to a thread and back."""
    found = served(VARIANT, {"cpu": MEASURED, "npu": MEASURED}, scale=1.5)
    assert found is not None
    assert found.kinds == {0: ("npu", "cpu", "cpu")}
    assert found.build_id.startswith("0" * 24 + ".p")
    assert found.build_id.endswith("@cpu+npu")
    assert set(found.builds.values()) == {f"{'0' * 24}.{at}@{kind}" for at, kind in enumerate(("npu", "cpu", "cpu"))}
    one, four = found.profile.latencies
    assert one.p50_ms == pytest.approx(1.5 * (2 + 1 + 4 + 2 * PASS_MS))
    assert one.p99_ms / one.p50_ms == pytest.approx(1.5)
    assert four.batch == 4
    assert found.home == "cpu", "5 ms of 7"
    assert (found.profile.resident_bytes, found.profile.peak_bytes) == (300, 330)
    assert found.profile.asleep_bytes is None


def test_parts_over_several_groups_go_by_the_quickest_sequence() -> None:
    """What a device of its own takes over is worth the way there; a build that is in memory twice counts so."""
    found = served(VARIANT, {"cpu": MEASURED, "npu": MEASURED}, {"gpu": MEASURED}, copies=2)
    assert found is not None
    assert found.kinds == {0: ("npu", "cpu", "cpu"), 1: (None, None, "gpu")}
    assert 4 < found.profile.latencies[0].p50_ms < 7
    assert found.home == "npu"
    assert found.profile.resident_bytes == 100 + 2 * 200 + 100
    assert found.build_id != served(VARIANT, {"cpu": MEASURED, "npu": MEASURED}).build_id  # type: ignore[union-attr]


def test_part_off_the_quickest_sequence_is_left_out_if_the_setting_says_so() -> None:
    """Of 8 + 1 + 4 ms on the first group, the gpu takes over the last part at 1 ms and its way: the first group's build
    of it is left out, and 100 bytes with it.
    """
    places = {"cpu": MEASURED, "npu": MEASURED}, {"gpu": MEASURED}
    whole, lean = served(VARIANT, *places), served(VARIANT, *places, leaves_out=True)
    assert whole is not None
    assert lean is not None
    assert lean.kinds == {0: ("npu", "cpu", None), 1: (None, None, "gpu")}
    assert set(whole.builds) - set(lean.builds) == {(2, "cpu")}
    assert lean.profile.resident_bytes == whole.profile.resident_bytes - 100
    assert lean.profile.latencies == whole.profile.latencies
    assert lean.build_id != whole.build_id


def test_network_that_a_single_kind_runs_does_not_serve_in_parts() -> None:
    """It would be the whole, with detours. Nor does a network with a part that no kind runs."""
    assert served(VARIANT, {"cpu": MEASURED}) is None
    assert served(VARIANT, {"npu": MEASURED, "gpu": MEASURED}) is None


def test_parts_sleep_together_where_each_can_sleep() -> None:
    cut = replace(CUT, parts=(part(0, {"cpu": 8, "npu": 2}, asleep_bytes=7), part(1, {"cpu": 1}, asleep_bytes=5)))
    found = served(replace(VARIANT, cut=cut), {"cpu": MEASURED, "npu": MEASURED})
    assert found is not None
    assert found.profile.asleep_bytes == 12
