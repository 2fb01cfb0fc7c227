"""Uploads in pieces over HTTP."""

from collections.abc import Iterator

import pytest

from tests.api.stand import Asking, Stand

pytestmark = pytest.mark.anyio


async def begun(stand: Stand, length: int | None = 10) -> str:
    answer = await stand.client("harbour").post("/v1/uploads", json={"length": length})
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/uploads/{answer.json()['id']}"
    return str(answer.json()["id"])


async def test_upload_pieces_go_on_at_the_offset_of_the_box(stand: Stand) -> None:
    """Each answer tells the offset; HEAD tells it too; a wrong offset is 409 with the right one as a fact."""
    harbour, upload = stand.client("harbour"), await begun(stand)
    first = await harbour.patch(f"/v1/uploads/{upload}", content=b"01234", headers={"Upload-Offset": "0"})
    assert (first.json()["offset"], first.json()["complete"], first.headers["upload-offset"]) == (5, False, "5")
    wrong = await harbour.patch(f"/v1/uploads/{upload}", content=b"01234", headers={"Upload-Offset": "0"})
    assert (wrong.status_code, wrong.json()["expected_offset"]) == (409, 5)
    head = await harbour.head(f"/v1/uploads/{upload}")
    assert (head.headers["upload-offset"], head.headers["upload-length"], head.content) == ("5", "10", b"")
    last = await harbour.patch(f"/v1/uploads/{upload}", content=b"56789", headers={"Upload-Offset": "5"})
    assert last.json()["complete"] is True
    assert (stand.state_dir / "uploads" / upload).read_bytes() == b"0123456789"
    assert (await harbour.delete(f"/v1/uploads/{upload}")).status_code == 200
    assert (await harbour.get(f"/v1/uploads/{upload}")).status_code == 404
    assert not (stand.state_dir / "uploads" / upload).exists()


async def test_upload_keeps_the_bytes_before_a_lost_connection(stand: Stand) -> None:
    """The caller hangs up in the middle of a piece."""
    upload = await begun(stand, None)
    headers = {"Authorization": f"Bearer {stand.keys['harbour']}", "Upload-Offset": "0"}

    def body() -> Iterator[bytes]:
        yield b"x" * 70_000
        raise ConnectionResetError

    async with Asking(stand.appliance.asgi, "PATCH", f"/v1/uploads/{upload}", headers, body()):
        pass
    shown = (await stand.client("harbour").get(f"/v1/uploads/{upload}")).json()
    assert shown["offset"] == 70_000


async def test_upload_piece_without_an_offset_is_refused_by_header(stand: Stand) -> None:
    answer = await stand.client("harbour").patch(f"/v1/uploads/{await begun(stand)}", content=b"x")
    assert answer.status_code == 422
    assert "upload-offset" in answer.json()["detail"].lower()


async def test_uploads_that_are_open_are_listed_in_pages(stand: Stand) -> None:
    """The tenant's own."""
    made = {await begun(stand) for _ in range(3)}
    harbour = stand.client("harbour")
    page = (await harbour.get("/v1/uploads?limit=2")).json()
    rest = (await harbour.get("/v1/uploads", params={"cursor": page["next_cursor"]})).json()
    assert {one["id"] for one in page["items"] + rest["items"]} == made
    assert rest["next_cursor"] is None


async def test_upload_above_the_quota_of_stored_bytes_is_told_limit_use_and_need(stand: Stand) -> None:
    """However it comes: announced, in a piece of unknown length, as a form. Waiting does not help, so it is not
    advised.
    """
    harbour = stand.client("harbour")
    used = (await stand.client().get("/v1/tenants/harbour")).json()["use"]["stored_bytes"]
    limit = used + 1000
    await stand.client().put("/v1/tenants/harbour", json={"quota": {"stored_bytes": limit}})
    announced = await harbour.post("/v1/uploads", json={"length": 100_000})
    upload = await begun(stand, None)
    await harbour.patch(f"/v1/uploads/{upload}", content=b"x" * 400, headers={"Upload-Offset": "0"})
    piece = await harbour.patch(f"/v1/uploads/{upload}", content=b"x" * 700, headers={"Upload-Offset": "400"})
    order = {"name": "x", "task": "tensor"}
    form = await harbour.post("/v1/models", data=order, files={"file": ("x.onnx", b"y" * 2000)})
    for answer, taken, needed in ((announced, used, 100_000), (piece, used + 400, 700), (form, used + 400, 2000)):
        refused = answer.json()
        assert (answer.status_code, refused["quota"]) == (429, "stored_bytes")
        assert (refused["limit"], refused["used"], refused["needed"]) == (limit, taken, needed)
        assert f"{limit} stored bytes: {taken} are used, and this needs {needed}" in refused["detail"]
        assert refused["retry_after_s"] is None
        assert "retry-after" not in answer.headers
