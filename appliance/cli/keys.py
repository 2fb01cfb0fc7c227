"""`appliance keys`: secrets that open the box for a tenant, a device or an operator."""

import re
from typing import Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

app = typer.Typer(no_args_is_help=True, help="Keys, and what they open.")

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@app.command("list")
@connected
def list_keys(box: Connection, tenant: Annotated[str, typer.Argument(help="Whose keys.")]) -> None:
    """List a tenant's keys: role, expiry, label and last use, never the secret.

    [dim]$[/dim] appliance keys list harbour
    """
    with box.client() as client:
        box.table(
            client.keys(tenant),
            ("id", "role", "label", "may call", "made", "expires", "last used"),
            lambda k: (
                k.id,
                k.role,
                k.label,
                ", ".join([*k.applications, *(f"{name} (pipeline)" for name in k.pipelines)]) or "all",
                _day(k.created_at),
                _day(k.expires_at) + (" (soon)" if k.expires_soon else ""),
                _day(k.used_at),
            ),
            f"Tenant {tenant} has no key; make one with: appliance keys create {tenant}",
        )


@app.command("create")
@connected
def create_key(
    box: Connection,
    tenant: Annotated[str, typer.Argument(help="What the key is for.")],
    role: Annotated[
        str,
        typer.Option(
            help="tenant: everything of the tenant; device: only calls applications; admin: the whole box (tenant "
            "default)."
        ),
    ] = "tenant",
    application: Annotated[
        list[str] | None, typer.Option(help="What a device key may call; several times for several. Without it: all.")
    ] = None,
    pipeline: Annotated[
        list[str] | None, typer.Option(help="A pipeline that a device key may call; several times for several.")
    ] = None,
    label: Annotated[str, typer.Option(help="For people: where the key is used.")] = "",
    expires_in: Annotated[str | None, typer.Option(help="12h, 30d ...; without it the key does not expire.")] = None,
) -> None:
    """Make a key. The secret is printed once, on standard output; the box keeps only its SHA-256.

    [dim]$[/dim] appliance keys create harbour
    [dim]$[/dim] appliance keys create harbour --role device --application signs --expires-in 30d --label "glasses 7"
    [dim]$[/dim] export APPLIANCE_KEY=$(appliance keys create harbour)
    """
    from appliance.domain.access import Role
    from appliance.wire.access import KeyOrder

    if role not in tuple(Role):
        raise typer.BadParameter(f"{role!r} is no role; use one of {', '.join(Role)}", param_hint="--role")
    order = KeyOrder(
        role=Role(role),
        applications=application or [],
        pipelines=pipeline or [],
        label=label,
        expires_in_s=_seconds(expires_in),
    )
    with box.client() as client:
        key = client.create_key(tenant, order)
    if not box.as_json:
        screen.say(f"A {key.role} key for tenant {tenant}, id {key.id}. It cannot be shown again:")
    box.tell(key, key.key)


@app.command("revoke")
@connected
def revoke_key(box: Connection, tenant: str, key_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Take a key away; it stops working at once.

    [dim]$[/dim] appliance keys revoke harbour 5f1c0a9be2d4
    """
    with box.client() as client:
        client.revoke_key(tenant, key_id)
    print(f"key {key_id} is revoked")


@app.command("rotate-admin")
@connected
def rotate_admin(box: Connection) -> None:
    """Replace the admin key of this machine's box: make a new one, write it to STATE/admin.key (0600), revoke the one
    before.

    Other admin keys stay; see them with: appliance keys list default

    [dim]$[/dim] appliance keys rotate-admin --state /var/lib/appliance
    """
    from appliance.domain.access import Role
    from appliance.domain.catalogue import DEFAULT_TENANT
    from appliance.terminal.private import write_private
    from appliance.wire.access import KeyOrder

    file = box.state / "admin.key"
    if not file.exists():
        raise CommandFailed(f"there is no {file}; run this on the box itself and name its state folder with --state")
    label = f"written to {file.name}"
    with box.client() as client:
        old = [key.id for key in client.keys(DEFAULT_TENANT) if key.role is Role.ADMIN and key.label == label]
        new = client.create_key(DEFAULT_TENANT, KeyOrder(role=Role.ADMIN, label=label))
        write_private(file, new.key + "\n")
        for key_id in old:
            client.revoke_key(DEFAULT_TENANT, key_id)
    print(f"{file} holds a new admin key; the old one no longer works")


def _seconds(text: str | None) -> float | None:
    """`30d` → 2592000. Raises: BadParameter."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if not match or float(match[1]) == 0:
        raise typer.BadParameter("say a number and s, m, h or d, for example 30d", param_hint="--expires-in")
    return float(match[1]) * _SECONDS[match[2]]


def _day(moment: object) -> str:
    return "never" if moment is None else str(moment)[:16]
