"""The paths of all routes."""

import re

from fastapi.routing import APIRoute

from appliance.api.service import ROUTERS

NAMES = {"model": "adding", "application": "adding", "tenant": "harbour"}
BESIDE = ["/", "/docs", "/openapi.json", "/problems/too-large", "/assets/none.js", "/nowhere", "/v1/models/adding/load"]
V2 = ["", "/", "/health/live", "/health/ready", "/models/adding", "/models/adding/config", "/models/adding/ready"]


def paths() -> list[str]:
    """All that GET is answered at, with names that are there, and names that are not."""
    found = {
        re.sub(r"\{(\w+)[^}]*\}", lambda name: NAMES.get(name[1], "none"), route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    }
    return [*sorted(found - {"/v1/events"}), *BESIDE, *(f"/v2{path}" for path in V2)]
