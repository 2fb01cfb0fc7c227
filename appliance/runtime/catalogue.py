"""The engine's picture of who may call what: the only catalogue that the inference path reads.

Owned by the event-loop thread; filled from the store at start and after every committed change. Lookups are dictionary
reads; everything that can be computed once per change (candidates, tensor specs, builds) is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from appliance.domain.catalogue import Application, Model, Tenant, Variant, Verify
from appliance.domain.errors import (
    ContentDamaged,
    LoadFailed,
    ModelUnavailable,
    UnknownApplication,
    UnknownModel,
    UnknownTenant,
    UnknownVariant,
    VariantQuarantined,
)
from appliance.domain.names import application_id, model_id
from appliance.domain.states import VariantState
from appliance.policies.selection.base import SelectionInput, SelectionPlan, SelectionPolicy
from appliance.runtime.servable import Servable
from appliance.runtime.servable_factory import ServableFactory

_UNMEASURED_FACTOR = 3
"""Resident bytes assumed per byte of file until the profile is there; the worst net measured so far takes 2.9."""
_ANY = (1 << 62,)
COUNTED_BYTES_MIN = 4_000_000
"""Runs that take less are not counted: the heap keeps as much anyway."""


OnChoice = Callable[[Application, SelectionInput, SelectionPlan, str], None]
"""Told that an application's first choice is another than the variant of this name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An application with everything that a request needs of it."""

    application: Application
    model: Model
    servables: dict[str, Servable]
    order: tuple[Servable, ...]
    """Candidates for a request without a version, most wanted first."""
    reason: str = ""
    """Why they are in that order."""
    trials: Mapping[str, Variant] = field(default_factory=dict)
    """`Model.trials`, where the application takes part in them."""

    @property
    def first_choice(self) -> str:
        """The variant of such a request; empty: there is none."""
        return self.order[0].name if self.order else ""

    def most_wanted(self, accuracy_min: float | None) -> Servable | None:
        """The first of those that are as accurate, else the first of all; None: there is none."""
        fitting = (one for one in self.order if accuracy_min is None or one.accuracy >= accuracy_min)
        return next(fitting, None) or next(iter(self.order), None)


class Catalogue:
    """Tenants, models and applications in memory."""

    def __init__(
        self,
        selection: SelectionPolicy,
        servables: ServableFactory | None = None,
        loss_points_max: float = 0.0,
        on_choice: OnChoice | None = None,
    ) -> None:
        """`servables`: as what variants serve; None: on one kind of processor, unmeasured. `loss_points_max`: what an
        application whose preference is balanced may lose. `on_choice` is told of each change of what answers first.
        """
        self.servables = ServableFactory() if servables is None else servables
        self._on_choice = on_choice
        self._loss_points_max = loss_points_max
        self._selection = selection
        self._tenants: dict[str, Tenant] = {}
        self._models: dict[str, Model] = {}
        self._applications: dict[str, Application] = {}
        self._entries: dict[str, Entry] = {}
        self.version = 0
        """Grows with every change."""
        self._users: dict[str, list[str]] | None = None
        """build → ids of the applications that refer to it; None after a change, until somebody asks."""
        self._shared: dict[str, str] = {}
        """name → id of shared applications; the first tenant by name wins."""

    # -- changes -------------------------------------------------------------------------------------------------------

    def fill(self, tenants: Iterable[Tenant], models: Iterable[Model], applications: Iterable[Application]) -> None:
        """Take over what there is at the start."""
        for tenant in tenants:
            self.put_tenant(tenant)
        for model in models:
            self.put_model(model)
        for application in applications:
            self._applications[application.id] = application
            self._refresh(application)
        self._index_shared()

    def put_tenant(self, tenant: Tenant) -> None:
        self._tenants[tenant.name] = tenant
        self.version += 1
        if self.servables.put_tenant(tenant):
            for entry in [e for e in self._entries.values() if e.model.tenant == tenant.name]:
                self._refresh(entry.application)

    def remove_tenant(self, name: str) -> None:
        self._tenants.pop(name, None)
        self.servables.remove_tenant(name)
        self.version += 1

    def put_model(self, model: Model) -> None:
        self._models[model.id] = model
        self.servables.forget(model.id, self._models.values(), {variant.id for variant in model.variants})
        for application in self._applications.values():
            if application.model_id == model.id:
                self._refresh(application)

    def remove_model(self, model_id: str) -> None:
        self._models.pop(model_id, None)
        self.servables.forget(model_id, self._models.values())
        for entry_id in [e.application.id for e in self._entries.values() if e.model.id == model_id]:
            del self._entries[entry_id]
        self._users = None
        self.version += 1

    def put_application(self, application: Application) -> None:
        self._applications[application.id] = application
        self._refresh(application)
        self._index_shared()

    def remove_application(self, application_id_: str) -> None:
        self._applications.pop(application_id_, None)
        self._entries.pop(application_id_, None)
        self._users = None
        self.version += 1
        self._index_shared()

    def leave_out(self, kinds: frozenset[str]) -> None:
        """These kinds of processors take no runs now, all others do: what would serve there serves on the first one."""
        if self.servables.leave_out(kinds):
            for entry in list(self._entries.values()):
                self._refresh(entry.application)

    def avoid(self, build: str) -> bool:
        """What a build serves, it serves on the first kind of processor from now on; False: it does already."""
        if not self.servables.avoid(build):
            return False
        for user in self.users_of(build):
            self._refresh(self._applications[user])
        return True

    def allow(self, variant: Variant, model: Model) -> None:
        """A variant may serve on all kinds of processors again."""
        changed = self.servables.allow(variant, model)
        for application in self._applications.values() if changed else ():
            if application.model_id == model.id:
                self._refresh(application)

    # -- lookups -------------------------------------------------------------------------------------------------------

    def wish_kinds(self, kinds: Mapping[str, str]) -> None:
        """On which kind of processor contents are to serve, in place of what was wished before: where they may serve
        there. All others serve where a request costs least.
        """
        changed = self.servables.wish_kinds(kinds)
        for entry in list(self._entries.values()):
            own = [s for s in entry.servables.values() if s.variant.content_sha256 in changed]
            if not all(self.servables.serves_as(one, entry.model) for one in own):
                self._refresh(entry.application)

    def able_kinds(self, servable: Servable) -> tuple[str, ...]:
        """The kinds of processors in service on which a variant may serve whole, that on which it does first."""
        model = self._models.get(servable.variant.model_id)
        return () if model is None else self.servables.able_kinds(servable, model)

    def tenant(self, name: str) -> Tenant:
        """Raises: UnknownTenant."""
        try:
            return self._tenants[name]
        except KeyError:
            raise UnknownTenant(name=name) from None

    def processor_weight(self, tenant: str) -> float:
        """Of a tenant, also of one that was deleted while its last requests are under way."""
        found = self._tenants.get(tenant)
        return 1.0 if found is None else found.quota.processor_weight

    def weights(self, application: Application, tenant: str) -> tuple[float, float]:
        """Of a calling tenant on the box, and of an application in the tenant."""
        return self.processor_weight(tenant), application.weight

    def tenants(self) -> list[Tenant]:
        """By name."""
        return [self._tenants[name] for name in sorted(self._tenants)]

    def resolve(self, tenant: str, name: str) -> Application:
        """The application that `name` means to `tenant`: its own, else a shared one.

        Raises: UnknownApplication.
        """
        own = self._applications.get(application_id(tenant, name))
        if own is not None:
            return own
        shared = self._shared.get(name)
        if shared is None:
            raise UnknownApplication(name=name)
        return self._applications[shared]

    def resolve_model(self, tenant: str, name: str) -> Model:
        """The model that `name` means to `tenant`: its own, else a shared one (the first tenant by name wins).

        Raises: UnknownModel.
        """
        own = self._models.get(model_id(tenant, name))
        if own is not None:
            return own
        shared = [m for m in self._models.values() if m.shared and m.name == name]
        if not shared:
            raise UnknownModel(name=name)
        return min(shared, key=lambda m: m.id)

    def visible_models(self, tenant: str) -> list[Model]:
        """The tenant's own models and the shared ones that its own do not hide; by name."""
        visible = (model for model in self._models.values() if model.tenant == tenant or model.shared)
        seen: dict[str, Model] = {}
        for model in sorted(visible, key=lambda m: (m.tenant != tenant, m.id)):
            seen.setdefault(model.name, model)
        return [seen[name] for name in sorted(seen)]

    def models(self) -> list[Model]:
        """Those of all tenants, by id."""
        return [self._models[i] for i in sorted(self._models)]

    def applications(self) -> list[Application]:
        """Those of all tenants, by id; also of a model that is on its way out."""
        return [self._applications[i] for i in sorted(self._applications)]

    def application(self, application_id_: str) -> Application | None:
        """One of any tenant by id, also of a model that is on its way out; None: it was deleted."""
        return self._applications.get(application_id_)

    def has_tenant(self, name: str) -> bool:
        """Whether there is such a tenant."""
        return name in self._tenants

    def model_id_of(self, application_id_: str) -> str | None:
        """The model that an application asks; None: there is no such application."""
        application = self._applications.get(application_id_)
        return None if application is None else application.model_id

    def entry(self, application_id_: str) -> Entry:
        """Raises: ModelUnavailable when the model has gone or was never imported."""
        try:
            return self._entries[application_id_]
        except KeyError:
            raise ModelUnavailable(name=application_id_.split("/", 1)[-1]) from None

    def entry_for(self, tenant: str, application_id_: str) -> Entry:
        """As `entry`, of an application that was chosen some time ago: the id may be another one's by now.

        Raises: ModelUnavailable, also where it is another tenant's that is not shared.
        """
        entry = self.entry(application_id_)
        if not (entry.application.shared or entry.application.tenant == tenant):
            raise ModelUnavailable(name=entry.application.name)
        return entry

    def draft(self, application: Application) -> Entry:
        """What the entry of an application that is not here would be. Raises: UnknownModel."""
        model = self._models.get(application.model_id)
        if model is None:
            raise UnknownModel(name=application.model_id)
        return self._entry(application, model)

    def servable(self, entry: Entry, variant: str) -> Servable:
        """Raises: UnknownVariant, ModelUnavailable, VariantQuarantined; ContentDamaged."""
        found = entry.servables.get(variant)
        if found is None:
            known = next((v for v in entry.model.variants if v.name == variant), None)
            if known is not None and known.state is VariantState.QUARANTINED:
                raise VariantQuarantined(name=variant, reason=known.reason)
            if known is not None and known.is_damaged:
                raise ContentDamaged(build_id=known.id, reason=known.reason)
            if known is not None:
                raise ModelUnavailable(name=f"{entry.application.name}:{variant}")
            raise UnknownVariant(name=variant)
        return found

    def most_wanted(self, entry: Entry) -> Servable:
        """Raises: ModelUnavailable; VariantQuarantined where what would serve is quarantined, ContentDamaged where it
        is damaged.
        """
        if entry.order:
            return entry.order[0]
        away = [v for v in entry.model.variants if v.state is VariantState.QUARANTINED]
        if away:
            raise VariantQuarantined(name=away[0].name, reason=away[0].reason)
        damaged = [v for v in entry.model.variants if v.is_damaged]
        if damaged:
            raise ContentDamaged(build_id=damaged[0].id, reason=damaged[0].reason)
        doubtful = [v for v in entry.model.variants if v.state is VariantState.READY and not v.is_verified]
        if doubtful:
            first = min(doubtful, key=lambda one: one.is_off)
            remedy = "name it" if first.is_off else "name it, or set unverified of the application to allow"
            raise LoadFailed(build_id=first.id, reason=f"{first.doubt}; {remedy}", retry_after_s=None)
        raise ModelUnavailable(name=entry.application.name)

    def model_of(self, application: Application) -> Model:
        """Raises: ModelUnavailable."""
        return self.entry(application.id).model

    def visible(self, tenant: str) -> list[Application]:
        """The tenant's own applications, then the shared ones that its own do not hide; by name."""
        own = {a.name: a for a in self._applications.values() if a.tenant == tenant}
        shared = {name: self._applications[i] for name, i in self._shared.items() if name not in own}
        return [own[n] for n in sorted(own)] + [shared[n] for n in sorted(shared)]

    def entries(self) -> list[Entry]:
        """Every application that has a model, by id."""
        return [self._entries[i] for i in sorted(self._entries)]

    def figures_of(self, model_id: str) -> dict[str, Servable]:
        """A servable of each build of a model: sizes are those of the build."""
        return {
            each.build_id: each
            for entry in self._entries.values()
            if entry.model.id == model_id
            for servable in entry.servables.values()
            for each in servable.loadable
        }

    def variants_of(self, build: str) -> list[str]:
        """Ids of the variants that a build serves now; of a tenant's build (`build_of`): of those that are its own."""
        served = (
            s.variant.id
            for e in self._entries.values()
            for s in e.servables.values()
            if build in (*s.builds, self.servables.build_of(s.variant, e.model.tenant))
        )
        return sorted(set(served))

    def users_of(self, build: str) -> tuple[str, ...]:
        """Applications that refer to a build, by id."""
        if self._users is None:
            self._users = {}
            for entry in self.entries():
                for each in {build for s in entry.servables.values() for build in s.builds}:
                    self._users.setdefault(each, []).append(entry.application.id)
        return tuple(self._users.get(build, ()))

    def is_overflow(self, build: str) -> bool:
        """Whether a build is in memory for overflow only: variants may run on it, and none serves on it."""
        users = [servable for user in self.users_of(build) for servable in self._entries[user].servables.values()]
        return bool(users) and not any(form.build_id == build for servable in users for form in servable.forms)

    def asleep_bytes_of(self, build: str) -> int | None:
        """What a build takes asleep, as measured at import; None where it was not, or cannot sleep."""
        for servable in self._on(build):
            profile = servable.profile
            if profile is not None and profile.asleep_bytes is not None:
                return profile.asleep_bytes * self.servables.copies_of(servable)
        return None

    def parts_of(self, build: str) -> Mapping[tuple[int, str], str] | None:
        """The builds of parts, by number and kind, that are in memory as one; None: it is none of several."""
        return next((servable.parts.builds for servable in self._on(build) if servable.parts is not None), None)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _on(self, build: str) -> Iterator[Servable]:
        """What a build serves."""
        for user in self.users_of(build):
            for servable in self._entries[user].servables.values():
                for each in servable.loadable:
                    if each.build_id == build:
                        yield each

    def _refresh(self, application: Application) -> None:
        self._users = None
        self.version += 1
        model = self._models.get(application.model_id)
        if model is None:
            self._entries.pop(application.id, None)
        else:
            before = self._entries.get(application.id)
            self._entries[application.id] = self._entry(application, model, before)

    def _entry(self, application: Application, model: Model, before: Entry | None = None) -> Entry:
        servables = self.servables.servables_of(model)
        problem = SelectionInput(
            [
                s
                for s in servables.values()
                if s.variant.state is VariantState.READY and application.may_choose(s.variant)
            ],
            application.latency_slo_ms,
            application.accuracy_min,
            application.prefer,
            self._loss_points_max,
            model.meaning,
        )
        chosen = self._selection.order(problem)
        if self._on_choice is not None and before is not None and before.order and chosen.order:
            was = before.order[0].name
            if was != chosen.order[0]:
                self._on_choice(application, problem, chosen, was)
        order = tuple(servables[name] for name in chosen.order)
        trials = model.trials if application.verify is Verify.ON and application.tenant == model.tenant else {}
        return Entry(application, model, servables, order, chosen.reason, trials)

    def _index_shared(self) -> None:
        shared = [application for application in self._applications.values() if application.shared]
        shared.sort(key=lambda application: application.id, reverse=True)  # of equal names the first id counts
        self._shared = {application.name: application.id for application in shared}
