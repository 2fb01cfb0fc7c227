"""What a name of the protocol means to the caller: the model is an application, the version a variant."""

from appliance.api.auth.keyring import Principal
from appliance.api.box import Box
from appliance.domain.access import Role
from appliance.domain.catalogue import Application, Variant
from appliance.domain.errors import Forbidden, ModelUnavailable, UnknownApplication, UnknownVariant


def model_and_version(parts: list[str]) -> tuple[str, str | None]:
    """`models/NAME` or `models/NAME/versions/VERSION`."""
    if len(parts) == 2:
        return parts[1], None
    if len(parts) == 4 and parts[2] == "versions":
        return parts[1], parts[3]
    raise UnknownVariant(name="/".join(parts))


def resolve(box: Box, principal: Principal, name: str) -> Application:
    """The application a name means to the caller; one the key may not call does not exist for it."""
    if principal.applications and not principal.may_call(name):
        raise UnknownApplication(name=name)
    return box.catalogue.resolve(principal.tenant, name)


def managed(box: Box, principal: Principal, name: str) -> Application:
    """An application whose residency the caller may command: its own, or any for an admin; devices may not."""
    if principal.role is Role.DEVICE:
        raise Forbidden(action="load or unload models")
    application = resolve(box, principal, name)
    if application.tenant != principal.tenant and not principal.is_admin:
        raise UnknownApplication(name=name)
    return application


def variant_of(box: Box, application: Application, version: str | None) -> Variant:
    """The variant of a version, or the most wanted one. Raises: UnknownVariant, ModelUnavailable."""
    entry = box.catalogue.entry(application.id)
    if version is not None:
        return box.catalogue.servable(entry, version).variant
    if not entry.order:
        raise ModelUnavailable(name=application.name)
    return entry.order[0].variant
