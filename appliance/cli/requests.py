"""`appliance requests`: what became of requests that are answered later."""

from typing import Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.cli.frame_text import tree_of
from appliance.cli.predict import lines_of
from appliance.terminal import screen

app = typer.Typer(no_args_is_help=True, help="Requests that are answered later: appliance predict --no-wait.")


@app.command("show")
@connected
def show_request(box: Connection, request_id: Annotated[str, typer.Argument(metavar="REQUEST")]) -> None:
    """Show the answer to a request, or how far it is; exit status 1 when it failed. It is kept for a minute.

    [dim]$[/dim] appliance requests show 0f8fad5bd9cb469fa16570867728950e
    """
    from appliance.client.errors import failure_of
    from appliance.wire.pipelines import FrameShape

    with box.client() as client:
        request = client.request(request_id)
    if box.as_json:
        screen.show_json(request.model_dump(mode="json", exclude_none=True))
        return
    if request.problem is not None:
        raise failure_of(request.problem, int(request.problem.get("status", 500)))
    if request.result is None:
        print(f"{request.id}   {request.state}")
        return
    is_frame = isinstance(request.result, FrameShape)
    for line in (tree_of if is_frame else lines_of)(request.result.model_dump(mode="json")):
        print(line)
