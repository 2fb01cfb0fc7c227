"""Models are measured on every kind of processor: on the first before they serve, on the others afterwards."""

import asyncio
import zipfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from appliance.domain.catalogue import Precision
from appliance.domain.errors import LoadFailed
from appliance.domain.jobs import GivenUp
from appliance.domain.names import build_id
from tests.fakes.measure import FakeMeasure
from tests.fakes.waiting import until
from tests.modelstore.boxes import Parts, parts
from tests.modelstore.importing.asking import asked, imported, net
from tests.modelstore.importing.other_kind import OTHER, measured

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.nightly("each kind measures builds in child processes for seconds"),
    pytest.mark.usefixtures("processes"),
]


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Parts]:
    """A box with a second kind of processor."""
    async with parts(tmp_path / "state", others=[OTHER]) as made:
        yield made


@pytest.mark.gate("one import on two kinds")
async def test_variants_are_measured_on_other_processors_after_import(tmp_path: Path) -> None:
    """Each content has a form of its own there, and each variant a profile; both are there after a restart."""
    async with parts(tmp_path / "state", others=[OTHER]) as box:
        await imported(box, asked(net(tmp_path), precisions=(Precision.INT8,)))
        model = await measured(box)
        for variant in model.variants:
            assert [one.kind for one in variant.profiles] == ["cpu", "openvino"]
            assert variant.profiles[0] is variant.profile
            form = await box.builds.open_build(build_id(variant.content_sha256, "openvino"))
            assert (form.kind, form.optimised) == ("openvino", True)
    async with parts(tmp_path / "state", others=[OTHER]) as box:
        assert box.builds.unmeasured() == []
        assert await measured(box) == model
    async with parts(tmp_path / "state", runs=False) as box:  # a box that has lost the kind
        assert (await box.variants())[0].profile is not None


async def test_quantized_network_is_compared_with_original_on_other_processor(box: Parts, tmp_path: Path) -> None:
    """In full precision, on the first kind; the original itself is compared with nothing else."""
    await imported(box, asked(net(tmp_path), precisions=(Precision.INT8,)))
    by_precision = {one.precision: one for one in (await measured(box)).variants}
    original = build_id(by_precision[Precision.FP32].content_sha256, "cpu")
    quantized = build_id(by_precision[Precision.INT8].content_sha256, "cpu")
    found = {one.form.build_id: one.original and one.original.build_id for one in box.measure.references}
    assert found == {original: None, quantized: original}


async def test_shared_rows_on_other_processor_are_as_many_as_on_first(box: Parts, tmp_path: Path) -> None:
    """Measured several at once they would be fewer, for that may end at a smaller batch."""
    box.measure.shared_rows_max = 4
    await imported(box, asked(net(tmp_path)))
    for variant in (await measured(box)).variants:
        assert [one.shared_rows_max for one in variant.profiles] == [4, 4]


async def test_variant_with_different_results_does_not_serve_on_other_processor(box: Parts, tmp_path: Path) -> None:
    """The form for that processor is given up, once, and told; on the first kind the variant serves as before."""
    box.measure.differs = True
    await imported(box, asked(net(tmp_path)))
    await until(lambda: bool(box.events.of("variant measured")))
    told = box.events.of("variant measured")[0]
    assert (told["runs_there"], told["reason"]) == (False, "output 'out' differs by 0.5 of what cpu computes")
    await until(lambda: not box.builds.unmeasured())
    variant, *others = await box.variants()
    assert {one.kind for each in (variant, *others) for one in each.profiles} == {"cpu"}
    assert (await box.builds.open_build(build_id(variant.content_sha256, "cpu"))).optimised
    assert not (await box.builds.open_build(build_id(variant.content_sha256, "openvino"))).optimised
    await until(lambda: not box.importer.awaited(variant.content_sha256))


def with_sample(folder: Path) -> Path:
    """The net and a picture to calibrate on, as a zip."""
    path = folder / "net.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(net(folder), "model.onnx")
        picture = cv2.imencode(".png", np.full((32, 32, 3), 90, np.uint8))[1]
        archive.writestr("calibration/0.png", picture.tobytes())
    return path


@pytest.mark.parametrize(
    ("share", "differs", "source", "chosen"),
    [
        (0.5, 0.005, with_sample, "bf16"),
        (0.95, 0.005, with_sample, ""),
        (0.5, 0.05, with_sample, ""),
        (0.5, 0.0, net, ""),
    ],
    ids=["quicker", "hardly quicker", "something else", "without samples"],
)
async def test_reduced_precision_serves_where_faster_and_as_accurate(
    tmp_path: Path, share: float, differs: float, source: Callable[[Path], Path], chosen: str
) -> None:
    """On a kind that has it. The choice is remembered with the form, and shown; nothing is left of the other."""
    measure = FakeMeasure()
    measure.reduced_share, measure.reduced_differs = share, differs
    others = [replace(OTHER, reduced="bf16")]
    async with parts(tmp_path / "state", others=others, measure=measure) as box:
        await imported(box, asked(source(tmp_path)))
        (profile,) = (await measured(box)).variants[0].other_profiles
        assert profile.computes_in == chosen
    async with parts(tmp_path / "state", others=others) as box:
        variant = (await box.variants())[0]
        form = await box.builds.open_build(build_id(variant.content_sha256, "openvino"))
        assert (form.computes_in, form.optimised, box.builds.unmeasured()) == (chosen, True, [])
        home = Path(form.path).parents[1]
        assert [one.name for one in home.iterdir()] == [form.build_id]


@pytest.mark.nightly("another whole import")
async def test_importer_reports_variants_still_to_be_measured(box: Parts, tmp_path: Path) -> None:
    """Of every content: waiting, being compiled or being measured; then, by an event, the result."""
    may_compile, may_measure = asyncio.Event(), asyncio.Event()

    async def wait(processor: str, event: asyncio.Event) -> None:
        if processor != "cpu":
            await event.wait()

    box.measure.before_prepare = lambda processor: wait(processor, may_compile)
    box.measure.before_profile = lambda processor: wait(processor, may_measure)
    await imported(box, asked(net(tmp_path), precisions=(Precision.INT8,)))
    contents = {one.content_sha256 for one in await box.variants()}
    assert len(contents) == 2  # rungs share theirs

    def told() -> list[str]:
        return sorted(each.state for content in contents for each in box.importer.awaited(content))

    await until(lambda: told() == ["compiling", "waiting"])
    assert {each.kind for content in contents for each in box.importer.awaited(content)} == {"openvino"}
    may_compile.set()
    await until(lambda: told() == ["measuring", "waiting"])
    may_measure.set()
    await until(lambda: told() == [])
    await measured(box)
    facts = box.events.of("variant measured")
    assert {"fp32", "int8"} <= {each["variant"] for each in facts}
    assert facts[0] == {
        "tenant": "default",
        "model_id": "default/net",
        "variant": facts[0]["variant"],
        "kind": "openvino",
        "runs_there": True,
    }
    box.builds.leave_out(frozenset({"openvino"}))
    assert told() == []


GIVEN_UP = {
    "it computes something else": ("differs", "output 'out' differs by 0.5 of what cpu computes"),
    "it is not compiled": ("cannot compile", "openvino cannot compile it: no rule for Det"),
    "nobody says why": ("", "openvino cannot compile it"),
    "it ends its process": ("crashes", "exit status -11"),
}


@pytest.mark.parametrize(("what", "told"), GIVEN_UP.values(), ids=GIVEN_UP)
async def test_reason_for_giving_up_processor_is_remembered_with_build(tmp_path: Path, what: str, told: str) -> None:
    """After a restart, too, until the kind's libraries change; then it is tried anew."""

    async def crash(processor: str) -> None:
        if what == "crashes" and processor != "cpu":
            raise LoadFailed(build_id="", reason="exit status -11")

    async with parts(tmp_path / "state", others=[OTHER]) as box:
        box.measure.differs = what == "differs"
        box.measure.cannot_prepare = lambda source, processor: what in ("cannot compile", "") and processor != "cpu"
        box.measure.reason = "no rule for Det" if what else ""
        box.measure.before_profile = crash
        content = (await imported(box, asked(net(tmp_path)))).variants[0].content_sha256
        await until(lambda: not box.builds.untried(content))
        assert box.importer.given_up(content) == [GivenUp("openvino", told)]
    async with parts(tmp_path / "state", others=[OTHER], runs=False) as box:
        assert box.importer.given_up(content) == [GivenUp("openvino", told)]
    newer = replace(OTHER, fingerprint="library 3")
    async with parts(tmp_path / "state", others=[newer], runs=False) as box:
        assert box.importer.given_up(content) == []
        assert [one.processor.kind for one in box.builds.untried(content)] == ["openvino"]


async def test_unexpected_error_of_other_processor_is_reported_as_reason(box: Parts, tmp_path: Path) -> None:
    """The processor is tried again after the next start."""

    async def mistaken(processor: str) -> None:
        if processor != "cpu":
            raise ZeroDivisionError("what now")

    box.measure.before_prepare = mistaken
    content = (await imported(box, asked(net(tmp_path)))).variants[0].content_sha256
    await until(lambda: bool(box.importer.given_up(content)))
    assert box.importer.given_up(content) == [GivenUp("openvino", "ZeroDivisionError: what now")]
    assert box.importer.awaited(content) == []
