"""What a device believes: the paper's estimate and smoothing (`oracles.json`, band), noise, the way to the truth."""

import pytest

from appliance.runtime.profiles.estimate import Estimate
from reproduce.band.beliefs import ALPHA, BETA, BETA_ACCELERATOR, CALM, Belief, Knowledge, estimated_ms
from reproduce.band.phone import CPUS, DSP, FITTED, GPU, NPU, Phone, eagleeye

PHONE = Phone(eagleeye(FITTED.first))


def test_subgraph_latency_is_estimated_from_the_largest_subgraph() -> None:
    """10 ms for 10^6 FLOPs and 500 bytes; how long for 4·10^5 and 300?"""
    largest = (1_000_000, 500, 10)
    assert estimated_ms(400_000, 300, largest, BETA_ACCELERATOR) == pytest.approx(4.6667, abs=1e-4)
    assert estimated_ms(400_000, 300, largest, BETA["cpu"]) == pytest.approx(4.01, abs=1e-2)


def test_latency_estimate_counts_a_run_for_a_tenth() -> None:
    """100 ms believed, 200 measured: 110."""
    estimate = Estimate(100e6, 1.5, 100e6)
    estimate.ran(round(200e6), 0, ALPHA)
    assert estimate.p50_ns == pytest.approx(110e6)


def test_band_profiles_less_and_believes_its_measurements() -> None:
    """Of FSRNet on the CPU the whole is the largest, of RetinaFace on the NPU its first stretch."""
    whole, band = Belief(PHONE, Knowledge("dynamic"), 1), Belief(PHONE, Knowledge("band"), 1)

    assert band.profiled_ms < whole.profiled_ms / 2
    for name, units, processor in (("FSRNet", 0b11111, "cpu-0"), ("RetinaFace", 0b1, NPU)):
        times = [
            next(one for one in belief.partition(name).subgraphs if one.units == units).latency_ms[processor]
            for belief in (whole, band)
        ]
        assert times[0] == pytest.approx(times[1])


def test_offline_profiles_equal_the_latency_of_an_idle_phone() -> None:
    belief = Belief(PHONE, Knowledge("static"), 1, weather=CALM)
    for name in PHONE.networks:
        for one in belief.partition(name).subgraphs:
            for processor, ms in one.latency_ms.items():
                assert sum(leg.took_ms for leg in belief.legs(name, one.units, processor)) == pytest.approx(ms)


def test_wrong_belief_is_corrected_by_runs() -> None:
    """Fifty runs of twice the time: within a tenth of the truth; `static` learns nothing."""
    for method, near in (("band", True), ("static", False)):
        belief = Belief(PHONE, Knowledge(method, first_error=0.3), 1)  # type: ignore[arg-type]
        before = belief.partition("RetinaFace").subgraphs[-1]
        truth_ms = 2 * before.latency_ms["cpu-0"]
        for _ in range(50):
            belief.learn("RetinaFace", before.units, "cpu-0", truth_ms)
        after = belief.partition("RetinaFace").subgraphs[-1].latency_ms
        assert (after["cpu-0"] == pytest.approx(truth_ms, rel=0.1)) is near
        assert after["cpu-0"] == after["cpu-1"]


def test_belief_errors_stay_within_their_bounds() -> None:
    exact = Belief(PHONE, Knowledge("band"), 1)
    for knowledge in (Knowledge("band", first_error=0.3), Knowledge("band", error=0.3)):
        off = Belief(PHONE, knowledge, 1)
        ratios = [
            found.latency_ms[p] / one.latency_ms[p]
            for name in PHONE.networks
            for one, found in zip(exact.partition(name).subgraphs, off.partition(name).subgraphs, strict=True)
            for p in one.latency_ms
        ]
        assert 0.7 <= min(ratios) < 0.75
        assert 1.25 < max(ratios) <= 1.3


def test_lasting_belief_errors_are_drawn_anew_with_each_run() -> None:
    belief = Belief(PHONE, Knowledge("band", error=0.3), 1)
    first = belief.partition("FSRNet").subgraphs[0].latency_ms
    assert belief.partition("FSRNet").subgraphs[0].latency_ms == first
    belief.learn("FSRNet", 1, NPU, first[NPU])
    assert belief.partition("FSRNet").subgraphs[0].latency_ms != first


def test_whole_network_calls_a_cpu_for_unsupported_stretches() -> None:
    """FSRNet on the NPU: five stretches, two of them on a CPU core; on the GPU none."""
    belief = Belief(PHONE, Knowledge("band"), 1, whole=True)

    assert [leg.elsewhere for leg in belief.legs("FSRNet", 1, NPU)] == [(), CPUS, (), CPUS, ()]
    assert not any(leg.elsewhere for leg in belief.legs("FSRNet", 1, GPU))
    assert len(belief.partition("FSRNet").subgraphs) == 1
    assert belief.partition("FSRNet").subgraphs[0].latency_ms.keys() == {*CPUS, GPU, DSP, NPU}
