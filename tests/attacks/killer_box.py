"""A running box with the killers of one tenant beside an honest model of another."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests import toys
from tests.attacks import killers
from tests.attacks.corpus.requests import Attack
from tests.e2e.server import Server, running_server

MAKERS = {
    "division": killers.integer_division,
    "lstm": killers.lstm,
    "outer": killers.outer_product,
    "loop": killers.loop,
}
RUN_S_MAX = 1
HONEST = {"inputs": [{"name": name, "datatype": "FP32", "shape": [1, 4], "data": [1.0] * 4} for name in ("A", "B")]}
"""A request to the honest model, which adds."""


@contextmanager
def killer_box(folder: Path) -> Iterator[Server]:
    """The box, with tenants `hostile` and `quiet`."""
    limits = {"APPLIANCE_GUARD__RUN_S_MAX": str(RUN_S_MAX), "APPLIANCE_GUARD__RUN_BYTES_MAX": str(256 << 20)}
    with running_server(folder / "state", **limits) as server:
        for tenant in ("hostile", "quiet"):
            with client_of(server, server.admin_key) as admin:
                admin.post("/v1/tenants", json={"name": tenant}).raise_for_status()
        for name, make in MAKERS.items():
            _import(server, "hostile", make(folder / f"{name}.onnx"), name)
        tokenizer = killers.tokenizer(folder / "tokenizer.json")
        _import(server, "hostile", killers.words(folder / "words.onnx"), "words", "text-embedding", tokenizer)
        _import(server, "quiet", toys.tiny_add(folder / "add.onnx"), "add")
        yield server


def sent(client: httpx.Client, attack: Attack) -> httpx.Response:
    return client.request(attack.method, attack.path, content=attack.body, headers=dict(attack.headers))


def client_of(server: Server, key: str) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}, timeout=60)


def new_key(server: Server, tenant: str) -> str:
    with client_of(server, server.admin_key) as admin:
        return str(admin.post(f"/v1/tenants/{tenant}/keys", json={}).json()["key"])


def _import(
    server: Server, tenant: str, path: Path, name: str, task: str = "tensor", tokenizer: Path | None = None
) -> None:
    with server.client(new_key(server, tenant)) as client:
        job = client.upload_model(path, name, task, tokenizer=tokenizer, metadata={"precisions": []})
        assert list(client.follow_job(job.id))[-1].state == "done"
