"""Jobs as they are stored."""

from datetime import timedelta

import pytest

from appliance.domain.catalogue import Tenant
from appliance.domain.errors import AlreadyExists, BadName, UnknownJob, UnknownModel, UnknownTenant
from appliance.domain.jobs import ImportRequest
from appliance.domain.states import JobState
from appliance.modelstore.store.store import Store
from tests.modelstore.boxes import Parts

pytestmark = pytest.mark.anyio


def asked(name: str = "m", tenant: str = "default") -> ImportRequest:
    return ImportRequest(tenant, name, "/nowhere")


async def test_job_progress_is_kept_and_never_falls(store: Store) -> None:
    """What is given changes, the rest stays; a smaller percentage is passed over."""
    job = await store.imports.accept("1", asked())
    assert (job.state, job.stage, job.percent, job.model_id) == (JobState.QUEUED, "queued", 0.0, "default/m")
    await store.jobs.update("1", state=JobState.RUNNING, stage="inspect", percent=40.0)
    job = await store.jobs.update("1", percent=30.0, message="going on")
    assert (job.state, job.stage, job.percent, job.message) == (JobState.RUNNING, "inspect", 40.0, "going on")
    assert job.updated_at > job.created_at
    assert await store.jobs.get("1") == job
    with pytest.raises(UnknownJob):
        await store.jobs.update("2", percent=1.0)


async def test_jobs_are_listed_newest_first(store: Store) -> None:
    """By tenant, by model, or all, in pages that go back in time."""
    await store.tenants.create(Tenant("harbour"))
    for id, name, tenant in (("1", "a", "default"), ("2", "b", "default"), ("3", "c", "harbour")):
        await store.imports.accept(id, asked(name, tenant))
    assert [job.id for job in await store.jobs.page()] == ["3", "2", "1"]
    assert [job.id for job in await store.jobs.page("default", limit=1)] == ["2"]
    assert [job.id for job in await store.jobs.page("default", before="2")] == ["1"]
    assert [job.id for job in await store.jobs.page(model_id="harbour/c")] == ["3"]


async def test_accepted_import_reserves_names_at_once(store: Store) -> None:
    """A second upload of a name, an application of that name, a bad name or an unknown tenant: refused before any
    work.
    """
    await store.imports.accept("1", asked())
    attempts: list[tuple[ImportRequest, type[Exception]]] = [
        (asked(), AlreadyExists),
        (ImportRequest("default", "other", "", application="m"), AlreadyExists),
        (asked("Bad Name"), BadName),
        (ImportRequest("default", "other", "", application="Bad Name"), BadName),
        (asked("m", "nobody"), UnknownTenant),
        (ImportRequest("default", "none", "", variant="own"), UnknownModel),
        (ImportRequest("default", "m", "", variant="Bad Name"), BadName),
    ]
    for request, error in attempts:
        with pytest.raises(error):
            await store.imports.accept("2", request)
    assert [job.id for job in await store.jobs.page()] == ["1"]
    assert [one.id for one in (await store.snapshot()).applications] == ["default/m"]


async def test_import_with_empty_application_name_creates_no_application(store: Store) -> None:
    """Another name makes the application of that name."""
    await store.imports.accept("1", ImportRequest("default", "a", "", application=""))
    await store.imports.accept("2", ImportRequest("default", "b", "", application="door", shared=True))
    (door,) = (await store.snapshot()).applications
    assert (door.name, door.model_id, door.shared) == ("door", "default/b", True)


async def test_failed_import_without_variants_frees_name(box: Parts, store: Store) -> None:
    """After a failure without any variant, model and applications are gone, the reason is kept, and the name can be
    used again.
    """
    await store.imports.accept("1", asked())
    box.changes.clear()
    job = await store.imports.withdraw("1", "it is no model")
    assert (job.state, job.error) == (JobState.FAILED, "it is no model")
    assert [(one.kind, one.id) for one in box.changes] == [
        ("application", "default/m"),
        ("model", "default/m"),
        ("job", "1"),
    ]
    assert await store.imports.withdraw("1", "again") == job
    await store.imports.accept("2", asked())


async def test_finished_jobs_are_forgotten_after_cutoff(box: Parts, store: Store) -> None:
    """Finished jobs before a day go; unfinished ones stay however old."""
    for id in ("1", "2", "3"):
        await store.imports.accept(id, asked(f"m{id}"))
    await store.imports.withdraw("1", "failed")
    box.clock.now += timedelta(days=2)
    await store.imports.withdraw("2", "failed")
    assert await store.jobs.forget(box.clock.now - timedelta(days=1)) == 1
    assert [job.id for job in await store.jobs.page()] == ["3", "2"]
