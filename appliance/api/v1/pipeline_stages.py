"""Stages of a pipeline, from what is sent to the domain's and back."""

from collections.abc import Sequence
from contextlib import suppress

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import callable_application
from appliance.domain.accuracy import points, share
from appliance.domain.errors import ModelUnavailable
from appliance.domain.pipeline import Ask, Crop, Join, Pick, Stage, When, Where
from appliance.runtime.catalogue import Catalogue
from appliance.wire.pipelines import (
    AnyStage,
    AskOrder,
    CropOrder,
    JoinOrder,
    PickOrder,
    StageOrder,
    WhenOrder,
    WhereOrder,
)


def stages_of(
    orders: Sequence[AnyStage], catalogue: Catalogue, principal: Principal, before: Sequence[Stage] = ()
) -> tuple[Stage, ...]:
    """With the applications that the names mean to the caller now; stages that were there
    `before`, and name what they named, keep theirs while it may be asked. Raises: UnknownApplication.
    """
    known = {stage.name: stage.application_id for stage in before if isinstance(stage, Ask)}
    return tuple(_stage(order, catalogue, principal, known.get(order.name)) for order in orders)


def stage_order(stage: Stage) -> AnyStage:
    """As it can be posted."""
    name, after, when = stage.name, list(stage.after), _when_order(stage.when)
    at_most, on_error = stage.at_most, stage.on_error
    match stage:
        case Ask():
            return AskOrder(
                name=name,
                after=after,
                when=when,
                at_most=at_most,
                on_error=on_error,
                application=stage.application_id.split("/", 1)[1],
                variant=stage.variant,
                accuracy_min=None if stage.accuracy_min is None else share(stage.accuracy_min),
                stateful=stage.is_stateful,
            )
        case Crop():
            return CropOrder(
                name=name,
                after=after,
                when=when,
                at_most=at_most,
                on_error=on_error,
                do="crop",
                of="regions" if stage.of == "regions" else "objects",
                where=_where_order(stage.where),
            )
        case Pick():
            return PickOrder(
                name=name,
                after=after,
                when=when,
                at_most=at_most,
                on_error=on_error,
                do="pick",
                best=stage.best,
                by=stage.by,
                labels=list(stage.labels),
            )
        case Join():
            return JoinOrder(name=name, after=after, when=when, at_most=at_most, on_error=on_error, do="join")
    raise AssertionError(f"a stage of an unknown sort: {stage}")


def _stage(order: StageOrder, catalogue: Catalogue, principal: Principal, known_id: str | None) -> Stage:
    name, after, when = order.name, tuple(order.after), _when(order.when)
    at_most, on_error = order.at_most, order.on_error
    match order:
        case AskOrder():
            return Ask(
                name=name,
                after=after,
                when=when,
                at_most=at_most,
                on_error=on_error,
                application_id=_application_id(order.application, catalogue, principal, known_id),
                variant=order.variant,
                accuracy_min=None if order.accuracy_min is None else points(order.accuracy_min),
                is_stateful=order.stateful,
            )
        case CropOrder():
            return Crop(
                name=name,
                after=after,
                when=when,
                at_most=at_most,
                on_error=on_error,
                of=order.of,
                where=_where(order.where),
            )
        case PickOrder():
            return Pick(
                name=name,
                after=after,
                when=when,
                at_most=at_most,
                on_error=on_error,
                best=order.best,
                by=order.by,
                labels=tuple(order.labels),
            )
        case JoinOrder():
            return Join(name=name, after=after, when=when, at_most=at_most, on_error=on_error)
    raise AssertionError(f"a stage of an unknown sort: {order}")


def _application_id(name: str, catalogue: Catalogue, principal: Principal, known_id: str | None) -> str:
    """Raises: UnknownApplication."""
    if known_id is not None and known_id.partition("/")[2] == name and principal.may_call(name):
        with suppress(ModelUnavailable):
            return catalogue.entry_for(principal.tenant, known_id).application.id
    return callable_application(catalogue, principal, name).id


def _when(order: WhenOrder | None) -> When | None:
    if order is None:
        return None
    return When(order.stage, _tuple(order.label), _tuple(order.label_not), order.score_min)


def _when_order(when: When | None) -> WhenOrder | None:
    if when is None:
        return None
    label, label_not = _one_or_list(when.labels), _one_or_list(when.labels_not)
    return WhenOrder(stage=when.stage, label=label, label_not=label_not, score_min=when.score_min)


def _where(order: WhereOrder) -> Where:
    return Where(order.score_min, _tuple(order.label), _tuple(order.label_not), order.size_min)


def _where_order(where: Where) -> WhereOrder:
    label, label_not = _one_or_list(where.labels), _one_or_list(where.labels_not)
    return WhereOrder(score_min=where.score_min, label=label, label_not=label_not, size_min=where.size_min)


def _tuple(names: str | Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)


def _one_or_list(names: tuple[str, ...]) -> str | list[str] | None:
    if not names:
        return None
    return names[0] if len(names) == 1 else list(names)
