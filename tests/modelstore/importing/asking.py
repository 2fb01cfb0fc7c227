"""Imports that a test asks for."""

from pathlib import Path

from appliance.domain.catalogue import Model, TaskKind, TaskSpec
from appliance.domain.jobs import ImportRequest, JobRecord
from appliance.domain.states import JobState
from tests import toys
from tests.modelstore.boxes import Parts

PICTURES = TaskSpec(TaskKind.IMAGE_CLASSIFICATION)


def net(folder: Path, name: str = "net.onnx", seed: int = 3) -> Path:
    """A small convolution net with free batch, height and width."""
    return toys.conv_net(folder / name, 0.2, seed=seed)


def asked(source: Path, name: str = "net", tenant: str = "default", **more: object) -> ImportRequest:
    fields = {"task": PICTURES, "precisions": ()} | more
    return ImportRequest(tenant, name, str(source), source.name, **fields)  # type: ignore[arg-type]


async def done(box: Parts, job: JobRecord) -> JobRecord:
    ended = await box.ended(job.id)
    assert ended.state is JobState.DONE, ended.error
    return ended


async def imported(box: Parts, request: ImportRequest) -> Model:
    """The model once its import is done."""
    await done(box, await box.importer.submit(request))
    return await box.store.models.get(f"{request.tenant}/{request.name}")


async def failed(box: Parts, request: ImportRequest) -> JobRecord:
    """The job of an import once it has failed."""
    job = await box.ended((await box.importer.submit(request)).id)
    assert job.state is JobState.FAILED
    return job
