"""The server's messages about start and stop (ASGI's lifespan protocol), as a context that is entered and left."""

from contextlib import AbstractAsyncContextManager

from appliance.api.http.limits import Receive, Send


async def lifespan(life: AbstractAsyncContextManager[None], receive: Receive, send: Send) -> None:
    """Enter `life` at the server's start, leave it at its stop, and say what came of both. Raises: what `life` raises,
    once the server knows.
    """
    phase = "startup"
    await receive()
    try:
        async with life:
            await send({"type": "lifespan.startup.complete"})
            phase = "shutdown"
            await receive()
    except BaseException as error:
        await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
        raise
    await send({"type": "lifespan.shutdown.complete"})
