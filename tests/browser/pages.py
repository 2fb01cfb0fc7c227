"""The pages of the web UI."""

from tests.browser.conftest import MODEL

PAGES = {
    "/": "Overview",
    "/models": "Models",
    f"/models/{MODEL}": MODEL,
    "/applications": "Applications",
    f"/applications/{MODEL}": MODEL,
    "/pipelines": "Pipelines",
    "/memory": "Memory",
    "/sessions": "Sessions",
    "/wall": "Live wall",
    "/tenants": "Tenants and keys",
    "/tenants/default": "default",
    "/processors": "Processors",
    "/what-if": "What if",
    "/box": "Box",
}
