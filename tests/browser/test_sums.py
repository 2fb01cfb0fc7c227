"""Sums of the last hour, day and month in the browser: promises as bars, and tenants by what they used."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from appliance.wire.catalogue import ApplicationChange
from tests.browser.axe import violations
from tests.browser.conftest import MODEL, SHOTS, WIDTHS, Box
from tests.e2e.polling import until

pytestmark = pytest.mark.nightly("a browser beside a whole box")

Tab = Callable[..., AbstractContextManager[Any]]
SLO_MS = 120_000


@pytest.fixture(scope="module")
def asked(box: Box) -> Box:
    """The box, once four answers were given within the SLO."""
    with box.server.client() as admin:
        admin.change_application(MODEL, ApplicationChange(latency_slo_ms=SLO_MS))
        for _ in range(4):
            admin.predict(MODEL, box.picture)
        until(lambda: admin.promises(application=MODEL)[0].hour.kept == 4, "the next sample")
    return box


@pytest.mark.parametrize("shape", WIDTHS)
def test_promise_of_application_is_told_by_pointer_keys_and_table(tab: Tab, asked: Box, shape: str) -> None:
    """The bar under the pointer, and the one that arrow keys choose; nothing that axe finds."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    with tab(f"/applications/{MODEL}", shape=shape) as page:
        card = page.locator("section.card", has=page.get_by_role("heading", name="Promises kept"))
        card.get_by_text(f"Each request is answered within {SLO_MS} ms").wait_for()
        hour = card.get_by_role("slider", name="Last hour")
        card.get_by_text("100 % 4 of 4 kept").first.wait_for()
        hour.focus()
        page.keyboard.press("Home")
        assert hour.get_attribute("aria-valuenow") == "1"
        assert "not recorded" in hour.get_attribute("aria-valuetext")
        told = []
        for _ in range(60):
            told.append(hour.get_attribute("aria-valuetext"))
            page.keyboard.press("ArrowRight")
        assert hour.get_attribute("aria-valuenow") == "60"
        assert [one for one in told if "4 of 4 kept" in one], told
        edges = hour.bounding_box()
        page.mouse.move(edges["x"] + 2, edges["y"] + edges["height"] / 2)
        assert hour.get_attribute("aria-valuenow") == "1"
        card.get_by_text("Last hour: as a table").click()
        card.get_by_role("cell", name="4 of 4 kept").wait_for()
        card.screenshot(path=SHOTS / f"promises-kept-{shape}.png")
        assert violations(page) == []
        page.goto(f"{asked.server.url}/")
        page.locator("section.card", has=page.get_by_role("heading", name="Promises kept")).get_by_text(
            "100 %"
        ).first.wait_for()


@pytest.mark.parametrize("shape", WIDTHS)
def test_tenants_are_sorted_by_click_and_by_key(tab: Tab, asked: Box, shape: str) -> None:
    """The admin's tenant has asked, harbour has not; the order is told to whoever does not see the arrow."""
    with tab("/tenants", shape=shape) as page:
        table = page.locator("table.sorts")
        names = table.locator("tbody tr td:first-child")
        table.get_by_role("button", name="Requests").wait_for()
        until(lambda: names.all_inner_texts()[:1] == ["default"], "who has used most")
        requests = table.get_by_role("button", name="Requests")
        requests.click()
        assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
        assert names.all_inner_texts() == ["default", "harbour"]
        requests.focus()
        page.keyboard.press("Enter")
        assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
        assert names.all_inner_texts() == ["harbour", "default"]
        assert table.get_by_role("row", name="default").get_by_role("cell").nth(1).inner_text() != "0"
        assert violations(page) == []
