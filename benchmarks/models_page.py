"""The Models page of a box with 300 models of six variants each, in Chromium with its processor slowed four times.

Asked: at most 60 kB for the list, at most 1 s from the address to the frame with all rows, at most 100 ms from a key
in the filter to the frame after it. Models and variants are copies of one.
"""

import argparse
import contextlib
import os
import sqlite3
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._chromium import chromium
from benchmarks.start_growth import insert, make_state
from tests.browser.conftest import sign_in
from tests.e2e.server import running_server

VARIANTS = 6
SLOWER = 4
SHOWN = """count => new Promise(done => {
  const look = () => {
    if (document.querySelectorAll('main tbody tr').length < count) requestAnimationFrame(look)
    else requestAnimationFrame(() => done(performance.now()))
  }
  look()
})"""
"""Milliseconds from the beginning of the navigation to the frame with so many rows."""
TYPED = """text => new Promise(done => {
  const field = document.querySelector('main input[type=search]'), began = performance.now()
  field.value = text
  field.dispatchEvent(new Event('input', { bubbles: true }))
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)))
})"""
"""Milliseconds from the key to after the next frame."""
BYTES = "() => performance.getEntriesByType('resource').find(one => one.name.includes('/v1/models?')).encodedBodySize"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--times", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        make_state(state, Path(folder), options.models)
        _more_variants(state)
        with running_server(state) as server, chromium() as browser:
            page = browser.new_page()
            page.goto(server.url)
            sign_in(page, server.admin_key)
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
            opened: list[float] = []
            typed: list[float] = []
            for _ in range(options.times):
                page.goto(f"{server.url}/models")
                opened.append(page.evaluate(SHOWN, options.models))
                size = page.evaluate(BYTES)
                page.wait_for_timeout(500)
                typed += [page.evaluate(TYPED, text) for text in ("m", "m0", "m01", "m012", "")]
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores, slowed {SLOWER} times")
    print(f"list of {options.models} models with {VARIANTS} variants each: {size / 1e3:.1f} kB (asked: 60)")
    print(f"opened in {statistics.median(opened):.0f} ms, most {max(opened):.0f} (asked: 1000)")
    print(f"a key in the filter to the frame: {statistics.median(typed):.0f} ms, most {max(typed):.0f} (asked: 100)")


def _more_variants(state: Path) -> None:
    """Give each model so many, all with the content of its first."""
    with contextlib.closing(sqlite3.connect(state / "appliance.db")) as database, database:
        database.row_factory = sqlite3.Row
        for table in ("variant", "variant_number"):
            for row in [dict(one) for one in database.execute(f"SELECT * FROM {table}")]:
                for number in range(2, VARIANTS + 1):
                    insert(database, table, _renamed(row, number))


def _renamed(row: dict[str, Any], number: int) -> dict[str, Any]:
    new = dict(row)
    for key in ("id", "variant_id"):
        if key in new:
            new[key] = f"{new[key]}-{number}"
    if "name" in new:
        new["name"] = f"{new['name']}-{number}"
    return new | {"number": number}


if __name__ == "__main__":
    main()
