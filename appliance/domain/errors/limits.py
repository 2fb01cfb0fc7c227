"""Bounds of a tenant, an application or an address that are reached; mostly waiting helps."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError


@dataclass(kw_only=True, eq=False)
class LimitReached(ApplianceError, status=429, title="A limit is reached"):
    """Try again after `retry_after_s`; None: waiting alone does not help."""

    retry_after_s: float | None = 1.0

    def message(self) -> str:
        return f"a limit of the box is reached; {self._again()}"

    def _again(self) -> str:
        if self.retry_after_s is None:
            return "try again later"
        return f"try again in {self.retry_after_s:.{0 if self.retry_after_s >= 10 else 1}f} s"


@dataclass(kw_only=True, eq=False)
class QuotaExceeded(LimitReached, title="The tenant's quota is used up"):
    """`used` of `limit` are taken, and the request needs `needed` more, in the unit that `quota` names."""

    retry_after_s: float | None = None
    tenant: str
    quota: str
    limit: float
    used: float | None = None
    """None: the quota is a rate."""
    needed: float = 1
    left: float | None = None
    """Of a rate: requests that are left in this second."""
    of_all: bool = False
    """Whether the bound is that of all tenants together."""

    def message(self) -> str:
        whose = "all tenants together" if self.of_all else f"tenant {self.tenant!r}"
        figures = f"{whose} may have {_figure(self.limit)} {self.quota.replace('_', ' ')}"
        if self.used is None:
            return f"{figures}, and has used them up; {self._again()}"
        figures += f": {_figure(self.used)} are used, and this needs {_figure(self.needed)}"
        raised = "have them deleted" if self.of_all else "have the quota raised"
        return f"{figures}; " + (
            f"delete what is not needed, or {raised}" if self.retry_after_s is None else self._again()
        )


def _figure(count: float) -> str:
    """Counts and bytes in full, rates as they are set."""
    return str(int(count)) if count == int(count) else f"{count:.6g}"


@dataclass(kw_only=True, eq=False)
class QueueFull(LimitReached, title="Too many requests wait"):
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
class Overloaded(LimitReached, title="Too much work waits"):
    """It would be too late by what waits already: refused before it costs anything."""

    application_id: str
    expected_ms: float
    """Until it would be answered."""
    allowed_ms: float

    def message(self) -> str:
        return (
            f"so much waits that an answer of {self.application_id!r} is expected in {self.expected_ms:.0f} ms, and "
            f"may take {self.allowed_ms:.0f}; {self._again()}"
        )

    __hash__ = Exception.__hash__


@dataclass(kw_only=True, eq=False)
class TooManyDeferred(LimitReached, title="Too many requests are answered later"):
    """The tenant has as many requests that are answered later as one tenant may: under way, or over and kept."""

    tenant: str
    requests_max: int

    def message(self) -> str:
        return (
            f"tenant {self.tenant!r} has {self.requests_max} requests that are answered later, as many as one tenant "
            f"may; each goes a minute after its end: {self._again()}, or wait for the answer (wait=true)"
        )


@dataclass(kw_only=True, eq=False)
class TooManySimulations(LimitReached, title="Too many simulations"):
    """As many wait as may."""

    simulations_max: int

    def message(self) -> str:
        return f"{self.simulations_max} simulations wait or run already; delete one, or wait until it has ended"


class TooManyTests(LimitReached, title="Too many test messages"):
    def message(self) -> str:
        return f"a message to this receiver is under way, or was sent just now; {self._again()}"


class TooManyFailedKeys(LimitReached, title="Too many wrong keys"):
    def message(self) -> str:
        return "too many wrong keys from this address"


@dataclass(kw_only=True, eq=False)
class TooManyConnections(LimitReached, title="Too many connections"):
    """The tenant holds as many connections as one tenant may, and none of them is idle."""

    tenant: str
    connections_max: int

    def message(self) -> str:
        return f"tenant {self.tenant!r} has {self.connections_max} connections under way, as many as one tenant may"
