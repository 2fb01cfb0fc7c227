"""The live wall in the browser: allowed by the tenant, drawn while it is looked at, forgotten when it is left."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import httpx
import numpy as np
import pytest

from tests.browser.axe import violations
from tests.browser.conftest import MODEL, SHOTS, WIDTHS, Box, Tab, always_there
from tests.e2e.polling import until

PROMISE = {"kind": "latency", "slo_ms": 30_000, "rate_rps": 5}
DETECTOR = "ships"
GREY, YELLOW = [40, 40, 40], [255, 210, 63]


@pytest.fixture(scope="module")
def sea(box: Box, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture in which the box's detector sees a ship."""
    folder = tmp_path_factory.mktemp("sea")
    network = always_there(folder / "there.onnx", centre=(32, 32), size=(40, 24))
    with box.server.client() as admin:
        metadata = {"decoder": "yolov8", "labels": ["ship"], "precisions": []}
        job = admin.upload_model(network, DETECTOR, "object-detection", metadata=metadata)
        assert [step.state for step in admin.follow_job(job.id)][-1] == "done"
    picture = folder / "sea.png"
    assert cv2.imwrite(str(picture), np.full((64, 64, 3), 40, np.uint8))
    return picture


def operator(box: Box) -> httpx.Client:
    headers = {"Authorization": f"Bearer {box.server.admin_key}"}
    return httpx.Client(base_url=box.server.url, headers=headers, timeout=120)


@contextmanager
def streaming(box: Box, application: str, name: str, picture: Path) -> Iterator[str]:
    """A device that posts the picture again and again; its session's id."""
    over, failed = threading.Event(), []
    with operator(box) as device:
        order = {"application": application, "name": name, "fps": 5, "promise": PROMISE}
        session: str = device.post("/v1/sessions", json=order).raise_for_status().json()["id"]

        def send() -> None:
            number = 0
            while not over.wait(0.2):
                path, number = f"/v1/sessions/{session}/frames", number + 1
                answer = device.post(path, content=picture.read_bytes(), headers={"X-Frame": str(number)})
                if answer.status_code != 200:
                    failed.append(answer.text)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield session
        finally:
            over.set()
            thread.join()
            device.delete(f"/v1/sessions/{session}")
    assert failed == []


@pytest.mark.parametrize("shape", WIDTHS)
def test_wall_draws_last_frames_once_the_tenant_allows_it_and_until_it_is_left(
    tab: Tab, box: Box, sea: Path, shape: str
) -> None:
    with operator(box) as admin, tab("/wall", shape=shape) as page:
        admin.put("/v1/wall/viewers", json={"viewers": "nobody"}).raise_for_status()
        page.get_by_text("Nobody may look at the frames").wait_for()
        assert violations(page) == []
        page.screenshot(path=SHOTS / f"wall-closed-{shape}.png", full_page=True)
        page.get_by_label("Keys of this tenant", exact=True).check()
        page.get_by_role("button", name="Save").click()
        page.get_by_text("No stream at the moment").wait_for()
        with streaming(box, DETECTOR, "quay", sea) as session, streaming(box, MODEL, "", box.picture):
            tile = page.get_by_role("region", name="quay")
            tile.get_by_role("img", name="Last frame of quay: ship 90 %").wait_for()
            canvas = tile.locator("canvas")
            pixel = "(one, [x, y]) => [...one.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3)"
            assert canvas.evaluate(pixel, [52, 40]) == YELLOW  # the right edge of the box
            assert canvas.evaluate(pixel, [32, 36]) == GREY  # inside
            until(lambda: page.locator("main canvas").count() == 2, "the other stream")
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[shape][0]
            assert violations(page) == []
            page.screenshot(path=SHOTS / f"wall-{shape}.png", full_page=True)
            frame = f"/v1/wall/{session}/frame"
            assert admin.get(frame).content == sea.read_bytes()
            with page.expect_request(lambda asked: asked.method == "DELETE" and asked.url.endswith("/v1/wall")):
                page.evaluate("document.querySelector('.side nav a[href=\"/box\"]').click()")
            page.get_by_role("heading", name="Box", level=1).wait_for()
            until(lambda: admin.get(frame).status_code == 404, "the end of the frame")


def test_operator_reads_on_the_wall_whom_to_ask(tab: Tab, box: Box) -> None:
    """Of a tenant that shows its frames to nobody, or to itself only."""
    with tab("/wall?tenant=harbour") as page:
        page.get_by_text("A key of the tenant harbour can allow it").wait_for()
        assert page.get_by_role("radio").count() == 0
        assert page.get_by_role("button", name="Who may look").count() == 0
