"""Models and variants in the store, from acceptance to deletion, together with their content."""

from collections.abc import Iterable, Mapping

from sqlmodel import Session, col, func, select

from appliance.domain.catalogue import Accuracy, Model, TaskSpec, Variant
from appliance.domain.errors import AlreadyExists, InUse, UnknownModel, UnknownVariant
from appliance.domain.errors.unavailable import UPLOAD_AGAIN
from appliance.domain.states import VARIANT_MOVES, VariantState, move
from appliance.modelstore.store.blobs import Staged
from appliance.modelstore.store.contents import Contents, contents_of, drop_unused
from appliance.modelstore.store.pipeline_uses import refuse_if_used
from appliance.modelstore.store.records import Change, Changes, Records
from appliance.modelstore.store.tables import ApplicationRow, AssetRow, Axes, ModelRow, VariantNumberRow, VariantRow
from appliance.modelstore.store.tenants import tenant_row
from appliance.modelstore.store.values import columns_of


def model_row(session: Session, id: str) -> ModelRow:
    """Raises: UnknownModel, also while it is being deleted."""
    row = session.get(ModelRow, id)
    if row is None or row.deleted_at is not None:
        raise UnknownModel(name=id)
    return row


def variant_row(session: Session, id: str) -> VariantRow:
    """Raises: UnknownVariant."""
    row = session.get(VariantRow, id)
    if row is None:
        raise UnknownVariant(name=id)
    return row


def load_models(session: Session, rows: Iterable[ModelRow]) -> list[Model]:
    """Rows with their variants, in three statements."""
    rows = list(rows)
    variants: dict[str, list[Variant]] = {row.id: [] for row in rows}
    query = select(VariantRow).where(col(VariantRow.model_id).in_(variants)).order_by(col(VariantRow.number))
    for row in session.exec(query):
        variants[row.model_id].append(row.to_variant())
    assets: dict[str, dict[str, str]] = {row.id: {} for row in rows}
    for asset in session.exec(select(AssetRow).where(col(AssetRow.model_id).in_(assets)).order_by(col(AssetRow.name))):
        assets[asset.model_id][asset.name] = asset.content_sha256
    return [row.to_model(tuple(variants[row.id]), assets[row.id]) for row in rows]


def model_change(session: Session, id: str) -> Change:
    """The announcement of a model as this transaction leaves it."""
    session.flush()
    row = session.get(ModelRow, id)
    gone = row is None or row.deleted_at is not None
    return Change("model", id, None if row is None or gone else load_models(session, [row])[0])


def add_model(session: Session, row: ModelRow) -> Change:
    """Insert within a transaction. Raises: UnknownTenant, AlreadyExists."""
    tenant_row(session, row.tenant)
    if session.get(ModelRow, row.id) is not None:
        raise AlreadyExists(name=row.name)
    session.add(row)
    return model_change(session, row.id)


def save_variant(session: Session, variant: Variant, axes: Axes | None) -> Change:
    """Insert or replace within a transaction; the number of the name stays. Raises: UnknownModel."""
    model = model_row(session, variant.model_id)
    row = session.get(VariantRow, variant.id)
    if row is None:
        number = number_of(session, model, variant.name)
        row = VariantRow(**columns_of(variant, "number"), number=number)
        session.add(row)
    elif row.state != variant.state.value and not row.to_variant().is_damaged:  # what is damaged is made anew
        move(VARIANT_MOVES, VariantState(row.state), variant.state)
    row.take(variant)
    row.axes = row.axes if axes is None else axes
    return model_change(session, variant.model_id)


def number_of(session: Session, model: ModelRow, name: str) -> int:
    """The number of a variant's name within a transaction: the one it had before, else the next that no name had."""
    kept = session.get(VariantNumberRow, (model.id, name))
    if kept is None:
        given = select(func.max(VariantNumberRow.number)).where(VariantNumberRow.model_id == model.id)
        number = (session.exec(given).one() or 0) + 1
        kept = VariantNumberRow(model_id=model.id, name=name, tenant=model.tenant, number=number)
        session.add(kept)
    return kept.number


class Models:
    """Models with their variants."""

    def __init__(self, records: Records, contents: Contents) -> None:
        self._records = records
        self._contents = contents

    async def get(self, id: str) -> Model:
        """Raises: UnknownModel."""
        return await self._records.read(lambda session: load_models(session, [model_row(session, id)])[0])

    async def update(self, id: str, *, task: TaskSpec | None = None, shared: bool | None = None) -> Model:
        """Change what is given. Raises: UnknownModel; InUse when sharing ends while others' applications use it."""

        def work(session: Session) -> tuple[Model, Changes]:
            row = model_row(session, id)
            if shared is False:
                _refuse_if_used_by_others(session, row)
            row.task = row.task if task is None else task
            row.shared = row.shared if shared is None else shared
            change = model_change(session, id)
            assert isinstance(change.value, Model)
            return change.value, [change]

        return await self._records.write(work)

    async def put_assets(self, id: str, files: Mapping[str, Staged]) -> Model:
        """Add or replace files that serving needs beside the graph; variants that had failed for want of them are
        ready again. Raises: UnknownModel, StorageFull.
        """

        def work(session: Session) -> tuple[Model, Changes]:
            model_row(session, id)
            models = {id}
            for name, staged in files.items():
                same = select(AssetRow.model_id).where(AssetRow.content_sha256 == staged.sha256)
                models |= set(session.exec(same).all())
                row = session.get(AssetRow, (id, name)) or AssetRow(
                    model_id=id, name=name, content_sha256=staged.sha256
                )
                row.content_sha256 = staged.sha256
                session.add(row)
            for variant in session.exec(select(VariantRow).where(col(VariantRow.model_id).in_(models))):
                lost = variant.reason.partition(": ")[0]
                if lost in files and variant.content_sha256 and variant.to_variant().is_damaged:
                    _restore(variant)
            changes = [model_change(session, model) for model in sorted(models)]
            return next(one.value for one in changes if isinstance(one.value, Model) and one.id == id), changes

        return await self._contents.write_with(list(files.values()), work)

    # -- variants ------------------------------------------------------------------------------------------------------

    async def variant(self, id: str) -> Variant:
        """Raises: UnknownVariant."""

        return await self._records.read(lambda session: variant_row(session, id).to_variant())

    async def variants_of(self, content_sha256: str) -> list[tuple[Variant, TaskSpec, Axes]]:
        """Every servable variant of a content with what profiling it takes."""

        def work(session: Session) -> list[tuple[Variant, TaskSpec, Axes]]:
            query = select(VariantRow, ModelRow).join(ModelRow).where(VariantRow.content_sha256 == content_sha256)
            found = [(row.to_variant(), model.task, row.axes or {}) for row, model in session.exec(query)]
            return [one for one in found if one[0].servable]

        return await self._records.read(work)

    async def put_variant(
        self, variant: Variant, content: Staged | None = None, axes: Mapping[str, tuple[str, ...]] | None = None
    ) -> Variant:
        """Insert or replace a variant, and return it with its number; new content is published in the same step, on the
        writer thread.

        `axes` are the roles of the inputs' axes, kept for profiling it again; None leaves them as they are.

        Raises: UnknownModel, StorageFull (the content is then discarded).
        """
        assert content is None or content.sha256 == variant.content_sha256, "the variant names other content"

        def work(session: Session) -> tuple[Variant, Changes]:
            change = save_variant(session, variant, None if axes is None else dict(axes))
            return variant_row(session, variant.id).to_variant(), [change]

        return await self._contents.write_with([content] if content else [], work)

    async def set_variant_state(self, id: str, state: VariantState, reason: str = "") -> Variant:
        """Raises: UnknownVariant. An illegal move is our own mistake and asserts."""

        def work(session: Session) -> tuple[Variant, Changes]:
            row = variant_row(session, id)
            if row.state != state.value:
                row.state = move(VARIANT_MOVES, VariantState(row.state), state).value
            row.reason = reason
            return row.to_variant(), [model_change(session, row.model_id)]

        return await self._records.write(work)

    async def set_accuracy(self, id: str, accuracy: Accuracy) -> None:
        """Replace the figure of a variant and nothing else of it. Raises: UnknownVariant."""

        def work(session: Session) -> tuple[None, Changes]:
            row = variant_row(session, id)
            row.accuracy = accuracy
            return None, [model_change(session, row.model_id)]

        await self._records.write(work)

    async def restore(self, sha256: str, content: Staged | None = None) -> list[Variant]:
        """Bring variants back that lost a content to damage, those of all models, and return them. `content`: it is
        not published yet, and is only where a variant lost it. Raises: StorageFull.
        """
        lost = select(VariantRow).where(col(VariantRow.reason).contains(_marked(sha256)))
        if not await self._records.read(lambda session: session.exec(lost).first() is not None):
            return []

        def work(session: Session) -> tuple[list[Variant], Changes]:
            rows = session.exec(lost).all()
            for row in rows:
                row.content_sha256 = sha256
                _restore(row)
            models = sorted({row.model_id for row in rows})
            return [row.to_variant() for row in rows], [model_change(session, id) for id in models]

        return await self._contents.write_with([] if content is None else [content], work)

    async def mark_damaged(self, sha256: str, problem: str, *, has_form: bool) -> None:
        """Mark every variant of a damaged content: as failed, unless it has a sound prepared form, which serves on."""

        def work(session: Session) -> tuple[None, Changes]:
            models = mark_damaged(session, sha256, problem, has_form=has_form)
            return None, [model_change(session, id) for id in models]

        await self._records.write(work, frees=True)

    async def delete_variant(self, id: str) -> None:
        """Remove one variant; its content goes when no other variant uses it. Raises: UnknownVariant."""

        def work(session: Session) -> tuple[list[str], Changes]:
            row = variant_row(session, id)
            content, model = row.content_sha256, row.model_id
            session.delete(row)
            return drop_unused(session, [content] if content else []), [model_change(session, model)]

        await self._contents.remove_files(await self._records.write(work, frees=True))

    # -- deletion ------------------------------------------------------------------------------------------------------

    async def begin_deletion(self, id: str) -> None:
        """Hide a model and its applications from everybody; the deletion goes through, at the next start at the latest.

        Raises: UnknownModel; InUse while another tenant's application uses it; ApplicationInUse while a pipeline asks
        one of its applications.
        """
        now = self._records.clock.wall_now()

        def work(session: Session) -> tuple[None, Changes]:
            row = model_row(session, id)
            _refuse_if_used_by_others(session, row)
            row.deleted_at = now
            applications = session.exec(select(ApplicationRow).where(ApplicationRow.model_id == id)).all()
            for application in applications:
                refuse_if_used(session, application)
                session.delete(application)
            return None, [*(Change("application", one.id, None) for one in applications), Change("model", id, None)]

        await self._records.write(work, frees=True)

    async def finish_deletion(self, id: str) -> None:
        """Remove its rows and content, once nothing works on it any more."""
        unused = await self._records.write(lambda session: (remove_model(session, id), []), frees=True)
        await self._contents.remove_files(unused)


def mark_damaged(session: Session, sha256: str, problem: str, *, has_form: bool) -> list[str]:
    """Mark the variants of a damaged content within a transaction, or those of the models that need it beside the
    graph; returns the ids of the models.
    """
    rows = session.exec(select(VariantRow).where(VariantRow.content_sha256 == sha256)).all()
    for row in rows:
        if has_form:
            row.reason = f"{problem}; its prepared form serves; {UPLOAD_AGAIN} {_marked(sha256)}"
        else:
            row.state, row.reason = VariantState.FAILED.value, f"{problem}; {UPLOAD_AGAIN} {_marked(sha256)}"
    models = {row.model_id for row in rows}
    for asset in session.exec(select(AssetRow).where(AssetRow.content_sha256 == sha256)).all():
        models.add(asset.model_id)
        for row in session.exec(select(VariantRow).where(VariantRow.model_id == asset.model_id)).all():
            row.state, row.reason = VariantState.FAILED.value, f"{asset.name}: {problem}; {UPLOAD_AGAIN}"
    return sorted(models)


def _marked(sha256: str) -> str:
    """How a variant that lost a content names it in its reason, by which it gets it back: its row may have no content
    any more.
    """
    return f"(content {sha256})"


def _restore(row: VariantRow) -> None:
    """What was lost to damage is there again."""
    if row.state == VariantState.FAILED.value:
        row.state = VariantState.READY.value
    row.reason = ""


def remove_model(session: Session, id: str) -> list[str]:
    """Remove a model's rows within a transaction; returns contents that nobody uses any more."""
    contents = contents_of(session, id)
    for application in session.exec(select(ApplicationRow).where(ApplicationRow.model_id == id)):
        session.delete(application)
    session.flush()
    if row := session.get(ModelRow, id):
        session.delete(row)
    return drop_unused(session, contents)


def _refuse_if_used_by_others(session: Session, row: ModelRow) -> None:
    others = select(ApplicationRow.id).where(ApplicationRow.model_id == row.id, ApplicationRow.tenant != row.tenant)
    if session.exec(others).first() is not None:
        raise InUse(name=row.id)
