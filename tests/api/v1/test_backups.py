"""Backups of a running box: made, listed, fetched, deleted; and restored into an empty one at its next start."""

import asyncio
import shutil
import tarfile
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance import management as management_module
from appliance.clock import SystemClock
from appliance.domain.backups import RestoreState
from appliance.domain.errors import InUse
from appliance.modelstore.store import backups, pending_restore
from appliance.modelstore.store.backups import Backups
from appliance.modelstore.store.pending_restore import FOLDER
from appliance.modelstore.store.restoring import Restoring
from tests.api.stand import Stand, StandWith, copied, good, refusal, running, shown_when, stand_on

pytestmark = pytest.mark.anyio


async def made(admin: httpx.AsyncClient) -> Any:
    """A backup that is no longer being made."""
    name = (await good(admin.post("/v1/backups")))["name"]

    def found(page: Any) -> Any:
        return next(one for one in page["items"] if one["name"] == name)

    return found(await shown_when(admin, "/v1/backups", lambda page: found(page)["state"] != "making"))


async def checked(admin: httpx.AsyncClient) -> Any:
    """The restore once it is no longer checked."""
    return await shown_when(admin, "/v1/restore", lambda restore: restore["state"] != "checking")


async def uploaded(admin: httpx.AsyncClient, body: bytes) -> str:
    upload = (await good(admin.post("/v1/uploads", json={"length": len(body)})))["id"]
    await good(admin.patch(f"/v1/uploads/{upload}", content=body, headers={"Upload-Offset": "0"}))
    return str(upload)


async def names(admin: httpx.AsyncClient) -> list[str]:
    """Of the backups that are there."""
    return [one["name"] for one in (await admin.get("/v1/backups")).json()["items"]]


async def checks(admin: httpx.AsyncClient) -> dict[str, Any]:
    return {one["name"]: one for one in (await admin.get("/v1/health")).json()["checks"]}


async def test_backup_of_a_box_is_restored_into_an_empty_box(stand: Stand, tmp_path: Path) -> None:
    """Whole, without a secret in clear; applied by the next start, opened by the keys of both boxes."""
    admin = stand.client()
    backup = await made(admin)
    assert (backup["state"], backup["is_nightly"], backup["percent"]) == ("ready", False, 100.0)
    answer = await admin.get(f"/v1/backups/{backup['name']}")
    assert len(answer.content) == backup["size_bytes"]
    with tarfile.open(stand.state_dir / "backups" / backup["name"]) as archive:
        assert {name.partition("/")[0] for name in archive.getnames()} == {"manifest.json", "appliance.db", "blobs"}
    for key in stand.keys.values():
        assert key.encode() not in answer.content
    refused = await admin.post("/v1/restore", json={"backup": backup["name"]})
    assert refused.json()["type"] == "/problems/box-not-empty"

    folder = tmp_path / "new"
    async with stand_on(folder) as new:
        other = new.client()
        upload = await uploaded(other, answer.content)
        assert (await other.post("/v1/restore", json={"upload": upload})).status_code == 202
        ready = await checked(other)
        assert (ready["state"], ready["models"], ready["tenants"]) == ("ready", 2, 3)
        assert (await other.get("/v1/uploads")).json()["items"] == []
        assert (await other.get("/v1/models")).json()["items"] == []  # not before the next start
    async with stand_on(folder, {**stand.keys, "new": new.keys["admin"]}) as again:
        assert [one["name"] for one in (await again.client("harbour").get("/v1/models")).json()["items"]] == [
            "adding",
            "digits",
        ]
        for who in ("new", "admin"):
            assert len((await again.client(who).get("/v1/tenants")).json()["items"]) == 3
        assert (await again.client("new").get("/v1/restore")).json()["state"] == "none"
        tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
        found = await again.client("harbour").post("/v2/models/adding/infer", json={"inputs": [tensor]})
        assert found.status_code in (200, 400), found.text  # it is served, whatever its inputs are called
    assert not (folder / FOLDER).exists()


async def test_damaged_backup_is_refused_and_a_waiting_restore_is_withdrawn(tmp_path: Path, stand: Stand) -> None:
    """A damaged file is refused whole; a waiting restore can be withdrawn, and is given up where something was added
    meanwhile.
    """
    backup = await made(stand.client())
    body = (stand.state_dir / "backups" / backup["name"]).read_bytes()
    folder = tmp_path / "new"
    async with stand_on(folder) as new:
        admin = new.client()
        assert (await admin.post("/v1/restore", json={})).status_code == 422
        assert (await admin.post("/v1/restore", json={"upload": "none"})).json()["type"] == "/problems/unknown-upload"
        half = len(body) // 2
        damaged = body[:half] + bytes([body[half] ^ 1]) + body[half + 1 :]
        assert (await admin.post("/v1/restore", json={"upload": await uploaded(admin, damaged)})).status_code == 202
        failed = await checked(admin)
        assert (failed["state"], bool(failed["error"])) == ("failed", True)
        assert not (folder / FOLDER).exists()
        for attempt in range(2):
            await admin.post("/v1/restore", json={"upload": await uploaded(admin, body)})
            assert (await checked(admin))["state"] == "ready"
            if attempt == 0:
                assert (await admin.delete("/v1/restore")).status_code == 200
                assert (await admin.delete("/v1/restore")).status_code == 409
        await admin.post("/v1/tenants", json={"name": "pier"})
    async with stand_on(folder, new.keys) as again:
        tenants = (await again.client().get("/v1/tenants")).json()["items"]
        assert [one["name"] for one in tenants] == ["default", "pier"]


async def test_backups_are_for_admins_only(stand: Stand) -> None:
    """Names that are no backup's are 404."""
    for method, path in (("GET", ""), ("POST", ""), ("GET", "/x"), ("DELETE", "/x")):
        assert (await stand.client("harbour").request(method, f"/v1/backups{path}")).status_code == 403
    assert (await stand.client("harbour").get("/v1/restore")).status_code == 403
    assert (await stand.client("harbour").get("/v1/housekeeping")).status_code == 403
    admin = stand.client()
    for name in ("x", "..%2Fadmin.key", "admin.key", "manual-20260101T000000Z.tar"):
        assert (await admin.get(f"/v1/backups/{name}")).status_code == 404
        assert (await admin.delete(f"/v1/backups/{name}")).status_code == 404


async def test_backup_that_would_fill_the_disk_is_refused(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """No backup is made, and the old ones stay; the list and the health say why."""
    admin = stand.client()
    before = await made(admin)
    usage = shutil.disk_usage(stand.state_dir)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=usage.total // 25))
    assert refusal(await admin.post("/v1/backups")) == (507, "storage-full")
    assert await names(admin) == [before["name"]]
    assert [one.name for one in (stand.state_dir / "backups").iterdir()] == [before["name"]]
    management, _ = await stand.appliance.management.get()
    await management.box.housekeeping.run("nightly backup")
    chores = (await checks(admin))["housekeeping"]
    assert chores["status"] == "warn"
    assert "nightly backup: the disk of the box has too little room" in chores["detail"]


async def test_failed_backup_says_why_and_leaves_no_file(stand: Stand) -> None:
    """Damaged content makes no backup; its entry goes when it is deleted."""
    admin = stand.client()
    blob = next(one for one in (stand.state_dir / "blobs").glob("*/*") if one.is_file())
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    failed = await made(admin)
    assert failed["state"] == "failed"
    assert blob.name in failed["error"]
    assert list((stand.state_dir / "backups").iterdir()) == []
    assert (await admin.get(f"/v1/backups/{failed['name']}")).status_code == 404
    assert (await admin.delete(f"/v1/backups/{failed['name']}")).status_code == 200
    assert (await admin.get("/v1/backups")).json()["items"] == []


async def test_backup_dated_in_the_future_is_deleted_first(stand_with: StandWith) -> None:
    """Such a backup takes no newer backup's place, and does not count as the one of last night."""
    async with stand_with(backups={"kept": 2}) as stand:
        admin = stand.client()
        ahead = [f"nightly-20990101T00000{number}Z.tar" for number in range(2)]
        (stand.state_dir / "backups").mkdir(exist_ok=True)
        for name in ahead:
            (stand.state_dir / "backups" / name).write_bytes(b"")
        assert (await checks(admin))["backup"]["status"] == "warn"
        management, _ = await stand.appliance.management.get()
        await management.box.housekeeping.run("nightly backup")
        kept = await names(admin)
        assert (kept[0], len(kept)) == (ahead[1], 2)
        assert (await checks(admin))["backup"]["status"] == "good"
        await management.box.housekeeping.run("nightly backup")
        kept = await names(admin)
        assert len(kept) == 2
        assert ahead[1] not in kept


def test_start_removes_unfinished_backups_and_no_other_files(tmp_path: Path) -> None:
    """Other files of the folder may be anybody's."""
    own, others = tmp_path / f".manual-20260101T000000Z.tar.{'0f' * 16}.part", tmp_path / ".download.part"
    for path in (own, others):
        path.touch()
    asyncio.run(Backups(tmp_path, tmp_path, SystemClock(), 1).sweep())
    assert [path.name for path in tmp_path.iterdir()] == [others.name]


async def test_restore_is_refused_until_the_last_restore_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its parts would be removed with those of the last; a restore whose file cannot be removed has ended all the
    same.
    """
    (tmp_path / "state").mkdir()
    restoring = Restoring(tmp_path / "state")
    is_begun = threading.Event()
    discard = pending_restore.discard

    def slow(state_dir: Path) -> None:
        assert is_begun.wait(120)
        discard(state_dir)

    async def failing() -> None:
        raise OSError(30, "Read-only file system")

    async def empty() -> None:
        pass

    monkeypatch.setattr(restoring, "require_empty", empty)
    with monkeypatch.context() as patch:
        patch.setattr(pending_restore, "discard", slow)
        withdrawing = asyncio.create_task(restoring.withdraw())
        await asyncio.sleep(0)  # noqa: TID251 - until it has begun
        with pytest.raises(InUse):
            await restoring.begin(tmp_path / "none.tar", failing)
        is_begun.set()
        await withdrawing
    await restoring.begin(tmp_path / "none.tar", failing)
    await restoring.stop()
    assert restoring.now.state is RestoreState.FAILED


async def test_stop_saves_state_before_it_waits_for_a_backup(
    furnished: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk may take longer than the service manager does; what the next start needs is saved by then."""
    is_saved = threading.Event()
    found: list[bool] = []
    monkeypatch.setattr(backups, "back_up", lambda *_, **__: found.append(is_saved.wait(120)))
    monkeypatch.setattr(management_module, "_REMEMBER_EVERY_S", 10_000)
    folder = copied(furnished[0], tmp_path / "state")
    async with running(folder) as appliance:
        management, _ = await appliance.management.get()
        save = management.box.store.residents.save

        async def saved(residents: list[str]) -> None:
            await save(residents)
            is_saved.set()

        monkeypatch.setattr(management.box.store.residents, "save", saved)
        await management.box.backups.begin()
    assert found == [True]


async def test_nightly_backups_are_kept_in_a_fixed_number(stand_with: StandWith) -> None:
    """The oldest nightly backup goes when a new one is there; those that were asked for stay. Chores say when they ran,
    also after a restart.
    """
    async with stand_with(backups={"kept": 2}) as stand:
        admin = stand.client()
        by_hand = await made(admin)
        management, _ = await stand.appliance.management.get()
        for _ in range(3):
            await management.box.housekeeping.run("nightly backup")
        items = (await admin.get("/v1/backups")).json()["items"]
        assert [one["is_nightly"] for one in items] == [True, True, False]
        assert items[-1]["name"] == by_hand["name"]
        assert (await admin.delete(f"/v1/backups/{items[0]['name']}")).status_code == 200
        assert len((await admin.get("/v1/backups")).json()["items"]) == 2
        page = (await admin.get("/v1/backups", params={"limit": 1})).json()
        rest = (await admin.get("/v1/backups", params={"cursor": page["next_cursor"]})).json()
        assert [one["name"] for one in page["items"] + rest["items"]] == [one["name"] for one in items[1:]]
    async with stand_with(backups={"kept": 2}) as stand:
        chores = {one["name"]: one for one in (await stand.client().get("/v1/housekeeping")).json()}
        assert {"check the database", "disk forecast", "forget old audit entries"} <= set(chores)
        assert chores["nightly backup"]["last"]["error"] == ""
        assert all(one["next_at"] for one in chores.values())
        assert chores["check the database"]["last"] is None
