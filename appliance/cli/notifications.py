"""`appliance notifications`: receivers of messages on conditions."""

from typing import Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed

app = typer.Typer(no_args_is_help=True, help="Receivers of messages when conditions begin and end.")

Id = Annotated[str, typer.Argument(metavar="ID", help="As the list shows it.")]


@app.command("list")
@connected
def list_receivers(box: Connection) -> None:
    """List the tenant's receivers, with an admin key also the box's, each with the result of the latest message.

    [dim]$[/dim] appliance notifications list
    """
    with box.client() as client:
        box.table(
            client.receivers(),
            ("id", "tenant", "name", "kind", "where", "from", "state", "latest message"),
            lambda one: (
                one.id,
                one.tenant or "all",
                one.name,
                one.kind,
                one.origin,
                one.severity_min,
                one.state,
                "–" if one.last is None else f"{one.last.at:%Y-%m-%d %H:%M} {one.last.detail}",
            ),
            "There is no receiver; add one with: appliance notifications add",
        )


@app.command("add")
@connected
def add_receiver(
    box: Connection,
    name: Annotated[str, typer.Argument(help="Name for people, such as the person who reads the messages.")],
    address: Annotated[
        str, typer.Argument(metavar="URL", help="Address of the webhook, of the ntfy topic or of the Gotify server.")
    ],
    kind: Annotated[str, typer.Option(help="webhook: a JSON document; ntfy: text to a topic; gotify.")] = "webhook",
    token: Annotated[
        str,
        typer.Option(
            help="Sent as Authorization: Bearer, to Gotify as X-Gotify-Key.", envvar="APPLIANCE_RECEIVER_TOKEN"
        ),
    ] = "",
    severity_min: Annotated[str, typer.Option(help="warn: all; bad: only what needs a person now.")] = "warn",
    of_box: Annotated[
        bool, typer.Option("--of-box", help="Send conditions of the box and of all tenants; needs an admin key.")
    ] = False,
) -> None:
    """Add a receiver of messages when conditions begin and end. Address and token are not shown again.

    [dim]$[/dim] appliance notifications add "harbour phone" https://ntfy.example.org/harbour-7Qm2 --kind ntfy
    [dim]$[/dim] appliance notifications add operator https://gotify.example.org --kind gotify --of-box --token TOKEN
    [dim]$[/dim] appliance notifications add pager https://example.org/hook --severity-min bad
    """
    from pydantic import ValidationError

    from appliance.wire.notifications import ReceiverOrder

    asked = {"name": name, "url": address, "kind": kind, "token": token, "severity_min": severity_min, "of_box": of_box}
    try:
        order = ReceiverOrder.model_validate(asked)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise typer.BadParameter(f"{first['loc'][0]}: {first['msg']}") from None
    with box.client() as client:
        receiver = client.add_receiver(order)
    box.tell(receiver, f"receiver {receiver.id} is added; try it with: appliance notifications test {receiver.id}")


@app.command("remove")
@connected
def remove_receiver(box: Connection, receiver: Id) -> None:
    """Remove a receiver: nothing more is sent to it.

    [dim]$[/dim] appliance notifications remove 7c2e91a04bd8
    """
    with box.client() as client:
        client.remove_receiver(receiver)
    print(f"receiver {receiver} is removed")


@app.command("test")
@connected
def test_receiver(box: Connection, receiver: Id) -> None:
    """Send a test message and print its result; the exit status is 1 if the message did not arrive.

    [dim]$[/dim] appliance notifications test 7c2e91a04bd8
    """
    with box.client() as client:
        sent = client.test_receiver(receiver)
    if box.as_json:
        screen.show_json(sent)
    if sent.outcome != "delivered":
        raise CommandFailed(f"{sent.outcome}: {sent.detail}")
    if not box.as_json:
        print(f"delivered: {sent.detail}")
