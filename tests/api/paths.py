"""The paths of all routes."""

import re

from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from appliance.api.service import ROUTERS
from appliance.wire.shape import Page

NAMES = {"model": "adding", "application": "adding", "tenant": "harbour"}
BESIDE = ["/", "/docs", "/openapi.json", "/problems/too-large", "/assets/none.js", "/nowhere", "/v1/models/adding/load"]
V2 = ["", "/", "/health/live", "/health/ready", "/models/adding", "/models/adding/config", "/models/adding/ready"]


def paths() -> list[str]:
    """All that GET is answered at, with names that are there, and names that are not."""
    found = {_path(route) for route in _routes()}
    return [*sorted(found - {"/v1/events"}), *BESIDE, *(f"/v2{path}" for path in V2)]


def pages() -> list[str]:
    """The paths of all lists that come in pages, for the longest page."""
    lists = [one for one in _routes() if isinstance(one.response_model, type) and issubclass(one.response_model, Page)]
    everyones = [one for one in lists if any(field.alias == "tenant" for field in _query(one.dependant))]
    return sorted(
        [f"{_path(one)}?limit=500" for one in lists] + [f"{_path(one)}?limit=500&tenant=*" for one in everyones]
    )


def _routes() -> list[APIRoute]:
    found = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return [route for route in found if "GET" in (route.methods or ())]


def _path(route: APIRoute) -> str:
    return re.sub(r"\{(\w+)[^}]*\}", lambda name: NAMES.get(name[1], "none"), route.path)


def _query(dependant: Dependant) -> list[ModelField]:
    return [*dependant.query_params, *(field for one in dependant.dependencies for field in _query(one))]
