"""Models over HTTP: upload, look, delete."""

import asyncio
import json
import os
import tarfile
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
from appliance.wire.catalogue import CutShape, ProfileShape
from tests.api.stand import Stand, job_end, model_form
from tests.fakes.waiting import until

pytestmark = pytest.mark.anyio


class Tried:
    """What is known of a content on other kinds of processors: nothing."""

    def awaited(self, content_sha256: str) -> list[Awaited]:
        return []

    def given_up(self, content_sha256: str) -> list[GivenUp]:
        return []


def zipped(folder: Path, target: Path) -> bytes:
    """A folder as a zip with one top folder, as people make them."""
    with zipfile.ZipFile(target, "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, Path("top") / path.relative_to(folder))
    return target.read_bytes()


def test_profile_of_a_build_that_can_sleep_has_its_wake_time() -> None:
    """In milliseconds, as all times; a profile that an earlier version measured has neither figure."""
    profile = Profile("cpu", 1000, 2000, 1.0, 2.0, (Latency(1, 1.0, 2.0),))
    shown = ProfileShape.model_validate(replace(profile, asleep_bytes=70, wake_ns=3_200_000))
    assert (shown.asleep_bytes, shown.wake_ms) == (70, 3.2)
    shown = ProfileShape.model_validate(profile)
    assert (shown.asleep_bytes, shown.wake_ms) == (None, None)


def test_profile_has_the_latencies_of_one_run_at_a_time() -> None:
    """`profile` has each batch once; `profiles` says how many runs were under way."""
    rows = (Latency(1, 1.0, 2.0), Latency(4, 3.0, 4.0), Latency(1, 1.5, 2.5, concurrency=2))
    profile = Profile("cpu", 1000, 2000, 1.0, 2.0, rows)
    variant = Variant("t/m:v", "t/m", "v", Precision.OWN, "0" * 64, 1, (), (), profile=profile)
    model = Model("t/m", "t", "m", TaskSpec(), (variant,))
    (shown,) = variant_shapes(model, {"builds": []}, Catalogue(MostAccurate()), Tried())
    assert shown.profile is not None
    assert [(row.batch, row.concurrency) for row in shown.profile.latencies] == [(1, 1), (4, 1)]
    assert [(row.batch, row.concurrency) for row in shown.profiles[0].latencies] == [(1, 1), (4, 1), (1, 2)]


def test_variant_shows_its_parts_with_their_processor_kinds() -> None:
    """And what each part takes; fingerprints are the operator's."""
    part = Part(3, {"Conv": 2, "Relu": 1}, ("x",), ("y",), 10, 20.0, 30)
    costs = PartProfile("cpu", (BatchTime(1, 2.5),), True, 1000, 2000)
    cut = Cut({"cpu": "secret", "npu": "secret"}, (replace(part, profiles=(costs, replace(costs, kind="npu"))),))
    variant = Variant("t/m:v", "t/m", "v", Precision.OWN, "0" * 64, 1, (), (), cut=cut)
    model = Model("t/m", "t", "m", TaskSpec(), (variant, replace(variant, id="t/m:w", name="w", cut=None)))
    shown, other = variant_shapes(model, {"builds": []}, Catalogue(MostAccurate()), Tried())
    assert other.cut is None
    assert shown.cut is not None
    assert shown.cut.kinds == ["cpu", "npu"]
    assert shown.cut.parts[0].kinds == ["cpu", "npu"]
    assert shown.cut.parts[0].profiles[1].times[0].p50_ms == 2.5
    assert "secret" not in shown.model_dump_json()
    whole = replace(variant, cut=Cut(cut.asked, reason="it computes something else"))
    told = [_parts(CutShape.model_validate(one.cut)) for one in (variant, whole)]
    assert told[0] == "serves whole, and could run in 1 part: 3 operators on cpu or npu"
    assert told[1] == "stays whole on cpu: it computes something else"


def test_variant_shows_why_it_does_not_run_on_a_processor_kind() -> None:
    """Once it is measured; before, its import tells what goes wrong."""

    class GaveUp(Tried):
        def given_up(self, content_sha256: str) -> list[GivenUp]:
            return [GivenUp("openvino", "output 'y' differs by 0.2 of what cpu computes")]

    profile = Profile("cpu", 1000, 2000, 1.0, 2.0, (Latency(1, 1.0, 2.0),))
    variant = Variant("t/m:v", "t/m", "v", Precision.OWN, "0" * 64, 1, (), (), profile=profile)
    other = replace(variant, id="t/m:w", name="w", profile=None)
    model = Model("t/m", "t", "m", TaskSpec(), (variant, other))
    shown, unmeasured = variant_shapes(model, {"builds": []}, Catalogue(MostAccurate()), GaveUp())
    assert [(one.kind, one.reason) for one in shown.given_up] == [
        ("openvino", "output 'y' differs by 0.2 of what cpu computes")
    ]
    assert (unmeasured.given_up, shown.kind_reason) == ([], "")


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
    assert (accuracy["metric"], accuracy["against"]) == ("top-1", "labels")
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
    early = await museum.post("/v1/models", files=fields)
    assert (early.status_code, early.json()["type"]) == (409, "/problems/illegal-state")
    sent = await museum.patch(f"/v1/uploads/{upload}", content=content, headers={"Upload-Offset": "0"})
    assert sent.json()["complete"] is True
    accepted = await museum.post("/v1/models", files=fields)
    assert accepted.status_code == 202, accepted.text
    assert (await museum.get(f"/v1/uploads/{upload}")).status_code == 404
    assert (await job_end(museum, accepted.json()["id"]))["state"] == "done"


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
    answer = await museum.post("/v1/models", **form)
    assert (answer.status_code, answer.json()["type"]) == (422, f"/problems/{kind}"), answer.text
    assert [one["name"] for one in (await museum.get("/v1/models")).json()["items"]] == ["adding"]
    assert os.listdir(stand.state_dir / "scratch") == []


async def test_model_name_is_taken_once_per_tenant(stand: Stand, digits: toys.Digits) -> None:
    """A second model of the name is 409; another tenant may use it."""
    again = await stand.client("harbour").post("/v1/models", **model_form(digits, "digits"))
    assert (again.status_code, again.json()["type"]) == (409, "/problems/already-exists")
    assert (await stand.client("museum").post("/v1/models", **model_form(digits, "digits"))).status_code == 202


async def test_file_that_is_no_model_fails_in_its_import_job(stand: Stand) -> None:
    """The upload is accepted, the import says what is wrong, and the name is free again."""
    museum = stand.client("museum")
    form: dict[str, Any] = {"data": {"name": "junk", "task": "tensor"}, "files": {"file": b"this is no model"}}
    ended = await job_end(museum, (await museum.post("/v1/models", **form)).json()["id"])
    assert ended["state"] == "failed"
    assert ended["error"]
    assert (await museum.get("/v1/models/junk")).status_code == 404


async def test_archive_with_a_path_outside_fails_its_import_job(
    stand: Stand, digits: toys.Digits, tmp_path: Path
) -> None:
    """A calibration archive with ../ in it cannot write outside; the job says so."""
    (tmp_path / "evil").write_bytes(b"x")
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(tmp_path / "evil", "../../../evil")
    form = model_form(digits, "evil")
    form["files"]["calibration"] = (tmp_path / "evil.tar").read_bytes()
    museum = stand.client("museum")
    ended = await job_end(museum, (await museum.post("/v1/models", **form)).json()["id"])
    assert ended["state"] == "failed"
    assert "no path inside" in ended["error"]


async def test_model_form_above_the_limit_is_refused_by_its_announced_size(stand: Stand) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": str(2**40)}
    answer = await stand.client().post("/v1/models", content=b"", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (413, "/problems/too-large")


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
    picture = next(digits.evaluation.glob("*.png")).read_bytes()
    answer = await harbour.post("/v1/applications/digits/predict?variant=mine", content=picture)
    assert answer.json()["variant"] == "mine"
    assert (await harbour.delete("/v1/models/digits/variants/mine")).status_code == 200
    gone = await harbour.post("/v1/applications/digits/predict?variant=mine", content=picture)
    assert gone.status_code == 404
    assert (await harbour.post("/v1/applications/digits/predict", content=picture)).status_code == 200


async def test_shared_model_is_read_only_for_another_tenant(stand: Stand) -> None:
    """Another tenant sees and uses it, and may change nothing."""
    museum = stand.client("museum")
    assert (await museum.get("/v1/models/adding")).json()["tenant"] == "default"
    for answer in (
        await museum.delete("/v1/models/adding"),
        await museum.delete("/v1/models/adding/variants/fp32"),
        await museum.post("/v1/models/adding/variants", files={"file": b"x"}),
        await museum.patch("/v1/applications/adding", json={"weight": 2}),
        await museum.delete("/v1/applications/adding"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/forbidden")


async def test_model_in_use_by_another_tenants_application_is_not_deleted(stand: Stand) -> None:
    """The refusal is 409."""
    order = {"name": "sums", "model": "adding"}
    assert (await stand.client("museum").post("/v1/applications", json=order)).status_code == 201
    refused = await stand.client().delete("/v1/models/adding")
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/in-use")


async def test_model_delete_waits_for_running_requests(stand: Stand, digits: toys.Digits) -> None:
    """Requests that came before the delete are all answered well; later ones find nothing."""
    harbour = stand.client("harbour")
    picture = next(digits.evaluation.glob("*.png")).read_bytes()
    requests = [
        asyncio.create_task(harbour.post("/v1/applications/digits/predict", content=picture)) for _ in range(20)
    ]
    await until(lambda: stand.appliance.running().engine.status()["running"], every_s=0)
    assert (await harbour.delete("/v1/models/digits")).status_code == 200
    statuses = {answer.status_code for answer in await asyncio.gather(*requests)}
    assert 200 in statuses
    assert statuses <= {200, 404, 409}
    assert (await harbour.post("/v1/applications/digits/predict", content=picture)).status_code == 404


async def test_model_metadata_may_hold_name_task_and_application(stand: Stand, digits: toys.Digits) -> None:
    """In place of form fields."""
    metadata = json.loads(digits.metadata.read_text())
    metadata |= {"name": "inside", "task": "image-classification", "application": "outside", "precisions": []}
    museum = stand.client("museum")
    form = {"files": {"file": digits.model.read_bytes()}, "data": {"metadata": json.dumps(metadata)}}
    accepted = await museum.post("/v1/models", **form)  # type: ignore[arg-type]
    assert accepted.json()["model"] == "inside", accepted.text
    assert (await museum.get("/v1/applications/outside")).json()["model"] == "inside"
