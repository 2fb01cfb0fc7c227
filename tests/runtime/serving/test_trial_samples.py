"""Which requests are kept for trials of unverified variants, how many, and for how long."""

from dataclasses import replace

import numpy as np
import pytest

from appliance.clock import NS_PER_S
from appliance.domain.catalogue import (
    Accuracy,
    Application,
    Evidence,
    Model,
    Precision,
    StateSpec,
    TaskKind,
    TaskSpec,
    TensorSpec,
    Variant,
    Verify,
)
from appliance.domain.request import Request
from appliance.domain.trial import Trial, Verdict
from appliance.policies.selection.by_profile import ByProfile
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.serving.trial_samples import FRESH_NS, SampleBounds, TrialSamples
from appliance.tasks.base import Media
from appliance.tasks.trial_sample import MediaAsked, TensorsAsked
from tests.fakes.hand_clock import HandClock

X, Y = (TensorSpec("x", "FP32", (1, 4)),), (TensorSpec("y", "FP32", (1, 4)),)
FIDELITY = Accuracy(100.0, "1-error", "fp32", 4, evidence=Evidence.NOISE)


def variant(name: str, precision: Precision, accuracy: Accuracy | None = FIDELITY, number: int = 1) -> Variant:
    is_original = precision is Precision.FP32
    return Variant(
        *(f"t/m:{name}", "t/m", name, precision, "a" * 64, 100, X, Y),
        accuracy=accuracy,
        number=number,
        is_original=is_original,
    )


FP32, INT8 = variant("fp32", Precision.FP32), variant("int8", Precision.INT8, number=2)


def entry(*variants: Variant, task: TaskSpec = TaskSpec(TaskKind.TENSOR), **changes: object) -> Entry:  # noqa: B008
    catalogue = Catalogue(ByProfile())
    application = Application("t/a", "t", "a", "t/m")
    catalogue.put_model(Model("t/m", "t", "m", task, variants or (FP32, INT8)))
    catalogue.put_application(replace(application, **changes))  # type: ignore[arg-type]
    return catalogue.entry("t/a")


def samples(clock: HandClock, **bounds: int) -> TrialSamples:
    limits = {"samples_max": 8, "bytes_max": 1000, "bytes_total_max": 2000}
    return TrialSamples(clock, SampleBounds(**(limits | bounds)))


def request(tenant: str = "t") -> Request:
    return Request("t/a", tenant, {"x": np.ones((1, 4), np.float32)}, 0)


OUTPUTS = {"y": np.full((1, 4), 2.0, np.float32)}


def offer(kept: TrialSamples, to: Entry, tenant: str = "t", answered: Variant = FP32) -> None:
    kept.offer_tensors(request(tenant), to, answered, OUTPUTS)


def test_sample_is_a_copy_with_the_variant_that_is_to_be_run() -> None:
    """The caller's memory may be written again."""
    kept, asked = samples(HandClock()), request()
    kept.offer_tensors(asked, entry(), FP32, OUTPUTS)
    asked.inputs["x"][:] = 9
    (one,) = kept.take()
    assert isinstance(one.asked, TensorsAsked)
    assert (one.tenant, one.model_id, one.answered, one.beside.name) == ("t", "t/m", "t/m:fp32", "int8")
    assert one.asked.inputs["x"].tolist() == [[1.0] * 4]
    assert kept.take() == []


def test_requests_are_kept_four_times_a_second_and_for_ten_seconds() -> None:
    clock = HandClock()
    kept, to = samples(clock), entry()
    for _ in range(20):
        offer(kept, to)
        clock.pass_s(0.1)
    assert len(kept.take()) == 7  # at 0, 0.3, 0.6 ... 1.8 s
    offer(kept, to)
    clock.pass_s(FRESH_NS / NS_PER_S + 0.001)
    assert kept.take() == []


@pytest.mark.parametrize(("bounds", "count"), [({}, 8), ({"bytes_max": 100}, 3), ({"bytes_total_max": 64}, 2)])
def test_samples_of_a_tenant_are_bounded_in_number_and_bytes(bounds: dict[str, int], count: int) -> None:
    """One sample has 16 bytes of inputs and 16 of outputs."""
    clock = HandClock()
    kept, to = samples(clock, **bounds), entry()
    for _ in range(20):
        offer(kept, to)
        clock.pass_s(0.3)
    assert len(kept.take()) == count


def test_samples_of_tenants_are_taken_in_turns() -> None:
    clock = HandClock()
    kept, own = samples(clock), entry()
    others = Model("u/m", "u", "m", TaskSpec(), tuple(replace(one, id=f"u/m:{one.name}") for one in (FP32, INT8)))
    catalogue = Catalogue(ByProfile())
    catalogue.put_model(others)
    catalogue.put_application(Application("u/a", "u", "a", "u/m"))
    offer(kept, own)
    offer(kept, catalogue.entry("u/a"), "u", others.variants[0])
    assert [one.tenant for one in kept.take()] == ["t"]
    assert [one.tenant for one in kept.take()] == ["u"]


@pytest.mark.parametrize(
    "to",
    [
        entry(verify=Verify.OFF),
        entry(FP32, replace(INT8, accuracy=replace(FIDELITY, points=40.0, evidence=Evidence.SAMPLES))),
        entry(FP32, replace(INT8, accuracy=replace(FIDELITY, trial=Trial(verdict=Verdict.DISMISSED)))),
        entry(INT8),
    ],
    ids=["switched off", "another answer by its samples", "dismissed", "no original"],
)
def test_application_without_a_trial_keeps_no_samples(to: Entry) -> None:
    assert not to.trials


STATEFUL = TaskSpec(TaskKind.TENSOR, state=(StateSpec("h", "h2", (1, 4)),))


@pytest.mark.parametrize(
    ("to", "tenant"), [(entry(), "guest"), (entry(task=STATEFUL), "t")], ids=["of another tenant", "with a state"]
)
def test_requests_that_must_not_be_tried_again_are_not_kept(to: Entry, tenant: str) -> None:
    """The owner of a shared model may not try things on what other tenants send; a state cannot be had again."""
    kept = samples(HandClock())
    offer(kept, to, tenant=tenant)
    assert kept.take() == []


def test_tensor_samples_need_a_variant_of_equal_inputs_and_media_do_not() -> None:
    smaller = replace(INT8, inputs=(TensorSpec("x", "FP32", (1, 2)),))
    kept, to = samples(HandClock()), entry(FP32, smaller)
    offer(kept, to)
    assert kept.take() == []
    kept.offer_media("t", to, FP32, Media(b"picture"), {"labels": []})
    (one,) = kept.take()
    assert isinstance(one.asked, MediaAsked)
    assert one.asked.size_bytes == 7


@pytest.mark.parametrize(
    ("watched", "drift", "count"), [(129, 0.0, 3), (128, 0.0, 25), (400, 1.6, 25)], ids=["agrees", "new", "drifts"]
)
@pytest.mark.parametrize("evidence", [Evidence.TRAFFIC, Evidence.SAMPLES])
def test_verified_variant_is_watched_closely_while_in_doubt(
    evidence: Evidence, watched: int, drift: float, count: int
) -> None:
    """Once in ten seconds after as many comparisons as promoted it, as long as it agrees."""
    clock = HandClock()
    trial = Trial(verdict=Verdict.PROMOTED, watched=watched, drift=drift)
    promoted = replace(INT8, accuracy=replace(FIDELITY, evidence=evidence, trial=trial))
    kept, to = samples(clock), entry(FP32, promoted)
    assert {id: one.name for id, one in to.trials.items()} == {"t/m:int8": "fp32"}
    found = []
    for _ in range(25):
        offer(kept, to, answered=promoted)
        clock.pass_s(1.0)
        found += kept.take()
    assert [(one.answered, one.beside.name) for one in found] == [("t/m:int8", "fp32")] * count
