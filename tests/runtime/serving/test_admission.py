"""Quotas, deadlines, and whether tensors fit a variant."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Application, Quota, Shapes, TensorSpec
from appliance.domain.errors import BadTensor, QuotaExceeded
from appliance.domain.request import Request, Tensors
from appliance.policies.selection.most_accurate import MostAccurate
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.servable import Servable
from appliance.runtime.serving.admission import Admission, check_outputs, check_tensors
from tests.fakes.engine import make_variant
from tests.fakes.hand_clock import HandClock
from tests.runtime.filled import fill


def servable(*inputs: TensorSpec, shape_max: Shapes | None = None) -> Servable:
    catalogue = Catalogue(MostAccurate())
    fill(catalogue, "t", "m", [replace(make_variant("t/m", "v", inputs=inputs), shape_max=shape_max)])
    return catalogue.entry("t/m").servables["v"]


def test_concurrent_requests_are_counted_by_tenant() -> None:
    """The limit is the tenant's own; a request that leaves makes room, and a refused one takes none."""
    admission = Admission(HandClock(), 1000)
    quota = Quota(concurrent_requests=1)
    admission.enter("a", quota)
    admission.enter("b", quota)
    for _ in range(5):
        with pytest.raises(QuotaExceeded) as caught:
            admission.enter("a", quota)
        assert (caught.value.tenant, caught.value.quota) == ("a", "concurrent requests")
    admission.leave("a")
    admission.enter("a", quota)


@pytest.mark.parametrize(("per_s", "burst"), [(4, 4), (0.1, 1)])
def test_rate_limit_allows_a_burst_of_one_second(per_s: float, burst: int) -> None:
    """Of one request at the least: the next is refused with the time after which to retry, and passes then. No more
    than a burst is saved up.
    """
    clock = HandClock()
    admission = Admission(clock, 1000)
    for pass_s, passes in ((0, burst), (1 / per_s, 1), (100 / per_s, burst)):
        clock.pass_s(pass_s)
        for _ in range(passes):
            admission.enter("a", Quota(requests_per_s=per_s))
        with pytest.raises(QuotaExceeded) as caught:
            admission.enter("a", Quota(requests_per_s=per_s))
        assert caught.value.retry_after_s == pytest.approx(1 / per_s)


def test_admission_check_takes_no_token_and_no_place() -> None:
    """It may be made any number of times; only entering costs a token and a place."""
    admission = Admission(HandClock(), 1000)
    quota = Quota(requests_per_s=2, concurrent_requests=1)
    for _ in range(5):
        admission.check("a", quota)
    admission.enter("a", quota)
    with pytest.raises(QuotaExceeded, match="concurrent"):
        admission.check("a", quota)
    admission.leave("a")
    admission.enter("a", quota)
    admission.leave("a")
    with pytest.raises(QuotaExceeded, match="per second"):
        admission.check("a", quota)


def test_rate_limit_is_kept_over_a_minute() -> None:
    """Asking a hundred times a second for a minute gets 60 × the rate and the first burst, no more."""
    clock = HandClock()
    admission = Admission(clock, 1000)
    allowed = 0
    for _ in range(6000):
        clock.pass_s(0.01)
        try:
            admission.enter("a", Quota(requests_per_s=5))
            allowed += 1
        except QuotaExceeded:
            pass
    assert 300 <= allowed <= 306


@pytest.mark.parametrize(
    ("own_ms", "slo_ms", "expected_ms"), [(7, 50, 7), (None, 50, 50), (None, None, 1000), (7, None, 7)]
)
def test_deadline_is_the_requests_own_else_the_slo_else_the_default(
    own_ms: int | None, slo_ms: float | None, expected_ms: int
) -> None:
    """It counts from the arrival and is set once."""
    own_ns = None if own_ms is None else 100 + own_ms * NS_PER_MS
    request = Request("t/a", "t", {}, arrival_ns=100, deadline_ns=own_ns)
    admission = Admission(HandClock(), 1000)
    for slo in (slo_ms, 1.0):
        admission.set_deadline(request, Application("t/a", "t", "a", "t/a", latency_slo_ms=slo))
        assert request.deadline_ns == 100 + expected_ms * NS_PER_MS


FREE = TensorSpec("x", "FP32", (-1, 3))


@pytest.mark.parametrize(
    ("spec", "tensor", "shape_max"),
    [
        (FREE, np.zeros((1, 3), np.float32), None),
        (FREE, np.zeros((7, 3), np.float32), None),
        (FREE, np.zeros((8, 3), np.float32), {"x": (8, 3)}),
        (TensorSpec("x", "FP32", (0, 3)), np.zeros((0, 3), np.float32), None),
        (TensorSpec("x", "BF16", (2,)), np.zeros(2, np.uint16), None),
    ],
    ids=["one row", "any number of rows", "the largest that was measured", "no other shape", "a type that numpy lacks"],
)
def test_tensor_that_fits_is_taken(spec: TensorSpec, tensor: np.ndarray[Any, Any], shape_max: Shapes | None) -> None:
    """The import has run the network with an empty tensor where the input has no other shape."""
    check_tensors({"x": tensor}, servable(spec, shape_max=shape_max))


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"x": np.zeros((1, 4), np.float32)}, r"\[1, 4\].*\[-1, 3\]"),
        ({"x": np.zeros(3, np.float32)}, "shape"),
        ({"x": np.zeros((1, 3), np.float64)}, "float64.*FP32"),
        ({"z": np.zeros((1, 3), np.float32)}, "there is no input 'z'; this variant has n, x"),
        ({"x": np.zeros((1, 3), np.float32)}, "missing input n"),
        ({}, "missing input n, x"),
    ],
)
def test_tensor_that_misfits_is_named_in_the_refusal(inputs: Tensors, words: str) -> None:
    """The sentence says which tensor and what the variant takes."""
    with pytest.raises(BadTensor, match=words):
        check_tensors(inputs, servable(FREE, TensorSpec("n", "INT64", ())))


@pytest.mark.parametrize("spec", [FREE, TensorSpec("x", "FP32", (0, -1)), TensorSpec("x", "FP32", (-1, -1))])
def test_tensor_with_an_empty_axis_is_refused(spec: TensorSpec) -> None:
    """Kernels of honest models end the process on such tensors."""
    with pytest.raises(BadTensor, match="no axis may be empty"):
        check_tensors({"x": np.zeros((0, 3), np.float32)}, servable(spec))


def test_tensor_larger_than_the_measured_shape_is_refused() -> None:
    """The sentence says the limit and what to do."""
    with pytest.raises(BadTensor, match=r"\[9, 3\].*at most \[8, 3\].*shape_max"):
        check_tensors({"x": np.zeros((9, 3), np.float32)}, servable(FREE, shape_max={"x": (8, 3)}))


def test_unknown_requested_output_is_refused() -> None:
    """Known outputs pass, and so does a request that names none."""
    check_outputs(None, servable(FREE))
    check_outputs(["y"], servable(FREE))
    with pytest.raises(BadTensor, match="no output 'q'; this variant has y"):
        check_outputs(["y", "q"], servable(FREE))
