"""Keys that are revoked while a body comes: the request ends, and changes nothing."""

import httpx
import pytest

from tests.attacks.wire import head, wire
from tests.e2e.server import Server

pytestmark = pytest.mark.usefixtures("processes", "ports")
UPLOADED = b"x" * 200_000
ORDERS = {
    "PATCH /v1/applications/adding": b'{"latency_slo_ms": 77}' + b" " * 200_000,
    "PUT /v1/tenants/late": b'{"quota": {"weight": 7}}' + b" " * 200_000,
    "POST /v1/tenants/late/keys": b"{}" + b" " * 200_000,
    "POST /v2/repository/models/adding/unload": b"{}" + b" " * 200_000,
    "POST /v2/models/adding/infer": b"{}" + b" " * 2_000_000,
    "PATCH upload": UPLOADED,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("is_announced", [True, False])
def test_request_with_key_revoked_amid_its_body_changes_nothing(
    furnished_server: Server, order: str, is_announced: bool
) -> None:
    """401, whether the length of the body is stated or not."""
    headers = {"Authorization": f"Bearer {furnished_server.admin_key}"}
    with httpx.Client(base_url=furnished_server.url, headers=headers, timeout=120) as admin:
        admin.post("/v1/tenants", json={"name": "late"})
        made = admin.post("/v1/tenants/default/keys", json={"role": "admin"}).raise_for_status().json()
        upload = admin.post("/v1/uploads", json={}).raise_for_status().json()["id"]
        method, path = order.split()
        path = f"/v1/uploads/{upload}" if path == "upload" else path
        before = state(admin)
        body = ORDERS[order]
        framing = {"content_length": len(body)} if is_announced else {"transfer_encoding": "chunked"}
        first, rest = body[: len(body) // 2], body[len(body) // 2 :]
        pieces = [first, rest] if is_announced else [b"%x\r\n%b\r\n" % (len(one), one) for one in (first, rest)]
        with wire(furnished_server.url) as sender:
            sender.send(head("GET", "/v1/applications", made["key"]))
            assert sender.answer()[0] == 200
            sender.send(head(method, path, made["key"], upload_offset=0, **framing) + pieces[0])
            admin.delete(f"/v1/tenants/default/keys/{made['id']}").raise_for_status()
            sender.send(pieces[1] if is_announced else pieces[1] + b"0\r\n\r\n")
            assert sender.answer()[0] == 401
        assert state(admin) == before
        assert admin.get(f"/v1/uploads/{upload}").json()["offset"] < len(UPLOADED)


def state(admin: httpx.Client) -> list[object]:
    """Whatever these orders would change."""
    application = admin.get("/v1/applications/adding").json()["latency_slo_ms"]
    keys = len(admin.get("/v1/tenants/late/keys").json()["items"])
    index = admin.post("/v2/repository/index", json={}).json()
    return [application, admin.get("/v1/tenants/late").json()["quota"], keys, index]
