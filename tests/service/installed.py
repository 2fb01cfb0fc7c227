"""An installed box: its unit, when it is ready, and releases to upgrade to."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
READY = "curl --silent --insecure --fail --max-time 1 https://127.0.0.1:8443/v2/health/ready"
UNIT = "edge-appliance"
SOURCES = ("appliance", "locks", "scripts", "systemd", "docs", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
BAD_AT_START = """

def serve(*_, **__):
    raise RuntimeError("a bad release")
"""
"""It can be loaded, which is tried before the box is stopped."""


def unpacked_bundle(folder: Path) -> Path:
    """This checkout with its packages, as scripts/bundle makes it; APPLIANCE_TEST_BUNDLE names one whose packages are
    taken.
    """
    path = folder / "checkout"
    path.mkdir()
    if bundle := os.environ.get("APPLIANCE_TEST_BUNDLE"):
        take = ["tar", "-C", str(path), "-xf", bundle, "--strip-components=1", "--wildcards", "*/wheels"]
        subprocess.run(take, check=True)
        for name in SOURCES:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, path / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, path / name)
        return path
    made = folder / "box.tar"
    subprocess.run([ROOT / "scripts" / "bundle", made], check=True, timeout=1200)
    subprocess.run(["tar", "-C", str(path), "-xf", made, "--strip-components=1"], check=True)
    made.unlink()
    return path
