"""Tenants and their keys."""

import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from appliance.api.auth.keyring import Principal, digest_of, new_key, new_key_id
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.v1.deps import Admin, Cursor, Limit, Member, TheBox, every_tenant
from appliance.api.v1.pages import page
from appliance.api.v1.tenant_use import use_of
from appliance.domain.access import EXPIRES_SOON, KeyRecord, Role
from appliance.domain.catalogue import DEFAULT_TENANT, Quota, Tenant
from appliance.domain.errors import (
    AlreadyExists,
    ApplicationInUse,
    BadMetadata,
    BadName,
    BadQuota,
    Forbidden,
    InUse,
    Overcommitted,
    QuotaExceeded,
    StorageFull,
    UnknownApplication,
    UnknownKey,
    UnknownPipeline,
    UnknownTenant,
)
from appliance.domain.names import pipeline_id
from appliance.wire.access import (
    KeyOrder,
    KeyShape,
    NewKeyShape,
    QuotaShape,
    TenantChange,
    TenantOrder,
    TenantShape,
    TenantWithUseShape,
)
from appliance.wire.shape import Deleted, Page

router = APIRouter(prefix="/v1/tenants", tags=["tenants"], route_class=StrictRoute)

TenantName = Annotated[str, Path(description="Name of the tenant.", examples=["harbour"])]
KeyId = Annotated[str, Path(description="Id of the key, as the list shows it.", examples=["5f1c0a9be2d4"])]


@router.post(
    "",
    status_code=201,
    summary="Make a tenant",
    responses=problems(Forbidden, BadName, AlreadyExists, BadQuota, Overcommitted),
)
async def create_tenant(order: TenantOrder, box: TheBox, _: Admin) -> TenantShape:
    """A tenant owns models, applications, keys and a quota; it sees nothing of other tenants but what they share.

    Next: make a key for its developer with `POST /v1/tenants/{tenant}/keys`. Needs an admin key.
    """
    tenant = await box.store.tenants.create(Tenant(order.name, _quota(box, order.quota)), box.shares.budget_bytes)
    return TenantShape.model_validate(tenant)


@router.get("", summary="List tenants", response_model=Page[TenantShape], responses=problems())
async def list_tenants(box: TheBox, principal: Member, cursor: Cursor = "", limit: Limit = 100) -> Response:
    """An admin sees all tenants by name; a tenant's key sees its own."""
    if principal.is_admin:
        found = await box.turns.alone(principal.tenant, lambda: box.store.tenants.page(cursor, limit + 1))
    else:
        found = [box.catalogue.tenant(principal.tenant)]
    return await page(box.turns, principal.tenant, found, limit, _name, TenantShape.model_validate)


@router.get("/{tenant}", summary="Show a tenant", responses=problems(UnknownTenant))
async def show_tenant(tenant: TenantName, box: TheBox, principal: Member) -> TenantWithUseShape:
    """The tenant with its quota, and what it uses of that."""
    shown = TenantShape.model_validate(_visible(box, principal, tenant))
    return TenantWithUseShape(name=shown.name, quota=shown.quota, use=await use_of(box, tenant))


@router.put(
    "/{tenant}",
    summary="Change a tenant's quota",
    responses=problems(Forbidden, UnknownTenant, BadQuota, Overcommitted),
)
async def change_tenant(tenant: TenantName, change: TenantChange, box: TheBox, _: Admin) -> TenantShape:
    """The new quota replaces the old one whole and holds at once. Needs an admin key.

    Below a lowered memory ceiling, models leave that are in use with their last running request. A guarantee for which
    the budget has no room beside those of the others is refused (409).
    """
    changed = await box.store.tenants.update(Tenant(tenant, _quota(box, change.quota)), box.shares.budget_bytes)
    return TenantShape.model_validate(changed)


@router.delete(
    "/{tenant}", summary="Delete a tenant", responses=problems(Forbidden, UnknownTenant, InUse, ApplicationInUse)
)
async def delete_tenant(tenant: TenantName, box: TheBox, _: Admin) -> Deleted:
    """Removes the tenant with its keys, pipelines, applications and job history. Delete its models first. Needs an
    admin key.
    """
    await box.store.tenants.delete(tenant)
    return Deleted(deleted=tenant)


@router.post(
    "/{tenant}/keys",
    status_code=201,
    summary="Make a key",
    responses=problems(
        Forbidden, UnknownTenant, UnknownApplication, UnknownPipeline, BadMetadata, QuotaExceeded, StorageFull
    ),
)
async def create_key(tenant: TenantName, order: KeyOrder, box: TheBox, principal: Member) -> NewKeyShape:
    """The answer holds the key itself, once: the box keeps only its SHA-256.

    A `tenant` key does everything within its tenant, a `device` key only calls applications (those it names, or all). A
    tenant's key may make tenant and device keys of its own tenant; admin keys belong to the tenant `default` and need
    an admin key. A key that expires makes no key that lives longer. The applications and pipelines that a device key
    names must be there.
    """
    _visible(box, principal, tenant)
    if order.role is Role.ADMIN and not (principal.is_admin and tenant == DEFAULT_TENANT):
        raise Forbidden(action="make admin keys; an admin makes them in the tenant 'default'")
    key = new_key()
    record = _record(box, tenant, order, key)
    _refuse_longer_life(principal, record)
    for application in record.applications:
        box.catalogue.resolve(tenant, application)
    for pipeline in record.pipelines:
        box.pipelines.get(pipeline_id(tenant, pipeline))
    record = await box.store.keys.create(record)
    return NewKeyShape(**KeyShape.model_validate(record).model_dump(), key=key)


@router.get(
    "/{tenant}/keys",
    summary="List keys",
    response_model=Page[KeyShape],
    responses=problems(Forbidden, UnknownTenant),
)
async def list_keys(
    tenant: TenantName, box: TheBox, principal: Member, cursor: Cursor = "", limit: Limit = 100
) -> Response:
    """Keys of a tenant with role, expiry, label and last use; never the secret. `*` as the tenant, with an admin key:
    those of all tenants.
    """
    if not await every_tenant(principal, "*" if tenant == "*" else None):
        _visible(box, principal, tenant)
    of_tenant = None if tenant == "*" else tenant
    keys = await box.turns.alone(principal.tenant, lambda: box.store.keys.page(of_tenant, cursor, limit + 1))
    uses = await box.store.keys.uses([key.id for key in keys])
    soon = box.clock.wall_now() + EXPIRES_SOON

    def shape(key: KeyRecord) -> KeyShape:
        is_soon = key.expires_at is not None and key.expires_at < soon
        more = {"used_at": uses.get(key.id), "expires_soon": is_soon}
        return KeyShape.model_validate(key).model_copy(update=more)

    return await page(box.turns, principal.tenant, keys, limit, lambda key: key.id, shape)


@router.delete("/{tenant}/keys/{key}", summary="Revoke a key", responses=problems(UnknownTenant, UnknownKey))
async def revoke_key(tenant: TenantName, key: KeyId, box: TheBox, principal: Member) -> Deleted:
    """The key stops working at once, also the one that you are using."""
    _visible(box, principal, tenant)
    record = await box.store.keys.get(key)
    if record.tenant != tenant or (record.role is Role.ADMIN and not principal.is_admin):
        raise UnknownKey(name=key)
    await box.store.keys.revoke(key)
    return Deleted(deleted=key)


def _name(tenant: Tenant) -> str:
    return tenant.name


def _quota(box: RunningBox, shape: QuotaShape) -> Quota:
    """Raises: BadQuota."""
    quota = Quota(**shape.model_dump())
    ceiling = quota.ceiling_bytes(box.shares.budget_bytes)
    if ceiling is not None and (quota.memory_guarantee_bytes or 0) > ceiling:
        raise BadQuota(
            reason=f"{quota.memory_guarantee_bytes} bytes are more than the ceiling of {ceiling}: nothing above it "
            f"can be guaranteed"
        )
    return quota


def _visible(box: RunningBox, principal: Principal, tenant: str) -> Tenant:
    """Any tenant for an admin, its own for others. Raises: UnknownTenant."""
    if not principal.is_admin and tenant != principal.tenant:
        raise UnknownTenant(name=tenant)
    return box.catalogue.tenant(tenant)


def _refuse_longer_life(principal: Principal, key: KeyRecord) -> None:
    """A key that is lent for a while must not be a way to stay. Raises: Forbidden."""
    limit = principal.expires_at
    if limit is not None and (key.expires_at is None or key.expires_at > limit):
        raise Forbidden(action=f"make a key that lives longer than itself, until {limit.isoformat(timespec='seconds')}")


def _record(box: RunningBox, tenant: str, order: KeyOrder, key: str) -> KeyRecord:
    now = box.clock.wall_now()
    expires_at = order.expires_at
    if order.expires_in_s is not None:
        expires_at = now + datetime.timedelta(seconds=min(order.expires_in_s, 1e9))
    if expires_at is not None and expires_at <= now:
        raise BadMetadata(reason="expires_at: lies in the past")
    if order.applications and order.role is not Role.DEVICE:
        raise BadMetadata(reason="applications: only device keys are bound to applications")
    if order.pipelines and order.role is not Role.DEVICE:
        raise BadMetadata(reason="pipelines: only device keys are bound to pipelines")
    return KeyRecord(
        new_key_id(),
        tenant,
        order.role,
        digest_of(key),
        now,
        tuple(order.applications),
        expires_at,
        order.label,
        tuple(order.pipelines),
    )
