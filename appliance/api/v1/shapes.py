"""Domain values as the shapes of `/v1`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from appliance.clock import NS_PER_MS
from appliance.domain.accuracy import share
from appliance.domain.catalogue import Model, Profile, TensorSpec, Variant
from appliance.domain.confidence import losses
from appliance.domain.jobs import Awaited, GivenUp
from appliance.domain.names import content_of
from appliance.domain.profiles import SeenRuns
from appliance.domain.states import VariantState
from appliance.runtime.catalogue import Catalogue
from appliance.wire.catalogue import (
    AccuracyShape,
    AwaitedShape,
    CutShape,
    GivenUpShape,
    ModelShape,
    ModelSummary,
    ProfileShape,
    SeenShape,
    TaskShape,
    TensorShape,
    VariantShape,
)


def model_state(model: Model) -> str:
    """importing, ready, quarantined or failed: whether there is something to serve, or hope for it."""
    if any(variant.servable for variant in model.variants):
        return "ready"
    states = {variant.state for variant in model.variants}
    if VariantState.QUARANTINED in states and VariantState.MAKING not in states:
        return "quarantined"
    return "failed" if states == {VariantState.FAILED} else "importing"


def model_summary(model: Model, *, with_variants: bool = True) -> ModelSummary:
    """A model in a list, with the names of its variants or their number alone."""
    return ModelSummary(
        name=model.name,
        tenant=model.tenant,
        shared=model.shared,
        task=model.task.kind,
        state=model_state(model),
        variants=[variant.name for variant in model.variants] if with_variants else [],
        variants_count=len(model.variants),
        size_bytes=sum({variant.content_sha256: variant.size_bytes for variant in model.variants}.values()),
    )


class Tried(Protocol):
    """What is known of a content on the kinds of processors on which it was not measured."""

    def awaited(self, content_sha256: str) -> Sequence[Awaited]:
        """Those that it is to be measured on yet."""
        ...

    def given_up(self, content_sha256: str) -> Sequence[GivenUp]:
        """Those that it does not run on."""
        ...


def model_shape(model: Model, memory: Mapping[str, Any], catalogue: Catalogue, tried: Tried) -> ModelShape:
    """A model with its variants; `memory` is the manager's snapshot."""
    return ModelShape(
        name=model.name,
        tenant=model.tenant,
        shared=model.shared,
        task=TaskShape.model_validate(model.task),
        state=model_state(model),
        variants=list(variant_shapes(model, memory, catalogue, tried)),
    )


def variant_shapes(
    model: Model, memory: Mapping[str, Any], catalogue: Catalogue, tried: Tried
) -> Iterator[VariantShape]:
    """Yield the variants of a model, what each may lose to the best that is ready, where it serves, and where it is in
    memory.
    """
    lost = losses([v for v in model.variants if v.state is VariantState.READY])
    for variant in model.variants:
        yield VariantShape.model_validate(variant).model_copy(
            update={
                "accuracy": _accuracy(variant, model),
                "inputs": [_input(tensor, model) for tensor in variant.inputs],
                "profile": _alone(variant.profile),
                "residency": _residency(variant, memory),
                "loss": share(lost[variant.id]) if variant.id in lost else None,
                "serves_on": catalogue.servables.kind_of(variant, model) if _serves(variant) else None,
                "kind_reason": catalogue.servables.kind_reason_of(variant, model) if _serves(variant) else "",
                "given_up": _given_up(variant, tried),
                "awaited": _awaited(variant, tried),
                "avoids": catalogue.servables.avoided_of(variant, model),
                "cut": _cut(variant, model, catalogue),
                "seen": [row for one in catalogue.servables.seen_of(variant, model) for row in _seen(one)],
            }
        )


def variant_shape(
    model: Model, variant: Variant, memory: Mapping[str, Any], catalogue: Catalogue, tried: Tried
) -> VariantShape:
    """A variant of a model, as it is now."""
    others = tuple(one for one in model.variants if one.id != variant.id)
    return next(variant_shapes(replace(model, variants=(variant, *others)), memory, catalogue, tried))


def _accuracy(variant: Variant, model: Model) -> AccuracyShape | None:
    if variant.accuracy is None:
        return None
    return AccuracyShape.model_validate(variant.accuracy).model_copy(update={"meaning": model.meaning_of(variant)})


def _input(tensor: TensorSpec, model: Model) -> TensorShape:
    shown = TensorShape.model_validate(tensor)
    return shown.model_copy(update={"optional": True}) if tensor.name in model.task.supplied else shown


def _awaited(variant: Variant, tried: Tried) -> list[AwaitedShape]:
    """Of one that was measured: before, its import tells how far it is."""
    found = tried.awaited(variant.content_sha256) if variant.profile else ()
    return [AwaitedShape.model_validate(one) for one in found]


def _given_up(variant: Variant, tried: Tried) -> list[GivenUpShape]:
    found = tried.given_up(variant.content_sha256) if variant.profile else ()
    return [GivenUpShape.model_validate(one) for one in found]


def _cut(variant: Variant, model: Model, catalogue: Catalogue) -> CutShape | None:
    if variant.cut is None:
        return None
    shape = CutShape.model_validate(variant.cut)
    kinds = catalogue.servables.part_kinds_of(variant, model) if _serves(variant) else []
    if not kinds:
        return shape
    pairs = zip(shape.parts, kinds, strict=True)
    return shape.model_copy(update={"parts": [p.model_copy(update={"serves_on": list(own)}) for p, own in pairs]})


def _serves(variant: Variant) -> bool:
    return variant.profile is not None and variant.servable


def _seen(runs: SeenRuns) -> Iterator[SeenShape]:
    for row in runs.latencies:
        yield SeenShape(
            batch=row.batch,
            concurrency=row.concurrency,
            elements_max=runs.elements_max,
            p50_ms=round(row.p50_ns / NS_PER_MS, 4),
            p99_ms=round(row.p99_ns / NS_PER_MS, 4),
            processor=runs.processor or None,
            runs=row.count,
            at=row.at,
        )


def _alone(profile: Profile | None) -> ProfileShape | None:
    """With the latencies of one run at a time only: whoever reads `profile` looks for a batch in them."""
    return None if profile is None else ProfileShape.model_validate(replace(profile, latencies=profile.alone))


def _residency(variant: Variant, memory: Mapping[str, Any]) -> str:
    prefixes = tuple(content_of(variant.content_sha256) + mark for mark in "@.")  # the whole of it, and in parts
    states = [build["state"] for build in memory["builds"] if build["build"].startswith(prefixes)]
    return "resident" if "resident" in states else states[0] if states else "absent"
