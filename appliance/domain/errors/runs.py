"""Runs that came too late, failed, or were broken off."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError


@dataclass(kw_only=True, eq=False)
class DeadlineExceeded(ApplianceError):
    """Answered without being run: it could no longer be in time.

    `waited_ms` counts from its arrival, `decoded_ms` is the part of it that reading and decoding the input took,
    `expected_ms` the run time that it went by; None where it did not come so far.
    """

    waited_ms: float
    expected_ms: float | None = None
    decoded_ms: float | None = None

    def message(self) -> str:
        decoded = "" if self.decoded_ms is None else f" ({self.decoded_ms:.1f} ms of them to read and decode the input)"
        waited = f"the deadline cannot be kept: {self.waited_ms:.1f} ms have passed{decoded}"
        run = "" if self.expected_ms is None else f", and a run is expected to take {self.expected_ms:.1f} ms"
        return f"{waited}{run}; allow more time, or take a faster variant"


@dataclass(kw_only=True, eq=False)
class RunFailed(ApplianceError):
    """The processor broke off the run; `reason` is its own word."""

    variant_id: str
    reason: str

    def message(self) -> str:
        return f"the model failed on this input: {self.reason}"


@dataclass(kw_only=True, eq=False)
class RunRefused(RunFailed):
    """The network cannot compute these values, for example an index beyond a table, or only with more memory than a
    run may take. The same again fails again; other values may not.
    """


@dataclass(kw_only=True, eq=False)
class RunCrashed(RunFailed):
    """The run ended the process that it was in, or another run did; the box and other tenants go on."""

    def message(self) -> str:
        return (
            f"the model's process ended during this run ({self.reason}); the model is loaded anew at the next request"
        )


@dataclass(kw_only=True, eq=False)
class RunStopped(RunFailed):
    """The run took longer than it may, and was stopped."""

    def message(self) -> str:
        return f"the run was stopped: {self.reason}"
