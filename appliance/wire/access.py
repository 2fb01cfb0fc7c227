"""Tenants, their quotas, and keys."""

import datetime

from pydantic import ConfigDict, Field

from appliance.domain.access import Role
from appliance.domain.isolation import Isolation
from appliance.wire.fields import INTEGER_MAX, Instant, Real, Text, Whole
from appliance.wire.shape import WEIGHT_MAX, Order, Shape


class QuotaShape(Order):
    """What a tenant may use; null = no limit."""

    model_config = ConfigDict(from_attributes=True)

    requests_per_s: Real | None = Field(None, gt=0, le=1e9, examples=[50])
    """Requests a second, with bursts of one second's worth; more get 429."""
    concurrent_requests: Whole | None = Field(None, ge=1, le=INTEGER_MAX, examples=[16])
    """Requests under way at once; more get 429."""
    memory_guarantee_bytes: Whole | None = Field(None, ge=0, le=INTEGER_MAX, examples=[100_000_000])
    """Memory that the tenant's models can count on: what of it they hold is not taken for other tenants.

    All guarantees together fit the budget.
    """
    memory_ceiling_bytes: Whole | None = Field(None, ge=1, le=INTEGER_MAX, examples=[400_000_000])
    """The most memory that the tenant's models take: beyond it, they make room for one another.

    Not below the guarantee.
    """
    memory_share: Real | None = Field(None, gt=0, le=1, examples=[0.5])
    """The same as a share of the box's memory budget; where both are set, the lower one holds."""
    stored_bytes: Whole | None = Field(None, ge=0, le=INTEGER_MAX, examples=[2_000_000_000])
    """Bytes of models and uploads on disk; more get 429. null: half of the disk while there are other tenants, else the
    whole."""
    processor_weight: Real = Field(1.0, gt=0, le=WEIGHT_MAX, examples=[3.0])
    """Its part of the processor's time while other tenants want some, too; alone a tenant has all of it."""
    isolation: Isolation | None = Field(None, examples=["auto"])
    """Which of the tenant's models run in a process of their own: `auto` (those not shown to be harmless), `process`
    (all) or `none`; null = as the box has it.
    """


class TenantOrder(Order):
    """A new tenant."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "harbour", "quota": {"requests_per_s": 50, "concurrent_requests": 16}}]
        }
    )

    name: Text = Field(examples=["harbour"])
    """1 to 63 of a-z 0-9 . _ - and starting with a letter or digit."""
    quota: QuotaShape = QuotaShape()


class TenantChange(Order):
    """A new quota; it replaces the old one whole."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"quota": {"requests_per_s": 100}}]})

    quota: QuotaShape


class TenantShape(Shape):
    """Who pays."""

    name: str = Field(examples=["harbour"])
    quota: QuotaShape


class TenantUseShape(Shape):
    """What a tenant uses of what it may: beside each limit of a quota."""

    requests_per_s: float | None = Field(examples=[3.2])
    """That it sent, in the mean of the last minute; null: nothing was sampled yet, or the box keeps no history."""
    concurrent_requests: int = Field(examples=[2])
    """Under way now."""
    memory_bytes: int
    """What its models take now, those being loaded with their peak."""
    stored_bytes: int
    """Of its models, equal contents once, and of its uploads, with what was announced of them."""
    processor_s: float = Field(examples=[41.7])
    """Processor time of its requests and frames since the start of the box; of a shared run, the part of its rows."""


class TenantWithUseShape(TenantShape):
    """A tenant, and what it uses."""

    use: TenantUseShape


class KeyOrder(Order):
    """A new key."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"role": "device", "applications": ["signs"], "label": "glasses 7", "expires_in_s": 2592000}]
        }
    )

    role: Role = Role.TENANT
    """`tenant`: everything of the tenant; `device`: calls only; `admin`: the whole box (tenant `default` only)."""
    applications: list[Text] = Field(default_factory=list, max_length=256, examples=[["signs"]])
    """Names of the applications a device key may call; empty, with `pipelines`: all that its tenant sees."""
    pipelines: list[Text] = Field(default_factory=list, max_length=64, examples=[["signs"]])
    """Names of the pipelines a device key may call; empty, with `applications`: all of its tenant. Who may call a
    pipeline may ask its applications through it only."""
    label: Text = Field("", max_length=200, examples=["glasses 7"])
    """For a person: where the key is used."""
    expires_at: Instant | None = None
    """When it stops working (ISO 8601 with a zone)."""
    expires_in_s: Real | None = Field(None, gt=0, examples=[2592000])
    """The same, counted from now."""


class KeyShape(Shape):
    """A key as the box knows it; the secret itself is nowhere stored."""

    id: str = Field(examples=["5f1c0a9be2d4"])
    tenant: str = Field(examples=["harbour"])
    role: Role
    applications: list[str]
    pipelines: list[str] = Field([])
    label: str
    created_at: datetime.datetime
    expires_at: datetime.datetime | None
    expires_soon: bool = False
    """Within a week."""
    used_at: datetime.datetime | None = None
    """When it was used last, to a minute; null: never."""


class NewKeyShape(KeyShape):
    """A key just made; the only time its secret is told."""

    key: str = Field(examples=["ea_H0wLdS9tqZb1mJk4xVnC7rYf2uPgA6eTiWsQoBzM3Ec"])
    """Send it as `Authorization: Bearer KEY`. It cannot be shown again."""


class SignInOrder(Order):
    """A key or the token of a link, for a cookie."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"key": "ea_H0wLdS9tqZb1mJk4xVnC7rYf2uPgA6eTiWsQoBzM3Ec"}]}
    )

    key: Text | None = Field(None, max_length=200)
    """An admin's or a tenant's."""
    link: Text | None = Field(None, max_length=200)
    """In its place: the token of a sign-in link (`POST /v1/sign-in/links`), which is good once."""


class SignInLinkShape(Shape):
    """A link that signs a browser in, once."""

    path: str = Field(examples=["/#sign-in=Zk3v9cXo1nYwR5tLq8sGmJ2dHb7aPfUe4iKxN0yVrTQ"])
    """Behind the box's address. What follows `#` is not sent with the page: it stands in no log."""
    expires_at: datetime.datetime


class SignInShape(Shape):
    """Who is signed in."""

    tenant: str = Field(examples=["harbour"])
    role: Role
