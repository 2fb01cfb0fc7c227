"""Logs are events with fields: a constant phrase and facts with units, JSON for the journal, colours for people."""

import logging
import sys
from typing import Any

_has_rich = "rich" in sys.modules
if not _has_rich:
    # structlog imports it, with two other libraries behind it, for tracebacks that the box never prints: a fifteenth of
    # a start, and megabytes.
    sys.modules["rich"] = None  # type: ignore[assignment]
import structlog  # noqa: E402

if not _has_rich:
    del sys.modules["rich"]


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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def get(name: str) -> Any:
    """A logger whose events carry `component=name` (structlog keeps the word `logger` for itself)."""
    return structlog.get_logger(component=name)
