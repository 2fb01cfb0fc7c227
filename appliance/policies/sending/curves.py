"""What results lose with age by variant, as a device learns it (AR-04): a gap at once and a rate with each frame.

A tracked result beside a fresh one of the same variant is a sample of that variant's rate. Beside a fresh one of
another variant, when plans change, it is a sample of the gap between the two: what is left of the difference after the
rate, and after what the fresh one differs from itself anyhow. Both are of what the camera sees now: what other variants
lost a while ago counts no more (AR-06).
"""

from collections import deque
from collections.abc import Mapping
from statistics import median

from appliance.domain.session import VariantDrop
from appliance.policies.sending.drop import Drop, DropEstimate

VARIANTS_MAX = 8
"""The latest ones."""
SAMPLES_MAX = 16
"""Of a gap."""
SAMPLES_MIN = 3
"""Below so many a gap is nobody's word."""
STALE = 400
"""Samples of others after which a variant is forgotten: at 15 results a second most of half a minute."""


class DropCurves:
    """Of one device. Variants by name."""

    def __init__(self) -> None:
        self._estimates: dict[str, DropEstimate] = {}
        self._fitted: dict[str, Drop] = {}
        self._differences: dict[tuple[str, str], deque[tuple[float, float]]] = {}
        """(tracked, fresh) → (stride, difference) of the latest."""
        self._seen: dict[str, int] = {}
        """Variant → how many samples there were at its last one."""
        self._samples = 0

    def observe(self, tracked: str, fresh: str, stride: float, drop: float) -> None:
        """A result of the variant `tracked`, `stride` frames old, was `drop` worse than one of `fresh` of the same
        frame."""
        if stride <= 0:
            return
        self._samples += 1
        self._seen[tracked] = self._samples
        if tracked == fresh:
            estimate = self._estimates.setdefault(tracked, DropEstimate())
            estimate.observe(stride, drop)
            fitted = estimate.fitted()
            assert fitted is not None
            self._fitted[tracked] = fitted
        else:
            self._differences.setdefault((tracked, fresh), deque(maxlen=SAMPLES_MAX)).append((stride, drop))
        self._forget()

    def fitted(self, variant: str) -> Drop | None:
        """Against fresh results of its own; None: not known."""
        return self._fitted.get(variant)

    def known(self) -> Mapping[str, VariantDrop]:
        """Of all variants that count."""
        return {name: VariantDrop(drop.rate, self._gaps(name, drop)) for name, drop in self._fitted.items()}

    def _gaps(self, tracked: str, drop: Drop) -> dict[str, float]:
        gaps = {}
        for (name, fresh), samples in self._differences.items():
            if name == tracked and len(samples) >= SAMPLES_MIN:
                # A detector differs from itself by its base: that is no loss of the other one's results.
                own = self._fitted.get(fresh, drop).base
                gaps[fresh] = max(0.0, median(difference - drop.rate * stride for stride, difference in samples) - own)
        return gaps

    def _forget(self) -> None:
        newest_first = sorted(self._seen, key=self._seen.__getitem__, reverse=True)
        stale = {name for name in newest_first if self._samples - self._seen[name] > STALE}
        stale.update(newest_first[VARIANTS_MAX:])
        for name in stale:
            del self._seen[name]
            self._estimates.pop(name, None)
            self._fitted.pop(name, None)
        if stale:
            self._differences = {pair: one for pair, one in self._differences.items() if pair[0] not in stale}
