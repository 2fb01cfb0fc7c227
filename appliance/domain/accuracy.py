"""The unit of accuracy inside the box: points of per cent, 0 to 100, as in Edge-MultiAI's tables and in scenarios.

Policies weigh points against cold starts, so a figure in another unit would be another decision. Outside it is a share,
0 to 1: the metrics of the tasks, the store's files and the JSON of `/v1` have shares. Whoever stands at such an edge
converts here, and nobody else does.
"""

UNMEASURED_POINTS = 100.0
"""What a variant counts as long as its accuracy is not known. Only an original is offered before it is measured, while
its import goes on, and it is what the others are measured against. With less, an application's least accuracy would
refuse every request in the meantime."""
Z = 1.959964
"""Two-sided 95 % of the normal distribution: half the width of an interval, in standard errors."""
SAMPLES_MIN = 30
"""With fewer samples nobody can say which of two variants is the more accurate."""
CALIBRATION_SAMPLES_MIN = 8
"""Calibration samples from which on some are held out, four at least: fewer than four show nothing of a variant."""
ACCURACY = "accuracy"
"""What a quality is called that was measured on labels."""
_DIGITS = 9
"""Kept of points: a share of up to 11 digits comes back as it was, although 100 times it is no exact number."""


def meaning_of(against: str, original: str) -> str:
    """Return what a measured quality is called: accuracy on labels, else agreement with the original.

    `against`: of the measurement, `labels` or `fp32`. `original`: precision of the network as uploaded.
    """
    if against == "labels":
        return ACCURACY
    return f"agreement with {original if original == 'fp32' else 'the original'}"


def points(share: float) -> float:
    """A share, 0 to 1, in points."""
    return round(100 * share, _DIGITS)


def share(points: float) -> float:
    """Points as a share, 0 to 1."""
    return round(points / 100, _DIGITS + 2)
