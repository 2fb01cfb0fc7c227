"""The picture of the Overview in the README: `scripts/screenshot`.

Starts the demo on a new box, signs a browser in with the link that the demo shows, and takes the picture when its
networks have answered for a while.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright

from appliance.clock import pause_s

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = ViewportSize(width=1280, height=1120)
SAYS_LINK = "Open the pages, signed in: "
SHOWN_MS = 5_000
"""Milliseconds for the charts of a page to come."""


def main(target: Path, after_s: float) -> None:
    """Take the picture after so many seconds of traffic."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"screenshot: no browser on this machine: none of {', '.join(BROWSERS)}")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "appliance", "demo", "--port", "0", "--state", folder]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as demo:
            assert demo.stderr is not None
            try:
                links = (line.removeprefix(SAYS_LINK).strip() for line in demo.stderr if line.startswith(SAYS_LINK))
                shoot(browser, next(links), target, after_s)
            finally:
                demo.send_signal(signal.SIGINT)
    print(f"screenshot: {target} ({target.stat().st_size / 1000:.0f} kB)")


def shoot(browser: str, link: str, target: Path, after_s: float) -> None:
    with sync_playwright() as driver:
        tab = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page(
            viewport=SIZE, color_scheme="light"
        )
        tab.goto(link)
        tab.locator("header.side").wait_for()
        pause_s(after_s)
        tab.reload()
        tab.wait_for_timeout(SHOWN_MS)
        target.parent.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--after", type=float, default=360.0, help="seconds of traffic before the picture is taken")
    given = parser.parse_args()
    main(given.file, given.after)
