"""The import form in the browser: all that an import takes, refusals at their fields, and the example."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.browser.axe import violations
from tests.browser.conftest import SHOTS, WIDTHS, Box, Tab
from tests.e2e.polling import until

FILE = "ONNX file, or an archive with one"


def imported(box: Box, name: str) -> Any:
    """The model of this name, once its import is done."""
    with box.server.client() as admin:

        def is_done() -> bool:
            job = next(one for one in admin.jobs() if one.model == name)
            assert job.state not in ("failed", "cancelled"), job
            return job.state == "done"

        until(is_done, f"the import of {name}")
        return admin.model(name)


@pytest.mark.parametrize("shape", WIDTHS)
def test_example_archive_is_downloaded_imported_and_answers(tab: Tab, box: Box, shape: str, tmp_path: Path) -> None:
    """With nothing said in the form but its name: the archive says the rest."""
    name = f"colours-{shape}"
    with tab("/models", shape=shape) as page:
        page.get_by_text("What an archive may hold").click()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download an example").click()
        archive = tmp_path / download.value.suggested_filename
        download.value.save_as(archive)
        page.get_by_label(FILE).set_input_files(archive)
        assert page.get_by_label("What it does").input_value() == ""
        page.get_by_label("Name of the model").fill(name)
        page.get_by_text("More fields").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[shape][0]
        assert violations(page) == []
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"import-{shape}.png", full_page=True)
        page.get_by_role("button", name="Import", exact=True).click()
        page.get_by_role("link", name=name).first.wait_for()
        assert imported(box, name).task.labels == ("red", "green", "blue")
        picture = tmp_path / "green.png"
        picture.write_bytes(zipfile.ZipFile(archive).read("calibration/01.png"))
        page.goto(f"{box.server.url}/applications/{name}")
        page.get_by_label("Picture, sound, text or tensors").set_input_files(picture)
        page.get_by_role("cell", name="green", exact=True).wait_for()


def test_refused_field_of_the_import_form_says_why_and_the_rest_is_kept(tab: Tab, box: Box, tmp_path: Path) -> None:
    """What the page knows is said before anything is sent, what the box alone knows afterwards. The file goes once."""
    labels, evaluation = tmp_path / "names.txt", tmp_path / "evaluation.zip"
    labels.write_text("".join(f"numeral {at}\n" for at in range(10)))
    samples = json.loads((box.digits.evaluation / "truth.json").read_text())["samples"][:30]
    truth = {"samples": [one | {"label": f"numeral {one['label']}"} for one in samples]}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr("truth.json", json.dumps(truth))
        for one in samples:
            packed.write(box.digits.evaluation / one["file"], one["file"])
    evaluation.write_bytes(content.getvalue())
    sent: list[str] = []
    with tab("/models") as page:
        page.on("request", lambda asked: sent.append(asked.method) if "/v1/uploads" in asked.url else None)
        page.get_by_label(FILE).set_input_files(box.digits.model)
        page.get_by_label("Name of the model").fill("numerals-2")
        page.get_by_label("What it does").select_option("image-classification")
        page.get_by_label("Labels").set_input_files(labels)
        page.get_by_label("Evaluation set").set_input_files(evaluation)
        page.get_by_label("Decoder of the outputs").select_option("probabilities")
        page.get_by_label("Mean", exact=False).first.fill("0")
        deviation = page.get_by_label("Standard deviation")
        deviation.fill("0")
        send = page.get_by_role("button", name="Import", exact=True)
        send.click()
        page.get_by_role("alert").get_by_text("Numbers above 0").wait_for()
        assert deviation.get_attribute("aria-invalid") == "true"
        assert sent == []
        deviation.fill("255")
        page.get_by_text("More fields").click()
        rest = page.get_by_label("Other metadata, as JSON")
        rest.fill('{"lables": []}')
        page.get_by_label("int8", exact=True).uncheck()
        page.get_by_label("fp16", exact=True).uncheck()
        page.get_by_label("Channels").select_option("GRAY")
        page.get_by_text("More fields").click()
        send.click()
        page.get_by_role("alert").get_by_text("unknown key 'lables'").wait_for()
        assert rest.evaluate("one => one === document.activeElement")
        rest.fill('{"params": {"labels_max": 2}}')
        send.click()
        page.get_by_role("link", name="numerals-2").first.wait_for()
    model = imported(box, "numerals-2")
    image = model.task.image
    assert (list(image.mean), list(image.std), image.channels) == ([0], [255], "GRAY")
    assert (model.task.params["labels_max"], model.task.labels[3]) == (2, "numeral 3")
    (variant,) = model.variants
    assert (variant.accuracy.meaning, variant.accuracy.samples) == ("accuracy", 30)
    assert sent.count("POST") == 1
