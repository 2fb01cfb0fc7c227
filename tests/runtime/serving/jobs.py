"""Jobs as the queue and the workers take them."""

import asyncio
from typing import Any

from appliance.domain.request import Request
from appliance.policies.selection.most_accurate import MostAccurate
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.servable import Servable
from appliance.runtime.serving.job import Job
from tests.fakes.engine import make_variant
from tests.runtime.filled import fill


def a_servable() -> Servable:
    catalogue = Catalogue(MostAccurate())
    fill(catalogue, "t", "m", [make_variant("t/m", "v")])
    return catalogue.entry("t/m").servables["v"]


SERVABLE = a_servable()


def job(
    name: str = "a",
    *,
    tenant: str = "t",
    priority: int = 0,
    deadline_ns: int | None = None,
    expected_ns: int | None = None,
    build: LoadedBuild | None = None,
    servable: Servable = SERVABLE,
) -> Job:
    """A job of application `name`; needs a running loop."""
    request = Request(name, tenant, {}, 0, priority=priority, deadline_ns=deadline_ns)
    answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    return Job(request, servable, build or LoadedBuild("b@cpu", 1, 1), answer, expected_ns=expected_ns)
