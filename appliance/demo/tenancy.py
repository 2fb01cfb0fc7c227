"""What the demo sets up on the box: tenants, their models and pipelines, and keys for the time of this run.

A second run finds the models done. Each tenant acts with a key of its own, as its developer would; the admin key only
makes the tenants and their keys.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from appliance.client import Client
from appliance.demo.board import ENDED, Picture
from appliance.demo.pipelines import DemoPipeline
from appliance.demo.zoo import ZooModel, as_archive
from appliance.domain.access import Role
from appliance.domain.catalogue import Late
from appliance.domain.errors import AlreadyExists, SloTooSmall, UnknownModel
from appliance.wire.access import KeyOrder
from appliance.wire.catalogue import ApplicationChange

SLO_MS = 1000.0
"""Milliseconds within which every application is to answer; what takes longer is answered, and counted as late."""
SLO_AT_LEAST = 3.0
"""Times what the fastest variants of a pipeline need, on a machine that is too slow for its SLO."""
DEVICE_KEY_S = 86_400
"""How long a device's key works should the demo be killed before it revokes it."""
TENANT_KEY_S = 2 * DEVICE_KEY_S
"""A key makes only keys that end before itself."""


class Tenancy:
    """The tenants of the demo on one box, each with a client that holds its key."""

    def __init__(self, url: str, state_dir: Path) -> None:
        self._url = url
        self._state_dir = state_dir
        self.clients: dict[str, Client] = {}
        """By tenant, in the order of making; each acts as its tenant."""
        self._keys: list[tuple[str, str]] = []
        self.admin = Client(url, (state_dir / "admin.key").read_text().strip())

    def close(self) -> None:
        """Take the keys back and let go of the connections."""
        for tenant, key_id in self._keys:
            self.admin.revoke_key(tenant, key_id)
        for client in (*self.clients.values(), self.admin):
            client.close()

    def make(self, tenants: Iterable[str]) -> None:
        """Tenants with a key each; those of an earlier run are taken as they are."""
        for tenant in tenants:
            with suppress(AlreadyExists):
                self.admin.create_tenant(tenant)
            key = self._key(self.admin, tenant, KeyOrder(role=Role.TENANT, label="demo", expires_in_s=TENANT_KEY_S))
            self.clients[tenant] = Client(self._url, key)

    def device_key(self, tenant: str, **opens: list[str]) -> str:
        """A key that opens `applications` or `pipelines`."""
        label = f"demo device of {next(iter(opens.values()))[0]}"
        order = KeyOrder.model_validate({**opens, "label": label, "role": Role.DEVICE, "expires_in_s": DEVICE_KEY_S})
        return self._key(self.clients[tenant], tenant, order)

    def _key(self, client: Client, tenant: str, order: KeyOrder) -> str:
        key = client.create_key(tenant, order)
        self._keys.append((tenant, key.id))
        return key.key

    def share(self, tenant: str, application: str) -> None:
        """Let other tenants call it."""
        self.clients[tenant].change_application(application, ApplicationChange(shared=True))

    def define(self, pipeline: DemoPipeline) -> None:
        """Define the pipeline as its tenant, unless the box has it; on a slow machine with a longer SLO."""
        client, order = self.clients[pipeline.tenant], pipeline.order
        with suppress(AlreadyExists):
            try:
                client.create_pipeline(order)
            except SloTooSmall as error:
                client.create_pipeline(order.model_copy(update={"latency_slo_ms": SLO_AT_LEAST * error.needs_ms}))

    def look(self, picture: Picture) -> None:
        """Bring up to date what the box says of itself."""
        items = runs = 0
        for tenant, client in self.clients.items():
            picture.applications |= {(tenant, one.name): one for one in client.applications()}
            known = [job for (owner, _), job in picture.jobs.items() if owner == tenant]
            if not known or any(job.state not in ENDED for job in known):
                newest_first = list(client.jobs())
                picture.jobs |= {(tenant, job.model): job for job in reversed(newest_first)}
            its_items, its_runs = client.computed()
            items, runs = items + its_items, runs + its_runs
        picture.memory = self.admin.memory()
        done = [f"{one.name} {one.runs or 0} runs" for one in self.admin.processors() if one.state == "serving"]
        picture.computed = "   ".join([*done, *([f"{items / runs:.2f} items a run"] if runs else [])])

    def bring(self, model: ZooModel) -> bool:
        """Upload the model as its tenant, unless the box has it; True when an import has begun.

        A model whose import failed in an earlier run is brought anew.
        """
        client = self.clients[model.tenant]
        try:
            if client.model(model.name).state != "failed":
                return False
            client.delete_model(model.name)
        except UnknownModel:
            pass
        archive = as_archive(model, self._state_dir / "demo" / f"{model.tenant}-{model.name}.zip")
        try:
            client.upload_model(archive, model.name, model.task)  # what else there is to say stands in the archive
            client.change_application(model.name, ApplicationChange(latency_slo_ms=SLO_MS, late=Late.RUN))
        finally:
            archive.unlink()
        return True
