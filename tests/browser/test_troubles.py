"""A box in one of twelve troubles: no page says that it is good."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.api.pages import FOLDER
from appliance.app import Appliance
from appliance.domain.health.conditions import RULES
from appliance.settings import Settings
from tests.api.stand import copied, serving
from tests.browser.conftest import sign_in
from tests.troubles import STAGED, Prepared, Staged

LISTS = {
    "Models": "/models",
    "Applications": "/applications",
    "Pipelines": "/pipelines",
    "Memory": "/memory",
    "Sessions": "/sessions",
    "Tenants and keys": "/tenants",
    "Processors": "/processors",
    "Box": "/box",
}
IN_ORDER = "Everything is in order."
ENVIRONMENT: dict[str, Any] = {"policies": {"eviction": "lru"}, "guard": {"isolation": "none"}}

pytestmark = pytest.mark.usefixtures("processes", "ports")


@pytest.fixture(autouse=True)
def _built() -> None:
    if not (FOLDER / "index.html.br").exists():
        pytest.skip("the pages are not built: scripts/web-ui")


@contextmanager
def signed_in(chromium: Any, url: str, key: str) -> Iterator[Any]:
    """A tab of an admin who acts for harbour."""
    context = chromium.new_context()
    try:
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{url}/?tenant=harbour")
        sign_in(page, key)
        yield page
    finally:
        context.close()


def state_of_box(page: Any) -> Any:
    """The badge in the menu."""
    return page.locator("header.side .box .badge")


def happened(staged: Staged, url: str, keys: dict[str, str]) -> None:
    """Bring the trouble about; not in this thread, where the browser's driver has an event loop."""

    async def work() -> None:
        made: list[httpx.AsyncClient] = []

        def client(who: str) -> httpx.AsyncClient:
            headers = {"Authorization": f"Bearer {keys[who]}"}
            made.append(httpx.AsyncClient(base_url=url, headers=headers, timeout=60))
            return made[-1]

        await staged.happen(client)
        for one in made:
            await one.aclose()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work()).result()


@pytest.mark.parametrize("staged", STAGED, ids=lambda staged: staged.name)
def test_no_page_says_good_of_a_box_in_trouble(
    staged: Staged,
    chromium: Any,
    furnished: tuple[Path, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The menu shows the state of the box on every page, the Overview names the trouble, and so does its own page."""
    folder = copied(furnished[0], tmp_path / "state")
    staged.prepare(Prepared(state_dir=folder, scratch=tmp_path, patch=monkeypatch))
    appliance = Appliance(Settings(state_dir=folder, **ENVIRONMENT | dict(staged.settings)))
    with serving(appliance) as url:
        happened(staged, url, furnished[1])
        with signed_in(chromium, url, furnished[1]["admin"]) as page:
            rule = RULES[staged.trouble]
            beginning, _, end = rule.text.partition("{}")
            told = page.locator(".checks li").filter(has_text=beginning).filter(has_text=end).first
            told.wait_for()
            assert "good" not in told.locator(".badge").get_attribute("class")
            assert page.get_by_text(IN_ORDER).count() == 0
            for name in LISTS:
                page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
                page.get_by_role("heading", name=name, level=1, exact=True).wait_for()
                assert state_of_box(page).inner_text() in {"Box: warning", "Box: error"}
            page.goto(f"{url}{staged.page}?tenant=harbour")
            own = page.locator(staged.subject).first
            own.locator(".badge.warn, .badge.bad").first.wait_for()
            assert own.locator(".badge.good").count() == 0


def test_no_page_says_good_of_a_box_that_is_away(
    chromium: Any, furnished: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Nobody knows how it is; what was known stays, and is marked as old."""
    folder = copied(furnished[0], tmp_path / "state")
    with ExitStack() as running, ExitStack() as tabs:
        url = running.enter_context(serving(Appliance(Settings(state_dir=folder, **ENVIRONMENT))))
        page = tabs.enter_context(signed_in(chromium, url, furnished[1]["admin"]))
        page.get_by_text(IN_ORDER).wait_for()
        assert state_of_box(page).inner_text() == "Box: good"
        running.close()
        page.locator("header.side .badge.bad").wait_for()
        assert state_of_box(page).inner_text() == "Box: no answer"
        assert page.get_by_text(IN_ORDER).count() == 0
        assert page.locator("main .badge.good").count() == 0
