"""Progress of something long, on a terminal and in a log."""

import sys

import pytest

from appliance.terminal.progress import progress


def test_log_gets_a_line_for_each_remark_or_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("import", of_bytes=False) as step:
        for done, remark in ((1, "queued"), (2, "queued"), (50, "")):
            step(done, 100, remark)
        step(55, 100, "")
        step(60, 100, "")
        step(1, None, "ends")
    said = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert said == [["import", "1", "%", "queued"], ["import", "50", "%"], ["import", "60", "%"], ["import", "ends"]]


@pytest.mark.parametrize("of_bytes", [True, False])
def test_terminal_gets_a_bar_with_the_remark(
    of_bytes: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("upload", of_bytes=of_bytes) as step:
        step(50, 100, "half of it")
        step(100, 100, "whole")
    shown = capsys.readouterr().err
    assert "upload" in shown
    assert "whole" in shown
