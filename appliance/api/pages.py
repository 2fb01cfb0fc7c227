"""The web UI: files that were built before (`web-ui/`), served as they lie there. They tell nothing of the box, so they
need no key.

Names of all files but the first tell their content, so browsers keep them for ever. The policy lets nothing in that is
not the box's own.
"""

import gzip
import re
import ssl
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response

from appliance.api.http.problems import CONTENT_TYPE, plain_problem
from appliance.api.http.proxies import PREFIX

FOLDER = Path(__file__).parents[1] / "web_ui"
"""Where `scripts/setup` puts them."""
EXAMPLE = Path(__file__).with_name("example.zip")
"""An archive to import, as the form of the pages offers it."""
PATHS = (
    "/",
    "/models",
    "/models/{name}",
    "/applications",
    "/applications/{name}",
    "/pipelines",
    "/pipelines/{name}",
    "/memory",
    "/sessions",
    "/wall",
    "/tenants",
    "/tenants/{name}",
    "/processors",
    "/what-if",
    "/box",
)
"""Of pages, all of which are the same file: it reads the address itself."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PERMISSIONS = "camera=(self), microphone=(self), geolocation=(), payment=(), usb=()"
ASSET = re.compile(r"[\w-]+(\.[\w-]+)*\.(js|css|svg)", re.ASCII)
"""What may be asked for."""
EXAMPLE_NAME = "colour-classes.zip"
ATTACHED = 'attachment; filename="edge-appliance.crt"'
KEPT = "public, max-age=31536000, immutable"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Edge appliance: no pages</title>
<h1>The pages of this box were not built</h1>
<p>The box serves all the same: see <a href="/docs">the API</a>. To build the pages run <code>scripts/setup</code> where
a package registry can be reached; its last lines say what is missing. Then restart the box.</p></html>
"""


def register(app: FastAPI, folder: Path = FOLDER) -> None:
    """Hang the pages into the service."""

    async def page(request: Request) -> Response:
        prefix = request.scope.get(PREFIX, "")
        found = _file(folder / "index.html", request, prefix)
        if found is None:
            shown = _below(prefix, NOT_BUILT.encode())
            return HTMLResponse(shown, 503, headers={"Content-Security-Policy": POLICY})
        found.headers["Content-Security-Policy"] = POLICY
        found.headers["Permissions-Policy"] = PERMISSIONS
        found.headers["Cache-Control"] = "no-cache"
        return found

    async def asset(name: str, request: Request) -> Response:
        found = _file(folder / "assets" / name, request) if ASSET.fullmatch(name) else None
        if found is None:
            status, body = plain_problem("no-such-path", "there is nothing at this path", request.url.path)
            return Response(body, status, media_type=CONTENT_TYPE)
        found.headers["Cache-Control"] = KEPT
        return found

    async def authority(request: Request) -> Response:
        path = request.state.box.authority_file
        try:
            content = None if path is None else ssl.PEM_cert_to_DER_cert(path.read_text())
        except (OSError, ValueError):
            content = None
        if content is None:
            status, body = plain_problem("no-such-path", "the box has no authority of its own", request.url.path)
            return Response(body, status, media_type=CONTENT_TYPE)
        # As phones want it: they offer to trust it.
        return Response(content, media_type="application/x-x509-ca-cert", headers={"Content-Disposition": ATTACHED})

    async def example() -> Response:
        headers = {"Content-Disposition": f'attachment; filename="{EXAMPLE_NAME}"'}
        return Response(EXAMPLE.read_bytes(), media_type="application/zip", headers=headers)

    app.state.page = page
    app.add_api_route("/example.zip", example, methods=["GET"], include_in_schema=False)
    app.add_api_route("/authority.crt", authority, methods=["GET"], include_in_schema=False)
    for path in PATHS:
        app.add_api_route(path, page, methods=["GET"], include_in_schema=False)
    app.add_api_route("/assets/{name}", asset, methods=["GET"], include_in_schema=False)


def _below(prefix: str, page: bytes) -> bytes:
    """Return a page whose links to the box are put below the path of a proxy."""
    return page.replace(b'="/', b'="%b/' % prefix.encode())


def _file(path: Path, request: Request, prefix: str = "") -> Response | None:
    """Return a file in an encoding that the browser takes, with its links put below `prefix`; None: there is none."""
    accepted = request.headers.get("accept-encoding", "")
    encoding = next((one for one in ("br", "gzip") if one in accepted and not prefix), "")
    try:
        if encoding == "br":
            content = path.with_name(f"{path.name}.br").read_bytes()
        else:
            packed = path.with_name(f"{path.name}.gz").read_bytes()
            content = packed if encoding else _below(prefix, gzip.decompress(packed))
    except OSError:
        return None
    headers = {"Vary": "Accept-Encoding"} | ({"Content-Encoding": encoding} if encoding else {})
    return Response(content, media_type=MEDIA_TYPES[path.suffix], headers=headers)
