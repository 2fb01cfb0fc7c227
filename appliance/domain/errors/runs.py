"""Runs that came too late, failed, or were broken off."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError


@dataclass(kw_only=True, eq=False)
class DeadlineExceeded(ApplianceError, status=504, title="The deadline passed"):
    """It could no longer be in time, or was not: its run had not ended at the deadline.

    `waited_ms` counts from its arrival, `decoded_ms` is the part of it that reading and decoding the input took,
    `expected_ms` the run time that it went by; None where it did not come so far. `ran_ms` is how long its run had been
    under way at the deadline, or had taken where only the answer was not written yet; None where it had not begun, and
    does not.
    """

    waited_ms: float
    expected_ms: float | None = None
    decoded_ms: float | None = None
    ran_ms: float | None = None

    def message(self) -> str:
        decoded = "" if self.decoded_ms is None else f" ({self.decoded_ms:.1f} ms of them to read and decode the input)"
        expected = "" if self.expected_ms is None else f"a run is expected to take {self.expected_ms:.1f} ms"
        if self.ran_ms is None:
            waited = f"the deadline cannot be kept: {self.waited_ms:.1f} ms have passed{decoded}"
            run = expected and f", and {expected}"
        else:
            waited = f"the answer was not there at the deadline: {self.waited_ms:.1f} ms have passed{decoded}"
            run = f", {self.ran_ms:.1f} ms of them in the run{expected and f'; {expected}'}"
        return f"{waited}{run}; allow more time, or take a faster variant"


@dataclass(kw_only=True, eq=False)
class RunFailed(ApplianceError, title="The run failed"):
    """The processor broke off the run; `reason` is its own word."""

    variant_id: str
    reason: str

    def message(self) -> str:
        return f"the model failed on this input: {self.reason}"


@dataclass(kw_only=True, eq=False)
class RunRefused(RunFailed, status=422, title="The model failed on this input"):
    """The network cannot compute these values, for example an index beyond a table, or only with more memory than a
    run may take. The same again fails again; other values may not.
    """


@dataclass(kw_only=True, eq=False)
class RunCrashed(RunFailed, title="The model's process ended"):
    """The run ended the process that it was in, or another run of the same owner did; the box and other tenants go on.

    The model is loaded anew at the next request. A variant whose runs do so three times within ten minutes is
    quarantined. Try other inputs, or another variant.
    """

    def message(self) -> str:
        return (
            f"the model's process ended during this run ({self.reason}); the model is loaded again at the next request"
        )


@dataclass(kw_only=True, eq=False)
class RunStopped(RunFailed, status=504, title="The run took too long"):
    """The run took longer than it may (`guard.run_s_max`), and was stopped: send less, or take a faster variant."""

    def message(self) -> str:
        return f"the run was stopped: {self.reason}"
