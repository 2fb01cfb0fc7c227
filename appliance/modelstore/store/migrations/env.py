"""Alembic's entry: runs inside the connection that `migrate` hands over, one transaction for all steps."""

from alembic import context

from appliance.modelstore.store.tables import Row

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Row.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
