"""Logs are events with fields: a constant phrase and facts with units, JSON for the journal, colours for people."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def _as_if_absent(module: str) -> Iterator[None]:
    """Imports inside find that a module is not installed, unless somebody has it already: `None` in `sys.modules` is
    Python's word for that.
    """
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


# structlog imports rich wherever it is installed, and has no setting for it (`structlog/dev.py`), for tracebacks that
# the box never prints: with two other libraries behind it a fifteenth of a start, and megabytes.
with _as_if_absent("rich"):
    import structlog


class _StandardError:
    """Where lines go. What cannot be written is lost, and whoever had to tell it goes on: the disk that a log lies on
    may be full, or who reads it gone.
    """

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def configure(level: str, style: str) -> None:
    """Set up structlog once per process; writes to standard error. `style`: auto, json or console."""
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    # The default tracebacks print local variables, keys among them, and hold the event loop for seconds.
    colours = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    renderer: Any = colours if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info if not console else structlog.processors.UnicodeDecoder(),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(_StandardError()),  # type: ignore[arg-type]  # it is printed to
        cache_logger_on_first_use=True,
    )


def get(name: str) -> Any:
    """A logger whose events carry `component=name` (structlog keeps the word `logger` for itself)."""
    return structlog.get_logger(component=name)
