"""Seconds without an answer while an installed box is upgraded, breaks or is stopped, against what is asked.

A box with seven models, installed from a bundle under systemd in a container without a network.

Asked: first answer within 120 s of a bundle's arrival; an upgrade leaves requests unanswered for at most 6 s; after a
broken release the old one serves within 60 s, after SIGSTOP (`WatchdogSec=10`) it serves again within 20. Takes root
and systemd-nspawn; a package registry for the bundle, and for a Debian with nothing but Python what
tests/service/container.py
says.
"""

import json
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks import _results as results
from benchmarks.start import MODELS
from tests.service.container import Machine, booted, missing
from tests.service.installed import BAD_AT_START, READY, UNIT, unpacked_bundle

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
    parser = results.parser(__doc__)
    parser.add_argument("--times", type=int, default=3, help="upgrades")
    options = results.options(parser)
    if (lacking := missing()) is not None:
        raise SystemExit(lacking)
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="appliance-"))
    try:
        checkout = unpacked_bundle(folder)
        with booted(folder) as machine:
            began = time.monotonic()
            machine.run(f"{checkout}/scripts/install", timeout_s=1200)
            machine.until(READY, 60)
            results.row("unpacked bundle to first answer", seconds=time.monotonic() - began, asked="≤ 120")
            furnish(machine, folder)
            upgrade(machine, checkout, options.times)
            spoil(machine, checkout)
            stop(machine)
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
        results.row(f"upgrade {number + 1}", unanswered_s=float(longest), in_all_s=took, asked="≤ 6")


def spoil(machine: Machine, checkout: Path) -> None:
    """It does not start: the time until the old one is back."""
    sound = changed(checkout, BAD_AT_START)
    machine.run(BEGIN)
    machine.run(f"{checkout}/scripts/install", timeout_s=1200, check=False)
    (checkout / "appliance" / "server.py").write_text(sound)
    longest = machine.run(END).split()[0]
    results.row("a broken release: until the old one answers", unanswered_s=float(longest), asked="≤ 60")


def stop(machine: Machine) -> None:
    machine.run(
        f"mkdir -p /run/systemd/system/{UNIT}.service.d && "
        f"printf '[Service]\\nWatchdogSec=10\\n' > /run/systemd/system/{UNIT}.service.d/20-test.conf && "
        f"systemctl daemon-reload && systemctl restart {UNIT}"
    )
    machine.until(READY, 60)
    machine.run(f"kill -STOP $(systemctl show -p MainPID --value {UNIT})")
    results.row("SIGSTOP: serves again", after_s=machine.until(READY, 60), asked="≤ 20")


if __name__ == "__main__":
    main()
