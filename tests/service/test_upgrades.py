"""Upgrades by the real installer, with a box of two paths and as much of systemctl as it needs, in mount and process
namespaces: what is written to /etc, /opt and /var/lib is gone at the end. With the real box and systemd:
test_install.py.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from appliance.clock import NS_PER_S, SystemClock, pause_s
from tests.harness.lacking import lacks_namespaces, lacks_tools, skip_if
from tests.service.container import ROOT as MACHINE
from tests.service.container import booted
from tests.service.container import missing as cannot_boot

ROOT = Path(__file__).parents[2]
STUB = Path(__file__).parent / "stub"
PREFIX = "/opt/edge-appliance"
STATE = "/var/lib/edge-appliance"
CLOCK = SystemClock()
PYTHON = Path(sys.base_prefix, "bin", "python3") if Path("/") == MACHINE else Path("/usr/bin/python3")
"""Which any user may run."""
FORM = f"""import sqlite3
rows = sqlite3.connect("{STATE}/appliance.db").execute("SELECT version_num FROM alembic_version")
print(*rows.fetchone())"""
SHARES = (0.5, 0.65, 0.75, 0.8, 0.85, 0.9, 0.95)
KILLER = "set -o functrace\ntrap '(( ++__count != KILL_AT )) || kill -KILL $$' DEBUG\n"
"""Sourced by every bash: kills it at its n-th command."""
MOUNTS = """
set -e
mount -t tmpfs tmpfs {work}
cd {work}
mkdir stub
for place in etc opt var/lib run; do
    mkdir -p /$place $place/up $place/work
    mount -t overlay overlay -o lowerdir=/$place,upperdir=$place/up,workdir=$place/work /$place
done
mkdir -p /run/systemd/system /etc/systemd/system
rm -rf /opt/edge-appliance /var/lib/edge-appliance
install -m 0755 {systemctl} stub/systemctl
mount --bind stub/systemctl {real}
echo mounted
exec sleep infinity
"""
"""Paths in the options of a mount are relative: a comma or a colon of a folder's name would end them."""
TRIED = """
set -e
mount -t tmpfs tmpfs /run
cd /run
mkdir up work
mount -t overlay overlay -o lowerdir=/etc,upperdir=up,workdir=work /etc
"""


class Place:
    """A machine of which only the installer's folders are its own."""

    def __init__(self, leader: int, folder: Path, spaces: Sequence[str] = ("--mount", "--pid")) -> None:
        self._order = ["nsenter", "--target", str(leader), *spaces]
        self.folder = folder

    def run(self, *order: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self._order, *order],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | environment,
        )

    def shell(self, command: str) -> str:
        return self.run("bash", "-c", command).stdout.strip()

    def checkout(self, form: int, fault: str = "", mark: str = "") -> Path:
        """A release whose database has this form, where a path has a space."""
        path = self.folder / f"checkout {form}{fault}{mark}"
        if path.exists():
            return path
        migrations = path / "appliance/modelstore/store/migrations"
        migrations.mkdir(parents=True)
        for package in (path / "appliance/modelstore/store", path / "appliance/modelstore"):
            (package / "__init__.py").touch()
        (path / "appliance/__init__.py").write_text(f'__version__ = "0.{form}"\n')
        box = (STUB / "box.py").read_text().replace('FORM, FAULT = 1, ""', f'FORM, FAULT = {form}, "{fault}" # {mark}')
        (path / "appliance/__main__.py").write_text(box)
        (migrations / "__init__.py").write_text(box)
        for name in ("management", "server"):  # what a start loads
            (path / "appliance" / f"{name}.py").touch()
        shutil.copytree(ROOT / "systemd", path / "systemd")
        (path / "locks").mkdir()
        for name in ("shared", "cpu"):
            (path / f"locks/{name}.txt").touch()
        (path / "pyproject.toml").touch()
        scripts = path / "scripts"
        scripts.mkdir()
        for name in ("install", "answers.py", "uninstall"):
            shutil.copy(ROOT / "scripts" / name, scripts / name)
        python = f'#!/bin/sh\nexport PYTHONPATH="$(dirname "$0")/../.."\nexec {shlex.quote(str(PYTHON))} -s "$@"\n'
        setup = (
            '#!/bin/bash\nvenv=$(dirname "$0")/../.venv\nmkdir -p "$venv/bin"\n'
            f'cat >"$venv/bin/python" <<\'END\'\n{python}END\nchmod 755 "$venv/bin/python"\n'
        )
        for name, text in {"setup": setup, "web-ui": "#!/bin/sh\n"}.items():
            (scripts / name).write_text(text)
            (scripts / name).chmod(0o755)
        return path

    def install(self, checkout: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return self.run(str(checkout / "scripts/install"), *words, **environment)

    def current(self) -> str:
        return self.shell(f"basename $(readlink {PREFIX}/current)")

    def form(self) -> str:
        """Of the database."""
        return self.run(str(PYTHON), "-c", FORM).stdout.strip()

    def answers(self) -> bool:
        url = f"$(cat {STATE}/address)/v2/health/ready"
        return self.shell(f"curl --silent --fail --max-time 2 {url} && echo yes") == "yes"

    def until_settled(self) -> None:
        """What goes on in the background has ended, and the box answers."""
        end_ns = CLOCK.now_ns() + 60 * NS_PER_S
        while CLOCK.now_ns() < end_ns:
            left = self.shell(
                f"ls -d {PREFIX}/unproved {PREFIX}/going-back 2>/dev/null; "
                f"flock --nonblock {PREFIX}/.lock true || echo held"
            )
            if not left and self.answers():
                return
            pause_s(0.05)
        raise AssertionError(self.shell(f"ls -la {PREFIX}; cat /run/stub/log"))


@cache
def _lacks_overlays() -> str | None:
    tried = subprocess.run(["unshare", "--mount", "bash", "-c", TRIED], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"the kernel lays no overlay over /etc: {tried.stderr.strip()}"


@pytest.fixture
def place(tmp_path: Path, processes: None) -> Iterator[Place]:
    packages = {"nsenter": "util-linux", "systemctl": "systemd", "useradd": "passwd", "curl": "curl"}
    skip_if(lacks_namespaces("mount", "pid"), lacks_tools(packages))
    skip_if(_lacks_overlays())
    work = tmp_path / "work"
    work.mkdir()
    tmp_path.chmod(0o755)
    paths = {"work": work, "systemctl": STUB / "systemctl.py", "real": shutil.which("systemctl")}
    mounts = MOUNTS.format(**{name: shlex.quote(str(path)) for name, path in paths.items()})
    order = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", mounts]
    with subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as unshare:
        assert unshare.stdout is not None
        said = unshare.stdout.readline()
        try:
            assert said.strip() == "mounted"
            children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
            yield Place(int(children[0]), tmp_path)
        finally:
            unshare.kill()


def test_upgrade_replaces_the_release_and_rolls_back_a_bad_one(place: Place) -> None:
    """With the database that belongs to each."""
    one, two = place.checkout(1), place.checkout(2)
    done = place.install(one)
    assert done.returncode == 0, done.stdout
    first = place.current()
    assert first.startswith("0.1-")
    assert place.answers()
    place.shell("echo '# mine' >>/etc/edge-appliance/box.toml")
    assert place.shell(f"stat -c %U {STATE}/appliance.db {STATE}") == "edge-appliance\nedge-appliance"

    for fault in ("dies", "mute"):
        done = place.install(place.checkout(2, fault))
        assert done.returncode == 1, done.stdout
        assert f"{first} runs again" in done.stdout
        place.until_settled()
        assert (place.current(), place.form()) == (first, "1")

    done = place.install(two)
    assert done.returncode == 0, done.stdout
    assert (place.current()[:4], place.form(), place.answers()) == ("0.2-", "2", True)
    assert place.shell("tail -n 1 /etc/edge-appliance/box.toml") == "# mine"
    assert place.shell(f"ls {PREFIX}/releases").split()[0] == first

    done = place.install(two, "--rollback")
    assert done.returncode == 0, done.stdout
    assert (place.current(), place.form(), place.answers()) == (first, "1", True)
    assert place.install(two, "--rollback").returncode == 1  # there is none before

    assert place.run(str(one / "scripts/uninstall")).returncode == 0
    assert place.shell(f"ls -d {PREFIX} {STATE} /etc/systemd/system/edge-appliance* 2>/dev/null") == STATE
    assert place.run(str(one / "scripts/uninstall"), "--purge").returncode == 0
    assert place.shell(f"ls -d {STATE} /etc/edge-appliance 2>/dev/null") == ""


@pytest.mark.nightly("another upgrade")
def test_installer_as_root_follows_no_link_of_the_service(place: Place) -> None:
    """An attacker in the box gets nothing of root's by an upgrade: no file, no secret, no write."""
    place.install(place.checkout(1))
    first = place.current()
    place.shell("install -m 0600 /dev/stdin /etc/of-root <<<ea_secret")
    place.shell(f"ln -s /etc/of-root {STATE}/appliance.db-mine; ln -sf /etc/of-root {STATE}/admin.key")
    assert place.install(place.checkout(2, "mute")).returncode == 1
    place.until_settled()
    assert (place.current(), place.form()) == (first, "1")
    assert place.shell("stat -c %U /etc/of-root") == "root"
    assert "None" in place.shell(f"cat {STATE}/heard")
    assert "ea_secret" not in place.shell(f"cat {STATE}/heard")
    place.shell(f"systemctl stop edge-appliance.service; mv {STATE}/appliance.db /etc/of-root.db")
    place.shell(f"chown root:root /etc/of-root.db; chmod 600 /etc/of-root.db; rm -f {STATE}/appliance.db-*")
    place.shell(f"ln -s /etc/of-root.db {STATE}/appliance.db")
    assert "cannot read the database" in place.install(place.checkout(2)).stdout
    assert (place.current(), place.shell("ls /etc/of-root.db*")) == (first, "/etc/of-root.db")


@pytest.mark.nightly("waits for a release that crashes")
def test_release_that_crashes_twice_soon_is_rolled_back(place: Place) -> None:
    """The release answers at first."""
    place.install(place.checkout(1))
    first = place.current()
    done = place.install(place.checkout(2, "ends"))
    assert done.returncode == 0, done.stdout
    end_ns = CLOCK.now_ns() + 60 * NS_PER_S
    while place.current() != first and CLOCK.now_ns() < end_ns:
        pause_s(0.1)
    place.until_settled()
    assert (place.current(), place.form()) == (first, "1")


def test_upgrade_that_did_not_begin_is_marked_as_finished(place: Place) -> None:
    """Also where the box that ran before does not start at once, on a machine that has too much to do."""
    place.install(place.checkout(1))
    box = f"{PREFIX}/current/appliance/__main__.py"
    place.shell(f'systemctl stop edge-appliance.service; touch {PREFIX}/unproved; sed -i \'/^FORM/s/""/"dies"/\' {box}')
    done = place.run(f"{PREFIX}/upgrade/scripts/install", "--finish")
    assert done.returncode == 0, done.stdout
    assert "does not start at once" in done.stdout
    assert place.shell(f"ls {PREFIX}/unproved {PREFIX}/finishing 2>/dev/null") == ""


def test_installer_allows_the_gpu_devices_of_the_machine(place: Place) -> None:
    """The nodes that are there when the installer runs, with the groups that they belong to, and nothing else: what is
    no device, or has another name, or is gone with the next run.
    """
    made = place.shell(
        "mkdir /run/dev && mount -t tmpfs tmpfs /run/dev && cd /run/dev && mkdir dri nvidia-caps nvgpu nvgpu/igpu0 && "
        "cp -a /dev/null /dev/zero /dev/urandom /dev/fd . && touch nvidia1 && mknod nvidia0 c 195 0 && "
        "mknod nvidiactl c 195 255 && mknod nvidia-uvm c 234 0 && mknod nvidia-caps/nvidia-cap1 c 236 1 && "
        "mknod dri/renderD128 c 226 128 && mknod dri/card0 c 226 0 && mknod nvhost-ctrl c 240 0 && "
        "mknod nvmap c 10 60 && mknod nvgpu/igpu0/ctrl c 241 0 && mknod sda b 8 0 && mount --bind /run/dev /dev"
    )
    assert made == ""
    one = place.checkout(1)
    assert place.install(one).returncode == 0
    drop_in = "/etc/systemd/system/edge-appliance.service.d/10-groups.conf"
    allowed = {
        line.removeprefix("DeviceAllow=/dev/")
        for line in place.shell(f"cat {drop_in}").splitlines()
        if line.startswith("DeviceAllow=")
    }
    nodes = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1", "dri/renderD128", "nvhost-ctrl", "nvmap")
    assert allowed == {f"{node} rw" for node in (*nodes, "nvgpu/igpu0/ctrl")}
    groups = place.shell("for group in video render; do getent group $group | cut -d: -f1; done").split()
    assert place.shell(f"sed -n 's/^SupplementaryGroups=//p' {drop_in}").split() == groups

    place.shell("rm /dev/nvidia* -r")
    assert place.install(one).returncode == 0
    assert "nvidia" not in place.shell(f"cat {drop_in}")
    assert "DeviceAllow=/dev/dri/renderD128 rw" in place.shell(f"cat {drop_in}")


def test_upgrade_is_refused_during_another_run_and_on_a_full_disk(place: Place) -> None:
    """Nothing that runs is changed."""
    one, two = place.checkout(1), place.checkout(2)
    place.install(one)
    first = place.current()
    held = place.run("flock", f"{PREFIX}/.lock", str(two / "scripts/install"))
    assert held.returncode == 1
    assert "another run" in held.stdout
    # Room for the release as it is asked for is not there; then for the database.
    place.shell(f"mount -t tmpfs -o size=80m tmpfs {PREFIX}/releases && umount {PREFIX}/releases")
    full = place.shell(
        f"cp -a {PREFIX} /run/kept && mount -t tmpfs -o size=90m tmpfs {PREFIX} && cp -a /run/kept/. {PREFIX}/"
    )
    assert full == ""
    done = place.install(two)
    assert done.returncode == 1
    assert "are needed" in done.stdout
    assert (place.current(), place.form(), place.answers()) == (first, "1", True)


def kill_upgrades(place: Place) -> None:
    """Kill runs at shares of their commands; what was begun is ended in the background, and with its own database."""
    kill = place.folder / "kill.sh"
    kill.write_text(KILLER)
    count = place.folder / "count.sh"
    count.write_text("set -o functrace\ntrap '(( ++__count )); echo $__count >/run/count' DEBUG\n")
    place.install(place.checkout(1))
    place.install(place.checkout(1, mark="counted"), BASH_ENV=str(count))
    commands = int(place.shell("cat /run/count"))
    place.install(place.checkout(1), "--rollback", BASH_ENV=str(count))
    back = int(place.shell("cat /run/count"))
    for share in SHARES:
        done = place.install(place.checkout(1, mark="again"))
        assert done.returncode == 0, done.stdout
        before = place.current()
        killed = place.install(place.checkout(2), BASH_ENV=str(kill), KILL_AT=str(int(commands * share)))
        assert killed.returncode == -signal.SIGKILL, killed.stdout
        place.until_settled()
        assert (place.current() == before, place.form()) in ((True, "1"), (False, "2")), share
        done = place.install(place.checkout(2))
        assert done.returncode == 0, done.stdout
        assert (place.current()[:4], place.form(), place.answers()) == ("0.2-", "2", True)
        killed = place.install(place.checkout(2), "--rollback", BASH_ENV=str(kill), KILL_AT=str(int(back * share)))
        assert killed.returncode == -signal.SIGKILL, killed.stdout
        place.until_settled()
        if place.current() != before:  # it was killed before it began
            assert (place.current()[:4], place.form()) == ("0.2-", "2")
            done = place.install(place.checkout(2), "--rollback")
        assert (place.current(), place.form()) == (before, "1"), done.stdout


@pytest.mark.nightly("takes more than a minute")
def test_killed_upgrade_leaves_the_old_or_the_new_release(place: Place) -> None:
    kill_upgrades(place)


@pytest.mark.nightly("takes more than a minute")
@pytest.mark.skipif(cannot_boot() is not None, reason=cannot_boot() or "")
def test_upgrade_under_real_systemd_survives_crashes_and_kills() -> None:
    """A release that crashes twice is left, and runs that are killed are ended; with the units as they are."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="appliance-"))  # not below /tmp: it has one of its own there
    folder.chmod(0o755)
    try:
        with booted(folder) as machine:
            place = Place(machine.leader, folder, ("--all",))
            done = place.install(place.checkout(1))
            assert done.returncode == 0, done.stdout
            first = place.current()
            done = place.install(place.checkout(2, "ends"))
            assert done.returncode == 0, done.stdout
            machine.until(f"test $(basename $(readlink {PREFIX}/current)) = {first}", 60)
            place.until_settled()
            assert place.form() == "1"
            kill_upgrades(place)
    finally:
        shutil.rmtree(folder)
