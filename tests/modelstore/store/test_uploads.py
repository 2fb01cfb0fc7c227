"""Uploads go on where they stopped, whatever stopped them, within every limit."""

import asyncio
import hashlib
import itertools
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from appliance.domain.catalogue import Quota, Tenant
from appliance.domain.errors import (
    BadInput,
    IllegalState,
    OffsetMismatch,
    QuotaExceeded,
    StorageFull,
    TooLarge,
    UnknownTenant,
    UnknownUpload,
)
from appliance.modelstore.store.store import Store
from appliance.modelstore.store.uploads import Uploads
from tests.harness.lanes import examples
from tests.modelstore.boxes import MIB, Parts, parts, stored_model, stream

pytestmark = [pytest.mark.anyio, pytest.mark.gate("works on real networks and files")]


class Broken(Exception):
    """The connection went away."""


async def breaking(*blocks: bytes) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block
    raise Broken


@given(
    body=st.binary(max_size=5000),
    cuts=st.lists(st.integers(0, 5000), max_size=5),
    breaks=st.lists(st.booleans(), max_size=6),
)
@examples(gate=20)
def test_upload_cut_into_any_pieces_arrives_whole(body: bytes, cuts: list[int], breaks: list[bool]) -> None:
    """However a file is cut into pieces and blocks, and wherever the connection breaks, going on at the offset gives
    the same bytes.
    """
    edges = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    pieces = [body[start:end] for start, end in itertools.pairwise(edges)] or [b""]

    async def story(folder: Path) -> None:
        async with parts(folder, runs=False) as box:
            record = await box.uploads.create("default", len(body), hashlib.sha256(body).hexdigest())
            offset = 0
            for number, piece in enumerate(pieces):
                blocks = [piece[: len(piece) // 2], piece[len(piece) // 2 :]]
                if number < len(breaks) and breaks[number]:
                    with pytest.raises(Broken):
                        await box.uploads.append(record.id, offset, breaking(*blocks))
                else:
                    await box.uploads.append(record.id, offset, stream(*blocks))
                offset = (await box.uploads.upload(record.id)).offset
            path = await box.uploads.finish(record.id)
            assert path.read_bytes() == body

    with tempfile.TemporaryDirectory() as name:
        asyncio.run(story(Path(name)))


async def test_upload_continues_at_offset_after_restart(tmp_path: Path) -> None:
    """What was acknowledged before the box stopped need not be sent again; what was announced is remembered."""
    async with parts(tmp_path, runs=False) as box:
        record = await box.uploads.create("default", 10, file_name="net.onnx")
        await box.uploads.append(record.id, 0, stream(b"0123"))
    async with parts(tmp_path, runs=False) as box:
        again = await box.uploads.upload(record.id)
        assert (again.offset, again.length, again.file_name, again.is_complete) == (4, 10, "net.onnx", False)
        done = await box.uploads.append(record.id, 4, stream(b"456789"))
        assert done.is_complete
        assert (await box.uploads.finish(record.id)).read_bytes() == b"0123456789"


async def test_upload_keeps_bytes_of_cancelled_request(box: Parts) -> None:
    """The server drops the handler of a vanished client; its blocks are on the disk."""
    all_are_taken = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * (2 * MIB)
        yield b"y" * 10
        all_are_taken.set()
        await asyncio.Event().wait()

    record = await box.uploads.create("default")
    task = asyncio.create_task(box.uploads.append(record.id, 0, endless()))
    await all_are_taken.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert (await box.uploads.upload(record.id)).offset == 2 * MIB + 10


async def test_upload_piece_at_wrong_offset_is_refused_with_right_offset(box: Parts) -> None:
    """A piece that would leave a gap or write twice is refused before a byte of it is read."""
    record = await box.uploads.create("default", 10)
    await box.uploads.append(record.id, 0, stream(b"0123"))
    for offset in (0, 3, 5):
        with pytest.raises(OffsetMismatch) as caught:
            await box.uploads.append(record.id, offset, stream(b"456789"))
        assert caught.value.expected_offset == 4
    assert (await box.uploads.upload(record.id)).offset == 4


async def test_concurrent_uploads_never_exceed_quota_together(box: Parts) -> None:
    """Many uploads that grow at once, and one that is announced meanwhile, never take more than the quota together;
    what was deleted can be taken again.
    """
    quota = 3 * MIB

    async def slowly(blocks: int) -> AsyncIterator[bytes]:
        for _ in range(blocks):
            yield b"x" * 65_536
            await asyncio.sleep(0)  # noqa: TID251 - lets the others go on

    await box.store.tenants.create(Tenant("harbour", Quota(stored_bytes=quota)))
    uploads = [await box.uploads.create("harbour") for _ in range(6)]
    pieces = [box.uploads.append(one.id, 0, slowly(32)) for one in uploads]
    announced = [box.uploads.create("harbour", MIB) for _ in range(6)]
    ends = await asyncio.gather(*pieces, *announced, return_exceptions=True)
    assert {type(end) for end in ends if isinstance(end, BaseException)} == {QuotaExceeded}
    stored = await box.store.stored_bytes.of_tenant("harbour")
    assert quota - 2 * MIB <= stored <= quota
    assert sum(path.stat().st_size for path in (box.store.state_dir / "uploads").iterdir()) <= quota
    for one in await box.uploads.uploads("harbour"):
        await box.uploads.delete(one.id)
    again = await box.uploads.create("harbour")
    assert (await box.uploads.append(again.id, 0, slowly(48))).offset == quota
    with pytest.raises(QuotaExceeded):
        await box.uploads.append(again.id, quota, slowly(1))


async def test_upload_refuses_other_calls_while_piece_is_written(box: Parts) -> None:
    """While one piece is being written another one, a finish and a deletion are refused; afterwards they work."""
    is_taken, gate = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"01"
        is_taken.set()
        await gate.wait()
        yield b"23"

    record = await box.uploads.create("default", 4)
    first = asyncio.create_task(box.uploads.append(record.id, 0, slow()))
    await is_taken.wait()
    for attempt in (
        box.uploads.append(record.id, 0, stream(b"ab")),
        box.uploads.finish(record.id),
        box.uploads.delete(record.id),
    ):
        with pytest.raises(IllegalState):
            await attempt
    gate.set()
    await first
    assert (await box.uploads.finish(record.id)).read_bytes() == b"0123"
    await box.uploads.delete(record.id)
    with pytest.raises(UnknownUpload):
        await box.uploads.upload(record.id)
    assert list(box.uploads.folder.iterdir()) == []


async def test_upload_limits_hold(tmp_path: Path) -> None:
    """The box's limit at the start and on the way, the announced length, and nonsense in the announcement."""
    async with parts(tmp_path, runs=False, bytes_max=8) as box:
        uploads = box.uploads
        with pytest.raises(TooLarge):
            await uploads.create("default", 9)
        for length, error in ((None, TooLarge), (3, TooLarge)):
            record = await uploads.create("default", length)
            with pytest.raises(error):
                await uploads.append(record.id, 0, stream(b"ab", b"cdefghi"))
            assert (await uploads.upload(record.id)).offset == 2
        with pytest.raises(BadInput):
            await uploads.create("default", -1)
        with pytest.raises(BadInput):
            await uploads.create("default", sha256="g" * 64)
        with pytest.raises(UnknownTenant):
            await uploads.create("nobody", 1)


async def test_upload_finish_checks_length_and_digest(box: Parts) -> None:
    """Missing bytes and other bytes are told apart; a digest may be written in capitals."""
    record = await box.uploads.create("default", 4, hashlib.sha256(b"good").hexdigest().upper())
    await box.uploads.append(record.id, 0, stream(b"go"))
    with pytest.raises(IllegalState, match="2 of 4 bytes"):
        await box.uploads.finish(record.id)
    await box.uploads.append(record.id, 2, stream(b"od"))
    assert (await box.uploads.finish(record.id)).read_bytes() == b"good"
    other = await box.uploads.create("default", 3, hashlib.sha256(b"good").hexdigest())
    await box.uploads.append(other.id, 0, stream(b"bad"))
    with pytest.raises(BadInput, match="SHA-256"):
        await box.uploads.finish(other.id)


async def test_upload_quota_counts_announced_bytes(box: Parts, tmp_path: Path) -> None:
    """Announced bytes are reserved at the start; an upload of unknown length is stopped where the quota ends."""
    await box.store.tenants.create(Tenant("harbour", Quota(stored_bytes=100)))
    await stored_model(box.store, tmp_path, body=b"x" * 30, tenant="harbour")
    announced = await box.uploads.create("harbour", 50)
    with pytest.raises(QuotaExceeded):
        await box.uploads.create("harbour", 21)
    open_ended = await box.uploads.create("harbour")
    with pytest.raises(QuotaExceeded):
        await box.uploads.append(open_ended.id, 0, stream(b"a" * 15, b"b" * 15))
    assert (await box.uploads.upload(open_ended.id)).offset == 15
    await box.uploads.append(announced.id, 0, stream(b"c" * 50))


async def test_idle_uploads_expire(box: Parts) -> None:
    """A day without a piece and the upload is gone, bytes and all; an upload that goes on stays, and so does another
    tenant's.
    """
    idle, busy = await box.uploads.create("default"), await box.uploads.create("default")
    box.clock.let_pass(hours=23)
    await box.uploads.append(busy.id, 0, stream(b"x"))
    box.clock.let_pass(hours=2)
    assert await box.uploads.sweep() == [idle.id]
    assert [one.id for one in await box.uploads.uploads("default")] == [busy.id]
    assert [path.name for path in box.uploads.folder.iterdir()] == [busy.id]


async def test_clock_that_is_set_makes_no_upload_idle(box: Parts) -> None:
    """A box without a battery for its clock starts in 1970, and is told the time while an upload is under way."""
    record = await box.uploads.create("default")
    await box.uploads.append(record.id, 0, stream(b"x"))
    box.clock.now += timedelta(days=20_000)
    assert await box.uploads.sweep() == []
    assert (await box.uploads.upload(record.id)).offset == 1
    box.clock.let_pass(hours=25)
    assert await box.uploads.sweep() == [record.id]


async def test_upload_whose_file_was_taken_is_forgotten(box: Parts) -> None:
    """Killed between the import's taking the file and the upload's deletion: the next sweep drops the row."""
    record = await box.uploads.create("default", 1)
    (box.uploads.folder / record.id).unlink()
    assert await box.uploads.sweep() == [record.id]


async def test_upload_fails_on_full_disk_and_continues_with_free_space(small_disk: Path) -> None:
    """The piece fails with a clear error, the box goes on, and when there is room again the upload goes on at its
    offset.
    """
    async with parts(small_disk, runs=False) as box:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"b" * MIB)
        record = await box.uploads.create("default")
        with pytest.raises(StorageFull):
            await box.uploads.append(record.id, 0, stream(*[b"x" * 65536] * 64))
        offset = (await box.uploads.upload(record.id)).offset
        assert 0 < offset < 4 * MIB
        ballast.unlink()
        assert (await box.uploads.append(record.id, offset, stream(b"yy"))).offset == offset + 2
        body = (await box.uploads.finish(record.id)).read_bytes()
        assert body == b"x" * offset + b"yy"


async def test_upload_memory_does_not_grow_with_piece(box: Parts) -> None:
    """A piece of 48 MiB grows the process by a few blocks only."""
    record = await box.uploads.create("default")
    block = b"z" * 65536
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    await box.uploads.append(record.id, 0, stream(*[block] * 768))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (await box.uploads.upload(record.id)).offset == 48 * MIB
    assert peak - before < 8 * MIB


async def test_uploads_under_way_are_bounded(store: Store) -> None:
    """One tenant may have so many, all together ten times as many; a deleted upload makes room."""
    uploads = Uploads(store, bytes_max=1000, per_tenant_max=2)
    first = await uploads.create("default")
    await uploads.create("default")
    with pytest.raises(QuotaExceeded, match="uploads under way"):
        await uploads.create("default")
    await uploads.delete(first.id)
    await uploads.create("default")
    for number in range(9):
        await store.tenants.create(Tenant(f"t{number}"))
        for _ in range(2):
            await uploads.create(f"t{number}")
    await store.tenants.create(Tenant("late"))
    with pytest.raises(QuotaExceeded):
        await uploads.create("late")
