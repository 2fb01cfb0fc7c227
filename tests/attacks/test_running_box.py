"""Killer requests against a running box: another tenant's requests are answered, and the service never restarts."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import httpx
import psutil
import pytest

from appliance.demo.zoo import toys
from tests.attacks import killers
from tests.attacks.corpus.requests import KILLERS, Attack
from tests.e2e.server import Server, running_server

pytestmark = pytest.mark.e2e

MAKERS = {
    "division": killers.integer_division,
    "lstm": killers.lstm,
    "outer": killers.outer_product,
    "loop": killers.loop,
}
CALLS = {attack.name: attack for attack in KILLERS}
ROUNDS = 12


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A box with the killers of one tenant and an honest model of another."""
    folder = tmp_path_factory.mktemp("killers")
    limits = {"APPLIANCE_GUARD__RUN_S_MAX": "1", "APPLIANCE_GUARD__RUN_BYTES_MAX": str(256 << 20)}
    with running_server(folder / "state", **limits) as server:
        for tenant in ("hostile", "quiet"):
            with _client(server, server.admin_key) as admin:
                admin.post("/v1/tenants", json={"name": tenant}).raise_for_status()
        for name, make in MAKERS.items():
            _import(server, "hostile", make(folder / f"{name}.onnx"), name)
        tokenizer = killers.tokenizer(folder / "tokenizer.json")
        _import(server, "hostile", killers.words(folder / "words.onnx"), "words", "text-embedding", tokenizer)
        _import(server, "quiet", toys.tiny_add(folder / "add.onnx"), "add")
        yield server


def test_killers_in_any_order(box: Server, hostile: httpx.Client, quiet: httpx.Client) -> None:
    """In random order beside an honest tenant: its failures 0, restarts 0; third crashes put variants away."""
    random = Random(1)
    add = {"inputs": [{"name": name, "datatype": "FP32", "shape": [1, 4], "data": [1.0] * 4} for name in ("A", "B")]}
    pid = box.process.pid
    for _ in range(ROUNDS):
        attack = random.choice(KILLERS)
        answer = _sent(hostile, attack)
        assert answer.status_code in attack.statuses, (attack.name, answer.text)
        honest = quiet.post("/v2/models/add/infer", json=add)
        assert honest.status_code == 200, honest.text
        assert honest.json()["outputs"][0]["data"] == [2.0] * 4
    assert box.process.poll() is None
    assert box.process.pid == pid


def test_the_third_crash_puts_a_variant_away(hostile: httpx.Client) -> None:
    """Naming it is refused until it is released; then it serves again."""
    good = {"inputs": [{"name": name, "datatype": "INT32", "shape": [1], "data": [6]} for name in ("X", "Y")]}
    where = "/v2/models/division/versions/fp32/infer"
    kinds = [hostile.post(where, content=CALLS["division"].body).status_code for _ in range(4)]
    assert set(kinds) <= {500, 503}
    assert hostile.get("/v1/models/division/variants/fp32").json()["state"] == "quarantined"
    refused = hostile.post(where, json=good)
    assert refused.status_code == 503
    assert "quarantined" in refused.text
    unnamed = hostile.post("/v2/models/division/infer", json=good)
    assert unnamed.status_code == 503
    assert "within 10 minutes" in unnamed.text
    assert "release it" in unnamed.text
    assert hostile.post("/v1/models/division/variants/fp32/release").json()["state"] == "ready"
    assert hostile.post(where, json=good).json()["outputs"][0]["data"] == [1]


def test_a_tokenizer_dies_alone(box: Server, hostile: httpx.Client) -> None:
    """It is the guard that ends, and the caller is told what happened."""
    rss_bytes = psutil.Process(box.process.pid).memory_info().rss
    answer = _sent(hostile, CALLS["words"])
    assert answer.status_code in {500, 503, 504}
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert psutil.Process(box.process.pid).memory_info().rss < rss_bytes + 100 * 2**20


def _sent(client: httpx.Client, attack: Attack) -> httpx.Response:
    return client.request(attack.method, attack.path, content=attack.body, headers=dict(attack.headers))


def _client(server: Server, key: str) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}, timeout=60)


def _key(server: Server, tenant: str) -> str:
    with _client(server, server.admin_key) as admin:
        return str(admin.post(f"/v1/tenants/{tenant}/keys", json={}).json()["key"])


@pytest.fixture
def hostile(box: Server) -> Iterator[httpx.Client]:
    with _client(box, _key(box, "hostile")) as client:
        yield client


@pytest.fixture
def quiet(box: Server) -> Iterator[httpx.Client]:
    with _client(box, _key(box, "quiet")) as client:
        yield client


def _import(
    server: Server, tenant: str, path: Path, name: str, task: str = "tensor", tokenizer: Path | None = None
) -> None:
    with server.client(_key(server, tenant)) as client:
        job = client.upload_model(path, name, task, tokenizer=tokenizer, metadata={"precisions": []})
        assert list(client.follow_job(job.id))[-1].state == "done"
