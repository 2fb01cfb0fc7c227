"""Prepared forms serve only when they have run here, and are made anew when the machine's libraries change."""

import asyncio
import mmap
import os
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.confinement.limits import ChildLimits
from appliance.domain.catalogue import Latency, Profile, Variant
from appliance.domain.errors import LoadFailed, StorageFull
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.names import build_id
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.runtime.processors.measuring.measure import ChildMeasure
from tests import toys
from tests.modelstore.boxes import CPU, Parts, parts, stored_model

pytestmark = pytest.mark.anyio

PATIENCE_S = 240.0
PROFILE = Profile("cpu", 1000, 2000, 1.0, 2.0, (Latency(1, 1.0, 2.0),))


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Parts]:
    """A box whose importer, which would prepare forms by itself, does not run."""
    async with parts(tmp_path / "state", runs=False) as made:
        yield made


async def stored(box: Parts, folder: Path, body: bytes = b"weights") -> Variant:
    """A variant whose build waits to be prepared."""
    variant = await stored_model(box.store, folder, body=body)
    box.builds.put(variant)
    return variant


async def prepared(box: Parts, variant: Variant, processor: ProcessorDescription = CPU) -> PreparedForm:
    path = box.store.blobs.path(variant.content_sha256)
    return await box.builds.prepare(box.measure, variant.content_sha256, path, processor)


async def kept(box: Parts, folder: Path) -> Variant:
    """A variant with a prepared form that serves."""
    variant = await stored(box, folder)
    await box.builds.keep(await prepared(box, variant))
    return variant


async def opened(box: Parts, variant: Variant, kind: str = "cpu") -> PreparedForm:
    return await box.builds.open_build(build_id(variant.content_sha256, kind))


def waiting(box: Parts) -> list[str]:
    """Builds that wait to be prepared."""
    return [build.id for build in box.builds.unmeasured()]


def body_of(form: PreparedForm) -> bytes:
    return Path(form.path).read_bytes()


def mapped(form: PreparedForm) -> mmap.mmap:
    with Path(form.path).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def is_gone(form: PreparedForm) -> bool:
    return not Path(form.path).exists()


def damage(form: PreparedForm) -> None:
    Path(form.path).write_bytes(b"cut")


def flip(form: PreparedForm) -> None:
    """Change one byte in the middle; the file is as long as before."""
    body = bytearray(body_of(form))
    body[len(body) // 2] ^= 0x40
    Path(form.path).write_bytes(body)


def id_of(variant: Variant) -> str:
    return build_id(variant.content_sha256, "cpu")


async def test_build_without_prepared_form_serves_plain_file(box: Parts, tmp_path: Path) -> None:
    """A new variant can be opened at once, with its known size."""
    variant = await stored_model(box.store, tmp_path)
    box.builds.put(replace(variant, profile=PROFILE))
    form = await opened(box, variant)
    assert not form.optimised
    assert body_of(form) == b"weights"
    assert (form.size_bytes, form.resident_bytes, form.peak_bytes) == (7, 1000, 2000)
    with pytest.raises(LoadFailed):
        await box.builds.open_build("unknown@cpu")


async def test_prepared_form_serves_only_after_trial(tmp_path: Path) -> None:
    """While it is tried, requests get the plain file; once kept it serves, also after a restart, and is not made
    again.
    """
    async with parts(tmp_path, runs=False) as box:
        variant = await stored(box, tmp_path)
        tried = await prepared(box, variant)
        assert tried.optimised
        assert not (await opened(box, variant)).optimised
        await box.builds.keep(tried)
        await box.builds.discard(tried)
        serving = await opened(box, variant)
        assert serving.optimised
        assert body_of(serving) == b"weights"
        assert await prepared(box, variant) == serving
        assert len(box.measure.prepared) == 1
    async with parts(tmp_path, runs=False) as box:
        assert (await opened(box, variant)).path == serving.path
        assert box.builds.unmeasured() == []


@pytest.mark.parametrize("has_forms", [True, False])
async def test_rejected_prepared_form_is_not_tried_again(tmp_path: Path, has_forms: bool) -> None:
    """Crashed in the measuring child, or impossible: the plain file serves on this machine from then on."""
    async with parts(tmp_path, runs=False) as box:
        variant = await stored_model(box.store, tmp_path)
        box.measure.has_forms = has_forms
        box.builds.put(variant)
        tried = await prepared(box, variant)
        assert tried.optimised == has_forms
        if has_forms:
            await box.builds.reject(tried, "exit status -11")
            await box.builds.discard(tried)
    async with parts(tmp_path, runs=False) as box:
        assert box.builds.unmeasured() == []
        assert not (await prepared(box, variant)).optimised
        assert box.measure.prepared == []
        assert not list((tmp_path / "prepared").glob("*/tmp-*"))


async def test_prepared_forms_are_stale_after_library_update(tmp_path: Path) -> None:
    """The old folder goes and the build waits to be prepared again; meanwhile the plain file serves."""
    async with parts(tmp_path, runs=False) as box:
        variant = await kept(box, tmp_path)
    async with parts(tmp_path, runs=False, processor=replace(CPU, fingerprint="library 2")) as box:
        assert waiting(box) == [id_of(variant)]
        assert not (await opened(box, variant)).optimised
        assert list((tmp_path / "prepared").iterdir()) == []


async def test_profile_that_lacks_runs_at_once_is_made_anew_after_the_next_start(tmp_path: Path) -> None:
    """A build was profiled for two workers, and the box has four now. What was imported since the start is not profiled
    twice: where it lacks them, they could not be timed.
    """
    several = PROFILE.latencies[0], Latency(1, 1.0, 2.0, 2)
    four = replace(CPU, workers=4, at_once=RunsAtOnce(4, 2))
    async with parts(tmp_path / "state", runs=False) as box:
        variant = await kept(box, tmp_path)
        profile = replace(PROFILE, latencies=several, hazards=())
        variant = await box.store.models.put_variant(replace(variant, profile=profile))
    async with parts(tmp_path / "state", runs=False, processor=replace(CPU, at_once=RunsAtOnce(2, 2))) as box:
        assert waiting(box) == []
    async with parts(tmp_path / "state", runs=False, processor=four) as box:
        assert waiting(box) == [id_of(variant)]
        whole = replace(profile, latencies=(*several, Latency(1, 2.0, 4.0, 4)))
        box.builds.put(replace(variant, profile=whole))
        assert waiting(box) == []
    async with parts(tmp_path / "new", runs=False, processor=four) as box:
        new = await kept(box, tmp_path)
        box.builds.put(replace(new, profile=profile))
        assert waiting(box) == []


async def test_damaged_prepared_form_falls_back_to_plain_file(box: Parts, tmp_path: Path) -> None:
    """A file that was cut short is noticed when it is opened; the build is prepared again."""
    variant = await kept(box, tmp_path)
    form = await opened(box, variant)
    assert box.builds.unmeasured() == []
    damage(form)
    assert not (await opened(box, variant)).optimised
    await asyncio.wait_for(box.builds.wait_unmeasured(), PATIENCE_S)
    assert waiting(box) == [id_of(variant)]


@pytest.mark.parametrize("is_found_at_night", [False, True], ids=["at a load", "at night"])
async def test_flipped_byte_in_prepared_form_is_found_and_healed(tmp_path: Path, is_found_at_night: bool) -> None:
    """The plain file serves until the form is made anew from it, also after a restart."""
    async with parts(tmp_path / "state", runs=False) as box:
        variant = await kept(box, tmp_path)
        form = await opened(box, variant)
        assert form.optimised
        assert box.builds.has_sound_form(variant.content_sha256)
        await box.builds.check()
        assert (await opened(box, variant)).optimised
        flip(form)
        if is_found_at_night:
            await box.builds.check()
            assert waiting(box) == [id_of(variant)]
        assert not (await opened(box, variant)).optimised
        assert not box.builds.has_sound_form(variant.content_sha256)
    async with parts(tmp_path / "state", runs=False) as box:
        assert not (await opened(box, variant)).optimised
        await box.builds.keep(await prepared(box, variant))
        assert (await opened(box, variant)).optimised


async def test_prepared_form_kept_by_two_imports_at_once_is_stored_once(
    box: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have tried a form of their own, and both are about to put it there: the first stays, for from then on it may
    be in use, and serves both.
    """
    both_are_here = threading.Barrier(2)
    placed: list[Path] = []

    def rename(source: Path, target: Path) -> None:
        with suppress(threading.BrokenBarrierError):  # where only one comes so far
            both_are_here.wait(0.3)
        placed.append(target)
        os.replace(source, target)

    variant = await stored(box, tmp_path)
    forms = [await prepared(box, variant) for _ in range(2)]
    monkeypatch.setattr(os, "rename", rename)
    await asyncio.gather(*(box.builds.keep(form) for form in forms))
    monkeypatch.undo()
    serving = await opened(box, variant)
    assert serving.optimised
    assert body_of(serving) == b"weights"
    assert placed == [Path(serving.path).parent]
    assert box.builds.unmeasured() == []
    assert not list((box.store.state_dir / "prepared").glob("*/tmp-*"))


@pytest.mark.parametrize("is_kept", [True, False])
async def test_prepared_form_of_content_deleted_during_trial_is_dropped(
    box: Parts, tmp_path: Path, is_kept: bool
) -> None:
    """An import that has no row yet does not fail where the last model with the same content goes; its own variant
    brings the build back, to be prepared anew.
    """
    variant = await stored(box, tmp_path)
    form = await prepared(box, variant)
    await box.builds.forget([variant.content_sha256])
    await (box.builds.keep(form) if is_kept else box.builds.reject(form, "exit status -11"))
    await box.builds.discard(form)
    box.builds.put(variant)
    assert waiting(box) == [id_of(variant)]
    assert not list((box.store.state_dir / "prepared").glob("*/*"))


async def test_content_stored_again_while_forgotten_is_prepared_anew(tmp_path: Path) -> None:
    """On every kind: neither is its new build dropped with the old one, nor an old form taken that is being removed."""
    gpu = replace(CPU, name="gpu", kind="gpu")
    async with parts(tmp_path, runs=False, others=[gpu]) as box:
        variant = await stored(box, tmp_path)
        for processor in (CPU, gpu):
            await box.builds.keep(await prepared(box, variant, processor))
        assert box.builds.unmeasured() == []
        forgetting = asyncio.create_task(box.builds.forget([variant.content_sha256]))
        await box.clock.sleep_until_ns(0)  # it has begun
        box.builds.put(variant)
        assert [build.processor for build in box.builds.unmeasured()] == [CPU, gpu]
        await forgetting
        assert [build.processor for build in box.builds.unmeasured()] == [CPU, gpu]
        for processor in (CPU, gpu):
            assert not (await opened(box, variant, processor.kind)).optimised
        assert not list((tmp_path / "prepared").glob("*/*"))


async def test_build_forgotten_while_opened_stays_forgotten(box: Parts, tmp_path: Path) -> None:
    """The damaged form of the build is no reason to note it again."""
    variant = await kept(box, tmp_path)
    damage(await opened(box, variant))
    opening = asyncio.create_task(box.builds.open_build(id_of(variant)))
    await box.clock.sleep_until_ns(0)  # it has begun
    await box.builds.forget([variant.content_sha256])
    assert not (await opening).optimised
    assert box.builds.unmeasured() == []


@pytest.mark.parametrize("is_made_anew", [True, False])
async def test_mapped_prepared_form_is_never_written_to(box: Parts, tmp_path: Path, is_made_anew: bool) -> None:
    """A mapping lives on while its form is made anew or deleted: it is another file from then on, or none."""
    variant = await kept(box, tmp_path)
    old = await opened(box, variant)
    mapping = mapped(old)
    if is_made_anew:
        await box.builds.reject(old, "as a test says so")
    else:
        await box.builds.forget([variant.content_sha256])
    assert is_gone(old)
    assert mapping[:] == b"weights"


async def test_prepared_forms_are_deleted_with_content(tmp_path: Path) -> None:
    """After the model is deleted nothing of its forms is on the disk, and forms of unknown builds go at start."""
    async with parts(tmp_path, runs=False) as box:
        variant = await kept(box, tmp_path)
        await box.deletion.delete("default/m")
        assert not list((tmp_path / "prepared").rglob("model.onnx"))
        with pytest.raises(LoadFailed):
            await opened(box, variant)
        orphan = next((tmp_path / "prepared").iterdir()) / "someone@cpu"
        orphan.mkdir()
    async with parts(tmp_path, runs=False):
        assert not orphan.exists()


async def test_build_size_is_that_of_largest_variant_of_content(box: Parts, tmp_path: Path) -> None:
    """Another processor's profile does not count."""
    variant = await stored_model(box.store, tmp_path)
    for resident in (1000, 3000, 2000):
        box.builds.put(replace(variant, profile=replace(PROFILE, resident_bytes=resident)))
    box.builds.put(replace(variant, profile=replace(PROFILE, processor="gpu", resident_bytes=9000)))
    form = await opened(box, variant)
    assert (form.resident_bytes, form.asleep_bytes) == (3000, None)
    for asleep in (70, None, 50):
        box.builds.put(replace(variant, profile=replace(PROFILE, asleep_bytes=asleep)))
    assert (await opened(box, variant)).asleep_bytes == 70


async def test_prepared_form_without_disk_space_is_made_later(small_disk: Path, tmp_path: Path) -> None:
    """With the runtime itself: a full disk does not mean that there can be no form; nothing is left of the attempt."""
    net = toys.conv_net(tmp_path / "net.onnx", 1.2)
    async with parts(small_disk, runs=False) as box:
        variant = await stored(box, tmp_path, net.read_bytes())
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        measure = ChildMeasure([CPU], ChildLimits(wall_s=60), scratch)
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - 1_000_000))
        with pytest.raises(StorageFull):
            await box.builds.prepare(measure, variant.content_sha256, net, CPU)
        assert not list((small_disk / "prepared").rglob("model.*"))
        assert waiting(box) == [id_of(variant)]
        ballast.unlink()
        net.write_bytes(toys.conv_net(tmp_path / "smaller.onnx", 0.3).read_bytes())
        assert (await box.builds.prepare(measure, variant.content_sha256, net, CPU)).optimised


async def test_distrusted_prepared_form_is_made_anew(tmp_path: Path) -> None:
    """From then on, and after a restart, the plain file serves; what has mapped the old form keeps it."""
    async with parts(tmp_path, runs=False) as box:
        variant = await kept(box, tmp_path)
        old = mapped(await opened(box, variant))
        box.builds.unmeasured()
        box.builds.distrust("unknown@cpu")
        box.builds.distrust(id_of(variant))
        await asyncio.wait_for(box.builds.wait_unmeasured(), PATIENCE_S)
        assert not (await opened(box, variant)).optimised
    async with parts(tmp_path, runs=False) as box:
        assert not (await opened(box, variant)).optimised
        await box.builds.keep(await prepared(box, variant))
        assert (await opened(box, variant)).optimised
        assert old[:] == b"weights"


async def test_full_disk_leaves_no_partial_prepared_form(small_disk: Path, tmp_path: Path) -> None:
    """A form that does not fit is gone without a trace, and the plain file serves."""
    async with parts(small_disk, runs=False) as box:
        variant = await stored(box, tmp_path, b"w" * 1_600_000)
        with pytest.raises((StorageFull, OSError)):
            await prepared(box, variant)
        assert not list((small_disk / "prepared").rglob("model.onnx"))
        assert not (await opened(box, variant)).optimised
