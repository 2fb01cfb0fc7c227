"""Which sessions a caller means: a tenant's own, and of a device's key those that it began itself."""

from appliance.api.auth.keyring import Principal
from appliance.api.box import ServingBox
from appliance.domain.access import Role
from appliance.runtime.sessions.live import LiveSession


def session_of(box: ServingBox, principal: Principal, name: str) -> LiveSession:
    """Raises: UnknownSession, also for one that the caller may not see."""
    return box.sessions.get(name, principal.tenant, own_key(principal))


def own_key(principal: Principal) -> str | None:
    """Whose sessions a caller sees: a device's key its own; None: all of the tenant."""
    return principal.key_id if principal.role is Role.DEVICE else None
