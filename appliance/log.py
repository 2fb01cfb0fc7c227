"""Logs are events with fields: a constant phrase and facts with units, JSON for the journal, colours for people."""

import atexit
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from appliance.log_lines import LogLines


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


def configure(level: str, style: str) -> None:
    """Set up structlog once per process; writes to standard error, and never waits for it. `style`: auto, json or
    console. What libraries warn of by `logging` goes the same way.
    """
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    # The default tracebacks print local variables, keys among them, and hold the event loop for seconds.
    colours = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    renderer: Any = colours if console else structlog.processors.JSONRenderer()
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info if not console else structlog.processors.UnicodeDecoder(),
        renderer,
    ]

    def of_dropped(count: int) -> str:
        event: Any = {"event": "log lines dropped, because they were not read", "lines": count, "component": "log"}
        for process in processors[1:]:
            event = process(None, "warning", event)
        return f"{event}\n"

    lines = LogLines(of_dropped)
    atexit.register(lines.close)
    others = logging.StreamHandler(lines)
    others.setLevel(logging.WARNING)
    logging.lastResort = others
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(lines),  # type: ignore[arg-type]  # it is written to
        cache_logger_on_first_use=True,
    )


def dropped() -> int:
    """Lines that were not written, because nobody read those before them."""
    lines = getattr(logging.lastResort, "stream", None)
    return lines.dropped if isinstance(lines, LogLines) else 0


def get(name: str) -> Any:
    """A logger whose events carry `component=name` (structlog keeps the word `logger` for itself)."""
    return structlog.get_logger(component=name)
