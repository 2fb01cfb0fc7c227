"""Signing in: a browser shows a key once and gets a cookie for it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from appliance.api.audit_trail import note_actor
from appliance.api.auth.browsers import cookie_of, set_cookie
from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.v1.deps import TheBox
from appliance.domain.access import Role
from appliance.domain.errors import Forbidden, ForeignOrigin, TlsRequired, TooLarge, TooManyFailedKeys, WrongKey
from appliance.wire.access import SignInOrder, SignInShape

router = APIRouter(prefix="/v1/sign-in", tags=["sign-in"], route_class=StrictRoute)


async def own_page(request: Request, box: TheBox) -> None:
    """Raises: TlsRequired, ForeignOrigin."""
    box.browsers.require_own_page(request.scope, dict(request.scope["headers"]))


OwnPage = Annotated[None, Depends(own_page)]
_REFUSED = (ForeignOrigin, TlsRequired)


@router.post(
    "",
    status_code=204,
    response_class=Response,
    summary="Sign a browser in",
    responses=problems(WrongKey, Forbidden, TooLarge, TooManyFailedKeys, *_REFUSED, keyless=True),
)
async def sign_in(order: SignInOrder, request: Request, box: TheBox, _: OwnPage) -> Response:
    """A key for a cookie, with which the browser may do under `/v1` and `/metrics` what the key may; never under `/v2`.

    It ends after 12 hours without a request, after 7 days, and with its key. Device keys sign nobody in (403).
    """
    client = request.client
    principal = box.keyring.authenticate(f"Bearer {order.key}".encode(), None, client.host if client else "")
    if principal.role is Role.DEVICE:
        raise Forbidden(action="sign in; it may only call applications")
    note_actor(request.scope, principal)
    before = cookie_of(request.scope, dict(request.scope["headers"]))
    if before is not None:
        box.browsers.sign_ins.end(before)
    cookie = box.browsers.sign_ins.begin(principal.key_id)
    await box.browsers.save()
    return Response(status_code=204, headers={"Set-Cookie": set_cookie(request.scope, cookie)})


@router.get("", summary="Who is signed in", responses=problems(*_REFUSED, keyless=True, validated=False))
async def signed_in(request: Request, box: TheBox, _: OwnPage) -> SignInShape | None:
    """The tenant and role of the key that the browser signed in with; null: nobody is signed in."""
    cookie = cookie_of(request.scope, dict(request.scope["headers"]))
    principal = None if cookie is None else box.keyring.known(box.browsers.sign_ins.key_of(cookie))
    return None if principal is None else SignInShape(tenant=principal.tenant, role=principal.role)


@router.delete(
    "",
    status_code=204,
    response_class=Response,
    summary="Sign out",
    responses=problems(*_REFUSED, keyless=True, validated=False),
)
async def sign_out(request: Request, box: TheBox, _: OwnPage) -> Response:
    """The cookie stands for nothing any more; without one nothing happens."""
    cookie = cookie_of(request.scope, dict(request.scope["headers"]))
    if cookie is not None:
        principal = box.keyring.known(box.browsers.sign_ins.key_of(cookie))
        if principal is not None:
            note_actor(request.scope, principal)
        box.browsers.sign_ins.end(cookie)
        await box.browsers.save()
    return Response(status_code=204, headers={"Set-Cookie": set_cookie(request.scope, "")})
