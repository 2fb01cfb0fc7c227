"""The container image: what can be seen of it without building it, and the box as it runs in there."""

import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest

from appliance.client import Client
from appliance.clock import NS_PER_S, SystemClock, pause_s
from tests import toys
from tests.e2e.server import brought
from tests.harness.lacking import lacks_mounts, lacks_namespaces, lacks_tools, skip_if

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "systemd" / "Containerfile").read_text().replace("\\\n", " ")
CLOCK = SystemClock()
PATIENCE_S = 200
INSIDE = """
set -e
mount --make-rprivate /
mount --bind {state} {state}
mount -t tmpfs tmpfs /run
mkdir /run/box /run/venv
mount --bind -o ro {box} /run/box
mount --bind -o ro {venv} /run/venv
mount -o remount,bind,ro /
export PYTHONPATH=/run/box
exec setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --no-new-privs \\
    /run/venv/bin/python -P -m appliance serve --state {state} --port 0
"""
"""The box and its packages are where any user may read them, wherever the checkout lies."""


def instructions(word: str) -> list[str]:
    """Of the last stage."""
    return re.findall(rf"(?m)^{word} (.*)$", RECIPE[RECIPE.rindex("\nFROM") :])


def test_container_image_runs_unprivileged_with_a_health_check() -> None:
    """Its state is a volume, the port is that of its settings, and the program of its health check is there."""
    assert instructions("USER") == ["edge-appliance"]
    (environment,) = instructions("ENV")
    settings = dict(word.split("=", 1) for word in environment.split())
    assert instructions("VOLUME") == [settings["APPLIANCE_STATE_DIR"]]
    assert instructions("EXPOSE") == [settings["APPLIANCE_HTTP__PORT"]]
    assert settings["APPLIANCE_HTTP__TLS_SELF_SIGNED"] == "true"
    (health,) = instructions("HEALTHCHECK")
    assert f'"{settings["APPLIANCE_STATE_DIR"]}/address"' in health
    assert "/scripts/answers.py" in health
    assert (ROOT / "scripts" / "answers.py").exists()


@pytest.mark.usefixtures("processes")
def test_image_script_without_container_builder_names_the_builders(tmp_path: Path) -> None:
    for tool in ("bash", "dirname", "readlink", "sed"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    done = subprocess.run(
        [ROOT / "scripts" / "image"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "podman, buildah or docker" in done.stderr


@pytest.mark.nightly("a box with a file system of its own")
@pytest.mark.usefixtures("processes", "ports")
def test_box_with_read_only_root_passes_its_health_check() -> None:
    """Without capabilities, as the user nobody, with nothing to write to but its state."""
    skip_if(lacks_namespaces("mount"))
    state = Path(tempfile.mkdtemp())  # folders of pytest's own are for nobody but their owner
    os.chown(state, 65534, 65534)
    paths = {"state": state, "box": ROOT, "venv": sys.prefix}
    script = INSIDE.format(**{name: shlex.quote(str(path)) for name, path in paths.items()})
    order = ["unshare", "--mount", "bash", "-c", script]
    with subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/") as box:
        try:
            check = [sys.executable, "-P", str(ROOT / "scripts" / "answers.py"), "--ready", str(state / "address")]
            end_ns = CLOCK.now_ns() + PATIENCE_S * NS_PER_S
            while subprocess.run(check, capture_output=True, check=False).returncode != 0:
                assert box.poll() is None, box.stdout and box.stdout.read()
                assert CLOCK.now_ns() < end_ns
                pause_s(0.1)
        finally:
            box.terminate()
            box.wait(PATIENCE_S)
            shutil.rmtree(state)
    assert subprocess.run(check, capture_output=True, check=False).returncode == 1


BUILT = {"buildah": "buildah", "debootstrap": "debootstrap"}
AUTHORITIES = Path("/usr/local/share/ca-certificates")


@pytest.mark.nightly("a container image is built")
@pytest.mark.usefixtures("processes", "ports")
@pytest.mark.timeout(1800)
def test_image_is_built_and_serves_a_model(tmp_path: Path) -> None:
    """On a Debian made here, by buildah and without a daemon; with the image's own user, settings and command."""
    skip_if(lacks_mounts(), lacks_tools(BUILT))
    (tmp_path / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{tmp_path}/images"\nrunroot = "{tmp_path}/run"\n'
    )
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("APPLIANCE_")}
    environment = {
        **inherited,
        "CONTAINERS_STORAGE_CONF": str(tmp_path / "storage.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "APPLIANCE_BASE": "localhost/debian:12",
    }

    def buildah(*words: str) -> str:
        done = subprocess.run(["buildah", *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    _debian(tmp_path / "debian")
    base = buildah("from", "scratch")
    buildah("copy", "-q", base, str(tmp_path / "debian"), "/")
    buildah("commit", "-q", base, environment["APPLIANCE_BASE"])
    built = subprocess.run(
        [ROOT / "scripts" / "image", "edge-appliance:test"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
    container = buildah("from", "edge-appliance:test")
    state = tmp_path / "state"
    state.mkdir(0o700)
    os.chown(state, *map(int, re.findall(r"(?<=--uid )\d+", RECIPE) * 2))
    kept = f"{state}:{instructions('VOLUME')[0]}"
    order = ["buildah", "run", "--volume", kept, "--env", "APPLIANCE_HTTP__PORT=0", container, "--"]
    order += [*shlex.split(instructions("ENTRYPOINT")[0].strip("[]").replace(",", " ")), "serve"]
    address = state / "address"
    with subprocess.Popen(order, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as box:
        try:
            check = [sys.executable, "-P", str(ROOT / "scripts" / "answers.py"), "--ready", str(address)]
            end_ns = CLOCK.now_ns() + PATIENCE_S * NS_PER_S
            while subprocess.run(check, capture_output=True, check=False).returncode != 0:
                assert box.poll() is None, box.stdout and box.stdout.read()
                assert CLOCK.now_ns() < end_ns
                pause_s(0.1)
            key = (state / "admin.key").read_text().strip()
            url = address.read_text().strip().replace("0.0.0.0", "127.0.0.1")
            authority = state / "tls/authority.pem"
            with Client(url, key, ca=authority) as client:
                brought(client, toys.tiny_add(tmp_path / "add.onnx"), "add")
            one = {"shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
            asked = {"inputs": [{"name": name, **one} for name in "AB"]}
            trusted = ssl.create_default_context(cafile=authority)
            headers = {"Authorization": f"Bearer {key}"}
            answer = httpx.post(f"{url}/v2/models/add/infer", json=asked, headers=headers, verify=trusted, timeout=60)
            assert answer.json()["outputs"][0]["data"] == [2, 4, 6, 8]
        finally:
            box.terminate()
            box.wait(PATIENCE_S)
            buildah("rm", "--all")


def _debian(folder: Path) -> None:
    """A Debian with the sources of packages and the authorities of this machine."""
    sources = "".join(path.read_text() for path in Path("/etc/apt").glob("sources.list*/**/*.sources"))
    mirror = re.search(r"(?m)^URIs: (\S+)", sources)
    order = ["debootstrap", "--variant=minbase", "bookworm", str(folder), *([mirror[1]] if mirror else [])]
    done = subprocess.run(order, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a package registry gives too little: {done.stdout[-300:]}")
    if AUTHORITIES.is_dir():
        shutil.copytree(AUTHORITIES, folder / AUTHORITIES.relative_to("/"), dirs_exist_ok=True)
