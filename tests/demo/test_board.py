"""The table on a terminal of 100 columns."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from appliance.clock import NS_PER_S
from appliance.demo.board import Picture, drawn
from appliance.demo.figures import Figures, Seen, Streamed
from appliance.domain.states import JobState
from appliance.wire.box import BuildShape, MemoryShape
from appliance.wire.catalogue import ApplicationShape
from appliance.wire.jobs import JobShape

NOW_NS = 100 * NS_PER_S
STREAMED = Streamed("objects", "10/s within 500 ms", "served", 7, 6, 812, 810, 803)


def _ready(name: str = "objects") -> Figures:
    """Answers at a steady rate over the last ten seconds, the first of them cold."""
    figures = Figures("glasses", name)
    for number in range(50):
        seen = Seen(
            at_ns=NOW_NS - 10 * NS_PER_S + number * NS_PER_S // 5,
            latency_ms=48.1 if number == 20 else 21.2,
            variant="int8-320x416",
            is_warm=number > 0,
            accuracy=0.961,
            recognised=f"{number} person, " + "car, " * 30,
        )
        figures.take(seen)
    return figures


def _silent(name: str) -> Figures:
    return Figures("camera", name)


def _shape(kind: Any, **facts: Any) -> Any:
    """With as many of its facts as the board looks at."""
    return kind.model_construct(**facts)


def _job(state: JobState, percent: float, stage: str, error: str | None = None) -> Any:
    return _shape(JobShape, state=state, percent=percent, stage=stage, error=error, message="")


def _picture(*figures: Figures) -> Picture:
    picture = Picture(figures, "http://127.0.0.1:8080", Path("/home/me/" + "x" * 60 + "/admin.key"))
    build = _shape(BuildShape, applications=["glasses/objects"], bytes=21_000_000)
    picture.memory = _shape(MemoryShape, used_bytes=28_000_000, budget_bytes=1_700_000_000, builds=[build])
    picture.applications["glasses", "objects"] = _shape(ApplicationShape, variants=[None] * 7)
    picture.applications["camera", "faces"] = _shape(ApplicationShape, variants=[None])
    picture.jobs["camera", "faces"] = _job(JobState.RUNNING, 42.0, "int8 accuracy and profile")
    picture.jobs["camera", "read-text-v6"] = _job(JobState.QUEUED, 0.0, "queued")
    picture.jobs["camera", "what-large"] = _job(JobState.FAILED, 50.0, "", "no disk")
    picture.computed = "cpu 1204 runs   openvino 312 runs   1.09 items a run"
    return picture


def _screen(picture: Picture, columns: int = 100, lines: int = 50) -> list[str]:
    console = Console(width=columns, file=io.StringIO(), color_system=None)
    console.print(drawn(picture, 75.0, NOW_NS, lines))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_board_fits_100_columns_with_one_line_an_application() -> None:
    """With every figure whole; imports under way and errors are told."""
    lines = _screen(_picture(_ready(), *map(_silent, ("faces", "read-text-v6", "what-large"))))
    assert max(len(line) for line in lines) <= 100
    assert lines[0].split() == "edge appliance 1:15 5 answers/s in memory 28 of 1700 MB".split()
    assert lines[1] == "cpu 1204 runs   openvino 312 runs   1.09 items a run"
    objects = next(line for line in lines if line.startswith("objects"))
    assert objects.split() == ["objects", "glasses", "int8-320x416", "5.0", "21.2", "48.1", "0.961", "98%", "21", "7"]
    faces = next(line for line in lines if line.startswith("faces"))
    assert "1 ━━━━━━━━━━━━ int8" in faces
    assert any(line.startswith("read-text-v6") and "queued" in line for line in lines)
    assert "what-large: its import failed: no disk" in lines


def test_board_shows_sign_in_link_address_of_api_and_key_file() -> None:
    picture = _picture(_ready())
    picture.link = "http://127.0.0.1:8080/sign-in#" + "t" * 43
    text = "\n".join(_screen(picture))
    assert picture.link in text
    assert "http://127.0.0.1:8080/docs" in text
    assert "/admin.key" in text


@pytest.mark.parametrize("lines", [24, 30, 50])
def test_board_on_a_low_terminal_shows_fewer_recognised_things(lines: int) -> None:
    """The table and the footer stay whole."""
    screen = _screen(_picture(*[_ready()] * 11), lines=lines)
    assert len(screen) <= lines
    assert sum(line.startswith("objects") and "int8" in line for line in screen) == 11
    assert any("/docs" in line for line in screen)


def test_board_has_one_line_a_stream_with_promise_and_kept_windows() -> None:
    """Recognised things give way to streams."""
    figures = [_ready() for _ in range(11)]
    for one in figures[:2]:
        one.take(STREAMED)
    lines = _screen(_picture(*figures), lines=30)
    assert len(lines) <= 30
    assert max(len(line) for line in lines) <= 100
    told = next(line for line in lines if "within 500 ms" in line)
    assert told.split() == "objects 10/s within 500 ms 6 of 7 810 of 812 0.991 served".split()


def test_board_has_one_line_a_pipeline_with_items_and_cost() -> None:
    """Frames in time, items and cost a frame; streams give way to pipelines; a silent pipeline has a reason."""
    signs, silent = (Figures("glasses", name, is_pipeline=True) for name in ("signs", "people"))
    for number in range(50):
        at_ns = NOW_NS - 10 * NS_PER_S + number * NS_PER_S // 5
        seen = Seen(at_ns=at_ns, latency_ms=118.4, is_in_time=number > 0, items=7, cost_s=0.0923)
        signs.take(seen)
    silent.take("no processor is there")
    applications = [_ready() for _ in range(11)]
    for one in applications[:3]:
        one.take(STREAMED)
    picture = _picture(*applications, signs, silent)
    lines = _screen(picture, lines=50)
    assert max(len(line) for line in lines) <= 100
    row = next(line for line in lines if line.startswith("signs"))
    assert row.split() == "signs glasses 5.0 118 118 0.980 7.0 92.3".split()
    assert "people: no processor is there" in lines
    low = _screen(picture, lines=28)
    assert len(low) <= 28
    assert any(line.startswith("signs") for line in low)
    assert not any("within 500 ms" in line for line in low)


@pytest.mark.parametrize(
    ("state", "has_answer", "is_settled"),
    [
        (JobState.RUNNING, False, False),
        (JobState.RUNNING, True, True),
        (JobState.DONE, False, False),
        (JobState.DONE, True, True),
        (JobState.FAILED, False, True),
    ],
)
def test_application_is_settled_when_it_has_answered_or_its_import_has_failed(
    state: JobState, has_answer: bool, is_settled: bool
) -> None:
    figures = _silent("faces")
    if has_answer:
        figures.take(Seen(at_ns=NOW_NS, latency_ms=1.0))
    picture = _picture(figures)
    picture.jobs["camera", "faces"] = _job(state, 100.0, "")
    assert picture.is_settled(figures) == is_settled


def test_application_with_a_measured_variant_is_settled_during_its_import() -> None:
    assert _picture().is_settled(_ready("faces"))
