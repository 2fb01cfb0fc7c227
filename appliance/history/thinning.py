"""Fewer points of a long series, that keep what was least and most."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from appliance.history.packing import Samples


class Points(NamedTuple):
    """Mean, least and most of equal stretches of time; not a number where nothing was sampled."""

    mean: Samples
    least: Samples
    most: Samples


def points_of(samples: Samples) -> Points:
    """Each sample as a point of its own."""
    return Points(samples, samples, samples)


def thinned(points: Points, group: int) -> Points:
    """One point for each `group` of them, the last of fewer."""
    if group <= 1:
        return points
    mean = _grouped(points.mean, group)
    there = ~np.isnan(mean)
    counts = there.sum(axis=1)
    sums = np.where(there, mean, 0).sum(axis=1, dtype=np.float64)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).astype(np.float32)
    return Points(
        means,
        np.fmin.reduce(_grouped(points.least, group), axis=1),
        np.fmax.reduce(_grouped(points.most, group), axis=1),
    )


def total(rate: Points, up: Points) -> float:
    """Sum of a rate over its points, each by the share of it in which the box was up."""
    return float(np.nansum(rate.mean * up.mean, dtype=np.float64))


def zero_where(samples: Samples, up: NDArray[np.bool_]) -> Samples:
    """Of a rate: nothing was counted where the box was up and there is no sample."""
    return np.where(np.isnan(samples) & up, np.float32(0), samples)


def _grouped(samples: Samples, group: int) -> Samples:
    missing = -len(samples) % group
    return np.pad(samples, (0, missing), constant_values=np.nan).reshape(-1, group)
