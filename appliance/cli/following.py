"""Following an import job to its end."""

from typing import TYPE_CHECKING

from appliance.domain.states import JobState
from appliance.terminal.failure import CommandFailed
from appliance.terminal.progress import progress

if TYPE_CHECKING:
    from appliance.client import Client
    from appliance.wire.jobs import JobShape


def follow(client: "Client", job: "JobShape") -> "JobShape":
    """Show the job's stages until it ends; returns how it ended.

    Raises: CommandFailed when it failed or was cancelled.
    """
    with progress(f"import {job.model}", of_bytes=False) as step:
        for now in client.follow_job(job.id):
            step(now.percent, 100.0, now.message if now.message.startswith("waits ") else now.stage)
    end = client.job(job.id)
    if end.state != JobState.DONE:
        raise CommandFailed(
            f"the import of {end.model} {end.state}: {end.error or end.message or 'no reason was given'}"
        )
    return end
