"""Killer requests against a running box: another tenant's requests are answered, and the service never restarts."""

from collections.abc import Iterator
from random import Random

import httpx
import pytest

from tests.attacks.corpus.requests import KILLERS
from tests.attacks.killer_box import HONEST, client_of, killer_box, new_key, sent
from tests.e2e.polling import until
from tests.e2e.server import Server

pytestmark = [pytest.mark.nightly("attacks on every route of a server"), pytest.mark.usefixtures("processes", "ports")]

CALLS = {attack.name: attack for attack in KILLERS}
ROUNDS = 12


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with killer_box(tmp_path_factory.mktemp("killers")) as server:
        yield server


def test_killer_requests_leave_an_honest_tenant_served(box: Server, hostile: httpx.Client, quiet: httpx.Client) -> None:
    """In random order: no failure of the honest tenant, no restart; third crashes put variants away."""
    random = Random(1)
    pid = box.process.pid
    for _ in range(ROUNDS):
        attack = random.choice(KILLERS)
        answer = sent(hostile, attack)
        assert answer.status_code in attack.statuses, (attack.name, answer.text)
        honest = quiet.post("/v2/models/add/infer", json=HONEST)
        assert honest.status_code == 200, honest.text
        assert honest.json()["outputs"][0]["data"] == [2.0] * 4
    assert box.process.poll() is None
    assert box.process.pid == pid


def test_subnormal_numbers_are_zero_on_the_event_loop(quiet: httpx.Client) -> None:
    """A quick run computes no slower with subnormal numbers than with others."""
    inputs = [
        {"name": name, "datatype": "FP32", "shape": [1, 4], "data": [value] * 4}
        for name, value in {"A": 1e-40, "B": 0.0}.items()
    ]
    answer = quiet.post("/v2/models/add/infer", json={"inputs": inputs})
    assert answer.json()["outputs"][0]["data"] == [0.0] * 4


def test_variant_is_quarantined_at_the_third_crash_until_released(hostile: httpx.Client) -> None:
    """A request that names it is refused meanwhile; then it serves again."""
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
    assert hostile.get("/v1/models/division").json()["state"] == "quarantined"
    assert hostile.post("/v1/models/division/variants/fp32/release").json()["state"] == "ready"
    assert hostile.get("/v1/models/division").json()["state"] == "ready"
    again = hostile.post("/v1/models/division/variants/fp32/release")
    assert again.status_code == 409
    assert "'fp32' is ready, and only what is quarantined is released" in again.json()["detail"]
    assert hostile.post(where, json=good).json()["outputs"][0]["data"] == [1]


def test_killer_text_ends_the_guard_and_is_answered_with_a_problem(box: Server, hostile: httpx.Client) -> None:
    """The guard ends, for its memory, and the caller is told what happened."""
    ended = _guards_ended(box)
    answer = sent(hostile, CALLS["words"])
    assert answer.status_code in {500, 503, 504}
    assert answer.headers["Content-Type"] == "application/problem+json"
    until(lambda: _guards_ended(box) > ended, "the end of the guard")


def _guards_ended(box: Server) -> int:
    """How many have ended by themselves."""
    return box.log().count('"guard ended"')


@pytest.fixture
def hostile(box: Server) -> Iterator[httpx.Client]:
    with client_of(box, new_key(box, "hostile")) as client:
        yield client


@pytest.fixture
def quiet(box: Server) -> Iterator[httpx.Client]:
    with client_of(box, new_key(box, "quiet")) as client:
        yield client
