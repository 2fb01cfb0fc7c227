"""Answers of a box in which a test gives only the fields that it is about."""

import datetime
from enum import Enum
from typing import Annotated, Any, TypeVar, get_args, get_origin

from appliance.wire.shape import Shape

Made = TypeVar("Made", bound=Shape)


def blank(shape: type[Made], **facts: Any) -> Made:
    """Return an answer with these fields; every other field without a default is null, empty or zero."""
    left = {name: field for name, field in shape.model_fields.items() if field.is_required() and name not in facts}
    return shape.model_validate({name: _nothing(field.annotation) for name, field in left.items()} | facts)


def _nothing(kind: Any) -> Any:
    """Return null where allowed, else an empty text, zero, the first of an enumeration, or a blank answer."""
    if type(None) in get_args(kind):
        return None
    if get_origin(kind) is Annotated:
        return _nothing(get_args(kind)[0])
    kind = get_origin(kind) or kind
    if kind is datetime.datetime:
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    if issubclass(kind, Enum):
        return next(iter(kind))
    return blank(kind) if issubclass(kind, Shape) else kind()
