"""A box with ten thousand objects of each kind: no document grows with them, no turn makes a whole one."""

import secrets
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.paths import pages, paths
from tests.api.stand import StandWith
from tests.harness.work import Turns, turns

pytestmark = [pytest.mark.anyio, pytest.mark.nightly("ten thousand objects of each kind, over all routes")]

COUNT = 10_000
PIPELINES = 640
"""As many as ten tenants may have: planning them is one decision, whose time grows with them."""
BYTES_MAX = 256 * 1024
CALLS_MAX = 40_000
"""Calls of Python functions in a turn of the loop: some milliseconds."""
SHAPES_MAX = 400
"""Objects of pydantic's in a turn of the loop. The longest page of a list has 500 of them."""
WHOLE = {"/openapi.json", "/metrics", "/v2/models/stats"}
"""Made once for all, and written in many turns: their readers take no pages."""

Row = Mapping[str, Any]


def multiply(state_dir: Path) -> None:
    """Copy rows of each table under other names."""
    changes: dict[str, tuple[str, Callable[[int, Row], dict[str, Any]]]] = {
        "tenant": ("name = 'harbour'", lambda i, _: {"name": f"t{i}"}),
        "access_key": ("tenant = 'harbour'", lambda i, _: {"id": f"k{i}", "sha256": secrets.token_bytes(32)}),
        "model": ("id = 'harbour/digits'", lambda i, _: {"id": f"harbour/m{i}", "name": f"m{i}"}),
        "variant": (
            "model_id = 'harbour/digits'",
            lambda i, row: {"id": f"harbour/m{i}:{row['name']}", "model_id": f"harbour/m{i}"},
        ),
        "application": (
            "id = 'harbour/digits'",
            lambda i, _: {"id": f"harbour/a{i}", "name": f"a{i}", "model_id": f"harbour/m{i}"},
        ),
        "job": ("tenant = 'harbour'", lambda i, row: {"id": f"{row['id']}-{i}"}),
        "upload": ("1", lambda i, row: {"id": f"{row['id']}-{i}"}),
        "pipeline": ("1", lambda i, _: {"id": f"t{i}/p", "tenant": f"t{i}", "name": "p"}),
        "audit": ("1", lambda i, _: {"id": 10**6 + i}),
    }
    with closing(sqlite3.connect(state_dir / "appliance.db")) as database:
        database.row_factory = sqlite3.Row
        for table, (of, change) in changes.items():
            row = dict(database.execute(f"SELECT * FROM {table} WHERE {of}").fetchone())
            count = PIPELINES if table == "pipeline" else COUNT
            made = [tuple((row | change(i, row)).values()) for i in range(count)]
            database.executemany(f"INSERT INTO {table} ({','.join(row)}) VALUES ({','.join('?' * len(row))})", made)
        database.commit()


async def turns_of(client: httpx.AsyncClient, path: str) -> Turns:
    """Return what the turns of the loop made while a path was asked for."""
    with turns() as seen:
        await client.get(path)
    return seen


async def test_routes_with_ten_thousand_objects_stay_within_a_loop_turn(stand_with: StandWith) -> None:
    """Asked by an operator, by a tenant, and without a key; lists also for their longest pages."""
    async with stand_with() as stand:
        harbour = stand.client("harbour")
        assert (await harbour.post("/v1/uploads", json={"file_name": "m.onnx", "length": 10})).status_code == 201
        stages = {"stages": [{"name": "read", "application": "digits"}], "latency_slo_ms": 1000}
        assert (await harbour.post("/v1/pipelines", json={"name": "reading", **stages})).status_code == 201
    multiply(stand.state_dir)
    large, long = {}, {}
    async with stand_with() as stand:
        for who in ("admin", "harbour", None):
            client = stand.client(who)
            for path in [*paths(), *pages()]:
                answer = await client.get(path)  # what is made once, is made
                seen = await turns_of(client, path)
                if seen.calls_max > CALLS_MAX:  # the box plans its pipelines now and then
                    seen = await turns_of(client, path)
                if len(answer.content) > BYTES_MAX and path not in WHOLE and path not in pages():
                    large[who, path] = len(answer.content)
                if seen.calls_max > CALLS_MAX or seen.shapes_max > SHAPES_MAX:
                    long[who, path] = seen.calls_max, seen.shapes_max
    assert long == {}
    assert large == {}
