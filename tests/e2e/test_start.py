"""A box that cannot start says why in one sentence, and what to do."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("processes", "ports")


@pytest.mark.parametrize("body", [b"no database " * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_start_with_a_damaged_database_is_refused_in_one_sentence(tmp_path: Path, body: bytes) -> None:
    """Not a traceback, and the file is left as it was, so that something of it can be saved."""
    (tmp_path / "appliance.db").write_bytes(body)
    command = [sys.executable, "-P", "-m", "appliance", "serve", "--state", str(tmp_path), "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 1
    said = [line for line in ended.stderr.splitlines() if "appliance restore" in line]
    assert len(said) == 1, ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert (tmp_path / "appliance.db").read_bytes() == body
