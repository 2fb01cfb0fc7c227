"""What a name of the protocol means to the caller: the model is an application, the version a variant, by number or by
name.

The protocol's clients take a version for a number in text; people and settings know variants by name. Answers say the
number, paths take either.
"""

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import own_application
from appliance.api.box import ServingBox
from appliance.domain.access import Role
from appliance.domain.catalogue import Application, Variant
from appliance.domain.errors import Forbidden, UnknownVariant
from appliance.runtime.catalogue import Entry


def model_and_version(parts: list[str]) -> tuple[str, str | None]:
    """`models/NAME` or `models/NAME/versions/VERSION`."""
    if len(parts) == 2:
        return parts[1], None
    if len(parts) == 4 and parts[2] == "versions":
        return parts[1], parts[3]
    raise UnknownVariant(name="/".join(parts))


def managed(box: ServingBox, principal: Principal, name: str) -> Application:
    """An application whose residency the caller may command: its own; devices may not.

    Raises: UnknownApplication, Forbidden.
    """
    if principal.role is Role.DEVICE:
        raise Forbidden(action="load or unload models")
    return own_application(box.catalogue, principal, name)


def named_variant(entry: Entry, version: str) -> str:
    """The name of the variant that a version means; a version that is no number of the model is taken for a name."""
    if version.isdecimal() and version not in entry.servables:  # a name of older boxes may be a number: it goes first
        for variant in entry.model.variants:
            if str(variant.number) == version:
                return variant.name
    return version


def servable_variants(entry: Entry) -> list[Variant]:
    """The variants that requests may run on, by number."""
    return sorted((each.variant for each in entry.servables.values()), key=lambda variant: variant.number)


def variant_of(box: ServingBox, application: Application, version: str | None) -> Variant:
    """The variant of a version, or the most wanted one.

    Raises: UnknownVariant, ModelUnavailable, VariantQuarantined.
    """
    entry = box.catalogue.entry(application.id)
    if version is not None:
        return box.catalogue.servable(entry, named_variant(entry, version)).variant
    return box.catalogue.most_wanted(entry).variant
