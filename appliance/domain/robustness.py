"""Compute Edge-MultiAI's figures of how applications were served (sections IV-B to IV-G)."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Served:
    """Counts of one application's requests. An answer counts with the accuracy of the variant that gave it, after a
    cold start with that of the variant then loaded.
    """

    requests: int
    """Answered or not."""
    warm: int
    cold: int
    answered: int
    """Answers of variants whose accuracy is known."""
    accuracy_sum: float
    """Points, 0 to 100, summed over `answered`."""
    least: float = 0.0
    """Points of the application's least accurate variant."""
    most: float = 100.0
    """Points of its most accurate variant."""

    @property
    def warm_share(self) -> float | None:
        return self.warm / self.requests if self.requests else None

    @property
    def cold_share(self) -> float | None:
        return self.cold / self.requests if self.requests else None

    @property
    def accuracy(self) -> float | None:
        """Mean over the answers, 0 to 1."""
        return self.accuracy_sum / self.answered / 100 if self.answered else None

    @property
    def normalised(self) -> float | None:
        """Mean over the answers: 0 for the least accurate variant, 1 for the most accurate one; 1 where all are
        alike.
        """
        if not self.answered:
            return None
        width = self.most - self.least
        return (self.accuracy_sum / self.answered - self.least) / width if width > 0 else 1.0

    @property
    def robustness(self) -> float | None:
        """The application's term of equation 4; no answer counts 0."""
        return None if self.warm_share is None else self.warm_share * (self.accuracy or 0.0)


def served(counts: Mapping[str, tuple[int, int]], requests: int, points: Mapping[str, float]) -> Served:
    """Sum up one application: the warm and cold starts of each variant, and the accuracy of each variant, in points."""
    known = {name: warm + cold for name, (warm, cold) in counts.items() if name in points}
    return Served(
        requests,
        sum(warm for warm, _ in counts.values()),
        sum(cold for _, cold in counts.values()),
        sum(known.values()),
        sum(points[name] * count for name, count in known.items()),
        min(points.values(), default=0.0),
        max(points.values(), default=100.0),
    )


def robustness(applications: Iterable[Served]) -> float | None:
    """Return equation 4: the mean of warm share x mean accuracy over the applications that had requests."""
    terms = [term for one in applications if (term := one.robustness) is not None]
    return sum(terms) / len(terms) if terms else None


def fairness(applications: Collection[Served]) -> float | None:
    """Return Jain's index of the warm shares, (sum x)^2 / (n sum x^2): 1 where all are alike, 1/n where one application
    has all; None where no request was warm.
    """
    shares = [share for one in applications if (share := one.warm_share) is not None]
    squares = sum(share**2 for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else None
