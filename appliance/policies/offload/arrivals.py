"""How long a client's frames take to arrive, most of them less: a regression over its recent arrivals that a
few outliers cannot bend (AR-20).

A batch begins with the last of its frames. Were each expected at its median, half of them would come later, and of four
nearly always one: over LTE every eighth batch was late, and what waited behind it, too.
"""

from collections.abc import Sequence
from statistics import median

RECENT = 16
"""Arrivals that count; older ones speak of another network. Theil-Sen over them costs 120 slopes."""
TREND_MIN = 5
"""Fewer arrivals show no trend, only a level."""
IN_TIME_SHARE = 0.75
"""Of the recent arrivals, the share that came no later than is expected of the next one."""
TREND_MS_MAX = 20.0
"""A trend is followed at most this far from the level of the recent arrivals: links do not run away for a whole
horizon.
"""


def predicted_uplink_ms(arrivals: Sequence[tuple[int, float]], prior_ms: float, fps: float, at_frame: float) -> float:
    """Time from capture to arrival around `at_frame` that three of four do not exceed: Theil-Sen slope, upper quartile
    of the levels. Never below 0.

    With fewer than five arrivals their median; with fewer than three the prior counts as one more observation.
    """
    if not arrivals:
        return prior_ms
    recent = sorted(arrivals)[-RECENT:]
    frames = [frame for frame, _ in recent]
    delays = [ms - 1000.0 * frame / fps for frame, ms in recent]
    if len(delays) < TREND_MIN:
        return max(0.0, median([*delays, prior_ms] if len(delays) < 3 else delays))
    slope = _slope(frames, delays)
    levels = sorted(delay - slope * frame for frame, delay in zip(frames, delays, strict=True))
    level = levels[int(IN_TIME_SHARE * len(levels))]
    now = level + slope * frames[-1]
    ahead = slope * (at_frame - frames[-1])
    return max(0.0, now + max(-TREND_MS_MAX, min(TREND_MS_MAX, ahead)))


def _slope(frames: Sequence[int], delays: Sequence[float]) -> float:
    """Median of the slopes of all pairs, or 0 where their quartiles disagree about its sign (jitter, no trend)."""
    slopes = sorted(
        (delays[j] - delays[i]) / (frames[j] - frames[i])
        for i in range(len(frames))
        for j in range(i + 1, len(frames))
        if frames[j] != frames[i]
    )
    if not slopes:
        return 0.0
    low, high = slopes[len(slopes) // 4], slopes[(3 * len(slopes)) // 4]
    return median(slopes) if low * high > 0 else 0.0
