"""A snapshot: everything that the inference path needs to know of the store, at one instant."""

from typing import NamedTuple

from appliance.domain.access import KeyRecord
from appliance.domain.catalogue import Application, Model, Tenant
from appliance.domain.pipeline import Pipeline


class Snapshot(NamedTuple):
    """Each by id, tenants by name."""

    tenants: list[Tenant]
    models: list[Model]
    applications: list[Application]
    keys: list[KeyRecord]
    pipelines: list[Pipeline]
