"""Takes uploads in as jobs and carries them out, one at a time by default, fairly between tenants, first variants
first.

`submit` makes the upload, the model, its application and the job durable before it returns; `run` is the background
task that works them off, resumes after a restart what a crash cut short, and re-makes prepared forms when there is
nothing else to do. Deleting a model cancels its jobs (the importer hooks itself into the store).
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from appliance.domain.catalogue import Precision, Profile, TaskSpec, Variant
from appliance.domain.errors import ApplianceError, BadInput, NotConfined, ProcessorEmulated, UnknownModel
from appliance.domain.events import EventSink
from appliance.domain.hardware import EMULATED, ProcessorDescription
from appliance.domain.jobs import Awaited, GivenUp, ImportRequest, JobRecord
from appliance.domain.names import content_of, model_id
from appliance.domain.states import JobState
from appliance.log import get as get_log
from appliance.modelstore.importing.cases import Axes
from appliance.modelstore.importing.child import Stages
from appliance.modelstore.importing.cutting import Cutting
from appliance.modelstore.importing.fair_slots import SMALL_BYTES, FairSlots, Slot
from appliance.modelstore.importing.prepared import Build, Builds
from appliance.modelstore.importing.profiling import Content, profiled, profiled_elsewhere, reviewed_file
from appliance.modelstore.importing.progress import Progress
from appliance.modelstore.importing.run import ImportRun
from appliance.modelstore.importing.tools import ImportOptions, Tools
from appliance.modelstore.importing.upkeep import Asked, Upkeep, nobody
from appliance.modelstore.orders import ReviewOrder, Size
from appliance.modelstore.ports import Measure
from appliance.modelstore.store.disk import (
    copy_hashed,
    failed_disk_is_typed,
    full_disk_is_typed,
    keep_only,
    remove,
    sync_file,
    sync_folder,
)
from appliance.modelstore.store.store import Store

__all__ = ["ImportOptions", "Importer"]

log = get_log("importer")
UPLOAD = "upload"
RETRY_NS = 5_000_000_000
"""Between attempts to write down the end of a job on a full disk."""


class Importer:
    """One per box. `run` must be running for jobs to advance; `submit` may be called before."""

    def __init__(
        self,
        store: Store,
        builds: Builds,
        measure: Measure,
        processors: Sequence[ProcessorDescription],
        events: EventSink,
        options: ImportOptions,
        asked: Asked = nobody,
    ) -> None:
        """`asked`: what the box has had to do, by which upkeep goes."""
        self._store = store
        self._events = events
        self.tools = Tools(store, builds, measure, processors, options)
        self._scratch = store.state_dir / "scratch"
        self._upkeep = Upkeep(store.clock, asked, options.upkeep_idle_s, options.upkeep_wait_s)
        self._missing_confinement = options.missing_confinement
        self._is_emulated = any(one.kind == EMULATED for one in processors)
        self._slots = FairSlots(options.jobs_parallel_max)
        self._accepted: asyncio.Queue[str] = asyncio.Queue()
        self._requests: dict[str, tuple[JobRecord, ImportRequest]] = {}
        """Jobs that wait or run."""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._slots_held: dict[str, Slot] = {}
        self._cancelled: set[str] = set()
        self._given_up: dict[str, str] = {}
        """Builds, and whatever else is looked after when nothing is imported, that were tried: once a start; and what
        kept one from being measured at all.
        """
        self._measured_now: tuple[str, str] = ("", "")
        """A build, and what is done with it; or a content that is cut."""
        self._under_way: tuple[str, asyncio.Task[bool]] | None = None
        """A content that is looked after, and the work on it."""
        builds.on_forgotten = self._forget_content
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def stages(self) -> Stages:
        """Where stages run; until `run` ends."""
        return self.tools.stages

    async def submit(self, request: ImportRequest) -> JobRecord:
        """Accept an import; the file at `request.source` is moved away. Returns the queued job.

        A model of that name that lost files to damage is repaired.

        Raises: BadName, UnknownTenant, AlreadyExists, UnknownModel, QuotaExceeded, StorageFull, NotConfined,
        ProcessorEmulated; then the file stays where it is.
        """
        if self._is_emulated:
            raise ProcessorEmulated
        self._require_confinement()
        request = replace(request, repairs=await self._is_repair(request))
        source = Path(request.source)
        size_bytes = await asyncio.to_thread(_size_of, source)
        await self._store.stored_bytes.require(
            request.tenant, 0 if await self._store.stored_bytes.is_upload(source) else size_bytes
        )
        id = f"{int(self._store.clock.wall_now().timestamp() * 1000):012x}-{secrets.token_hex(4)}"
        folder = self._scratch / id
        try:
            await asyncio.to_thread(_take_over, source, folder)
            job = await self._store.imports.accept(id, request)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(remove, folder))
            raise
        await asyncio.to_thread(source.unlink, missing_ok=True)
        Progress(self._store, self._events, job).announce(job)
        await self._enqueue(job, request)
        return job

    async def _is_repair(self, request: ImportRequest) -> bool:
        """Whether the model of that name is there already, and damaged."""
        if request.variant is not None:
            return False
        try:
            model = await self._store.models.get(model_id(request.tenant, request.name))
        except UnknownModel:
            return False
        return any(one.is_damaged for one in model.variants)

    async def cancel(self, model_id: str) -> None:
        """End the jobs of a model; returns when nothing works on it any more."""
        for id, (job, _request) in list(self._requests.items()):
            if job.model_id != model_id:
                continue
            self._cancelled.add(id)
            if task := self._running.get(id):
                task.cancel()
                await asyncio.wait([task])
            await asyncio.to_thread(remove, self._scratch / id)
            await self._withdraw(id, "the model was deleted", JobState.CANCELLED)
            self._forget(id)
        await self._leave_alone(model_id)

    async def _leave_alone(self, model_id: str) -> None:
        """End what is looked after of a content that only this model has."""
        if self._under_way is None:
            return
        content, task = self._under_way
        if {one.model_id for one, _task, _axes in await self._store.models.variants_of(content)} <= {model_id}:
            task.cancel()
            await asyncio.wait([task])

    def waits_of(self, id: str) -> str:
        """Return behind what a job waits for a slot, for a person; empty where it does not."""
        slot = self._slots_held.get(id)
        before = None if slot is None else self._slots.before(slot)
        if slot is None or not before:
            return ""
        others = sum(one.tenant != slot.tenant for one in before)
        if len(before) == 1:
            return f"waits behind an import{' of another tenant' if others else ''}"
        return f"waits behind {len(before)} imports{f', {others} of other tenants' if others else ''}"

    def awaited(self, content_sha256: str) -> list[Awaited]:
        """Kinds of processors that a content is yet to be measured on, and how far that is."""
        now, doing = self._measured_now
        return [
            Awaited(build.processor.kind, doing if build.id == now else "waiting")
            for build in self.tools.builds.untried(content_sha256)
            if build.id == now or build.id not in self._given_up
        ] + [Awaited(one.kind, doing) for one in self.tools.builds.given_up(content_sha256) if content_sha256 == now]

    def given_up(self, content_sha256: str) -> list[GivenUp]:
        """Kinds of processors that a content was tried on and does not run on; some until the next start only."""
        untried = self.tools.builds.untried(content_sha256)
        failed = [GivenUp(one.processor.kind, why) for one in untried if (why := self._given_up.get(one.id))]
        return [*self.tools.builds.given_up(content_sha256), *failed]

    async def run(self) -> None:
        """Resume, then work off the queue for ever. Cancelling it (shutdown) leaves running jobs to the next start."""
        await self._resume()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_prepared())
                while True:
                    id = await self._accepted.get()
                    if id in self._requests:  # else it was cancelled before it began
                        self._running[id] = group.create_task(self._carry_out(id), name=f"import {id}")
        finally:
            self.tools.stages.close()

    # -- the queue -----------------------------------------------------------------------------------------------------

    async def _resume(self) -> None:
        for job, request in await self._store.jobs.unfinished():
            if job.id not in self._requests:
                queued = await self._store.jobs.update(job.id, state=JobState.QUEUED)
                log.info("import resumed", job_id=job.id, model_id=job.model_id)
                await self._enqueue(queued, request)

    async def _enqueue(self, job: JobRecord, request: ImportRequest) -> None:
        self._requests[job.id] = (job, request)
        self._idle.clear()
        await self._accepted.put(job.id)

    async def _carry_out(self, id: str) -> None:
        """One job from start to end; never raises but when the box shuts down."""
        job, request = self._requests[id]
        progress = Progress(self._store, self._events, job)
        source = self._scratch / id / UPLOAD
        try:
            slot = self._slots_held[id] = self._slots.slot_of(request.tenant, is_small=await _is_small(source))
            async with self._slots.held(slot):
                with failed_disk_is_typed():
                    message, error = await self._run(request, source, progress, slot)
            await progress.settle()
            await asyncio.to_thread(remove, source.parent)
            progress.announce(
                await self._store.jobs.update(
                    id, state=JobState.DONE, stage="done", percent=100.0, message=message, error=error
                )
            )
        except asyncio.CancelledError:
            if id not in self._cancelled:  # a shutdown: the next start goes on with it
                raise
        except Exception as error:
            await progress.settle()
            await self._fail(id, error)
        finally:
            if id not in self._cancelled:
                self._forget(id)

    def _require_confinement(self) -> None:
        if self._missing_confinement:
            raise NotConfined(missing=", ".join(self._missing_confinement))

    async def _run(self, request: ImportRequest, source: Path, progress: Progress, slot: Slot) -> tuple[str, str]:
        self._require_confinement()
        await asyncio.to_thread(keep_only, source.parent, {UPLOAD})
        if not await asyncio.to_thread(source.is_file):
            raise BadInput(reason="the uploaded file is gone; upload it again")
        return await ImportRun(self.tools, request, source, progress, slot).run()

    async def _fail(self, id: str, error: Exception) -> None:
        """End a job with its reason; room is made first, and on a full disk it is tried until it can be written
        down.
        """
        if isinstance(error, ApplianceError):
            reason = str(error)
        else:
            log.exception("import broke", job_id=id, exc_info=error)
            reason = f"the box made a mistake ({type(error).__name__}); its log says which"
        await asyncio.to_thread(remove, self._scratch / id)
        await self._withdraw(id, reason, JobState.FAILED)

    async def _withdraw(self, id: str, reason: str, state: JobState) -> None:
        while True:
            try:
                job = await self._store.imports.withdraw(id, reason, state)
            except Exception as error:  # a full or failing disk; the other jobs go on meanwhile
                log.warning("job cannot be written down", job_id=id, reason=f"{type(error).__name__}: {error}")
                await self._store.clock.sleep_until_ns(self._store.clock.now_ns() + RETRY_NS)
            else:
                Progress(self._store, self._events, job).announce(job)
                return

    def _forget_content(self, content_sha256: str) -> None:
        """Who imports it again has all of it tried again."""
        gone = content_of(content_sha256)
        self._given_up = {name: why for name, why in self._given_up.items() if content_of(name) != gone}

    def _forget(self, id: str) -> None:
        self._requests.pop(id, None)
        self._running.pop(id, None)
        self._slots_held.pop(id, None)
        self._cancelled.discard(id)
        if not self._requests:
            self._idle.set()

    # -- upkeep --------------------------------------------------------------------------------------------------------

    async def _keep_prepared(self) -> None:
        """When nothing is imported, make prepared forms that are missing (after an update of libraries, or a damaged
        file), review what an earlier version has imported (until then it runs in a guard), and cut what not every kind
        of processor runs whole. Of what was imported since the start that is the rest of its import (BA-19); all else
        waits until the box has nothing to do.
        """
        if self._missing_confinement:
            log.warning("nothing is measured again", missing=", ".join(self._missing_confinement))
            return
        while True:
            await self._idle.wait()
            piece = self._piece()
            if piece is None:
                await self.tools.builds.wait_unmeasured()
                continue
            is_upkeep, trouble = not self.tools.builds.is_new(piece.content_sha256), ""
            if is_upkeep and not await self._upkeep.may_begin():
                continue
            task = asyncio.create_task(self._carry_on(piece, is_upkeep=is_upkeep))
            self._under_way = piece.content_sha256, task
            try:
                if not await task:
                    continue
            except asyncio.CancelledError:
                here = asyncio.current_task()
                if here is not None and here.cancelling():  # the box is stopped
                    raise  # else its model was deleted
            except Exception as error:  # upkeep must never take the imports down with it
                trouble = str(error) if isinstance(error, ApplianceError) else f"{type(error).__name__}: {error}"
                log.warning(piece.failure, build_id=piece.name, reason=trouble)
            finally:
                self._measured_now, self._under_way = ("", ""), None
            self._given_up[piece.name] = trouble  # whatever came of it

    async def _carry_on(self, piece: "_Piece", *, is_upkeep: bool) -> bool:
        """False: it was ended, and begins anew another time."""
        if is_upkeep:
            return await self._upkeep.do(piece.work(), lambda: not self._idle.is_set())
        await piece.work()
        return True

    def _piece(self) -> "_Piece | None":
        """Of what is to be looked after the next: what was imported since the start goes first."""
        builds = self.tools.builds
        found: list[_Piece] = []
        for build in builds.unmeasured():
            is_first_kind = build.processor.kind == self.tools.processors[0].kind
            measure = partial(self._measure_again, build.content_sha256)
            work = measure if is_first_kind else partial(self._measure_elsewhere, build)
            found.append(_Piece(build.id, build.content_sha256, work, "not measured again"))
        if not any(piece.name not in self._given_up for piece in found):
            found = [_Piece(content, content, partial(self._cut, content), "not cut") for content in builds.uncut()]
        left = [piece for piece in found if piece.name not in self._given_up]
        return min(left, key=lambda piece: not builds.is_new(piece.content_sha256), default=None)

    async def _measure_elsewhere(self, build: Build) -> None:
        """Prepared form and profile of every variant of a content on another kind of processor."""
        path = await asyncio.to_thread(self._store.blobs.path, build.content_sha256)
        variants = await self._store.models.variants_of(build.content_sha256)
        measured = [one for one in variants if one[0].profile is not None]
        if not measured:
            return

        def on_stage(doing: str) -> None:
            self._measured_now = build.id, doing

        kind = build.processor.kind
        original = await self._original_of(measured[0][0])
        for variant in await profiled_elsewhere(self.tools, build.processor, measured, path, on_stage, original):
            await self._store.models.put_variant(variant)
            self.tools.builds.put(variant)
            kinds = [profile.kind for profile in variant.profiles]
            log.info("variant measured elsewhere", variant_id=variant.id, kinds=kinds)
            facts = {"model_id": variant.model_id, "variant": variant.name, "kind": kind, "runs_there": kind in kinds}
            given_up = {one.kind: one.reason for one in self.tools.builds.given_up(build.content_sha256)}
            why = {"reason": given_up[kind]} if kind in given_up else {}
            self._events.emit("variant measured", tenant=variant.model_id.partition("/")[0], **facts, **why)

    async def _original_of(self, variant: Variant) -> str | None:
        """Content of the same network in full precision, where a variant was made of one that takes what it takes."""
        model = await self._store.models.get(variant.model_id)
        own = None if model.original is None else model.original.precision
        if variant.precision in (own, Precision.OWN):
            return None
        wanted = (variant.inputs, variant.height, variant.width)
        originals = (one for one in model.variants if one.precision is own and one.profile is not None)
        return next((o.content_sha256 for o in originals if (o.inputs, o.height, o.width) == wanted), None)

    async def _cut(self, content_sha256: str) -> None:
        """A content in parts, for kinds of processors that do not run all of it."""
        path = await asyncio.to_thread(self._store.blobs.path, content_sha256)
        variants = await self._store.models.variants_of(content_sha256)
        if not variants:
            return

        def on_step(doing: str, step: str) -> None:
            self._measured_now = content_sha256, doing
            for one, _task, _axes in variants:
                facts = {"model_id": one.model_id, "variant": one.name, "step": step}
                self._events.emit("variant being cut", tenant=one.model_id.partition("/")[0], **facts)

        try:
            cut = await Cutting(self.tools, variants, path, on_step).cut()
        finally:
            variants = await self._store.models.variants_of(content_sha256)
            if not variants:  # it was deleted meanwhile: the parts are nobody's
                await self.tools.builds.forget([content_sha256])
        for variant, _task, _axes in variants:
            variant = await self._store.models.put_variant(replace(variant, cut=cut))
            self.tools.builds.put(variant)
            log.info("variant cut", variant_id=variant.id, parts=len(cut.parts), reason=cut.reason)

    async def _measure_again(self, content_sha256: str) -> None:
        """Prepared form and profile of every variant of a content; a request meanwhile runs on the plain file."""
        path = await asyncio.to_thread(self._store.blobs.path, content_sha256)
        variants = await self._store.models.variants_of(content_sha256)
        first, task, axes = variants[0]
        review = ReviewOrder(str(path), first.inputs, axes, task)
        content = Content(path, await reviewed_file(self.tools, review, self._scratch), _full_size(variants))
        grown: dict[str, Profile | None] = {}
        for variant, task, axes in variants:
            known = replace(content, grown=grown.get(variant.model_id))
            measured = await profiled(self.tools, variant, axes, task, known)
            grown[variant.model_id] = measured.profile
            await self._store.models.put_variant(measured)
            self.tools.builds.put(measured)
            hazards = measured.profile.hazards if measured.profile else None
            log.info("variant measured again", variant_id=variant.id, hazards=hazards)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Of what is looked after when nothing is imported. `name`: of a build, or a content; `failure`: what the log says
    where it comes to nothing.
    """

    name: str
    content_sha256: str
    work: Callable[[], Coroutine[Any, Any, None]]
    failure: str


def _full_size(variants: Iterable[tuple[Variant, TaskSpec, Axes]]) -> Size | None:
    """Of the largest rung of a content; None where it has no ladder."""
    rungs = [one for one, _task, _axes in variants if one.height is not None and one.width is not None]
    if not rungs:
        return None
    return Size(max(one.height or 0 for one in rungs), max(one.width or 0 for one in rungs))


async def _is_small(source: Path) -> bool:
    """Whether the first part of an import takes little memory; one whose file is gone takes none."""
    size_bytes = await asyncio.to_thread(lambda: source.stat().st_size if source.is_file() else 0)
    return size_bytes <= SMALL_BYTES


def _size_of(source: Path) -> int:
    """Raises: BadInput."""
    try:
        return source.stat().st_size
    except OSError as error:
        raise BadInput(reason=f"the file cannot be read: {error.strerror}") from error


def _take_over(source: Path, folder: Path) -> None:
    """Bring the upload into the job's folder, synced; the original stays until the job is accepted.

    Raises: StorageFull.
    """
    target = folder / UPLOAD
    with full_disk_is_typed():
        folder.mkdir(mode=0o700)
        try:
            os.link(source, target)
            sync_file(target)
        except OSError:  # another disk, or one without links
            copy_hashed(source, target)
        sync_folder(folder)
        sync_folder(folder.parent)
