"""The composition root: reads the settings, makes every part in the order of the data path, and joins them.

Starting enters one exit stack, so stopping is the reverse: not ready, drain, stop imports, remember what was resident, unload, close the store.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import uvicorn
from fastapi import FastAPI

from appliance import log
from appliance.api.access import ensure_admin_key
from appliance.api.box import Box
from appliance.api.gateway import Gateway
from appliance.api.keyring import KeyRing
from appliance.api.limits import BodyRules, Bounds, InFlight
from appliance.api.media import MediaPool
from appliance.api.protocol import BoxProtocol
from appliance.api.service import create_service
from appliance.clock import NS_PER_MS, NS_PER_S, SystemClock
from appliance.domain.access import KeyRecord
from appliance.domain.catalogue import Application, Model, Tenant
from appliance.domain.errors import ApplianceError
from appliance.modelstore.builds import Builds
from appliance.modelstore.forecasts import ForecastFile
from appliance.modelstore.housekeeping import Housekeeping
from appliance.modelstore.importer import Importer, ImportOptions
from appliance.modelstore.repository import Change
from appliance.modelstore.sandbox import ChildLimits
from appliance.modelstore.store import Store
from appliance.modelstore.uploads import Uploads
from appliance.policies.eviction import EVICTION_POLICIES
from appliance.policies.forecast.memory import Trend
from appliance.policies.selection import SELECTION_POLICIES
from appliance.runtime.admission import Admission
from appliance.runtime.breathing import Breathing
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.decision_log import DecisionLog
from appliance.runtime.engine import Engine
from appliance.runtime.expectations import Expectations
from appliance.runtime.forecasting import Forecasting
from appliance.runtime.loader import Loader
from appliance.runtime.memory import MemoryManager
from appliance.runtime.processors import PROCESSORS, check_runtime
from appliance.runtime.processors.measuring import ChildMeasure
from appliance.runtime.queues import Queue
from appliance.runtime.reside import Resider
from appliance.runtime.room import RoomByApplication
from appliance.runtime.sequences import Sequences
from appliance.runtime.telemetry import Telemetry
from appliance.runtime.zoos import Zoos
from appliance.settings import ImportSettings, ProcessorSettings, Settings

_US = 1000
_REMEMBER_EVERY_S = 10


class Appliance:
    """A box that can be started once. `asgi` is the application for a server; its lifespan starts and stops the box."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self.logger = log.get("box")
        self.box: Box | None = None
        self.failure: ApplianceError | None = None
        """Why the box could not start."""
        self._ready = False
        self.in_flight = InFlight(settings.http.inflight_bytes_max)
        self.service = create_service(self._lifespan)
        self.asgi = self._outermost()

    def running(self) -> Box:
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
        return Gateway(self.running, Bounds(self.service, rules, self.in_flight, self.logger))

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

    def begin_drain(self) -> None:
        """Stop being ready and end the event streams, so that open connections do not hold the shutdown up."""
        self._ready = False
        if self.box is not None:
            self.box.telemetry.close()

    async def _start(self, stack: AsyncExitStack) -> Box:
        settings, clock = self.settings, self.clock
        telemetry = Telemetry(clock)
        telemetry.log_to(log.get("events"))
        kept = settings.decisions
        decisions = DecisionLog(clock, queue_max=kept.queue_max, rows_max=kept.rows_max)
        processor = _processor(settings.processors[0], settings)  # before any thread: it settles how the heap is shared
        stack.callback(processor.close)
        description = processor.describe()
        store = await asyncio.to_thread(Store.open, settings.state_dir, clock)
        stack.callback(store.close)
        store.attach(asyncio.get_running_loop())
        _write_decisions(stack, decisions, store)
        catalogue = Catalogue(SELECTION_POLICIES[settings.policies.selection](), description.kind)
        builds = Builds(settings.state_dir / "prepared", store.blobs, [description])
        zoos = Zoos(catalogue)
        forecasts = ForecastFile(settings.state_dir / "forecasters.json")
        expectations = Expectations(
            forecasts.of,
            alpha=settings.residency.alpha,
            delta_ns=int(settings.residency.delta_ms * NS_PER_MS),
            history_ns=int(settings.residency.history_window_s * NS_PER_S),
        )
        eviction = settings.policies.eviction
        room = RoomByApplication(zoos, expectations, EVICTION_POLICIES[eviction](), decisions, eviction)
        memory = MemoryManager(
            clock=clock,
            loader=Loader(builds, processor),
            policy=room,
            budget_bytes=memory_budget(settings),
            wait_ms_max=settings.memory.wait_ms_max,
            events=telemetry,
            decisions=decisions,
            users_of=catalogue.users_of,
        )
        stack.push_async_callback(memory.close)
        sequences = Sequences(clock, settings.queues.sequences_max, settings.queues.sequence_idle_s)
        resider = Resider(
            clock=clock,
            zoos=zoos,
            expectations=expectations,
            room=room,
            memory=memory,
            events=telemetry,
            tick_ms=settings.residency.tick_ms,
            reloads_per_min_max=settings.residency.reloads_per_min_max,
        )
        engine = Engine(
            clock=clock,
            catalogue=catalogue,
            admission=Admission(clock, settings.queues.timeout_ms),
            memory=memory,
            queue=Queue(clock, settings.queues.len_max, settings.queues.total_max),
            processor=processor,
            sequences=sequences,
            telemetry=telemetry,
            resider=resider,
            quick_ns_max=int(settings.queues.quick_us_max * _US),
        )
        scratch = settings.state_dir / "scratch"
        measure = ChildMeasure([description], settings.imports.child_wall_s, settings.imports.nice, scratch)
        importer = Importer(store, builds, measure, [description], telemetry, _import_options(settings.imports))
        store.on_delete.append(engine.retire_model)
        uploads = Uploads(store, bytes_max=settings.http.upload_bytes_max)
        media = MediaPool(clock, threads=description.workers, waiting_max=settings.queues.len_max)
        stack.callback(media.close)
        keyring = KeyRing(clock, settings.security.failed_keys_per_min, catalogue.has_tenant)
        store.on_change = Follower(catalogue, keyring, memory, engine)
        await self._fill(store, catalogue, keyring, builds)
        await ensure_admin_key(settings.state_dir, store, clock)
        forecasting = Forecasting(
            clock=clock, expectations=expectations, background=asyncio.to_thread, events=telemetry, saved=forecasts.save
        )
        breathing = Breathing(
            clock=clock,
            memory=memory,
            forecaster=Trend(),
            available_bytes=lambda: psutil.virtual_memory().available,
            events=telemetry,
            budget_bytes=memory.budget_bytes,
            reserve_bytes=settings.memory.reserve_bytes,
        )
        loops = [resider.run(), forecasting.run(), breathing.run(), importer.run()]
        chores = Housekeeping(store, uploads, settings.imports.jobs_kept_days)
        chores.every_night(forecasting.choose_all, "choose forecasters")
        await self._run_in_background(stack, engine, loops, chores, store, memory)
        return Box(
            clock=clock,
            logger=self.logger,
            store=store,
            uploads=uploads,
            importer=importer,
            catalogue=catalogue,
            engine=engine,
            memory=memory,
            resider=resider,
            sequences=sequences,
            telemetry=telemetry,
            decisions=decisions,
            keyring=keyring,
            in_flight=self.in_flight,
            media=media,
            processors=(description,),
            state_dir=settings.state_dir,
            body_bytes_max=settings.http.body_bytes_max,
            form_bytes_max=settings.http.form_bytes_max,
            started_ns=clock.now_ns(),
            is_ready=self.is_ready,
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
        engine: Engine,
        loops: Sequence[Coroutine[Any, Any, None]],
        chores: Housekeeping,
        store: Store,
        memory: MemoryManager,
    ) -> None:
        """Workers first, the slow loops next, then what was in memory before the last stop, hottest first."""
        tasks = [asyncio.create_task(worker.work(), name="worker") for worker in engine.workers]
        tasks += [asyncio.create_task(loop, name="loop") for loop in loops]
        chores.start()
        stack.callback(chores.stop)
        tasks.append(asyncio.create_task(engine.prefetch(await store.resident()), name="warm up"))
        tasks.append(asyncio.create_task(self._remember(store, memory), name="remember residents"))

        async def stop() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await store.save_resident(memory.resident_set())

        stack.push_async_callback(stop)

    async def _remember(self, store: Store, memory: MemoryManager) -> None:
        """Save the resident set when it has changed, so that a power cut also comes back warm."""
        saved: list[str] | None = None
        while True:
            await self.clock.sleep_until_ns(self.clock.now_ns() + _REMEMBER_EVERY_S * 10**9)
            current = memory.resident_set()
            if saved is None or set(current) != set(saved):
                await store.save_resident(current)
                saved = current


class Follower:
    """Carries committed changes of the store into everything that keeps a picture of it."""

    def __init__(
        self,
        catalogue: Catalogue,
        keyring: KeyRing,
        memory: MemoryManager,
        engine: Engine,
    ) -> None:
        self._catalogue = catalogue
        self._keyring = keyring
        self._memory = memory
        self._engine = engine

    def __call__(self, change: Change) -> None:
        match change.kind, change.value:
            case "model", Model() as model:
                self._catalogue.put_model(model)
                for build_id, servable in self._catalogue.figures_of(model.id).items():
                    self._memory.update_figures(build_id, servable.resident_bytes, servable.peak_bytes)
            case "model", None:
                self._catalogue.remove_model(change.id)
            case "application", Application() as application:
                self._catalogue.put_application(application)
            case "application", None:
                self._catalogue.remove_application(change.id)
                self._engine.forget_application(change.id)
            case "tenant", Tenant() as tenant:
                self._catalogue.put_tenant(tenant)
            case "tenant", None:
                self._catalogue.remove_tenant(change.id)
                self._keyring.remove_tenant(change.id)
            case "key", KeyRecord() as key:
                self._keyring.put(key)
            case "key", None:
                self._keyring.remove(change.id)
            case _:  # jobs have events of their own
                pass


def memory_budget(settings: Settings) -> int:
    """Bytes for loaded builds: as set, or a share of what the machine has available now."""
    memory = settings.memory
    return memory.budget_bytes or int(psutil.virtual_memory().available * memory.budget_share)


def _write_decisions(stack: AsyncExitStack, decisions: DecisionLog, store: Store) -> None:
    """In the background until the stop, which waits for the last ones."""
    writing = asyncio.create_task(decisions.run(store), name="decisions")

    async def stop() -> None:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await decisions.close(store)

    stack.push_async_callback(stop)


def _processor(settings: ProcessorSettings, tree: Settings) -> Any:
    check_runtime()
    cores = len(os.sched_getaffinity(0))
    return PROCESSORS[settings.kind](
        name=settings.name,
        workers=settings.workers or max(1, cores // settings.threads_per_run),
        threads_per_run=settings.threads_per_run,
        loads_parallel_max=tree.memory.loads_parallel_max,
    )


def _import_options(settings: ImportSettings) -> ImportOptions:
    limits = ChildLimits(
        memory_bytes=settings.child_memory_bytes,
        cpu_s=settings.child_cpu_s,
        wall_s=settings.child_wall_s,
        file_bytes=settings.file_bytes_max,
        nice=settings.nice,
    )
    return ImportOptions(
        jobs_parallel_max=settings.jobs_parallel_max,
        limits=limits,
        inspect_wall_s=settings.inspect_wall_s,
        accuracy_floor=settings.accuracy_floor,
        ladder_max=settings.ladder_max,
        eval_samples_max=settings.eval_samples_max,
        calibration_samples_max=settings.calibration_samples_max,
    )


class Server(uvicorn.Server):
    """Tells the box that the end begins before it waits for connections, and writes down where it listens."""

    def __init__(self, config: uvicorn.Config, appliance: Appliance, on_listen: Callable[[str], None]) -> None:
        super().__init__(config)
        self._appliance = appliance
        self._on_listen = on_listen

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.servers and self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            scheme = "https" if self.config.is_ssl else "http"
            self._on_listen(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")

    async def shutdown(self, sockets: Any = None) -> None:
        self._appliance.begin_drain()
        await super().shutdown(sockets)
        # A signal that was obeyed is no failure: not raised again, so that the clean-up runs and the status is 0.
        self._captured_signals.clear()


def serve(settings: Settings, on_listen: Callable[[str], None] = lambda url: None) -> None:
    """Run the box until SIGTERM or SIGINT. The address stands in STATE/address while it listens.

    Raises: what kept the box from starting: InUse (another box runs on the folder), StorageFull ...
    """
    log.configure(settings.log.level, settings.log.format)
    appliance = Appliance(settings)
    http = settings.http
    address = settings.state_dir / "address"

    stack = ExitStack()

    def listening(url: str) -> None:
        address.write_text(url + "\n")
        stack.callback(address.unlink, missing_ok=True)
        on_listen(url)

    cert, key = _certificate(settings)
    config = uvicorn.Config(
        appliance.asgi,
        host=http.host,
        port=http.port,
        loop="uvloop",
        http=BoxProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=int(http.keep_alive_s),
        timeout_graceful_shutdown=max(1, int(http.drain_s)),
        limit_concurrency=http.connections_max,
        ssl_certfile=cert,
        ssl_keyfile=key,
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
        proxy_headers=False,
    )
    logging.getLogger("uvicorn.error").addFilter(lambda record: appliance.failure is None)
    with stack:  # a box that could not start leaves the address of the one that runs here alone
        try:
            Server(config, appliance, listening).run()
        except SystemExit:
            if appliance.failure is not None:
                raise appliance.failure from None
            raise


def _certificate(settings: Settings) -> tuple[Path | None, Path | None]:
    http = settings.http
    if http.tls_cert is None and http.tls_self_signed:
        from appliance.api.certificate import self_signed  # cryptography is large and seldom needed

        return self_signed(settings.state_dir / "tls", http.host)
    return http.tls_cert, http.tls_key
