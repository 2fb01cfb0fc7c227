"""Requests that are fine by themselves, but not in the state that the box is in."""

from dataclasses import dataclass

from appliance.domain.errors.root import ApplianceError


@dataclass(kw_only=True, eq=False)
class Conflict(ApplianceError, status=409, title="Not possible in the present state"):
    """The request is fine, the state of the box is not."""

    name: str

    def message(self) -> str:
        return f"{self.name!r} is in no state for this"


class AlreadyExists(Conflict, title="The name is taken"):
    def message(self) -> str:
        return f"{self.name!r} exists already; choose another name or delete it first"


class InUse(Conflict, title="In use"):
    def message(self) -> str:
        return f"{self.name!r} is in use"


@dataclass(kw_only=True, eq=False)
class BoxNotEmpty(Conflict, title="The box is not empty"):
    """A restore would take the place of what is there; `name` is the box."""

    name: str = "box"
    models: int
    applications: int
    tenants: int
    keys: int

    def message(self) -> str:
        return (
            f"only an empty box is restored, and this one has models ({self.models}), applications "
            f"({self.applications}), tenants beside 'default' ({self.tenants}), or keys beside admins' ({self.keys})"
        )


@dataclass(kw_only=True, eq=False)
class Overcommitted(Conflict, title="More memory would be guaranteed than there is"):
    """More memory would be guaranteed to tenants than the box has; `name` is the tenant that asked."""

    guarantee_bytes: int
    others_bytes: int
    budget_bytes: int

    def message(self) -> str:
        left = max(0, self.budget_bytes - self.others_bytes)
        return (
            f"{self.guarantee_bytes} bytes cannot be guaranteed to {self.name!r}: of the budget of "
            f"{self.budget_bytes}, "
            f"{self.others_bytes} are guaranteed to others, so at most {left} are left"
        )


@dataclass(kw_only=True, eq=False)
class IllegalState(Conflict):
    state: str

    def message(self) -> str:
        return f"{self.name!r} is {self.state}; this is not possible now"


@dataclass(kw_only=True, eq=False)
class OffsetMismatch(Conflict, title="The upload goes on at another offset"):
    """A resumed upload must go on exactly where the box stopped."""

    expected_offset: int

    def message(self) -> str:
        return f"upload {self.name!r} goes on at offset {self.expected_offset}"


class NothingToSimulate(Conflict, title="There is nothing to simulate"):
    """No application has a variant that was measured."""

    def message(self) -> str:
        return "the box has no application with a measured variant: import a model first"


class ModelUnavailable(Conflict, title="The model is not available"):
    """Known, but explicitly unloaded, or no variant is servable yet."""

    def message(self) -> str:
        return f"model {self.name!r} is not available: load it, or wait until its import has a first variant"
