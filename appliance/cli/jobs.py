"""`appliance jobs`: imports, and how far they have come."""

from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.connection import Connection, connected
from appliance.cli.following import follow
from appliance.domain.states import JobState
from appliance.terminal import screen

if TYPE_CHECKING:
    from appliance.wire.jobs import JobShape

app = typer.Typer(no_args_is_help=True, help="Jobs: imports under way and their outcome.")

LIST_MAX = 50


@app.command("list")
@connected
def list_jobs(
    box: Connection, limit: Annotated[int, typer.Option(help="Most jobs, the newest first.", min=1)] = LIST_MAX
) -> None:
    """List the tenant's imports, newest first.

    [dim]$[/dim] appliance jobs list --tenant harbour
    """
    from itertools import islice

    with box.client() as client:
        box.table(
            islice(client.jobs(), limit),
            ("job", "model", "state", "done>", "stage", "begun", "remarks"),
            lambda j: (
                *(j.id, j.model, j.state, f"{j.percent:.0f} %", j.stage),
                *(str(j.created_at)[:19], j.error or _doing(j)),
            ),
            ("job", "one begins with: appliance import FILE --name NAME --task TASK"),
        )


def _doing(job: "JobShape") -> str:
    """What is said of a job that has not ended."""
    return job.message if job.state in (JobState.QUEUED, JobState.RUNNING) else ""


@app.command("show")
@connected
def show_job(box: Connection, job_id: Annotated[str, typer.Argument(metavar="JOB")]) -> None:
    """Show one import.

    [dim]$[/dim] appliance jobs show 01hf3k2m9x
    """
    with box.client() as client:
        job = client.job(job_id)
    now = f"{job.id}   model {job.model}   {job.state}   {job.percent:.0f} %   {job.stage}"
    box.tell(job, filter(None, (now, job.message, job.error)))


@app.command("follow")
@connected
def follow_job(box: Connection, job_id: Annotated[str, typer.Argument(metavar="JOB")]) -> None:
    """Follow an import to its end; exit status 1 when it fails.

    [dim]$[/dim] appliance jobs follow 01hf3k2m9x
    """
    with box.client() as client:
        job = follow(client, client.job(job_id))
    if box.as_json:
        screen.show_json(job)
