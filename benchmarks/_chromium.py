"""A browser that benchmarks look at the pages with."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser.conftest import BROWSERS


@contextmanager
def chromium() -> Iterator[Any]:
    """The machine's own; closed at the end."""
    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
