"""Pipelines in the store."""

from sqlmodel import Session, func, select

from appliance.domain.errors import AlreadyExists, UnknownApplication, UnknownPipeline
from appliance.domain.names import checked_name
from appliance.domain.pipeline import Pipeline
from appliance.modelstore.store.pipeline_uses import note_uses
from appliance.modelstore.store.records import Change, Changes, Records, require_place
from appliance.modelstore.store.tables import ApplicationRow, PipelineRow
from appliance.modelstore.store.tenants import tenant_row
from appliance.modelstore.store.values import columns_of

PER_TENANT_MAX = 64
"""Pipelines of one tenant; all of them are planned together."""


def pipeline_row(session: Session, id: str) -> PipelineRow:
    """Raises: UnknownPipeline."""
    row = session.get(PipelineRow, id)
    if row is None:
        raise UnknownPipeline(name=id.split("/", 1)[-1])
    return row


class StoredPipelines:
    """Pipelines by id. Which application a pipeline asks is checked in the transaction that writes it, so that none
    can be deleted at the same time.
    """

    def __init__(self, records: Records, per_tenant_max: int) -> None:
        """`per_tenant_max` pipelines of one tenant, `ALL_TENANTS` times as many of all."""
        self._records = records
        self._per_tenant_max = per_tenant_max

    async def create(self, pipeline: Pipeline) -> Pipeline:
        """Raises: BadName, UnknownTenant, AlreadyExists, QuotaExceeded, UnknownApplication (also another tenant's that
        is not shared).
        """
        checked_name(pipeline.name, "pipeline")

        def work(session: Session) -> tuple[Pipeline, Changes]:
            tenant_row(session, pipeline.tenant)
            if session.get(PipelineRow, pipeline.id) is not None:
                raise AlreadyExists(name=pipeline.name)
            self._require_room(session, pipeline.tenant)
            _check_usable(session, pipeline)
            session.add(PipelineRow(**columns_of(pipeline)))
            session.flush()
            note_uses(session, pipeline.id, pipeline.application_ids)
            return pipeline, [Change("pipeline", pipeline.id, pipeline)]

        return await self._records.write(work)

    async def get(self, id: str) -> Pipeline:
        """Raises: UnknownPipeline."""
        return await self._records.read(lambda session: pipeline_row(session, id).to_pipeline())

    async def update(self, pipeline: Pipeline, before: Pipeline | None = None) -> Pipeline | None:
        """Replace everything but its identity; nothing, and None, where it is no more as it was `before`.

        Raises: UnknownPipeline, UnknownApplication.
        """

        def work(session: Session) -> tuple[Pipeline | None, Changes]:
            row = pipeline_row(session, pipeline.id)
            if before is not None and row.to_pipeline() != before:
                return None, []
            _check_usable(session, pipeline)
            row.take(pipeline)
            note_uses(session, pipeline.id, pipeline.application_ids)
            return pipeline, [Change("pipeline", pipeline.id, pipeline)]

        return await self._records.write(work)

    async def delete(self, id: str) -> None:
        """Raises: UnknownPipeline."""

        def work(session: Session) -> tuple[None, Changes]:
            session.delete(pipeline_row(session, id))
            return None, [Change("pipeline", id, None)]

        await self._records.write(work, frees=True)

    def _require_room(self, session: Session, tenant: str) -> None:
        """Raises: QuotaExceeded."""
        counted = select(func.count()).select_from(PipelineRow)
        of_tenant = session.exec(counted.where(PipelineRow.tenant == tenant)).one()
        of_all = session.exec(counted).one()
        require_place(tenant, "pipelines", self._per_tenant_max, of_tenant, of_all)


def _check_usable(session: Session, pipeline: Pipeline) -> None:
    """Raises: UnknownApplication unless the pipeline's tenant may call all that it asks."""
    for id in sorted(pipeline.application_ids):
        row = session.get(ApplicationRow, id)
        if row is None or not (row.shared or row.tenant == pipeline.tenant):
            raise UnknownApplication(name=id.split("/", 1)[-1])
