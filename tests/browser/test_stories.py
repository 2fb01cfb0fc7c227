"""What the owner of a box, a tenant's developer and somebody with a phone do in the browser, on a real box."""

import json
import re
import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import cv2
import httpx
import numpy as np
import pytest

from appliance.demo.zoo import toys
from appliance.wire.access import KeyOrder
from tests.browser.axe import violations
from tests.browser.conftest import HOSTILE, MODEL, SHOTS, TURNED, WIDTHS, Box, always_there, archive, sign_in
from tests.browser.pages import PAGES
from tests.e2e.polling import until
from tests.e2e.server import running_server

Tab = Callable[..., AbstractContextManager[Any]]
EARLIEST, LATEST = "Pacific/Kiritimati", "Pacific/Pago_Pago"
"""Zones of time 25 hours apart."""
PIECE_BYTES = 4 * 2**20


def acts_for(page: Any) -> Any:
    """Where an admin chooses the tenant to act for."""
    return page.locator("header.side label", has_text="Tenant").locator("select")


@pytest.mark.parametrize("shape", WIDTHS)
def test_pages_have_heading_menu_link_and_no_accessibility_faults(tab: Tab, box: Box, shape: str) -> None:
    """Each by its address: nothing to scroll sideways for, nothing that axe finds in either theme."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[str]] = {}
    with tab(key=None, shape=shape) as page:
        found["sign in"] = violations(page)
        sign_in(page, box.server.admin_key)
        for path, name in PAGES.items():
            page.goto(box.server.url + path)
            page.get_by_role("heading", name=name, level=1, exact=True).wait_for()
            page.locator("main .card").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[shape][0], path
            file = path.strip("/").replace("/", "-") or "overview"
            page.screenshot(path=SHOTS / f"{file}-{shape}.png", full_page=True)
            found[path] = violations(page)
            page.emulate_media(color_scheme=WIDTHS[shape][1])
        for name in (
            "Overview",
            "Models",
            "Applications",
            "Pipelines",
            "Memory",
            "Sessions",
            "Live wall",
            "Tenants and keys",
            "Processors",
            "What if",
            "Box",
        ):
            if shape == "phone":
                page.get_by_role("button", name="Menu").click()
            link = page.get_by_role("navigation").get_by_role("link", name=name, exact=True)
            assert link.locator("path").get_attribute("d"), f"{name} has no icon"
            link.click()
            page.get_by_role("heading", name=name, level=1, exact=True).wait_for()
    assert {path: said for path, said in found.items() if said} == {}


@pytest.mark.gate("one of the two stories of the browser in the gate")
def test_sign_in_survives_a_reload_and_keeps_no_key_in_the_browser(tab: Tab, box: Box) -> None:
    """A wrong key says what to do; after signing out the page asks for a key."""
    with tab(key=None) as page:
        page.get_by_label("Key", exact=True).fill("ea_wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").get_by_text("unknown, expired or revoked").wait_for()
        sign_in(page, box.server.admin_key)
        page.reload()
        page.get_by_role("heading", name="Overview").wait_for()
        kept = page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])")
        assert box.server.admin_key not in kept
        assert "appliance" not in json.loads(kept)[2]
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="Sign in").wait_for()
        page.reload()
        page.get_by_role("heading", name="Sign in").wait_for()


@pytest.mark.parametrize("shape", WIDTHS)
def test_overview_shows_health_checks_and_latest_events(tab: Tab, shape: str) -> None:
    """Health at the first look, and each check by a click."""
    with tab(shape=shape) as page:
        page.get_by_role("heading", name="Health").wait_for()
        page.get_by_text("checks passed").click()
        page.get_by_text("requests are answered, and no run is stuck").wait_for()
        page.get_by_role("heading", name="Latest events").wait_for()
        page.get_by_text("variant loaded").first.wait_for()


def test_overview_shows_equal_events_once_with_their_number_and_severity(tab: Tab, box: Box) -> None:
    """Sixteen failures of one variant, and news of another, which asks for nothing."""

    def event(id: int, name: str, severity: str) -> str:
        facts = {"application": "default/door", "reason": f"attempt {id}"}
        told = {"id": id, "at": f"2026-05-01T13:01:{id:02}+00:00", "event": name, "severity": severity}
        return f"id: {id}\nevent: {name}\ndata: {json.dumps(told | {'tenant': None, 'facts': facts})}\n\n"

    bodies = ["".join(event(id, "variant load failed", "error") for id in range(1, 17)) + event(17, "news", "info")]
    with tab(key=None, zone="UTC") as page:
        page.route(
            "**/v1/events*",
            lambda route: route.fulfill(content_type="text/event-stream", body=bodies.pop() if bodies else ": \n\n"),
        )
        sign_in(page, box.server.admin_key)
        rows = page.locator("ul.log li")
        rows.get_by_text("16 times since 13:01:01 · reason attempt 16").wait_for()
        assert (rows.count(), rows.locator(".badge").all_inner_texts()) == (2, ["error"])


def test_overview_and_memory_page_show_one_account_of_memory(tab: Tab, box: Box) -> None:
    """Guards beside the models have a name and a part on both; a variant that is in memory is never called absent."""

    def with_guards(route: Any) -> None:
        shown = route.fetch().json()
        shown |= {"used_bytes": shown["used_bytes"] + 90_000_000, "overhead_bytes": 90_000_000}
        shown["beside"] = [{"of": "guards", "bytes": 90_000_000}]
        for one in shown["residency"]["applications"]:
            one["resident"] = None
        route.fulfill(json=shown)

    with tab(key=None) as page:
        page.route("**/v1/memory", with_guards)
        sign_in(page, box.server.admin_key)
        parts = []
        for path in ("/", "/memory"):
            page.goto(box.server.url + path)
            page.get_by_text("guards 90 MB").first.wait_for()
            parts.append(page.locator("ul.key").first.inner_text().splitlines())
        assert [part.split()[-2:] for part in parts[0]] == [part.split()[-2:] for part in parts[1]]
        row = page.get_by_role("row", name=f"{MODEL} closed").or_(page.get_by_role("row", name=f"{MODEL} open"))
        assert "fp32" in row.first.inner_text()


def test_application_page_folds_decisions_on_a_phone_and_opens_one_where_it_was_clicked(tab: Tab, box: Box) -> None:
    """Of 25 long decisions a phone shows four, and the page stays short; the figures stand in the row of the click."""

    def decided(id: int) -> dict[str, Any]:
        reason = f"attempt {id} did not find room. " + "Some figures follow here. " * 20
        made = {
            "id": str(id),
            "at": "2026-05-01T13:01:00+00:00",
            "kind": "residency",
            "application": f"default/{MODEL}",
        }
        return made | {"reason": reason, "concerned": [], "problem": {"asked": id}, "answer": {"found": id}}

    def answered(route: Any) -> None:
        place = route.request.url.partition("/v1/decisions")[2]
        listed = {"items": [decided(id) for id in range(25, 0, -1)], "next_cursor": None}
        route.fulfill(json=decided(int(place[1:])) if place.startswith("/") else listed)

    with tab(key=None, shape="phone") as page:
        page.route("**/v1/decisions*", answered)
        page.route("**/v1/decisions/*", answered)
        sign_in(page, box.server.admin_key)
        page.goto(f"{box.server.url}/applications/{MODEL}")
        rows = page.get_by_role("row").filter(has_text="did not find room")
        rows.first.wait_for()
        assert rows.count() == 4
        assert page.evaluate("document.documentElement.scrollHeight") <= 4000
        row = rows.filter(has_text="attempt 24")
        row.locator("summary").first.click()
        row.get_by_text("What was decided").click()
        row.get_by_text('"found": 24').wait_for()
        page.get_by_role("button", name="Show all 25").click()
        until(lambda: rows.count() == 25, "all decisions")
        assert page.url.endswith(f"/applications/{MODEL}")


def test_page_asks_the_box_once_when_it_opens(tab: Tab, box: Box) -> None:
    """Also where the line to the box begins with events that are older than the page. The choice of a tenant and the
    menu ask for the list of tenants once each; the page asks for the system every few seconds.
    """
    with tab(key=None) as page:
        sign_in(page, box.server.admin_key)
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url.partition("/v1/")[2].partition("?")[0]))
        page.goto(box.server.url)
        page.locator(".log li").first.wait_for()  # the line has begun
        with page.expect_response("**/v1/system"):
            pass
        assert asked.count("tenants") == 2


def test_browser_import_resumes_after_broken_upload_and_reload(tab: Tab, box: Box, tmp_path: Path) -> None:
    """In pieces; the connection breaks, the page is loaded anew, the same file is chosen, and the upload goes on."""
    name = "numerals"
    file = archive(box.digits, tmp_path / f"{name}.zip", padding_bytes=3 * PIECE_BYTES)
    offsets: list[int] = []

    def pass_or_break(route: Any) -> None:
        offset = int(route.request.headers.get("upload-offset", "-1"))
        offsets.append(offset)
        if offset == PIECE_BYTES and offsets.count(offset) == 1:
            route.abort()
        elif offset == 2 * PIECE_BYTES and offsets.count(offset) == 1:
            page.evaluate("setTimeout(() => location.reload())")
            route.abort()
        else:
            route.continue_()

    with tab("/models") as page:
        page.route(
            "**/v1/uploads/*",
            lambda route: pass_or_break(route) if route.request.method == "PATCH" else route.continue_(),
        )
        chooser = page.get_by_label("ONNX file, or an archive with one")
        chooser.set_input_files(file)
        assert page.get_by_label("Name of the model").input_value() == name
        page.get_by_label("What it does").select_option("image-classification")
        page.get_by_role("button", name="Import", exact=True).click()
        page.get_by_text(f"The upload of {name}.zip stopped at").wait_for()
        page.get_by_label("ONNX file, or an archive with one").set_input_files(file)
        assert page.get_by_label("What it does").input_value() == "image-classification"
        page.get_by_role("button", name="Import", exact=True).click()
        page.get_by_role("link", name=name).first.click()
        page.get_by_role("heading", name=name, level=1).wait_for()
        page.locator("tbody tr", has_text="int8").get_by_text("ready").wait_for(timeout=240_000)
        page.get_by_role("img", name="Accuracy over latency").wait_for()
    assert offsets[0] == 0
    assert offsets.count(0) == 1
    assert offsets.count(PIECE_BYTES) == 2
    assert offsets.count(2 * PIECE_BYTES) == 2


@pytest.mark.gate("one of the two stories of the browser in the gate")
@pytest.mark.parametrize("shape", WIDTHS)
def test_application_page_sends_a_picture_file_and_a_camera_frame(tab: Tab, box: Box, shape: str) -> None:
    """Which variant answered, what the answer took, and the command for a terminal."""
    with tab(f"/applications/{MODEL}", shape=shape) as page:
        page.get_by_label("Picture, sound, text or tensors").set_input_files(box.picture)
        page.get_by_text("answered, ").wait_for()
        page.get_by_role("img", name="Took").wait_for()
        page.get_by_text("The same from a terminal").click()
        said = page.locator("pre").filter(has_text="curl").inner_text()
        assert f"/v1/applications/{MODEL}/predict" in said
        assert "$APPLIANCE_KEY" in said
        page.get_by_role("tab", name="Camera").click()
        page.get_by_role("button", name="Start the camera").click()
        until(lambda: page.locator("video").evaluate("one => one.videoWidth") > 0, "the camera's first picture")
        with page.expect_response("**/predict*") as answered:
            page.get_by_role("button", name="Take and send").click()
        assert answered.value.status == 200
        assert answered.value.request.headers["content-type"] == "image/jpeg"


def test_detected_boxes_are_drawn_into_the_picture(tab: Tab, box: Box, tmp_path: Path) -> None:
    """Where the model says: here always the same place."""
    network = always_there(tmp_path / "there.onnx", centre=(32, 32), size=(40, 24))
    with box.server.client() as admin:
        metadata = {"decoder": "yolov8", "labels": ["ship"], "precisions": []}
        job = admin.upload_model(network, "ships", "object-detection", metadata=metadata)
        assert [step.state for step in admin.follow_job(job.id)][-1] == "done"
    picture = tmp_path / "sea.png"
    assert cv2.imwrite(str(picture), np.full((64, 64, 3), 40, np.uint8))
    with tab("/applications/ships") as page:
        page.get_by_label("Picture, sound, text or tensors").set_input_files(picture)
        page.get_by_role("cell", name="ship", exact=True).wait_for()  # decisions about "ships" have cells, too
        page.locator(".picture canvas").wait_for()
        drawn = "document.querySelector('.picture canvas')"
        pixel = f"([x, y]) => [...{drawn}.getContext('2d').getImageData(x, y, 1, 1).data]"
        assert page.evaluate(pixel, [52, 40])[:3] == [255, 210, 63]  # the right edge
        assert page.evaluate(pixel, [32, 36])[:3] == [40, 40, 40]  # inside


def test_hostile_names_and_labels_are_shown_as_text(tab: Tab, box: Box, tmp_path: Path) -> None:
    """Labels of a model, and of a key, that look like a page's own code or break no line; and the name of a file that a
    terminal would run. A label that turns words round is refused.
    """
    with box.server.client() as admin:
        metadata = json.loads(box.digits.metadata.read_text())
        metadata |= {"labels": [HOSTILE] * 10, "precisions": []}
        job = admin.upload_model(box.digits.model, "hostile", "image-classification", metadata=metadata)
        for _ in admin.follow_job(job.id):
            pass
        for label in (HOSTILE, "w" * 200):
            admin.create_key("default", KeyOrder(label=label))
        with pytest.raises(ValueError, match="mark of direction"):
            admin.create_key("default", KeyOrder(label=TURNED))
    picture = tmp_path / "it's $(touch taken).png"
    picture.write_bytes(box.picture.read_bytes())
    with tab("/applications/hostile", shape="phone") as page:
        page.get_by_label("Picture, sound, text or tensors").set_input_files(picture)
        page.get_by_role("cell", name=HOSTILE).first.wait_for()
        page.get_by_text("The same from a terminal").click()
        said = page.locator("pre").filter(has_text="curl").inner_text()
        assert shlex.split(said)[-1] == f"@{picture.name}"
        page.goto(f"{box.server.url}/tenants/default")
        page.locator("td", has_text=HOSTILE).first.wait_for()
        assert page.locator("main img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS["phone"][0]
        assert "taken" not in page.title()


def _read_code(picture: "cv2.typing.MatLike") -> str:
    """What a QR code says. OpenCV does not find every key's code at every size, as cameras do that move."""
    for scale in (1.0, 2.0, 3.0, 1.5, 0.75):
        seen = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST)
        if text := cv2.QRCodeDetector().detectAndDecode(seen)[0]:
            return text
    raise AssertionError("no code that can be read")


@pytest.mark.parametrize("shape", WIDTHS)
def test_device_key_is_shown_once_with_qr_code_and_can_be_revoked(tab: Tab, box: Box, shape: str) -> None:
    """Shown once, as text and as a QR code that a camera reads; it works; and it is revoked."""
    label = f"glasses of {shape}"
    with tab("/tenants/default", shape=shape) as page:
        page.get_by_role("combobox", name="Application").select_option(MODEL)
        page.get_by_label("Where it is used").fill(label)
        page.get_by_role("button", name="Make the key").click()
        code = page.get_by_role(
            "img", name="The key with address, application and fingerprint of the box, as a QR code"
        )
        picture = cv2.imdecode(np.frombuffer(code.screenshot(), np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None
        told = json.loads(_read_code(picture))
        assert (told["url"], told["application"], told["fingerprint"]) == (box.server.url, MODEL, None)
        assert page.locator("pre").first.inner_text() == told["key"]
        with box.server.client(told["key"]) as device:
            assert device.predict(MODEL, box.picture).variant
        page.get_by_role("button", name="I have it").click()
        page.goto(f"{box.server.url}/tenants/default?tenant=harbour")
        page.get_by_role("combobox", name="Application").locator("option", has_text=MODEL).wait_for(state="attached")
        assert told["key"] not in page.content()
        page.get_by_role("button", name=f"Revoke {label}").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("stops working at once").wait_for()
        dialog.get_by_role("button", name="Revoke").click()
        page.get_by_role("button", name=f"Revoke {label}").wait_for(state="detached")


def test_model_delete_dialog_names_the_applications_lost(tab: Tab, box: Box) -> None:
    """Cancelled, it deletes nothing."""
    with tab(f"/models/{MODEL}") as page:
        page.get_by_role("button", name="Delete", exact=True).first.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("These applications are deleted, too: digits").wait_for()
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        with box.server.client() as admin:
            assert admin.model(MODEL).name == MODEL


@pytest.mark.parametrize("shape", WIDTHS)
def test_tenant_page_sets_memory_guarantee_and_ceiling(tab: Tab, box: Box, shape: str) -> None:
    """In three clicks from the first page; too much says what to do."""
    with tab(shape=shape) as page:
        page.get_by_role("heading", name="Memory").get_by_role("link").click()
        page.get_by_role("heading", name="default", exact=True).get_by_role("link").click()
        page.get_by_role("heading", name="default", level=1).wait_for()
        page.get_by_role("button", name="Change the quota").click()
        page.get_by_label("Memory guaranteed, MB").fill("99999999")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("alert").wait_for()
        page.get_by_label("Memory guaranteed, MB").fill("64")
        page.get_by_label("Memory at most, MB").fill("128")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("Saved.").wait_for()
        with box.server.client() as admin:
            quota = admin.tenant("default").quota
            assert (quota.memory_guarantee_bytes, quota.memory_ceiling_bytes) == (64e6, 128e6)
        page.get_by_role("button", name="Change the quota").click()
        page.get_by_label("Memory guaranteed, MB").fill("")
        page.get_by_label("Memory at most, MB").fill("")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("Saved.").wait_for()
        guaranteed = page.locator("dl div", has_text="Memory guaranteed, MB")
        guaranteed.get_by_text("nothing", exact=True).wait_for()


def test_application_page_warns_of_an_slo_that_no_variant_keeps(tab: Tab) -> None:
    """Until the SLO is taken away again."""
    with tab(f"/applications/{MODEL}") as page:
        page.get_by_role("button", name="Change the promises").click()
        page.get_by_label("Latency SLO, ms").fill("0.01")
        page.get_by_role("button", name="Save").click()
        told = page.get_by_text(re.compile(r"no variant (surely )?keeps 0\.01 ms"))  # on a quick machine it may just
        told.first.wait_for()
        page.get_by_role("button", name="Change the promises").click()
        page.get_by_label("Latency SLO, ms").fill("")
        page.get_by_role("button", name="Save").click()
        told.wait_for(state="detached")


def test_tenant_chosen_last_is_shown_again(tab: Tab, box: Box) -> None:
    """Also the admin's own tenant; an address that names a tenant, or a resource, is followed."""
    with tab("/models") as page:
        chosen = acts_for(page)
        for tenant, query in (("harbour", "?tenant=harbour"), ("default", "")):
            chosen.select_option(tenant)
            page.goto(f"{box.server.url}/models")
            page.wait_for_url(f"{box.server.url}/models{query}")
            page.wait_for_function("name => document.querySelector('header.side select')?.value === name", arg=tenant)
        chosen.select_option("harbour")
        page.goto(f"{box.server.url}/models/{MODEL}")
        page.get_by_role("heading", name=MODEL, level=1).wait_for()
        assert "tenant=" not in page.url


@pytest.mark.usefixtures("ports", "processes")
def test_models_page_of_an_empty_admin_tenant_shows_the_first_with_models(
    chromium: Any, digits: toys.Digits, tmp_path: Path
) -> None:
    """For the admin's own tenant is empty on a box that has tenants."""
    with running_server(tmp_path / "state") as server:
        with server.client() as admin:
            for tenant in ("airport", "harbour"):
                admin.create_tenant(tenant)
            key = admin.create_key("harbour", KeyOrder()).key
        with server.client(key) as own:
            own.upload_model(digits.model, MODEL, "image-classification", metadata={"precisions": []})
        page = chromium.new_context().new_page()
        page.goto(f"{server.url}/models")
        sign_in(page, server.admin_key)
        page.get_by_role("link", name=MODEL).first.wait_for()
        assert acts_for(page).input_value() == "harbour"
        page.context.close()


def test_pages_with_a_tenant_key_show_that_tenant_only(tab: Tab, box: Box) -> None:
    """No control that the key may not use, and nothing behind the addresses of other tenants."""
    with tab(key=box.tenant_key) as page:
        page.get_by_role("heading", name="First steps").wait_for()
        assert acts_for(page).count() == 0
        page.goto(f"{box.server.url}/tenants")
        page.get_by_role("link", name="harbour").wait_for()
        assert page.get_by_role("button", name="Make", exact=True).count() == 0
        page.goto(f"{box.server.url}/tenants/default")
        page.get_by_role("alert").get_by_text("No such tenant").wait_for()
        page.goto(f"{box.server.url}/models/{MODEL}?tenant=default")
        page.get_by_role("alert").wait_for()
        assert page.get_by_text("over latency").count() == 0


@pytest.mark.parametrize("path", ["/models/{}", "/applications/{}"])
def test_pages_of_model_without_labels_show_agreement_and_no_accuracy(tab: Tab, path: str) -> None:
    with tab(path.format(MODEL)) as page:
        page.get_by_text("greement with fp32").first.wait_for()
        assert "accura" not in page.locator("main").inner_text().lower()


def test_form_keeps_its_input_when_the_key_is_revoked(tab: Tab, box: Box) -> None:
    """The sign-in comes over the page; behind it nothing is lost."""
    with box.server.client() as admin:
        made = admin.create_key("harbour", KeyOrder())
        with tab("/tenants/harbour", key=made.key) as page:
            page.get_by_label("Where it is used").fill("half a sentence")
            admin.revoke_key("harbour", made.id)
            page.get_by_role("button", name="Make the key").click()
            page.get_by_text("Your sign-in has ended").wait_for()
            sign_in(page, box.tenant_key)
            page.get_by_text("Your sign-in has ended").wait_for(state="detached")
            assert page.get_by_label("Where it is used").input_value() == "half a sentence"


@pytest.mark.parametrize("shape", WIDTHS)
def test_history_page_shows_requests_and_p99_of_hour_and_month(tab: Tab, shape: str) -> None:
    """With their tables; the address says which."""
    with tab(shape=shape) as page:
        page.get_by_role("heading", name="What happened").wait_for()
        page.get_by_role("img", name="Requests a second").locator("canvas").wait_for()
        page.get_by_text("Requests a second: as a table").click()
        page.get_by_role("columnheader", name="Requests a second", exact=True).wait_for()
        page.get_by_role("button", name="Month").click()
        page.get_by_role("combobox", name="Of", exact=True).select_option(MODEL)
        page.get_by_role("img", name="P99 against the SLO").locator("canvas").wait_for()
        assert "span=month" in page.url
        assert f"of={MODEL}" in page.url
        page.reload()
        assert page.get_by_role("button", name="Month").get_attribute("aria-pressed") == "true"
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[shape][0]


def test_memory_page_shows_loads_and_unloads_without_a_reload(tab: Tab, box: Box, tmp_path: Path) -> None:
    """A model leaves and comes back; both changes are in the chart and its table; a click shows the nearest change. No
    other model has the same network, so that it does leave.
    """
    name = "boats"
    network = always_there(tmp_path / "boats.onnx", centre=(20, 30), size=(10, 12))
    with box.server.client() as admin:
        metadata = {"decoder": "yolov8", "labels": ["boat"], "precisions": []}
        job = admin.upload_model(network, name, "object-detection", metadata=metadata)
        assert [step.state for step in admin.follow_job(job.id)][-1] == "done"
    with tab("/memory") as page:
        page.get_by_role("img", name="Over time").locator("canvas").wait_for()
        page.get_by_role("row", name=name).first.wait_for()  # what it says hangs on whether something was decided of it
        page.get_by_role("combobox", name="Application").first.select_option(name)
        page.get_by_role("button", name="Load", exact=True).click()
        page.get_by_text(f"{name} is in memory.").wait_for()
        page.get_by_role("button", name="Unload").click()
        page.get_by_role("dialog").get_by_role("button", name="Unload").click()
        page.get_by_text(f"{name} is out of service.").wait_for()
        page.get_by_role("button", name="Load", exact=True).click()
        page.get_by_text(f"{name} is in memory.").wait_for()
        page.get_by_text("Over time: as a table").click()
        page.get_by_role("cell", name="unloaded", exact=True).first.wait_for()
        page.get_by_role("cell", name="loaded", exact=True).nth(1).wait_for()
        over = page.locator(".u-over")
        size = over.bounding_box()
        over.click(position={"x": size["width"] - 2, "y": size["height"] / 2})
        # Both lie within a pixel of an hour: whichever is nearest to the click is shown.
        page.get_by_role("status").filter(has_text=" fp32, ").wait_for()


def test_sessions_page_shows_a_new_session_and_can_end_it(tab: Tab, box: Box) -> None:
    """Its promise, its state and its plan, without a reload."""
    order = {
        "application": MODEL,
        "name": "glasses",
        "fps": 2,
        "promise": {"kind": "latency", "slo_ms": 900, "rate_rps": 1},
    }
    with tab("/sessions") as page:
        page.get_by_text("No device has a session").wait_for()
        headers = {"Authorization": f"Bearer {box.server.admin_key}"}
        answer = httpx.post(f"{box.server.url}/v1/sessions", json=order, headers=headers, timeout=120)
        assert answer.status_code == 201, answer.text
        card = page.get_by_label("glasses", exact=True)
        card.get_by_text("one frame a second within 900 ms").wait_for()
        card.get_by_text("served", exact=True).wait_for()
        card.get_by_role("button", name="End the session").click()
        page.get_by_role("dialog").get_by_role("button", name="End the session").click()
        card.get_by_text("ended", exact=True).wait_for()


def test_page_of_a_killed_box_greys_figures_and_recovers(tab: Tab, box: Box) -> None:
    """The page says since when the box is silent; what was typed stays."""
    with tab("/models") as page:
        page.get_by_label("Filter by name").fill(MODEL)
        box.server.kill()
        with box.server.kept_port():
            try:
                page.get_by_text("The box has not answered since").wait_for()
                opacity = page.locator("tbody td").first.evaluate("one => getComputedStyle(one).opacity")
                assert float(opacity) < 0.6
            finally:
                box.server.start_again()
        page.get_by_text("The box has not answered since").wait_for(state="detached")
        assert page.get_by_label("Filter by name").input_value() == MODEL
        assert f"q={MODEL}" in page.url


def test_page_opened_while_the_box_is_away_says_so_and_comes_back(tab: Tab, box: Box) -> None:
    with tab() as page:
        box.server.kill()
        with box.server.kept_port():
            try:
                page.get_by_role("link", name="Processors").first.click()
                page.get_by_role("heading", name="The box does not answer").wait_for()
            finally:
                box.server.start_again()
        page.get_by_role("heading", name="Processors", level=1).wait_for()


def test_address_of_no_page_shows_the_menu_and_says_so(tab: Tab, box: Box) -> None:
    with tab("/nothing") as page:
        page.get_by_role("heading", name="There is no such page").wait_for()
        page.get_by_role("link", name="Models").first.click()
        page.get_by_role("heading", name="Models", level=1).wait_for()
    assert httpx.get(f"{box.server.url}/nothing", headers={"Accept": "text/html"}).status_code == 404
    refused = httpx.get(f"{box.server.url}/v1/nothing", headers={"Accept": "text/html"})
    assert (refused.status_code, refused.json()["type"]) == (404, "/problems/no-such-path")


def test_refused_try_shows_no_answer_of_an_earlier_one(tab: Tab, box: Box) -> None:
    with tab(f"/applications/{MODEL}") as page:
        chosen = page.get_by_label("Picture, sound, text or tensors")
        chosen.set_input_files(box.picture)
        page.get_by_text("answered, ").wait_for()
        chosen.set_input_files({"name": "bad.png", "mimeType": "image/png", "buffer": b"no picture"})
        page.get_by_role("alert").first.wait_for()
        assert page.get_by_text("answered, ").count() == 0


def test_arrow_keys_choose_the_medium_of_a_try(tab: Tab) -> None:
    with tab(f"/applications/{MODEL}") as page:
        page.get_by_role("tab", selected=True).focus()
        for key, name in (("ArrowRight", "Camera"), ("ArrowLeft", "File"), ("End", "Camera"), ("Home", "File")):
            page.keyboard.press(key)
            assert page.get_by_role("tab", selected=True).inner_text() == name
            assert page.evaluate("document.activeElement.textContent") == name


def test_chart_shows_the_last_values_or_those_under_the_pointer(tab: Tab) -> None:
    with tab() as page:
        chart = page.get_by_role("img", name="Requests a second")
        chart.locator("canvas").wait_for()
        legend = chart.locator(".u-legend")
        until(lambda: re.search(r"\d/s", legend.inner_text()) is not None, "the last value")
        chart.locator(".u-over").hover(position={"x": 2, "y": 50})  # an hour ago there was no box
        until(lambda: re.search(r"\d/s", legend.inner_text()) is None, "the value under the pointer, which is none")


def test_applications_page_shows_new_models_live_over_one_stream(tab: Tab, box: Box) -> None:
    """Changes made outside the browser are seen without a reload."""
    streams: list[str] = []
    with tab("/applications") as page:
        page.on("request", lambda asked: streams.append(asked.url) if "/v1/events" in asked.url else None)
        page.reload()
        page.get_by_role("link", name=MODEL).first.wait_for()
        with box.server.client() as admin:
            job = admin.upload_model(box.digits.model, "fresh", "image-classification", metadata={"precisions": []})
            page.get_by_role("link", name="fresh").first.wait_for()
            for _ in admin.follow_job(job.id):
                pass
        until(lambda: len(streams) == 1, "one stream")


def test_dates_are_shown_in_the_time_zone_of_the_browser(tab: Tab, box: Box) -> None:
    """Hours before midnight in UTC it is the next day there: date and time are of one zone."""
    with box.server.client() as admin:
        made = min(key.created_at for key in admin.keys("default"))
    there = made.astimezone(ZoneInfo(EARLIEST)).strftime("%Y-%m-%d %H:%M")
    here = made.astimezone(ZoneInfo(LATEST)).strftime("%Y-%m-%d %H:%M")
    assert there[:10] != here[:10]
    for zone, said in ((EARLIEST, there), (LATEST, here)):
        with tab("/tenants/default", zone=zone) as page:
            page.get_by_role("cell", name=said).first.wait_for()


def test_settings_are_shown_with_their_source(tab: Tab) -> None:
    """Settings of the command line first; the others behind a click."""
    with tab("/box") as page:
        page.get_by_role("row", name="state_dir").get_by_text("command line").wait_for()
        assert page.get_by_role("cell", name="memory.budget_share").count() == 0
        page.get_by_text("at their defaults").first.click()
        page.get_by_role("row", name="memory.budget_share").get_by_text("default", exact=True).wait_for()


def test_simulation_page_compares_today_with_the_edited_load(tab: Tab, box: Box) -> None:
    """More requests and less memory: both figures side by side, and the address keeps the simulation."""
    with tab() as page:
        page.goto(box.server.url + "/what-if")
        page.get_by_label("Application").select_option(MODEL)
        page.get_by_label("Add requests a second").fill("10")
        page.get_by_label("Memory budget, MB").fill("64")
        page.get_by_role("button", name="Simulate").click()
        row = page.get_by_role("row", name="Requests").first
        row.wait_for()
        page.get_by_text("of which guards and other processes take").wait_for()
        page.get_by_role("img", name="Memory: With your change").wait_for()
        page.get_by_role("img", name="Requests: With your change").wait_for()
        parts = [
            page.get_by_role("row", name=f"Fullest moment: {part}") for part in ("models", "guards", "runs", "free")
        ]
        assert all(part.count() == 1 for part in parts)
        today, edited = (row.get_by_role("cell").nth(at).inner_text().replace(",", "") for at in (1, 2))
        assert int(edited) > 2000 > int(today)
        page.get_by_role("status").filter(has_text="The change fits").wait_for()
        assert "simulation=" in page.url


def test_box_page_shows_upgrade_commands_and_saves_a_file_without_keys(tab: Tab, box: Box) -> None:
    """The file has what the pages show. The events tell once how far a job is, and whose it is; a box with models needs
    no first steps.
    """
    with tab("/box") as page:
        page.get_by_text("scripts/install").first.wait_for()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save the file").click()
        text = saved.value.path().read_text()
        told = json.loads(text)
        assert told["/v1/system"]["version"]
        assert MODEL in [one["name"] for one in told["/v1/models?limit=500"]["items"]]
        assert not any("failed" in part for part in told.values() if isinstance(part, dict))
        assert box.server.admin_key not in text
        assert box.tenant_key not in text
        assert "ea_" not in text
        page.goto(box.server.url + "/")
        lines = page.locator(".log li", has_text="job progressed")
        lines.first.wait_for()
        models = [text.partition("job progressed")[2].partition("state")[0].strip() for text in lines.all_inner_texts()]
        assert all(models)
        assert len(set(models)) == len(models)
        assert page.get_by_role("heading", name="First steps").count() == 0
