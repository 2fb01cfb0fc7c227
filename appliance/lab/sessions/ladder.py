"""What answers are worth by the size of the pictures they are about: variants of one network at several sizes."""

from bisect import bisect_left
from collections.abc import Mapping


class Ladder:
    """`sides`: longer side by variant, of those that say so; `accuracies` of all."""

    def __init__(self, accuracies: Mapping[str, float], sides: Mapping[str, int]) -> None:
        self._accuracies = accuracies
        self._sides = sides
        self._steps = sorted((side, accuracies[name]) for name, side in sides.items())

    def own(self, variant: str) -> float:
        """Of a variant."""
        return self._accuracies[variant]

    def accuracy(self, variant: str, side_px: int) -> float:
        """Of an answer: the variant's, or, where the picture was smaller than it takes, that of the picture's size,
        linear between variants.
        """
        own = self._accuracies[variant]
        if side_px >= self._sides.get(variant, 0):
            return own
        index = bisect_left(self._steps, (side_px, 0.0))
        high, most = self._steps[index]
        low, least = self._steps[index - 1] if index else (0, 0.0)
        return min(own, least + (most - least) * (side_px - low) / (high - low))
