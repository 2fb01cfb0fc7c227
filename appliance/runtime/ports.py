"""What the engine needs from others, declared by the side that calls.

Implemented by `runtime.processors` (Processor, Runs, TextReader, IdleProcesses), `runtime.serving.media` (MediaRunner),
`modelstore` (VariantSource), `runtime.decisions.log` and `runtime.telemetry`, `runtime.pipelines.streaming`
(StreamedPipelines, of sessions), and by whoever emulates them. The port `Measure` is the importer's and stands in
`modelstore.ports`; `EventSink` is everybody's, in `domain.events`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.request import Tensors
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.domain.session import FrameEnd, StageVariant
from appliance.tasks.base import Media, TokenOrder, TokenRows

T = TypeVar("T")


class Runs(Protocol):
    """What takes runs of builds that are in memory."""

    def run(
        self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None, *, deadline_ns: int | None = None
    ) -> Awaitable[dict[str, Any]]:
        """Compute the named outputs (None = all); at most `workers` runs are asked for at once.

        The returned arrays belong to the caller and pin nothing of the build. A run that is under way at `deadline_ns`
        (on the clock's monotonic scale) is stopped. `handle` None: of a build that was lost.

        Raises, when awaited: RunFailed (RunCrashed, RunStopped).
        """
        ...

    def run_rows(
        self,
        handle: Any,
        requests: Sequence[Tensors],
        counts: Sequence[int],
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None = None,
    ) -> Awaitable[list[dict[str, Any]]]:
        """As one `run`, of the rows of several requests: `counts[i]` rows of each, alike in all but that, whose outputs
        come back one for each request.
        """
        ...


class StagedRun(Protocol):
    """A run that begins without the event loop, on the thread that has ended another one."""

    @property
    def run(self) -> asyncio.Future[dict[str, Any]]:
        """As `Runs.run` returns it."""
        ...

    @property
    def begun_ns(self) -> int:
        """When it began, if it has."""
        ...

    @property
    def after(self) -> asyncio.Future[Any] | None:
        """The run that has ended before it, as it was returned; None: it has not begun. That one is told of first."""
        ...

    def revoke(self) -> bool:
        """Take it back, and cancel it; False: it has begun."""
        ...


class Staging(Protocol):
    """Stages runs."""

    def __call__(
        self,
        handle: Any,
        inputs: Tensors,
        outputs: Sequence[str] | None,
        *,
        deadline_ns: int | None,
        begin_by_ns: int | None,
    ) -> StagedRun | None:
        """As `run`, behind those that are under way, and not begun after `begin_by_ns`. At most one at a time, until it
        has begun or is revoked. None: the processor of this build does not do that.
        """
        ...


class Processor(Runs, Protocol):
    """A compute device.

    What takes time is asynchronous: a real device hops to a thread and back inside, an emulated one sleeps in virtual
    time.
    """

    def describe(self) -> ProcessorDescription:
        """Name, kind, workers and fingerprint; constant over the object's life."""
        ...

    async def load(self, form: PreparedForm) -> Any:
        """Bring a build into memory and return a handle for `run` and `unload`.

        Raises: LoadFailed.
        """
        ...

    def run_inline(self, handle: Any, inputs: Tensors, outputs: Sequence[str] | None) -> dict[str, Any]:
        """As `run`, but on the calling thread, which waits: for runs shorter than a switch to another thread and back.

        Takes no worker, and is for builds without a guard only.

        Raises: RunFailed.
        """
        ...

    async def unload(self, handle: Any) -> None:
        """Drop the build, awake or asleep, and give its memory back to the operating system."""
        ...

    def can_sleep(self, handle: Any) -> bool:
        """Whether most of the build's memory is mapped from a file of its own, so that `sleep` gives it back and `wake`
        brings it again; constant over the handle's life.
        """
        ...

    async def sleep(self, handle: Any) -> int:
        """Give the pages of the build's weights back and keep all else; returns the bytes that stay.

        Only where it can, and while nobody runs it. Asleep already: does nothing.

        Raises: RunFailed when the build has gone (with its guard); then it is lost.
        """
        ...

    async def wake(self, handle: Any) -> None:
        """Bring the pages of a sleeping build back, so that the next run is as quick as the last one was.

        Awake already: does nothing.

        Raises: LoadFailed when its file cannot be read, or when it has gone; it is of no use then, but to be unloaded.
        """
        ...

    async def read_ahead(self, handle: Any) -> None:
        """Have a sleeping build's file read into the page cache, where it takes no memory of the build's; returns when
        that is done.
        """
        ...

    def wake_ns(self, handle: Any) -> int:
        """How long `wake` would take now, by how much of the file is in the page cache; asked in under 1 ms."""
        ...


def _always() -> bool:
    return True


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Processors that share cores, or a device, as whoever hands out runs sees them: never more runs at once than
    `workers`.
    """

    name: str
    workers: int
    runs: Runs
    kinds: Mapping[str, str]
    """Kinds of the builds that it runs → the name under which it is learnt what they take here; empty: as the first
    group that runs the kind, where the import measured them.
    """
    speed: float = 1.0
    """Of its cores, relative to those that the import measured on, as far as the machine says."""
    is_serving: Callable[[], bool] = _always
    """Whether it takes runs now."""
    is_throttled: Callable[[], bool] = _never
    """Whether it is slower than it could be, because of heat or power: it has what others cannot do in time."""
    stage: Staging | None = None
    """Of a group that is the only one; None: it cannot."""
    at_once: RunsAtOnce | None = None
    """Runs at once that an import times there; None: it times none."""


class MediaRunner(Protocol):
    """Where media is decoded and answers are encoded: in threads of the box; an emulated one lets virtual time pass."""

    async def run(self, application_id: str, tenant: str, deadline_ns: int | None, work: Callable[[], T]) -> T:
        """The value of `work()`, which blocks for milliseconds; `deadline_ns` on the clock's monotonic scale.

        Raises: QueueFull when too many wait, DeadlineExceeded, and what `work` raises.
        """
        ...


class TextReader(Protocol):
    """Where uploaded tokenizers are read and used, outside of the service."""

    async def tokenize(
        self, order: TokenOrder, build_id: str, tenant: str, on_time: Callable[[int], None] = ...
    ) -> TokenRows:
        """The tokens of the order's texts, made in the guard of `tenant`, who owns the tokenizer.

        `build_id`: whom a crash is counted against. Whoever cancels waits no longer; the tokenizer goes on to the limit
        of all runs, for ending it ends the guard. `on_time` is told the nanoseconds that it took, in any case.

        Raises: BadMetadata for a tokenizer that cannot be used, RunFailed (RunCrashed, RunStopped).
        """
        ...


class VariantSource(Protocol):
    """Where the loader finds builds. May read files, never the database."""

    async def open_build(self, build_id: str) -> PreparedForm:
        """The prepared form of a build, or its plain file when none is valid for this machine.

        Raises: LoadFailed when the content is missing or damaged.
        """
        ...


class NotComputed(Exception):
    """Whoever was to compute something has ended before, and there is nobody else."""


class Background(Protocol):
    """Runs a computation where it delays nobody: a thread in the box, in place in the lab. Raises: NotComputed."""

    def __call__(self, compute: Callable[[], T], /) -> Awaitable[T]: ...


class DecisionSink(Protocol):
    """Takes decisions with their inputs; never blocks."""

    def record(self, kind: str, decision: Mapping[str, object]) -> None: ...


class WindowSink(Protocol):
    """Is told when a window around a predicted request opens and closes; never blocks.

    Windows are too many to be events.
    """

    def window_opened(self, application: str) -> None: ...

    def window_closed(self, application: str, *, answered: bool) -> None:
        """`answered`: a request came while it was open."""
        ...


@dataclass(frozen=True, slots=True)
class PipelineStanding:
    """How a client of a pipeline is served now."""

    is_served: bool
    """The pipeline's plan counts on it, or there is none yet."""
    reason: str = ""
    """Why not, for a person."""
    latency_ms: float | None = None
    """What a frame takes in the box by the plan, at worst; None: nobody has planned it."""
    first_ms: float = 0.0
    """What the first network is expected to take: a frame that has less left need not come."""
    size: int | None = None
    """Longer side of the pictures that the first networks take, in pixels; None: any, or no pictures."""
    is_cut: bool = False
    """Items are cut from the picture as it came: a larger one shows them better."""
    stages: tuple[StageVariant, ...] = ()
    """What answers now, at each stage that asks a network."""


@dataclass(frozen=True, slots=True)
class PipelineFrame:
    """One frame of a client of a pipeline."""

    tenant: str
    client: str
    number: int
    request_id: str
    arrival_ns: int
    deadline_ns: int
    """No later one than the pipeline's own holds."""
    is_planned: bool
    """Within the rate that the client joined with; others are run only where a processor is free."""


@dataclass(frozen=True, slots=True)
class PipelineAnswer:
    """What a pipeline says of a frame, as JSON, and how that counts. `DROPPED`: nothing of it was run."""

    body: bytes
    end: FrameEnd


class StreamedPipelines(Protocol):
    """Pipelines, as sessions join them. Clients bear the ids of their sessions. Event-loop thread only."""

    def require(self, pipeline_id: str) -> None:
        """Raises: UnknownPipeline."""
        ...

    async def join(self, pipeline_id: str, client: str, fps: float, within_ms: float | None) -> None:
        """Let a client in. `within_ms`: what its frames may take in the box; None, or more than the pipeline's SLO:
        that. Raises: UnknownPipeline, PipelineNotPossible, TooManySessions.
        """
        ...

    async def change(self, pipeline_id: str, client: str, fps: float, within_ms: float | None) -> None:
        """A client sends so many frames from now on, which may take so long; what it has stays its own where that is
        refused.

        Raises: as `join`; UnknownClient.
        """
        ...

    def keep(self, pipeline_id: str, client: str, fps: float, within_ms: float | None) -> None:
        """A client that was let in before the box was started again. Raises: UnknownPipeline."""
        ...

    def rate_of(self, pipeline_id: str, client: str) -> float | None:
        """Frames a second that a client has joined with; None: it is not there, or the pipeline is not."""
        ...

    def leave(self, pipeline_id: str, client: str) -> None:
        """A client has gone; of one that is not there, or no pipeline: nothing."""
        ...

    def standing(self, pipeline_id: str, client: str) -> PipelineStanding:
        """Raises: UnknownPipeline."""
        ...

    async def predict(self, pipeline_id: str, media: Media, frame: PipelineFrame) -> PipelineAnswer:
        """Raises: as `Pipelines.predict`."""
        ...


class Occupied(NamedTuple):
    """A process that would be idle without builds, of which nothing runs now."""

    builds: Collection[str]
    bytes: int
    """What it takes beside them."""
    end: Callable[[], None]
    """Ends it; its builds are lost with it."""


class IdleProcesses(Protocol):
    """Processes of one sort beside builds, each of which may be idle: needed by nothing that is awake or comes."""

    def idle_bytes(self, wanted: Collection[str]) -> int:
        """What the idle ones take that none of the builds `wanted` needs."""
        ...

    def end_idle(self, wanted: Collection[str]) -> bool:
        """End one of these; whether there was one. Its bytes count no more when this returns."""
        ...

    def occupied(self, wanted: Collection[str]) -> Collection[Occupied]:
        """Others that none of the builds `wanted` needs, and of which nothing is asked now."""
        ...
