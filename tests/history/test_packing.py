"""Samples as bytes: near enough, small, and never read as something else."""

import numpy as np
import pytest

from appliance.history.packing import packed, packed_rows, unpacked, unpacked_rows
from appliance.history.thinning import points_of, thinned


def noise(count: int, seed: int = 1) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Figures of all sizes, with some that are missing: the worst to compress."""
    random = np.random.default_rng(seed)
    values = np.exp(random.normal(0, 4, count)).astype(np.float32)
    values[random.random(count) < 0.1] = np.nan
    return values


def test_packed_samples_are_read_back_to_one_in_8000() -> None:
    """Zero, whole numbers of requests and missing samples exactly."""
    values = noise(1000)
    back = unpacked(packed(values), len(values))
    assert np.array_equal(np.isnan(back), np.isnan(values))
    there = ~np.isnan(values)
    assert np.all(np.abs(back[there] / values[there] - 1) < 1 / 8_000)
    whole = np.array([0, 1, 17, 4096, -1, 0.5], np.float32)
    assert np.array_equal(unpacked(packed(whole), len(whole)), whole)


def test_packed_history_of_400_series_fits_in_40_mb() -> None:
    """26 hours of ten seconds and 30 days of five minutes, of noise: 40 MB for 400 series are 100 kB for each."""
    fine = sum(len(packed(noise(360, seed))) for seed in range(26))
    coarse = sum(len(packed(noise(3 * 288, seed))) for seed in range(30))
    assert fine + coarse < 85_000


@pytest.mark.parametrize("body", [b"", b"no bytes of ours", packed(noise(10))[:-3], packed(noise(11))])
def test_damaged_packed_samples_are_refused(body: bytes) -> None:
    """Neither fewer samples nor others, whatever the bytes are."""
    with pytest.raises(ValueError, match=r"compressed|samples"):
        unpacked(body, 10)
    with pytest.raises(ValueError, match=r"short|compressed|samples"):
        unpacked_rows(body)


def test_packed_rows_are_read_back_with_ids() -> None:
    """Also where there are no rows."""
    ids = np.array([3, 70_000], np.uint32)
    rows = np.array([[1, 2, 3], [4, np.nan, 6]], np.float32)
    back_ids, back = unpacked_rows(packed_rows(ids, rows))
    assert back_ids.tolist() == ids.tolist()
    assert np.array_equal(back, rows, equal_nan=True)
    none, nothing = unpacked_rows(packed_rows(ids[:0], rows[:0]))
    assert (none.tolist(), nothing.shape) == ([], (0, 3))


def test_thinned_samples_keep_the_extremes() -> None:
    """The highest and the lowest sample of a day are in any answer, and its mean lies between them."""
    random = np.random.default_rng(3)
    values = random.normal(5, 1, 8640).astype(np.float32)
    values[4321], values[17] = 1000, -1000
    values[6000:6100] = np.nan
    for group in (2, 7, 48, 9000):
        points = thinned(points_of(values), group)
        assert len(points.mean) == -(-len(values) // group)
        assert [float(np.nanmax(points.most)), float(np.nanmin(points.least))] == [1000, -1000]
        there = ~np.isnan(points.mean)
        assert np.all((points.least <= points.mean)[there] & (points.mean <= points.most)[there])
    assert np.isnan(thinned(points_of(values), 10).mean[605])
    twice = thinned(thinned(points_of(values), 6), 8)
    assert [float(np.nanmax(twice.most)), float(np.nanmin(twice.least))] == [1000, -1000]
