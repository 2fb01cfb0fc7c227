"""Installing, upgrading and taking away, in a container that systemd has booted."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.demo.zoo import toys
from tests.service.machine import Machine, booted, missing

ROOT = Path(__file__).parents[2]
READY = "curl --silent --insecure --fail --max-time 1 https://127.0.0.1:8443/v2/health/ready"
UNIT = "edge-appliance"
SOURCES = ("appliance", "locks", "scripts", "systemd", "docs", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Not below /tmp: the container has one of its own."""
    path = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="appliance-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def checkout(folder: Path) -> Path:
    """A copy that a test may spoil."""
    path = folder / "checkout"
    path.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, path / name)
    return path


@pytest.fixture(scope="module")
def machine(folder: Path, checkout: Path) -> Iterator[Machine]:
    """With a box in it, installed by a root that is careful with its files."""
    model = toys.tiny_add(folder / "add.onnx")
    assert model.exists()
    with booted(folder) as machine:
        said = machine.run(f"umask 077; {checkout}/scripts/install", timeout_s=1200)
        assert "the box answers at https://" in said
        yield machine


def call(machine: Machine, path: str, options: str = "") -> str:
    key = '"Authorization: Bearer $(cat /var/lib/edge-appliance/admin.key)"'
    return machine.run(f"curl --silent --insecure --fail-with-body -H {key} {options} https://127.0.0.1:8443{path}")


def running(machine: Machine) -> str:
    return machine.run("basename $(readlink /opt/edge-appliance/current)")


def test_a_model_is_imported_under_the_unit(machine: Machine, folder: Path, checkout: Path) -> None:
    """Confined: what the unit forbids would have turned that off without a word."""
    again = machine.run(f"HTTPS_PROXY=http://127.0.0.1:9 {checkout}/scripts/install")  # fetches nothing any more
    assert "the box answers at https://" in again
    assert '"files":true' in call(machine, "/v1/system").replace(" ", "")
    call(machine, "/v1/models", f"-F name=add -F task=tensor -F file=@{folder}/add.onnx")
    machine.until(f'{_asked("/v1/models/add")} | grep -q \'"state": *"ready"\'', 120)


def _asked(path: str) -> str:
    key = '"Authorization: Bearer $(cat /var/lib/edge-appliance/admin.key)"'
    return f"curl --silent --insecure --fail -H {key} https://127.0.0.1:8443{path}"


def test_what_hangs_or_dies_is_begun_anew(machine: Machine) -> None:
    """By the watchdog, shortened here, and by `Restart=`."""
    machine.run(
        f"mkdir -p /run/systemd/system/{UNIT}.service.d && "
        f"printf '[Service]\\nWatchdogSec=10\\n' > /run/systemd/system/{UNIT}.service.d/20-test.conf && "
        f"systemctl daemon-reload && systemctl restart {UNIT}"
    )
    machine.until(READY, 60)
    machine.run(f"kill -STOP $(systemctl show -p MainPID --value {UNIT})")
    assert machine.until(READY, 60) < 40
    machine.run(f"systemctl reset-failed {UNIT}; kill -KILL $(systemctl show -p MainPID --value {UNIT})")
    machine.until(READY, 60)
    assert "add" in call(machine, "/v1/models")
    assert machine.run(f"systemctl show -p NRestarts --value {UNIT}") != "0"


def test_an_upgrade_keeps_state_and_settings(machine: Machine, checkout: Path) -> None:
    """A release that cannot start leaves the one before in place, with its database; one that can serves; and there is
    a way back.
    """
    machine.run("echo '# mine' >> /etc/edge-appliance/box.toml")
    first = running(machine)
    server = checkout / "appliance" / "server.py"
    sound = server.read_text()

    server.write_text(sound + "\nraise RuntimeError('a bad release')\n")
    said = machine.run(f"{checkout}/scripts/install", timeout_s=1200, check=False)
    assert f"{first} runs again" in said
    machine.until(READY, 60)
    assert running(machine) == first

    server.write_text(sound + "\n# another release\n")
    machine.run(f"{checkout}/scripts/install", timeout_s=1200)
    second = running(machine)
    assert second != first
    assert "add" in call(machine, "/v1/models")
    assert machine.run("tail -n 1 /etc/edge-appliance/box.toml") == "# mine"

    call(machine, "/v1/tenants", "-H 'content-type: application/json' -d '{\"name\": \"newcomer\"}'")
    machine.run("/opt/edge-appliance/current/scripts/install --rollback")
    assert running(machine) == first
    assert "add" in call(machine, "/v1/models")
    assert "newcomer" in call(machine, "/v1/tenants")  # both releases have the database in the same form


def test_what_no_other_release_would_mend_is_no_reason_to_go_back(machine: Machine, checkout: Path) -> None:
    """Right after an upgrade: a person who starts the box more often than systemd lets them, and settings that do not
    fit.
    """
    server = checkout / "appliance" / "server.py"
    sound = server.read_text()
    server.write_text(sound + "\n# a good release\n")
    machine.run(f"{checkout}/scripts/install", timeout_s=1200)
    server.write_text(sound)
    good = running(machine)
    went_back = "test $(systemctl show -p ActiveState --value edge-appliance-rollback) = inactive"

    machine.run(f"for n in 1 2 3 4 5 6; do systemctl restart {UNIT}; done", check=False)
    machine.until(f"{went_back} && {READY}", 60)
    assert running(machine) == good

    machine.run("cd /etc/edge-appliance && cp box.toml kept.toml && echo '[http' >> box.toml")
    machine.run(f"systemctl restart {UNIT}", check=False)
    machine.until(f"systemctl is-failed --quiet {UNIT} && {went_back}", 60)
    assert "is no TOML file" in machine.run(f"journalctl -u {UNIT} -o cat -n 20")
    assert "do not fit" in machine.run("journalctl -u edge-appliance-rollback -o cat -n 20")
    assert running(machine) == good
    machine.run(f"cd /etc/edge-appliance && mv kept.toml box.toml && systemctl restart {UNIT}")


def test_an_upgrade_that_is_cut_short_leaves_a_box_that_runs(machine: Machine, checkout: Path) -> None:
    """While the database is kept, for which there is no room; and after the switch, by whoever takes it up."""
    first = running(machine)
    server = checkout / "appliance" / "server.py"
    sound = server.read_text()
    server.write_text(sound + "\nraise RuntimeError('another bad release')\n")
    kept = "/opt/edge-appliance/before.db.new"
    machine.run(f"mkdir {kept}")
    assert f"starting {first} again" in machine.run(f"{checkout}/scripts/install", timeout_s=1200, check=False)
    machine.run(f"{READY} && rmdir {kept}")
    assert running(machine) == first

    is_first = f"test $(readlink /opt/edge-appliance/current) = /opt/edge-appliance/releases/{first}"
    machine.run(f"{checkout}/scripts/install & while {is_first}; do :; done; kill -KILL $!", timeout_s=1200)
    machine.until(f"{is_first} && {READY}", 120)
    machine.until("test ! -e /opt/edge-appliance/unproved", 60)
    server.write_text(sound)
    # While the box is stopped and its database is kept, by a good release: what runs then was running before.
    order = f"{checkout}/scripts/install & while systemctl is-active --quiet {UNIT}; do :; done; kill -KILL $!"
    machine.run(order, timeout_s=1200)
    machine.until(f"{READY} && test ! -e /opt/edge-appliance/unproved", 120)


def test_a_release_whose_models_answer_no_more_is_left(machine: Machine, checkout: Path) -> None:
    """It is ready, and manages the box, but who asks a model gets an error."""
    first = running(machine)
    infer = checkout / "appliance" / "api" / "v2" / "infer.py"
    sound = infer.read_text()
    infer.write_text(sound + "\n\nasync def infer(*_, **__):\n    raise RuntimeError('a bad release')\n")
    said = machine.run(f"{checkout}/scripts/install", timeout_s=1200, check=False)
    infer.write_text(sound)
    assert "add does not answer, as it did before" in said
    assert f"{first} runs again" in said
    machine.run(READY)
    assert running(machine) == first


def test_a_release_that_gives_up_soon_is_left(machine: Machine, checkout: Path) -> None:
    """It answers at first and ends after some seconds, again and again: systemd gives it up, and the old one serves."""
    first = running(machine)
    server = checkout / "appliance" / "server.py"
    sound = server.read_text()
    server.write_text(sound + "\nimport threading\n\nthreading.Timer(8, lambda: os._exit(1)).start()\n")
    machine.run(f"{checkout}/scripts/install", timeout_s=1200)
    assert running(machine) != first
    machine.until(f"test $(basename $(readlink /opt/edge-appliance/current)) = {first} && {READY}", 240)
    server.write_text(sound)
    assert "add" in call(machine, "/v1/models")


def test_it_goes_without_a_trace_but_the_state(machine: Machine, checkout: Path) -> None:
    """And what an operator has set for the unit."""
    machine.run(f"printf '[Service]\\nNice=1\\n' > /etc/systemd/system/{UNIT}.service.d/override.conf")
    machine.run(f"{checkout}/scripts/uninstall")
    assert machine.run(f"systemctl is-active {UNIT} || true") == "inactive"
    assert machine.run("ls /opt /etc/systemd/system | grep edge-appliance || true") == f"{UNIT}.service.d"
    assert machine.run(f"ls /etc/systemd/system/{UNIT}.service.d") == "override.conf"
    assert "admin.key" in machine.run("ls /var/lib/edge-appliance")
    machine.run(f"{checkout}/scripts/uninstall --purge")
    assert machine.run("ls /etc/systemd/system | grep edge-appliance || true") == ""
    assert machine.run("ls -d /etc/edge-appliance /var/lib/edge-appliance 2>/dev/null || true") == ""


def test_a_bundle_installs_without_a_network(folder: Path, checkout: Path) -> None:
    """Its packages are in it, and the pip that Debian's Python lacks."""
    place = folder / "offline"
    place.mkdir()
    bundle = place / "box.tar"
    subprocess.run([ROOT / "scripts" / "bundle", bundle], check=True, timeout=600)
    with booted(place, network=False) as machine:
        machine.run(f"mkdir -p /var/tmp/there && tar -xf {bundle} -C /var/tmp/there")
        said = machine.run("/var/tmp/there/*/scripts/install", timeout_s=1200)
        assert "the box answers at https://" in said
        assert "could not be made" not in said
        assert machine.until(READY, 10) < 10
