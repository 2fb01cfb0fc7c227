"""Change of sample rate by a polyphase windowed sinc: cut below half the lower rate first, so nothing folds back."""

from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

_ZERO_CROSSINGS = 12
_RATIO_TERM_MAX = 640
"""44.1 → 16 kHz is 160/441; an odd ratio is rounded, off by less than one sample in 400,000."""
_BLOCK = 16_384


def resample(samples: np.ndarray, rate_hz: int, wanted_hz: int) -> np.ndarray:
    """float32[n] at `rate_hz` → float32[ceil(n · wanted / rate)] at `wanted_hz`; beyond its ends the sound holds its
    last value.
    """
    if rate_hz == wanted_hz or len(samples) == 0:
        return samples
    ratio = Fraction(wanted_hz, rate_hz).limit_denominator(_RATIO_TERM_MAX)
    up, down = max(ratio.numerator, 1), ratio.denominator
    table = _phases(up, down)
    half = table.shape[1] // 2
    padded = np.pad(samples.astype(np.float32, copy=False), (half, half + down), mode="edge")
    windows = sliding_window_view(padded, table.shape[1])
    out = np.empty(-(-len(samples) * up // down), np.float32)
    for phase in range(up):
        # Output phase + k·up lies at input (phase·down)/up + k·down: a strided view, one dot product each.
        places = out[phase::up]
        start = phase * down // up
        strided = windows[start::down][: len(places)]
        kernel = table[phase * down % up]
        for at in range(0, len(places), _BLOCK):
            places[at : at + _BLOCK] = strided[at : at + _BLOCK] @ kernel
    return out


@lru_cache(maxsize=8)
def _phases(up: int, down: int) -> np.ndarray:
    """Kernels for the input offsets 0/up, 1/up ... (up - 1)/up: float32[up, taps], each summing to 1."""
    cutoff = 0.95 * min(1.0, up / down)
    half = int(np.ceil(_ZERO_CROSSINGS / cutoff))
    taps = np.arange(-half, half + 1)[None, :] - np.arange(up)[:, None] / up
    shape = np.cos(np.clip(taps / (half + 1), -1, 1) * np.pi / 2) ** 2
    kernels = np.sinc(taps * cutoff) * shape
    return np.asarray(kernels / kernels.sum(axis=1, keepdims=True), np.float32)
