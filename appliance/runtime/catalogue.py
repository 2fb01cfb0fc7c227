"""The engine's picture of who may call what: the only catalogue that the inference path reads.

Owned by the event-loop thread; filled from the store at start and after every committed change. Lookups are dictionary
reads; everything that can be computed once per change (candidates, tensor specs, builds) is.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from appliance.domain.catalogue import Application, Model, Profile, RunBound, Shapes, Tenant, TensorSpec, Variant
from appliance.domain.confidence import losses
from appliance.domain.errors import (
    ModelUnavailable,
    UnknownApplication,
    UnknownModel,
    UnknownTenant,
    UnknownVariant,
    VariantQuarantined,
)
from appliance.domain.isolation import Isolation, is_guarded, is_trusted
from appliance.domain.names import application_id, build_id, content_of, kind_of, model_id
from appliance.domain.padding import Padding, Unfit
from appliance.domain.profiles import SeenRuns
from appliance.domain.request import Request
from appliance.domain.states import VariantState
from appliance.policies.selection.base import SelectionInput, SelectionPlan, SelectionPolicy
from appliance.policies.selection.kinds import NOTICEABLE, KindOption, serving_kind
from appliance.runtime.ports import RunGroup
from appliance.runtime.profiles.store import MEASURED, BuildTimes, ProfileStore, Where
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.served_parts import ServedParts, places_of, served_parts, where_of
from appliance.tasks.datatypes import DTYPES

_UNMEASURED_FACTOR = 3
"""Resident bytes assumed per byte of file until the profile is there; the worst net measured so far takes 2.9."""
_ANY = (1 << 62,)
COUNTED_BYTES_MIN = 4_000_000
"""Runs that take less are not counted: the heap keeps as much anyway."""


OnChoice = Callable[[Application, SelectionInput, SelectionPlan, str], None]
"""Told that an application's first choice is another than the variant of this name."""


@dataclass(frozen=True, slots=True)
class InputSlot:
    """An input as admission checks it; `dtype` None = a type that numpy lacks, which the processor checks."""

    spec: TensorSpec
    dtype: np.dtype[Any] | None
    most: tuple[int, ...]
    """The largest size of each axis."""
    fixed: tuple[int, ...] | None
    """The only shape that it takes; None where an axis is free."""
    fitting: set[tuple[int, ...]] = field(default_factory=set, compare=False)
    """Shapes that were found to fit: a few, which most requests have."""


@dataclass(frozen=True, slots=True)
class Servable:
    """A variant as it is served: what selection, residency and the engine go by."""

    variant: Variant
    build_id: str
    resident_bytes: int
    peak_bytes: int
    inputs: dict[str, InputSlot]
    output_names: frozenset[str]
    batched_input: str | None
    """The first input whose first axis is free, which counts the items of a request; None = a request is one item."""
    is_guarded: bool = False
    """It runs in a process of its owner, never on the event loop."""
    runs: tuple[RunBound, ...] = ()
    """What runs take, from the smallest shapes to the largest; empty where that was not measured."""
    is_inline: bool = False
    """Whether it may run on the event loop: the review at import has found nothing against it, and the first kind of
    processor computes it in the service. Of another kind nobody can say that its runs end.
    """
    is_of_free_size: bool = False
    """Whether its inputs differ in more than the number of items."""
    counted_bytes_max: int = 0
    """What its largest run takes; 0 where that is not worth counting."""
    profile: Profile | None = None
    """On the kind of processor that it serves on; None until measured there."""
    together_max: int = 1
    """Items that requests may bring into one run together; 1 = they would influence one another, or gain nothing."""
    mixes_tenants: bool = False
    """Whether requests of several tenants may share its runs. The import tries a few values; with others a graph can
    give one caller what another sent, so its owner must be trusted not to have made it for that.
    """
    times: BuildTimes | None = field(default=None, compare=False)
    """What runs take, as far as is known by now; None until measured."""
    places: Mapping[int, BuildTimes | None] = field(default_factory=dict, compare=False)
    """Of several groups of processors those that it runs on, by index, and what runs take there, as `times`; empty
    where there is one group.
    """
    usual_times: RunTimes | None = field(default=None, compare=False)
    """The same of inputs that differ in the number of items only; None where others may come, and until measured."""
    loss: float | None = None
    """Points that it may be behind the model's most accurate variant at 95 %; None = not known."""
    parts: ServedParts | None = field(default=None, compare=False)
    """In which it serves; None: whole."""
    whole: "Servable | None" = None
    """Of one in parts: what serves while these are not there."""
    overflow: tuple["Servable", ...] = ()
    """The same variant on further kinds of processors, whose groups do not run its own, the quickest kind first: what
    takes the requests that wait too long for that, while there is memory (`serving.overflow`).
    """
    padding: Padding | None = None
    """How inputs may be made larger; None = they may not."""
    unfit: Unfit = field(default_factory=Unfit, compare=False)
    """Steps within which they may not, as runs have shown."""
    goes_in_steps: bool = False
    """Whether inputs are padded also of a run that nobody shares: the first run of a size is slow where it serves."""

    @property
    def builds(self) -> tuple[str, ...]:
        """That requests may run on, the wanted one first."""
        if self.whole is None and not self.overflow:  # nearly always, and asked for each request
            return (self.build_id,)
        return tuple(one.build_id for one in self.loadable)

    @property
    def forms(self) -> tuple["Servable", ...]:
        """As which it may serve, the wanted one first; not what only takes its overflow."""
        return (self,) if self.whole is None else (self, self.whole)

    @property
    def loadable(self) -> tuple["Servable", ...]:
        """The same, and what takes their overflow."""
        return (*self.forms, *(one for form in self.forms for one in form.overflow))

    def stepped(self, request: Request) -> dict[str, tuple[int, ...]]:
        """Shapes at the end of the step of its inputs, within which it may run with others; its own where nothing of
        it may be padded.
        """
        padding = self.padding
        if padding is None or request.runs_alone or not (padding.is_exact or request.is_read):
            return request.shapes
        stepped = self.steps_of(request.shapes)
        return request.shapes if self.unfit and stepped in self.unfit else stepped

    def steps_of(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """The ends of the steps that inputs of these shapes are in."""
        most = {name: slot.most for name, slot in self.inputs.items()}
        return shapes if self.padding is None else self.padding.stepped(shapes, most)

    def run_bytes_of(self, shapes: Shapes) -> int:
        """What a run with inputs of these shapes takes beside the build; 0 where that is not worth counting, or nobody
        knows.
        """
        bound = self.bound_of(shapes) if self.counted_bytes_max else None
        return 0 if bound is None or bound.peak_bytes < COUNTED_BYTES_MIN else bound.peak_bytes

    def bound_of(self, shapes: Shapes) -> RunBound | None:
        """Of the smallest measured run that is no smaller than one with inputs of these shapes; None where nothing is
        known.
        """
        for bound in self.runs:
            if _is_within(shapes, bound.shapes):
                return bound
        return self.runs[-1] if self.runs else None

    def items_of(self, inputs: Mapping[str, Any]) -> int:
        """How many items a request carries."""
        tensor = None if self.batched_input is None else inputs.get(self.batched_input)
        return 1 if tensor is None else int(tensor.shape[0])

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def accuracy(self) -> float:
        """Points, 0 to 100."""
        return self.variant.accuracy_points

    @property
    def p99_ms(self) -> float | None:
        """Of a run of one item, as measured at import; None until then."""
        return self.profile.latencies[0].p99_ms if self.profile and self.profile.latencies else None

    @property
    def p50_ms(self) -> float | None:
        """Median of a run of one item, as measured at import; None until then. What runs have taken since does not
        enter: variants are compared by what was measured alike, and the one that serves is the only one that runs.
        """
        return self.profile.latencies[0].p50_ms if self.profile and self.profile.latencies else None

    @property
    def need_bytes(self) -> int:
        """What must be free for it to come in."""
        return max(self.resident_bytes, self.peak_bytes)

    def times_of(self, inputs: Mapping[str, Any], items: int) -> RunTimes | None:
        """What runs with such inputs, which hold so many items, take; None until measured."""
        return self.usual_times if self.times is None or not self.is_of_free_size else self.times.of(inputs, items)

    def part_times(self, group: int, number: int, inputs: Mapping[str, Any], items: int) -> RunTimes | None:
        """As `times_of`, of runs of one of its parts in a group of processors, by what goes into the network."""
        times = None if self.parts is None else self.parts.times.get((group, number))
        return None if times is None else times.of(inputs, items) if self.is_of_free_size else times.usual

    def expected_of(self, inputs: Mapping[str, Any], now_ns: int) -> int | None:
        """Median of a run with these inputs and no other beside it (the P99 would drop work that can still be in time);
        None until measured.
        """
        items = self.items_of(inputs)
        times = self.times_of(inputs, items)
        if times is None:
            return None
        elsewhere = (there.expected_ns(items, 1, now_ns) for there in self.times_by_place(inputs, items).values())
        return min(elsewhere, default=times.expected_ns(items, 1, now_ns))

    def times_by_place(self, inputs: Mapping[str, Any], items: int) -> dict[int, RunTimes]:
        """As `times_of`, on each group of processors that it runs on; empty where there is one group, and until
        measured.
        """
        return {
            place: times.of(inputs, items) if self.is_of_free_size else times.usual
            for place, times in self.places.items()
            if times is not None
        }


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

    @property
    def first_choice(self) -> str:
        """The variant of such a request; empty: there is none."""
        return self.order[0].name if self.order else ""


@dataclass(frozen=True, slots=True)
class _Serving:
    """As what a variant serves: on which kind of processor, as which build, in whose guard, in which parts."""

    kind: str
    build_id: str
    guarded_for: str | None
    parts: ServedParts | None


_CutFor = tuple[Variant, tuple[Variant, ...], frozenset[str]]
"""A variant, those that share its build, and the kinds of processors that take no runs."""


class Catalogue:
    """Tenants, models and applications in memory."""

    def __init__(
        self,
        selection: SelectionPolicy,
        kinds: Sequence[str] = ("cpu",),
        isolation: Isolation = Isolation.NONE,
        loss_points_max: float = 0.0,
        on_choice: OnChoice | None = None,
        memory_bytes: int = 1 << 40,
        profiles: ProfileStore | None = None,
        groups: Sequence[RunGroup] = (),
        copies: Mapping[str, int] = MappingProxyType({}),
        fingerprints: Mapping[str, str] = MappingProxyType({}),
        stepped: Collection[str] = (),
        guard_bytes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`kinds` of processors, the first one first: whatever is not measured runs there.
        `isolation`: which builds run in a guard, unless the owner's quota says otherwise. `loss_points_max`: what an
        application whose preference is balanced may lose. `on_choice` is told of each change of what answers first.
        `memory_bytes`: the budget that builds share. `profiles`: what runs take; None = nobody asks. `groups` of
        processors, where there are several. `copies`: kind → how often a build of it is in memory, where not once.
        `fingerprints` of the processors, by kind: what was cut for others serves whole.
        `stepped`: kinds whose first run of a size is slow. `guard_bytes`: kind that guards compute on → what such a
        process takes by itself; on the first one they always do.
        """
        self._guard_bytes = guard_bytes
        self._fingerprints = dict(fingerprints)
        self._stepped = frozenset(stepped)
        self._groups = tuple(groups)
        self._copies = copies
        self._profiles = profiles
        self._on_choice = on_choice
        self._loss_points_max = loss_points_max
        self._isolation = isolation
        self._selection = selection
        self._kinds = tuple(kinds)
        self._away: frozenset[str] = frozenset()
        """Kinds that take no runs now."""
        self._avoided: set[str] = set()
        """Builds of other kinds than the first one that serve nothing any more."""
        self._memory_bytes = memory_bytes
        self._tenants: dict[str, Tenant] = {}
        self._models: dict[str, Model] = {}
        self._applications: dict[str, Application] = {}
        self._entries: dict[str, Entry] = {}
        self.version = 0
        """Grows with every change."""
        self._unfit: dict[str, tuple[tuple[str, str, Padding], Unfit]] = {}
        """Id of a variant → of what content, kind of processor and padding it was found out, and what."""
        self._wished_kinds: Mapping[str, str] = {}
        """Content → the kind of processor that a planner wants it to serve on."""
        self._cuts: dict[str, tuple[_CutFor, ServedParts | None]] = {}
        """Id of a variant → its parts as they were last made, and for what: that takes a search over each batch."""
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
        before = self._tenants.get(tenant.name)
        self._tenants[tenant.name] = tenant
        self.version += 1
        if (before.quota.isolation if before else None) is not tenant.quota.isolation:
            for entry in [e for e in self._entries.values() if e.model.tenant == tenant.name]:
                self._refresh(entry.application)

    def remove_tenant(self, name: str) -> None:
        self._tenants.pop(name, None)
        self.version += 1

    def put_model(self, model: Model) -> None:
        self._models[model.id] = model
        self._drop_cuts(model.id, {variant.id for variant in model.variants})
        self._drop_avoided()
        for application in self._applications.values():
            if application.model_id == model.id:
                self._refresh(application)

    def remove_model(self, model_id: str) -> None:
        self._models.pop(model_id, None)
        self._drop_cuts(model_id, frozenset())
        self._drop_avoided()
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
        if kinds != self._away:
            self._away = kinds
            for entry in list(self._entries.values()):
                self._refresh(entry.application)

    def avoid(self, build: str) -> bool:
        """What a build serves, it serves on the first kind of processor from now on; False: it does already."""
        if kind_of(build) == self._kinds[0]:
            return False
        self._avoided.add(build)
        for user in self.users_of(build):
            self._refresh(self._applications[user])
        return True

    def avoided_of(self, variant: Variant, model: Model) -> list[str]:
        """Kinds of processors that a variant of a model serves on no more, for its process has crashed there."""
        owners = None, model.tenant
        return [
            kind
            for kind in self._kinds
            if any(build_id(variant.content_sha256, kind, owner) in self._avoided for owner in owners)
        ]

    def allow(self, variant: Variant, model: Model) -> None:
        """A variant may serve on all kinds of processors again."""
        kinds, owners = self.avoided_of(variant, model), (None, model.tenant)
        self._avoided -= {build_id(variant.content_sha256, kind, owner) for kind in kinds for owner in owners}
        for application in self._applications.values() if kinds else ():
            if application.model_id == model.id:
                self._refresh(application)

    def _drop_avoided(self) -> None:
        """Contents that no model has any more: who imports one again begins anew."""
        if self._avoided:
            there = {
                content_of(variant.content_sha256) for model in self._models.values() for variant in model.variants
            }
            self._avoided = {build for build in self._avoided if content_of(build) in there}

    # -- lookups -------------------------------------------------------------------------------------------------------

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of processors, the first one first."""
        return self._kinds

    @property
    def away(self) -> frozenset[str]:
        """Of these, those that take no runs now."""
        return self._away

    def wish_kinds(self, kinds: Mapping[str, str]) -> None:
        """On which kind of processor contents are to serve, in place of what was wished before: where they may serve
        there. All others serve where a request costs least.
        """
        before, self._wished_kinds = self._wished_kinds, dict(kinds)
        changed = {content for content, _kind in before.items() ^ kinds.items()}
        for entry in list(self._entries.values()):
            own = [s for s in entry.servables.values() if s.variant.content_sha256 in changed]
            if any(self._serving(one.variant, entry.model).kind != kind_of(one.build_id) for one in own):
                self._refresh(entry.application)

    def able_kinds(self, servable: Servable) -> tuple[str, ...]:
        """The kinds of processors in service on which a variant may serve whole, that on which it does first."""
        own = kind_of(servable.build_id)
        model = self._models.get(servable.variant.model_id)
        if servable.parts is not None or model is None:
            return ()
        options = self._options(_rungs(servable.variant, model), self._guarded_for(servable.variant, model))
        return (own, *sorted({option.kind for option in options} - {own}))

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
        seen: dict[str, Model] = {}
        for model in sorted(self._models.values(), key=lambda m: (m.tenant != tenant, m.id)):
            if model.tenant == tenant or model.shared:
                seen.setdefault(model.name, model)
        return [seen[name] for name in sorted(seen)]

    def models(self) -> list[Model]:
        """Those of all tenants, by id."""
        return [self._models[i] for i in sorted(self._models)]

    def applications(self) -> list[Application]:
        """Those of all tenants, by id; also of a model that is on its way out."""
        return [self._applications[i] for i in sorted(self._applications)]

    def has_tenant(self, name: str) -> bool:
        """Whether there is such a tenant."""
        return name in self._tenants

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
        """Raises: UnknownVariant, ModelUnavailable, VariantQuarantined."""
        found = entry.servables.get(variant)
        if found is None:
            known = next((v for v in entry.model.variants if v.name == variant), None)
            if known is not None and known.state is VariantState.QUARANTINED:
                raise VariantQuarantined(name=variant, reason=known.reason)
            if known is not None:
                raise ModelUnavailable(name=f"{entry.application.name}:{variant}")
            raise UnknownVariant(name=variant)
        return found

    def most_wanted(self, entry: Entry) -> Servable:
        """Raises: ModelUnavailable; VariantQuarantined where what would serve is quarantined."""
        if entry.order:
            return entry.order[0]
        away = [v for v in entry.model.variants if v.state is VariantState.QUARANTINED]
        if away:
            raise VariantQuarantined(name=away[0].name, reason=away[0].reason)
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
            if build in (*s.builds, self.build_of(s.variant, e.model.tenant))
        )
        return sorted(set(served))

    def build_of(self, variant: Variant, tenant: str) -> str:
        """The id of a variant's build in the guard of a tenant, whether it runs there or not."""
        return build_id(variant.content_sha256, self._kinds[0], tenant)

    def kind_of(self, variant: Variant, model: Model) -> str:
        """The kind of processor that a variant serves on now; of one in parts all of theirs, joined."""
        return self._serving(variant, model).kind

    def part_kinds_of(self, variant: Variant, model: Model) -> list[tuple[str, ...]]:
        """Of each part of a variant the kinds of processors that it serves on now; none where it serves whole."""
        parts = self._serving(variant, model).parts
        if parts is None:
            return []
        return [tuple(kind for own, kind in parts.builds if own == number) for number in range(len(parts.cut.parts))]

    def seen_of(self, variant: Variant, model: Model) -> list[SeenRuns]:
        """What a variant's runs took since the import, on the build that serves it now."""
        if self._profiles is None or not _rungs(variant, model):
            return []
        return self._profiles.seen(self._serving(variant, model).build_id, rung_of(variant))

    def reader_of(self, model: Model) -> str | None:
        """The tenant in whose guard is read what was uploaded beside the graph; None = in the service."""
        return model.tenant if is_guarded(self._isolation, self._isolation_of(model.tenant), None) else None

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
                return profile.asleep_bytes * self._copies_of(profile.kind, is_guarded=servable.is_guarded)
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

    def _guarded_for(self, variant: Variant, model: Model) -> str | None:
        """The owner of the model, whoever calls it, unless every rung of the build was shown to be harmless."""
        isolation = self._isolation_of(model.tenant)
        rungs = [v.profile for v in model.variants if v.content_sha256 == variant.content_sha256]
        hazards = [None if profile is None else profile.hazards for profile in rungs]
        return model.tenant if any(is_guarded(self._isolation, isolation, found) for found in hazards) else None

    def _isolation_of(self, tenant: str) -> Isolation | None:
        """As its quota says; None: as the box does."""
        found = self._tenants.get(tenant)
        return None if found is None else found.quota.isolation

    def _drop_cuts(self, model_id: str, but: Collection[str]) -> None:
        """Variants of a model have gone; not those of these ids."""
        gone = [id_ for id_, ((one, *_), _) in self._cuts.items() if one.model_id == model_id and id_ not in but]
        for variant_id in gone:
            del self._cuts[variant_id]
        for variant_id in [id_ for id_ in self._unfit if id_.startswith(f"{model_id}:") and id_ not in but]:
            del self._unfit[variant_id]

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
        lost = losses([v for v in model.variants if v.state is VariantState.READY])
        servables = {v.name: self._servable(v, model, lost.get(v.id)) for v in model.variants if v.servable}
        problem = SelectionInput(
            [s for s in servables.values() if s.variant.state is VariantState.READY],
            application.latency_slo_ms,
            application.accuracy_min,
            application.prefer,
            self._loss_points_max,
        )
        chosen = self._selection.order(problem)
        if self._on_choice is not None and before is not None and before.order and chosen.order:
            was = before.order[0].name
            if was != chosen.order[0]:
                self._on_choice(application, problem, chosen, was)
        order = tuple(servables[name] for name in chosen.order)
        return Entry(application, model, servables, order, chosen.reason)

    def _servable(self, variant: Variant, model: Model, loss: float | None) -> Servable:
        serving = self._serving(variant, model)
        made = self._made(variant, model, loss, serving)
        whole = self._serving_whole(variant, model)
        overflow = tuple(self._made(variant, model, loss, one) for one in self._overflow(variant, model, whole))
        if serving.parts is None:
            return replace(made, overflow=overflow) if overflow else made
        return replace(made, whole=replace(self._made(variant, model, loss, whole), overflow=overflow))

    def _overflow(self, variant: Variant, model: Model, serving: "_Serving") -> list["_Serving"]:
        """Of the groups of processors that do not run the kind on which a variant serves: the quickest kind of each on
        which it was measured.
        """
        if len(self._groups) < 2 or serving.guarded_for is not None:
            return []
        measured = {option.kind: option.run_ms for option in self._options(_rungs(variant, model))}
        others = [
            [kind for kind in one.kinds if kind in measured] for one in self._groups if serving.kind not in one.kinds
        ]
        quickest = {min(kinds, key=lambda kind: (measured[kind], kind)) for kinds in others if kinds}
        return [
            _Serving(kind, build_id(variant.content_sha256, kind), None, None)
            for kind in sorted(quickest, key=lambda kind: (measured[kind], kind))
        ]

    def _made(self, variant: Variant, model: Model, loss: float | None, serving: "_Serving") -> Servable:
        guarded_for, kind, build, parts = serving.guarded_for, serving.kind, serving.build_id, serving.parts
        if parts is None:
            profiles = [p for rung in _rungs(variant, model) if (p := self._profile(rung, kind)) is not None]
            profile = self._profile(variant, kind)
        else:
            profiles = [parts.profile]
            profile = parts.profile
        resident = max((p.resident_bytes for p in profiles), default=_UNMEASURED_FACTOR * variant.size_bytes)
        peak = max((p.peak_bytes for p in profiles), default=resident)
        beside = resident * (self._copies_of(kind, is_guarded=guarded_for is not None) - 1)
        resident, peak = resident + beside, peak + beside  # one is loaded after the other
        inputs = {t.name: _slot(t, (variant.shape_max or {}).get(t.name)) for t in variant.inputs}
        names = frozenset(t.name for t in variant.outputs)
        batched, is_of_free_size, base = _shapes_of(variant)
        runs = variant.profile.runs if variant.profile else ()
        times = self._times(variant, build, profile, base, batched, is_measured=parts is None)
        padding = variant.padding if is_of_free_size and batched and parts is None else None
        largest_bytes = runs[-1].peak_bytes if runs else 0
        return Servable(
            variant,
            build,
            resident,
            max(peak, resident),
            inputs,
            names,
            batched,
            runs=runs,
            is_inline=guarded_for is None
            and kind == self._kinds[0]
            and variant.profile is not None
            and variant.profile.hazards == (),
            is_of_free_size=is_of_free_size,
            counted_bytes_max=largest_bytes if largest_bytes >= COUNTED_BYTES_MIN else 0,
            is_guarded=guarded_for is not None,
            profile=profile,
            together_max=_together_max(profile, is_of_free_size) if profile and profile.latencies and batched else 1,
            mixes_tenants=is_trusted(self._isolation, self._isolation_of(model.tenant)),
            times=times,
            usual_times=None if times is None or is_of_free_size else times.usual,
            loss=loss,
            padding=padding,
            unfit=Unfit() if padding is None else self._unfit_of(variant, kind, padding),
            goes_in_steps=kind in self._stepped,
            places={} if parts is not None else self._places(variant, build, kind, profile, base, batched),
            parts=parts,
        )

    def _unfit_of(self, variant: Variant, kind: str, padding: Padding) -> Unfit:
        """The same one for as long as the variant, the kind that it serves on and its padding are the same."""
        of = variant.content_sha256, kind, padding
        known = self._unfit.get(variant.id)
        if known is None or known[0] != of:
            known = self._unfit[variant.id] = of, Unfit()
        return known[1]

    def _serving(self, variant: Variant, model: Model) -> "_Serving":
        """What a variant serves as now: the whole of it on one kind of processor, or in parts on several."""
        whole = self._serving_whole(variant, model)
        rungs = _rungs(variant, model)
        if whole.guarded_for is not None or len(self._kinds) == 1 or variant.profile is None:
            return whole
        made_for = variant, tuple(sorted(rungs, key=lambda one: one.id)), self._away
        known = self._cuts.get(variant.id)
        if known is None or known[0] != made_for:
            known = self._cuts[variant.id] = made_for, self._parts(variant, rungs)
        parts = known[1]
        if parts is None or not self._is_better(parts, variant, rungs):
            return whole
        return _Serving(parts.kind, parts.build_id, None, parts)

    def _serving_whole(self, variant: Variant, model: Model) -> "_Serving":
        guarded_for = self._guarded_for(variant, model)
        options = self._options(_rungs(variant, model), guarded_for)
        kind = serving_kind(options, self._memory_bytes) if options else self._kinds[0]
        wished = self._wished_kinds.get(variant.content_sha256)
        if any(option.kind == wished for option in options):
            kind = wished or kind
        return _Serving(kind, build_id(variant.content_sha256, kind, guarded_for), guarded_for, None)

    def _parts(self, variant: Variant, rungs: Sequence[Variant]) -> ServedParts | None:
        """Of a variant that is cut for the processors of this box; None where it has none, or they serve nothing."""
        cut = variant.cut
        if cut is None or not cut.parts or cut.asked != self._fingerprints:
            return None
        if not all(rung.profile and rung.profile.latencies and _run_ms(rung) for rung in rungs):
            return None
        batched, _is_of_free_size, base = _shapes_of(variant)

        def times_of(build: str, profile: Profile, where: Where, is_measured: bool) -> BuildTimes | None:
            return self._times(variant, build, profile, base, batched, where, is_measured=is_measured)

        scale = _run_ms(variant) / _run_ms(_largest(rungs))

        def parts_on(kinds: Sequence[str]) -> ServedParts | None:
            places = places_of(self._groups, kinds)
            return served_parts(variant, scale, places, lambda kind: self._copies.get(kind, 1), times_of)

        there = [kind for kind in self._kinds if kind not in self._away]
        on_all = parts_on(there)
        if on_all is None or {kind for _, kind in on_all.builds} <= on_all.quickest:
            return on_all
        # Kinds that the quickest way does not need only help where the others are taken: their memory must be worth it.
        lean = parts_on([kind for kind in there if kind in on_all.quickest])
        if lean is None:
            return on_all
        cost_ms = [_option_of(one, variant, rungs).cost_ms(self._memory_bytes) for one in (lean, on_all)]
        return lean if cost_ms[0] < (1 - NOTICEABLE) * cost_ms[1] else on_all

    def _is_better(self, parts: ServedParts, variant: Variant, rungs: Sequence[Variant]) -> bool:
        """Whether a content costs less in parts than on any kind that runs all of it."""
        option = _option_of(parts, variant, rungs)
        return serving_kind([*self._options(rungs), option], self._memory_bytes) == parts.kind

    def _copies_of(self, kind: str, *, is_guarded: bool) -> int:
        return 1 if is_guarded else self._copies.get(kind, 1)

    def _places(
        self,
        variant: Variant,
        build: str,
        kind: str,
        profile: Profile | None,
        base: Shapes | None,
        batched: str | None,
    ) -> dict[int, BuildTimes | None]:
        if len(self._groups) < 2:
            return {}
        return {
            index: self._times(variant, build, profile, base, batched, where_of(group, kind))
            for index, group in enumerate(self._groups)
            if kind in group.kinds
        }

    def _times(
        self,
        variant: Variant,
        build: str,
        profile: Profile | None,
        base: Shapes | None,
        batched: str | None,
        where: Where = MEASURED,
        *,
        is_measured: bool = True,
    ) -> BuildTimes | None:
        if self._profiles is None or profile is None or not profile.latencies:
            return None
        rung = rung_of(variant)
        return self._profiles.of(build, rung, profile, base, batched, where, is_measured=is_measured)

    def _options(self, rungs: Sequence[Variant], guarded_for: str | None = None) -> list[KindOption]:
        """The kinds that take runs, where need be in guards, and on which all variants of a content were measured."""
        is_guarded = guarded_for is not None
        options: list[KindOption] = []
        for kind in self._kinds if rungs and len(self._kinds) > 1 else ():
            if kind in self._away or (is_guarded and kind not in self._guard_bytes and kind != self._kinds[0]):
                continue
            if self._avoided and build_id(rungs[0].content_sha256, kind, guarded_for) in self._avoided:
                continue
            profiles = [p for rung in rungs if (p := self._profile(rung, kind)) is not None and p.latencies]
            if len(profiles) == len(rungs):
                back_ms = max(p.load_ms if p.wake_ms is None else p.wake_ms for p in profiles)
                run_ms = sum(p.latencies[0].p50_ms for p in profiles)
                shared_ms = sum(_shared_ms(p) for p in profiles)
                resident_bytes = max(p.resident_bytes for p in profiles)
                base_bytes = self._guard_bytes.get(kind, 0) if is_guarded else 0
                options.append(KindOption(kind, run_ms, back_ms, resident_bytes, shared_ms, base_bytes))
        return options

    def _profile(self, variant: Variant, kind: str) -> Profile | None:
        if kind == self._kinds[0]:
            return variant.profile
        return next((profile for profile in variant.other_profiles if profile.kind == kind), None)

    def _index_shared(self) -> None:
        shared: dict[str, str] = {}
        for application in sorted(self._applications.values(), key=lambda a: a.id, reverse=True):
            if application.shared:
                shared[application.name] = application.id
        self._shared = shared


def rung_of(variant: Variant) -> str:
    """Which of the input sizes that share a build; empty where it has one only."""
    return "" if variant.height is None else f"{variant.height}x{variant.width}"


def _rungs(variant: Variant, model: Model) -> list[Variant]:
    """The measured variants of a model that share a variant's file: one build serves them all."""
    return [v for v in model.variants if v.content_sha256 == variant.content_sha256 and v.profile]


def _option_of(parts: ServedParts, variant: Variant, rungs: Sequence[Variant]) -> KindOption:
    """A content in parts, to be compared with kinds that run all of it."""
    profile = parts.profile
    run_ms = profile.latencies[0].p50_ms / _run_ms(variant) * sum(_run_ms(rung) for rung in rungs)
    return KindOption(parts.kind, run_ms, profile.wake_ms or profile.load_ms, profile.resident_bytes)


def _largest(rungs: Sequence[Variant]) -> Variant:
    """The one that a cut is timed with."""
    return max(rungs, key=lambda one: (one.height or 0, one.width or 0))


def _run_ms(variant: Variant) -> float:
    """Median of a run of one item on the first kind of processor."""
    assert variant.profile is not None and variant.profile.latencies
    return variant.profile.latencies[0].p50_ms


def _shapes_of(variant: Variant) -> tuple[str | None, bool, Shapes | None]:
    """The input that counts the items, whether inputs differ in more than that, and if so the shapes that the import
    measured.
    """
    batched = next((t.name for t in variant.inputs if t.shape and t.shape[0] < 0), None)
    is_of_free_size = any(side < 0 for t in variant.inputs for side in t.shape[1:])
    runs = variant.profile.runs if variant.profile else ()
    return batched, is_of_free_size, runs[0].shapes if is_of_free_size and runs else None


def _slot(tensor: TensorSpec, largest: tuple[int, ...] | None) -> InputSlot:
    most = _ANY * len(tensor.shape) if largest is None else largest
    fixed = tensor.shape if all(side > 0 for side in tensor.shape) else None
    return InputSlot(tensor, DTYPES.get(tensor.datatype), most, fixed)


def _together_max(profile: Profile, is_of_free_size: bool) -> int:
    """The largest batch that takes less than its rows take one by one; of inputs of other sizes than the import's that
    is not known.
    """
    if is_of_free_size:
        return profile.shared_rows_max
    one = profile.latencies[0]
    paying = [row.batch for row in profile.alone if row.p50_ms * one.batch < row.batch * one.p50_ms]
    return max((batch for batch in paying if batch <= profile.shared_rows_max), default=1)


def _shared_ms(profile: Profile) -> float:
    """An item's part of the run in which it costs least, of those that requests may share."""
    one = profile.latencies[0]
    shared = [row for row in profile.alone if row.batch <= profile.shared_rows_max]
    return min([one.p50_ms, *(one.batch * row.p50_ms / row.batch for row in shared)])


def _is_within(shapes: Shapes, limits: Shapes) -> bool:
    for name, most in limits.items():
        for size, limit in zip(shapes.get(name, ()), most, strict=False):
            if size > limit:
                return False
    return True
