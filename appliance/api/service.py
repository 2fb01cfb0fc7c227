"""The part of the service that runs in the framework: `/v1`, `/metrics`, the documents and the error pages.

`Service` serves one box with what the modules of `v1` offer; the composition root wraps it with the bounds and the
bare `/v2`.
"""

from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.types import Receive, Scope, Send

from appliance import __version__
from appliance.api import documents, pages
from appliance.api.audit_trail import AuditTrail
from appliance.api.box import RunningBox
from appliance.api.http import faults
from appliance.api.http.heads import Heads
from appliance.api.v1 import (
    applications,
    audit,
    backups,
    decisions,
    events,
    frames,
    health,
    history,
    housekeeping,
    jobs,
    models,
    notable,
    notifications,
    pipelines,
    predict,
    requests,
    sessions,
    sign_in,
    simulations,
    sums,
    system,
    tenants,
    uploads,
    wall,
)

ROUTERS: tuple[APIRouter, ...] = (
    predict.router,
    frames.router,
    requests.router,
    sessions.router,
    wall.router,
    models.router,
    uploads.router,
    jobs.router,
    applications.router,
    pipelines.frames,
    pipelines.router,
    notable.router,
    tenants.router,
    sign_in.router,
    health.router,
    notifications.router,
    system.router,
    history.router,
    sums.router,
    events.router,
    decisions.router,
    audit.router,
    backups.router,
    housekeeping.router,
    simulations.router,
)

DESCRIPTION = """One box that serves the neural networks of many tenants to many small devices.

**Three steps.** Upload an ONNX file with `POST /v1/models`, follow the job, then send pictures, sound or text to
`POST /v1/applications/{name}/predict`, or tensors to `/v2` with any client of the Open Inference Protocol: there the
*model name* is the application and the *version* is the variant; without a version the box chooses.

**Keys.** Every call carries `Authorization: Bearer KEY`. The first start writes an admin key to `admin.key` in the
state folder. An admin acts in the tenant `default` unless the header `X-Tenant` names another. A tenant sees its own
things and what others share; anything else answers exactly as if it did not exist.

**Errors** are problem documents (RFC 9457): `type` names the kind of error and stays the same, `detail` is one
sentence for a person, and the facts stand beside them. Answers 429 and 503 carry `Retry-After`. Every answer of `/v1`
carries `X-Request-Id`; the log knows it too.

**Lists** come in pages: send `next_cursor` as `cursor` for the next one. With an admin key `tenant=*` lists what all
tenants have; `summary=true` leaves out of the rows what is large.
"""

TAGS = [
    {"name": "predict", "description": "Media in, answers out: what devices call."},
    {"name": "sessions", "description": "Devices that stream: what they are promised, and what they send when."},
    {"name": "wall", "description": "The last frame of each stream, for the keys that the tenant allows."},
    {"name": "models", "description": "Networks and their variants: upload, look, delete."},
    {"name": "uploads", "description": "Large files in pieces that survive broken lines and restarts."},
    {"name": "jobs", "description": "Imports and how far they have come."},
    {"name": "applications", "description": "Registered uses of models, with their promises."},
    {"name": "pipelines", "description": "Frames through several networks, with one SLO over all of it."},
    {"name": "tenants", "description": "Tenants, their quotas, and the keys that open the box."},
    {"name": "sign-in", "description": "Browsers: a key for a cookie."},
    {"name": "system", "description": "What the box is, does and holds."},
    {"name": "notifications", "description": "Receivers of messages when conditions begin and end."},
    {"name": "backups", "description": "Everything that cannot be made again, in one file; and back."},
    {"name": "events", "description": "What happens, as it happens."},
    {"name": "decisions", "description": "What the box decided, and why."},
    {"name": "simulations", "description": "What if: the box in virtual time, as it is and with edits."},
    {"name": "v2", "description": "The Open Inference Protocol, for any client that speaks it."},
]


class Service:
    """Serves one box by the framework's application of this process: puts the box into the state of each request."""

    def __init__(self, box: RunningBox) -> None:
        """Any thread. The first service of a process makes the application, which takes 0.15 s."""
        self._app, self._box = Heads(_prepared(), ROUTERS), box

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["box"] = self._box
        await self._app(scope, receive, send)


@cache
def _prepared() -> FastAPI:
    """Return the application of this process. The application knows no box, so all boxes share it."""
    app = create_service()
    prepare(app)
    return app


def create_service() -> FastAPI:
    """Make the framework's application; `state.box` of each request must be the box."""
    app = FastAPI(
        title="Edge appliance",
        summary="Neural networks of many tenants, served at the edge",
        description=DESCRIPTION,
        version=__version__,
        openapi_tags=TAGS,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    for router in ROUTERS:
        app.include_router(router)
    documents.register(app)
    pages.register(app)
    faults.register(app, ROUTERS)
    app.add_middleware(AuditTrail)
    return app


def prepare(app: FastAPI) -> None:
    """Have the framework make what it otherwise makes of every router when a request first comes that far in their
    list: 0.15 s in all, for which the event loop would stand. Any thread.
    """
    nowhere: dict[str, Any] = {"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []}
    for route in app.router.routes:
        route.matches(nowhere)


def openapi(app: FastAPI) -> dict[str, Any]:
    """The document that `/openapi.json` serves."""
    return documents.openapi(app)
