"""What a worker hands to a processor: a run of one job, or of several whose rows it computes together."""

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.runtime.engine.work import Run
from appliance.runtime.serving.job import Job, shapes_of


@dataclass(slots=True, eq=False)
class Batch:
    """The jobs of a run, with its inputs as they are computed."""

    run: Run
    jobs: list[Job]
    rows: int
    run_bytes: int
    """Memory to expect for it; 0 where that is not worth counting."""
    deadline_ns: int | None
    """When nobody wants it any more; None = never."""
    shapes: Mapping[str, tuple[int, ...]] | None
    """Of its inputs, where some are padded; None: they are as they were sent."""

    @classmethod
    def of(cls, run: Run) -> "Batch":
        """Return what the jobs of a run are computed as."""
        jobs: list[Job] = [call.reference for call in run.calls]
        first = jobs[0]
        if len(jobs) == 1 and (first.servable.padding is None or not first.servable.goes_in_steps):
            return cls(run, jobs, first.items, first.run_bytes, first.request.drop_ns, None)
        shapes = shapes_of(jobs)
        is_padded = any(job.request.shapes[name][1:] != shape[1:] for job in jobs for name, shape in shapes.items())
        is_alike = len(jobs) == 1 and not is_padded
        run_bytes = first.run_bytes if is_alike else first.servable.run_bytes_of(shapes)
        drops = [job.request.drop_ns for job in jobs]
        deadline_ns = None if None in drops else max(drop for drop in drops if drop is not None)
        return cls(run, jobs, run.rows, run_bytes, deadline_ns, shapes if is_padded else None)
