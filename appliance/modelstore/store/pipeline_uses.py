"""Which applications pipelines ask: those stay as they are."""

from collections.abc import Collection

from sqlalchemy import delete
from sqlmodel import Session, col, select

from appliance.domain.errors import ApplicationInUse
from appliance.modelstore.store.tables import ApplicationRow, PipelineRow, PipelineUseRow


def note_uses(session: Session, pipeline_id: str, application_ids: Collection[str]) -> None:
    """A pipeline asks these from now on, within the transaction that writes it."""
    session.execute(delete(PipelineUseRow).where(col(PipelineUseRow.pipeline_id) == pipeline_id))
    for id in sorted(application_ids):
        session.add(PipelineUseRow(pipeline_id=pipeline_id, application_id=id))


def refuse_if_used(session: Session, application: ApplicationRow, *, by_others_only: bool = False) -> None:
    """Raises: ApplicationInUse where a pipeline asks the application; `by_others_only`: one of another tenant's."""
    query = (
        select(PipelineRow.tenant, PipelineRow.name)
        .join(PipelineUseRow, col(PipelineUseRow.pipeline_id) == col(PipelineRow.id))
        .where(PipelineUseRow.application_id == application.id)
        .order_by(col(PipelineRow.id))
    )
    users = session.exec(query).all()
    own = () if by_others_only else tuple(name for tenant, name in users if tenant == application.tenant)
    # what is not shared others do not ask, though one of this id was there when they named it
    others = sum(tenant != application.tenant for tenant, _ in users) if application.shared else 0
    if own or others:
        raise ApplicationInUse(name=application.name, pipelines=own, others=others)
