"""Brings the database up to the newest shape, at every start and before anything reads it."""

from pathlib import Path
from typing import TYPE_CHECKING

from appliance.domain.errors import IllegalState
from appliance.modelstore.store.sqlite_errors import sqlite_errors_are_typed

if TYPE_CHECKING:
    from sqlalchemy import Connection

SCRIPTS = Path(__file__).parent


HEAD = "0021"
"""Newest revision; a test compares it with the scripts. Known here so that an up-to-date box starts without Alembic."""


def migrate(database: Path) -> None:
    """Bring a database to the head in one transaction; does nothing, quickly, when it is there already.

    A new one gets the newest tables directly: Alembic costs 12 MB that would stay for the life of the process. A test
    shows that both ways end in the same tables. Raises: IllegalState for the database of a newer version, StorageFull.
    """
    with sqlite_errors_are_typed():
        revision = current_revision(database)
    if revision == HEAD:
        return
    if revision is not None and not is_known(revision):
        raise IllegalState(name=str(database), state=f"of a newer version (revision {revision})")

    from appliance.modelstore.store.database import database_errors_are_typed, make_engine

    engine = make_engine(database, begin="BEGIN IMMEDIATE", pooled=False)
    with database_errors_are_typed(), engine.begin() as connection:
        if revision is None:
            create(connection)
        else:
            upgrade(connection)
    engine.dispose()


def create(connection: "Connection") -> None:
    """All tables as they are now, and the mark that no migration is due."""
    from sqlalchemy import text

    from appliance.modelstore.store.tables import Row

    Row.metadata.create_all(connection)
    connection.execute(
        text("CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    )
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def upgrade(connection: "Connection", revision: str = "head") -> None:
    """Run what is missing of the scripts in `versions`, up to a revision."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def current_revision(database: Path) -> str | None:
    """What the database says it is; None for a new one."""
    import sqlite3

    if not database.exists():
        return None
    connection = sqlite3.connect(database)
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return None if row is None else str(row[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # no such table: nothing was made of the file yet
            return None
        raise
    finally:
        connection.close()


def is_known(revision: str | None) -> bool:
    """Whether this version can bring a database of that revision up to date."""
    if revision == HEAD:
        return True
    return revision is not None and any((SCRIPTS / "versions").glob(f"{revision}_*.py"))
