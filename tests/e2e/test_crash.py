"""kill -9 at random instants of uploads and imports: what was acknowledged is there after the restart, and
everything fits together.
"""

import random
import sqlite3
from pathlib import Path

import httpx
import pytest

from appliance.clock import pause_s
from appliance.domain.errors import ApplianceError
from tests import toys
from tests.e2e.server import Server, running_server

pytestmark = [pytest.mark.nightly("a server killed while it imports"), pytest.mark.usefixtures("processes", "ports")]

KILLS = 6


def test_acknowledged_imports_finish_after_kills(tmp_path: Path) -> None:
    """After any number of kills the model answers, and no file is without an owner."""
    chance = random.Random(11)
    model = toys.tiny_add(tmp_path / "add.onnx")
    acknowledged: list[str] = []
    with running_server(tmp_path / "state") as server:
        for number in range(KILLS):
            with server.client() as client:
                client.upload_model(model, f"add-{number}", "tensor")
                acknowledged.append(f"add-{number}")
            pause_s(chance.uniform(0.0, 2.0))
            server.kill()
            server.start_again()
        with server.client() as client:
            for job in client.jobs():
                assert list(client.follow_job(job.id))[-1].state == "done"
            for name in acknowledged:
                answer = client.predict(name, {"inputs": {"A": [[1, 2, 3, 4]], "B": [[4, 3, 2, 1]]}})
                assert answer.model_dump()["outputs"]["SUM"]["data"] == [5, 5, 5, 5]
        server.stop()
        _check_whole(server.state_dir)


def test_upload_resumes_at_the_acknowledged_offset_after_kills(tmp_path: Path) -> None:
    """What arrives is what was sent."""
    chance = random.Random(5)
    model = toys.conv_net(tmp_path / "net.onnx", 12)
    with running_server(tmp_path / "state") as server:
        with server.client() as client:
            upload = client.begin_upload(model).id
        for _ in range(3):
            _send_until_killed(server, upload, model, chance.uniform(0.0, 0.1))
            server.start_again()
        with server.client() as client:
            client.resume_upload(upload, model)
            job = client.upload_model(model, "net", "image-classification", upload=upload, metadata={"precisions": []})
            assert list(client.follow_job(job.id))[-1].state == "done"
        server.stop()
        _check_whole(server.state_dir)


def _send_until_killed(server: Server, upload: str, path: Path, after_s: float) -> None:
    """Begin to send, pull the plug somewhere on the way."""
    sent = 0

    def pieces() -> object:
        nonlocal sent
        with path.open("rb") as file:
            file.seek(offset)
            while piece := file.read(1 << 20):
                sent += len(piece)
                if sent > 3 << 20:
                    pause_s(after_s)
                    server.kill()
                yield piece

    with server.client() as client:
        offset = client.upload_state(upload).offset
    headers = {"Authorization": f"Bearer {server.admin_key}", "Upload-Offset": str(offset)}
    try:
        httpx.patch(f"{server.url}/v1/uploads/{upload}", content=pieces(), headers=headers)  # type: ignore[arg-type]
    except (httpx.HTTPError, ApplianceError):
        pass
    server.kill()


def _check_whole(state_dir: Path) -> None:
    """Every row's content is on disk, every file has a row, and nothing half is left."""
    database = sqlite3.connect(state_dir / "appliance.db")
    wanted = {row[0] for row in database.execute("SELECT sha256 FROM blob")}
    used = {row[0] for row in database.execute("SELECT content_sha256 FROM variant WHERE content_sha256 <> ''")}
    broken = database.execute("PRAGMA integrity_check").fetchone()[0]
    database.close()
    assert broken == "ok"
    files = {file.name for file in (state_dir / "blobs").rglob("*") if file.is_file()}
    assert used <= wanted == files
    assert list((state_dir / "scratch").iterdir()) == []
    assert list((state_dir / "quarantine").iterdir()) == []
