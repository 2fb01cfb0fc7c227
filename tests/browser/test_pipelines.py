"""Pipelines in the browser: defined, tried with a picture, looked at while they run, changed and deleted."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.client import Client
from appliance.domain.errors import UnknownApplication
from appliance.wire.pipelines import PipelineOrder
from tests import plates
from tests.browser.axe import violations
from tests.browser.conftest import MODEL, SHOTS, WIDTHS, Box, Tab

FINDER = "plates"
DEFINITION = {
    "latency_slo_ms": 5000,
    "stages": [
        {"name": "find", "application": FINDER},
        {"name": "cut", "do": "crop", "after": ["find"], "of": "regions"},
        {"name": "read", "application": MODEL, "after": ["cut"]},
    ],
}


@pytest.fixture(scope="module")
def pages(box: Box, tmp_path_factory: pytest.TempPathFactory) -> plates.Pages:
    """Pictures of plates with numerals; the box has the network that finds these, beside the one that reads them."""
    made = plates.plates(tmp_path_factory.mktemp("plates"), count=3)
    with box.server.client() as admin:
        metadata = json.loads(made.metadata.read_text())
        job = admin.upload_model(made.model, FINDER, "text-detection", metadata=metadata)
        assert [step.state for step in admin.follow_job(job.id)][-1] == "done"
    return made


@pytest.fixture
def numbers(box: Box, pages: plates.Pages) -> Iterator[str]:
    """A pipeline that has answered a frame."""
    with box.server.client() as admin:
        admin.create_pipeline(PipelineOrder.model_validate({"name": "numbers", **DEFINITION}))
        admin.run_pipeline("numbers", pages.evaluation / "0000.png")
        yield "numbers"
        if any(one.name == "numbers" for one in admin.pipelines()):
            admin.delete_pipeline("numbers")


@pytest.mark.parametrize("shape", WIDTHS)
def test_pipeline_page_defines_draws_and_tries_a_pipeline(tab: Tab, box: Box, pages: plates.Pages, shape: str) -> None:
    """From the example that the page makes of the applications that are there: drawn as the definition is typed; then a
    picture goes through it, and what was read stands in the picture and beside it.
    """
    truth = json.loads((pages.evaluation / "truth.json").read_text())["samples"][0]
    with tab("/pipelines", shape=shape) as page:
        page.get_by_role("button", name="Example: signs").click()
        field = page.get_by_label("Definition, as JSON")
        typed = json.loads(field.input_value())
        assert [one.get("application") for one in typed["stages"]] == [FINDER, None, MODEL]
        field.fill(json.dumps(typed | {"name": f"first-{shape}", "latency_slo_ms": 5000}))
        page.get_by_role("img", name="The stages: find, plates; lines, cut out regions").wait_for()
        page.get_by_role("button", name="Define", exact=True).click()
        page.get_by_role("heading", name=f"first-{shape}", level=1).wait_for()
        page.get_by_text("No frame was answered yet.").wait_for()
        page.get_by_text("No client has joined and no frames come").wait_for()
        assert page.get_by_text("keeps the SLO", exact=True).count() == 0
        page.get_by_label("Picture, sound, text or tensors").set_input_files(pages.evaluation / truth["file"])
        page.get_by_text("in time", exact=True).first.wait_for()
        read = page.get_by_role("table", name="Items").locator("tbody tr", has_text="read")
        said = [row.inner_text() for row in read.all()]
        assert len(said) == len(truth["numerals"])
        left, top = (round(value) for value in truth["regions"][0]["quad"][0])
        page.locator(".picture canvas").wait_for()
        drawn = "document.querySelector('.picture canvas').getContext('2d')"
        near = f"{drawn}.getImageData({left - 4}, {top - 4}, 9, 9).data"
        pixels = page.evaluate(f"[...{near}]")
        assert [255, 210, 63] in [pixels[at : at + 3] for at in range(0, len(pixels), 4)]  # a corner of the quad
        page.get_by_text("1 since the box started").wait_for()
        page.get_by_role("img", name="1 a frame").wait_for()  # the graph says items a frame
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[shape][0]
        assert violations(page) == []
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"pipeline-{shape}.png", full_page=True)


def test_bad_pipeline_definition_is_refused_and_stays_typed(tab: Tab, pages: plates.Pages) -> None:
    """No JSON: nothing can be sent; a circle: the box names the stage."""
    circle = json.loads(json.dumps(DEFINITION)) | {"name": "circle"}
    circle["stages"][0]["after"] = ["read"]
    with tab("/pipelines") as page:
        field = page.get_by_label("Definition, as JSON")
        field.fill('{"name": ')
        page.get_by_text("This is not JSON").wait_for()
        button = page.get_by_role("button", name="Define", exact=True)
        assert button.is_disabled()
        assert button.evaluate("one => getComputedStyle(one).borderStyle") == "dashed"
        field.fill(json.dumps(circle))
        button.click()
        page.get_by_role("alert").get_by_text("Remove one of these stages").wait_for()
        assert json.loads(field.input_value()) == circle


def test_pipelines_list_shows_rate_in_time_share_and_frame_cost(tab: Tab, numbers: str) -> None:
    """What one frame has cost stands beside each pipeline."""
    with tab("/pipelines") as page:
        row = page.get_by_role("row", name=numbers)
        cost = row.locator('td[data-label="A frame costs"]').filter(has_text=re.compile(r"[0-9.]+ ms"))
        cost.wait_for()
        for column in ("Frames a second", "In time", "A frame costs"):
            assert page.get_by_role("columnheader", name=column).count() == 1


def test_audit_of_a_pipeline_names_its_stages(tab: Tab, numbers: str) -> None:
    """Of a list of things the names are shown."""
    with tab("/box") as page:
        page.get_by_text(f"name: {numbers}; latency_slo_ms: 5000; stages: find, cut, read").first.wait_for()


def test_pipeline_page_changes_the_definition_and_keeps_figures(tab: Tab, numbers: str) -> None:
    """Another SLO and a condition."""
    with tab(f"/pipelines/{numbers}") as page:
        page.get_by_text("1 since the box started").wait_for()
        page.get_by_role("button", name="Change the definition").click()
        field = page.get_by_label("Definition, as JSON")
        typed = json.loads(field.input_value())
        assert typed["stages"] == DEFINITION["stages"]
        typed["latency_slo_ms"] = 4000
        typed["stages"][1]["where"] = {"score_min": 0.5}
        field.fill(json.dumps(typed))
        page.get_by_role("button", name="Save").click()
        page.get_by_text("Saved.").wait_for()
        page.get_by_text("4000 ms").first.wait_for()
        page.get_by_role("cell", name="cut out regions, score from 0.5").wait_for()
        page.get_by_text("1 since the box started").wait_for()


def test_session_on_a_pipeline_is_shown_with_variant_of_each_stage(tab: Tab, box: Box, numbers: str) -> None:
    """A device joins with a promise: the page of sessions leads to the pipeline; while the device is there it is a
    client of the pipeline.
    """
    promise = {"kind": "latency", "slo_ms": 9000, "rate_rps": 1}
    order = {"pipeline": numbers, "name": "plate camera", "fps": 2, "promise": promise}
    headers = {"Authorization": f"Bearer {box.server.admin_key}"}
    with tab("/sessions") as page, box.server.client() as admin:
        page.get_by_role("heading", name="Sessions", level=1).wait_for()
        answer = httpx.post(f"{box.server.url}/v1/sessions", json=order, headers=headers, timeout=120)
        assert answer.status_code == 201, answer.text
        session = answer.json()
        card = page.get_by_label("plate camera", exact=True)
        card.get_by_text("one frame a second within 9000 ms").wait_for()
        card.get_by_text("served", exact=True).wait_for()
        for stage in session["plan"]["stages"]:
            card.get_by_text(f"{stage['stage']} {stage['variant']}").wait_for()
        assert [one.id for one in admin.pipeline(numbers).clients] == [session["id"]]
        assert violations(page) == []
        card.get_by_role("link", name=numbers, exact=True).click()
        page.get_by_role("heading", name=numbers, level=1).wait_for()
        page.goto(f"{box.server.url}/sessions")
        card.get_by_role("button", name="End the session").click()
        page.get_by_role("dialog").get_by_role("button", name="End the session").click()
        card.get_by_text("ended", exact=True).wait_for()
        assert admin.pipeline(numbers).clients == []


def test_pipeline_delete_dialog_names_frames_and_clients_lost(tab: Tab, box: Box, numbers: str) -> None:
    """The name is gone afterwards, the applications stay."""
    with box.server.client() as admin:
        admin.join_pipeline(numbers, 0.5)
    with tab(f"/pipelines/{numbers}") as page:
        page.get_by_role("button", name="Delete").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("1 frames were sent to it").wait_for()
        dialog.get_by_text("One client has joined").wait_for()
        dialog.get_by_role("button", name="Delete").click()
        page.get_by_role("heading", name="Pipelines", level=1).wait_for()
        assert page.get_by_role("link", name=numbers, exact=True).count() == 0
        page.goto(f"{box.server.url}/applications/{FINDER}")
        page.get_by_role("heading", name=FINDER, level=1).wait_for()


def test_device_key_made_for_a_pipeline_opens_the_pipeline_only(
    tab: Tab, box: Box, numbers: str, pages: plates.Pages
) -> None:
    """As the list of keys says."""
    with tab("/tenants/default") as page:
        page.get_by_role("combobox", name="Application or pipeline").select_option(f"pipelines {numbers}")
        page.get_by_label("Where it is used").fill("plate reader")
        page.get_by_role("button", name="Make the key").click()
        page.get_by_role("heading", name="The new key").wait_for()
        key = page.locator("pre").first.inner_text()
        page.get_by_role("button", name="I have it").click()
        page.get_by_role("row", name="plate reader").get_by_role("cell", name=numbers, exact=True).wait_for()
    with Client(box.server.url, key) as device:
        assert device.run_pipeline(numbers, pages.evaluation / "0001.png").pipeline == numbers
        with pytest.raises(UnknownApplication):
            device.predict(MODEL, box.picture)


def test_pipeline_pages_of_another_tenant_are_empty(tab: Tab, box: Box, numbers: str) -> None:
    """Not in the list, and not behind its address."""
    with tab("/pipelines", key=box.tenant_key) as page:
        page.get_by_text("There are no pipelines yet.").wait_for()
        page.goto(f"{box.server.url}/pipelines/{numbers}")
        page.get_by_role("alert").wait_for()
        assert page.get_by_role("heading", name="Stages").count() == 0


@pytest.mark.parametrize("shape", WIDTHS)
def test_pages_with_long_names_keep_their_layout(
    tab: Tab, box: Box, pages: plates.Pages, shape: str, tmp_path: Path
) -> None:
    """Names of a model, its application and a pipeline, all of them without a place to break at."""
    long = "n" * 63
    order = {"name": long, "latency_slo_ms": 5000, "stages": [{"name": long, "application": long}]}
    with box.server.client() as admin:
        if all(one.name != long for one in admin.models()):
            job = admin.upload_model(box.digits.model, long, "image-classification", metadata={"precisions": []})
            assert [step.state for step in admin.follow_job(job.id)][-1] == "done"
            admin.create_pipeline(PipelineOrder.model_validate(order))
            admin.predict(long, box.picture)
    with tab(shape=shape) as page:
        for path in ("/models", "/applications", "/pipelines", "/memory", f"/models/{long}", f"/pipelines/{long}"):
            page.goto(box.server.url + path)
            _filled(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[shape][0], path
            assert _cut_off(page) == [], path


def _filled(page: Any) -> None:
    page.locator("main .card").first.wait_for()
    page.get_by_text("nnnnn").first.wait_for()


def _cut_off(page: Any) -> list[str]:
    """Cards and buttons that reach beyond the page, where nobody sees them."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('main .card, main button, main a, main h1')]
            .filter(one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scroll'))
            .map(one => one.outerHTML.slice(0, 120))"""
    )
    return found
