"""The documentation: whole, true and offline."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from appliance.api.http.problems import all_problems
from appliance.api.service import ROUTERS, create_service, openapi
from appliance.wire.shape import Order
from tests.api.stand import Stand

METHODS = ("get", "post", "put", "patch", "delete", "head")
DOCUMENT = openapi(create_service())
OPERATIONS = [
    (f"{method.upper()} {path}", operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if method in METHODS
]


KEYLESS = ("GET /v2", "GET /v2/health/live", "GET /v2/health/ready", "GET /v1/sign-in", "DELETE /v1/sign-in")


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_routes_are_documented_with_a_worked_example_of_every_error(name: str, operation: dict[str, Any]) -> None:
    """Summary, description, a tag that is explained, and a success (two where the answer may come later)."""
    assert operation["summary"]
    assert len(operation["description"]) > 10
    assert operation["tags"][0] in [tag["name"] for tag in DOCUMENT["tags"]]
    success = [status for status in operation["responses"] if status.startswith("2") or status == "101"]
    assert len(success) == (2 if name.endswith("/predict") else 1)
    failures = {status: answer for status, answer in operation["responses"].items() if status not in success}
    for status, answer in failures.items():
        assert answer["description"]
        content = next(iter(answer["content"].values()))
        examples = [one["value"] for one in content.get("examples", {}).values()] or [content["example"]]
        for example in examples:
            assert example.get("error") or (example["status"] == int(status) and example["detail"])
    if name == "POST /v1/sign-in":
        assert "401" in failures
    elif name not in KEYLESS:
        assert "401" in failures
        assert operation["security"] == [{"key": []}]


def has_example(schema: dict[str, Any]) -> bool:
    """Of its own, in what it refers to, or in a part."""
    if "example" in schema or "examples" in schema:
        return True
    if "$ref" in schema:
        return has_example(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items", {})]
    return any(has_example(part) for part in parts if part)


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_request_and_answer_bodies_have_examples(name: str, operation: dict[str, Any]) -> None:
    """What is sent and what comes back is shown, not only described."""
    status = next((status for status in operation["responses"] if status.startswith("2")), "")
    # The stream of a session has messages.
    if name not in ("HEAD /v1/uploads/{upload}", "GET /v1/sessions/{session}/stream") and status != "204":
        answer = next(iter(operation["responses"][status]["content"].values()))
        assert has_example(answer) or has_example(answer["schema"])
    if "requestBody" in operation:
        bodies = operation["requestBody"]["content"].values()
        binary = all(body.get("schema", {}).get("format") == "binary" for body in bodies)
        assert binary or any(has_example(body) or has_example(body.get("schema", {})) for body in bodies)


def test_examples_of_orders_are_valid_orders() -> None:
    """The example of a JSON body is itself a good order."""
    import appliance.wire.access
    import appliance.wire.catalogue
    import appliance.wire.jobs

    orders = [
        shape
        for module in (appliance.wire.access, appliance.wire.catalogue, appliance.wire.jobs)
        for shape in vars(module).values()
        if isinstance(shape, type) and issubclass(shape, Order) and shape.__name__.endswith(("Order", "Change"))
    ]
    examined = 0
    for shape in orders:
        for example in shape.model_json_schema().get("examples", []):
            shape.model_validate(example)
            examined += 1
    assert examined >= 6


def test_routes_are_all_in_the_document_with_unique_ids() -> None:
    """Clients are generated from the ids."""
    for router in ROUTERS:
        for route in router.routes:
            assert route.path in DOCUMENT["paths"]  # type: ignore[attr-defined]
    ids = [operation["operationId"] for _, operation in OPERATIONS if "operationId" in operation]
    assert len(set(ids)) == len(ids)


def test_references_of_the_document_exist() -> None:
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(DOCUMENT)):
        at: Any = DOCUMENT
        for part in reference.split("/"):
            at = at[part]


@pytest.mark.anyio
async def test_documentation_page_needs_no_network(stand: Stand) -> None:
    """Without a key; every asset comes from the box; no inline script; the policy forbids anything else."""
    nobody = stand.client(None)
    page = await nobody.get("/docs")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert not re.search(r"https?://", page.text)
    assert not re.search(r"<script>|onload=", page.text)
    assets = re.findall(r'(?:src|href)="([\w/.-]+)"', page.text)
    assert {"docs/swagger-ui.js", "docs/swagger-ui.css", "docs/start.js", "openapi.json"} <= set(assets)
    for asset in assets:
        answer = await nobody.get(asset)
        assert answer.status_code == 200
        assert len(answer.content) > 100
    assert (await nobody.get("/docs/../admin.key")).status_code == 404
    assert (await nobody.get("/docs/other.js")).status_code == 404


@pytest.mark.anyio
async def test_problem_types_have_a_page_of_explanation(stand: Stand) -> None:
    """The `type` of every error leads to an explanation, as JSON and for people."""
    nobody = stand.client(None)
    known = (await nobody.get("/problems")).json()["items"]
    assert {one["type"] for one in known} == {f"/problems/{slug}" for slug in all_problems()}
    for one in known:
        shown = (await nobody.get(one["type"])).json()
        assert shown == one
        assert shown["description"]
        assert "(*" not in shown["description"]
    page = await nobody.get("/problems/queue-full", headers={"Accept": "text/html"})
    assert "429" in page.text
    assert "retry_after_s" in page.text
    page = await nobody.get("/problems/out-of-memory", headers={"Accept": "text/html"})
    assert "503, or 507" in page.text
    assert "what its load needs" in page.text
    assert (await nobody.get("/problems/nothing")).status_code == 404


def test_api_md_names_all_routes_and_no_others() -> None:
    """docs/api.md has a row for each path of the document, with its methods, and no path that does not exist."""
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    rows: dict[str, set[str]] = {}
    for line in re.findall(r"^\| (`(?:GET|POST|PUT|PATCH|DELETE|HEAD)[^|]*) \|", text, re.MULTILINE):
        methods = set(re.findall(r"\b[A-Z]+\b", line))
        for path in re.findall(r"/[^\s`,]+", line):
            rows[path] = methods
    real = {path: {m.upper() for m in operations if m in METHODS} for path, operations in DOCUMENT["paths"].items()}
    assert rows == real
