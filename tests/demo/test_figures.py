"""What the demo counts of one application."""

import pytest

from appliance.clock import NS_PER_S
from appliance.demo.figures import KEPT_MAX, RECOGNISED_MAX, Figures, Seen, percentile


def _seen(at_s: float, latency_ms: float = 10.0, variant: str = "fp32", words: str = "", warm: bool = True) -> Seen:
    return Seen(
        at_ns=int(at_s * NS_PER_S),
        latency_ms=latency_ms,
        recognised=words,
        variant=variant,
        is_warm=warm,
        accuracy={"fp32": 0.9, "int8": 0.8}.get(variant),
    )


def _figures() -> Figures:
    return Figures("harbour", "faces")


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([3.0], 0.99, 3.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0), (list(range(1, 101)), 0.99, 99.0)],
)
def test_percentile_is_an_observed_value(values: list[float], share: float, expected: float | None) -> None:
    """The smallest one that enough are not above."""
    assert percentile(values, share) == expected


def test_application_rate_counts_the_last_ten_seconds() -> None:
    """Answers before that do not count; a burst in the first instant is no rate of thousands."""
    figures = _figures()
    for at_s in range(30):
        figures.take(_seen(at_s))
    assert figures.rate_per_s(29 * NS_PER_S) == pytest.approx(1.1)
    assert figures.rate_per_s(60 * NS_PER_S) == 0.0
    fresh = _figures()
    fresh.take(_seen(5.0))
    assert fresh.rate_per_s(int(5.001 * NS_PER_S)) == 1.0


def test_application_summary_names_the_variant_that_answered_last() -> None:
    """With its accuracy; failures count as requests, not as answers."""
    figures = _figures()
    for at_s, variant in enumerate(["fp32", "fp32", "int8"]):
        figures.take(_seen(at_s, 10.0 + at_s, variant, f"thing {at_s}", warm=at_s > 0))
    figures.take("the queue is full")
    assert figures.summary() == {
        "name": "faces",
        "tenant": "harbour",
        "variant": "int8",
        "requests": 4,
        "ok": 3,
        "p50_ms": 11.0,
        "p99_ms": 12.0,
        "accuracy": 0.8,
        "recognised": ["thing 0", "thing 1", "thing 2"],
    }
    assert (figures.warm, figures.ok) == (2, 3)
    assert list(figures.in_lines()) == ["harbour/faces          3 of 4 answered   thing 2", "    1 × the queue is full"]


def test_application_summary_without_answers_has_zeros_and_nulls() -> None:
    summary = _figures().summary()
    assert (summary["ok"], summary["variant"], summary["p99_ms"], summary["accuracy"]) == (0, None, None, None)


def test_application_figures_keep_a_bounded_number_of_answers() -> None:
    """However long the demo runs."""
    figures = _figures()
    for number in range(KEPT_MAX + 10):
        figures.take(_seen(number, words=f"thing {number}"))
    assert len(figures.answered) == KEPT_MAX
    assert len(figures.recognised) == RECOGNISED_MAX
    assert figures.ok == KEPT_MAX + 10
