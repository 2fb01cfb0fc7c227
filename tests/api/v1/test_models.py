"""Models over HTTP: upload, look, delete."""

import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.api.v1.shapes import variant_shapes
from appliance.cli.models import _parts
from appliance.demo.zoo import toys
from appliance.domain.catalogue import Latency, Model, Precision, Profile, TaskSpec, Variant
from appliance.domain.jobs import Awaited, GivenUp
from appliance.domain.names import build_id
from appliance.domain.parts import BatchTime, Cut, Part, PartProfile
from appliance.policies.selection.most_accurate import MostAccurate
from appliance.runtime.catalogue import Catalogue
from appliance.wire.catalogue import CutShape, ProfileShape, VariantShape
from tests.api.stand import Stand, good, job_end, model_form, refusal

pytestmark = pytest.mark.anyio


PROFILE = Profile("cpu", 1000, 2000, 1.0, 2.0, (Latency(1, 1.0, 2.0),))
VARIANT = Variant("t/m:v", "t/m", "v", Precision.OWN, "0" * 64, 1, (), ())


class Tried:
    """What is known of contents on other kinds of processors."""

    def __init__(self, *given_up: GivenUp) -> None:
        self._given_up = list(given_up)

    def awaited(self, content_sha256: str) -> list[Awaited]:
        return []

    def given_up(self, content_sha256: str) -> list[GivenUp]:
        return self._given_up


def shapes(*variants: Variant, tried: Tried | None = None) -> list[VariantShape]:
    """As a model with these variants shows them."""
    model = Model("t/m", "t", "m", TaskSpec(), variants)
    return list(variant_shapes(model, {"builds": []}, Catalogue(MostAccurate()), tried or Tried()))


@pytest.mark.parametrize(
    ("profile", "shown"),
    [(replace(PROFILE, asleep_bytes=70, wake_ns=3_200_000), (70, 3.2)), (PROFILE, (None, None))],
    ids=["now", "measured by an earlier version"],
)
def test_profile_of_a_build_that_can_sleep_has_its_wake_time(profile: Profile, shown: tuple[Any, Any]) -> None:
    """In milliseconds, as all times."""
    shape = ProfileShape.model_validate(profile)
    assert (shape.asleep_bytes, shape.wake_ms) == shown


def test_profile_has_the_latencies_of_one_run_at_a_time() -> None:
    """`profile` has each batch once; `profiles` says how many runs were under way."""
    rows = (Latency(1, 1.0, 2.0), Latency(4, 3.0, 4.0), Latency(1, 1.5, 2.5, concurrency=2))
    (shown,) = shapes(replace(VARIANT, profile=replace(PROFILE, latencies=rows)))
    assert shown.profile is not None
    assert [(row.batch, row.concurrency) for row in shown.profile.latencies] == [(1, 1), (4, 1)]
    assert [(row.batch, row.concurrency) for row in shown.profiles[0].latencies] == [(1, 1), (4, 1), (1, 2)]


def test_variant_shows_its_parts_with_their_processor_kinds() -> None:
    """And what each part takes; fingerprints are the operator's."""
    part = Part(3, {"Conv": 2, "Relu": 1}, ("x",), ("y",), 10, 20.0, 30)
    costs = PartProfile("cpu", (BatchTime(1, 2.5),), True, 1000, 2000)
    cut = Cut({"cpu": "secret", "npu": "secret"}, (replace(part, profiles=(costs, replace(costs, kind="npu"))),))
    variant = replace(VARIANT, cut=cut)
    shown, other = shapes(variant, replace(VARIANT, id="t/m:w", name="w"))
    assert other.cut is None
    assert shown.cut is not None
    assert shown.cut.kinds == shown.cut.parts[0].kinds == ["cpu", "npu"]
    assert shown.cut.parts[0].profiles[1].times[0].p50_ms == 2.5
    assert "secret" not in shown.model_dump_json()
    whole = replace(variant, cut=Cut(cut.asked, reason="it computes something else"))
    told = [_parts(CutShape.model_validate(one.cut)) for one in (variant, whole)]
    assert told[0] == "serves whole, and could run in 1 part: 3 operators on cpu or npu"
    assert told[1] == "stays whole on cpu: it computes something else"


def test_variant_shows_why_it_does_not_run_on_a_processor_kind() -> None:
    """Once it is measured; before, its import tells what goes wrong."""
    why = GivenUp("openvino", "output 'y' differs by 0.2 of what cpu computes")
    measured = replace(VARIANT, profile=PROFILE)
    shown, unmeasured = shapes(measured, replace(VARIANT, id="t/m:w", name="w"), tried=Tried(why))
    assert [(one.kind, one.reason) for one in shown.given_up] == [(why.kind, why.reason)]
    assert (unmeasured.given_up, shown.kind_reason) == ([], "")


def zipped(folder: Path, target: Path) -> bytes:
    """A folder as a zip with one top folder, as people make them."""
    with zipfile.ZipFile(target, "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, Path("top") / path.relative_to(folder))
    return target.read_bytes()


async def test_uploaded_model_serves_until_it_is_deleted(stand: Stand, digits: toys.Digits) -> None:
    """202 with a job at its Location; the model and an application of its name serve; after DELETE both are gone."""
    museum = stand.client("museum")
    accepted = await museum.post("/v1/models", **model_form(digits, "mine"))
    assert accepted.status_code == 202, accepted.text
    job = accepted.json()
    assert accepted.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (job["model"], job["tenant"], job["state"]) == ("mine", "museum", "queued")
    ended = await job_end(museum, job["id"])
    assert (ended["state"], ended["percent"], ended["error"]) == ("done", 100, "")
    model = (await museum.get("/v1/models/mine")).json()
    assert (model["state"], model["task"]["kind"], model["task"]["labels"][3]) == ("ready", "image-classification", "3")
    variant = model["variants"][0]
    assert (variant["name"], variant["state"], variant["residency"]) == ("fp32", "ready", "absent")
    assert variant["profile"]["latencies"][0]["batch"] == 1
    picture = next(digits.evaluation.glob("*.png")).read_bytes()
    assert (await museum.post("/v1/applications/mine/predict", content=picture)).status_code == 200
    assert (await museum.get("/v1/models/mine")).json()["variants"][0]["residency"] == "resident"
    assert (await museum.delete("/v1/models/mine")).json() == {"deleted": "mine"}
    assert (await museum.get("/v1/models/mine")).status_code == 404
    assert (await museum.get("/v1/applications/mine")).status_code == 404
    assert (await museum.get("/v1/memory")).json()["builds"] == []


async def test_avoided_processor_kind_of_a_variant_is_shown_and_released(stand: Stand) -> None:
    """Also of a variant that is ready; a variant that avoids none has nothing to be released from."""
    harbour = stand.client("harbour")
    listed = (await harbour.get("/v1/models")).json()["items"]
    name = next(one["name"] for one in listed if one["tenant"] == "harbour")
    variant = (await harbour.get(f"/v1/models/{name}")).json()["variants"][0]
    assert (variant["state"], variant["avoids"]) == ("ready", [])
    assert stand.appliance.box is not None
    servables = stand.appliance.box.catalogue.servables
    servables.kinds = ("npu", *servables.kinds)  # as where another kind is the first one
    assert servables.avoid(build_id(variant["content_sha256"], "cpu", "harbour"))
    assert (await harbour.get(f"/v1/models/{name}")).json()["variants"][0]["avoids"] == ["cpu"]
    where = f"/v1/models/{name}/variants/{variant['name']}/release"
    assert (await harbour.post(where)).json()["avoids"] == []
    assert (await harbour.get(f"/v1/models/{name}")).json()["variants"][0]["avoids"] == []
    assert (await harbour.post(where)).status_code == 409


async def test_evaluation_set_sent_with_a_model_measures_its_accuracy(
    stand: Stand, digits: toys.Digits, tmp_path: Path
) -> None:
    """On the labels; the calibration set comes beside it, each as a zip of its own."""
    museum = stand.client("museum")
    form = model_form(digits, "judged")
    form["files"]["evaluation"] = ("truth.zip", zipped(digits.evaluation, tmp_path / "truth.zip"))
    form["files"]["calibration"] = ("inputs.zip", zipped(digits.calibration, tmp_path / "inputs.zip"))
    ended = await job_end(museum, (await museum.post("/v1/models", **form)).json()["id"])
    assert ended["state"] == "done", ended
    accuracy = (await museum.get("/v1/models/judged")).json()["variants"][0]["accuracy"]
    assert (accuracy["metric"], accuracy["against"], accuracy["meaning"]) == ("top-1", "labels", "accuracy")
    application = (await museum.get("/v1/applications/judged")).json()
    assert application["accuracy_meaning"] == "accuracy"
    assert "the highest accuracy" in application["choice"]
    assert accuracy["value"] > 0.8


async def test_model_labels_may_come_as_a_file(stand: Stand, digits: toys.Digits) -> None:
    """One name a line, in place of a list in the metadata."""
    museum = stand.client("museum")
    form = model_form(digits, "named")
    names = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
    form["files"]["labels"] = ("labels.txt", "\n".join(names).encode())
    assert (await museum.post("/v1/models", **form)).status_code == 202
    assert (await museum.get("/v1/models/named")).json()["task"]["labels"] == names


@pytest.mark.nightly("another whole import")
async def test_finished_upload_takes_the_place_of_the_model_file(stand: Stand, digits: toys.Digits) -> None:
    """The import consumes the upload; an unfinished one is refused."""
    museum = stand.client("museum")
    content = digits.model.read_bytes()
    upload = (await museum.post("/v1/uploads", json={"length": len(content)})).json()["id"]
    form = model_form(digits, "large", upload=upload)
    del form["files"]["file"]
    fields = [(name, (None, value)) for name, value in form["data"].items()]
    assert refusal(await museum.post("/v1/models", files=fields)) == (409, "illegal-state")
    sent = await museum.patch(f"/v1/uploads/{upload}", content=content, headers={"Upload-Offset": "0"})
    assert sent.json()["complete"] is True
    accepted = await good(museum.post("/v1/models", files=fields))
    assert (await museum.get(f"/v1/uploads/{upload}")).status_code == 404
    assert (await job_end(museum, accepted["id"]))["state"] == "done"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"name": "My Model"}, "bad-name"),
        ({"name": "../x"}, "bad-name"),
        ({"name": ""}, "bad-name"),
        ({"task": "faces"}, "bad-metadata"),
        ({"metadata": "{"}, "bad-metadata"),
        ({"metadata": "[]"}, "bad-metadata"),
        ({"metadata": '{"labls": []}'}, "bad-metadata"),
        ({"metadata": '{"image": {"std": [0]}}'}, "bad-metadata"),
        ({"metadata": '{"precisions": ["int3"]}'}, "bad-metadata"),
        ({"shared": "perhaps"}, "bad-metadata"),
        ({"colour": "red"}, "bad-metadata"),
        ({"upload": "0123"}, "bad-metadata"),
        ({"application": "No Name"}, "bad-name"),
    ],
)
async def test_model_form_with_a_wrong_field_is_refused_at_once(
    stand: Stand, digits: toys.Digits, change: dict[str, str], kind: str
) -> None:
    """Before a job begins, naming what is wrong; nothing stays of the file or the model."""
    museum = stand.client("museum")
    form = model_form(digits, "mine")
    form["data"] |= change
    assert refusal(await museum.post("/v1/models", **form)) == (422, kind)
    assert [one["name"] for one in (await museum.get("/v1/models")).json()["items"]] == ["adding"]
    assert os.listdir(stand.state_dir / "scratch") == []


async def test_model_name_is_taken_once_per_tenant(stand: Stand, digits: toys.Digits) -> None:
    """A second model of the name is 409; another tenant may use it."""
    again = await stand.client("harbour").post("/v1/models", **model_form(digits, "digits"))
    assert refusal(again) == (409, "already-exists")
    assert (await stand.client("museum").post("/v1/models", **model_form(digits, "digits"))).status_code == 202


@pytest.mark.nightly("another whole import")
async def test_uploaded_variant_is_measured_called_and_deleted(stand: Stand, digits: toys.Digits) -> None:
    """Beside the made ones; the model goes on."""
    harbour = stand.client("harbour")
    form = {"data": {"name": "mine"}, "files": {"file": digits.model.read_bytes()}}
    accepted = await harbour.post("/v1/models/digits/variants", **form)  # type: ignore[arg-type]
    assert accepted.status_code == 202, accepted.text
    assert (await job_end(harbour, accepted.json()["id"]))["state"] == "done"
    names = [one["name"] for one in (await harbour.get("/v1/models/digits/variants")).json()["items"]]
    assert names == ["fp32", "mine"]
    shown = (await harbour.get("/v1/models/digits/variants/mine")).json()
    assert (shown["precision"], shown["accuracy"]["against"]) == ("own", "fp32")
    assert shown["accuracy"]["meaning"] == "agreement with fp32"
    picture = next(digits.evaluation.glob("*.png")).read_bytes()
    answer = await harbour.post("/v1/applications/digits/predict?variant=mine", content=picture)
    assert answer.json()["variant"] == "mine"
    assert (await harbour.delete("/v1/models/digits/variants/mine")).status_code == 200
    assert (await harbour.post("/v1/applications/digits/predict?variant=mine", content=picture)).status_code == 404
    assert (await harbour.post("/v1/applications/digits/predict", content=picture)).status_code == 200


async def test_model_in_use_by_another_tenants_application_is_not_deleted(stand: Stand) -> None:
    """The refusal is 409."""
    order = {"name": "sums", "model": "adding"}
    assert (await stand.client("museum").post("/v1/applications", json=order)).status_code == 201
    assert refusal(await stand.client().delete("/v1/models/adding")) == (409, "in-use")


async def test_model_metadata_may_hold_name_task_and_application(stand: Stand, digits: toys.Digits) -> None:
    """In place of form fields."""
    metadata = json.loads(digits.metadata.read_text())
    metadata |= {"name": "inside", "task": "image-classification", "application": "outside", "precisions": []}
    museum = stand.client("museum")
    form = {"files": {"file": digits.model.read_bytes()}, "data": {"metadata": json.dumps(metadata)}}
    accepted = await museum.post("/v1/models", **form)  # type: ignore[arg-type]
    assert accepted.json()["model"] == "inside", accepted.text
    assert (await museum.get("/v1/applications/outside")).json()["model"] == "inside"
