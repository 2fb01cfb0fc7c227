"""What an operator needs to keep a box: who changed what, backups, why an answer was slow, and a link that signs in."""

import tarfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.browser.conftest import MODEL, Box

Tab = Callable[..., AbstractContextManager[Any]]


def test_box_page_makes_downloads_and_deletes_a_backup(tab: Tab, tmp_path: Path) -> None:
    """The audit has all of it. A box that is not empty refuses to be restored, and says what to do."""
    with tab("/box") as page:
        page.get_by_role("button", name="Make a backup").click()
        link = page.locator('a[href^="/v1/backups/manual-"]')
        with page.expect_download() as fetched:
            link.click()
        fetched.value.save_as(tmp_path / "box.tar")
        with tarfile.open(tmp_path / "box.tar") as archive:
            assert archive.getnames()[0] == "manifest.json"
        page.get_by_label("Backup to restore").set_input_files(tmp_path / "box.tar")
        page.get_by_role("button", name="Check and restore").click()
        page.get_by_role("alert").get_by_text("Restore to a new box").wait_for()
        page.get_by_role("button", name="Delete manual-").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        link.wait_for(state="detached")
        page.get_by_role("row", name="check the database").wait_for()
        page.reload()
        audit = page.locator("section", has=page.get_by_role("heading", name="Who changed what"))
        audit.get_by_text("Delete a backup").wait_for()
        audit.get_by_text("Make a backup").wait_for()


def test_application_page_explains_a_cold_request(tab: Tab) -> None:
    """The first request of the model was cold."""
    with tab(f"/applications/{MODEL}") as page:
        row = page.get_by_role("row").filter(has_text="no variant was in memory")
        row.get_by_text("cold", exact=True).wait_for()


def test_sign_in_link_signs_a_browser_in_once(tab: Tab, box: Box) -> None:
    """It opens the pages signed in and leaves the address; the second time the page says what to do."""
    with box.server.client() as admin:
        path = admin.sign_in_link().path
    with tab(path, key=None) as page:
        page.get_by_role("heading", name="Overview").wait_for()
        assert "#" not in page.url
    with tab(path, key=None) as page:
        page.get_by_text("Ask for another link").wait_for()
        page.get_by_label("Key", exact=True).wait_for()


def test_tenant_page_adds_tests_and_removes_a_receiver_of_notifications(tab: Tab, box: Box) -> None:
    """What came of the test is said; address and token are not shown again. The page of the box has its own."""
    with tab("/tenants/harbour", key=box.tenant_key) as page:
        card = page.locator("section", has=page.get_by_role("heading", name="Notifications"))
        card.get_by_label("Name, such as the person who reads it").fill("harbour phone")
        card.get_by_label("Address of the topic").fill("http://127.0.0.1:9/topic-secret")
        card.get_by_label("Token").fill("token-secret")
        card.get_by_role("button", name="Add the receiver").click()
        row = card.get_by_role("row").filter(has_text="harbour phone")
        row.get_by_text("none yet").wait_for()
        row.get_by_role("button", name="Send a test").click()
        card.get_by_text("harbour phone: its address is private").wait_for()
        row.get_by_text("trying again").wait_for()
        assert "secret" not in page.content()
        assert card.get_by_label("Address of the topic").input_value() == ""
        row.get_by_role("button", name="Remove").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        row.wait_for(state="detached")
    with tab("/box") as page:
        card = page.locator("section", has=page.get_by_role("heading", name="Notifications"))
        card.get_by_text("of the box or of any tenant").wait_for()
        card.get_by_label("Kind").select_option("gotify")
        card.get_by_label("Address of the server").wait_for()
