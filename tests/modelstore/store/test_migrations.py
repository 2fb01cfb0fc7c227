"""The migrations lead to exactly the tables of the code."""

import re
import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from appliance.domain.errors import IllegalState, StorageFull
from appliance.modelstore.store import migrations
from appliance.modelstore.store.database import make_engine
from appliance.modelstore.store.tables import Row


def migrated(database: Path) -> Path:
    """A database that went through every migration."""
    engine = make_engine(database, begin="BEGIN IMMEDIATE", pooled=False)
    with engine.begin() as connection:
        migrations.upgrade(connection)
    engine.dispose()
    return database


def shape_of(database: Path) -> dict[str, object]:
    """Columns, indexes with their columns, and foreign keys of every table, as SQLite sees them."""
    connection = sqlite3.connect(database)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    shape: dict[str, object] = {}
    for table in tables:
        indexes = connection.execute(f"SELECT name, \"unique\", origin FROM pragma_index_list('{table}')").fetchall()
        shape[table] = (
            sorted(connection.execute(f"SELECT name, \"notnull\", pk FROM pragma_table_info('{table}')")),
            sorted(
                (unique, origin, tuple(connection.execute(f"SELECT name FROM pragma_index_info('{name}')")))
                for name, unique, origin in indexes
            ),
            sorted(
                connection.execute(f'SELECT "table", "from", "to", on_delete FROM pragma_foreign_key_list(\'{table}\')')
            ),
        )
    connection.close()
    return shape


def test_new_database_equals_migrated_database(tmp_path: Path) -> None:
    """Both ways to the newest tables end in the same columns, keys, indexes and revision."""
    new = tmp_path / "new.db"
    migrations.migrate(new)
    old = migrated(tmp_path / "old.db")
    assert shape_of(new) == shape_of(old)
    assert migrations.current_revision(new) == migrations.current_revision(old) == migrations.HEAD


def test_migrations_lead_to_tables_of_code(tmp_path: Path) -> None:
    """After all migrations nothing is left to change, constraints and indexes included."""
    engine = make_engine(migrated(tmp_path / "test.db"), begin="BEGIN", pooled=False)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), Row.metadata)
    engine.dispose()
    assert differences == []


def test_migration_marks_originals_of_older_database(tmp_path: Path) -> None:
    """Of revision 0017 the variant called fp32 is the original, unless a tenant uploaded it as its own."""
    database = tmp_path / "old.db"
    engine = make_engine(database, begin="BEGIN IMMEDIATE", pooled=False)
    with engine.begin() as connection:
        migrations.upgrade(connection, "0017")
        connection.exec_driver_sql("INSERT INTO tenant VALUES ('default', '{}', '2026-01-01T00:00:00+00:00')")
        for model, variants in (("a", {"fp32": "fp32", "fp32-64x64": "fp32", "int8": "int8"}), ("b", {"fp32": "own"})):
            connection.exec_driver_sql(
                "INSERT INTO model (id, tenant, name, task, shared, created_at)"
                f" VALUES ('{model}', 'default', '{model}', '{{}}', 0, '2026-01-01T00:00:00+00:00')"
            )
            for number, (name, precision) in enumerate(variants.items(), 1):
                connection.exec_driver_sql(
                    "INSERT INTO variant"
                    " (id, model_id, name, number, precision, size_bytes, inputs, outputs, state, reason, batch_max)"
                    f" VALUES ('{model}:{name}', '{model}', '{name}', {number}, '{precision}', 1, '[]', '[]', 'ready', "
                    "'', 1)"
                )
    engine.dispose()
    migrations.migrate(database)
    opened = sqlite3.connect(database)
    assert opened.execute("SELECT id FROM variant WHERE is_original").fetchall() == [("a:fp32",)]
    opened.close()


def test_migration_head_is_known_without_alembic() -> None:
    """The constant that saves an up-to-date box the import of Alembic is the newest revision."""
    assert ScriptDirectory(str(migrations.SCRIPTS)).get_heads() == [migrations.HEAD]


def test_second_migration_leaves_database_file_unchanged(tmp_path: Path) -> None:
    """A second start leaves the file alone, data and all."""
    database = tmp_path / "test.db"
    migrations.migrate(database)
    with sqlite3.connect(database) as connection:
        connection.execute("INSERT INTO resident VALUES (0, 'kept')")
    connection.close()
    before = database.read_bytes()
    migrations.migrate(database)
    assert database.read_bytes() == before


def test_database_revisions_are_told_apart(tmp_path: Path) -> None:
    """Restoring must know which databases this version understands."""
    assert migrations.current_revision(tmp_path / "none.db") is None
    assert migrations.is_known(migrations.HEAD)
    assert not migrations.is_known("9999")
    assert not migrations.is_known(None)


def test_migrations_import_no_product_code() -> None:
    """A migration must not import the program: tables move on, migrations stay as they were."""
    for script in (migrations.SCRIPTS / "versions").glob("*.py"):
        assert not re.search(r"import appliance|from appliance|sqlmodel", script.read_text())


def test_database_of_newer_version_is_refused_and_unchanged(tmp_path: Path) -> None:
    """Going back to an older version says so instead of damaging what the newer one wrote."""
    database = tmp_path / "test.db"
    migrations.migrate(database)
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    before = database.read_bytes()
    with pytest.raises(IllegalState, match="newer version"):
        migrations.migrate(database)
    assert database.read_bytes() == before


def test_migration_on_full_disk_fails_and_works_later(small_disk: Path) -> None:
    """A first start without room says so; with room the next one works."""
    (small_disk / "ballast").write_bytes(b"b" * (3 * 2**20 - 40_000))
    with pytest.raises(StorageFull):
        migrations.migrate(small_disk / "test.db")
    (small_disk / "ballast").unlink()
    migrations.migrate(small_disk / "test.db")
    assert migrations.current_revision(small_disk / "test.db") == migrations.HEAD
