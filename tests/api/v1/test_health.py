"""Whether the box is well, as it says itself, and what to do where it is not."""

import shutil
import ssl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.api.http.fingerprint import fingerprint_of
from appliance.clock import SystemClock
from tests.api.stand import IMAGE, Stand, copied, stand_on

pytestmark = pytest.mark.anyio


async def checks(stand: Stand, who: str = "admin") -> dict[str, dict[str, Any]]:
    answer = await stand.client(who).get("/v1/health")
    assert answer.status_code == 200
    return {check["name"]: check for check in answer.json()["checks"]}


async def test_health_of_a_good_box_shows_all_checks_to_an_admin(stand: Stand) -> None:
    """A tenant sees the checks that concern it; a good check asks for no action."""
    seen = await checks(stand)
    assert {"service", "event loop", "database", "processors", "memory", "disk", "clock"} <= set(seen)
    assert {"imports", "quarantine", "keys"} <= set(seen)
    assert "67 MB must stay free" in seen["disk"]["detail"]
    assert all(bool(check["action"]) == (check["status"] != "good") for check in seen.values())
    own = {"service", "promises", "imports of models", "quarantine", "files of models", "keys", "notifications"}
    assert set(await checks(stand, "harbour")) == own
    assert (await stand.client("device").get("/v1/health")).status_code == 403
    assert (await stand.client(None).get("/authority.crt")).status_code == 404


async def test_health_tells_damaged_model_files(furnished: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """A sound prepared form serves in the place of a content of zeros; without one requests are told what is wrong."""
    folder = copied(furnished[0], tmp_path / "state")
    for blob in folder.glob("blobs/??/*"):
        blob.write_bytes(bytes(blob.stat().st_size))
    async with stand_on(folder, furnished[1]) as stand:
        assert (await ask(stand)).status_code == 200
        seen = (await checks(stand))["files of models"]
        assert (seen["status"], "harbour/digits fp32" in seen["detail"]) == ("warn", True)
    shutil.rmtree(folder / "prepared")
    async with stand_on(folder, furnished[1]) as stand:
        refused = await ask(stand)
        assert (refused.status_code, "upload the same model again" in refused.json()["error"]) == (503, True)
        assert (await checks(stand))["files of models"]["status"] == "bad"


async def ask(stand: Stand) -> httpx.Response:
    """A request to the model of harbour."""
    return await stand.client("harbour").post("/v2/models/digits/infer", json=IMAGE)


async def test_health_warns_of_keys_that_expire_soon(stand: Stand) -> None:
    """Each tenant is told of its own, an admin of all; nobody of keys that were made for an hour."""
    admin, keyring = stand.client(), stand.appliance.running().keyring
    for tenant, label, seconds, days_ago in (
        ("harbour", "glasses", 3600, 1),
        ("museum", "guide", 3600, 1),
        ("museum", "later", 9e6, 0),
        ("museum", "short", 3600, 0),
    ):
        order = {"label": label, "expires_in_s": seconds}
        made = await admin.post(f"/v1/tenants/{tenant}/keys", json=order)
        record = keyring.record(made.json()["id"])
        assert record is not None
        keyring.put(replace(record, created_at=record.created_at - timedelta(days=days_ago)))
    seen = (await checks(stand))["keys"]
    assert seen["status"] == "warn"
    assert "harbour/glasses" in seen["detail"]
    assert "museum/guide" in seen["detail"]
    assert "later" not in seen["detail"]
    assert "short" not in seen["detail"]
    assert "museum" not in (await checks(stand, "harbour"))["keys"]["detail"]


async def test_health_checks_the_certificate_of_the_box(furnished: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Where the box has TLS; a damaged certificate is bad."""
    from appliance.api.http.certificate import ensure

    folder = copied(furnished[0], tmp_path / "state")
    ensure(folder / "tls", ["127.0.0.1"], SystemClock().wall_now())
    async with stand_on(folder, furnished[1], http={"tls_self_signed": True}) as stand:
        assert (await checks(stand))["certificate"]["status"] == "good"
        authority = await stand.client(None).get("/authority.crt")
        assert authority.headers["content-type"] == "application/x-x509-ca-cert"
        assert authority.content == ssl.PEM_cert_to_DER_cert((folder / "tls" / "authority.pem").read_text())
        told = (await stand.client().get("/v1/system")).json()
        shown, own = (fingerprint_of(folder / "tls" / name) for name in ("cert.pem", "authority.pem"))
        assert (told["certificate_sha256"], told["authority_sha256"]) == (shown, own)
        (folder / "tls" / "cert.pem").write_text("half a certi")
        damaged = (await checks(stand))["certificate"]
        assert damaged["status"] == "bad"
        assert "cert.pem" in damaged["action"]
        assert (await stand.client().get("/v1/system")).json()["certificate_sha256"] is None


async def test_health_check_that_cannot_run_is_bad_and_others_are_shown(
    furnished: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """The disk of the state folder is gone."""
    folder = copied(furnished[0], tmp_path / "state")
    async with stand_on(folder, furnished[1]) as stand:
        assert (await checks(stand))["disk"]["status"] != "bad"
        away = folder.rename(tmp_path / "away")
        try:
            seen = await checks(stand)
        finally:
            away.rename(folder)
        assert (seen["disk"]["status"], seen["service"]["status"]) == ("bad", "good")
        assert "cannot be looked at" in seen["disk"]["detail"]
