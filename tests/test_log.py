"""What logging brings into a process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("processes")


def _runs(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_logging_does_not_import_rich() -> None:
    _runs("import sys; from appliance import log; log.get('box'); assert 'rich' not in sys.modules")


def test_rich_can_be_imported_after_logging() -> None:
    _runs("from appliance import log; import rich.console")


def test_rich_imported_before_logging_stays_imported() -> None:
    _runs("import sys, rich; from appliance import log; assert sys.modules['rich'] is rich")


@pytest.mark.parametrize("style", ["json", "console"])
def test_log_line_that_cannot_be_written_does_not_fail_the_caller(style: str) -> None:
    """The disk with the log is full, or the pipe has no reader any more."""
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


@pytest.mark.parametrize("style", ["json", "console"])
def test_log_with_stalled_reader_does_not_block_the_process(style: str) -> None:
    """The process goes on, and ends; a late reader finds the lines, and how many are missing."""
    program = f"""
import logging, sys
from appliance import log
log.configure("info", {style!r})
for at in range(4_000):
    log.get("box").info("event", at=at, more="x" * 1000)
logging.getLogger("library").warning("of a library")
print("went on", log.dropped(), flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        words, number = process.stdout.readline().rsplit(maxsplit=1)
        assert words == "went on"
        process.stdin.close()  # it ends, and nobody has read yet
        text = process.stderr.read()
        assert process.wait() == 0
    kept = text.count("x" * 1000)
    assert kept + int(number) in (4_000, 4_001), "all but that of the library"
    assert int(number) > 2_000
    assert text.index("log lines dropped") > 0


def test_log_lines_are_all_written_at_exit() -> None:
    """Those of libraries, too; no line is dropped while the reader reads."""
    program = """
import logging
from appliance import log
log.configure("info", "json")
for at in range(500):
    log.get("box").info("event", at=at)
logging.getLogger("library").warning("of a library")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert [json.loads(line)["at"] for line in lines[:-1]] == list(range(500))
    assert lines[-1] == "of a library"
