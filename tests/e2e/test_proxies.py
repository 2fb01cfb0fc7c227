"""A box behind reverse proxies, below a path, and called by pages of other sites."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import cv2
import httpx
import pytest

from appliance.client.device import Box, Device, Latency
from appliance.demo.zoo import toys as zoo_toys
from tests import toys
from tests.e2e.polling import until
from tests.e2e.proxies import proxied
from tests.e2e.server import Server, brought, running_server

pytestmark = [pytest.mark.usefixtures("processes", "ports"), pytest.mark.timeout(240)]
APP = "https://app.example.org"


@pytest.fixture(scope="module")
def behind_proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A box that knows proxies on this machine, and pages of one other site."""
    folder = tmp_path_factory.mktemp("proxies")
    settings = {"APPLIANCE_HTTP__PROXIES": '["127.0.0.1"]', "APPLIANCE_HTTP__CORS_ORIGINS": f'["{APP}"]'}
    settings["APPLIANCE_SECURITY__HOST_NAMES"] = '["box.example.org"]'
    with running_server(folder / "state", **settings) as server:
        with server.client() as client:
            brought(client, toys.tiny_add(folder / "add.onnx"), "add")
        yield server


def test_headers_of_a_named_proxy_count_for_sign_in_locations_and_audit(behind_proxies: Server) -> None:
    key = {"Authorization": f"Bearer {behind_proxies.admin_key}"}
    said = {
        "X-Forwarded-For": "198.51.100.9, 203.0.113.7",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "box.example.org",
        "X-Forwarded-Prefix": "/box",
    }
    with httpx.Client(base_url=behind_proxies.url, headers=said) as browser:
        page = browser.get("/models/add")
        signed = browser.post(
            "/v1/sign-in", json={"key": behind_proxies.admin_key}, headers={"Origin": "https://box.example.org"}
        )
        upload = browser.post("/v1/uploads", json={"length": 8}, headers=key)
        assert browser.post("/v1/tenants", json={"name": "by-proxy"}, headers=key).is_success
        records = browser.get("/v1/audit", headers=key).json()["items"]
    assert ('="/box/assets/' in page.text) == ('="/assets/' in httpx.get(behind_proxies.url).text)
    cookie = signed.headers["set-cookie"]
    assert signed.status_code == 204
    assert cookie.startswith("__Secure-appliance=")
    assert "; Path=/box/;" in cookie
    assert cookie.endswith("; Secure")
    assert upload.headers["location"].startswith("/box/v1/uploads/")
    assert records[0]["address"] == "203.0.113.7"


def test_headers_of_a_proxy_that_is_not_named_are_not_read(tmp_path: Path) -> None:
    with running_server(tmp_path / "state") as server:
        key = {"Authorization": f"Bearer {server.admin_key}"}
        said = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Prefix": "/evil", "Origin": APP}
        with httpx.Client(base_url=server.url, headers={**said, **key}) as caller:
            upload = caller.post("/v1/uploads", json={"length": 8})
            assert caller.post("/v1/tenants", json={"name": "by-nobody"}).is_success
            assert caller.get("/v1/audit").json()["items"][0]["address"] == "127.0.0.1"
        assert upload.headers["location"].startswith("/v1/uploads/")
        assert "access-control-allow-origin" not in upload.headers
        asked = {"Origin": APP, "Access-Control-Request-Method": "POST"}
        assert httpx.options(f"{server.url}/v1/models", headers=asked).status_code == 405


@pytest.mark.parametrize("path", ["/v1/models", "/v2/models/add/infer", "/v2/health/ready", "/v1/nowhere"])
def test_pages_of_a_named_site_may_call_the_box_and_others_may_not(behind_proxies: Server, path: str) -> None:
    """Refusals, too, can be read by the page."""
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    for origin, allowed in ((APP, APP), ("https://evil.example.org", None)):
        preflight = httpx.options(behind_proxies.url + path, headers={"Origin": origin, **asked})
        answer = httpx.get(behind_proxies.url + path, headers={"Origin": origin})
        assert (preflight.status_code == 204) == (allowed is not None)
        assert preflight.headers.get("access-control-allow-origin") == allowed
        assert answer.headers.get("access-control-allow-origin") == allowed


@pytest.mark.parametrize("program", ["nginx", "caddy"])
@pytest.mark.nightly("proxies of other packages")
def test_box_below_a_path_of_a_real_proxy_does_all_it_does(
    behind_proxies: Server, program: str, tmp_path: Path, digits: zoo_toys.Digits
) -> None:
    key = behind_proxies.admin_key
    with behind_proxies.client() as client:
        metadata = json.loads(digits.metadata.read_text()) | {"precisions": []}
        brought(client, digits.model, f"digits-{program}", "image-classification", metadata=metadata)
    picture = cv2.imread(str(min(digits.evaluation.glob("*.png"))))
    assert picture is not None
    with proxied(program, behind_proxies.url, tmp_path / program) as url, httpx.Client(timeout=60) as caller:
        caller.headers["Authorization"] = f"Bearer {key}"
        page = caller.get(f"{url}/")
        for path in re.findall(r'(?:src|href)="(/box/assets/[^"]+)"', page.text):
            assert caller.get(url.removesuffix("/box") + path).status_code == 200
        docs = caller.get(f"{url}/docs").text
        for path in re.findall(r'(?:src|href)="(docs/[^"]+)"', docs):
            assert caller.get(f"{url}/{path}").status_code == 200
        upload = caller.post(f"{url}/v1/uploads", json={"length": 8})
        assert caller.get(url.removesuffix("/box") + upload.headers["location"]).status_code == 200
        asked = {"inputs": [{"name": n, "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]} for n in ("A", "B")]}
        answer = caller.post(f"{url}/v2/models/add/infer", json=asked)
        assert answer.json()["outputs"][0]["data"] == [2, 4, 6, 8]
        with caller.stream("GET", f"{url}/v1/events") as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            assert caller.post(f"{url}/v1/tenants", json={"name": f"by-{program}"}).is_success
            assert next(line for line in events.iter_lines() if line)
        promise = Latency(slo_ms=20_000, rate_rps=5)
        with Device(Box(url, key), f"digits-{program}", fps=5, promise=promise) as device:
            until(lambda: device.see(picture).answer is not None, "a result of the session")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no address of IPv6")
def test_box_at_all_addresses_listens_for_both_families(tmp_path: Path) -> None:
    with running_server(tmp_path / "state", APPLIANCE_HTTP__HOST="[::]") as server:
        port = server.url.rsplit(":", 1)[1]
        for host in ("127.0.0.1", "[::1]"):
            assert httpx.get(f"http://{host}:{port}/v2/health/ready").status_code == 200
