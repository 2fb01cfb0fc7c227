"""What a start imports, in processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("processes")

_START = """
import asyncio, sys
from pathlib import Path
from appliance import lazy_management
from appliance.app import Appliance
from appliance.settings import Settings

lazy_management._AFTER_S = 3600.0  # the second half begins when it is wanted, however long the first half takes

async def start():
    appliance = Appliance(Settings(state_dir=Path(sys.argv[1]), log={"level": "error"}))
    async with appliance.started():
        assert appliance.is_ready()
        tell()
    tell()

def tell():
    print("imported", *(name for name in ("fastapi", "sqlalchemy", "sqlmodel", "starlette") if name in sys.modules))

asyncio.run(start())
"""


def _imported(state: Path, *, when_over: bool = False) -> list[str]:
    """What of the management a box has imported when it is ready, or when it has stopped at once."""
    ran = subprocess.run([sys.executable, "-c", _START, str(state)], check=True, capture_output=True, text=True)
    ready, over = (line.split()[1:] for line in ran.stdout.splitlines() if line.startswith("imported"))
    return over if when_over else ready


def test_box_serves_before_management_is_imported(tmp_path: Path) -> None:
    """A state folder that was in use needs neither tables nor framework for the first answer; a new one does."""
    assert "sqlalchemy" in _imported(tmp_path)
    assert _imported(tmp_path) == []


@pytest.mark.nightly("starts five boxes")
def test_box_stopped_at_once_never_imports_management(tmp_path: Path) -> None:
    """The folder that it leaves starts quickly again."""
    for _ in range(3):
        _imported(tmp_path)
    assert _imported(tmp_path) == []
    assert _imported(tmp_path, when_over=True) == []


_SERVE = """
import gc, os, signal, sys, threading, time
from pathlib import Path
from appliance.server import serve
from appliance.settings import Settings

def until_managed(at_first):
    while gc.get_freeze_count() < at_first + 10_000:
        time.sleep(0.01)
    print("frozen", at_first, gc.get_freeze_count())
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)

def listening(url):
    threading.Thread(target=until_managed, args=(gc.get_freeze_count(),), daemon=True).start()

serve(Settings(state_dir=Path(sys.argv[1]), http={"port": 0}, log={"level": "error"}), listening)
"""


@pytest.mark.nightly("starts three boxes")
def test_objects_made_at_start_are_frozen_for_garbage_collection(tmp_path: Path) -> None:
    """Of serving and of management: a full collection would stop the box for as long as looking at them takes."""
    _imported(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", _SERVE, str(tmp_path)], check=True, capture_output=True, text=True, timeout=240
    )
    serving, managed = (int(word) for word in ran.stdout.split()[1:])
    assert 50_000 < serving < managed
