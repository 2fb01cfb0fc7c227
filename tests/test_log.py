"""What logging brings into a process."""

import subprocess
import sys
from pathlib import Path

import pytest


def _runs(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_box_that_logs_has_not_imported_rich() -> None:
    _runs("import sys; from appliance import log; log.get('box'); assert 'rich' not in sys.modules")


def test_rich_can_be_imported_after_it() -> None:
    _runs("from appliance import log; import rich.console")


def test_who_has_imported_rich_before_keeps_it() -> None:
    _runs("import sys, rich; from appliance import log; assert sys.modules['rich'] is rich")


@pytest.mark.parametrize("style", ["json", "console"])
def test_nobody_fails_for_a_line_that_cannot_be_written(style: str) -> None:
    """The disk with the log is full, or nobody reads it any more."""
    program = f"""
import os, sys
from appliance import log
log.configure("info", {style!r})
for at in range(2):
    log.get("box").info("event " * 10_000)
    try:
        1 / 0
    except ZeroDivisionError:
        log.get("box").exception("request failed")
    reading, writing = os.pipe()
    os.dup2(writing, 2), os.close(writing), os.close(reading)
print("went on")
"""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert done.stdout == "went on\n"
