"""The migrations lead to exactly the tables of the code."""

import re
import sqlite3
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from appliance.modelstore import migrations
from appliance.modelstore.database import make_engine
from appliance.modelstore.tables import Row


def test_migrations_lead_to_the_tables(tmp_path: Path) -> None:
    """After all migrations nothing is left to change, constraints and indexes included."""
    database = tmp_path / "test.db"
    migrations.migrate(database)
    engine = make_engine(database, begin="BEGIN", pooled=False)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), Row.metadata)
    engine.dispose()
    assert differences == []


def test_head_is_known_without_alembic() -> None:
    """The constant that saves an up-to-date box the import of Alembic is the newest revision."""
    assert ScriptDirectory(str(migrations.SCRIPTS)).get_heads() == [migrations.HEAD]


def test_migrating_twice_changes_nothing(tmp_path: Path) -> None:
    """A second start leaves the file alone, data and all."""
    database = tmp_path / "test.db"
    migrations.migrate(database)
    with sqlite3.connect(database) as connection:
        connection.execute("INSERT INTO resident VALUES (0, 'kept')")
    connection.close()
    before = database.read_bytes()
    migrations.migrate(database)
    assert database.read_bytes() == before


def test_versions_are_told_apart(tmp_path: Path) -> None:
    """Restoring must know which databases this version understands."""
    assert migrations.current_revision(tmp_path / "none.db") is None
    assert migrations.is_known(migrations.HEAD)
    assert not migrations.is_known("9999")
    assert not migrations.is_known(None)


def test_every_migration_is_plain_sql_types() -> None:
    """A migration must not import the program: tables move on, migrations stay as they were."""
    for script in (migrations.SCRIPTS / "versions").glob("*.py"):
        assert not re.search(r"import appliance|from appliance|sqlmodel", script.read_text())
