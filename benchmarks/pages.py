"""The pages of a box in Chromium: first paint, long lists, a day of memory, five open pages, against what is asked.

paint   the Overview in a browser that has nothing of it, on a phone's width: ≤ 0.5 s; processor slowed four times:
        ≤ 1.5 s; also when the heading stands there
models  300 models with six variants each, processor slowed four times: list ≤ 60 kB, address to all rows ≤ 1 s, a key
        in the filter to the frame after it ≤ 100 ms; models and variants are copies of one
memory  a day with 20,000 changes, fetched and drawn: ≤ 0.5 s; the box's history is made beforehand
open    five pages open: requests a second of a tiny model over 16 connections with them / without ≥ 0.95 (browser and
        box share the processors: the ratio by the box's own processor time says what is the box's)
"""

import argparse
import contextlib
import json
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from appliance.history.file import HistoryFile, ReasonRow, StayRow, WindowRow
from appliance.history.pieces import DAY_S
from benchmarks import _box as boxes
from benchmarks import _results as results
from benchmarks.start import insert, make_state
from tests import toys
from tests.browser.conftest import BROWSERS, sign_in
from tests.e2e.server import running_server

MODELS, VARIANTS, SLOWER, CHANGES, CONNECTIONS = 300, 6, 4, 20_000, 16
PATHS = ("/", "/applications/tiny", "/memory", "/tenants", "/box")
WATCH = """(() => {
  const look = () => {
    if (document.querySelector('main h1')) requestAnimationFrame(() => (window.shownAt = performance.now()))
    else requestAnimationFrame(look)
  }
  requestAnimationFrame(look)
})()"""
PAINTED = """() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"""

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


def main() -> None:
    """Run the parts that are asked for."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each turn of the part `open`")
    options = results.options(parser)
    for name in options.part:
        with tempfile.TemporaryDirectory() as folder, _chromium() as browser:
            PARTS[name](Path(folder), browser, options)


@contextlib.contextmanager
def _chromium() -> Iterator[Any]:
    """The machine's own."""
    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def _signed_in(browser: Any, url: str, key: str) -> Any:
    page = browser.new_page()
    page.goto(url)
    sign_in(page, key)
    return page


def _paint(folder: Path, browser: Any, options: argparse.Namespace) -> None:
    with running_server(folder / "state") as server:
        page = _signed_in(browser, server.url, server.admin_key)
        signed_in = page.context.storage_state()
        page.context.close()
        for slower, asked in ((1, "≤ 500"), (SLOWER, "≤ 1500")):
            rounds = [_round(browser, server.url, signed_in, slower) for _ in range(options.rounds)]
            painted, shown = zip(*rounds, strict=True)
            heading_ms = statistics.median(shown)
            what = f"Overview, processor slowed {slower} times: first paint, ms"
            results.row(what, **results.spread(painted), heading_ms=heading_ms, asked=asked)


def _round(browser: Any, url: str, who: Any, slower: int) -> tuple[float, float]:
    """(first paint, heading) in milliseconds after the navigation began."""
    context = browser.new_context(viewport={"width": 360, "height": 800}, storage_state=who)
    page = context.new_page()
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
    page.add_init_script(WATCH)
    page.goto(url)
    found = _value(page, PAINTED), _value(page, "window.shownAt ?? null")
    context.close()
    return found


def _value(page: Any, expression: str) -> float:
    """Once it is there; asked from outside, since the policy of the pages lets none evaluate text."""
    while (found := page.evaluate(expression)) is None:
        page.wait_for_timeout(50)
    return float(found)


def _models(folder: Path, browser: Any, options: argparse.Namespace) -> None:
    make_state(folder / "state", folder, MODELS)
    _more_variants(folder / "state")
    with running_server(folder / "state") as server:
        page = _signed_in(browser, server.url, server.admin_key)
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        opened, typed = list[float](), list[float]()
        for _ in range(options.rounds):
            page.goto(f"{server.url}/models")
            opened.append(page.evaluate(SHOWN, MODELS))
            size = page.evaluate(BYTES)
            page.wait_for_timeout(500)
            typed += [page.evaluate(TYPED, text) for text in ("m", "m0", "m01", "m012", "")]
    results.row("Models, the list", kB=size / 1e3, asked="≤ 60")
    results.row("... address to all rows, ms", **results.spread(opened), asked="≤ 1000")
    results.row("... a key in the filter to the frame, ms", **results.spread(typed), asked="≤ 100")


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


def _memory(folder: Path, browser: Any, options: argparse.Namespace) -> None:
    with running_server(folder / "state") as server:
        server.stop()
        _changes(server.state_dir / "history.db", CHANGES // 2)
        server.start_again()
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - DAY_S))
        page = _signed_in(browser, server.url, server.admin_key)
        path = f"/v1/memory/history?from={since}&columns=true&reasons=false"
        fetched, drawn = list[float](), list[float]()
        for _ in range(options.rounds):
            began = time.perf_counter()
            headers = {"Authorization": f"Bearer {server.admin_key}"}
            body = page.request.get(server.url + path, headers=headers).body()
            fetched.append(1000 * (time.perf_counter() - began))
            page.goto(f"{server.url}/memory")
            page.get_by_role("img", name="Over time").locator("canvas").wait_for()
            page.get_by_role("button", name="Hour").click()
            page.wait_for_timeout(500)
            drawn.append(page.evaluate(DAY))
            page.wait_for_timeout(500)
    results.row("Memory, a day", stays=len(json.loads(body)["stays"]["build"]), MB=len(body) / 1e6)
    results.row("... fetched, ms", **results.spread(fetched))
    results.row("... fetched and drawn, ms", **results.spread(drawn), asked="≤ 500")


def _changes(path: Path, count: int) -> None:
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


def _open(folder: Path, browser: Any, options: argparse.Namespace) -> None:
    with boxes.box(folder / "state") as box:
        request = boxes.infer_request("tiny", box.key, boxes.served(box, "tiny", toys.tiny_add(folder / "tiny.onnx")))
        first = _signed_in(browser, f"http://127.0.0.1:{box.port}/", box.key)
        tabs = [first, *(first.context.new_page() for _ in PATHS[1:])]
        rounds = []
        for number in range(options.rounds):
            found = {}
            for is_open in (True, False) if number % 2 else (False, True):
                _lie(tabs, box.port, is_open=is_open)
                found[is_open] = boxes.rate(box.port, box.process.pid, request, CONNECTIONS, options.seconds)
            rounds.append((found[True], found[False]))
        by_cpu = statistics.median(none_us / opened_us for (_, opened_us), (_, none_us) in rounds)
        ratios = results.spread([opened / none for (opened, _), (none, _) in rounds])
        results.row("five pages open: requests / without", **ratios, by_processor_time=by_cpu, asked="≥ 0.95")


def _lie(tabs: list[Any], port: int, *, is_open: bool) -> None:
    """Put the tabs on their pages, or on blank ones; settled."""
    for tab, path in zip(tabs, PATHS, strict=True):
        tab.goto(f"http://127.0.0.1:{port}{path}" if is_open else "about:blank")
    time.sleep(2)


PARTS = {"paint": _paint, "models": _models, "memory": _memory, "open": _open}


if __name__ == "__main__":
    main()
