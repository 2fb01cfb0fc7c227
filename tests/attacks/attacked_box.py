"""A real box for attackers: a process of its own with a tenant, a model that adds, and a key for each role."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.domain.access import Role
from appliance.wire.access import KeyOrder
from tests import toys
from tests.e2e.server import Server, running_server

ROLES = ("stranger", "device", "tenant", "admin")
TENANT = "harbour"
APPLICATION = "door"
LIMITS = {
    "APPLIANCE_IMPORTS__CHILD_MEMORY_BYTES": str(2 * 2**30),
    "APPLIANCE_IMPORTS__INSPECT_WALL_S": "20",
    "APPLIANCE_IMPORTS__FILE_BYTES_MAX": str(256 * 2**20),
    "APPLIANCE_SECURITY__FAILED_KEYS_PER_MIN": "1000000",
}
"""Little room for children, and no limit on wrong keys, which would hide all other answers to a stranger."""


@dataclass(frozen=True)
class Attacked:
    """A running box and who may attack it. `keys`: admin, tenant, device; a stranger has none."""

    server: Server
    keys: Mapping[str, str | None]

    def adds(self) -> bool:
        """Tell whether the good application still answers, and rightly."""
        with self.server.client(tenant=TENANT) as admin:
            answer = admin.predict(APPLICATION, {"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 1, 1, 1]]}})
        return bool(answer.model_dump()["outputs"]["SUM"]["data"] == [2, 3, 4, 5])


@contextmanager
def attacked_box(folder: Path) -> Iterator[Attacked]:
    """Started and furnished; names are those of the examples in the OpenAPI document, so that these find something."""
    with running_server(folder / "state", **LIMITS) as server:
        with server.client() as admin:
            admin.create_tenant(TENANT)
            keys = {"tenant": admin.create_key(TENANT, KeyOrder()).key}
            keys["admin"] = admin.create_key("default", KeyOrder(role=Role.ADMIN)).key
        with server.client(keys["tenant"]) as tenant:
            job = tenant.upload_model(
                toys.tiny_add(folder / "add.onnx"), "centerface", "tensor", application=APPLICATION
            )
            assert list(tenant.follow_job(job.id))[-1].state == "done"
            keys["device"] = tenant.create_key(TENANT, KeyOrder(role=Role.DEVICE, applications=[APPLICATION])).key
        yield Attacked(server, {**keys, "stranger": None})
