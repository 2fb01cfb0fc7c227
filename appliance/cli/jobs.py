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
        jobs = list(islice(client.jobs(), limit))
    if box.as_json:
        screen.show_json(jobs)
        return
    rows = [
        (j.id, j.model, j.state, f"{j.percent:.0f} %", j.stage, str(j.created_at)[:19], j.error or _doing(j))
        for j in jobs
    ]
    columns = ("job", "model", "state", "done>", "stage", "begun", "remarks")
    screen.show_table(
        columns,
        rows,
        lambda: box.nothing("job", "one begins with: appliance import FILE --name NAME --task TASK"),
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
    if box.as_json:
        screen.show_json(job)
        return
    print(f"{job.id}   model {job.model}   {job.state}   {job.percent:.0f} %   {job.stage}")
    for text in (job.message, job.error):
        if text:
            print(text)


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
