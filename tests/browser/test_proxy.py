"""The pages below the path of a reverse proxy."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import sign_in
from tests.e2e.proxies import proxied
from tests.e2e.server import running_server

pytestmark = [
    pytest.mark.nightly("a browser and a proxy of another package"),
    pytest.mark.usefixtures("processes", "ports"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def below(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address of an empty box behind nginx, and its admin key."""
    with (
        running_server(tmp_path / "state", APPLIANCE_HTTP__PROXIES='["127.0.0.1"]') as server,
        proxied("nginx", server.url, tmp_path / "nginx") as url,
    ):
        yield url, server.admin_key


def test_pages_work_below_the_path_of_a_proxy(chromium: Any, below: tuple[str, str]) -> None:
    """Links, a reload of a page at any depth, calls, events, and the documentation."""
    url, key = below
    page = chromium.new_page()
    page.set_default_timeout(120_000)
    errors: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{url}/")
    sign_in(page, key)
    page.get_by_role("link", name="Tenants and keys").click()
    page.wait_for_url(f"{url}/tenants")
    page.get_by_role("link", name="default").first.click()
    page.wait_for_url(f"{url}/tenants/default")
    page.reload()
    page.get_by_role("heading", name="default").first.wait_for()
    page.goto(f"{url}/docs")
    page.locator(".servers option").wait_for(state="attached")
    assert page.locator(".servers option").inner_text() == "/box"
    page.close()
    assert errors == []
    assert [one for one in asked if not one.startswith((f"{url}/", "data:", "blob:"))] == []
    assert any(re.search("/box/v1/events", one) for one in asked)
