"""Stages of a pipeline, from what is sent to the domain's and back."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, TypedDict

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import callable_application
from appliance.domain.accuracy import points, share
from appliance.domain.errors import ModelUnavailable
from appliance.domain.pipeline import Ask, Crop, Join, OnError, Pick, Stage, When, Where
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


class _Common(TypedDict):
    """What every stage has ..."""

    name: str
    after: tuple[str, ...]
    when: When | None
    at_most: int
    on_error: OnError


class _CommonOrder(TypedDict):
    """... as it is posted."""

    name: str
    after: list[str]
    when: WhenOrder | None
    at_most: int
    on_error: OnError


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
    common: _CommonOrder = {
        "name": stage.name,
        "after": list(stage.after),
        "when": _when_order(stage.when),
        "at_most": stage.at_most,
        "on_error": stage.on_error,
    }
    match stage:
        case Ask():
            return AskOrder(
                **common,
                application=stage.application_id.split("/", 1)[1],
                variant=stage.variant,
                accuracy_min=None if stage.accuracy_min is None else share(stage.accuracy_min),
                stateful=stage.is_stateful,
            )
        case Crop():
            of: Literal["regions", "objects"] = "regions" if stage.of == "regions" else "objects"
            return CropOrder(**common, do="crop", of=of, where=_where_order(stage.where))
        case Pick():
            return PickOrder(**common, do="pick", best=stage.best, by=stage.by, labels=list(stage.labels))
        case Join():
            return JoinOrder(**common, do="join")
    raise AssertionError(f"a stage of an unknown sort: {stage}")


def _stage(order: StageOrder, catalogue: Catalogue, principal: Principal, known_id: str | None) -> Stage:
    common: _Common = {
        "name": order.name,
        "after": tuple(order.after),
        "when": _when(order.when),
        "at_most": order.at_most,
        "on_error": order.on_error,
    }
    match order:
        case AskOrder():
            return Ask(
                **common,
                application_id=_application_id(order.application, catalogue, principal, known_id),
                variant=order.variant,
                accuracy_min=None if order.accuracy_min is None else points(order.accuracy_min),
                is_stateful=order.stateful,
            )
        case CropOrder():
            return Crop(**common, of=order.of, where=_where(order.where))
        case PickOrder():
            return Pick(**common, best=order.best, by=order.by, labels=tuple(order.labels))
        case JoinOrder():
            return Join(**common)
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
