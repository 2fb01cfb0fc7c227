"""A catalogue with tenants, models and applications."""

from collections.abc import Sequence

from appliance.domain.catalogue import (
    Application,
    Model,
    TaskSpec,
    Tenant,
    Variant,
)
from appliance.runtime.catalogue import Catalogue


def fill(
    catalogue: Catalogue,
    tenant: str,
    name: str,
    variants: Sequence[Variant] = (),
    *,
    shared: bool = False,
    slo_ms: float | None = None,
    floor: float = 0.0,
) -> Application:
    """A tenant, a model and an application of the same name."""
    model = Model(f"{tenant}/{name}", tenant, name, TaskSpec(), tuple(variants), shared=shared)
    application = Application(model.id, tenant, name, model.id, slo_ms, floor, shared=shared)
    catalogue.put_tenant(Tenant(tenant))
    catalogue.put_model(model)
    catalogue.put_application(application)
    return application
