"""A box's store with everything around it, for the tests of this package: real SQLite, real files, real stages; only
measuring is a fake.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from appliance.clock import NS_PER_S, SystemClock
from appliance.domain.catalogue import Model, Precision, TensorSpec, Variant
from appliance.domain.hardware import ProcessorDescription
from appliance.domain.jobs import ImportRequest, JobRecord
from appliance.domain.names import variant_id
from appliance.domain.states import JobState
from appliance.modelstore.importing.deletion import ModelDeletion
from appliance.modelstore.importing.importer import Importer, ImportOptions
from appliance.modelstore.importing.prepared import Builds
from appliance.modelstore.importing.upkeep import Asked, nobody
from appliance.modelstore.store.quick_start import Beginning, quick_start
from appliance.modelstore.store.state_folder import StateFolder
from appliance.modelstore.store.store import Change, ChangeFeed, Store
from appliance.modelstore.store.uploads import Uploads
from tests.fakes.measure import FakeMeasure
from tests.fakes.sinks import Events

CPU = ProcessorDescription("cpu", "cpu", 2, 1, "host", "library 1")
ENDED = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)
MIB = 2**20
PATIENCE_S = 240.0


class CalendarClock(SystemClock):
    """The real clock, but time passes when a test says so, and civil time may be set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self._passed_ns = 0

    def now_ns(self) -> int:
        return super().now_ns() + self._passed_ns

    def let_pass(self, hours: float) -> None:
        self.now += timedelta(hours=hours)
        self._passed_ns += int(hours * 3600) * NS_PER_S

    def wall_now(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


@dataclass(slots=True)
class Parts:
    """What a test works with."""

    store: Store
    uploads: Uploads
    builds: Builds
    measure: FakeMeasure
    importer: Importer
    deletion: ModelDeletion
    clock: CalendarClock
    events: Events
    changes: list[Change] = field(default_factory=list)

    def files(self, folder: str) -> set[str]:
        """Names of the files in a folder of the state folder, and in the folders below it."""
        return {path.name for path in (self.store.state_dir / folder).rglob("*") if path.is_file()}

    async def variants(self, model: str = "default/net") -> tuple[Variant, ...]:
        return (await self.store.models.get(model)).variants

    async def model_once(self, is_so: Callable[[Variant], object], id: str = "default/net") -> Model:
        """The model once it has variants and all of them are so."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await self.variants(id)) or not all(map(is_so, found)):
                await self.clock.sleep_until_ns(self.clock.now_ns() + 10_000_000)
        return await self.store.models.get(id)

    async def ended(self, id: str) -> JobRecord:
        """The job once it has ended."""
        return await self.until(id, lambda job: job.state in ENDED)

    async def until(self, id: str, is_so: Callable[[JobRecord], bool]) -> JobRecord:
        """The job once `is_so`."""
        while True:
            job = await self.store.jobs.get(id)
            if is_so(job):
                return job
            assert job.state not in ENDED, f"it ended first: {job}"
            await self.clock.sleep_until_ns(self.clock.now_ns() + 10_000_000)


def polite(options: ImportOptions) -> ImportOptions:
    """As asked, but the children are as nice as the test: on a busy machine nicer ones would hardly run at all."""
    return replace(options, limits=replace(options.limits, nice=0))


@asynccontextmanager
async def parts(
    state_dir: Path,
    *,
    runs: bool = True,
    bytes_max: int = 64 * MIB,
    options: ImportOptions | None = None,
    processor: ProcessorDescription = CPU,
    others: Sequence[ProcessorDescription] = (),
    measure: FakeMeasure | None = None,
    requests: Asked = nobody,
) -> AsyncIterator[Parts]:
    """Open a state folder; `runs` starts the importer. `requests`: those that the box has."""
    clock = CalendarClock()
    folder = await asyncio.to_thread(StateFolder.open, state_dir, reserve_bytes=0)
    measure = measure or FakeMeasure()
    builds, events = Builds(state_dir / "prepared", folder.blobs, [processor, *others]), Events()
    store = Store(folder, clock, ChangeFeed(), on_removed=builds.forget)
    await asyncio.to_thread(store.recover)
    builds.start((await store.snapshot()).models)
    polite_options = polite(options or ImportOptions())
    importer = Importer(store, builds, measure, [processor, *others], events, polite_options, requests)
    deletion = ModelDeletion(store.models, [importer.cancel])
    made = Parts(store, Uploads(store, bytes_max=bytes_max), builds, measure, importer, deletion, clock, events)
    store.feed.subscribe(made.changes.append)
    task = asyncio.create_task(importer.run()) if runs else None
    try:
        yield made
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        store.close()


async def stored_model(
    store: Store, folder: Path, name: str = "m", body: bytes = b"weights", tenant: str = "default"
) -> Variant:
    """A model with one variant whose content is `body`."""
    model = f"{tenant}/{name}"
    await store.imports.accept(f"job-{tenant}-{name}", ImportRequest(tenant, name, "unused"))
    return await stored_variant(store, folder, model, "fp32", body)


async def stored_variant(store: Store, folder: Path, model: str, name: str, body: bytes) -> Variant:
    """One more variant of a model that exists."""
    source = folder / f"source-{name}"
    await asyncio.to_thread(source.write_bytes, body)
    staged = await asyncio.to_thread(store.blobs.stage, [source])
    variant = Variant(
        id=variant_id(model, name),
        model_id=model,
        name=name,
        precision=Precision.FP32,
        content_sha256=staged.sha256,
        size_bytes=len(body),
        inputs=(TensorSpec("x", "FP32", (-1, 3)),),
        outputs=(TensorSpec("y", "FP32", (-1, 1)),),
        is_original=name == "fp32",
    )
    return await store.models.put_variant(variant, staged)


def filled(state: Path, models: int, body_bytes: int = 5000) -> None:
    """Make a state folder with models of different contents. Not in a running loop, like `whole_models`."""

    async def fill() -> None:
        async with parts(state, runs=False) as box:
            for number in range(models):
                await stored_model(box.store, state.parent, f"m{number}", bytes([number]) * body_bytes)

    asyncio.run(fill())


def whole_models(state: Path) -> int:
    """Return how many models there are, each with its content as its digest says, and nothing put away."""

    async def look() -> int:
        async with parts(state, runs=False) as box:
            models = (await box.store.snapshot()).models
            assert all(box.store.blobs.path(model.variants[0].content_sha256).exists() for model in models)
            assert list((state / "quarantine").iterdir()) == []
            return len(models)

    return asyncio.run(look())


def quickly_started(state: Path) -> Beginning | None:
    """What the quick start reads of a state folder."""
    with closing(StateFolder.open(state)) as folder:
        return quick_start(folder)


async def stream(*blocks: bytes) -> AsyncIterator[bytes]:
    """Blocks as a request's body brings them."""
    for block in blocks:
        yield block
