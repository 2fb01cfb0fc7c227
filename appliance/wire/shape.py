"""Base of all shapes, and the page that every list comes in."""

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")


WEIGHT_MAX = 1e6
"""Sums and products of weights stay finite."""


class Shape(BaseModel):
    """An answer: immutable, read from domain values by attribute, tolerant of fields that a newer box adds."""

    model_config = ConfigDict(frozen=True, from_attributes=True, use_attribute_docstrings=True)


class Order(BaseModel):
    """What a caller sends: a misspelt field is an error, not a wish ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Page(Shape, Generic[Item]):
    """A part of a list, in a stable order."""

    items: list[Item]
    next_cursor: str | None = Field(None, examples=["mobilenet"])
    """Send it as `cursor` for the next page; null on the last one."""


class Deleted(Shape):
    """The thing is gone."""

    deleted: str = Field(examples=["mobilenet"])
    """Its name."""
