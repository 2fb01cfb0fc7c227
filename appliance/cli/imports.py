"""`appliance import`: a model from a file to the box, followed to the end of its import."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.connection import Connection, connected
from appliance.terminal.failure import CommandFailed

if TYPE_CHECKING:
    from appliance.client import Client
    from appliance.wire.jobs import JobShape

TASKS = (
    "image-classification, object-detection, face-detection, text-detection, text-recognition, image-embedding, "
    "text-embedding, voice-activity or tensor"
)


@connected
def import_model(
    box: Connection,
    file: Annotated[
        Path,
        typer.Argument(help="ONNX file, or a folder, zip or tar with one and what belongs to it.", exists=True),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the model \\[default: the file's name]")] = None,
    task: Annotated[
        str | None, typer.Option(help=f"What it does: {TASKS} \\[default: as the metadata says, else tensor]")
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(help="JSON, or @FILE: labels, image, decoder, params, state, precisions ...")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Class names, one a line.", exists=True, dir_okay=False)] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json of a text model.", exists=True, dir_okay=False)
    ] = None,
    application: Annotated[
        str | None, typer.Option(help="Name of the application, where it is not the model's.")
    ] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Readable by every tenant.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the import to its end.")] = True,
) -> None:
    """Bring a model: upload it, and follow how the box checks it, makes variants and measures them.

    The model can be called as soon as its first variant is ready. A folder, zip or tar may hold labels.txt,
    tokenizer.json, metadata.json, external data, and the folders calibration/ and evaluation/ (with truth.json) beside
    the ONNX file. A large file whose upload was cut short goes on where it stopped when the same command is run again.

    [dim]$[/dim] appliance import classifier.onnx --task image-classification --labels labels.txt
    [dim]$[/dim] appliance import ./detector --name door --task object-detection --tenant harbour
    [dim]$[/dim] appliance import net.onnx --task tensor --metadata '{"precisions": ["int8"]}'
    """
    facts = read_metadata(metadata)
    from appliance.cli.packing import as_file

    with box.client() as client, as_file(file) as whole:
        job = _upload(
            client,
            box.url,
            whole,
            name=name or str(facts.get("name") or name_of(file)),
            task=task or str(facts.get("task") or _packed_task(file) or "tensor"),
            metadata=facts,
            labels=labels,
            tokenizer=tokenizer,
            application=application,
            shared=shared,
        )
        if wait:
            from appliance.cli.following import follow

            job = follow(client, job)
        ready = f"model {job.model} is ready; see it with: appliance models show {job.model}"
        box.tell(job, ready if wait else f"job {job.id} has begun; follow it with: appliance jobs follow {job.id}")


def read_metadata(text: str | None) -> dict[str, Any]:
    """The JSON object of `--metadata`, given as text or as @FILE. Raises: CommandFailed."""
    if text is None:
        return {}
    if text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        facts = json.loads(text)
    except ValueError as error:
        raise CommandFailed(
            f'--metadata is no JSON ({error}); quote it like \'{{"labels": ["cat"]}}\', or name a file: @metadata.json'
        ) from None
    if not isinstance(facts, dict):
        raise CommandFailed('--metadata must be a JSON object, like \'{"labels": ["cat", "dog"]}\'')
    return facts


def name_of(file: Path) -> str:
    """A legal model name made of a file's: `My Net_v2.tar.gz` → `my-net_v2`."""
    stem = re.sub(r"\.(onnx|zip|tar|tgz|tar\.\w+)$", "", file.resolve().name.lower())
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("._-")[:63] or "model"


def _packed_task(file: Path) -> str | None:
    """What the metadata.json of a folder says; an archive's is read by the box."""
    metadata = file / "metadata.json"
    if not metadata.is_file():
        return None
    return read_metadata(f"@{metadata}").get("task")


def _upload(client: "Client", url: str, file: Path, **order: Any) -> "JobShape":
    """One form for a small file; pieces, remembered until they are imported, for a large one."""
    from appliance.client.client import FORM_BYTES_MAX
    from appliance.terminal.progress import progress

    with progress(f"upload {file.name}", of_bytes=True) as step:
        upload = None
        if file.stat().st_size > FORM_BYTES_MAX:
            from appliance.cli.pending import PendingUploads

            pending = PendingUploads(url)
            upload = pending.send(client, file, lambda done, total: step(done, total, ""))
        job = client.upload_model(file, upload=upload, **order)
        if upload is not None:
            pending.forget(file)
    return job
