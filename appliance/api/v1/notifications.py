"""Receivers of notifications over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from appliance.api.auth.keyring import Principal, new_key_id
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.v1.deps import Cursor, EveryTenant, Limit, Member, TheBox
from appliance.api.v1.pages import page
from appliance.domain.errors import (
    BadReceiver,
    Forbidden,
    QuotaExceeded,
    StorageFull,
    TooManyTests,
    UnknownReceiver,
    UnknownTenant,
)
from appliance.domain.health.conditions import Severity
from appliance.domain.notifications.receivers import Receiver, checked
from appliance.wire.notifications import ReceiverOrder, ReceiverShape, SentShape
from appliance.wire.shape import Deleted, Page

router = APIRouter(prefix="/v1/notifications", tags=["notifications"], route_class=StrictRoute)

ReceiverId = Annotated[str, Path(description="Id of the receiver, as the list shows it.", examples=["7c2e91a04bd8"])]


@router.post(
    "",
    status_code=201,
    summary="Add a receiver of notifications",
    responses=problems(Forbidden, BadReceiver, UnknownTenant, QuotaExceeded, StorageFull),
)
async def add_receiver(order: ReceiverOrder, box: TheBox, principal: Member) -> ReceiverShape:
    """Messages are sent to the receiver when a condition of the tenant (`GET /v1/health`), such as a broken promise,
    begins and ends. The first message names the present conditions. With `of_box` and an admin key: the conditions of
    the box and of all tenants.

    Address and token are not shown again. Private addresses are refused unless the operator permits their network.
    """
    if order.of_box and not principal.is_admin:
        raise Forbidden(action="have others told of the whole box; it needs an admin key")
    receiver = Receiver(
        new_key_id(),
        None if order.of_box else principal.tenant,
        order.name,
        order.kind,
        order.url,
        order.token,
        Severity(order.severity_min),
        box.clock.wall_now(),
    )
    return _shape(box, await box.store.receivers.create(checked(receiver)))


@router.get(
    "",
    summary="List receivers of notifications",
    response_model=Page[ReceiverShape],
    responses=problems(Forbidden, UnknownTenant),
)
async def list_receivers(
    box: TheBox, principal: Member, is_every: EveryTenant, cursor: Cursor = "", limit: Limit = 100
) -> Response:
    """Receivers of the tenant, each with the result of the latest message; an admin key also sees those of the box."""
    tenants = None if is_every else [principal.tenant, *([None] if principal.is_admin else [])]
    found = await box.turns.alone(principal.tenant, lambda: box.store.receivers.page(tenants, cursor, limit + 1))
    return await page(box.turns, principal.tenant, found, limit, lambda one: one.id, lambda one: _shape(box, one))


@router.get("/{receiver}", summary="Show a receiver of notifications", responses=problems(UnknownReceiver))
async def show_receiver(receiver: ReceiverId, box: TheBox, principal: Member) -> ReceiverShape:
    """The receiver and the result of the latest message to it."""
    return _shape(box, await _visible(box, principal, receiver))


@router.delete("/{receiver}", summary="Remove a receiver of notifications", responses=problems(UnknownReceiver))
async def remove_receiver(receiver: ReceiverId, box: TheBox, principal: Member) -> Deleted:
    """Nothing more is sent to the receiver."""
    await _visible(box, principal, receiver)
    await box.store.receivers.delete(receiver)
    return Deleted(deleted=receiver)


@router.post(
    "/{receiver}/test",
    summary="Send a test message",
    responses=problems(UnknownReceiver, TooManyTests),
)
async def test_receiver(receiver: ReceiverId, box: TheBox, principal: Member) -> SentShape:
    """Send a message now, and answer with its result; the status is 200 also where the message did not arrive
    (`outcome`). This takes at most 10 s. Of the receiver's answer the box reads only the status.
    """
    await _visible(box, principal, receiver)
    return SentShape.model_validate(await box.notifications.test(receiver))


async def _visible(box: RunningBox, principal: Principal, id: str) -> Receiver:
    """Return any receiver for an admin, and one of its own tenant for another key. Raises: UnknownReceiver."""
    receiver = await box.store.receivers.get(id)
    if not principal.is_admin and receiver.tenant != principal.tenant:
        raise UnknownReceiver(name=id)
    return receiver


def _shape(box: RunningBox, receiver: Receiver) -> ReceiverShape:
    status = box.notifications.status(receiver.id)
    return ReceiverShape(
        id=receiver.id,
        tenant=receiver.tenant,
        name=receiver.name,
        kind=receiver.kind,
        origin=receiver.destination.origin,
        has_token=receiver.has_token,
        severity_min="bad" if receiver.severity_min is Severity.BAD else "warn",
        created_at=receiver.created_at,
        state=status.state,
        last=None if status.last is None else SentShape.model_validate(status.last),
        failures=status.failures,
    )
