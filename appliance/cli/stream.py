"""`appliance stream`: be a device, or several, and see what was promised and what is kept."""

from typing import Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.terminal import screen


@connected
def stream(
    box: Connection,
    source: Annotated[
        str, typer.Argument(help="A video file, the number of a camera, or pan:PHOTO, over which the view moves.")
    ],
    application: Annotated[str | None, typer.Option("--application", "-a", help="Name of the application.")] = None,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", "-p", help="Name of a pipeline, in the place of an application.")
    ] = None,
    slo_ms: Annotated[
        float | None, typer.Option(help="Promise a latency: milliseconds from capture to answer.", min=1)
    ] = None,
    drop: Annotated[
        float | None, typer.Option(help="Promise an accuracy: what may be lost against fresh results, 0 to 1.", min=0)
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="With --slo-ms: frames to send in a second \\[default: all]", min=0.01)
    ] = None,
    fps: Annotated[float | None, typer.Option(help="Frames in a second \\[default: the source's]", min=0.1)] = None,
    devices: Annotated[int, typer.Option(help="How many devices to be.", min=1, max=100)] = 1,
    duration_s: Annotated[float | None, typer.Option(help="Seconds; without it until Ctrl-C.", min=0.1)] = None,
    wait: Annotated[bool, typer.Option(help="Wait for room where the promise is not possible now.")] = False,
) -> None:
    """Stream frames to an application, or through a pipeline, with a promise, and show what is promised and kept.

    Each device joins a session, sends what the box plans for it, tracks what was found between results, and leaves in
    the end. A promise that is not possible is refused at once, with others that are.

    [dim]$[/dim] appliance stream 0 --application faces --slo-ms 150
    [dim]$[/dim] appliance stream street.mp4 --application street --drop 0.05 --devices 4
    [dim]$[/dim] appliance stream street.mp4 --pipeline signs --slo-ms 600 --rate 5
    [dim]$[/dim] appliance stream pan:photo.jpg --application faces --slo-ms 200 --duration-s 20 --json
    """
    if (slo_ms is None) == (drop is None):
        raise typer.BadParameter("give either --slo-ms or --drop")
    if (application is None) == (pipeline is None):
        raise typer.BadParameter("give either --application or --pipeline")
    from appliance.cli.streaming import Asked, document_of, streamed, table_of
    from appliance.client.device import Box

    asked = Asked(source, application, pipeline, slo_ms, drop, rate, fps, devices, duration_s, wait)
    stays = streamed(Box(box.url, box.key, box.tenant, box.ca, box.fingerprint), asked, stderr=box.as_json)
    if box.as_json:
        screen.show_json(document_of(stays))
    else:
        screen.console().print(table_of(stays))
