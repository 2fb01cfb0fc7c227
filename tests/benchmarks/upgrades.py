"""An installed box with seven models, under systemd in a container: unanswered time of upgrades, and ways back.

Asked: an upgrade leaves requests unanswered for at most 6 s; after a broken release the old one serves within 60 s,
after SIGSTOP (`WatchdogSec=10`) it serves again within 20. Takes root, systemd-nspawn and a package registry.
With `--bundle` also a box installed from a bundle without a network: first answer within 120 s.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.benchmarks.service_start import MODELS
from tests.service.machine import Machine, booted, missing
from tests.service.test_install import READY, ROOT, SOURCES, UNIT

ASK = """
import http.client, json, ssl, sys, time
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
key = open("/var/lib/edge-appliance/admin.key").read().strip()
rows = [{"name": name, "shape": [1, 4], "datatype": "FP32", "data": [0, 0, 0, 0]} for name in "AB"]
body = json.dumps({"inputs": rows})
last = time.monotonic()
longest = 0.0
with open(sys.argv[1], "w") as file:
    while True:
        try:
            line = http.client.HTTPSConnection("127.0.0.1", 8443, timeout=2, context=context)
            line.request("POST", "/v2/models/tiny/infer", body, {"Authorization": "Bearer " + key})
            good = line.getresponse().status == 200
            line.close()
        except OSError:
            good = False
        except http.client.HTTPException:
            good = False
        now = time.monotonic()
        if good:
            longest = max(longest, now - last)
            last = now
            file.seek(0)
            file.write(f"{longest:.2f}\\n")
            file.flush()
        time.sleep(0.02)
"""
"""Inside: asks a model fifty times a second and writes down the longest time without an answer."""
BEGIN = (
    f"cat > /run/ask.py <<'END'\n{ASK}\nEND\n"
    "setsid python3 /run/ask.py /run/longest >/run/ask.log 2>&1 & echo $! >/run/ask.pid; sleep 1"
)
END = "sleep 2; cat /run/longest; kill $(cat /run/ask.pid)"
COMMAND = "cd / && /opt/edge-appliance/current/.venv/bin/python -P -m appliance"
META = json.dumps({"precisions": []})


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", action="store_true", help="install from a bundle without a network, too")
    parser.add_argument("--times", type=int, default=3, help="upgrades")
    options = parser.parse_args()
    if (lacking := missing()) is not None:
        raise SystemExit(lacking)
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="appliance-"))
    try:
        checkout = folder / "checkout"
        for name in SOURCES:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                checkout.mkdir(exist_ok=True)
                shutil.copy(source, checkout / name)
        with booted(folder) as machine:
            began = time.monotonic()
            machine.run(f"{checkout}/scripts/install", timeout_s=1200)
            print(f"installed in {time.monotonic() - began:.0f} s", flush=True)
            furnish(machine, folder)
            upgrade(machine, checkout, options.times)
            spoil(machine, checkout)
            stop(machine)
        if options.bundle:
            offline(folder)
    finally:
        shutil.rmtree(folder)


def furnish(machine: Machine, folder: Path) -> None:
    """Seven models, as they were uploaded."""
    for name, make in MODELS.items():
        words = f"{make(folder / f'{name}.onnx')} --name {name} --task tensor --metadata '{META}'"
        machine.run(f"{COMMAND} import {words} --state /var/lib/edge-appliance", timeout_s=600)


def changed(checkout: Path, text: str) -> str:
    """Another release; what the file was."""
    server = checkout / "appliance" / "server.py"
    sound = server.read_text()
    server.write_text(sound + text)
    return sound


def upgrade(machine: Machine, checkout: Path, times: int) -> None:
    for number in range(times):
        machine.run(BEGIN)
        sound = changed(checkout, f"\n# release {number}\n")
        began = time.monotonic()
        machine.run(f"{checkout}/scripts/install", timeout_s=1200)
        took = time.monotonic() - began
        (checkout / "appliance" / "server.py").write_text(sound)
        longest = machine.run(END).split()[0]
        print(f"upgrade {number + 1}: {took:.0f} s in all, unanswered for {longest} s (asked ≤ 6)", flush=True)


def spoil(machine: Machine, checkout: Path) -> None:
    """It answers no request: the time from the switch until the old one is back."""
    sound = changed(checkout, "\nraise RuntimeError('a bad release')\n")
    machine.run(BEGIN)
    machine.run(f"{checkout}/scripts/install", timeout_s=1200, check=False)
    (checkout / "appliance" / "server.py").write_text(sound)
    longest = machine.run(END).split()[0]
    print(f"a broken release: unanswered for {longest} s, then the old one (asked ≤ 60)", flush=True)


def stop(machine: Machine) -> None:
    machine.run(
        f"mkdir -p /run/systemd/system/{UNIT}.service.d && "
        f"printf '[Service]\\nWatchdogSec=10\\n' > /run/systemd/system/{UNIT}.service.d/20-test.conf && "
        f"systemctl daemon-reload && systemctl restart {UNIT}"
    )
    machine.until(READY, 60)
    machine.run(f"kill -STOP $(systemctl show -p MainPID --value {UNIT})")
    print(f"stopped: serving again after {machine.until(READY, 60):.1f} s (asked ≤ 20)", flush=True)


def offline(folder: Path) -> None:
    place = folder / "offline"
    place.mkdir()
    bundle = place / "box.tar"
    subprocess.run([ROOT / "scripts" / "bundle", bundle], check=True)
    print(f"bundle: {bundle.stat().st_size / 1e6:.0f} MB")
    with booted(place, network=False) as machine:
        began = time.monotonic()
        machine.run(f"mkdir -p /var/tmp/there && tar -xf {bundle} -C /var/tmp/there")
        machine.run("/var/tmp/there/*/scripts/install", timeout_s=1200)
        machine.until(READY, 60)
        print(f"from the bundle to the first answer: {time.monotonic() - began:.0f} s (asked ≤ 120)", flush=True)


if __name__ == "__main__":
    main()
