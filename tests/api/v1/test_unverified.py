"""Variants that were compared with the original on noise only: the box chooses none of them unless it is told to."""

import asyncio
import io
import itertools
import json
import zipfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import pytest

from appliance.clock import NS_PER_S
from appliance.modelstore import trials
from tests.api.hand_written_networks import quiet_rows, sensor_counts, sensor_level
from tests.api.stand import Stand, StandWith, good, imported

pytestmark = pytest.mark.anyio


def zipped(**files: bytes) -> bytes:
    """A zip of files, `_` in their names standing for a dot."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_", "."), content)
    return target.getvalue()


def calibration(count: int = 16) -> bytes:
    """Inputs as a zip of files."""
    inputs = {f"{seed:02}_json": {"inputs": {"X": sensor_counts(seed).tolist()}} for seed in range(count)}
    return zipped(**{name: json.dumps(one).encode() for name, one in inputs.items()})


async def import_level(client: httpx.AsyncClient, folder: Path, **more: Any) -> tuple[Any, Path]:
    """The ended job of an import called `level`, and the network."""
    path = sensor_level(folder / "level.onnx")
    job = await imported(client, "level", path.read_bytes(), **more)
    assert job["state"] == "done", job
    return job, path


async def variants_of(client: httpx.AsyncClient) -> dict[str, Any]:
    """How the variants of `level` stand."""
    return {one["name"]: one for one in (await client.get("/v1/models/level")).json()["variants"]}


async def predict(client: httpx.AsyncClient, inputs: np.ndarray[Any, Any], variant: str) -> Any:
    body = {"inputs": {"X": inputs.tolist()}}
    return await good(client.post(f"/v1/applications/level/predict?variant={variant}", json=body))


async def infer(
    client: httpx.AsyncClient, inputs: np.ndarray[Any, Any], variant: str = ""
) -> tuple[float, dict[str, Any]]:
    """The answer's number and parameters."""
    tensor = {"name": "X", "datatype": "FP32", "shape": list(inputs.shape), "data": inputs.ravel().tolist()}
    version = f"/versions/{variant}" if variant else ""
    answer = await good(client.post(f"/v2/models/level{version}/infer", json={"inputs": [tensor]}))
    return answer["outputs"][0]["data"][0], answer["parameters"]


def arrays(**named: Any) -> bytes:
    """An .npz."""
    target = io.BytesIO()
    np.savez(target, **named)
    return target.getvalue()


async def test_import_with_samples_that_cannot_be_read_tells_how_many_and_why(stand: Stand, tmp_path: Path) -> None:
    """In the job, in the variants and in the warnings of the application; nowhere that no samples came."""
    museum = stand.client("museum")
    foreign = arrays(other=sensor_counts(1))
    inputs = zipped(a_npz=foreign, b_npz=foreign, c_npy=b"numbers")
    job, _ = await import_level(museum, tmp_path, calibration=inputs, evaluation=zipped(d_npz=foreign))
    told = "2 calibration inputs came, none could be read; the first that could not is a.npz: "
    reason = "the model takes the inputs ['X'], not ['other']"
    unused = {name: one["accuracy"]["unused"] for name, one in (await variants_of(museum)).items()}
    warnings = [one["detail"] for one in (await museum.get("/v1/applications/level")).json()["warnings"]]
    for words in (job["message"], unused["int8"], unused["fp32"], *warnings):
        assert told + reason in words
        assert "c.npy in calibration is no calibration input" in words
        assert "d.npz in evaluation is not used: evaluation has no truth.json" in words
        assert "no samples came" not in words
    assert warnings


async def test_import_with_one_sample_that_cannot_be_read_uses_the_others_and_says_so(
    stand: Stand, tmp_path: Path
) -> None:
    readable = {f"{letter}_npz": arrays(X=sensor_counts(seed)) for seed, letter in enumerate("abcdefgh")}
    inputs = zipped(**readable, i_npz=arrays(X=sensor_counts(1)[:, :-1]))
    job, _ = await import_level(stand.client("museum"), tmp_path, calibration=inputs)
    told = "9 calibration inputs came, 8 could be read; the first that could not is i.npz: input 'X'"
    assert told in job["message"], job["message"]
    assert "unverified" not in job["message"]


async def test_import_without_samples_serves_original(stand: Stand, tmp_path: Path) -> None:
    """Int8 was calibrated on noise and is far off; it answers when it is named, with a warning."""
    museum = stand.client("museum")
    job, path = await import_level(museum, tmp_path)
    assert "unverified, because no samples came with it: int8" in job["message"], job["error"]
    shown = await variants_of(museum)
    evidence = {name: one["evidence"] for name, one in shown.items()}
    assert evidence == {"fp32": "original", "int8": "noise", "fp16": "noise"}
    # fp16 gains nothing on some machines
    left_out = [name for name in ("int8", "fp16") if shown[name]["state"] == "ready"]
    inputs = sensor_counts(99)
    exact = float(onnxruntime.InferenceSession(path).run(None, {"X": inputs})[0].item())
    level, parameters = await infer(museum, inputs)
    assert level == pytest.approx(exact, rel=1e-4)
    assert parameters == {"variant": "fp32", "evidence": "original"}
    level, parameters = await infer(museum, inputs, "int8")
    assert abs(level - exact) > 0.5 * exact
    assert parameters == {
        "variant": "int8",
        "evidence": "noise",
        "warnings": "int8 is unverified: its answers were compared on noise only",
    }
    application = (await museum.get("/v1/applications/level")).json()
    assert application["variants"] == ["fp32"]
    assert [(one["type"], one["variants"]) for one in application["warnings"]] == [("unverified-variants", left_out)]
    changed = await museum.patch("/v1/applications/level", json={"unverified": "allow"})
    assert changed.json()["warnings"] == []
    assert set(changed.json()["variants"]) == {"fp32", *left_out}
    answer = await predict(museum, inputs, "int8")
    assert (answer["evidence"], answer["warnings"]) == ("noise", [parameters["warnings"]])


async def test_import_with_calibration_samples_verifies_variants(stand: Stand, tmp_path: Path) -> None:
    """What int8 loses is measured by scale as well as by direction, on the inputs that came with the model."""
    museum = stand.client("museum")
    job, path = await import_level(museum, tmp_path, calibration=calibration())
    assert "unverified" not in job["message"]
    shown = await variants_of(museum)
    evidence = {name: one["evidence"] for name, one in shown.items()}
    assert evidence == {"fp32": "original", "int8": "samples", "fp16": "samples"}
    for name in ("int8", "fp16"):
        told = shown[name]["accuracy"]["samples"], shown[name]["accuracy"]["data"]
        assert told == (4, "4 calibration inputs, against the answers of the original"), "every fourth is held out"
    inputs = sensor_counts(99)
    exact = float(onnxruntime.InferenceSession(path).run(None, {"X": inputs})[0].item())
    level, _ = await infer(museum, inputs)
    assert level == pytest.approx(exact, rel=0.01)
    level, parameters = await infer(museum, inputs, "int8")
    assert parameters == {"variant": "int8", "evidence": "samples"}
    assert 1 - abs(level - exact) / exact == pytest.approx(shown["int8"]["accuracy"]["value"], abs=0.01)
    assert (await museum.get("/v1/applications/level")).json()["warnings"] == []


async def test_dismissed_variant_is_told_and_never_chosen(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Int8 without samples is far off, which requests show: then no setting makes it answer, and figures are theirs."""
    monkeypatch.setattr(trials, "GATHER_NS", 2 * NS_PER_S)
    museum = stand.client("museum")
    await import_level(museum, tmp_path, metadata={"precisions": ["int8"]})
    seeds = itertools.count(1)
    async with asyncio.timeout(120):
        while ((await variants_of(museum))["int8"]["trial"] or {}).get("verdict") != "dismissed":
            await infer(museum, sensor_counts(next(seeds)))
            await asyncio.sleep(0.1)  # noqa: TID251 - a child process works, in real time

    int8 = (await variants_of(museum))["int8"]
    trial = int8["trial"]
    assert (int8["evidence"], int8["accuracy"]["value"]) == ("disagreed", pytest.approx(trial["agreement"], abs=1e-6))
    assert (int8["accuracy"]["samples"], int8["accuracy"]["against"]) == (trial["samples"], "fp32")
    assert int8["loss"] == pytest.approx(1 - trial["interval"][0], abs=1e-6)
    changed = (await museum.patch("/v1/applications/level", json={"unverified": "allow"})).json()
    assert changed["variants"] == ["fp32"]
    (warning,) = changed["warnings"]
    assert warning["variants"] == ["int8"]
    assert "int8 agrees with the original to" in warning["detail"]
    assert "dismissed" in warning["detail"]
    assert "allow" not in warning["detail"]
    assert (await infer(museum, sensor_counts(99)))[1] == {"variant": "fp32", "evidence": "original"}
    _, parameters = await infer(museum, sensor_counts(99), "int8")
    assert (parameters["variant"], parameters["evidence"]) == ("int8", "disagreed")
    assert parameters["warnings"].startswith("int8 is dismissed: it agrees with the original to")
    strict = {"name": "strict", "model": "level", "accuracy_min": 0.0, "unverified": "allow", "prefer": "speed"}
    assert (await museum.post("/v1/applications", json=strict)).json()["variants"] == ["fp32"]
    answer = await predict(museum, sensor_counts(99), "int8")
    assert (answer["evidence"], answer["warnings"]) == ("disagreed", [parameters["warnings"]])
    assert answer["accuracy"] == pytest.approx(trial["agreement"], abs=1e-6)


async def test_variant_of_few_calibration_samples_stays_unverified(stand: Stand, tmp_path: Path) -> None:
    """Int8 was calibrated with all seven; fp16 was not."""
    museum = stand.client("museum")
    job, _ = await import_level(museum, tmp_path, calibration=calibration(7))
    told = "unverified, because of fewer than 8 calibration samples none is held out to verify it: int8"
    assert told in job["message"]
    evidence = {name: one["evidence"] for name, one in (await variants_of(museum)).items()}
    assert (evidence["int8"], evidence["fp16"]) == ("calibration", "samples")
    (warning,) = (await museum.get("/v1/applications/level")).json()["warnings"]
    assert warning["variants"] == ["int8"]
    assert "8 calibration samples or more" in warning["detail"]
    _, parameters = await infer(museum, sensor_counts(99), "int8")
    assert parameters["warnings"].startswith("int8 is unverified: its answers were compared on the samples that it")


async def test_model_that_can_never_fit_is_warned_of_with_the_unverified_variant_that_would(
    stand_with: StandWith, tmp_path: Path
) -> None:
    """By its import and its application, and the refusal says so, too."""
    async with stand_with(memory={"budget_bytes": 14_000_000}) as stand:
        museum = stand.client("museum")
        network = quiet_rows(tmp_path / "rows.onnx", 2048).read_bytes()
        job = await imported(museum, "rows", network, metadata={"precisions": ["int8"]})
        application = (await museum.get("/v1/applications/rows")).json()
        inputs = {"X": [[1.0] * 2048]}
        refused = await museum.post("/v1/applications/rows/predict", json={"inputs": inputs})
        assert (refused.status_code, refused.json()["would_fit"]) == (507, ["int8"])
        told = "int8 would fit and is unverified: name it, or set unverified of the application to allow"
        [warning] = [one for one in application["warnings"] if one["type"] == "can-never-fit"]
        assert (warning["variants"], warning["budget_bytes"]) == (["fp32"], 14_000_000)
        for words in (job["message"], warning["detail"], refused.json()["detail"]):
            assert told in words
        await museum.patch("/v1/applications/rows", json={"unverified": "allow"})
        assert (await museum.post("/v1/applications/rows/predict", json={"inputs": inputs})).status_code == 200
        warnings = (await museum.get("/v1/applications/rows")).json()["warnings"]
        assert not [one for one in warnings if one["type"] == "can-never-fit"]
