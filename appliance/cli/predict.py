"""`appliance predict`: one picture, sound, text or tensor file in, the answer out."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.connection import Connection, connected
from appliance.domain.accuracy import ACCURACY
from appliance.terminal import screen
from appliance.terminal.media import content_type_of

if TYPE_CHECKING:
    from appliance.client.client import PredictOptions
    from appliance.wire.requests import RequestShape


@connected
def predict(
    box: Connection,
    application: Annotated[str, typer.Argument(help="Name of the application.")],
    file: Annotated[
        Path | None, typer.Argument(help="JPEG, PNG, WebP, BMP, GIF, TIFF, WAV, text, or JSON; - reads standard input.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Text instead of a file.")] = None,
    content_type: Annotated[str | None, typer.Option(help="What the file is, where its name does not tell.")] = None,
    variant: Annotated[str | None, typer.Option(help="Use this variant; without it the box chooses.")] = None,
    timeout_ms: Annotated[float | None, typer.Option(help="Deadline of the request.", min=1)] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the answer, or show an id to fetch it by.")
    ] = True,
) -> None:
    """Send one input to an application and show what it answers.

    [dim]$[/dim] appliance predict faces photo.jpg --tenant harbour
    [dim]$[/dim] appliance predict meaning --text "where is the harbour master?"
    [dim]$[/dim] appliance predict faces photo.jpg --json | jq .objects
    [dim]$[/dim] appliance predict faces photo.jpg --no-wait
    """
    if (file is None) == (text is None):
        raise typer.BadParameter("give either a file or --text")
    body, kind = body_of(file, text, content_type)
    with box.client() as client:
        options: PredictOptions = {"variant": variant, "timeout_ms": timeout_ms}
        if not wait:
            show_later(box, client.predict_later(application, body, content_type=kind, **options))
            return
        answer = client.predict(application, body, content_type=kind, **options).model_dump(mode="json")
    box.tell(answer, lines_of(answer))


def show_later(box: Connection, request: "RequestShape") -> None:
    """Show by which id the answer can be fetched."""
    told = f"{request.id}   {request.state}   see it with: appliance requests show {request.id}"
    box.tell(request.model_dump(mode="json", exclude_none=True), told)


def body_of(file: Path | None, text: str | None, content_type: str | None) -> tuple[bytes, str]:
    """What is sent, and what it is said to be."""
    if text is not None:
        return text.encode(), "text/plain"
    assert file is not None
    if str(file) == "-":
        return sys.stdin.buffer.read(), content_type or "application/octet-stream"
    return file.read_bytes(), content_type or content_type_of(file)


def lines_of(answer: dict[str, Any]) -> list[str]:
    """The answer for a person: what was found, then who answered and how long it took."""
    lines = found_in(answer)
    timings = answer.get("timings_ms", {})
    parts = ", ".join(f"{part} {ms:.1f}" for part, ms in timings.items() if part != "total" and ms)
    called = answer.get("accuracy_meaning") or ACCURACY
    accuracy = (
        "" if answer.get("accuracy") is None else f", {called} {answer['accuracy']:.3f} ({answer['accuracy_metric']})"
    )
    lines.append(f"— variant {answer.get('variant')}{accuracy}; {timings.get('total', 0):.1f} ms ({parts})")
    return lines


def found_in(answer: Mapping[str, Any]) -> list[str]:
    """What a task says, for a person."""
    return [line for key, teller in _TELLERS.items() if key in answer for line in teller(answer[key])]


def _labels(labels: list[dict[str, Any]]) -> list[str]:
    return [f"{found['score']:7.1%}  {found['label']}" for found in labels]


def _objects(objects: list[dict[str, Any]]) -> list[str]:
    if not objects:
        return ["nothing found"]
    return [f"{o['score']:7.1%}  {o['label']:<14} box {', '.join(f'{side:.0f}' for side in o['box'])}" for o in objects]


def _regions(regions: list[dict[str, Any]]) -> list[str]:
    if not regions:
        return ["no text found"]
    return [f"{r['score']:7.1%}  text at " + " ".join(f"({x:.0f}, {y:.0f})" for x, y in r["quad"]) for r in regions]


def _segments(segments: list[dict[str, float]]) -> list[str]:
    return [f"speech {part['start_s']:.2f}–{part['end_s']:.2f} s" for part in segments] or ["no speech"]


def _vector(vector: list[float]) -> list[str]:
    return [f"{len(vector)} numbers: " + ", ".join(f"{value:.4f}" for value in vector[:6]) + " …"]


def _tensors(outputs: Any) -> list[str]:
    return [screen.json_line(outputs)]


_TELLERS: dict[str, Any] = {
    "labels": _labels,
    "objects": _objects,
    "regions": _regions,
    "text": lambda text: [text],
    "segments": _segments,
    "embedding": _vector,
    "embeddings": lambda vectors: [line for vector in vectors for line in _vector(vector)],
    "outputs": _tensors,
}
