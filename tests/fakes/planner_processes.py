"""What becomes of planners' processes on a machine that is short of memory."""

import asyncio
import os
import signal

from appliance.runtime.sessions.planner_process import PlannerProcess


async def killed(process: PlannerProcess) -> None:
    """The machine ends it; when this returns it is no more."""
    pid = await process.call(os.getpid)
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
