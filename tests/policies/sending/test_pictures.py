"""What pictures take, and which are tried."""

import pytest

from appliance.policies.sending.pictures import PictureBytes, quality_share, rungs


def test_picture_of_lower_quality_takes_fewer_bytes() -> None:
    """Never less quality for more bytes; beyond the table's ends as at them."""
    shares = [quality_share(quality) for quality in range(1, 101)]
    assert shares == sorted(shares)
    assert quality_share(75) == 1.0
    assert quality_share(10) == quality_share(20)
    assert quality_share(100) == quality_share(95)


def test_picture_byte_estimate_learns_from_encoded_pictures() -> None:
    """A camera whose pictures take twice what was expected."""
    pictures = PictureBytes()
    truth = 2 * pictures.expected(320 * 240, 75)
    for _ in range(20):
        pictures.observe(320 * 240, 75, int(truth))
    assert pictures.expected(320 * 240, 75) == pytest.approx(truth, rel=0.01)
    assert pictures.expected(640 * 480, 75) == pytest.approx(truth * 4**0.82, rel=0.01)


def test_picture_rungs_begin_with_the_requested_size_and_quality() -> None:
    """Each size first in the requested quality, then worse; not below what can be recognised."""
    tried = list(rungs(320, 75))
    assert tried[:3] == [(320, 75), (320, 45), (288, 75)]
    assert tried[-1] == (96, 45)
    assert list(rungs(64, 40)) == [(64, 40)]
