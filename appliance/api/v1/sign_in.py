"""Signing in: a browser shows a key once and gets a cookie for it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from appliance.api.audit_trail import note_actor
from appliance.api.auth.browsers import cookie_of, set_cookie
from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.v1.deps import Member, TheBox
from appliance.domain.access import Role
from appliance.domain.errors import (
    BadInput,
    Forbidden,
    ForeignOrigin,
    TlsRequired,
    TooLarge,
    TooManyFailedKeys,
    WrongKey,
)
from appliance.wire.access import SignInLinkShape, SignInOrder, SignInShape

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
    responses=problems(WrongKey, Forbidden, BadInput, TooLarge, TooManyFailedKeys, *_REFUSED, keyless=True),
)
async def sign_in(order: SignInOrder, request: Request, box: TheBox, _: OwnPage) -> Response:
    """Exchanges a key for a cookie, or the token of a link, which stands for the key that made it. With the cookie the
    browser may do under `/v1` and `/metrics` what the key may; under `/v2` it may do nothing.

    The sign-in ends after 12 hours without a request, after 7 days, and with its key. Device keys cannot sign in (403).
    """
    if (order.key is None) == (order.link is None):
        raise BadInput(reason="send either a key or the token of a link")
    address = request.client.host if request.client else ""
    link = None if order.link is None else box.sign_in_links.take(order.link)
    if order.link is not None:
        principal = box.keyring.principal(None if link is None else link.key_id, None, address)
    else:
        principal = box.keyring.authenticate(f"Bearer {order.key}".encode(), None, address)
    if principal.role is Role.DEVICE:
        raise Forbidden(action="sign in; it may only call applications")
    note_actor(request.scope, principal)
    before = cookie_of(request.scope, dict(request.scope["headers"]))
    if before is not None:
        box.browsers.sign_ins.end(before)
    cookie = box.browsers.sign_ins.begin(principal.key_id, None if link is None else link.began_at)
    await box.browsers.save()
    return Response(status_code=204, headers={"Set-Cookie": set_cookie(request.scope, cookie)})


@router.post(
    "/links",
    status_code=201,
    summary="Make a link that signs a browser in",
    responses=problems(Forbidden, validated=False),
)
async def make_link(request: Request, box: TheBox, principal: Member) -> SignInLinkShape:
    """The link opens the pages on a phone or another machine, signed in as the key that made it. It works once,
    within ten minutes, and not after a restart of the box. The sign-in by a link that a signed-in page has made ends
    with that page's 7 days.
    """
    headers = dict(request.scope["headers"])
    cookie = None if b"authorization" in headers else cookie_of(request.scope, headers)
    began_at = None if cookie is None else box.browsers.sign_ins.began_at(cookie)
    token, expires_at = box.sign_in_links.make(principal.key_id, began_at)
    return SignInLinkShape(path=f"/#sign-in={token}", expires_at=expires_at)


@router.get("", summary="The key that is signed in", responses=problems(*_REFUSED, keyless=True, validated=False))
async def signed_in(request: Request, box: TheBox, _: OwnPage) -> SignInShape | None:
    """The tenant and role of the key that the browser signed in with; null: it is not signed in."""
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
