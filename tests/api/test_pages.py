"""The pages as they are served: compressed, kept where that is safe, and with a policy that lets nothing else in."""

import gzip
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from appliance.api import pages

pytestmark = pytest.mark.anyio
INDEX = b"<!doctype html><title>pages</title>"
SCRIPT = b"export const answer = 42"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files as the build leaves them; what brotli made is only passed on, so any bytes do."""
    (tmp_path / "assets").mkdir()
    for name, content in {"index.html": INDEX, "assets/main-B_q1.js": SCRIPT}.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
        (tmp_path / f"{name}.br").write_bytes(b"br:" + content)
    (tmp_path / "secret.js.gz").write_bytes(gzip.compress(b"no"))
    return tmp_path


def client(folder: Path, encoding: str = "gzip") -> httpx.AsyncClient:
    app = FastAPI()
    pages.register(app, folder)
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="http://box", headers={"Accept-Encoding": encoding})


@pytest.mark.parametrize("path", ["/", "/models", "/models/a%20name", "/tenants/harbour", "/processors", "/box"])
async def test_pages_at_all_paths_are_the_same_file(folder: Path, path: str) -> None:
    """The page reads the address itself, and is asked for anew each time."""
    answer = await client(folder).get(path)
    assert (answer.status_code, answer.content) == (200, INDEX)
    assert answer.headers["cache-control"] == "no-cache"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize(("accepted", "encoding"), [("gzip, deflate, br", "br"), ("gzip", "gzip"), ("identity", None)])
async def test_page_assets_come_in_the_smallest_form_that_the_browser_takes(
    folder: Path, accepted: str, encoding: str | None
) -> None:
    async with client(folder, accepted).stream("GET", "/assets/main-B_q1.js") as answer:
        raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert answer.headers.get("content-encoding") == encoding
    assert answer.headers["vary"] == "Accept-Encoding"
    assert raw == {"br": b"br:" + SCRIPT, "gzip": gzip.compress(SCRIPT), None: SCRIPT}[encoding] or encoding == "gzip"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("name", ["none.js", "..%2Fsecret.js", "%2e%2e/secret.js", "main-B_q1.js.gz", "main-B_q1", ""])
async def test_unknown_asset_names_are_404(folder: Path, name: str) -> None:
    assert (await client(folder).get(f"/assets/{name}")).status_code == 404


async def test_pages_that_were_not_built_are_503_with_what_to_do(tmp_path: Path) -> None:
    answer = await client(tmp_path).get("/")
    assert answer.status_code == 503
    assert "scripts/setup" in answer.text
    assert "unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.skipif(not (pages.FOLDER / "index.html.gz").exists(), reason="the pages are not built: scripts/web-ui")
def test_pages_stay_below_their_size_limits() -> None:
    """Compressed, code and styles: what the first page needs, and all of it."""
    index = gzip.decompress((pages.FOLDER / "index.html.gz").read_bytes()).decode()
    sizes = {path.name: path.stat().st_size for path in (pages.FOLDER / "assets").glob("*.gz")}
    first = sum(size for name, size in sizes.items() if name.removesuffix(".gz") in index)
    assert 0 < first <= 90_000
    assert sum(sizes.values()) <= 180_000
