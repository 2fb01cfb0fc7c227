"""Installing from a bundle, upgrading and taking away, in a container without a network that systemd has booted."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import toys
from tests.service.container import Machine, booted, missing
from tests.service.installed import BAD_AT_START, READY, UNIT, unpacked_bundle

STATE = "/var/lib/edge-appliance"
PREFIX = "/opt/edge-appliance"

ENDS_AFTER_ITS_START = """
import threading

_ready = Systemd.ready


def _end_soon(self, status):
    _ready(self, status)
    threading.Timer(20, lambda: os._exit(1)).start()


Systemd.ready = _end_soon
"""

pytestmark = [
    pytest.mark.nightly("takes more than a minute"),
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
    """A bundle that a test may spoil, where a path has a space."""
    place = folder / "a place"
    place.mkdir()
    return unpacked_bundle(place)


@pytest.fixture(scope="module")
def machine(folder: Path, checkout: Path) -> Iterator[Machine]:
    """With a box in it, installed by a root that is careful with its files."""
    model = toys.tiny_add(folder / "add.onnx")
    assert model.exists()
    with booted(folder) as machine:
        said = machine.run(f"umask 077; '{checkout}'/scripts/install", timeout_s=1200)
        assert "the box answers at https://" in said
        assert re.search(r"certificate, SHA-256: ([0-9A-F]{2}:){31}[0-9A-F]{2}$", said, re.MULTILINE)
        yield machine


def call(machine: Machine, path: str, options: str = "") -> str:
    key = '"Authorization: Bearer $(cat /var/lib/edge-appliance/admin.key)"'
    return machine.run(f"curl --silent --insecure --fail-with-body -H {key} {options} https://127.0.0.1:8443{path}")


def running(machine: Machine) -> str:
    return machine.run("basename $(readlink /opt/edge-appliance/current)")


def test_model_import_is_confined_under_the_service_unit(machine: Machine, folder: Path, checkout: Path) -> None:
    """What the unit forbids would have turned the confinement off without a word."""
    again = machine.run(f"'{checkout}'/scripts/install")
    assert "the box answers at https://" in again
    assert '"files":true' in call(machine, "/v1/system").replace(" ", "")
    call(machine, "/v1/models", f"-F name=add -F task=tensor -F file=@{folder}/add.onnx")
    machine.until(f'{_asked("/v1/models/add")} | grep -q \'"state": *"ready"\'', 120)


def _asked(path: str) -> str:
    key = '"Authorization: Bearer $(cat /var/lib/edge-appliance/admin.key)"'
    return f"curl --silent --insecure --fail -H {key} https://127.0.0.1:8443{path}"


def test_hung_or_killed_service_is_restarted(machine: Machine) -> None:
    """By the watchdog, shortened here, and by `Restart=`."""
    machine.run(
        f"mkdir -p /run/systemd/system/{UNIT}.service.d && "
        f"printf '[Service]\\nWatchdogSec=10\\n' > /run/systemd/system/{UNIT}.service.d/20-test.conf && "
        f"systemctl daemon-reload && systemctl restart {UNIT}"
    )
    machine.until(READY, 60)
    machine.until(f"{_asked('/v1/models/add')}", 60)
    machine.run(f"kill -STOP $(systemctl show -p MainPID --value {UNIT})")
    machine.until(f"test $(systemctl show -p NRestarts --value {UNIT}) = 1 && {READY}", 60)
    assert "Watchdog timeout" in machine.run(f"journalctl -u {UNIT} -o cat -n 50")
    machine.run(f"systemctl reset-failed {UNIT}; kill -KILL $(systemctl show -p MainPID --value {UNIT})")
    machine.until(f"test $(systemctl show -p NRestarts --value {UNIT}) != 0 && {READY}", 60)
    assert "add" in call(machine, "/v1/models")


@contextmanager
def release_with(checkout: Path, text: str, file: str = "appliance/server.py") -> Iterator[None]:
    """Another release: its file ends with this."""
    path = checkout / file
    sound = path.read_text()
    path.write_text(sound + text)
    try:
        yield
    finally:
        path.write_text(sound)


def installed(machine: Machine, checkout: Path) -> str:
    """What the installer says, which may fail."""
    return machine.run(f"'{checkout}'/scripts/install", timeout_s=1200, check=False)


def test_upgrade_keeps_state_and_settings_and_reverts_a_bad_release(machine: Machine, checkout: Path) -> None:
    """A release that cannot be loaded does not even stop the box. A release that cannot start leaves the one before in
    place, with its database; one that can serves; and there is a way back.
    """
    machine.run("echo '# mine' >> /etc/edge-appliance/box.toml")
    first = running(machine)
    process = f"systemctl show -p MainPID --value {UNIT}"
    before = machine.run(process)
    with release_with(checkout, "\nraise RuntimeError('a bad release')\n"):
        assert "nothing that runs was changed" in installed(machine, checkout)
    assert machine.run(process) == before
    machine.until(READY, 60)

    with release_with(checkout, BAD_AT_START):
        assert f"{first} runs again" in installed(machine, checkout)
    machine.until(READY, 60)
    assert running(machine) == first

    with release_with(checkout, "\n# another release\n"):
        assert "the box answers at https://" in installed(machine, checkout)
    second = running(machine)
    assert second != first
    # Its environment has the packages of the other one, and nothing else of it.
    place = f"cat {PREFIX}/releases/{{}}/.venv/lib/python3*/site-packages/_editable_impl_edge_appliance.pth"
    assert [machine.run(place.format(one)) for one in (first, second)] == [
        f"{PREFIX}/releases/{one}" for one in (first, second)
    ]
    left_out = "--exclude-dir=__pycache__ --exclude=direct_url.json"  # where pip took packages from
    assert machine.run(f"grep -rlIF {left_out} {first} {PREFIX}/releases/{second}/.venv || true") == ""
    assert "add" in call(machine, "/v1/models")
    assert machine.run("tail -n 1 /etc/edge-appliance/box.toml") == "# mine"

    call(machine, "/v1/tenants", "-H 'content-type: application/json' -d '{\"name\": \"newcomer\"}'")
    machine.run(f"{PREFIX}/current/scripts/install --rollback")
    assert running(machine) == first
    assert "add" in call(machine, "/v1/models")
    assert "newcomer" in call(machine, "/v1/tenants")  # both releases have the database in the same form


def test_upgrade_is_not_rolled_back_for_bad_settings_or_restarts(machine: Machine, checkout: Path) -> None:
    """Right after an upgrade: a person who starts the box more often than systemd lets them, and settings that do not
    fit.
    """
    with release_with(checkout, "\n# a good release\n"):
        assert "the box answers at https://" in installed(machine, checkout)
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


def test_upgrade_cut_short_leaves_a_running_box(machine: Machine, checkout: Path) -> None:
    """Where the database cannot be kept; after the switch; and while the box is stopped."""
    first = running(machine)
    stopped = f"while systemctl is-active --quiet {UNIT}; do :; done"
    is_first = f"test $(readlink {PREFIX}/current) = {PREFIX}/releases/{first}"
    is_over = f"{READY} && test ! -e {PREFIX}/unproved"
    with release_with(checkout, f"{BAD_AT_START}# another one\n"):
        keeper = "grep -la 'before[.]db[.]new' /proc/[0-9]*/cmdline | cut -d/ -f3"
        begun = f"while test ! -e {PREFIX}/unproved; do :; done"
        order = f"({begun}; kill -KILL $({keeper})) & '{checkout}'/scripts/install"
        assert f"starting {first} again" in machine.run(order, timeout_s=1200, check=False)
        machine.until(is_over, 120)
        assert running(machine) == first

        machine.run(f"'{checkout}'/scripts/install & while {is_first}; do :; done; kill -KILL $!", timeout_s=1200)
        machine.until(f"{is_first} && {is_over}", 180)
    # By a good release: what runs then was running before.
    machine.run(f"'{checkout}'/scripts/install & {stopped}; kill -KILL $!", timeout_s=1200)
    machine.until(is_over, 180)


def test_release_whose_models_no_longer_answer_is_rolled_back(machine: Machine, checkout: Path) -> None:
    """The release is ready, and manages the box, but requests to a model get an error."""
    first = running(machine)
    bad = "\n\nasync def infer(*_, **__):\n    raise RuntimeError('a bad release')\n"
    with release_with(checkout, bad, "appliance/api/v2/infer.py"):
        said = installed(machine, checkout)
    assert "add does not answer, as it did before" in said
    assert f"{first} runs again" in said
    machine.until(READY, 60)
    assert running(machine) == first


def test_release_that_keeps_ending_after_its_start_is_rolled_back(machine: Machine, checkout: Path) -> None:
    """The release answers at first and ends some seconds after that, again and again: systemd gives it up, and the old
    one serves.
    """
    first = running(machine)
    with release_with(checkout, ENDS_AFTER_ITS_START):
        machine.run(f"'{checkout}'/scripts/install", timeout_s=1200)
    assert running(machine) != first
    machine.until(f"test $(basename $(readlink {PREFIX}/current)) = {first} && {READY}", 300)
    assert "add" in call(machine, "/v1/models")


def test_uninstall_leaves_only_state_and_operator_overrides(machine: Machine, checkout: Path) -> None:
    """With `--purge` these are gone, too."""
    machine.until(f"flock --nonblock {PREFIX}/.lock true", 60)  # a run that goes back has ended
    machine.run(f"printf '[Service]\\nNice=1\\n' > /etc/systemd/system/{UNIT}.service.d/override.conf")
    machine.run(f"'{checkout}'/scripts/uninstall")
    assert machine.run(f"systemctl is-active {UNIT} || true") == "inactive"
    assert machine.run("ls /opt /etc/systemd/system | grep edge-appliance || true") == f"{UNIT}.service.d"
    assert machine.run(f"ls /etc/systemd/system/{UNIT}.service.d") == "override.conf"
    assert "admin.key" in machine.run("ls /var/lib/edge-appliance")
    machine.run(f"'{checkout}'/scripts/uninstall --purge")
    assert machine.run("ls /etc/systemd/system | grep edge-appliance || true") == ""
    assert machine.run("ls -d /etc/edge-appliance /var/lib/edge-appliance 2>/dev/null || true") == ""
