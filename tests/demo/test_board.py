"""The table on a terminal of 100 columns, and as lines of a log."""

import dataclasses
import io

import pytest
from rich.console import Console

from appliance.demo.board import Framed, Picture, Row, Streamed, drawn, in_lines

READY = Row("objects", "glasses", "int8-320x416", 9.8, 21.2, 48.1, 0.961, 0.98, 21_000_000, 7, None, "")
IMPORTING = Row("faces", "camera", "fp32", 4.0, 20.1, 99.0, None, 1.0, 7_000_000, 1, 42.0, "int8 accuracy and profile")
WAITING = Row("read-text-v6", "glasses", "", 0.0, None, None, None, None, 0, 0, 0.0, "queued")
BROKEN = dataclasses.replace(
    WAITING, application="what-large", import_percent=None, trouble="its import failed: no disk"
)


def _picture(*rows: Row, recognised: int = 2) -> Picture:
    told = tuple(("objects", f"{number} person, " + "car, " * 30) for number in range(recognised))
    return Picture(
        75.0,
        rows,
        told,
        28_000_000,
        1_700_000_000,
        (("cpu", 1204), ("openvino", 312)),
        1.087,
        "http://127.0.0.1:8080",
        "/home/me/" + "x" * 60 + "/admin.key",
    )


def _screen(picture: Picture, columns: int = 100, lines: int = 50) -> list[str]:
    console = Console(width=columns, file=io.StringIO(), color_system=None)
    console.print(drawn(picture, lines))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_board_fits_100_columns_with_one_line_an_application() -> None:
    """With every figure whole."""
    lines = _screen(_picture(READY, IMPORTING, WAITING, BROKEN))
    assert max(len(line) for line in lines) <= 100
    objects = next(line for line in lines if line.startswith("objects"))
    assert objects.split() == ["objects", "glasses", "int8-320x416", "9.8", "21.2", "48.1", "0.961", "98%", "21", "7"]
    faces = next(line for line in lines if line.startswith("faces"))
    assert "1 ━━━━━━━━━━━━ int8" in faces
    assert any(line.startswith("read-text-v6") and "queued" in line for line in lines)
    assert "what-large: its import failed: no disk" in lines
    assert "cpu 1204 runs   openvino 312 runs   1.09 items a run" in lines


def test_board_shows_the_address_of_the_api_and_the_key_file() -> None:
    text = "\n".join(_screen(_picture(READY)))
    assert "http://127.0.0.1:8080/docs" in text
    assert "/admin.key" in text


@pytest.mark.parametrize("lines", [24, 30, 50])
def test_board_on_a_low_terminal_shows_fewer_recognised_things(lines: int) -> None:
    """The table and the footer stay whole."""
    screen = _screen(_picture(*[READY] * 11, recognised=11), lines=lines)
    assert len(screen) <= lines
    assert sum(line.startswith("objects") and "int8" in line for line in screen) == 11
    assert any("/docs" in line for line in screen)


def test_board_in_a_log_has_one_line_an_application() -> None:
    """Variants that answer, imports under way, and errors."""
    lines = list(in_lines(_picture(READY, IMPORTING, WAITING, BROKEN)))
    assert lines[0].split() == (
        "75 s 4 applications, in memory 28 of 1700 MB cpu 1204 runs openvino 312 runs 1.09 items a run".split()
    )
    assert "P50 21.2 P99 48.1 ms accuracy 0.961 variant int8-320x416" in lines[1]
    assert "import 42 % int8 accuracy and profile" in lines[2]
    assert "no answer yet" in lines[3]
    assert lines[4].endswith("its import failed: no disk")


def test_board_has_one_line_a_stream_with_promise_and_kept_windows() -> None:
    """On a terminal and in a log; recognised things give way to streams."""
    streamed = Streamed("objects", "10/s within 500 ms", "served", 7, 6, 812, 810, 803)
    picture = dataclasses.replace(_picture(*[READY] * 11, recognised=11), streamed=(streamed, streamed))
    lines = _screen(picture, lines=30)
    assert len(lines) <= 30
    assert max(len(line) for line in lines) <= 100
    told = next(line for line in lines if "within 500 ms" in line)
    assert told.split() == "objects 10/s within 500 ms 6 of 7 810 of 812 0.991 served".split()
    assert any("promised 10/s within 500 ms: served, kept 6 of 7" in line for line in in_lines(picture))


def test_board_has_one_line_a_pipeline_with_items_and_cost() -> None:
    """Frames in time, items and cost a frame; streams give way to pipelines; a silent pipeline has a reason."""
    signs = Framed("signs", "glasses", 0.5, 118.4, 240.0, 0.98, 7.6, 92.3)
    silent = Framed("people", "camera", 0.0, None, None, None, None, None, "no processor is there")
    streamed = Streamed("objects", "10/s within 500 ms", "served", 7, 6, 812, 810, 803)
    picture = dataclasses.replace(_picture(*[READY] * 11), framed=(signs, silent), streamed=(streamed,) * 3)
    lines = _screen(picture, lines=50)
    assert max(len(line) for line in lines) <= 100
    row = next(line for line in lines if line.startswith("signs"))
    assert row.split() == "signs glasses 0.5 118 240 0.980 7.6 92.3".split()
    assert "people: no processor is there" in lines
    low = _screen(picture, lines=28)
    assert len(low) <= 28
    assert any(line.startswith("signs") for line in low)
    assert not any("within 500 ms" in line for line in low)
    said = next(line for line in in_lines(picture) if "glasses/signs" in line)
    assert "0.5 frames/s P50 118 P99 240 ms in time 0.980 items a frame 7.6 cost a frame 92.3 ms" in said
