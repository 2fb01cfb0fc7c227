"""The few values of the domain that compute something."""

import datetime

import pytest

from appliance.domain.catalogue import Latency, Precision, Profile, TensorSpec, Variant
from appliance.domain.states import VariantState
from appliance.domain.uploads import UploadRecord

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(("batch", "expected"), [(1, 1.0), (2, 3.0), (4, 3.0), (5, 3.0)])
def test_profile_p50_of_batch_is_that_of_next_profiled_batch(batch: int, expected: float) -> None:
    """Beyond the largest profiled batch, that of the largest."""
    rows = (Latency(1, 1.0, 2.0), Latency(4, 3.0, 4.0))
    assert Profile("cpu", 1, 1, 1.0, 1.0, rows).p50_ms(batch) == expected


@pytest.mark.parametrize(
    ("state", "servable"),
    [
        (VariantState.MAKING, False),
        (VariantState.READY, True),
        (VariantState.EXCLUDED, True),
        (VariantState.FAILED, False),
    ],
)
def test_variant_is_servable_only_when_ready_or_excluded(state: VariantState, servable: bool) -> None:
    """An excluded variant still answers requests that name it."""
    variant = Variant("t/m:v", "t/m", "v", Precision.FP32, "00", 1, (), (), state)
    assert variant.servable is servable


@pytest.mark.parametrize(
    ("shapes", "input_px"),
    [
        ([(-1, 3, 224, 320)], 320),
        ([(-1, 224, 160, 3)], 224),
        ([(-1, 3, -1, -1), (-1, 3, 96, 64)], 96),
        ([(-1, 3, -1, -1)], None),
        ([(-1, 3, 640, -1)], None),
        ([(-1, 16)], None),
    ],
)
def test_variant_input_px_is_longer_side_of_first_fixed_picture(
    shapes: list[tuple[int, ...]], input_px: int | None
) -> None:
    """Channels first or last; a picture with a free side, or a tensor that is none, says nothing."""
    inputs = tuple(TensorSpec(f"x{at}", "FP32", shape) for at, shape in enumerate(shapes))
    assert Variant("t/m:v", "t/m", "v", Precision.FP32, "00", 1, inputs, ()).input_px == input_px


@pytest.mark.parametrize(("offset", "length", "complete"), [(5, None, True), (5, 5, True), (4, 5, False)])
def test_upload_is_complete_at_announced_length_or_without_one(offset: int, length: int | None, complete: bool) -> None:
    """Without an announced length the caller decides when it is done; with one, the last byte does."""
    assert UploadRecord("u", "t", offset, length, None, "f", NOW, NOW).is_complete is complete
