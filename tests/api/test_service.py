"""The framework's application."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI

from appliance.api.service import create_service, prepare


def not_now(*arguments: Any, **named: Any) -> Any:
    raise AssertionError("a request would have to wait for this")


def nothing(app: FastAPI) -> None:
    """Not prepared."""


@pytest.mark.parametrize(("make_ready", "is_ready"), [(prepare, True), (nothing, False)])
def test_routes_are_compiled_before_the_first_request(
    monkeypatch: pytest.MonkeyPatch, make_ready: Callable[[FastAPI], None], is_ready: bool
) -> None:
    """The framework compiles its routes when a request first comes to a router, and to all before it in the list: the
    event loop would stand for 0.15 s, for all tenants.
    """
    app = create_service()
    make_ready(app)
    monkeypatch.setattr("fastapi.routing.compile_path", not_now)
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/v1/simulations", "root_path": "", "headers": []}

    def is_there() -> bool:
        return any(route.matches(scope)[0].value for route in app.router.routes)

    if is_ready:
        assert is_there()
    else:
        with pytest.raises(AssertionError, match="wait for this"):
            is_there()
