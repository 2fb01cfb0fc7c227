"""The composition root: reads the settings, makes every part in the order of the data path, and joins them.

Starting enters one exit stack, so stopping is the reverse: not ready, drain, stop imports, remember what was resident,
unload, close the store.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any

import psutil
from fastapi import FastAPI

from appliance import log
from appliance.api.auth.access import ensure_admin_key
from appliance.api.auth.callers import caller_of
from appliance.api.auth.keyring import KeyRing, Principal
from appliance.api.box import RunningBox
from appliance.api.gateway import Gateway
from appliance.api.http.limits import BodyRules, Bounds, InFlight, Scope
from appliance.api.service import create_service
from appliance.clock import Clock, SystemClock
from appliance.confinement.available import Confinement, available
from appliance.confinement.limits import ChildLimits
from appliance.domain.access import KeyRecord
from appliance.domain.catalogue import Application, Model, Tenant
from appliance.domain.errors import ApplianceError, Unavailable
from appliance.domain.isolation import Isolation
from appliance.modelstore.importing.deletion import ModelDeletion
from appliance.modelstore.importing.importer import Importer, ImportOptions
from appliance.modelstore.importing.prepared import Builds
from appliance.modelstore.importing.quarantine import Quarantine
from appliance.modelstore.importing.serving import ServedBuilds
from appliance.modelstore.store.forecasts import ForecasterFile
from appliance.modelstore.store.housekeeping import Housekeeping
from appliance.modelstore.store.records import Change, ChangeFeed
from appliance.modelstore.store.state_folder import StateFolder
from appliance.modelstore.store.store import Store
from appliance.modelstore.store.uploads import Uploads
from appliance.policies.forecast import FORECASTERS, MEMORY_FORECASTERS
from appliance.policies.residency import EVICTION_POLICIES
from appliance.policies.selection import SELECTION_POLICIES
from appliance.runtime.assembly import Policies, RuntimeConfig, RuntimeParts, RuntimePorts, assemble
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.decisions.log import DecisionLog
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.processors import PROCESSORS, check_runtime
from appliance.runtime.processors.cpu.measure import ChildMeasure
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from appliance.runtime.processors.guard.processor import GuardedProcessor, GuardOptions
from appliance.runtime.serving.media import MediaPool
from appliance.runtime.serving.predict import Predictor
from appliance.runtime.telemetry import Telemetry
from appliance.settings import ImportSettings, ProcessorSettings, Settings

_REMEMBER_EVERY_S = 10
_MEMORY_DOMAIN = "host"
"""The one that the memory forecaster looks at."""


class Appliance:
    """A box that can be started once. `asgi` is the application for a server; its lifespan starts and stops the box."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self.logger = log.get("box")
        self.box: RunningBox | None = None
        self.failure: ApplianceError | None = None
        """Why the box could not start."""
        self._ready = False
        self.in_flight = InFlight(settings.http.inflight_bytes_max)
        self.service = create_service(self._lifespan)
        self.asgi = self._outermost()

    def running(self) -> RunningBox:
        """The started box; only requests ask, and they come after the start."""
        assert self.box is not None
        return self.box

    def is_ready(self) -> bool:
        return self._ready

    def _outermost(self) -> Gateway:
        http = self.settings.http
        rules = BodyRules.of(
            body_bytes_max=http.body_bytes_max,
            form_bytes_max=http.form_bytes_max,
            upload_bytes_max=http.upload_bytes_max,
        )
        return Gateway(self.running, Bounds(self.service, rules, self.in_flight, self.logger, self._caller))

    def _caller(self, scope: Scope) -> Principal:
        return caller_of(self.running().keyring, scope, dict(scope["headers"]))

    @asynccontextmanager
    async def _lifespan(self, service: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                self.box = await self._start(stack)
            except ApplianceError as error:  # for the person at the terminal, not a traceback
                self.failure = error
                raise
            service.state.box = self.box
            self._ready = True
            stack.push_async_callback(self._drain)
            yield

    async def _drain(self) -> None:
        self.begin_drain()
        await self.running().engine.drain(self.settings.http.drain_s)

    @staticmethod
    def take_thread() -> None:
        """Set the calling thread up to run the event loop: it computes quick runs as the workers do."""
        flush_subnormals()

    def begin_drain(self) -> None:
        """Stop being ready and end the event streams, so that open connections do not hold the shutdown up."""
        self._ready = False
        if self.box is not None:
            self.box.telemetry.close()

    async def _start(self, stack: AsyncExitStack) -> RunningBox:
        settings, clock = self.settings, self.clock
        telemetry = Telemetry(clock)
        telemetry.log_to(log.get("events"))
        kept = settings.decisions
        decisions = DecisionLog(clock, queue_max=kept.queue_max, rows_max=kept.rows_max)
        # Before any thread: it settles how the heap is shared.
        processor = _processor(settings.processors[0], settings, clock)
        stack.callback(processor.close)
        description = processor.describe()
        folder = await asyncio.to_thread(StateFolder.open, settings.state_dir)
        stack.callback(folder.close)
        builds = Builds(folder.path / "prepared", folder.blobs, [description])
        keys_max = settings.security.keys_per_tenant_max
        store = Store(folder, clock, ChangeFeed(), on_removed=builds.forget, keys_per_tenant_max=keys_max)
        await asyncio.to_thread(store.recover)
        _write_decisions(stack, decisions, store)
        forecasts = ForecasterFile(settings.state_dir / "forecasters.json", FORECASTERS)
        memory_forecasts = ForecasterFile(settings.state_dir / "memory_forecasters.json", MEMORY_FORECASTERS)
        ports = RuntimePorts(
            clock=clock,
            processor=processor,
            builds=ServedBuilds(builds, store.models),
            telemetry=telemetry,
            events=telemetry,
            windows=telemetry,
            decisions=decisions,
            available_bytes=lambda used_bytes: psutil.virtual_memory().available,
            forecaster_of=forecasts.of,
            memory_forecaster=memory_forecasts.of(_MEMORY_DOMAIN),
            background=asyncio.to_thread,
            save_forecasters=forecasts.save,
            save_memory_forecaster=lambda text: memory_forecasts.save({_MEMORY_DOMAIN: text}),
        )
        core = assemble(ports, _policies(settings), _config(settings))
        processor.on_lost = core.memory.lost
        processor.on_base = core.memory.set_overhead
        processor.on_crash = Quarantine(clock, store.models, core.catalogue.variants_of).crashed
        stack.push_async_callback(core.memory.close)
        confinement = available()
        tell = self.logger.info if confinement.is_whole else self.logger.warning
        tell("confinement of children and guards", **asdict(confinement))
        scratch = settings.state_dir / "scratch"
        measure = ChildMeasure([description], _child_limits(settings.imports), scratch)
        importer = Importer(
            store, builds, measure, [description], telemetry, _import_options(settings.imports, confinement)
        )
        deletion = ModelDeletion(store.models, [importer.cancel, core.availability.retire_model])
        http = settings.http
        uploads = Uploads(store, bytes_max=http.upload_bytes_max, per_tenant_max=http.uploads_per_tenant_max)
        queues = settings.queues
        media = MediaPool(
            clock,
            threads=queues.media_threads or description.workers,
            waiting_max=queues.len_max,
            weight_of=core.catalogue.processor_weight,
        )
        stack.callback(media.close)
        keyring = KeyRing(clock, settings.security.failed_keys_per_min, core.catalogue.has_tenant)
        store.feed.subscribe(Follower(core, keyring))
        await self._fill(store, core.catalogue, keyring, builds)
        await ensure_admin_key(settings.state_dir, store.keys, clock)
        loops = [core.residency.run(), core.forecasting.run(), core.pressure.run()]
        loops += [core.memory_forecasting.run(), importer.run()]
        chores = Housekeeping(store, uploads, settings.imports.jobs_kept_days)
        chores.every_night(core.forecasting.choose_all, "choose forecasters")
        chores.every_night(core.memory_forecasting.choose, "choose a memory forecaster")
        await self._run_in_background(stack, core, loops, chores, store)
        return RunningBox(
            clock=clock,
            logger=self.logger,
            store=store,
            uploads=uploads,
            importer=importer,
            deletion=deletion,
            catalogue=core.catalogue,
            availability=core.availability,
            engine=core.engine,
            memory=core.memory,
            shares=core.shares,
            residency=core.residency,
            sequences=core.sequences,
            telemetry=telemetry,
            decisions=decisions,
            keyring=keyring,
            in_flight=self.in_flight,
            media=media,
            predictor=Predictor(
                clock=clock,
                catalogue=core.catalogue,
                engine=core.engine,
                sequences=core.sequences,
                media=media,
                texts=processor,
                asset_path=store.blobs.path,
            ),
            processors=(description,),
            state_dir=settings.state_dir,
            body_bytes_max=settings.http.body_bytes_max,
            form_bytes_max=settings.http.form_bytes_max,
            started_ns=clock.now_ns(),
            is_ready=self.is_ready,
            confinement=asdict(confinement),
            metrics_open=settings.security.metrics_open,
            settings=settings.model_dump(mode="json"),
        )

    async def _fill(self, store: Store, catalogue: Catalogue, keyring: KeyRing, builds: Builds) -> None:
        snapshot = await store.snapshot()
        for tenant in snapshot.tenants:
            catalogue.put_tenant(tenant)
        await asyncio.to_thread(builds.start, snapshot.models)
        for model in snapshot.models:
            catalogue.put_model(model)
        for application in snapshot.applications:
            catalogue.put_application(application)
        keyring.fill(snapshot.keys)

    async def _run_in_background(
        self,
        stack: AsyncExitStack,
        core: RuntimeParts,
        loops: Sequence[Coroutine[Any, Any, None]],
        chores: Housekeeping,
        store: Store,
    ) -> None:
        """Workers first, the slow loops next, then what was in memory before the last stop, hottest first."""
        tasks = [asyncio.create_task(worker.work(), name="worker") for worker in core.engine.workers]
        tasks += [asyncio.create_task(loop, name="loop") for loop in loops]
        chores.start()
        stack.callback(chores.stop)
        tasks.append(asyncio.create_task(core.availability.prefetch(await store.residents.load()), name="warm up"))
        tasks.append(asyncio.create_task(self._remember(store, core.memory), name="remember residents"))

        async def stop() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with suppress(Unavailable):
                await store.residents.save(core.memory.resident_set())

        stack.push_async_callback(stop)

    async def _remember(self, store: Store, memory: MemoryManager) -> None:
        """Save the resident set when it has changed, so that a power cut also comes back warm."""
        saved: list[str] | None = None
        while True:
            await self.clock.sleep_until_ns(self.clock.now_ns() + _REMEMBER_EVERY_S * 10**9)
            current = memory.resident_set()
            if saved is None or set(current) != set(saved):
                with suppress(Unavailable):  # a full disk; it is tried again
                    await store.residents.save(current)
                    saved = current


class Follower:
    """Carries committed changes of the store into everything that keeps a picture of it."""

    def __init__(self, core: RuntimeParts, keyring: KeyRing) -> None:
        self._catalogue = core.catalogue
        self._memory = core.memory
        self._availability = core.availability
        self._residency = core.residency
        self._keyring = keyring

    def __call__(self, change: Change) -> None:
        match change.kind, change.value:
            case "model", Model() as model:
                self._catalogue.put_model(model)
                for build_id, servable in self._catalogue.figures_of(model.id).items():
                    self._memory.update_figures(build_id, servable.resident_bytes, servable.peak_bytes)
                self._release_unused()
            case "model", None:
                self._catalogue.remove_model(change.id)
            case "application", Application() as application:
                self._catalogue.put_application(application)
            case "application", None:
                self._catalogue.remove_application(change.id)
                self._availability.forget_application(change.id)
            case "tenant", Tenant() as tenant:
                self._catalogue.put_tenant(tenant)
                self._release_unused()
                self._residency.look_again()
            case "tenant", None:
                self._catalogue.remove_tenant(change.id)
                self._keyring.remove_tenant(change.id)
            case "key", KeyRecord() as key:
                self._keyring.put(key)
            case "key", None:
                self._keyring.remove(change.id)
            case _:  # jobs have events of their own
                pass

    def _release_unused(self) -> None:
        """Builds that nobody refers to any more, for example because they run in a guard from now on, or no longer."""
        for build_id in self._memory.known_builds():
            if not self._catalogue.users_of(build_id):
                self._memory.dismiss(build_id)


def memory_budget(settings: Settings) -> int:
    """Bytes for loaded builds: as set, or a share of what the machine has available now."""
    memory = settings.memory
    return memory.budget_bytes or int(psutil.virtual_memory().available * memory.budget_share)


def _policies(settings: Settings) -> Policies:
    chosen = settings.policies
    return Policies(
        selection=SELECTION_POLICIES[chosen.selection](),
        eviction=EVICTION_POLICIES[chosen.eviction](),
        eviction_name=chosen.eviction,
    )


def _config(settings: Settings) -> RuntimeConfig:
    queues = settings.queues
    return RuntimeConfig(
        budget_bytes=memory_budget(settings),
        reserve_bytes=settings.memory.reserve_bytes,
        wait_ms_max=settings.memory.wait_ms_max,
        asleep_share=settings.memory.asleep_share,
        timeout_ms=queues.timeout_ms,
        queue_len_max=queues.len_max,
        queue_total_max=queues.total_max,
        queue_wait_ms_max=queues.wait_ms_max,
        sequences_max=queues.sequences_max,
        sequence_idle_s=queues.sequence_idle_s,
        quick_us_max=queues.quick_us_max,
        isolation=Isolation(settings.guard.isolation),
        **settings.residency.model_dump(),
    )


def _write_decisions(stack: AsyncExitStack, decisions: DecisionLog, store: Store) -> None:
    """In the background until the stop, which waits for the last ones."""
    writing = asyncio.create_task(decisions.run(store.decisions), name="decisions")

    async def stop() -> None:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await decisions.close(store.decisions)

    stack.push_async_callback(stop)


def _processor(settings: ProcessorSettings, tree: Settings, clock: Clock) -> GuardedProcessor:
    check_runtime()
    cores = len(os.sched_getaffinity(0))
    inner = PROCESSORS[settings.kind](
        name=settings.name,
        workers=settings.workers or max(1, cores // settings.threads_per_run),
        threads_per_run=settings.threads_per_run,
        loads_parallel_max=tree.memory.loads_parallel_max,
    )
    guard = tree.guard
    options = GuardOptions(
        scratch=tree.state_dir.absolute() / "scratch",
        run_s_max=guard.run_s_max,
        run_bytes_max=guard.run_bytes_max,
        processes_max=guard.processes_max,
        idle_s=guard.idle_s,
    )
    return GuardedProcessor(inner, clock, options)


def _child_limits(settings: ImportSettings) -> ChildLimits:
    return ChildLimits(
        memory_bytes=settings.child_memory_bytes,
        cpu_s=settings.child_cpu_s,
        wall_s=settings.child_wall_s,
        file_bytes=settings.file_bytes_max,
        nice=settings.nice,
        must_be_confined=settings.confine == "required",
    )


def _import_options(settings: ImportSettings, confinement: Confinement) -> ImportOptions:
    refuses = settings.confine == "required" and not confinement.is_whole
    return ImportOptions(
        jobs_parallel_max=settings.jobs_parallel_max,
        limits=_child_limits(settings),
        missing_confinement=confinement.missing if refuses else (),
        inspect_wall_s=settings.inspect_wall_s,
        accuracy_floor=settings.accuracy_floor,
        ladder_max=settings.ladder_max,
        eval_samples_max=settings.eval_samples_max,
        calibration_samples_max=settings.calibration_samples_max,
    )
