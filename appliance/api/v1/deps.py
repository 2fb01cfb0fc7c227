"""What routes ask for by type: the box, and the caller in the role that the route needs.

`Caller` is any key, `Member` a tenant's or admin's, `Admin` an admin's. A device key that asks for more gets 403
whatever it names.
"""

from typing import Annotated, Literal

from fastapi import Depends, Query, Request
from fastapi.security import HTTPBearer

from appliance.api.audit_trail import note_actor
from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.limits import PRINCIPAL
from appliance.api.streams.welcome import Welcome, welcome_of
from appliance.domain.access import Role
from appliance.domain.errors import Forbidden

_documented = HTTPBearer(
    auto_error=False,
    scheme_name="key",
    description="`Authorization: Bearer KEY`. The first start writes an admin key to `admin.key` in the state folder; "
    "make others with `POST /v1/tenants/{tenant}/keys`.",
)


async def the_box(request: Request) -> RunningBox:
    """The running box."""
    box: RunningBox = request.state.box
    return box


TheBox = Annotated[RunningBox, Depends(the_box)]


async def caller(request: Request, box: TheBox, _: Annotated[object, Depends(_documented)] = None) -> Principal:
    """Whoever sent a good key or is signed in. Raises: what `Browsers.caller` raises."""
    principal: Principal = request.scope.get(PRINCIPAL) or box.browsers.caller(request.scope)
    note_actor(request.scope, principal)
    return principal


Caller = Annotated[Principal, Depends(caller)]


async def member(principal: Caller) -> Principal:
    """A tenant or an admin. Raises: Forbidden."""
    if principal.role is Role.DEVICE:
        raise Forbidden(action="manage the box; it may only call applications")
    return principal


Member = Annotated[Principal, Depends(member)]


async def admin(principal: Caller) -> Principal:
    """An admin. Raises: Forbidden."""
    if not principal.is_admin:
        raise Forbidden(action="do this; it needs an admin key")
    return principal


Admin = Annotated[Principal, Depends(admin)]


async def welcome(request: Request, box: TheBox, principal: Caller) -> Welcome:
    """Whether who follows events may go on: a stream is one request, and outlives keys and sign-ins."""
    return welcome_of(box, request.scope, principal)


Following = Annotated[Welcome, Depends(welcome)]


async def every_tenant(
    principal: Caller,
    tenant: Annotated[
        Literal["*"] | None,
        Query(description="`*`: those of all tenants, by `tenant` and name; for admin keys, whatever `X-Tenant` says."),
    ] = None,
) -> bool:
    """Whether a list is to hold what all tenants have. Raises: Forbidden."""
    if tenant is not None and not principal.is_admin:
        raise Forbidden(action="list what all tenants have; it needs an admin key")
    return tenant is not None


EveryTenant = Annotated[bool, Depends(every_tenant)]

Cursor = Annotated[str, Query(max_length=200, description="`next_cursor` of the page before; empty: from the start.")]
Before = Annotated[
    str,
    Query(max_length=18, pattern="^[0-9]*$", description="`next_cursor` of the page before; empty: from the start."),
]
"""Of lists whose ids are numbers, newest first."""
Summary = Annotated[bool, Query(description="Rows without what is large in them, for long lists.")]
Limit = Annotated[int, Query(ge=1, le=500, description="Most items on the page.")]
