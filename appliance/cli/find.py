"""`appliance find`: the boxes that tell of themselves on the local network."""

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from appliance.terminal import screen
from appliance.terminal.failure import CommandFailed


def find(
    seconds: Annotated[float, typer.Option(min=0.1, max=60, help="How long to wait for answers.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """Find boxes on the local network: those with `discovery.enabled`.

    A hint, never a proof: anybody on the network can answer. Compare the fingerprint with what the installer of the box
    has said before you trust it.

    [dim]$[/dim] appliance find
    [dim]$[/dim] appliance find --seconds 5 --json
    """
    from appliance.discovery.finding import find as listen

    try:
        boxes = asyncio.run(listen(seconds))
    except ImportError as error:
        raise CommandFailed("it takes the package zeroconf, the extra `discovery` (docs/operations.md)") from error
    except OSError as error:
        raise CommandFailed(f"the local network cannot be asked ({error})") from error
    if as_json:
        screen.show_json([asdict(box) | {"url": box.url} for box in boxes])
        return
    rows = [[box.name, box.url, box.version, "yes" if box.tls else "no", box.fingerprint] for box in boxes]
    screen.show_table(["name", "address", "version", "TLS", "fingerprint, SHA-256"], rows, "no box has answered")
