"""Models are measured on every kind of processor: on the first before they serve, on the others afterwards."""

import asyncio
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from appliance.domain.catalogue import Precision, Profile
from appliance.domain.hardware import Growth, MeasureCase, PreparedForm, Reference
from appliance.domain.jobs import GivenUp
from appliance.domain.names import build_id
from tests.fakes.measure import FakeMeasure
from tests.modelstore.boxes import parts
from tests.modelstore.importing.asking import asked, done, net
from tests.modelstore.importing.other_kind import OTHER, measured

pytestmark = [
    pytest.mark.nightly("each kind measures builds in child processes for seconds"),
    pytest.mark.usefixtures("processes"),
]


@pytest.mark.gate("one import on two kinds")
def test_variants_are_measured_on_other_processors_after_import(tmp_path: Path) -> None:
    """Each content has a form of its own there, and each variant a profile; both are there after a restart."""

    async def story() -> None:
        async with parts(tmp_path / "state", others=[OTHER]) as box:
            await done(box, await box.importer.submit(asked(net(tmp_path), precisions=(Precision.INT8,))))
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
            assert (await box.store.models.get("default/net")).variants[0].profile is not None

    asyncio.run(story())


def test_quantized_network_is_compared_with_original_on_other_processor(tmp_path: Path) -> None:
    """In full precision, on the first kind; the original itself is compared with nothing else."""

    async def story() -> None:
        measure = FakeMeasure()
        async with parts(tmp_path / "state", others=[OTHER], measure=measure) as box:
            await done(box, await box.importer.submit(asked(net(tmp_path), precisions=(Precision.INT8,))))
            by_precision = {one.precision: one for one in (await measured(box)).variants}
            original = build_id(by_precision[Precision.FP32].content_sha256, "cpu")
            quantized = build_id(by_precision[Precision.INT8].content_sha256, "cpu")
            found = {one.form.build_id: one.original and one.original.build_id for one in measure.references}
            assert found == {original: None, quantized: original}

    asyncio.run(story())


def test_shared_rows_on_other_processor_are_as_many_as_on_first(tmp_path: Path) -> None:
    """Measured several at once they would be fewer, for that may end at a smaller batch."""

    async def story() -> None:
        measure = FakeMeasure()
        measure.shared_rows_max = 4
        async with parts(tmp_path / "state", others=[OTHER], measure=measure) as box:
            await done(box, await box.importer.submit(asked(net(tmp_path))))
            for variant in (await measured(box)).variants:
                assert [one.shared_rows_max for one in variant.profiles] == [4, 4]

    asyncio.run(story())


def test_variant_with_different_results_does_not_serve_on_other_processor(tmp_path: Path) -> None:
    """The form for that processor is given up, once; on the first kind the variant serves as before."""

    async def story() -> None:
        measure = FakeMeasure()
        measure.differs = True
        async with parts(tmp_path / "state", others=[OTHER], measure=measure) as box:
            await done(box, await box.importer.submit(asked(net(tmp_path))))

            async def is_tried() -> bool:
                return not box.builds.unmeasured()

            async with asyncio.timeout(120):
                await box.settled(is_tried)
            variants = (await box.store.models.get("default/net")).variants
            assert {one.kind for variant in variants for one in variant.profiles} == {"cpu"}
            variant = variants[0]
            assert (await box.builds.open_build(build_id(variant.content_sha256, "cpu"))).optimised
            assert not (await box.builds.open_build(build_id(variant.content_sha256, "openvino"))).optimised

    asyncio.run(story())


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
def test_reduced_precision_serves_where_faster_and_as_accurate(
    tmp_path: Path, share: float, differs: float, source: Callable[[Path], Path], chosen: str
) -> None:
    """On a kind that has it. The choice is remembered with the form, and shown; nothing is left of the other."""

    async def story() -> None:
        measure = FakeMeasure()
        measure.reduced_share, measure.reduced_differs = share, differs
        others = [replace(OTHER, reduced="bf16")]
        async with parts(tmp_path / "state", others=others, measure=measure) as box:
            await done(box, await box.importer.submit(asked(source(tmp_path))))
            (profile,) = (await measured(box)).variants[0].other_profiles
            assert profile.computes_in == chosen
        async with parts(tmp_path / "state", others=others) as box:
            variant = (await box.store.models.get("default/net")).variants[0]
            form = await box.builds.open_build(build_id(variant.content_sha256, "openvino"))
            assert (form.computes_in, form.optimised, box.builds.unmeasured()) == (chosen, True, [])
            home = Path(form.path).parents[1]
            assert [one.name for one in home.iterdir()] == [form.build_id]

    asyncio.run(story())


class Slow(FakeMeasure):
    """What concerns another kind waits to be let on."""

    def __init__(self) -> None:
        super().__init__()
        self.may_compile, self.may_measure = asyncio.Event(), asyncio.Event()

    async def prepare(
        self, source: str, target_dir: str, processor: str, *, is_reduced: bool = False
    ) -> PreparedForm | None:
        if processor != "cpu":
            await self.may_compile.wait()
        return await super().prepare(source, target_dir, processor, is_reduced=is_reduced)

    async def profile(
        self,
        form: PreparedForm,
        processor: str,
        cases: Sequence[MeasureCase],
        growth: Growth = Growth(),  # noqa: B008
        reference: Reference | None = None,
    ) -> Profile:
        if processor != "cpu":
            await self.may_measure.wait()
        return await super().profile(form, processor, cases, growth, reference)


@pytest.mark.nightly("another whole import")
def test_importer_reports_variants_still_to_be_measured(tmp_path: Path) -> None:
    """Of every content: waiting, being compiled or being measured; then, by an event, the result."""

    async def story() -> None:
        measure = Slow()
        async with parts(tmp_path / "state", others=[OTHER], measure=measure) as box:
            await done(box, await box.importer.submit(asked(net(tmp_path), precisions=(Precision.INT8,))))
            contents = {one.content_sha256 for one in (await box.store.models.get("default/net")).variants}
            assert len(contents) == 2  # rungs share theirs

            def told() -> list[str]:
                return sorted(each.state for content in contents for each in box.importer.awaited(content))

            async def until(states: list[str]) -> None:
                async def is_so() -> bool:
                    return told() == states

                async with asyncio.timeout(120):
                    await box.settled(is_so)

            await until(["compiling", "waiting"])
            assert {each.kind for content in contents for each in box.importer.awaited(content)} == {"openvino"}
            measure.may_compile.set()
            await until(["measuring", "waiting"])
            measure.may_measure.set()
            await until([])
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

    asyncio.run(story())


GIVEN_UP = {
    "it computes something else": ("differs", "output 'out' differs by 0.5 of what cpu computes"),
    "it is not compiled": ("cannot compile", "openvino cannot compile it: no rule for Det"),
    "nobody says why": ("", "openvino cannot compile it"),
    "it ends its process": ("crashes", "exit status -11"),
}


@pytest.mark.parametrize(("what", "told"), GIVEN_UP.values(), ids=GIVEN_UP)
def test_reason_for_giving_up_processor_is_remembered_with_build(tmp_path: Path, what: str, told: str) -> None:
    """After a restart, too, until the kind's libraries change; then it is tried anew."""

    class Crashes(FakeMeasure):
        async def profile(
            self,
            form: PreparedForm,
            processor: str,
            cases: Sequence[MeasureCase],
            growth: Growth = Growth(),  # noqa: B008
            reference: Reference | None = None,
        ) -> Profile:
            self.breaks_all = what == "crashes" and processor != "cpu"
            return await super().profile(form, processor, cases, growth, reference)

    async def story() -> None:
        measure = Crashes()
        measure.differs = what == "differs"
        measure.cannot_prepare = lambda source, processor: what in ("cannot compile", "") and processor != "cpu"
        measure.reason = "no rule for Det" if what else ""
        expected = [GivenUp("openvino", told)]
        async with parts(tmp_path / "state", others=[OTHER], measure=measure) as box:
            await done(box, await box.importer.submit(asked(net(tmp_path))))
            content = (await box.store.models.get("default/net")).variants[0].content_sha256

            async def is_tried() -> bool:
                return not box.builds.untried(content)

            async with asyncio.timeout(120):
                await box.settled(is_tried)
            assert box.importer.given_up(content) == expected
        async with parts(tmp_path / "state", others=[OTHER], runs=False) as box:
            assert box.importer.given_up(content) == expected
        newer = replace(OTHER, fingerprint="library 3")
        async with parts(tmp_path / "state", others=[newer], runs=False) as box:
            assert box.importer.given_up(content) == []
            assert [one.processor.kind for one in box.builds.untried(content)] == ["openvino"]

    asyncio.run(story())


def test_unexpected_error_of_other_processor_is_reported_as_reason(tmp_path: Path) -> None:
    """The processor is tried again after the next start."""

    class Mistaken(FakeMeasure):
        async def prepare(
            self, source: str, target_dir: str, processor: str, *, is_reduced: bool = False
        ) -> PreparedForm | None:
            if processor != "cpu":
                raise ZeroDivisionError("what now")
            return await super().prepare(source, target_dir, processor, is_reduced=is_reduced)

    async def story() -> None:
        async with parts(tmp_path / "state", others=[OTHER], measure=Mistaken()) as box:
            await done(box, await box.importer.submit(asked(net(tmp_path))))
            content = (await box.store.models.get("default/net")).variants[0].content_sha256

            async def is_told() -> bool:
                return bool(box.importer.given_up(content))

            async with asyncio.timeout(120):
                await box.settled(is_told)
            assert box.importer.given_up(content) == [GivenUp("openvino", "ZeroDivisionError: what now")]
            assert box.importer.awaited(content) == []

    asyncio.run(story())


def test_variant_given_up_on_processor_is_not_awaited(tmp_path: Path) -> None:
    async def story() -> None:
        measure = FakeMeasure()
        measure.differs = True
        async with parts(tmp_path / "state", others=[OTHER], measure=measure) as box:
            await done(box, await box.importer.submit(asked(net(tmp_path))))

            async def is_told() -> bool:
                return bool(box.events.of("variant measured"))

            async with asyncio.timeout(120):
                await box.settled(is_told)
            told = box.events.of("variant measured")[0]
            assert (told["runs_there"], told["reason"]) == (False, "output 'out' differs by 0.5 of what cpu computes")
            variant = (await box.store.models.get("default/net")).variants[0]

            async def is_over() -> bool:
                return not box.importer.awaited(variant.content_sha256)

            async with asyncio.timeout(120):
                await box.settled(is_over)

    asyncio.run(story())
