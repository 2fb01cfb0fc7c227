"""The second half of a start: the store with its tables, imports, chores and the framework of `/v1`.

None of it is needed for an answer of `/v2`, and importing it takes longer than all the rest of a start. So `app.py`
imports this module in a thread, once the box serves.
"""

import asyncio
import datetime
import socket
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import fields
from functools import partial

from appliance.api.auth.access import ensure_admin_key
from appliance.api.auth.refused_sign_ins import RefusedSignIns
from appliance.api.auth.sign_in_links import SignInLinks
from appliance.api.box import RunningBox, ServingBox
from appliance.api.followed_jobs import FollowedJobs
from appliance.api.service import Service
from appliance.api.simulations import Simulations
from appliance.api.v1.health_facts import watch
from appliance.clock import Clock
from appliance.confinement.available import Confinement
from appliance.confinement.limits import ChildLimits
from appliance.domain.access import KeyRecord
from appliance.domain.catalogue import Application, Model, Tenant
from appliance.domain.errors import Unavailable
from appliance.domain.health.memory import HealthMemory
from appliance.domain.notifications.receivers import Receiver
from appliance.domain.pipeline import Pipeline
from appliance.modelstore.importing.deletion import ModelDeletion
from appliance.modelstore.importing.importer import Importer, ImportOptions
from appliance.modelstore.importing.prepared import Builds
from appliance.modelstore.store.backups import Backups
from appliance.modelstore.store.housekeeping import Housekeeping
from appliance.modelstore.store.quick_start import Beginning
from appliance.modelstore.store.records import Change, ChangeFeed, ChangeValue
from appliance.modelstore.store.restoring import Restoring
from appliance.modelstore.store.state_folder import StateFolder
from appliance.modelstore.store.store import Store
from appliance.modelstore.store.uploads import Uploads
from appliance.modelstore.trials import TrialPorts, Trials
from appliance.notifications.notifications import Notifications
from appliance.notifications.sending import Sender
from appliance.runtime.assembly import RuntimeParts
from appliance.runtime.processors.measuring.measure import ChildMeasure
from appliance.settings import ImportSettings, Settings

_REMEMBER_EVERY_S = 10
_SAVE_EVERY_S = 60
"""So often is written down what was learnt of run times, and which browsers, keys and refused sign-ins there were."""


async def mended(folder: StateFolder, builds: Builds, clock: Clock) -> Beginning:
    """What `quick_start` reads, of a folder in which something has to be made or mended first."""
    store = Store(folder, clock, ChangeFeed())
    await asyncio.to_thread(store.recover, builds.has_sound_form)
    await ensure_admin_key(folder.path, store.keys, clock)
    residents, seen = await store.residents.load(), await store.seen.load()
    return Beginning(await store.snapshot(), residents, seen, await store.sessions.load())


class Management:
    """The parts of a box that manage it, and what they do in the background. Event-loop thread only."""

    def __init__(
        self,
        serving: ServingBox,
        core: RuntimeParts,
        folder: StateFolder,
        builds: Builds,
        confinement: Confinement,
        settings: Settings,
    ) -> None:
        """From here on what serves follows the store's changes."""
        self._builds, self._profiles = builds, core.profiles
        keys_max, http = settings.security.keys_per_tenant_max, settings.http
        store = Store(
            folder,
            serving.clock,
            ChangeFeed(),
            on_removed=self._forget,
            keys_per_tenant_max=keys_max,
            audit_rows_max=settings.audit.rows_max,
        )
        sender = Sender(serving.clock, map(str, settings.notifications.private_addresses))
        notifications = Notifications(serving.clock, sender, settings.discovery.name or socket.gethostname())
        store.feed.subscribe(Follower(core, serving))
        store.feed.subscribe(partial(_follow_receivers, notifications))
        processors = list(serving.processors)
        limits, scratch = _child_limits(settings.imports), folder.path / "scratch"
        measure = ChildMeasure(processors, limits, scratch, paused=core.engine.paused)
        options = _import_options(settings.imports, confinement)
        importer = Importer(store, builds, measure, processors, serving.telemetry, options, core.engine.asked)
        self._trials = Trials(
            store,
            importer.stages,
            TrialPorts(
                samples=core.engine.trials,
                is_idle=lambda: core.engine.free_workers() > 0,
                free_bytes=lambda: core.memory.free_bytes,
                events=serving.telemetry,
            ),
            limits,
            settings.trials.core_share,
        )
        serving.sessions.kept_in(store.sessions)
        uploads = Uploads(store, bytes_max=http.upload_bytes_max, per_tenant_max=http.uploads_per_tenant_max)
        kept_days = {"jobs_kept_days": settings.imports.jobs_kept_days, "audit_kept_days": settings.audit.kept_days}
        self._chores = chores = Housekeeping(store, uploads, **kept_days)
        backups_dir = settings.backups.folder or folder.path / "backups"
        backups = Backups(folder.path, backups_dir, serving.clock, settings.backups.kept)
        self._memory = core.memory
        self.box = RunningBox(
            **{field.name: getattr(serving, field.name) for field in fields(serving)},
            store=store,
            uploads=uploads,
            importer=importer,
            followed_jobs=FollowedJobs(serving.telemetry),
            deletion=ModelDeletion(store.models, [importer.cancel, core.availability.retire_model]),
            refused_sign_ins=RefusedSignIns(),
            sign_in_links=SignInLinks(serving.clock),
            housekeeping=chores,
            backups=backups,
            restoring=Restoring(folder.path),
            simulations=Simulations(serving.clock),
            health=HealthMemory(),
            notifications=notifications,
        )
        self._add_chores(core, settings, builds)
        self._tasks: list[asyncio.Task[None]] = []
        self._uses: dict[str, datetime.datetime] = {}
        """When keys were used that is not written yet, by id: none more than there are keys."""

    def _add_chores(self, core: RuntimeParts, settings: Settings, builds: Builds) -> None:
        """Beside those of the store."""

        async def check_files() -> None:
            await self.box.store.check_contents(partial(builds.has_sound_form, anew=True))
            await builds.check()

        self._chores.every_night(check_files, "check the files")
        self._chores.every_night(core.forecasting.choose_all, "choose forecasters")
        self._chores.every_night(core.memory_forecasting.choose, "choose a memory forecaster")
        if settings.backups.kept:
            self._chores.every_night(self.box.backups.nightly, "nightly backup")

    def service(self) -> Service:
        """Return the application that answers `/v1`, `/metrics` and the documents of this box. Any thread."""
        return Service(self.box)

    def start(self) -> None:
        """Begin with imports, chores, and writing down what was decided and what is in memory."""
        background = {
            "decisions": self.box.decisions.run(self.box.store.decisions),
            "imports": self.box.importer.run(),
            "trials": self._trials.run(),
            "remember residents": self._remember(),
            "save run times": self._each_minute(self._save_changed),
            "save sign-ins": self._each_minute(self.box.browsers.save),
            "count refused sign-ins": self._each_minute(self.save_refused),
            "note uses of keys": self._each_minute(self.save_uses),
            "history": self.box.history.run(),
            "health": watch(self.box),
            "sweep backups": self.box.backups.sweep(),
        }
        self._tasks += [asyncio.create_task(work, name=name) for name, work in background.items()]
        self._chores.start()

    async def catch_up(self) -> None:
        """Store what has come before there was a store, and load the receivers of notifications."""
        await self.box.sessions.store_begun()
        for receiver in await self.box.store.receivers.all():
            self.box.notifications.put(receiver)

    async def stop(self) -> None:
        """End what `start` began; what is in memory now is what the next start brings back."""
        self._chores.stop()
        # These may have to wait for a disk: they are told now, and awaited when the rest is saved.
        ending = [asyncio.create_task(one.stop()) for one in (self.box.backups, self.box.restoring)]
        await self.box.simulations.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.box.notifications.close()
        await self.box.history.close()
        with suppress(Unavailable):
            await self.box.store.residents.save(self._memory.resident_set())
            await self._save_changed(at_all=True)
            await self.save_refused()
            await self.save_uses()
        await asyncio.gather(*ending, return_exceptions=True)

    async def close(self) -> None:
        """Write the last decisions, once nothing decides any more."""
        await self.box.decisions.close(self.box.store.decisions)

    async def _each_minute(self, save: Callable[[], Awaitable[None]]) -> None:
        """Write something down again and again."""
        while True:
            await self.box.clock.sleep_until_ns(self.box.clock.now_ns() + _SAVE_EVERY_S * 10**9)
            with suppress(Unavailable):  # a full disk; it is tried again
                await save()

    async def _save_changed(self, *, at_all: bool = False) -> None:
        """What was learnt of run times, where it has changed."""
        changed = self._profiles.changed(at_all=at_all)
        await self.box.store.seen.save(changed)
        self._profiles.saved(changed)

    async def save_refused(self) -> None:
        """How many sign-ins were refused."""
        if records := self.box.refused_sign_ins.taken(self.box.clock):
            try:
                await self.box.store.audit.add(records)
            except Unavailable:
                self.box.refused_sign_ins.put_back(records)
                raise

    async def save_uses(self) -> None:
        """Which keys were used; what cannot be written is written with the next."""
        self._uses.update(dict.fromkeys(self.box.keyring.take_uses(), self.box.clock.wall_now()))
        writing = dict(self._uses)
        await self.box.store.keys.used(writing)
        self._uses = {id: at for id, at in self._uses.items() if writing.get(id) != at}

    async def _forget(self, contents: Collection[str]) -> None:
        """Contents have left the disk."""
        self._profiles.forget(contents)
        await self._builds.forget(contents)

    async def _remember(self) -> None:
        """Save the resident set when it has changed, so that a power cut also comes back warm."""
        saved: list[str] | None = None
        while True:
            await self.box.clock.sleep_until_ns(self.box.clock.now_ns() + _REMEMBER_EVERY_S * 10**9)
            current = self._memory.resident_set()
            if saved is None or set(current) != set(saved):
                with suppress(Unavailable):  # a full disk; it is tried again
                    await self.box.store.residents.save(current)
                    saved = current


class Follower:
    """Carries committed changes of the store into everything that keeps a picture of it."""

    def __init__(self, core: RuntimeParts, serving: ServingBox) -> None:
        self._catalogue = core.catalogue
        self._memory = core.memory
        self._availability = core.availability
        self._residency = core.residency
        self._keyring = serving.keyring
        self._sign_ins = serving.browsers.sign_ins
        self._regions = serving.regions
        self._deferred = serving.deferred
        self._history = serving.history
        self._telemetry = serving.telemetry
        self._engine = core.engine
        self._pipelines = serving.pipelines
        self._sessions = serving.sessions

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
                if self._catalogue.model_id_of(change.id) not in (None, application.model_id):
                    self._sessions.applications.forget(change.id)
                self._catalogue.put_application(application)
            case "application", None:
                self._catalogue.remove_application(change.id)
                self._availability.forget_application(change.id)
                self._sessions.applications.forget(change.id)
            case "pipeline", pipeline:
                self._follow_pipeline(change.id, pipeline)
            case "tenant", Tenant() as tenant:
                self._follow_tenant(tenant)
            case "tenant", None:
                self._catalogue.remove_tenant(change.id)
                self._keyring.remove_tenant(change.id)
                self._deferred.drop_tenant(change.id)
                self._history.forget_tenant(change.id)
                self._forget_tenant(change.id)
                if self._regions is not None:
                    self._regions.drop_tenant(change.id)
            case "key", key:
                self._follow_key(change.id, key)
            case _:  # jobs have events of their own, receivers a follower
                pass

    def _follow_tenant(self, tenant: Tenant) -> None:
        if not self._catalogue.has_tenant(tenant.name):  # what ended after another one of its name had gone
            self._forget_tenant(tenant.name)
        self._catalogue.put_tenant(tenant)
        self._release_unused()
        self._residency.look_again()
        self._pipelines.look_again()  # its ceiling, or its weight, may be another one

    def _forget_tenant(self, name: str) -> None:
        """What was counted of it, and its sessions."""
        self._telemetry.forget_tenant(name)
        for spending in (self._engine.single_calls, self._pipelines.spending):
            spending.forget(name)
        self._sessions.forget_tenant(name)

    def _follow_key(self, id: str, key: ChangeValue) -> None:
        if isinstance(key, KeyRecord):
            self._keyring.put(key)
            return
        self._keyring.remove(id)
        self._sign_ins.end_of_key(id)
        if self._regions is not None:
            self._regions.drop_key(id)

    def _follow_pipeline(self, id: str, pipeline: ChangeValue) -> None:
        tenant, _, name = id.partition("/")
        if isinstance(pipeline, Pipeline):
            self._pipelines.put(pipeline)
            self._telemetry.emit("pipeline defined", tenant=tenant, pipeline=name, stages=len(pipeline.stages))
        else:
            self._pipelines.remove(id)
            self._telemetry.emit("pipeline deleted", tenant=tenant, pipeline=name)

    def _release_unused(self) -> None:
        """Builds that nobody refers to any more, for example because they run in a guard from now on, or no longer."""
        for build_id in self._memory.known_builds():
            if not self._catalogue.users_of(build_id):
                self._memory.dismiss(build_id)


def _follow_receivers(notifications: Notifications, change: Change) -> None:
    """Add and remove receivers of notifications as the store does."""
    if isinstance(change.value, Receiver):
        notifications.put(change.value)
    elif change.kind == "receiver":
        notifications.remove(change.id)


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
    same = settings.model_dump(include={one.name for one in fields(ImportOptions)})
    missing = confinement.missing if refuses else ()
    return ImportOptions(**same, limits=_child_limits(settings), missing_confinement=missing)
