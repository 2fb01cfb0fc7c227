"""Spans of time over which promises and the use by tenants are added up."""

from enum import StrEnum


class Span(StrEnum):
    """A span that ends now."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
