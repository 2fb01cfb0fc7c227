"""The composition root: reads the settings, makes every part in the order of the data path, and joins them.

Starting enters one exit stack, so stopping is the reverse: not ready, drain, stop imports, remember what was resident,
unload, close the store.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

from appliance import log
from appliance.api.auth.browsers import Browsers, own_names
from appliance.api.auth.keyring import KeyRing, Principal
from appliance.api.auth.sign_ins import SignIn, SignIns
from appliance.api.box import ServingBox
from appliance.api.deferred import DeferredRequests
from appliance.api.gateway import Gateway
from appliance.api.http.lifespan import lifespan
from appliance.api.http.limits import PRINCIPAL, BodyRules, Bounds, InFlight, Receive, Scope, Send
from appliance.api.http.turns import Turns
from appliance.api.regions.regions import Regions
from appliance.api.streams.target import JOINS
from appliance.api.streams.welcome import welcome_of
from appliance.api.v2.handler import V2
from appliance.api.wall import Wall
from appliance.clock import NS_PER_S, Clock, SystemClock
from appliance.configuration import chosen_policies, media_threads, runtime_config
from appliance.confinement.available import Confinement, available
from appliance.domain.audit import AuditRecord
from appliance.domain.errors import ApplianceError, Unavailable
from appliance.domain.events import EventSink
from appliance.domain.hardware import EMULATED
from appliance.domain.names import kind_of, owner_of
from appliance.domain.session import Session
from appliance.history.composition import count_promises, make_history
from appliance.lazy_management import LazyManagement, import_management
from appliance.machine import STEPPED, Machine
from appliance.modelstore.importing.prepared import Builds
from appliance.modelstore.importing.quarantine import Quarantine
from appliance.modelstore.importing.serving import ServedBuilds
from appliance.modelstore.store.forecasts import ForecasterFile
from appliance.modelstore.store.probes import PassedProbes
from appliance.modelstore.store.quick_start import quick_start
from appliance.modelstore.store.sign_ins import SignInFile
from appliance.modelstore.store.snapshot import Snapshot
from appliance.modelstore.store.state_folder import StateFolder
from appliance.policies.allocation import ALLOCATION_POLICIES
from appliance.policies.forecast import FORECASTERS, MEMORY_FORECASTERS
from appliance.resources.stalls import MemoryStalls
from appliance.runtime.assembly import RuntimeParts, RuntimePorts, assemble
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.decisions.log import DecisionLog
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.notable import NotableRequests
from appliance.runtime.pipelines.accounts import Tariff
from appliance.runtime.pipelines.composition import PlanningConfig, PlanningPorts, make_planning
from appliance.runtime.pipelines.pipelines import Pipelines
from appliance.runtime.pipelines.process_background import ProcessBackground
from appliance.runtime.pipelines.runner import BoxStages
from appliance.runtime.pipelines.streaming import PipelineStreams
from appliance.runtime.processors import KINDS
from appliance.runtime.processors.cpu.subnormals import flush_subnormals
from appliance.runtime.processors.guard.processor import GuardedProcessor
from appliance.runtime.processors.monitor import ProcessorMonitor
from appliance.runtime.serving.media import MediaPool
from appliance.runtime.serving.predict import Predictor
from appliance.runtime.serving.trial_samples import SampleBounds
from appliance.runtime.sessions.composition import SessionPorts, make_sessions
from appliance.runtime.sessions.deciding import Decisions
from appliance.runtime.sessions.limits import Limits
from appliance.runtime.sessions.planner_process import PLANNER_BYTES, PlannerEnded, PlannerNotBegun, PlannerProcess
from appliance.runtime.sessions.sessions import Sessions
from appliance.runtime.telemetry import Telemetry
from appliance.settings import HttpSettings, RequestSettings, Settings
from appliance.wire.paths import hide_folder

if TYPE_CHECKING:
    from appliance.api.v1.early_joins import EarlyJoins
    from appliance.management import Management

_PLANNER_NICE = 5
"""Of the process that plans pipelines: a third of the weight of what serves. Beside two runs that never end it has a
quarter of a core, so that a planning of a tenth of a second is over within the half second to the next one."""
_MEMORY_DOMAIN = "host"
"""The one that the memory forecaster looks at."""


class Appliance:
    """A box that can be started once. `asgi` is the application for a server; its lifespan starts and stops the box."""

    def __init__(self, settings: Settings) -> None:
        hide_folder(settings.state_dir)
        self.settings = settings
        self.clock = SystemClock()
        self.logger = log.get("box")
        self.box: ServingBox | None = None
        self.failure: ApplianceError | None = None
        """Why the box could not start."""
        self._ready = False
        self.in_flight = InFlight(settings.http.inflight_bytes_max)
        self.management = LazyManagement(self.logger)
        self.on_migrating: Callable[[], None] = lambda: None
        """Called where a start has more to do with the state folder than to read it: a new one, or an older one."""
        self.turns = Turns(self.clock)
        self.asgi = self._outermost()

    def running(self) -> ServingBox:
        """The started box; only requests ask, and they come after the start."""
        assert self.box is not None
        return self.box

    def is_ready(self) -> bool:
        return self._ready

    def is_stuck(self) -> bool:
        """Whether a run holds a worker long after it should have ended."""
        return self.box is not None and self.box.engine.is_stuck()

    def _outermost(self) -> Gateway:
        http = self.settings.http
        rules = BodyRules.of(
            body_bytes_max=http.body_bytes_max,
            frame_bytes_max=http.frame_bytes_max,
            form_bytes_max=http.form_bytes_max,
            upload_bytes_max=http.upload_bytes_max,
        )
        service = Bounds(self._service, rules, self.in_flight, self.logger, self._caller, self._welcome)
        return Gateway(self.running, V2(self.running), service, self.turns)

    def _caller(self, scope: Scope) -> Principal:
        return self.running().browsers.caller(scope)

    def _welcome(self, scope: Scope, principal: Principal) -> Callable[[], bool]:
        return partial(welcome_of(self.running(), scope, principal).holds, have_frames_come=False)

    async def _service(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The framework, which the first request may have to wait for; and the server's word on start and stop."""
        if scope["type"] == "lifespan":
            await lifespan(self.started(), receive, send)
            return
        if _is_join(scope) and self.management.is_awaited:
            early = await asyncio.to_thread(_early_joins)
            unanswered = await early(self.running(), self._audit_later).answer(scope, receive, send)
            if unanswered is None:
                self.management.is_needed = True
                return
            receive = unanswered
        _, service = await self.management.get()
        await service(scope, receive, send)

    def _audit_later(self, record: AuditRecord) -> None:
        """Write an entry as soon as there is a store."""

        async def write(management: "Management") -> None:
            try:
                await management.box.store.audit.add([record])
            except Unavailable as error:
                self.logger.error("an entry of the audit is lost", action=record.action, reason=str(error))

        self.management.put_off(write)

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """Starts the box, and stops it at the end. Raises: what keeps it from starting: InUse, StorageFull ..."""
        async with AsyncExitStack() as stack:
            try:
                self.box = await self._start(stack)
            except ApplianceError as error:  # for the person at the terminal, not a traceback
                self.failure = error
                raise
            self._ready = True
            stack.push_async_callback(self._drain)
            yield

    async def _drain(self) -> None:
        self.begin_drain()
        box, drain_s = self.running(), self.settings.http.drain_s
        end_ns = self.clock.now_ns() + int(drain_s * NS_PER_S)
        await box.deferred.drain(drain_s)  # before the engine lets no more in: some are still being decoded
        await box.engine.drain(max(0.0, (end_ns - self.clock.now_ns()) / NS_PER_S))

    @staticmethod
    def take_thread() -> None:
        """Set the calling thread up to run the event loop: it computes quick runs as the workers do."""
        flush_subnormals()

    def begin_drain(self) -> None:
        """Stop being ready and end the event streams, so that open connections do not hold the shutdown up."""
        self._ready = False
        if self.box is not None:
            self.box.telemetry.close()
            self.box.deferred.refuse_new()

    async def _start(self, stack: AsyncExitStack) -> ServingBox:
        settings, clock = self.settings, self.clock
        telemetry = _telemetry(settings.requests, clock)
        kept = settings.decisions
        decisions = DecisionLog(clock, queue_max=kept.queue_max, rows_max=kept.rows_max)
        # Before any thread: it settles how the heap is shared.
        machine = Machine(settings, clock)
        processor = machine.processor
        stack.callback(processor.close)
        folder = await asyncio.to_thread(StateFolder.open, settings.state_dir)
        self._tell_limits(machine)
        stack.callback(folder.close)
        builds = Builds(folder.path / "prepared", folder.blobs, machine.descriptions)
        passed = PassedProbes(settings.state_dir / "probes.json")
        monitor = machine.monitor(folder.path / "scratch", passed)
        beginning = await asyncio.to_thread(quick_start, folder)
        if beginning is None:
            self.on_migrating()
            beginning = await (await asyncio.to_thread(import_management)).mended(folder, builds, clock)
        stack.push_async_callback(self.management.close)
        forecasts = ForecasterFile(settings.state_dir / "forecasters.json", FORECASTERS)
        memory_forecasts = ForecasterFile(settings.state_dir / "memory_forecasters.json", MEMORY_FORECASTERS)
        served = ServedBuilds(builds, self.management.models)
        config = runtime_config(settings, machine.memory.now().available_bytes)
        ports = RuntimePorts(
            clock=clock,
            processor=processor,
            groups=machine.groups,
            copies=machine.copies,
            stepped=STEPPED,
            guard_bytes=machine.guard_bytes,
            server_bytes={kind: guard.server_bytes for kind in machine.guard_bytes if (guard := KINDS[kind].guard)},
            kinds=tuple(one.kind for one in machine.descriptions),
            fingerprints={one.kind: one.fingerprint for one in machine.descriptions},
            at_once={one.kind: one.at_once for one in machine.descriptions},
            builds=served,
            telemetry=telemetry,
            events=telemetry,
            windows=telemetry,
            decisions=decisions,
            available_bytes=lambda used_bytes: machine.memory.now().available_bytes,
            is_memory_scarce=lambda: machine.memory.now().is_scarce(config.reserve_bytes),
            forecaster_of=forecasts.of,
            memory_forecaster=memory_forecasts.of(_MEMORY_DOMAIN),
            background=asyncio.to_thread,
            save_forecasters=forecasts.save,
            save_memory_forecaster=lambda text: memory_forecasts.save({_MEMORY_DOMAIN: text}),
        )
        if machine.is_emulated:  # its answers say nothing
            config = replace(config, samples=SampleBounds())
        core = assemble(ports, chosen_policies(settings, machine.groups), config)
        self._hear(processor, core, served, telemetry)
        machine.watch(core, builds, telemetry)
        monitor.begin()
        stack.push_async_callback(core.memory.close)
        confinement = self._confinement()
        media = _media(settings, clock, machine, core.catalogue)
        stack.callback(media.close)
        keyring = KeyRing(clock, settings.security.failed_keys_per_min, core.catalogue.has_tenant)
        regions = _regions(settings.http)
        if regions is not None:
            stack.callback(regions.clear)
        core.profiles.restore(beginning.seen)
        await self._fill(beginning.snapshot, core.catalogue, keyring, builds)
        sensors, statuses = machine.sense(core, telemetry)
        stack.callback(sensors.close)
        history = make_history(
            clock,
            core,
            telemetry,
            decisions,
            statuses,
            sensors,
            machine.memory,
            settings.state_dir,
            **settings.history.model_dump(),
        )
        self._run_in_background(stack, core, monitor, MemoryStalls(clock), beginning.residents)
        predictor = _predictor(clock, core, media, machine, folder)
        pipelines = self._begin_pipelines(
            stack,
            core,
            self._stages(core, predictor, media),
            machine.tariff(sensors),
            machine,
            telemetry,
            decisions,
            beginning.snapshot,
        )
        streams = PipelineStreams(pipelines, core.catalogue)
        sessions = self._begin_sessions(stack, core, predictor, streams, telemetry, decisions, beginning.sessions)
        box = ServingBox(
            clock=clock,
            logger=self.logger,
            catalogue=core.catalogue,
            availability=core.availability,
            engine=core.engine,
            profiles=core.profiles,
            memory=core.memory,
            shares=core.shares,
            residency=core.residency,
            sequences=core.sequences,
            telemetry=telemetry,
            decisions=decisions,
            history=count_promises(history, core.engine, pipelines, sessions),
            keyring=keyring,
            browsers=_browsers(settings, clock, keyring),
            in_flight=self.in_flight,
            turns=self.turns,
            regions=regions,
            media=media,
            predictor=predictor,
            sessions=sessions,
            pipelines=pipelines,
            wall=Wall(clock),
            deferred=DeferredRequests(clock, self.logger, bytes_max=settings.http.results_bytes_max),
            processors=machine.descriptions,
            processor_statuses=statuses,
            sensors=sensors,
            machine_memory=machine.memory,
            cores=machine.cores,
            state_dir=settings.state_dir,
            body_bytes_max=settings.http.body_bytes_max,
            frame_bytes_max=settings.http.frame_bytes_max,
            form_bytes_max=settings.http.form_bytes_max,
            started_ns=clock.now_ns(),
            is_ready=self.is_ready,
            confinement=asdict(confinement),
            is_emulated=machine.is_emulated,
            metrics_open=settings.security.metrics_open,
            settings=settings.model_dump(mode="json"),
            described_settings=settings.described(),
        )
        self.management.begin(lambda module: module.Management(box, core, folder, builds, confinement, settings))
        stack.push_async_callback(self.management.stop)
        return box

    def _hear(
        self, processor: GuardedProcessor, core: RuntimeParts, served: ServedBuilds, telemetry: EventSink
    ) -> None:
        """What becomes of builds and of memory when guards tell of theirs."""
        processor.on_lost = core.memory.lost
        processor.on_unfit = partial(_replace_form, served, core.memory)
        processor.on_base = core.charge_guards
        processor.room_to_begin = core.room_for_guard
        processor.on_servers = core.charge_servers
        tell = partial(_tell_avoided, telemetry)
        quarantine = Quarantine(self.clock, self.management.models, core.catalogue.variants_of, core.avoid, tell)
        processor.on_crash = quarantine.crashed
        core.memory.when_short(processor)

    @staticmethod
    async def _fill(snapshot: Snapshot, catalogue: Catalogue, keyring: KeyRing, builds: Builds) -> None:
        await asyncio.to_thread(builds.start, snapshot.models)
        catalogue.fill(snapshot.tenants, snapshot.models, snapshot.applications)
        keyring.fill(snapshot.keys)

    @staticmethod
    def _run_in_background(
        stack: AsyncExitStack,
        core: RuntimeParts,
        monitor: ProcessorMonitor,
        stalls: MemoryStalls,
        residents: list[str],
    ) -> None:
        """Workers first, the slow loops next, then what was in memory before the last stop, hottest first."""
        loops = [core.residency.run(), core.forecasting.run(), core.pressure.run(), core.memory_forecasting.run()]
        loops += [monitor.run(), stalls.run(core.pressure.stalled)]
        tasks = [asyncio.create_task(worker.work(), name="worker") for worker in core.engine.workers]
        tasks += [asyncio.create_task(loop, name="loop") for loop in loops]
        tasks.append(asyncio.create_task(core.availability.prefetch(residents), name="warm up"))
        _run_until_stopped(stack, tasks)

    def _begin_sessions(
        self,
        stack: AsyncExitStack,
        core: RuntimeParts,
        predictor: Predictor,
        pipelines: PipelineStreams,
        telemetry: Telemetry,
        decisions: DecisionLog,
        stored: Iterable[Session],
    ) -> Sessions:
        """Devices' sessions, with those that the last stop has left, planned from now on; after the pipelines that they
        may name."""
        policies, limits = self.settings.policies, self.settings.sessions
        process_for = partial(_planner, core)
        deciding = Decisions(self.clock, policies.adaptation, policies.offload, process_for=process_for)
        stack.push_async_callback(deciding.close)
        ports = SessionPorts(
            clock=self.clock,
            catalogue=core.catalogue,
            engine=core.engine,
            predictor=predictor,
            memory=core.memory,
            account=core.account,
            residency=core.residency,
            telemetry=telemetry,
            decisions=decisions,
            deciding=deciding,
            pipelines=pipelines,
            new_id=partial(token_hex, 8),
        )
        idle_ns = int(limits.idle_s * NS_PER_S)
        sessions = make_sessions(
            ports, Limits(limits.per_tenant_max, limits.all_max, limits.credit, idle_ns, limits.answers_bytes_max)
        )
        sessions.restore(stored)
        _run_until_stopped(stack, [asyncio.create_task(sessions.run(), name="sessions")])
        return sessions

    def _stages(self, core: RuntimeParts, predictor: Predictor, media: MediaPool) -> BoxStages:
        """Where stages of pipelines run."""
        return BoxStages(
            clock=self.clock,
            catalogue=core.catalogue,
            engine=core.engine,
            predictor=predictor,
            sequences=core.sequences,
            media=media,
            held=self.in_flight.portions,
        )

    def _begin_pipelines(
        self,
        stack: AsyncExitStack,
        core: RuntimeParts,
        stages: BoxStages,
        tariff: Tariff,
        machine: Machine,
        telemetry: Telemetry,
        decisions: DecisionLog,
        snapshot: Snapshot,
    ) -> Pipelines:
        """All that are defined, planned from now on; after the catalogue is filled."""
        pipelines = Pipelines(
            clock=self.clock,
            catalogue=core.catalogue,
            engine=core.engine,
            stages=stages,
            new_id=partial(token_hex, 8),
            tariff=tariff,
        )
        pipelines.fill(snapshot.pipelines)
        name, planner = self.settings.policies.allocation, _planner(core, "allocation", _PLANNER_NICE)
        ports = PlanningPorts(
            clock=self.clock,
            catalogue=core.catalogue,
            engine=core.engine,
            queue=core.queue,
            memory=core.memory,
            account=core.account,
            residency=core.residency,
            events=telemetry,
            decisions=decisions,
            background=ProcessBackground(planner, PlannerEnded, PlannerNotBegun, asyncio.to_thread),
            groups=machine.groups,
            devices=machine.devices,
            media_threads=media_threads(self.settings, machine.groups),
        )
        config = PlanningConfig(
            policy=ALLOCATION_POLICIES[name](),
            policy_name=name,
            tariff=tariff,
            turn_off_s=self.settings.pipelines.turn_off_s,
            window_ms=self.settings.pipelines.window_ms,
        )
        planning = make_planning(ports, config, pipelines.live)
        pipelines.plan_with(planning)
        stack.push_async_callback(planner.close)
        _run_until_stopped(stack, [asyncio.create_task(planning.run(goes_on=True), name="pipelines")])
        return pipelines

    def _tell_limits(self, machine: Machine) -> None:
        """What the box may have of the machine, as the log tells it."""
        memory, cores = machine.memory.now(), machine.cores
        facts = {"memory_bytes": memory.total_bytes, "memory_bound": memory.bound}
        self.logger.info("memory and cores", **facts, cores=cores.count, cores_bound=cores.bound)

    def _confinement(self) -> Confinement:
        """Of children and guards on this machine, as the log tells it."""
        found = available()
        tell = self.logger.info if found.is_whole else self.logger.warning
        tell("confinement of children and guards", **asdict(found))
        return found


def _run_until_stopped(stack: AsyncExitStack, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Tasks that are cancelled, and waited for, when the stack ends."""

    async def stop() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    stack.push_async_callback(stop)


def _is_join(scope: Scope) -> bool:
    """Whether a session is to begin, by a caller who is known."""
    return scope.get("path") == JOINS and scope["method"] == "POST" and PRINCIPAL in scope


def _early_joins() -> "type[EarlyJoins]":
    """What it imports is needed for no answer of `/v2`."""
    from appliance.api.v1.early_joins import EarlyJoins

    return EarlyJoins


def _planner(core: RuntimeParts, family: str, nice: int = 0) -> PlannerProcess:
    """The process that decides for a family of policies; memory has room for it."""
    return PlannerProcess(nice, core.planner_processes.process(family, PLANNER_BYTES))


def _predictor(clock: Clock, core: RuntimeParts, media: MediaPool, machine: Machine, folder: StateFolder) -> Predictor:
    return Predictor(
        clock=clock,
        catalogue=core.catalogue,
        engine=core.engine,
        sequences=core.sequences,
        media=media,
        texts=machine.processor,
        asset_path=folder.blobs.path,
        processor=EMULATED if machine.is_emulated else "",
    )


def _media(settings: Settings, clock: Clock, machine: Machine, catalogue: Catalogue) -> MediaPool:
    threads = media_threads(settings, machine.groups)
    waiting_max = settings.queues.len_max
    return MediaPool(clock, threads=threads, waiting_max=waiting_max, weight_of=catalogue.processor_weight)


def _telemetry(settings: RequestSettings, clock: Clock) -> Telemetry:
    notable = NotableRequests(settings.notable_per_application, settings.notable_max)
    telemetry = Telemetry(clock, notable=notable if settings.notable_per_application else None)
    telemetry.log_to(log.get("events"))
    return telemetry


def _regions(http: HttpSettings) -> Regions | None:
    return Regions(http.shared_memory_regions_max, http.shared_memory_bytes_max) if http.shared_memory else None


def _replace_form(served: ServedBuilds, memory: MemoryManager, build_id: str) -> None:
    """The prepared form of a build is used no more; what is loaded of it goes, with its last run."""
    served.distrust(build_id)
    memory.dismiss(build_id)


def _browsers(settings: Settings, clock: Clock, keyring: KeyRing) -> Browsers:
    """Who is signed in, with those of before the start."""
    file = SignInFile(settings.state_dir / "sign_ins.json")
    security = settings.security
    return Browsers(
        keyring,
        SignIns(clock, (SignIn(*row) for row in file.load())),
        own_names(settings.http.host, security.host_names),
        security.sign_in_without_tls,
        file.save,
    )


def _tell_avoided(events: EventSink, build_id: str, reason: str) -> None:
    _, tenant = owner_of(build_id)
    events.emit("kind of processor avoided", tenant=tenant, build_id=build_id, kind=kind_of(build_id), reason=reason)
