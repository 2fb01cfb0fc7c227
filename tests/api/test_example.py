"""The example of an archive: it is what it is made of, and it imports."""

import io
import zipfile

import pytest

from appliance.api.pages import EXAMPLE
from tests.api import example
from tests.api.stand import Stand, good, job_end

pytestmark = pytest.mark.anyio


async def test_example_archive_holds_the_files_that_it_is_made_of() -> None:
    """But for the pictures, which another version of OpenCV may pack otherwise: their names."""
    with zipfile.ZipFile(EXAMPLE) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    made = example.files()
    assert list(found) == list(made)
    assert {name for name in made if found[name] != made[name] and not name.endswith(".png")} == set()
    assert EXAMPLE.stat().st_size < 20_000


async def test_example_archive_is_downloaded_without_a_key_imports_and_answers_rightly(stand: Stand) -> None:
    """Its labels and truths are used: accuracy is measured, and is that of a network that is always right."""
    harbour = stand.client("harbour")
    downloaded = await stand.client(None).get("/example.zip")
    assert downloaded.headers["content-type"] == "application/zip"
    assert "attachment" in downloaded.headers["content-disposition"]
    files = {"file": ("colours.zip", downloaded.content)}
    job = await good(harbour.post("/v1/models", data={"name": "colours"}, files=files))
    assert (await job_end(harbour, job["id"]))["state"] == "done"
    (variant,) = (await good(harbour.get("/v1/models/colours/variants")))["items"]
    assert (variant["accuracy"]["meaning"], variant["accuracy"]["value"]) == ("accuracy", 1.0)
    with zipfile.ZipFile(io.BytesIO(downloaded.content)) as archive:
        picture = archive.read("calibration/01.png")
    answer = await good(harbour.post("/v1/applications/colours/predict", content=picture))
    assert answer["labels"][0]["label"] == "green"
