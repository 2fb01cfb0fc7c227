"""How the installer asks a box whether it answers, on a real one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import toys
from tests.e2e.server import Server, running_server

SCRIPT = Path(__file__).parents[2] / "scripts" / "answers.py"

pytestmark = [
    pytest.mark.nightly("a server before and after an upgrade"),
    pytest.mark.usefixtures("processes", "ports"),
]


def asked(server: Server, *names: str, key_file: str = "admin.key") -> "subprocess.CompletedProcess[str]":
    order = [sys.executable, "-P", str(SCRIPT), server.url, str(server.state_dir / key_file), *names]
    return subprocess.run(order, capture_output=True, text=True, check=False)


def test_answers_script_fails_for_model_that_no_longer_answers(tmp_path: Path) -> None:
    """Models that answer are printed, a model that no longer does is named. Without a key the box and its management
    are asked alone.
    """
    with running_server(tmp_path / "state", APPLIANCE_HTTP__TLS_SELF_SIGNED="true") as server, server.client() as admin:
        job = admin.upload_model(toys.tiny_add(tmp_path / "add.onnx"), "adding", "tensor")
        for _ in admin.follow_job(job.id):
            pass
        before = asked(server)
        assert (before.returncode, before.stdout.split()) == (0, ["adding"]), before.stderr
        assert asked(server, "adding").returncode == 0
        admin.delete_model("adding")
        after = asked(server, "adding")
        assert (after.returncode, after.stderr.strip()) == (1, "adding does not answer, as it did before")
        keyless = asked(server, key_file="none")
        assert (keyless.returncode, keyless.stdout) == (0, ""), keyless.stderr
    stopped = asked(server)
    assert stopped.returncode == 1
    assert "the box does not answer" in stopped.stderr
