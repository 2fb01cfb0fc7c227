"""Column types of domain values: times as ISO text in UTC, frozen dataclasses as JSON, accuracies as shares of 1."""

import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import JSON, Dialect, Float, Text
from sqlalchemy.types import TypeDecorator

from appliance.domain.accuracy import points, share
from appliance.domain.catalogue import Accuracy, Profile
from appliance.domain.isolation import REVIEW
from appliance.domain.pipeline import Stage
from appliance.modelstore.store.documents import accuracy_fields, profile_fields, stage_document, stage_of


class Moment(TypeDecorator[datetime.datetime]):
    """A UTC time as ISO 8601 text, so that it sorts and a person can read it."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else value.astimezone(datetime.UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime.datetime | None:
        return None if value is None else datetime.datetime.fromisoformat(value)


class Document(TypeDecorator[Any]):
    """A frozen dataclass (or a tuple of them) as JSON; None stays NULL.

    Unknown keys of a newer box are ignored on reading.
    """

    impl = JSON(none_as_null=True)
    cache_ok = True

    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.shape = shape
        self._adapter: TypeAdapter[Any] = TypeAdapter(shape)

    def process_bind_param(self, value: Any | None, dialect: Dialect) -> Any:
        return None if value is None else self._adapter.dump_python(value, mode="json")

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Any:
        return None if value is None else self._adapter.validate_python(value)


class Points(TypeDecorator[float]):
    """Points of accuracy, on disk a share of 1."""

    impl = Float
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        return None if value is None else share(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> float | None:
        return None if value is None else points(value)


class MeasuredAccuracy(Document):
    """An `Accuracy` as JSON, where `value` is its points as a share of 1.

    What earlier versions did not write stays at its default.
    """

    cache_ok = True

    def __init__(self) -> None:
        super().__init__(Accuracy)

    def process_bind_param(self, value: Accuracy | None, dialect: Dialect) -> Any:
        document = super().process_bind_param(value, dialect)
        return None if document is None else {"value": share(document.pop("points")), **document}

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Any:
        return None if value is None else super().process_result_value(accuracy_fields(value), dialect)


class ReviewedProfile(Document):
    """A `Profile` as JSON, with the review that its hazards come from. Those of another review are forgotten: what it
    took for harmless is guarded until it is reviewed again.
    """

    cache_ok = True

    def __init__(self) -> None:
        super().__init__(Profile)

    def process_bind_param(self, value: Profile | None, dialect: Dialect) -> Any:
        document = super().process_bind_param(value, dialect)
        return None if document is None else {"review": REVIEW, **document}

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Any:
        return None if value is None else super().process_result_value(profile_fields(value), dialect)


class PipelineStages(TypeDecorator[tuple[Stage, ...]]):
    """The stages of a pipeline as JSON, each with its sort."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: tuple[Stage, ...] | None, dialect: Dialect) -> Any:
        return [stage_document(stage) for stage in value or ()]

    def process_result_value(self, value: Any | None, dialect: Dialect) -> tuple[Stage, ...]:
        return tuple(stage_of(document) for document in value or ())
