"""`appliance plan`: what would the box decide, and why? Offline: it needs no box."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def plan(
    file: Annotated[
        Path,
        typer.Argument(
            help="JSON file with one problem, a list of them or a page of /v1/decisions; - reads standard input.",
            allow_dash=True,
        ),
    ],
) -> None:
    """Answer a written decision problem (or a list of them) as the box would.

    The answer is JSON on standard output. A malformed problem gives one line that names the key, and status 2.

    [dim]$[/dim] appliance plan problem.json
    [dim]$[/dim] appliance plan - < problems.json
    """
    from appliance.lab.plan import plan_text
    from appliance.lab.problems.base import Malformed

    try:
        text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        outcome = plan_text(text.decode())
    except UnicodeDecodeError:
        print("not JSON: the text is not UTF-8", file=sys.stderr)
        raise typer.Exit(2) from None
    except Malformed as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    print(json.dumps(outcome.answer, ensure_ascii=False))
    if outcome.malformed:
        raise typer.Exit(2)
