"""Bounds of a tenant, an application or an address that are reached; waiting helps."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError


@dataclass(kw_only=True, eq=False)
class LimitReached(ApplianceError):
    """Try again after `retry_after_s`."""

    retry_after_s: float = 1.0

    def message(self) -> str:
        return f"a limit of the box is reached; try again in {self.retry_after_s:.0f} s"


@dataclass(kw_only=True, eq=False)
class QuotaExceeded(LimitReached):
    tenant: str
    quota: str
    have: float | None = None
    """Requests under way, or requests left in this second; None: the quota bounds something else."""

    def message(self) -> str:
        return f"tenant {self.tenant!r} has used up its quota of {self.quota}"


@dataclass(kw_only=True, eq=False)
class QueueFull(LimitReached):
    application_id: str
    queue_len_max: int
    waiting: int | None = None
    """Waiting requests of the tenant; fewer than `queue_len_max` where its part of the whole queue is full."""

    def message(self) -> str:
        if self.waiting is not None and self.waiting < self.queue_len_max:
            return (
                f"{self.waiting} requests of {self.application_id!r} are waiting, as many as the box has room for now"
            )
        return f"{self.queue_len_max} requests of {self.application_id!r} are waiting already"


@dataclass(kw_only=True)
class Overloaded(LimitReached):
    """It would be too late by what waits already: refused before it costs anything."""

    application_id: str
    expected_ms: float
    """Until it would be answered."""
    allowed_ms: float

    def message(self) -> str:
        return (
            f"so much waits that an answer of {self.application_id!r} is expected in {self.expected_ms:.0f} ms, and "
            f"may take {self.allowed_ms:.0f}; try again in {max(self.retry_after_s, 0.1):.1f} s"
        )

    __hash__ = Exception.__hash__


@dataclass(kw_only=True, eq=False)
class TooManyDeferred(LimitReached):
    """The tenant has as many requests that are answered later as one tenant may: under way, or over and kept."""

    tenant: str
    requests_max: int

    def message(self) -> str:
        return (
            f"tenant {self.tenant!r} has {self.requests_max} requests that are answered later, as many as one tenant "
            f"may; each goes a minute after its end: try again in {self.retry_after_s:.0f} s, or wait for the answer "
            "(wait=true)"
        )


@dataclass(kw_only=True, eq=False)
class TooManySimulations(LimitReached):
    """As many wait as may."""

    simulations_max: int

    def message(self) -> str:
        return f"{self.simulations_max} simulations wait or run already; delete one, or wait until it has ended"


class TooManyFailedKeys(LimitReached):
    def message(self) -> str:
        return "too many wrong keys from this address"


@dataclass(kw_only=True, eq=False)
class TooManyConnections(LimitReached):
    """The tenant holds as many connections as one tenant may, and none of them is idle."""

    tenant: str
    connections_max: int

    def message(self) -> str:
        return f"tenant {self.tenant!r} has {self.connections_max} connections under way, as many as one tenant may"
