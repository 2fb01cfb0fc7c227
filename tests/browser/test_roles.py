"""The ten questions as a tenant's developer asks them, and as a technician with a phone: each in three clicks from the
first page, with nothing on the way that the key may not do.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from appliance.wire.access import KeyOrder
from tests.browser.conftest import MODEL, WIDTHS, Box, Tab
from tests.browser.pages import PAGES

TENANT, OWN = "workshop", "numbers"
CLICKS_MAX = 3


@dataclass
class Walk:
    """Goes from the first page to an answer, and counts the clicks; what is typed and chosen on the way is none."""

    page: Any
    url: str
    shape: str
    clicks: int = 0

    @contextmanager
    def question(self) -> Iterator[None]:
        """From the first page; at the end no click was one too many."""
        self.page.goto(self.url)
        self.clicks = 0
        yield
        assert self.clicks <= CLICKS_MAX

    def click(self, on: Any) -> None:
        on.click()
        self.clicks += 1

    def menu(self, name: str) -> None:
        if self.shape == "phone":
            self.click(self.page.get_by_role("button", name="Menu"))
        self.click(self.page.get_by_role("navigation").get_by_role("link", name=name, exact=True))
        self.page.get_by_role("heading", name=name, level=1, exact=True).wait_for()


@pytest.fixture(scope="module")
def developer(box: Box) -> str:
    """The key of a tenant with a model of its own that somebody has asked."""
    with box.server.client() as admin:
        admin.create_tenant(TENANT)
        key = admin.create_key(TENANT, KeyOrder()).key
    metadata = json.loads(box.digits.metadata.read_text()) | {"precisions": []}
    with box.server.client(key) as own:
        job = own.upload_model(box.digits.model, OWN, "image-classification", metadata=metadata)
        assert [step.state for step in own.follow_job(job.id)][-1] == "done"
        own.predict(OWN, box.picture)
    return key


@pytest.mark.parametrize("shape", WIDTHS)
def test_developer_finds_each_answer_in_three_clicks(tab: Tab, box: Box, developer: str, shape: str) -> None:
    """Only what is the tenant's: nothing that the key may not do is shown, and the tenant's part of the box is told."""
    with tab(key=developer, shape=shape) as page:
        walk = Walk(page, box.server.url, shape)
        _ask_what_all_ask(walk, box, OWN, TENANT)
        with walk.question():  # what may it use, and what does it use?
            walk.menu("Tenants and keys")
            walk.click(page.get_by_role("link", name=TENANT))
            page.locator("dl div", has_text="On disk at most").get_by_text("uses").wait_for()
            assert page.get_by_role("button", name="Change the quota").count() == 0
        page.goto(f"{box.server.url}/what-if")
        page.get_by_role("heading", name="There is no such page").wait_for()
        page.goto(f"{box.server.url}/box")
        page.get_by_role("heading", name="Who changed what").wait_for()
        for name in ("Backups", "Housekeeping", "Upgrade and support", "Sensors"):
            assert page.get_by_role("heading", name=name).count() == 0


@pytest.mark.parametrize("shape", WIDTHS)
def test_pages_request_nothing_that_a_developer_key_may_not(tab: Tab, box: Box, developer: str, shape: str) -> None:
    """Every page that the menu shows is whole with a tenant's key: the box refuses none of its requests."""
    refused: list[str] = []
    own = {f"/models/{MODEL}": f"/models/{OWN}", f"/applications/{MODEL}": f"/applications/{OWN}"}
    own["/tenants/default"] = f"/tenants/{TENANT}"
    with tab(key=developer, shape=shape) as page:
        page.on("response", lambda answer: refused.append(answer.url) if answer.status >= 400 else None)
        for path in PAGES:
            if path == "/what-if":
                continue
            page.goto(box.server.url + own.get(path, path))
            page.locator("main .card").first.wait_for()
            page.wait_for_timeout(300)  # for what a page asks once it is there
            assert page.get_by_role("alert").count() == 0, path
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[shape][0], path
    assert refused == []


def test_technician_on_a_phone_finds_each_answer_in_three_clicks(tab: Tab, box: Box) -> None:
    """Signed in by a link, as printed by the box; with all that an admin key may do."""
    with box.server.client() as admin:
        link = admin.sign_in_link().path
    with tab(link, key=None, shape="phone") as page:
        page.get_by_role("heading", name="Health").wait_for()
        walk = Walk(page, box.server.url, "phone")
        _ask_what_all_ask(walk, box, MODEL, "default")
        with walk.question():  # the camera
            walk.click(page.get_by_role("cell", name=MODEL, exact=True).get_by_role("link"))
            walk.click(page.get_by_role("tab", name="Camera"))
            walk.click(page.get_by_role("button", name="Start the camera"))
            page.get_by_role("button", name="Take and send").wait_for()
        with walk.question():  # how many more devices fit?
            walk.menu("What if")
            page.get_by_label("Application").select_option(MODEL)
            page.get_by_label("Add requests a second").fill("5")
            walk.click(page.get_by_role("button", name="Simulate"))
            page.get_by_role("status").filter(has_text="The change fits").wait_for()
        with walk.question():  # guarantee memory
            walk.click(page.get_by_role("heading", name="Memory").get_by_role("link"))
            walk.click(page.get_by_role("heading", name="default", exact=True).get_by_role("link"))
            walk.click(page.get_by_role("button", name="Change the quota"))
            page.get_by_label("Memory guaranteed, MB").wait_for()
        with walk.question():  # back up
            walk.menu("Box")
            walk.click(page.get_by_role("button", name="Make a backup"))
            page.get_by_role("cell", name="asked for").first.wait_for()


def _ask_what_all_ask(walk: Walk, box: Box, application: str, tenant: str) -> None:
    page = walk.page
    with walk.question():  # is it healthy?
        page.get_by_role("heading", name="Health").wait_for()
        walk.click(page.get_by_text("checks passed"))
        page.get_by_text("no run is stuck").wait_for()
    with walk.question():  # who is in memory, and why is mine not?
        walk.click(page.get_by_role("heading", name="Memory").get_by_role("link"))
        page.get_by_role("heading", name="Expected").wait_for()
        page.get_by_role("row", name=application).first.wait_for()
    with walk.question():  # why was that slow?
        walk.menu("Applications")
        walk.click(page.get_by_role("link", name=application).first)
        page.get_by_role("heading", name="Why was that answer slow").wait_for()
    with walk.question():  # import a file; which variants came out?
        walk.menu("Models")
        assert page.get_by_label("ONNX file, or an archive with one").is_enabled()
        walk.click(page.get_by_role("link", name=application).first)
        page.get_by_role("img", name="Agreement with fp32 over latency").wait_for()
    with walk.question():  # try it
        walk.menu("Applications")
        walk.click(page.get_by_role("link", name=application).first)
        page.get_by_label("Picture, sound, text or tensors").set_input_files(box.picture)
        page.get_by_text("answered, ").wait_for()
    with walk.question():  # a key for this device
        walk.menu("Tenants and keys")
        page.get_by_role("heading", name=f"Make a key of {tenant}").wait_for()
        walk.click(page.get_by_role("button", name="Make the key"))
        page.get_by_role("heading", name="The new key").wait_for()
    with walk.question():  # what happened?
        walk.click(page.get_by_role("button", name="Day"))
        page.get_by_role("img", name="Requests a second").locator("canvas").wait_for()
