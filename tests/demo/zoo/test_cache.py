"""The cache folder: nothing half after a kill, one process at a time."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.demo.zoo.cache import Cache, ZooError, default_folder


def silent(what: str, done: int, total: int | None) -> None:
    pass


def test_cache_folder_follows_xdg_cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where it is absolute; else ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "edge-appliance"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_folder() == tmp_path / "home" / ".cache" / "edge-appliance"


def test_cache_folder_is_made_once_and_anew_when_not_whole(tmp_path: Path) -> None:
    """The new folder takes the place of the damaged one."""
    cache = Cache(tmp_path / "a folder with spaces")
    written = iter(("first", "second"))

    def make(folder: Path) -> None:
        (folder / "file").write_text(next(written))

    with cache.locked(silent):
        kept = cache.made("derived/thing", make)
        assert cache.made("derived/thing", make) == kept
        assert (kept / "file").read_text() == "first"
        assert cache.made("derived/thing", make, lambda folder: False) == kept
        assert (kept / "file").read_text() == "second"
        assert not list((cache.folder / "staging").iterdir())


def test_cache_keeps_nothing_of_failed_work(tmp_path: Path) -> None:
    """An exception in the middle leaves neither a finished nor an unfinished folder."""
    cache = Cache(tmp_path)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise ZeroDivisionError

    with cache.locked(silent), pytest.raises(ZeroDivisionError):
        cache.made("derived/thing", fail)
    assert not (tmp_path / "derived" / "thing").exists()
    assert not list((tmp_path / "staging").iterdir())


HOLDER = """
import sys, time
from pathlib import Path
from appliance.demo.zoo.cache import Cache
cache = Cache(Path(sys.argv[1]))
with cache.locked(lambda *_: None), cache.staging() as staging:
    (staging / "half").write_text("x")
    print("ready", flush=True)
    sys.stdin.readline()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Another process that holds the cache and has begun something."""
    root = Path(__file__).parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.usefixtures("processes")
def test_cache_of_a_killed_process_is_unlocked_and_swept(tmp_path: Path) -> None:
    """After kill -9 the next process gets the lock at once and sweeps the half work."""
    child = holder(tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert len(list((tmp_path / "staging").iterdir())) == 1
    with Cache(tmp_path).locked(silent):
        assert not (tmp_path / "staging").exists()


@pytest.mark.usefixtures("processes")
def test_second_process_waits_for_the_cache_and_reports_it(tmp_path: Path) -> None:
    """It goes on when the first process is done."""
    child = holder(tmp_path)
    said: list[str] = []

    def progress(what: str, done: int, total: int | None) -> None:
        said.append(what)
        assert child.stdin is not None
        child.stdin.write("go on\n")
        child.stdin.flush()

    with Cache(tmp_path).locked(progress):
        assert child.wait(timeout=120) == 0
    child.communicate()
    assert said == ["another process is fetching; waiting for it"]


def test_unwritable_cache_folder_is_a_clear_error(tmp_path: Path) -> None:
    """A cache that cannot be made says so instead of a bare OSError."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ZooError, match="name another folder"), Cache(tmp_path / "file" / "cache").locked(silent):
        pass
