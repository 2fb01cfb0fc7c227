"""Series: a measure of the box, or of a tenant, an application, a processor or a sensor, sampled every ten seconds."""

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a measure may be of."""

    BOX = "box"
    TENANT = "tenant"
    APPLICATION = "application"
    PROCESSOR = "processor"
    SENSOR = "sensor"


@dataclass(frozen=True, slots=True)
class Measure:
    """`is_rate`: events in a second; a sample that is missing while the box ran is zero."""

    name: str
    unit: str
    scopes: tuple[Scope, ...]
    is_rate: bool = False


_ASKED = (Scope.BOX, Scope.TENANT, Scope.APPLICATION)
UP = "up"
"""1 in every sample that was taken: the box ran. Of several samples the share of those that were taken."""
MEASURES = {
    one.name: one
    for one in (
        Measure(UP, "", (Scope.BOX,)),
        Measure("requests", "1/s", _ASKED, is_rate=True),
        Measure("done", "1/s", _ASKED, is_rate=True),
        Measure("expired", "1/s", _ASKED, is_rate=True),
        Measure("rejected", "1/s", _ASKED, is_rate=True),
        Measure("failed", "1/s", _ASKED, is_rate=True),
        Measure("cancelled", "1/s", _ASKED, is_rate=True),
        Measure("cold", "1/s", _ASKED, is_rate=True),
        Measure("warm", "share", _ASKED),
        Measure("kept", "share", _ASKED),
        Measure("p50", "ms", _ASKED),
        Measure("p99", "ms", _ASKED),
        Measure("memory", "bytes", (Scope.BOX, Scope.TENANT)),
        Measure("budget", "bytes", (Scope.BOX,)),
        Measure("available", "bytes", (Scope.BOX,)),
        Measure("disk", "bytes", (Scope.BOX,)),
        Measure("load", "share", (Scope.PROCESSOR,)),
        Measure("celsius", "°C", (Scope.BOX, Scope.SENSOR)),
        Measure("watts", "W", (Scope.SENSOR,)),
        Measure("rpm", "rpm", (Scope.SENSOR,)),
        Measure("percent", "%", (Scope.SENSOR,)),
    )
}
"""By name; docs/api.md says what each is."""


def series_name(measure: str, subject: str = "") -> str:
    """`measure`, or `measure:subject` where it is not the whole box's."""
    return f"{measure}:{subject}" if subject else measure


def split_name(name: str) -> tuple[str, str]:
    """Measure and subject."""
    measure, _, subject = name.partition(":")
    return measure, subject


def tenant_of(name: str) -> str | None:
    """Whose a series is, or its application; None: the box's, or that of a processor or a sensor."""
    measure, subject = split_name(name)
    known = MEASURES.get(measure)
    if known is None or not subject or Scope.TENANT not in known.scopes:
        return None
    return subject.partition("/")[0]


def is_of_tenant(name: str, tenant: str) -> bool:
    """Whether a series is a tenant's, or that of one of its applications; not those of processors and sensors."""
    return tenant_of(name) == tenant
