"""Which variants are excluded, and in which words."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.accuracy import points
from appliance.domain.catalogue import Accuracy, Latency, Precision, Profile, SampleScore, Variant
from appliance.domain.states import VariantState
from appliance.modelstore.importing.dominance import dominance

READY, EXCLUDED = VariantState.READY, VariantState.EXCLUDED


def variant(
    name: str,
    value: float | None,
    mib: float = 10.0,
    p50_ms: float = 10.0,
    against: str = "fp32",
    metric: str = "top-1",
    samples: int = 1000,
) -> Variant:
    profile = Profile("cpu", int(mib * 2**20), int(mib * 2**20), 1.0, 2.0, (Latency(1, p50_ms, 2 * p50_ms),))
    accuracy = None if value is None else Accuracy(points(value), metric, against, samples)
    precision = Precision(name.split("-", maxsplit=1)[0])
    return Variant(
        *(f"t/m:{name}", "t/m", name, precision, "", 1, (), ()),
        accuracy=accuracy,
        profile=profile,
        is_original=name == "fp32",
    )


def states(*variants: Variant, floor: float = 0.5) -> dict[str, str]:
    return {id.split(":")[1]: judgement.reason or "ready" for id, judgement in dominance(variants, floor).items()}


def test_variant_below_accuracy_floor_is_excluded_with_figures() -> None:
    """The floor is absolute for fidelity and a share of the original's accuracy on labels."""
    assert states(variant("fp32", 1.0), variant("int8", 0.31, 3, 3)) == {
        "fp32": "ready",
        "int8": "its agreement with fp32, top-1 0.31, is below the floor 0.50",
    }
    hard = variant("fp32", 0.4, against="labels")
    assert states(hard, variant("int8", 0.38, 3, 3, "labels"))["int8"] == "ready"
    words = states(hard, variant("int8", 0.1, 3, 3, "labels"))["int8"]
    assert words == "its accuracy, top-1 0.10, is below the floor 0.50 of the original's 0.40"


def test_worse_variant_neither_smaller_nor_faster_is_excluded() -> None:
    """Being cheaper in one way is enough to stay; noise is no gain."""
    original = variant("fp32", 1.0)
    assert states(original, variant("fp16", 1.0, 9.9, 10.4))["fp16"] == (
        "no better than fp32 (agreement with fp32, top-1: 1.000 to 1.000), and neither smaller in memory nor faster"
    )
    assert states(original, variant("int8", 0.9, 5, 30))["int8"] == "ready"
    assert states(original, variant("int8", 0.9, 30, 5))["int8"] == "ready"
    assert states(original, variant("int8", 0.9, 9.7, 9.7))["int8"] != "ready"


def test_variants_of_different_sizes_are_judged_against_each_other() -> None:
    """A small fp32 is no use beside an int8 at full size that is better, smaller and faster."""
    found = states(variant("fp32", 1.0), variant("int8", 0.95, 4, 4), variant("fp32-64x64", 0.8, 9, 5))
    assert found == {
        "fp32": "ready",
        "int8": "ready",
        "fp32-64x64": "no better than int8 (agreement with fp32, top-1: 0.800 to 0.950), and neither smaller in memory "
        "nor faster",
    }


def test_variant_with_unknown_figures_is_not_excluded() -> None:
    """No accuracy, no profile, other metrics, failures: nothing is excluded on a guess; the original and own
    variants never are.
    """
    original = variant("fp32", 1.0)
    assert "int8" not in states(original, variant("int8", None))
    assert states(original, replace(variant("fp16", 1.0), profile=None))["fp16"] == "ready"
    assert states(original, variant("fp16", 0.9, metric="cosine"))["fp16"] == "ready"
    assert "int8" not in states(original, replace(variant("int8", 0.1), state=VariantState.FAILED))
    assert states(variant("fp32", 0.01), variant("own", 0.01)) == {"fp32": "ready", "own": "ready"}


def test_excluded_variant_returns_when_better_variant_is_gone() -> None:
    """An excluded variant comes back when what pushed it out is gone."""
    excluded = replace(variant("fp32-64x64", 0.8, 9, 5), state=EXCLUDED, reason="no use")
    assert states(variant("fp32", 1.0), excluded)["fp32-64x64"] == "ready"


def graded(name: str, hits: str, mib: float, sample_set: str = "s") -> Variant:
    """A variant that was right on the samples with a 1."""
    scores = tuple(SampleScore(float(hit), 1.0) for hit in hits)
    share = sum(map(int, hits)) / len(hits)
    accuracy = Accuracy(points(round(share, 6)), "top-1", "labels", len(hits), "", scores, sample_set)
    return replace(variant(name, share, mib, mib, "labels"), accuracy=accuracy)


FP32 = graded("fp32", "1" * 64, 20)


def test_larger_variant_is_excluded_when_samples_show_no_gain() -> None:
    """64 samples in pairs: 8 that only the other variant got right are enough (0.121 ± 0.084), 3 are not (0.045 ±
    0.059).
    """
    small = graded("int8", "1" * 60 + "0" * 4, 4)
    worse = graded("fp32-64x64", "1" * 52 + "0" * 12, 10)
    assert states(FP32, small, worse)["fp32-64x64"] == (
        "no better than int8 (accuracy, top-1: 0.812 to 0.938), and neither smaller in memory nor faster"
    )
    unsure = graded("fp32-64x64", "1" * 57 + "0" * 7, 10)
    assert states(FP32, small, unsure)["fp32-64x64"] == (
        "stays available beside int8, which seems no worse (accuracy, top-1: 0.891 to 0.938) and is no "
        "larger and "
        "no slower: 64 samples do not show that (the difference is -0.013 to +0.104 at 95 %)"
    )


def test_variants_on_different_samples_need_larger_difference() -> None:
    """6 of 64: 0.094 ± 0.072 in pairs, -0.018 to 0.208 by Newcombe where the 64 are not the same."""
    small = graded("int8", "1" * 60 + "0" * 4, 4)
    for sample_set, words in (("s", "no better than int8"), ("others", "64 samples do not show that")):
        worse = graded("fp32-64x64", "1" * 54 + "0" * 10, 10, sample_set)
        assert words in states(FP32, small, worse)["fp32-64x64"]


def test_six_samples_exclude_variant_only_beside_original() -> None:
    """However large the difference; the words say how many samples it takes."""
    fp32, small, large = graded("fp32", "1" * 6, 20), graded("int8", "1" * 6, 4), graded("fp32-64x64", "111000", 10)
    words = states(fp32, small, large)["fp32-64x64"]
    assert "6 samples, of 30 that it takes, do not show that" in words
    assert dominance([fp32, small, large], 0.5)[large.id].state is READY
    like = [variant("fp32", 1.0, samples=6), variant("fp16", 0.9, samples=6), variant("int8", 0.95, 4, 4, samples=6)]
    assert states(*like)["fp16"].startswith("no better than fp32")  # likeness to itself needs no proof


def test_thirty_samples_suffice_to_exclude_variant() -> None:
    """29 are not, whatever they show."""
    for count, state in ((29, READY), (30, EXCLUDED)):
        worse = graded("fp32-64x64", ("10" * count)[:count], 10)
        found = dominance([graded("int8", "1" * count, 4), worse], 0.1)
        assert found[worse.id].state is state


FIGURES = st.tuples(
    st.sampled_from((0.2, 0.6, 0.8, 1.0)), st.sampled_from((1.0, 5.0, 10.0)), st.sampled_from((1.0, 5.0, 10.0))
)


@given(st.lists(FIGURES, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_exclusions_do_not_depend_on_order_and_keep_best_variant(
    figures: list[tuple[float, float, float]], random: object
) -> None:
    """Equal input in any order gives equal judgements; whatever is excluded for cost has a ready one that beats it."""
    variants = [variant("fp32", 1.0)] + [variant(f"int8-{n}", *row) for n, row in enumerate(figures)]
    found = dominance(variants, 0.5)
    shuffled = list(variants)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert dominance(shuffled, 0.5) == found
    ready = [one for one in variants if found[one.id].state is READY]
    assert variants[0] in ready
    for one in variants:
        if found[one.id].state is EXCLUDED and "floor" not in found[one.id].reason:
            assert any(
                other.accuracy.points >= one.accuracy.points for other in ready if other.accuracy and one.accuracy
            )
