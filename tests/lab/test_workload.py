"""Arrivals come from a rate, a list or a file, and are the same for the same seed."""

from pathlib import Path
from typing import Any

import pytest

from appliance.lab.problems.base import Malformed
from appliance.lab.workload import Arrival, Arrivals, draw, predictions

S = 10**9


def _entry(**keys: Any) -> Arrivals:
    return Arrivals.model_validate({"application": "a", **keys})


def test_poisson_arrivals_depend_on_the_seed_alone() -> None:
    entries = [_entry(poisson_rps=5.0)]
    first = draw(entries, 1, 200.0, ".")
    assert first == draw(entries, 1, 200.0, ".")
    assert first != draw(entries, 2, 200.0, ".")
    assert 800 < len(first) < 1200
    assert all(0 <= a.at_ns < 200 * S for a in first)
    assert first == sorted(first, key=lambda a: a.at_ns)


def test_arrivals_of_an_entry_do_not_depend_on_other_entries() -> None:
    alone = draw([_entry(poisson_rps=1.0)], 7, 100.0, ".")
    both = draw([_entry(poisson_rps=1.0), _entry(application="b", poisson_rps=1.0)], 7, 100.0, ".")
    assert [a for a in both if a.application == "a"] == alone
    assert [a.at_ns for a in both if a.application == "b"] != [a.at_ns for a in alone]


def test_listed_arrivals_are_sorted_and_cut_at_the_end() -> None:
    entries = [_entry(times_s=[9.0, 1.5, 10.0]), _entry(application="b", times_s=[1.5])]
    expected = [Arrival(1_500_000_000, "a"), Arrival(1_500_000_000, "b"), Arrival(9 * S, "a")]
    assert draw(entries, 0, 10.0, ".") == expected
    assert len(draw(entries, 0, None, ".")) == 4


def test_arrival_rate_of_zero_sends_nothing() -> None:
    assert draw([_entry(poisson_rps=0.0)], 0, 10.0, ".") == []


def test_trace_file_is_read_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("who,time_s\nx,0.25\ny,2\n")
    assert [a.at_ns for a in draw([_entry(csv="trace.csv")], 0, None, str(tmp_path))] == [S // 4, 2 * S]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("when\n1\n", "arrivals[0].csv: trace.csv has no column time_s"),
        ("time_s\n1\nsoon\n", "arrivals[0].csv, line 3: 'soon' is no time in seconds"),
        ("time_s\n-1\n", "arrivals[0].csv, line 2: '-1' is no time in seconds"),
        ("time_s\nnan\n", "arrivals[0].csv, line 2: 'nan' is no time in seconds"),
        (None, "arrivals[0].csv: trace.csv cannot be read: No such file or directory"),
    ],
)
def test_malformed_trace_file_is_refused_by_its_line(text: str | None, sentence: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "trace.csv").write_text(text)
    with pytest.raises(Malformed) as caught:
        draw([_entry(csv="trace.csv")], 0, None, str(tmp_path))
    assert str(caught.value) == sentence


def test_given_forecasts_of_an_application_are_joined() -> None:
    entries = [
        _entry(times_s=[1.0], predicted_s=[3.0, 1.0]),
        _entry(times_s=[1.0], predicted_s=[2.0]),
        _entry(times_s=[]),
    ]
    assert predictions(entries) == {"a": (S, 2 * S, 3 * S)}
