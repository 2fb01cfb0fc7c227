"""Makes of each variant what is served: on which kind of processor, in whose guard, whole or in parts.

Each is made anew when something changes that it depends on; what takes long (a search for parts) is kept.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Latency, Model, Profile, Shapes, Tenant, Variant
from appliance.domain.confidence import losses
from appliance.domain.hardware import CPU_KINDS
from appliance.domain.isolation import Isolation, is_guarded, is_trusted
from appliance.domain.names import build_id, content_of, kind_of
from appliance.domain.padding import Padding, Unfit
from appliance.domain.profiles import SeenRuns
from appliance.domain.states import VariantState
from appliance.policies.selection.kinds import KindOption, kind_reason, serving_kind
from appliance.runtime.ports import RunGroup
from appliance.runtime.profiles.at_once import runs_at_once
from appliance.runtime.profiles.store import MEASURED, BuildTimes, ProfileStore, Where
from appliance.runtime.servable import COUNTED_BYTES_MIN, LOAD_NS_PER_BYTE, Servable, slot_of
from appliance.runtime.served_parts import ServedParts, places_of, served_parts, where_of

_UNMEASURED_FACTOR = 3
"""Resident bytes assumed per byte of file until the profile is there; the worst net measured so far takes 2.9."""
_UNMEASURED_SPREAD = 1.5
"""P99 over median of runs until the profile is there."""


@dataclass(frozen=True, slots=True)
class _Serving:
    """As what a variant serves: on which kind of processor, as which build, in whose guard, in which parts."""

    kind: str
    build_id: str
    guarded_for: str | None
    parts: ServedParts | None


_CutFor = tuple[Variant, tuple[Variant, ...], frozenset[str]]
"""A variant, those that share its build, and the kinds of processors that take no runs."""


class ServableFactory:
    """Makes servables. Event-loop thread only."""

    def __init__(
        self,
        kinds: Sequence[str] = ("cpu",),
        isolation: Isolation = Isolation.NONE,
        memory_bytes: int = 1 << 40,
        profiles: ProfileStore | None = None,
        groups: Sequence[RunGroup] = (),
        copies: Mapping[str, int] = MappingProxyType({}),
        fingerprints: Mapping[str, str] = MappingProxyType({}),
        stepped: Collection[str] = (),
        guard_bytes: Mapping[str, int] = MappingProxyType({}),
        *,
        may_share: bool = True,
        leaves_out_parts: bool = False,
    ) -> None:
        """`kinds` of processors, the first one first: whatever is not measured runs there.
        `isolation`: which builds run in a guard, unless the owner's quota says otherwise.
        `memory_bytes`: the budget that builds share. `profiles`: what runs take; None = nobody asks. `groups` of
        processors, where there are several. `copies`: kind → how often a build of it is in memory, where not once.
        `fingerprints` of the processors, by kind: what was cut for others serves whole.
        `stepped`: kinds whose first run of a size is slow. `guard_bytes`: kind that guards compute on → what such a
        process takes by itself; on the first one they always do. `may_share`: whether requests ever share a run.
        `leaves_out_parts`: a part is loaded only where the quickest sequences of runs have it.
        """
        self._guard_bytes = guard_bytes
        self._may_share = may_share
        self._leaves_out_parts = leaves_out_parts
        self._fingerprints = dict(fingerprints)
        self._stepped = frozenset(stepped)
        self._groups = tuple(groups)
        self._copies = copies
        self._profiles = profiles
        self._isolation = isolation
        self._isolations: dict[str, Isolation | None] = {}
        """Of each tenant, as its quota says; None: as the box does."""
        self.kinds = tuple(kinds)
        """Of processors, the first one first."""
        self.away: frozenset[str] = frozenset()
        """Of these, those that take no runs now."""
        self._avoided: set[str] = set()
        """Builds of other kinds than the first one that serve nothing any more."""
        self._memory_bytes = memory_bytes
        self._unfit: dict[str, tuple[tuple[str, str, Padding], Unfit]] = {}
        """Id of a variant → of what content, kind of processor and padding it was found out, and what."""
        self._wished_kinds: Mapping[str, str] = {}
        """Content → the kind of processor that a planner wants it to serve on."""
        self._cuts: dict[str, tuple[_CutFor, ServedParts | None]] = {}
        """Id of a variant → its parts as they were last made, and for what: that takes a search over each batch."""

    # -- changes -------------------------------------------------------------------------------------------------------

    def put_tenant(self, tenant: Tenant) -> bool:
        """Whether its models are isolated otherwise than before."""
        before = self._isolation_of(tenant.name)
        self._isolations[tenant.name] = tenant.quota.isolation
        return before is not tenant.quota.isolation

    def remove_tenant(self, name: str) -> None:
        self._isolations.pop(name, None)

    def leave_out(self, kinds: frozenset[str]) -> bool:
        """These kinds of processors take no runs now, all others do; False: so it was."""
        changed, self.away = kinds != self.away, kinds
        return changed

    def avoid(self, build: str) -> bool:
        """What a build serves, it serves on the first kind of processor from now on; False: it does already."""
        if kind_of(build) == self.kinds[0]:
            return False
        self._avoided.add(build)
        return True

    def allow(self, variant: Variant, model: Model) -> bool:
        """A variant may serve on all kinds of processors again; False: it did."""
        kinds, owners = self.avoided_of(variant, model), (None, model.tenant)
        self._avoided -= {build_id(variant.content_sha256, kind, owner) for kind in kinds for owner in owners}
        return bool(kinds)

    def wish_kinds(self, kinds: Mapping[str, str]) -> set[str]:
        """On which kind of processor contents are to serve, in place of what was wished before; those of which
        something else is wished now.
        """
        before, self._wished_kinds = self._wished_kinds, dict(kinds)
        return {content for content, _kind in before.items() ^ kinds.items()}

    def forget(self, model_id: str, models: Iterable[Model], but: Collection[str] = frozenset()) -> None:
        """Variants of a model have gone, not those of the ids `but`; these are the models that there are. Who imports a
        content again that no model has any more begins anew.
        """
        gone = [id_ for id_, ((one, *_), _) in self._cuts.items() if one.model_id == model_id and id_ not in but]
        for variant_id in gone:
            del self._cuts[variant_id]
        for variant_id in [id_ for id_ in self._unfit if id_.startswith(f"{model_id}:") and id_ not in but]:
            del self._unfit[variant_id]
        if self._avoided:
            there = {content_of(variant.content_sha256) for model in models for variant in model.variants}
            self._avoided = {build for build in self._avoided if content_of(build) in there}

    # -- what is served ------------------------------------------------------------------------------------------------

    def servables_of(self, model: Model) -> dict[str, Servable]:
        """Each servable variant of a model, by name."""
        lost = losses([v for v in model.variants if v.state is VariantState.READY])
        return {v.name: self._servable(v, model, lost.get(v.id)) for v in model.variants if v.servable}

    def serves_as(self, servable: Servable, model: Model) -> bool:
        """Whether a variant would serve on the kind on which it does, were it made anew."""
        return self._serving(servable.variant, model).kind == kind_of(servable.build_id)

    def able_kinds(self, servable: Servable, model: Model) -> tuple[str, ...]:
        """The kinds of processors in service on which a variant may serve whole, that on which it does first."""
        own = kind_of(servable.build_id)
        if servable.parts is not None:
            return ()
        options = self._options(_rungs(servable.variant, model), self._guarded_for(servable.variant, model))
        return (own, *sorted({option.kind for option in options} - {own}))

    def build_of(self, variant: Variant, tenant: str) -> str:
        """The id of a variant's build in the guard of a tenant, whether it runs there or not."""
        return build_id(variant.content_sha256, self.kinds[0], tenant)

    def kind_of(self, variant: Variant, model: Model) -> str:
        """The kind of processor that a variant serves on now; of one in parts all of theirs, joined."""
        return self._serving(variant, model).kind

    def kind_reason_of(self, variant: Variant, model: Model) -> str:
        """Why a variant serves on that kind of processor, for a person; empty where there is no other."""
        rungs, serving = _rungs(variant, model), self._serving(variant, model)
        options = self._options(rungs, serving.guarded_for, at_once=serving.parts is None)
        if serving.parts is not None:
            options.append(_option_of(serving.parts, variant, rungs))
        reason = kind_reason(options, self._memory_bytes) if options else ""
        if not reason:
            return ""
        if self._wished_kinds.get(variant.content_sha256) == serving.kind:
            return f"a plan of pipelines wants it there; {reason}"
        return f"{reason}; of its {len(rungs)} sizes together" if len(rungs) > 1 else reason

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

    def avoided_of(self, variant: Variant, model: Model) -> list[str]:
        """Kinds of processors that a variant of a model serves on no more, for its process has crashed there."""
        owners = None, model.tenant
        return [
            kind
            for kind in self.kinds
            if any(build_id(variant.content_sha256, kind, owner) in self._avoided for owner in owners)
        ]

    def copies_of(self, servable: Servable) -> int:
        """How often a measured build of a servable is in memory."""
        assert servable.profile is not None
        return self._copies_of(servable.profile.kind, is_guarded=servable.is_guarded)

    # -- inside --------------------------------------------------------------------------------------------------------

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
        is_measured = parts is None and profile is not None
        resident = max((p.resident_bytes for p in profiles), default=_UNMEASURED_FACTOR * variant.size_bytes)
        peak = max((p.peak_bytes for p in profiles), default=resident)
        beside = resident * (self._copies_of(kind, is_guarded=guarded_for is not None) - 1)
        resident, peak = resident + beside, peak + beside  # one is loaded after the other
        profile = profile or _estimated(variant, kind, resident)
        inputs = {t.name: slot_of(t, (variant.shape_max or {}).get(t.name)) for t in variant.inputs}
        names = frozenset(t.name for t in variant.outputs)
        batched, is_of_free_size, base = _shapes_of(variant)
        runs = variant.profile.runs if variant.profile else ()
        times = self._times(variant, build, profile, base, batched, is_measured=is_measured)
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
            and kind == self.kinds[0]
            and variant.profile is not None
            and variant.profile.hazards == (),
            is_of_free_size=is_of_free_size,
            counted_bytes_max=largest_bytes if largest_bytes >= COUNTED_BYTES_MIN else 0,
            is_guarded=guarded_for is not None,
            profile=profile,
            together_max=_together_max(profile, is_of_free_size) if profile and profile.latencies and batched else 1,
            at_once_max=_at_once_max(profile) if profile is not None and parts is None else None,
            mixes_tenants=is_trusted(self._isolation, self._isolation_of(model.tenant)),
            times=times,
            usual_times=None if times is None or is_of_free_size else times.usual,
            loss=loss,
            padding=padding,
            unfit=Unfit() if padding is None else self._unfit_of(variant, kind, padding),
            goes_in_steps=kind in self._stepped,
            places={} if parts is not None else self._places(variant, build, kind, profile, base, batched, is_measured),
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
        if whole.guarded_for is not None or len(self.kinds) == 1 or variant.profile is None:
            return whole
        made_for = variant, tuple(sorted(rungs, key=lambda one: one.id)), self.away
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
        kind = serving_kind(options, self._memory_bytes) if options else self.kinds[0]
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

        places = places_of(self._groups, [kind for kind in self.kinds if kind not in self.away])
        own = replace(variant, profile=self._as_shared(variant.profile))
        copies_of = partial(self._copies_of, is_guarded=False)
        return served_parts(own, scale, places, copies_of, times_of, leaves_out=self._leaves_out_parts)

    def _is_better(self, parts: ServedParts, variant: Variant, rungs: Sequence[Variant]) -> bool:
        """Whether a content costs less in parts than on any kind that runs all of it."""
        option = _option_of(parts, variant, rungs)
        options = self._options(rungs, at_once=False)  # parts are not timed several at once
        return serving_kind([*options, option], self._memory_bytes) == parts.kind

    def _guarded_for(self, variant: Variant, model: Model) -> str | None:
        """The owner of the model, whoever calls it, unless every rung of the build was shown to be harmless."""
        isolation = self._isolation_of(model.tenant)
        rungs = [v.profile for v in model.variants if v.content_sha256 == variant.content_sha256]
        hazards = [None if profile is None else profile.hazards for profile in rungs]
        return model.tenant if any(is_guarded(self._isolation, isolation, found) for found in hazards) else None

    def _isolation_of(self, tenant: str) -> Isolation | None:
        """As its quota says; None: as the box does."""
        return self._isolations.get(tenant)

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
        is_measured: bool,
    ) -> dict[int, BuildTimes | None]:
        if len(self._groups) < 2:
            return {}
        return {
            index: self._times(variant, build, profile, base, batched, where_of(group, kind), is_measured=is_measured)
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

    def _options(
        self, rungs: Sequence[Variant], guarded_for: str | None = None, *, at_once: bool = True
    ) -> list[KindOption]:
        """The kinds that take runs, where need be in guards, and on which all variants of a content were measured.
        `at_once`: by what runs take while several are under way, too, where that was measured on all of these.
        """
        is_guarded = guarded_for is not None
        measured: list[tuple[str, list[Profile]]] = []
        for kind in self.kinds if rungs and len(self.kinds) > 1 else ():
            if kind in self.away or (is_guarded and kind not in self._guard_bytes and kind != self.kinds[0]):
                continue
            if self._avoided and build_id(rungs[0].content_sha256, kind, guarded_for) in self._avoided:
                continue
            profiles = [p for rung in rungs if (p := self._profile(rung, kind)) is not None and p.latencies]
            if len(profiles) == len(rungs):
                measured.append((kind, profiles))
        # What is too short to tell on one kind may not be on another: then only runs by themselves are to be compared.
        at_once = at_once and all(profile.has_several for _, profiles in measured for profile in profiles)
        options: list[KindOption] = []
        for kind, profiles in measured:
            back_ms = max(p.load_ms if p.wake_ms is None else p.wake_ms for p in profiles)
            run_ms = sum(p.latencies[0].p50_ms for p in profiles)
            busy_ms = sum(_busy_ms(p, at_once=at_once) for p in profiles)
            resident_bytes = max(p.resident_bytes for p in profiles)
            base_bytes = self._guard_bytes.get(kind, 0) if is_guarded else 0
            options.append(KindOption(kind, run_ms, back_ms, resident_bytes, busy_ms, base_bytes))
        return options

    def _profile(self, variant: Variant, kind: str) -> Profile | None:
        profiles = (variant.profile, *variant.other_profiles)
        return self._as_shared(next((one for one in profiles if one is not None and one.kind == kind), None))

    def _as_shared(self, profile: Profile | None) -> Profile | None:
        """As it counts here: where requests may not share runs, of one row a run."""
        return profile if profile is None or self._may_share else replace(profile, shared_rows_max=1)


def rung_of(variant: Variant) -> str:
    """Which of the input sizes that share a build; empty where it has one only."""
    return "" if variant.height is None else f"{variant.height}x{variant.width}"


def _rungs(variant: Variant, model: Model) -> list[Variant]:
    """The measured variants of a model that share a variant's file: one build serves them all."""
    return [v for v in model.variants if v.content_sha256 == variant.content_sha256 and v.profile]


def _estimated(variant: Variant, kind: str, resident_bytes: int) -> Profile | None:
    """Return what a variant is expected to cost until it is measured; None where no run of it was timed."""
    if variant.inspected_ms is None:
        return None
    run = Latency(1, variant.inspected_ms, _UNMEASURED_SPREAD * variant.inspected_ms)
    load_ms = resident_bytes * LOAD_NS_PER_BYTE / NS_PER_MS
    return Profile("", resident_bytes, resident_bytes, load_ms, load_ms, (run,), kind=kind)


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


def _together_max(profile: Profile, is_of_free_size: bool) -> int:
    """The largest batch that takes less than its rows take one by one; of inputs of other sizes than the import's that
    is not known.
    """
    if is_of_free_size:
        return profile.shared_rows_max
    one = profile.latencies[0]
    paying = [row.batch for row in profile.alone if row.p50_ms * one.batch < row.batch * one.p50_ms]
    return max((batch for batch in paying if batch <= profile.shared_rows_max), default=1)


def _at_once_max(profile: Profile) -> int | None:
    return runs_at_once(profile.latencies, on_cores=profile.kind in CPU_KINDS)


def _busy_ms(profile: Profile, *, at_once: bool) -> float:
    """An item's part of the run in which it costs least, of those that requests may share; `at_once`: with as many of
    them under way as were measured. A batch that was timed alone only loses as much by that as the one before it.
    """
    one = profile.latencies[0]
    several = {row.batch: row.p50_ms for row in profile.latencies if row.concurrency > 1} if at_once else {}
    slower, found_ms = 1.0, []
    for row in profile.alone:
        if row.batch == one.batch or row.batch <= profile.shared_rows_max:
            run_ms = several.get(row.batch, slower * row.p50_ms)
            slower = run_ms / row.p50_ms if row.p50_ms else 1.0
            found_ms.append(one.batch * run_ms / row.batch)
    return min(found_ms)
