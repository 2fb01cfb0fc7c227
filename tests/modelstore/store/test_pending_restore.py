"""A restore is applied whole, whenever a kill interrupts it."""

import datetime
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.modelstore.store import pending_restore
from appliance.modelstore.store.backup import back_up
from appliance.modelstore.store.restoring import _stage
from appliance.modelstore.store.state_folder import DATABASE, StateFolder
from tests.modelstore.boxes import filled, whole_models

NOW = datetime.datetime(2026, 7, 1, tzinfo=datetime.UTC)


class Killed(BaseException):
    """What a kill leaves is what was done before."""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A backup of a box with three models."""
    filled(tmp_path / "original", 3)
    back_up(tmp_path / "original", tmp_path / "box.tar", NOW, with_secrets=False)
    return tmp_path / "box.tar"


def steps(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """Be killed before the `at`-th change of the folder."""
    count = 0

    def counted(real: Callable[..., None]) -> Callable[..., None]:
        def step(*args: object, **kwargs: object) -> None:
            nonlocal count
            count += 1
            if count == at:
                raise Killed
            real(*args, **kwargs)

        return step

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    for name in ("remove", "_settle", "sync_folder"):
        monkeypatch.setattr(pending_restore, name, counted(getattr(pending_restore, name)))
    return lambda: count


@pytest.mark.nightly("a kill at each step")
def test_restore_killed_at_any_step_is_applied_whole_at_start(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old box or the restored one, never a mixture; and once it is ready, the restored one."""
    at, ended = 0, False
    while not ended:
        at += 1
        state = tmp_path / f"state-{at}"
        filled(state, 0)
        _stage(archive, state, lambda done, every: None)
        assert pending_restore.ready(state) == {"created_at": NOW.isoformat(), "models": 3, "tenants": 1}
        with monkeypatch.context() as patched:
            counted = steps(patched, at)
            try:
                pending_restore.apply(state, DATABASE)
                ended = counted() < at
            except Killed:
                pass
        assert whole_models(state) == 3
        assert not (state / pending_restore.FOLDER).exists()
    assert at > 6


def test_restore_killed_during_check_is_swept_at_start(archive: Path, tmp_path: Path) -> None:
    """Before it is ready nothing of the restore counts."""
    state = tmp_path / "state"
    filled(state, 0)

    def killed(done: int, every: int) -> None:
        if done > 5000:
            raise Killed

    with pytest.raises(Killed):
        _stage(archive, state, killed)
    parts_left = pending_restore.parts_of(state)
    (parts_left / "appliance.db").write_bytes(b"half of it")
    assert pending_restore.ready(state) is None
    assert whole_models(state) == 0
    assert not (state / pending_restore.FOLDER).exists()


def test_start_without_staged_restore_changes_nothing(tmp_path: Path) -> None:
    """Also on a new folder."""
    StateFolder.open(tmp_path / "state").close()
    assert not (tmp_path / "state" / pending_restore.FOLDER).exists()
