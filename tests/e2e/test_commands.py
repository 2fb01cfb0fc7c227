"""Every noun of the command line against a real box: what a person types, what they see, and what a program reads
with --json.
"""

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from appliance.cli.main import main
from appliance.cli.pending import PendingUploads
from appliance.client import Client
from appliance.demo.zoo.toys import digits
from tests.api.stand import copied
from tests.client.lines import BreakingLine
from tests.e2e.conftest import Run
from tests.e2e.server import Server, running_server
from tests.toys import conv_net, tiny_add

pytestmark = [pytest.mark.usefixtures("processes", "ports"), pytest.mark.timeout(240)]


def test_tenants_and_keys_commands_create_change_revoke_and_delete(appliance: Run) -> None:
    """What exists cannot be made twice."""
    assert "tenant harbour is made" in appliance("tenants", "create", "harbour", "--requests-per-s", "50")
    assert "is changed" in appliance("tenants", "change", "harbour", "--memory-guarantee-mb", "2.5")
    assert "is changed" in appliance("tenants", "change", "harbour", "--isolation", "process")
    assert "more than the ceiling" in appliance("tenants", "change", "harbour", "--memory-ceiling-mb", "1", status=1)
    assert "'harbour' exists already" in appliance("tenants", "create", "harbour", status=1)
    [_, harbour] = json.loads(appliance("tenants", "list", "--json"))
    assert (harbour["name"], harbour["quota"]["requests_per_s"]) == ("harbour", 50)
    assert harbour["quota"]["memory_guarantee_bytes"] == 2_500_000
    assert harbour["quota"]["isolation"] == "process"
    [_, _, shown] = appliance("tenants", "list").splitlines()
    assert "2.5 MB" in shown
    assert shown.split()[-1] == "process"
    key = appliance("keys", "create", "harbour", "--label", "developers").strip()
    assert key.startswith("ea_")
    [made] = json.loads(appliance("keys", "list", "harbour", "--json"))
    assert made["label"] == "developers"
    assert key not in appliance("keys", "list", "harbour")
    assert appliance("models", "list", "--key", key, "--json").strip() == "[]"
    assert "is revoked" in appliance("keys", "revoke", "harbour", made["id"])
    assert "the key is unknown, expired or revoked; give one with" in appliance(
        "models", "list", "--key", key, status=1
    )
    assert "is deleted" in appliance("tenants", "delete", "harbour")


def test_model_is_imported_called_and_deleted_by_commands(appliance: Run, tmp_path: Path) -> None:
    """A folder with its evaluation set is imported, shown, called by file and by device key, and deleted."""
    made = digits(tmp_path / "digits")
    picture = str(made.evaluation / "0003.png")
    assert "model digits is ready" in appliance("import", str(tmp_path / "digits"))
    shown = appliance("models", "show", "digits")
    assert "top-1 against labels" in shown
    assert "fp32" in shown
    [summary] = json.loads(appliance("models", "list", "--json"))
    assert (summary["name"], summary["state"]) == ("digits", "ready")
    answer = json.loads(appliance("predict", "digits", picture, "--json"))
    assert answer["labels"][0]["label"] == "3"
    assert "— variant fp32, accuracy 0.9" in appliance("predict", "digits", picture, "--variant", "fp32")
    assert "there is no variant 'fp64'" in appliance("predict", "digits", picture, "--variant", "fp64", status=1)
    assert "application door is made" in appliance(
        "applications", "create", "door", "--model", "digits", "--latency-slo-ms", "500"
    )
    device = appliance(
        "keys", "create", "default", "--role", "device", "--application", "door", "--expires-in", "1h"
    ).strip()
    assert json.loads(appliance("predict", "door", picture, "--key", device, "--json"))["model"] == "digits"
    assert "there is no application 'digits'" in appliance("predict", "digits", picture, "--key", device, status=1)
    assert "may not" in appliance("models", "list", "--key", device, status=1)
    assert "door" in appliance("applications", "list")
    assert "is deleted" in appliance("applications", "delete", "door")
    assert "is deleted" in appliance("models", "delete", "digits")
    assert "there is no model 'digits'" in appliance("models", "show", "digits", status=1)


def test_jobs_command_lists_failed_and_finished_imports(appliance: Run, tmp_path: Path) -> None:
    """A file that is no model fails with a reason and status 1; both jobs stand in the list."""
    (tmp_path / "broken.onnx").write_bytes(b"no graph at all")
    said = appliance("import", str(tmp_path / "broken.onnx"), "--task", "tensor", status=1)
    assert "the import of broken failed" in said
    tiny_add(tmp_path / "add.onnx")
    begun = json.loads(appliance("import", str(tmp_path / "add.onnx"), "--task", "tensor", "--no-wait", "--json"))
    ended = json.loads(appliance("jobs", "follow", begun["id"], "--json"))
    assert (ended["model"], ended["state"], ended["percent"]) == ("add", "done", 100)
    states = {job["model"]: job["state"] for job in json.loads(appliance("jobs", "list", "--json"))}
    assert (states["broken"], states["add"]) == ("failed", "done")
    assert "done" in appliance("jobs", "show", begun["id"])
    inputs = tmp_path / "inputs.json"
    inputs.write_text('{"inputs": {"A": [[1, 2, 3, 4]], "B": [[10, 10, 10, 10]]}}')
    shown = appliance("models", "show", "add") + appliance("applications", "show", "add")
    shown += appliance("predict", "add", str(inputs))
    assert shown.count("agreement with fp32") >= 4, "nobody has sent labels"
    assert "accura" not in shown
    answer = json.loads(appliance("predict", "add", str(inputs), "--json"))
    assert answer["outputs"]["SUM"]["data"] == [11, 12, 13, 14]


def test_events_command_follows_until_ctrl_c(appliance: Run, server: Server, tmp_path: Path) -> None:
    """What happened before comes first; one JSON object a line; Ctrl-C is a normal end."""
    command = [sys.executable, "-m", "appliance", "events", "--after", "0", "--json", "--state", str(server.state_dir)]
    (tmp_path / "broken.onnx").write_bytes(b"no graph at all")
    appliance("import", str(tmp_path / "broken.onnx"), "--task", "tensor", "--no-wait")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        first = json.loads(follower.stdout.readline())
        follower.send_signal(signal.SIGINT)
        assert follower.wait(120) == 130
        assert follower.stderr is not None
        assert "Traceback" not in follower.stderr.read()
    assert first["id"] >= 1
    assert first["event"]


def test_rotated_admin_key_replaces_the_old_key(appliance: Run, server: Server) -> None:
    """The new key stands in the file, only its owner can read it, the old key no longer opens."""
    old = server.admin_key
    appliance("keys", "rotate-admin")
    new = server.admin_key
    assert new != old
    assert stat.S_IMODE((server.state_dir / "admin.key").stat().st_mode) == 0o600
    assert appliance("tenants", "list", "--json")
    assert "unknown, expired or revoked" in appliance("tenants", "list", "--key", old, status=1)


def test_backup_of_a_running_box_can_be_restored(appliance: Run, tmp_path: Path) -> None:
    """One file, readable by its owner; a folder that is in use is not overwritten."""
    assert "written to" in appliance("backup", str(tmp_path / "box.tar"))
    assert stat.S_IMODE((tmp_path / "box.tar").stat().st_mode) == 0o600
    assert "restored to" in appliance("restore", str(tmp_path / "box.tar"), "--state", str(tmp_path / "again"))
    assert (tmp_path / "again" / "admin.key").exists()
    assert "exists already" in appliance(
        "restore", str(tmp_path / "box.tar"), "--state", str(tmp_path / "again"), status=1
    )


def test_import_resumes_a_broken_upload_in_another_process(server: Server, tmp_path: Path) -> None:
    """The second try sends only what the box does not have; the import then works."""
    model = conv_net(tmp_path / "large.onnx", 6)
    size = model.stat().st_size
    memory = tmp_path / "uploads.json"
    broken = BreakingLine(size // 2, for_good=True)
    with Client(server.url, server.admin_key, transport=broken) as client, pytest.raises(httpx.TransportError):
        PendingUploads(server.url, memory).send(client, model, lambda done, total: None)
    whole = BreakingLine()
    with Client(server.url, server.admin_key, transport=whole) as client:
        pending = PendingUploads(server.url, memory)
        upload = pending.send(client, model, lambda done, total: None)
        assert client.upload_state(upload).complete
        assert 0 < whole.sent < size
        job = client.upload_model(model, "large", "tensor", upload=upload)
        pending.forget(model)
        assert job.model == "large"
        client.delete_model("large")
    assert json.loads(memory.read_text()) == {}


def test_stopped_box_removes_its_address_and_keeps_its_data(
    furnished: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """SIGTERM ends the box with status 0; the next start, also after SIGKILL, is on the same data."""
    with running_server(copied(furnished[0], tmp_path / "state")) as box:
        with box.client() as client:
            client.create_tenant("stays")
        assert box.stop() == 0
        assert not (box.state_dir / "address").exists()
        box.start_again()
        with box.client() as client:
            assert "stays" in [tenant.name for tenant in client.tenants()]
        box.kill()
        box.start_again()
        with box.client() as client:
            assert "stays" in [tenant.name for tenant in client.tenants()]


def _failed_start(state: Path, port: str = "0") -> str:
    """What a box says that cannot start."""
    command = [sys.executable, "-m", "appliance", "serve", "--state", str(state), "--port", port]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 1
    return ended.stderr


def test_box_that_cannot_start_says_why_in_one_sentence(server: Server, tmp_path: Path) -> None:
    """Another box has its folder, which goes on; another program has its port; its folder is a file; its database is
    damaged, and left as it was, so that something of it can be saved.
    """
    taken, port, file = server.state_dir, server.url.rpartition(":")[2], tmp_path / "file"
    file.touch()
    assert _failed_start(taken) == f"appliance: a box runs on {taken} already; stop it, or name another --state\n"
    assert (taken / "address").read_text().strip() == server.url
    assert _failed_start(tmp_path / "other", port) == (
        f"appliance: port {port} of 127.0.0.1 is taken by another program; name another with --port (0: any free one)\n"
    )
    assert _failed_start(file) == (
        f"appliance: the state folder {file} cannot be used (File exists); name another with --state\n"
    )
    database = tmp_path / "appliance.db"
    for body in (b"no database " * 1000, b"SQLite format 3\0" + b"\xff" * 5000):
        database.write_bytes(body)
        said = _failed_start(tmp_path)
        assert [line for line in said.splitlines() if "appliance restore" in line] != [], said
        assert "Traceback" not in said
        assert database.read_bytes() == body


@pytest.mark.nightly("a server of its own")
def test_self_signed_box_is_trusted_on_its_own_machine_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The certificate is found in the state folder; without it the person is told to name its authority."""
    with running_server(tmp_path / "state", APPLIANCE_HTTP__TLS_SELF_SIGNED="true") as box:
        with pytest.raises(SystemExit) as end:
            main(["tenants", "list", "--state", str(box.state_dir)])
        assert (end.value.code or 0) == 0
        assert "default" in capsys.readouterr().out
        with pytest.raises(SystemExit) as end:
            main(["tenants", "list", "--url", box.url, "--key", box.admin_key, "--state", str(tmp_path)])
        assert end.value.code == 1
        assert "is not trusted here; name its authority with --ca FILE" in capsys.readouterr().err


def test_backups_audit_and_sign_in_link_commands_of_an_operator(appliance: Run, tmp_path: Path) -> None:
    """A backup is made, listed, fetched and deleted; the audit names the role of each change; a link signs a browser
    in.
    """
    made = json.loads(appliance("backups", "create", "--json"))
    assert made["name"] in appliance("backups", "list")
    fetched = tmp_path / "box.tar"
    assert "written to" in appliance("backups", "download", made["name"], str(fetched))
    assert fetched.stat().st_size == made["size_bytes"]
    assert stat.S_IMODE(fetched.stat().st_mode) == 0o600
    assert "exists already" in appliance("backups", "download", made["name"], str(fetched), status=1)
    assert "is deleted" in appliance("backups", "delete", made["name"])
    assert made["name"] not in appliance("backups", "list")
    [deleted, *_] = json.loads(appliance("audit", "--limit", "1", "--json"))
    assert (deleted["action"], deleted["actor"]["role"]) == ("Delete a backup", "admin")
    assert "Delete a backup" in appliance("audit")
    link = json.loads(appliance("sign-in-link", "--address", "https://box.local", "--json"))["link"]
    assert link.startswith("https://box.local/#sign-in=")
    drawn = appliance("sign-in-link").splitlines()
    assert "/#sign-in=" in drawn[0]
    assert len({len(line) for line in drawn[1:] if "█" in line}) == 1
