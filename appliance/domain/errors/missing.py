"""What is not there, or not visible to the caller: the answer is the same."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError


@dataclass(kw_only=True, eq=False)
class NotFound(ApplianceError, status=404, title="Nothing of this name is visible with this key"):
    """Nothing of this name is visible to the caller (it may exist for another tenant: the answer is the same)."""

    name: str
    what = "thing"

    def __init_subclass__(cls, *, what: str = "", title: str | None = None) -> None:
        super().__init_subclass__(title=title or (f"No such {what}" if what else None))
        cls.what = what or cls.what

    def message(self) -> str:
        return f"there is no {self.what} {self.name!r}"


class UnknownTenant(NotFound, what="tenant"): ...


class UnknownModel(NotFound, what="model"): ...


class UnknownApplication(NotFound, what="application"): ...


class UnknownVariant(NotFound, what="variant"): ...


class UnknownJob(NotFound, what="job"): ...


class UnknownUpload(NotFound, what="upload"): ...


class UnknownRequest(NotFound, what="request"):
    """Never made by the tenant, over for longer than its result is kept, or from before the last start of the box."""


class UnknownBackup(NotFound, what="backup"): ...


class UnknownKey(NotFound, what="key"): ...


class UnknownReceiver(NotFound, what="receiver of notifications", title="No such receiver"): ...


class UnknownSession(NotFound, what="session"):
    """Never begun by the caller, or ended for a minute."""


class UnknownSimulation(NotFound, what="simulation"):
    """Never begun, before the last start, or older than those that are kept."""


class UnknownDecision(NotFound, what="decision"):
    """Never made, of others only, or older than those that are kept."""


class UnknownRegion(NotFound, what="shared memory region"):
    """Of shared memory: never registered by the tenant, or unregistered."""


class SharedMemoryOff(NotFound, title="Shared memory is off"):
    """The box takes no tensors from shared memory."""

    def message(self) -> str:
        return "shared memory is off on this box; its operator turns it on with the setting http.shared_memory"
