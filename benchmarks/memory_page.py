"""How long the Memory page takes to fetch and draw a day in which memory has changed 20,000 times, in Chromium.

Asked: at most 0.5 s. The history of the box is made beforehand: 10,000 stays of 40 applications, each with its
decisions, and as many windows.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from appliance.history.file import HistoryFile, ReasonRow, StayRow, WindowRow
from appliance.history.pieces import DAY_S
from benchmarks._chromium import chromium
from tests.browser.conftest import sign_in
from tests.e2e.server import running_server

DAY = """() => new Promise(done => {
  const began = performance.now()
  const look = () => {
    if (/Changes: \\d+,\\d/.test(document.body.innerText)) requestAnimationFrame(() => done(performance.now() - began))
    else setTimeout(look, 5)
  }
  document.querySelectorAll('[aria-pressed]')[1].click()
  setTimeout(look)
})"""
"""Milliseconds from the click on "Day" to the frame after the chart."""

FETCH = """async since => {
  const began = performance.now()
  await (await fetch(`/v1/memory/history?from=${since}&reasons=false&columns=true`)).json()
  return performance.now() - began
}"""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder) / "state") as server:
        server.stop()
        seed(server.state_dir / "history.db", options.changes // 2)
        server.start_again()
        headers = {"Authorization": f"Bearer {server.admin_key}"}
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - DAY_S))
        with chromium() as browser:
            page = browser.new_page()
            page.goto(server.url)
            sign_in(page, server.admin_key)
            fetched, drawn, parsed = [], [], []
            for _ in range(options.times):
                began = time.perf_counter()
                path = f"/v1/memory/history?from={since}&columns=true&reasons=false"
                answer = page.request.get(server.url + path, headers=headers)
                body = answer.body()
                fetched.append(1000 * (time.perf_counter() - began))
                page.goto(f"{server.url}/memory")
                page.get_by_role("img", name="Over time").locator("canvas").wait_for()
                page.get_by_role("button", name="Hour").click()
                page.wait_for_timeout(500)
                drawn.append(page.evaluate(DAY))
                page.wait_for_timeout(500)
                parsed.append(page.evaluate(FETCH, since))
    count = len(json.loads(body)["stays"]["build"])
    print(f"{count} stays, {len(body) / 1e6:.1f} MB: fetched in {statistics.median(fetched):.0f} ms")
    print(f"fetched and parsed by the page, without reasons, in {statistics.median(parsed):.0f} ms")
    print(f"fetched and drawn in {statistics.median(drawn):.0f} ms, most {max(drawn):.0f} (asked: 500)")


def seed(path: Path, count: int) -> None:
    """A day of stays and windows."""
    path.unlink(missing_ok=True)
    file = HistoryFile(path, days=30, series_max=100)
    now = time.time()
    step = DAY_S / count
    stays = [
        StayRow(
            number,
            now - DAY_S + 60 + number * step * 0.99,
            now - DAY_S + 60 + number * step * 0.99 + 20 * step,
            f"{number % 40:064x}@cpu",
            "int8",
            f"default/a{number % 40}",
            "resident",
            30_000_000 + 1_000_000 * (number % 40),
            "loaded",
            2 * number,
            "evicted",
            2 * number + 1,
        )
        for number in range(1, count + 1)
    ]
    reasons = [
        ReasonRow(number, f"default/a{number % 40}: absent to int8 for 12.3 MB", "default")
        for number in range(2, 2 * count)
    ]
    windows = [WindowRow(row.applications, row.since, row.since + step) for row in stays]
    file.write({}, stays, reasons, windows)
    file.close()


if __name__ == "__main__":
    main()
