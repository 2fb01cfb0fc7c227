"""Column types that hold domain values: times as ISO text in UTC, frozen dataclasses as JSON."""

import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import JSON, Dialect, Text
from sqlalchemy.types import TypeDecorator


class Moment(TypeDecorator[datetime.datetime]):
    """A UTC time as ISO 8601 text, so that it sorts and a person can read it."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else value.astimezone(datetime.UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime.datetime | None:
        return None if value is None else datetime.datetime.fromisoformat(value)


class Document(TypeDecorator[Any]):
    """A frozen dataclass (or a tuple of them) as JSON; None stays NULL. Unknown keys of a newer box are ignored on reading."""

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
