"""Turns of the event loop: planning looks at many sessions, and lets others go on between."""

import asyncio


async def others_first() -> None:
    """Let what else waits for the event loop go on."""
    await asyncio.sleep(0)  # noqa: TID251 - no time passes
