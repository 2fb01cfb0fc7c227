"""Brings the database up to the newest shape, at every start and before anything reads it."""

from pathlib import Path

SCRIPTS = Path(__file__).parent


def migrate(database: Path) -> None:
    """Run Alembic to the head; does nothing, quickly, when the database is there already."""
    if current_revision(database) == HEAD:
        return
    from alembic import command
    from alembic.config import Config

    from appliance.modelstore.database import make_engine

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    engine = make_engine(database, begin="BEGIN IMMEDIATE", pooled=False)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()


HEAD = "0001"
"""Newest revision; a test compares it with the scripts. Known here so that an up-to-date box starts without Alembic."""


def current_revision(database: Path) -> str | None:
    """What the database says it is; None for a new one."""
    import sqlite3

    if not database.exists():
        return None
    connection = sqlite3.connect(database)
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return None if row is None else str(row[0])
    except sqlite3.OperationalError:
        return None
    finally:
        connection.close()


def is_known(revision: str | None) -> bool:
    """Whether this version can bring a database of that revision up to date."""
    if revision == HEAD:
        return True
    return revision is not None and any((SCRIPTS / "versions").glob(f"{revision}_*.py"))
