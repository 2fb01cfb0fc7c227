"""Asks the box once a second what it has in memory, where imports stand and what was computed."""

import httpx

from appliance.clock import NS_PER_S, Clock
from appliance.demo.board import ENDED, Picture
from appliance.demo.server import RunningServer
from appliance.demo.tenancy import Tenancy
from appliance.domain.errors import ApplianceError

ASK_EVERY_NS = NS_PER_S


class Watch:
    """Keeps `picture` fresh."""

    def __init__(self, clock: Clock, server: RunningServer, tenancy: Tenancy, picture: Picture) -> None:
        self._clock = clock
        self._server = server
        self._tenancy = tenancy
        self._picture = picture
        self._asked_ns = 0

    def ask(self) -> bool:
        """At most once a second; a busy box is asked again later. True: it has answered."""
        if self._clock.now_ns() - self._asked_ns < ASK_EVERY_NS:
            return False
        self._server.check()
        try:
            self._ask()
            return True
        except (httpx.TransportError, ApplianceError):
            return False  # it has better things to do just now; the next second will tell
        finally:
            self._asked_ns = self._clock.now_ns()

    def _ask(self) -> None:
        picture, admin = self._picture, self._tenancy.admin
        items = runs = 0
        for tenant, client in self._tenancy.clients.items():
            picture.applications |= {(tenant, one.name): one for one in client.applications()}
            known = [job for (owner, _), job in picture.jobs.items() if owner == tenant]
            if not known or any(job.state not in ENDED for job in known):
                newest_first = list(client.jobs())
                picture.jobs |= {(tenant, job.model): job for job in reversed(newest_first)}
            its_items, its_runs = client.computed()
            items, runs = items + its_items, runs + its_runs
        picture.memory = admin.memory()
        done = [f"{one.name} {one.runs or 0} runs" for one in admin.processors() if one.state == "serving"]
        picture.computed = "   ".join([*done, *([f"{items / runs:.2f} items a run"] if runs else [])])
